"""The log and the structure store as SQLite files: the memory of one process in one directory.

The log is written through (an append returns after its fsync). The structure is a MemoryStructure whose changes are
also rows of a file, gathered and committed together: whatever is in the file is a state the store once was in, so
after a kill it is an earlier one, and its `applied` offsets say from where the log is to be replayed.

What is erased may leave copies in both: SQLite moves rows from page to page and zeroes only the last place of each.
`write_anew` leaves none.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import contextmanager
from itertools import tee
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sortedcontainers import SortedDict

from streammem.backends.memory import Key, MemoryStructure, Run, Shelf, Value, home
from streammem.core.events import decode, encode
from streammem.core.registers import fact_key
from streammem.errors import (
    MemoryFormatError,
    MemoryHeldError,
    RejectedError,
    SettingsError,
    TransientError,
)
from streammem.ports import SUMMARIES, Appended, Fact, LogReader, LogWriter
from streammem.records import Artifacts, Due, Event, Leaf, LogEntry, NodeId, Paid, Position, Sequence, Summary, Wording

FORMAT = 1
"""The layout of both files (PRAGMA user_version). A break makes it 2."""

PENDING = 20_000
"""Rows gathered before they are committed without waiting for an offset: a few megabytes, a tenth of a second."""

RECENT = 8192
"""Summaries kept decoded, 3 KB each, and wordings, 1 KB: a question looks at hundreds, many the same as before."""

SHARE = 10
"""Commits that outlive a power cut take one part in so many of the time: what is cached meanwhile shares one."""

Name = TypeVar("Name", int, str)

_LOG = 0x73744C47  # "stLG" and "stST": what `file` and the next opening see
_STRUCTURE = 0x73745354

_NO_DELETE = "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
_LOG_SCHEMA = f"""
CREATE TABLE log (position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, event BLOB NOT NULL);
CREATE TRIGGER no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
{_NO_DELETE};
"""

_APPEND = "INSERT INTO log (key, event) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM log WHERE key = ?1)"

_TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Name to columns of the key and columns of the value. `sequence` holds numbers of the table of that name.
    "sequence": (("number INTEGER",), ("name BLOB",)),
    "version": (("uid TEXT", "number TEXT", "deleted INTEGER", "hash TEXT"), ("content BLOB",)),
    "entry": (("sequence INTEGER", "uid TEXT"), ("ts INTEGER",)),
    "answering": (("target TEXT", "uid TEXT"), ("ts INTEGER",)),
    "fact": (("key BLOB",), ("content BLOB",)),
    "due": (("sequence INTEGER",), ("since INTEGER", "generation INTEGER", "ts INTEGER", "uid TEXT")),
    "queued": (("sequence INTEGER", "queue TEXT"), ("since INTEGER", "generation INTEGER", "ts INTEGER", "uid TEXT")),
    "redaction": (("sequence INTEGER", "ts INTEGER", "uid TEXT"), ("serial INTEGER",)),
    "summary": (("sequence INTEGER", "level INTEGER", "place INTEGER"), ("content BLOB",)),
    "wording": (("sequence INTEGER", "level INTEGER", "place INTEGER"), ("content BLOB",)),
    "text": (("key TEXT",), ("content TEXT",)),
    "number": (("name TEXT",), ("value INTEGER",)),
    "erasure": (("mark TEXT",), ()),
    "grouping": (("workspace TEXT",), ("content BLOB",)),
}

_UNNAMED = """
DELETE FROM sequence WHERE number NOT IN (
  SELECT sequence FROM entry UNION SELECT sequence FROM due UNION SELECT sequence FROM redaction
  UNION SELECT sequence FROM queued UNION SELECT sequence FROM summary UNION SELECT sequence FROM wording
)
"""
"""Drops the names of sequences that nothing is kept of."""

_pack = msgspec.msgpack.Encoder().encode
_sequence = msgspec.msgpack.Decoder(Sequence).decode
_summary = msgspec.msgpack.Decoder(Summary).decode
_wording = msgspec.msgpack.Decoder(Wording).decode
_artifacts = msgspec.msgpack.Decoder(Artifacts).decode
_fact: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)


# ---------------------------------------------------------------------------------------------- opening, errors


def _unwritable(path: Path, error: sqlite3.Error) -> SettingsError:
    return SettingsError(f"cannot write {path} ({error}): check that its directory exists and is yours to write")


def _explained(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """The error of the tree that says what SQLite's means for the caller; itself when it is a fault of ours."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return TransientError(f"cannot reach {path} now: {error}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _unwritable(path, error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return MemoryFormatError(f"{path} is damaged or not a streammem file ({error})")
    return error


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        explained = _explained(path, error)
        if explained is error:
            raise
        raise explained from error


