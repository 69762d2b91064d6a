"""What model calls of a memory directory may take and have taken, in an SQLite file that several processes share.

What waits to be read or written is done together, in one transaction, by a thread: a commit that outlives a power cut
takes milliseconds, in which the calls themselves go on.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from enum import IntEnum
from itertools import starmap
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec

from streammem.backends.sqlite import _connect, _explaining, _transaction
from streammem.core.spending import (
    COUNTED,
    Call,
    Standing,
    Window,
    day_named,
    day_number,
    decide,
    micros,
    windowed,
)
from streammem.errors import MemoryFormatError
from streammem.ports import Ledger
from streammem.records import Claim, Job, Limits, Spent, Taken

FORMAT = 1
"""The layout of the file (PRAGMA user_version). A break makes it 2."""

PATIENCE = 5000
"""Milliseconds to wait for other processes that write."""

_LEDGER = 0x73744C45  # "stLE": what `file` and the next opening see

_COUNTS = ", ".join(COUNTED)
_SCHEMA = (
    "CREATE TABLE note (name TEXT PRIMARY KEY, value)",
    "CREATE TABLE claim (key TEXT PRIMARY KEY, till INTEGER, holder TEXT, view TEXT, level INTEGER)",
    "CREATE TABLE job (name TEXT PRIMARY KEY, content BLOB)",
    "CREATE TABLE call (number INTEGER PRIMARY KEY, at INTEGER, tokens INTEGER)",
    "CREATE INDEX call_at ON call (at, tokens)",
    "CREATE TABLE open (number INTEGER PRIMARY KEY, day INTEGER, tokens INTEGER, money INTEGER)",
    "CREATE INDEX open_of ON open (tokens, money, day)",
    "CREATE TABLE taken (day INTEGER PRIMARY KEY, tokens INTEGER, money INTEGER)",
    f"CREATE TABLE spent (day INTEGER, view TEXT, level INTEGER, {_COUNTS}, PRIMARY KEY (day, view, level))",
    f"PRAGMA application_id = {_LEDGER}",
    f"PRAGMA user_version = {FORMAT}",
)
"""Moments are in µs, days are numbered from 1970. `call` is the window of the limits, `open` what is not settled."""

_NOTE = "INSERT OR REPLACE INTO note VALUES (?, ?)"
_CLAIM = """
INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (key) DO UPDATE SET till = ?2, holder = ?3, view = ?4, level = ?5 WHERE holder = ?3 OR till <= ?6
"""
_ADD_TAKEN = """
INSERT INTO taken VALUES (?1, max(0, ?2), max(0, ?3))
ON CONFLICT (day) DO UPDATE SET tokens = max(0, tokens + ?2), money = max(0, money + ?3)
"""
_ADD_SPENT = (
    f"INSERT INTO spent VALUES (?, ?, ?{', ?' * len(COUNTED)}) ON CONFLICT (day, view, level) DO UPDATE SET "  # noqa: S608
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)
)
_USED = """
SELECT sum(tokens), sum(money) FROM (
  SELECT tokens, money FROM taken WHERE day = ?1
  UNION ALL SELECT tokens_in + tokens_out, money FROM spent WHERE day = ?1
)
"""
_OLDEST_OF = "DELETE FROM call WHERE number = (SELECT number FROM call WHERE tokens = ? ORDER BY at, number LIMIT 1)"
_NEWEST_OPEN = "SELECT number, day FROM open WHERE tokens = ? AND money = ? ORDER BY day DESC LIMIT 1"

Result = TypeVar("Result")

_pack = msgspec.msgpack.Encoder().encode
_job = msgspec.msgpack.Decoder(Job).decode


class Need(IntEnum):
    """What a step needs of the file: to be read, to be written, and so that a power cut takes nothing back."""

    READ = 0
    WRITE = 1
    SAFE = 2


Step = Callable[[sqlite3.Connection], Any]
Waiting = tuple[Need, Step, "asyncio.Future[Any]"]


class _File:
    """The file, made when first written: a memory that asks no language model has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._lock = Lock()

    def run(self, need: Need, steps: Many[Step]) -> list[Any]:
        """What the steps give, done in order as one transaction."""
        with self._lock, _explaining(self.path), self._opened(need) as db:
            db.execute(f"PRAGMA synchronous = {'FULL' if need is Need.SAFE else 'NORMAL'}")
            with _transaction(db, "DEFERRED" if need is Need.READ else "IMMEDIATE"):
                return [step(db) for step in steps]

    @contextmanager
    def _opened(self, need: Need) -> Iterator[sqlite3.Connection]:
        if self._db is None and need is Need.READ and not self.exists():
            yield from _blank()
            return
        if self._db is None:
            self._db = _open(self.path)
        yield self._db

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.path.exists()

    def close(self) -> None:
        """Wait for what is being done."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None


def _blank() -> Iterator[sqlite3.Connection]:
    """What a file that was never written would say."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in _SCHEMA:
            db.execute(statement)
        yield db
    finally:
        db.close()


