"""The parts of an embedded memory: one directory, one process, no server."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from streammem.backends.fastembed import FastembedEmbedder
from streammem.backends.memory import MemoryStructure
from streammem.backends.qdrant_edge import EdgeIndex, discard
from streammem.backends.sqlite import SqliteLog, SqliteStructure
from streammem.backends.sqlite_ledger import SqliteLedger
from streammem.core.identifiers import DEFAULT_RULES, Rules
from streammem.errors import MemoryFormatError, MemoryHeldError, SettingsError
from streammem.ports import Embedder, Ledger, StructureStore, VectorIndex
from streammem.settings import Settings

FORMAT = 1
"""The layout of a memory directory. A break makes it 2."""

CARD, LOG, STRUCTURE, LEDGER = "memory.json", "log.sqlite", "structure.sqlite", "ledger.sqlite"

LEAST_FREE = 200 * 2**20
"""Bytes that must be free to open a memory."""


class Card(msgspec.Struct, frozen=True):
    """What a memory directory says of itself in memory.json: what it was built with."""

    format: int
    k: int
    rules: str
    model: str
    dimensions: int


class Embedded:
    """The open parts of one memory directory. Use `open_embedded`; close once."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        *,
        embedder: Embedder,
        card: Card,
        log: SqliteLog,
        structure: SqliteStructure,
        lock: IO[str],
    ) -> None:
        self.path = path
        self.card = card
        self.settings = settings
        self.rules: Rules = DEFAULT_RULES
        self.embedder = embedder
        self.log = log
        self.structure: StructureStore = structure
        self._ledger = ledger_of(path)
        self._index: EdgeIndex | None = None
        self._index_checked = False
        self._lock = lock

    @property
    def index(self) -> VectorIndex:
        """The vector index, opened on first use: work on the structure alone never waits for it."""
        if self._index is None:
            self._index = EdgeIndex(self.path / "vectors", self.embedder.name, self.embedder.dimensions)
        return self._index

    @property
    def worded(self) -> bool:
        """Whether a language model words summaries here, or did once: then what changes is marked for it."""
        return self.settings.openai.model is not None or (self.path / LEDGER).exists()

    @property
    def ledger(self) -> Ledger:
        """What model calls may take and have taken."""
        return self._ledger

    async def check_index(self) -> None:
        """Refuse an index that is empty although the store says that messages were indexed: it was lost."""
        if self._index_checked:
            return
        self._index_checked = True
        if self.index and self._index is not None and self._index.fresh and await self.structure.applied("index"):
            raise MemoryFormatError(
                f"the vectors of the memory at {self.path} are missing: run `streammem rebuild --memory {self.path}`"
            )

    def write_anew(self) -> None:
        """Leave no byte of what was erased in the files."""
        self.log.write_anew()
        self.structure.write_anew()  # type: ignore[attr-defined]

    def renew(self) -> None:
        """Write the directory's card anew. Call it when what was built by the old card is gone."""
        _write(self.path, self.card)

    def fresh_structure(self) -> StructureStore:
        """An empty structure store, to rebuild into and compare."""
        return MemoryStructure()

    def close(self) -> None:
        """Release files and the lock."""
        if self._index is not None:
            self._index.close()
        self._ledger.close()
        self.structure.close()  # type: ignore[attr-defined]
        self.log.close()
        self._lock.close()


def ledger_of(path: Path) -> SqliteLedger:
    """The ledger of the memory in a directory. It may be used while another process holds the memory."""
    return SqliteLedger(path / LEDGER)


def open_embedded(
    path: Path,
    settings: Settings,
    *,
    create: bool = True,
    rebuild: bool = False,
    embedder: Callable[[Settings], Embedder] | None = None,
) -> Embedded:
    """Open a memory directory, making it when `create`. `rebuild` accepts another k, rule table or model.

    Raises MemoryHeldError, MemoryFormatError or SettingsError, each saying what to do.
    """
    _prepare(path, create=create)
    lock = hold(path, settings.wait)
    try:
        model = (embedder or fastembed)(settings)
        card = Card(FORMAT, settings.forest.k, DEFAULT_RULES.digest, model.name, model.dimensions)
        _check(path, card, rebuild=rebuild)
        if rebuild:
            discard(path / "vectors")  # may be another model's or damaged; the log has it all
        log = _open_log(path)
        try:
            structure = _open_structure(path, rebuild=rebuild)
        except BaseException:
            log.close()
            raise
        return Embedded(path, settings, embedder=model, card=card, log=log, structure=structure, lock=lock)
    except BaseException:
        lock.close()
        raise