def _connect(path: Path, *, create: bool) -> sqlite3.Connection:
    if not create and not path.exists():
        raise SettingsError(f"there is no file {path}: name the directory of a memory that was made before")
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    db.execute("PRAGMA secure_delete = ON")
    return db


def _establish(db: sqlite3.Connection, path: Path, kind: int, schema: str) -> None:
    """Make the tables of a new file, in one transaction; refuse a file that is something else."""
    (found,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        db.executescript(f"BEGIN; {schema} PRAGMA application_id = {kind}; PRAGMA user_version = {FORMAT}; COMMIT;")
    elif found != kind:
        raise MemoryFormatError(f"{path} is not the streammem file it should be: was it renamed or replaced?")
    elif version != FORMAT:
        raise MemoryFormatError(
            f"{path} has format {version}, this streammem reads {FORMAT}: use the one that wrote it"
        )


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _end_wal(db: sqlite3.Connection, path: Path) -> None:
    """Leave no byte of what was deleted in the write-ahead log."""
    (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise TransientError(f"cannot erase from {path} now: another process reads it")


# ------------------------------------------------------------------------------------------------------ the log


class SqliteLog(LogWriter, LogReader):
    """The log in a file that refuses updates and deletes. Several processes may read it while one appends.

    Only `erase` takes anything out.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self._path = Path(path)
        with _explaining(self._path):
            self._db = _connect(self._path, create=create)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                _establish(self._db, self._path, _LOG, _LOG_SCHEMA)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Closing twice is no fault."""
        self._db.close()

    async def append(self, events: Many[tuple[str, Event]]) -> Appended:
        with _explaining(self._path), _transaction(self._db):
            before = self._db.total_changes
            self._db.executemany(_APPEND, [(key, encode(event)) for key, event in events])
            accepted = self._db.total_changes - before
            position = self._end()
        return Appended(accepted=accepted, duplicates=len(events) - accepted, position=position)

    async def erase(self, entries: Many[LogEntry]) -> None:
        if not entries:
            return
        with _explaining(self._path):
            with _transaction(self._db):
                self._db.execute("DROP TRIGGER no_delete")
                gone = [(entry.position, entry.key) for entry in entries]
                self._db.executemany("DELETE FROM log WHERE position = ? AND key = ?", gone)
                self._db.execute(_NO_DELETE)
            _end_wal(self._db, self._path)

    def write_anew(self) -> None:
        """Leave no byte of what was erased in the file or beside it. Takes a second for each 100 MB, and their room."""
        with _explaining(self._path):
            self._db.execute("VACUUM")
            _end_wal(self._db, self._path)

    async def erased(self, keys: Iterable[str]) -> set[str]:  # noqa: ARG002 - what is erased is not given any more
        return set()

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        query = "SELECT position, key, event FROM log WHERE position > ? ORDER BY position LIMIT ?"
        with _explaining(self._path):
            rows = self._db.execute(query, (after.get(0, 0), max(limit, 0))).fetchall()
        return [LogEntry(position=position, key=key, event=self._read(position, raw)) for position, key, raw in rows]

    def _read(self, position: int, raw: bytes) -> Event:
        try:
            return decode(raw)
        except RejectedError as error:
            raise MemoryFormatError(f"{self._path} cannot be read at position {position} ({error})") from error

    async def end(self) -> Position:
        with _explaining(self._path):
            return self._end()

    def _end(self) -> Position:
        (last,) = self._db.execute("SELECT max(position) FROM log").fetchone()
        return {0: int(last)} if last else {}


# ------------------------------------------------------------------------------------------------ the structure


class _Statements:
    """The statements of one table, from its columns."""

    def __init__(self, name: str) -> None:
        key, value = _TABLES[name]
        keys, values = ([column.split()[0] for column in columns] for columns in (key, value))
        where = " AND ".join(f"{column} = ?" for column in keys)
        marks = ", ".join("?" * len(keys + values))
        long = name in ("text", "summary", "wording", "sequence", "grouping")
        rowid = "" if long else " WITHOUT ROWID"  # long rows fill a b-tree badly
        self.create = (
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(key + value)}, PRIMARY KEY ({', '.join(keys)})){rowid};"
        )
        self.put = f"INSERT OR REPLACE INTO {name} VALUES ({marks})"  # noqa: S608
        self.get = f"SELECT {', '.join(values or keys)} FROM {name} WHERE {where}"  # noqa: S608
        self.cut = f"DELETE FROM {name} WHERE {where}"  # noqa: S608
        self.all = f"SELECT * FROM {name}"  # noqa: S608
        self.keys = f"SELECT {', '.join(keys)} FROM {name}"  # noqa: S608
        self.empty = f"DELETE FROM {name}"  # noqa: S608
        self.any = f"SELECT 1 FROM {name} LIMIT 1"  # noqa: S608
        self.count = f"SELECT count(*) FROM {name}"  # noqa: S608