def _open(path: Path) -> sqlite3.Connection:
    db = _connect(path, create=True)
    try:
        db.execute(f"PRAGMA busy_timeout = {PATIENCE}")
        _establish(db, path)
        _share(db)
    except BaseException:
        db.close()
        raise
    return db


def _establish(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; refuse one that is something else. Others may do the same now."""
    with _transaction(db, "IMMEDIATE"):
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA:
                db.execute(statement)
    (kind,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if kind != _LEDGER:
        raise MemoryFormatError(f"{path} is not the streammem file it should be: was it renamed or replaced?")
    if version != FORMAT:
        raise MemoryFormatError(
            f"{path} has format {version}, this streammem reads {FORMAT}: use the one that wrote it"
        )


def _share(db: sqlite3.Connection) -> None:
    """Let others read while one writes. SQLite does not wait for a file that others open at this moment."""
    for _ in range(PATIENCE // 10):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(0.01)
        else:
            return
    db.execute("PRAGMA journal_mode = WAL")


class SqliteLedger(Ledger):
    """Several may be open on one file, in one process or many. `clock` gives seconds since 1970, the same for all.

    For what counts on which day, see MemoryLedger.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.time) -> None:
        self._file = _File(Path(path))
        self._clock = clock
        self._waiting: list[Waiting] = []
        self._work: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Release the file, after what is being written now. Closing twice is no fault."""
        self._file.close()

    def _now(self) -> int:
        return micros(self._clock())

    # ---- one transaction for all who wait
    async def _do(self, need: Need, step: Callable[[sqlite3.Connection], Result]) -> Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((need, step, future))
        if self._work is None or self._work.done() or self._work.get_loop() is not loop:
            self._work = loop.create_task(self._work_off())
        return await future

    async def _work_off(self) -> None:
        while self._waiting:
            batch = [waiting for waiting in self._waiting if not waiting[2].done()]  # who was cancelled takes nothing
            self._waiting = []
            if batch:
                await self._run(batch)

    async def _run(self, batch: list[Waiting]) -> None:
        try:
            need, steps = max(need for need, _, _ in batch), [step for _, step, _ in batch]
            results = await asyncio.to_thread(self._file.run, need, steps)
        except Exception as error:  # noqa: BLE001 - told to everybody who waits
            for _, _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, _, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _write(self, statement: str, rows: Many[tuple[object, ...]], need: Need = Need.SAFE) -> None:
        await self._do(need, lambda db: db.executemany(statement, rows) and None)

    async def _read(self, query: str, values: Callable[[], tuple[object, ...]] = tuple) -> list[Any]:
        return await self._do(Need.READ, lambda db: db.execute(query, values()).fetchall())

    # ---- who is at what
    async def claim(self, claims: Many[Claim], holder: str, seconds: float) -> set[str]:
        def step(db: sqlite3.Connection) -> set[str]:
            now = self._now()
            till = now + micros(seconds)
            rows = [(claim.key, till, holder, claim.view, claim.level, now) for claim in claims]
            return {row[0] for row in rows if db.execute(_CLAIM, row).rowcount}

        return await self._do(Need.WRITE, step)  # whoever holds something is gone after a power cut

    async def release(self, keys: Many[str], holder: str) -> None:
        if self._file.exists():
            gone = [(key, holder) for key in keys]
            await self._write("DELETE FROM claim WHERE key = ? AND holder = ?", gone, Need.WRITE)

    async def claimed(self) -> list[Claim]:
        query = "SELECT key, view, level FROM claim WHERE till > ? ORDER BY key"
        return list(starmap(Claim, await self._read(query, lambda: (self._now(),))))

    # ---- taking
    async def take(self, limits: Limits, tokens: int, money: int) -> Taken:
        return await self._do(Need.SAFE, lambda db: _take(db, limits, tokens, money, self._now()))

    async def standing(self, limits: Limits) -> Taken:
        return await self._do(
            Need.READ, lambda db: decide(_standing(db, limits, self._now()), limits, 1, 0, self._now())
        )

    async def settle(self, tokens: int, money: int, spent: Many[Spent], *, call: bool = True) -> None:
        def step(db: sqlite3.Connection) -> None:
            day = _give_back(db, tokens, money, self._now())
            if not call:
                db.execute(_OLDEST_OF, (tokens,))
            db.executemany(_ADD_SPENT, [(day, one.view, one.level, *_counts(one)) for one in spent])

        await self._do(Need.SAFE, step)

    async def used(self) -> tuple[int, int]:
        return await self._do(Need.READ, lambda db: _used(db, self._now()))

    async def spent(self, days: int = 1) -> list[Spent]:
        query = "SELECT * FROM spent WHERE day > ? ORDER BY day, view, level"
        rows = await self._read(query, lambda: (day_number(self._now()) - days,))
        return [
            Spent(day=day_named(day), view=view, level=level, **dict(zip(COUNTED, counts, strict=True)))
            for day, view, level, *counts in rows
        ]

    # ---- stopping
    async def rest(self, seconds: float) -> None:
        def step(db: sqlite3.Connection) -> None:
            db.execute(_NOTE, ("rest", max(_noted(db, "rest") or 0, self._now() + micros(seconds))))

        await self._do(Need.SAFE, step)

    async def pause(self, said: str) -> None:
        await self._write(_NOTE, [("paused", said)])

    async def resume(self) -> None:
        if self._file.exists():
            await self._write("DELETE FROM note WHERE name = ?", [("paused",), ("rest",)])

    # ---- notes
    async def writer(self, name: str) -> str:
        def step(db: sqlite3.Connection) -> str:
            before = _noted(db, "writer")
            db.execute(_NOTE, ("writer", name))
            return before or ""

        return await self._do(Need.SAFE, step)

    async def keep_job(self, job: Job) -> None:
        await self._write("INSERT OR REPLACE INTO job VALUES (?, ?)", [(job.name, _pack(job))])

    async def drop_job(self, name: str) -> None:
        if self._file.exists():
            await self._write("DELETE FROM job WHERE name = ?", [(name,)])

    async def jobs(self) -> list[Job]:
        rows = await self._read("SELECT content FROM job")
        try:
            return sorted((_job(content) for (content,) in rows), key=lambda job: (job.at, job.name))
        except msgspec.MsgspecError as error:
            raise MemoryFormatError(f"{self._file.path} cannot be read ({error})") from error


# -------------------------------------------------------------------------------------------- within a transaction


def _noted(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value FROM note WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def _take(db: sqlite3.Connection, limits: Limits, tokens: int, money: int, now: int) -> Taken:
    if windowed(limits):
        _forget_calls(db, limits, now)
    answer = decide(_standing(db, limits, now), limits, tokens, money, now)
    if answer.granted:
        if windowed(limits):
            db.execute("INSERT INTO call (at, tokens) VALUES (?, ?)", (now, tokens))
        db.execute("INSERT INTO open (day, tokens, money) VALUES (?, ?, ?)", (day_number(now), tokens, money))
        db.execute(_ADD_TAKEN, (day_number(now), tokens, money))
    return answer


def _forget_calls(db: sqlite3.Connection, limits: Limits, now: int) -> None:
    db.execute("DELETE FROM call WHERE at <= ?", (now - micros(limits.window),))
    db.execute("UPDATE call SET at = ?1 WHERE at > ?1", (now,))  # the clock was set back: nobody waits for its old time


def _standing(db: sqlite3.Connection, limits: Limits, now: int) -> Standing:
    return Standing(_noted(db, "paused"), _noted(db, "rest") or 0, *_used(db, now), _window(db, limits, now))


def _window(db: sqlite3.Connection, limits: Limits, now: int) -> Window:
    if not windowed(limits):
        return Window()
    since = (now - micros(limits.window),)
    calls, tokens = db.execute("SELECT count(*), sum(tokens) FROM call WHERE at > ?", since).fetchone()
    oldest = db.execute("SELECT at, tokens FROM call WHERE at > ? ORDER BY at, number", since)
    return Window(calls, tokens or 0, starmap(Call, oldest))


def _used(db: sqlite3.Connection, now: int) -> tuple[int, int]:
    tokens, money = db.execute(_USED, (day_number(now),)).fetchone()
    return tokens or 0, money or 0


def _give_back(db: sqlite3.Connection, tokens: int, money: int, now: int) -> int:
    """The day on which this was taken."""
    number, day = db.execute(_NEWEST_OPEN, (tokens, money)).fetchone() or (None, day_number(now))
    db.execute("DELETE FROM open WHERE number = ?", (number,))
    db.execute(_ADD_TAKEN, (day, -tokens, -money))
    return int(day)


def _counts(spent: Spent) -> tuple[int, ...]:
    return tuple(getattr(spent, name) for name in COUNTED)
