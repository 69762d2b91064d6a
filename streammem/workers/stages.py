"""What each role does with one batch of records: decode, call a flow, say what could not be used. Nothing of Kafka.

Every effect is in the stores when a stage returns; only then may the records be acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Sequence as Many
from typing import Protocol

import msgspec

from streammem.connectors.json_rows import loads
from streammem.connectors.jsonl_rows import canonical
from streammem.core import events, positions
from streammem.core.identifiers import Rules
from streammem.errors import RejectedError
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.index import index
from streammem.flows.ingest import Forbidden, ingest
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.structure import grow
from streammem.ports import Embedder, LogReader, LogWriter, StructureStore, VectorIndex
from streammem.records import DeadLetter, Event, Ingest, LogEntry, MessageEvent, Position, Received, Refusal

KIB = 1024
HEADERS = 16 * KIB
"""Characters of headers that a dead letter keeps, a KiB more or less."""
LOOK = 0.02
"""Seconds between two looks at whether the structure has come so far."""

_LATEST = 2**52
"""In µs: the year 2112."""

Flow = Callable[[list[LogEntry]], Awaitable[None]]


class Done(msgspec.Struct, frozen=True):
    """What became of a batch: records used, records given up, and for new messages the seconds from produce to now."""

    handled: int
    refused: tuple[DeadLetter, ...] = ()
    fresh: tuple[float, ...] = ()


class Stage(Protocol):
    """The work of a role on the records of one batch."""

    async def __call__(self, records: Many[Received]) -> Done:
        """Do everything there is to do about these records. Doing it again changes nothing."""


def dead_letter(role: str, record: Received, refusal: Refusal) -> DeadLetter:
    """A record that is given up, as it goes to the dead-letter topic."""
    return DeadLetter(
        role=role,
        reason=refusal.reason,
        detail=refusal.detail[:KIB],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        at=time.time_ns() // 1000,
        key=record.key[:KIB] if record.key is not None else None,
        value=record.value[:KIB] if record.value is not None else None,
        size=len(record.value) if record.value is not None else None,
        headers=_shortened(record.headers),
    )


def _shortened(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Headers as text, as many of their first KiB as fit beside the value; Kafka lets them be null and of any size."""
    kept: dict[str, str] = {}
    room = HEADERS
    for name, value in headers:
        kept[name[:KIB]] = said = (value or b"")[:KIB].decode("utf-8", "replace")
        room -= len(name) + len(said)
        if room < 0:
            break
    return kept


# ------------------------------------------------------------------------------------------------------- ingest


def ingesting(log: LogWriter, forbidden: Forbidden) -> Stage:
    """Records of the input topics to the log, but for those about what is forgotten: nothing of them is kept."""

    async def stage(records: Many[Received]) -> Done:
        usable: list[tuple[Received, Event]] = []
        refused: list[DeadLetter] = []
        for record in records:
            try:
                usable.extend((record, event) for event in read_event(record))
            except RejectedError as error:
                refused.append(dead_letter("ingest", record, Refusal(reason=error.reason, detail=error.detail)))
        refusals = await _appended([event for _, event in usable], log, forbidden)
        refused.extend(dead_letter("ingest", usable[refusal.place][0], refusal) for refusal in refusals)
        return Done(len(records) - len(refused), tuple(refused))

    return stage


async def _appended(found: Many[Event], log: LogWriter, forbidden: Forbidden, place: int = 0) -> list[Refusal]:
    """Append events, the first of which stands at `place`; one that the log itself refuses does not stop the others."""
    try:
        done = await ingest(found, log, forbidden)
    except RejectedError as error:
        if len(found) == 1:
            return [Refusal(reason=error.reason, detail=error.detail, place=place)]
        half = len(found) // 2
        return [
            *await _appended(found[:half], log, forbidden, place),
            *await _appended(found[half:], log, forbidden, place + half),
        ]
    return [msgspec.structs.replace(refusal, place=place + refusal.place) for refusal in done.refusals]


def read_event(record: Received) -> list[Event]:
    """The events in a record, marked with where and when it came. Raises RejectedError for what is none."""
    if record.value is None:
        raise RejectedError("null-value", "a record without a value says nothing here: to delete, send op=delete")
    if not record.value.strip():
        raise RejectedError("empty-value", "a record of no bytes")
    try:
        found: list[Event] = [events.decode(record.value)]
    except RejectedError as error:
        found = _leniently(record.value, error)
    return [_marked(event, record) for event in found]


def _leniently(value: bytes, refused: RejectedError) -> list[Event]:
    """What strict reading refuses: a byte order mark, NaN, lone surrogates, the schema proposal's names."""
    try:
        row = loads(value)
    except ValueError:
        raise refused from None
    if not isinstance(row, dict):
        raise refused
    return canonical(row)