_SQL = {name: _Statements(name) for name in _TABLES}
_STRUCTURE_SCHEMA = " ".join(statements.create for statements in _SQL.values())


class _File:
    """The file of a structure store: rows written to it are seen at once and committed together."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        self.numbers: dict[Sequence, int] = {}
        self._last = 0
        self._pending: dict[str, dict[tuple[Any, ...], tuple[Any, ...] | None]] = {table: {} for table in _TABLES}
        self._emptied: set[str] = set()
        self._rows = 0
        with _explaining(path):
            self._db = _connect(path, create=create)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        # What is in memory is true only while nobody else writes: the file is held for as long as it is open.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # what a power cut takes is replayed from the log
            self._db.execute("PRAGMA wal_autocheckpoint = 4000")  # 16 MB, like the pages below
            _establish(self._db, self.path, _STRUCTURE, _STRUCTURE_SCHEMA)
            for statements in _SQL.values():  # files of before lack some
                self._db.execute(statements.create)
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                raise MemoryHeldError(f"{self.path} is open in another process: wait for it or stop it") from None
            if code == sqlite3.SQLITE_IOERR:  # so it says in this mode where files may only be read
                raise _unwritable(self.path, error) from None
            raise

    def widen(self) -> None:
        """Make room for pages once all has been read: messages that arrive out of order touch many of them."""
        self._db.execute("PRAGMA cache_size = -16000")

    def close(self) -> None:
        self._db.close()

    def put(self, table: str, key: tuple[object, ...], values: tuple[object, ...] | None) -> None:
        """Write a row; None removes it."""
        if values and isinstance(values[0], msgspec.Struct):
            values = (_pack(values[0]),)
        self._pending[table][self._key(key)] = values
        self._rows += 1
        if self._rows >= PENDING:
            self.commit()

    def empty(self, table: str) -> None:
        """Remove all rows of a table."""
        self._pending[table].clear()
        self._emptied.add(table)
        self._rows += 1
        if table == "sequence":
            self.numbers.clear()

    def get(self, table: str, key: tuple[object, ...]) -> tuple[Any, ...] | None:
        """The values of a row, None where there is none."""
        if isinstance(key[0], Sequence) and key[0] not in self.numbers:
            return None
        columns = self._key(key)
        if columns in self._pending[table] or table in self._emptied:
            return self._pending[table].get(columns)
        with _explaining(self.path):
            row: tuple[Any, ...] | None = self._db.execute(_SQL[table].get, columns).fetchone()
        return row

    def all(self, table: str) -> Iterator[Any]:
        """All rows that are committed."""
        return self._db.execute(_SQL[table].all)

    def has(self, table: str) -> bool:
        """Whether any row is committed."""
        with _explaining(self.path):
            return self._db.execute(_SQL[table].any).fetchone() is not None

    def keys(self, table: str) -> list[tuple[Any, ...]]:
        """The keys of all rows, where a number stands for a sequence. Commits."""
        self.commit()
        with _explaining(self.path):
            return self._db.execute(_SQL[table].keys).fetchall()

    def count(self, table: str) -> int:
        """How many rows there are. Commits."""
        self.commit()
        return int(self._db.execute(_SQL[table].count).fetchone()[0])

    def commit(self) -> None:
        """Make everything written so far one state of the file. When it fails, all of it stays pending."""
        if not self._rows:
            return
        with _explaining(self.path), _transaction(self._db):
            for table in self._emptied:
                self._db.execute(_SQL[table].empty)
            for table, rows in self._pending.items():
                if rows:
                    self._db.executemany(_SQL[table].put, [k + v for k, v in rows.items() if v is not None])
                    self._db.executemany(_SQL[table].cut, [k for k, v in rows.items() if v is None])
        self._pending = {table: {} for table in _TABLES}
        self._emptied.clear()
        self._rows = 0

    @contextmanager
    def outliving_power(self) -> Iterator[None]:
        """What is committed in here is on the disk: for what no log can replay."""
        with _explaining(self.path):
            self._db.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = NORMAL")

    def write_anew(self) -> None:
        """Commit, and leave no byte of what was removed in the file or beside it."""
        self.commit()
        with _explaining(self.path):
            self._db.execute(_UNNAMED)
            left = {number for (number,) in self._db.execute("SELECT number FROM sequence")}
            self.numbers = {name: number for name, number in self.numbers.items() if number in left}
            self._db.execute("VACUUM")
            _end_wal(self._db, self.path)

    def _key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._number(key[0]), *key[1:]) if isinstance(key[0], Sequence) else key

    def know(self, names: Mapping[int, Sequence]) -> None:
        """The sequences that have a number. A number never comes again while the file is open."""
        self.numbers.update((name, number) for number, name in names.items())
        self._last = max(names, default=0)

    def _number(self, sequence: Sequence) -> int:
        """Rows name a sequence by a number of this file's own: its name is longer than a row."""
        number = self.numbers.get(sequence)
        if number is None:
            number = self.numbers[sequence] = self._last = self._last + 1
            self._pending["sequence"][(number,)] = (_pack(sequence),)
        return number