def _open_log(path: Path) -> SqliteLog:
    try:
        return SqliteLog(path / LOG)
    except MemoryFormatError as error:
        raise MemoryFormatError(
            f"{error}: put back a copy of it, for nothing else holds the messages, or import into a new directory"
        ) from None


def _open_structure(path: Path, *, rebuild: bool) -> SqliteStructure:
    """Open the structure store; a damaged one is thrown away when it is to be rebuilt anyway."""
    try:
        return SqliteStructure(path / STRUCTURE)
    except MemoryFormatError as error:
        if not rebuild:
            raise MemoryFormatError(f"{error}: {_again(path)}") from None
        for name in (STRUCTURE, f"{STRUCTURE}-wal", f"{STRUCTURE}-shm"):
            (path / name).unlink(missing_ok=True)
        return SqliteStructure(path / STRUCTURE)


def _again(path: Path) -> str:
    return f"run `streammem rebuild --memory {path}` to build it anew from its log"


def fastembed(settings: Settings) -> Embedder:
    """The embedder that the settings name."""
    return FastembedEmbedder(settings.embedding)


def _prepare(path: Path, *, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise SettingsError(f"{path} is a file: name a directory for the memory")
    ours = (path / CARD).exists() or (path / LOG).exists()
    if not create and not ours:
        raise SettingsError(f"no memory at {path}: make one with `streammem import FORMAT PATH --memory {path}`")
    if path.is_dir() and not ours and any(file.name not in ("lock", f"{CARD}.new") for file in path.iterdir()):
        raise SettingsError(f"{path} has other files in it: name an empty or new directory for the memory")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make the memory directory {path}: {error.strerror}") from None
    free = shutil.disk_usage(path).free
    if free < LEAST_FREE:  # the vector engine maps files of this size and dies without a word when it cannot
        raise SettingsError(
            f"only {free // 2**20} MB are free at {path}: a memory needs {LEAST_FREE // 2**20} MB, make room first"
        )


def hold(path: Path, wait: float) -> IO[str]:
    """Take the directory, after at most `wait` seconds. The lock goes with the process, however that ends."""
    try:
        lock = (path / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write to the memory directory {path}: {error.strerror}") from None
    until = time.monotonic() + wait
    while not _taken(lock):
        if time.monotonic() >= until:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise MemoryHeldError(
                f"the memory at {path} is in use by process {holder}: wait for it to end or stop it, then try again"
            )
        time.sleep(0.05)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _check(path: Path, card: Card, *, rebuild: bool) -> None:
    """Compare the directory's card with what this process would build, or write the card of a new memory.

    For a rebuild the card is renewed when the old stores are empty, not before: a kill in between must show.
    """
    if not (path / CARD).exists():
        if (path / LOG).exists() and not rebuild:
            raise MemoryFormatError(f"{path / CARD} is missing though the memory's log is there: {_again(path)}")
        if not (path / LOG).exists():
            _write(path, card)
        return
    found = _read(path / CARD, rebuild=rebuild)
    if found is None:
        return
    _check_format(path, found.format)
    if rebuild:
        return
    if found.k != card.k:
        raise MemoryFormatError(f"the memory at {path} has k={found.k}, the settings say {card.k}: {_again(path)}")
    if found.rules != card.rules:
        raise MemoryFormatError(f"the memory at {path} was built with another identifier rule table: {_again(path)}")
    if (found.model, found.dimensions) != (card.model, card.dimensions):
        raise MemoryFormatError(
            f"the memory at {path} was indexed with {found.model} ({found.dimensions} dimensions), the settings name "
            f"{card.model} ({card.dimensions}): set STREAMMEM_EMBEDDING__MODEL={found.model}, or {_again(path)}"
        )


def _write(path: Path, card: Card) -> None:
    temporary = path / f"{CARD}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1))
    temporary.replace(path / CARD)


def _check_format(path: Path, found: int) -> None:
    if found != FORMAT:
        raise MemoryFormatError(
            f"the memory at {path} has format {found}, this streammem reads format {FORMAT}: "
            f"use the streammem that wrote it, or import into a new directory"
        )


def _read(file: Path, *, rebuild: bool) -> Card | None:
    """The card of a memory; one that cannot be read is None for a rebuild, which needs only the log."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Card)
    except (msgspec.MsgspecError, OSError) as error:
        if rebuild and (file.parent / LOG).exists():
            return None
        raise MemoryFormatError(f"{file} cannot be read ({error}): {_again(file.parent)}") from None
