"""What the role `connect` does with a batch: payloads as products send them to canonical events. Nothing of Kafka.

Each record is read by itself, so one that comes again, after a crash or from another process, gives the same events.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Sequence as Many

import structlog

from streammem.connectors.kafka_records import RecordReader
from streammem.connectors.report import Report
from streammem.errors import RejectedError
from streammem.records import DeadLetter, ErasureEvent, Event, Received, Refusal
from streammem.workers.stages import Done, dead_letter

PENDING = "pending-fetch"
"""The reason of a letter for what a notification names and does not hold: it has to be fetched from the product."""
TELL = 60.0
"""Seconds between two lines of the log that count what was ignored."""

Produce = Callable[[Many[Event]], Awaitable[None]]

log = structlog.get_logger()


class Connecting:
    """The stage. `produce` returns when events are durable in the input topics."""

    def __init__(self, produce: Produce, reader: RecordReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._produce, self._reader, self._clock = produce, reader, clock
        self.ignored: Counter[str] = Counter()
        self._told_at, self._told = clock(), 0

    async def __call__(self, records: Many[Received]) -> Done:
        events: list[tuple[Received, Event]] = []
        refused: list[DeadLetter] = []
        handled = 0
        for record in records:
            found, report = self.read(record)
            events.extend((record, event) for event in found)
            refused.extend(letters(record, report))
            handled += report.rejected.total() < report.read or bool(report.gaps)
            self.ignored.update(report.ignored)
            for reason in report.gaps.keys() - {PENDING}:
                place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
                log.warning("the product says that something is missing", reason=reason, **place)
            await asyncio.sleep(0)  # a batch of pages must not stop the heartbeats
        refused.extend([dead_letter("connect", record, refusal) for record, refusal in await self._sent(events)])
        self._tell()
        return Done(handled, tuple(refused))

    def read(self, record: Received) -> tuple[list[Event], Report]:
        """The events of a record and the account of what is in it."""
        report = Report()
        events = list(self._reader.read(record, report, f"{record.topic}/{record.partition}@{record.offset}"))
        kept: list[Event] = [event for event in events if not isinstance(event, ErasureEvent)]
        if len(kept) < len(events):
            report.reject("erasure", "products do not erase: use streammem forget", record.topic)
        return kept, report

    async def _sent(self, events: Many[tuple[Received, Event]]) -> list[tuple[Received, Refusal]]:
        """Send them all; one that its topic does not take does not stop the others."""
        if not events:
            return []
        try:
            await self._produce([event for _, event in events])
        except RejectedError as error:
            if len(events) == 1:
                return [(events[0][0], Refusal(reason=error.reason, detail=error.detail))]
            half = len(events) // 2
            return [*await self._sent(events[:half]), *await self._sent(events[half:])]
        return []

    def _tell(self) -> None:
        if self.ignored.total() > self._told and self._clock() >= self._told_at + TELL:
            self._told_at, self._told = self._clock(), self.ignored.total()
            log.info("ignored since the start", **self.ignored)


def letters(record: Received, report: Report) -> Iterator[DeadLetter]:
    """A letter for each reason for which something in this record could not be used, or is still to be fetched."""
    found: dict[str, list[str]] = {}
    for refusal in report.refusals:
        found.setdefault(refusal.reason, []).append(refusal.detail)
    found |= {PENDING: missing} if (missing := [g.origin for g in report.gap_examples if g.reason == PENDING]) else {}
    for reason, details in found.items():
        yield dead_letter("connect", record, Refusal(reason=reason, detail=_told(details)))


def _told(details: Iterable[str]) -> str:
    first, *rest = dict.fromkeys(details)
    return "; ".join([first, *rest[:9], *([f"and {len(rest) - 9} more"] if len(rest) > 9 else [])])