def _marked(event: Event, record: Received) -> Event:
    said = event.ingest or Ingest()
    origin = said.origin or f"{record.topic}/{record.partition}@{record.offset}"
    at = events.moment(min(max(record.at, 0), _LATEST))  # a producer may claim any time
    return msgspec.structs.replace(event, ingest=msgspec.structs.replace(said, origin=origin, received_at=at))


# --------------------------------------------------------------------------------------------- structure and index


def structuring(log: LogReader, store: StructureStore, rules: Rules) -> LogStage:
    """The log to registers, sequences, placements, answers and directory."""

    async def flow(entries: list[LogEntry]) -> None:
        await grow(entries, store, rules)

    return LogStage("structure", STRUCTURED, flow, log, store)


def indexing(log: LogReader, store: StructureStore, vectors: VectorIndex, embedder: Embedder, rules: Rules) -> LogStage:
    """The log to vectors, behind the structure."""

    async def flow(entries: list[LogEntry]) -> None:
        wanted = positions.after(entries)
        while not positions.covers(await store.applied(STRUCTURED), wanted):
            await asyncio.sleep(LOOK)
        await index(entries, store, vectors, embedder, rules)

    return LogStage("index", INDEXED, flow, log, store)


class LogStage:
    """A flow over the records of the log, which notices when the store has forgotten what was applied.

    Redis can lose acknowledged writes: then Kafka's committed offset, or what this process remembers, is ahead of what
    the store says. What lies between is read from the log and done again (design §4).
    """

    def __init__(self, role: str, applied: str, flow: Flow, log: LogReader, store: StructureStore) -> None:
        self._role, self._applied, self._flow = role, applied, flow
        self._log, self._store = log, store
        self._reached: Position = {}
        self._lock = asyncio.Lock()

    async def __call__(self, records: Many[Received]) -> Done:
        entries, refused = read_entries(records, self._role)
        async with self._lock:
            await self._fill(before(records))
            await self._flow(entries)
            if len(entries) < len(records):
                await self._store.advance(self._applied, reached(records))
            self._reached = positions.joined(self._reached, reached(records))
        return Done(len(entries), refused, freshness(entries, time.time()))

    async def mend(self, acknowledged: Position | None = None) -> None:
        """Do again what the store has forgotten of what this process did, or any other of the role acknowledged."""
        async with self._lock:
            await self._fill(positions.joined(self._reached, acknowledged or {}))

    async def _fill(self, upto: Position, piece: int = 500) -> None:
        applied = await self._store.applied(self._applied)
        if positions.covers(applied, upto):
            return
        elsewhere = {partition: place for partition, place in (await self._log.end()).items() if partition not in upto}
        position = elsewhere | {partition: applied.get(partition, 0) for partition in upto}
        while not positions.covers(position, upto) and (entries := await self._log.read(position, piece)):
            position = positions.joined(position, positions.after(entries))
            await self._flow([entry for entry in entries if entry.position <= upto.get(entry.partition, 0)])
        await self._store.advance(self._applied, upto)  # past what says nothing, too


def read_entries(records: Iterable[Received], role: str) -> tuple[list[LogEntry], tuple[DeadLetter, ...]]:
    """The log entries in records of the log. A null value is what erasure leaves: it says nothing."""
    entries: list[LogEntry] = []
    refused: list[DeadLetter] = []
    for record in records:
        if record.value is None:
            continue
        try:
            entries.append(_entry(record, record.value))
        except (RejectedError, UnicodeDecodeError) as error:
            refused.append(dead_letter(role, record, Refusal(reason="not-a-log-entry", detail=str(error))))
    return entries, tuple(refused)


def _entry(record: Received, value: bytes) -> LogEntry:
    if record.key is None:
        raise RejectedError("no-key", "an entry of the log has a key")
    key = record.key.decode("utf-8", "surrogatepass")
    return LogEntry(position=record.offset + 1, key=key, event=events.decode(value), partition=record.partition)


def before(records: Iterable[Received]) -> Position:
    """The position right before these records of the log."""
    first: Position = {}
    for record in records:
        first[record.partition] = min(record.offset, first.get(record.partition, record.offset))
    return first


def reached(records: Iterable[Received]) -> Position:
    """The position behind these records of the log, those included that say nothing."""
    return positions.joined({}, *({record.partition: record.offset + 1} for record in records))


def freshness(entries: Iterable[LogEntry], now: float) -> tuple[float, ...]:
    """Seconds from produce to `now` of the messages among these entries."""
    return tuple(
        now - events.micros(entry.event.ingest.received_at) / 1e6
        for entry in entries
        if isinstance(entry.event, MessageEvent) and entry.event.ingest and entry.event.ingest.received_at
    )