class _OnFile(Shelf[Key, Value]):
    """A part of the store that is read from the file: much of it is kept, and little of it is read.

    The values read last, at most `recent` of them, stay at hand. `bare` says that there is nothing in it yet: a
    question asks for hundreds of wordings, and most memories have none.
    """

    def __init__(
        self,
        file: _File,
        table: str,
        columns: Callable[[Key], tuple[object, ...]],
        keys: Callable[[Iterable[tuple[Any, ...]]], Iterator[Key]],
        read: Callable[[Any], Value],
        *,
        recent: int = 0,
    ) -> None:
        self._file, self._table, self._columns, self._keys, self._read = file, table, columns, keys, read
        self._recent: dict[Key, Value] = {}
        self._most = recent
        self._bare = not file.has(table)

    def get(self, key: Key, /) -> Value | None:
        if self._bare:
            return None
        known = self._recent.get(key)
        if known is not None:
            return known
        row = self._file.get(self._table, self._columns(key))
        return self._remember(key, self._read(row[0])) if row else None

    def _remember(self, key: Key, value: Value) -> Value:
        if self._most:
            if len(self._recent) >= self._most:
                del self._recent[next(iter(self._recent))]
            self._recent[key] = value
        return value

    def __setitem__(self, key: Key, value: Value, /) -> None:
        self._recent.pop(key, None)
        self._bare = False
        self._file.put(self._table, self._columns(key), (value,))

    def __delitem__(self, key: Key, /) -> None:
        self._recent.pop(key, None)
        self._file.put(self._table, self._columns(key), None)

    def clear(self) -> None:
        self._recent.clear()
        self._bare = True
        self._file.empty(self._table)

    def __len__(self) -> int:
        return self._file.count(self._table)

    def __iter__(self) -> Iterator[Key]:
        return self._keys(self._file.keys(self._table))

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All there is, read row by row: nothing may be written meanwhile. Commits."""
        self._file.commit()
        with _explaining(self._file.path):
            keys, values = tee(self._file.all(self._table))
            yield from zip(self._keys(row[:-1] for row in keys), (self._read(row[-1]) for row in values), strict=True)


class SqliteStructure(MemoryStructure):
    """The structure store in a file that one process holds, read into memory when it is opened.

    Changes are committed by `advance`, `settle`, `cache`, `forbid`, `uncache`, `clear`, `flush`, `write_anew` and
    `close`, and whenever many are pending.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        super().__init__()
        self._file = _File(Path(path), create=create)
        self._summaries = _OnFile(self._file, "summary", _columns, self._nodes, _summary, recent=RECENT)
        self._wordings = _OnFile(self._file, "wording", _columns, self._nodes, _wording, recent=RECENT)
        self._texts = _OnFile(self._file, "text", lambda key: (key,), lambda rows: (key for (key,) in rows), str)
        self._unsafe: set[str] = set()
        self._saving: asyncio.Task[None] | None = None
        self._rested = 0.0
        self._closed = False
        try:
            with _explaining(self._file.path):
                self._load()
                self._file.widen()
        except msgspec.MsgspecError as error:
            self._file.close()
            raise MemoryFormatError(f"{path} cannot be read ({error})") from error
        except BaseException:
            self._file.close()
            raise

    def _nodes(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[NodeId]:
        names = {number: name for name, number in self._file.numbers.items()}
        return (NodeId(names[number], level, index) for number, level, index in rows)

    def flush(self) -> None:
        """Commit everything written so far."""
        self._file.commit()

    def write_anew(self) -> None:
        """Commit, and leave no byte of what was removed in the file or beside it: at the end of an erasure.

        Takes a second for each 100 MB, and their room.
        """
        self._file.write_anew()

    def close(self) -> None:
        """Commit and release the file. Closing twice is no fault."""
        self._closed = True
        try:
            self._file.commit()
        finally:
            self._file.close()

    # ---- changes become rows
    def _save(self, table: str, key: tuple[object, ...], *values: object) -> None:
        self._file.put(table, key, values)

    def _remove(self, table: str, key: tuple[object, ...]) -> None:
        self._file.put(table, key, None)

    async def advance(self, name: str, position: Position) -> None:
        await super().advance(name, position)
        self._file.commit()

    async def settle(self, due: Many[Due], queue: str = SUMMARIES) -> list[Due]:
        gone = await super().settle(due, queue)
        self._file.commit()
        return gone

    async def cache(self, texts: Mapping[str, Paid]) -> None:
        await super().cache(texts)
        self._unsafe.update(texts)
        loop = asyncio.get_running_loop()
        if self._saving is None or self._saving.done() or self._saving.get_loop() is not loop:
            self._saving = loop.create_task(self._make_safe())
        await asyncio.shield(self._saving)

    async def _make_safe(self) -> None:
        """Let what is cached outlive a power cut, together: each commit takes milliseconds in which all else stands."""
        await asyncio.sleep(self._rested - time.monotonic())
        began, keys = time.monotonic(), self._unsafe
        self._unsafe, self._saving = set(), None
        if self._closed:
            return
        for key in keys:  # once more: others may have committed it, but not so that it outlives a power cut
            if (text := self._texts.get(key)) is not None:
                self._texts[key] = text
        with self._file.outliving_power():
            self._file.commit()
        self._rested = time.monotonic() + SHARE * (time.monotonic() - began)

    async def forbid(self, marks: Many[str]) -> None:
        await super().forbid(marks)
        if marks:
            self._file.commit()

    async def uncache(self, uids: Many[str]) -> None:
        await super().uncache(uids)
        self._file.commit()

    async def clear(self) -> None:
        await super().clear()
        for table in _TABLES:
            if table not in ("number", "text", "erasure"):
                self._file.empty(table)
        self._file.commit()

    # ---- rows become memory
    def _load(self) -> None:
        self._numbers.update((_whole(name), value) for name, value in self._file.all("number"))
        self._marks.update(mark for (mark,) in self._file.all("erasure"))
        for uid, _, _, _, raw in self._file.all("version"):
            self._versions[uid] = (*self._versions.get(uid, ()), raw)
        names = {number: _sequence(raw) for number, raw in self._file.all("sequence")}
        self._file.know(names)
        self._load_leaves(names)
        for (raw,) in (row[1:] for row in self._file.all("fact")):
            fact = _fact.decode(raw)
            self._facts.setdefault(home(fact), {})[fact_key(fact)] = fact
        queued = [(number, SUMMARIES, *mark) for number, *mark in self._file.all("due")]
        queued += self._file.all("queued")
        for number, queue, since, generation, ts, uid in sorted(queued, key=lambda row: row[2]):
            self._due[queue][names[number]] = since, Due(names[number], generation, Leaf(ts, uid))
        for number, ts, uid, serial in sorted(self._file.all("redaction"), key=lambda row: row[3]):
            self._redactions.setdefault(names[number], {})[Leaf(ts, uid)] = serial
        self._groupings = {name: _artifacts(raw) for name, raw in self._file.all("grouping")}
        self._workspaces = {sequence.workspace for sequence in self._runs} | {place[0] for place in self._facts}

    def _load_leaves(self, names: dict[int, Sequence]) -> None:
        """Messages have equal leaves in many places: one record serves all of them."""
        shared: dict[str, Leaf] = {}
        leaves = _by_first(self._file.all("entry"), shared)
        self._runs = SortedDict({names[number]: Run(names[number], of) for number, of in leaves.items()})
        for run in self._runs.values():
            for uid in run.of:
                self._placed.setdefault(uid, []).append(run)
        answers = _by_first(self._file.all("answering"), shared)
        self._answers = {target: Run(target, of) for target, of in answers.items()}


def _columns(node: NodeId) -> tuple[object, ...]:
    return node.sequence, node.level, node.index


def _whole(name: str) -> str:
    """The name of a number; before logs had partitions, an offset did not name one."""
    return f"{name}/0" if name.startswith("applied:") and "/" not in name else name


def _by_first(rows: Iterator[tuple[Name, str, int]], shared: dict[str, Leaf]) -> dict[Name, dict[str, Leaf]]:
    """The leaves of (run, uid, ts) rows, by run."""
    runs: dict[Name, dict[str, Leaf]] = {}
    for name, uid, ts in rows:
        leaf = shared.get(uid)
        if leaf is None or leaf.ts != ts:
            leaf = shared[uid] = Leaf(ts, uid)
        runs.setdefault(name, {})[leaf.uid] = leaf
    return runs
