"""The account of one import: every record read is accepted, a duplicate, rejected or ignored, with its reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from streammem.errors import SettingsError, SourceError

if TYPE_CHECKING:
    from streammem.connectors import Report
    from streammem.flows.ingest import Ingested
    from streammem.records import Event, Refusal

EXAMPLES = 5
"""Refusals shown with their place, for each reason."""


class Account:
    """Adds up what became of the records of one source. `rejects` names a file for all refusals."""

    def __init__(self, report: Report, rejects: Path | None = None) -> None:
        self.report = report
        self.accepted = 0
        self.duplicates = 0
        self.messages = 0
        self._refused: Counter[str] = Counter()
        self._examples: dict[str, list[Refusal]] = {}
        self._began = time.monotonic()
        self._ended: float | None = None
        self._rejects = rejects
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._rejects is not None:
            try:
                self._file = self._rejects.open("wb")
            except OSError as error:
                raise SettingsError(f"cannot write --rejects {self._rejects}: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = time.monotonic()
        self._take(self.report.take_refusals())
        if self._file is not None:
            self._file.close()

    def count(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on, counting the messages among them."""
        from streammem.records import MessageEvent

        for event in events:
            self.messages += isinstance(event, MessageEvent)
            yield event

    def usable(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass on what a memory would take, in the form that it keeps; count the rest as refused."""
        from streammem.core.events import normalise
        from streammem.errors import RejectedError
        from streammem.records import Refusal

        for event in events:
            try:
                yield normalise(event)
            except RejectedError as error:
                origin = event.ingest.origin or "" if event.ingest else ""
                self._refused.update([error.reason])
                self._take([Refusal(reason=error.reason, detail=error.detail, origin=origin)])

    def add(self, done: Ingested) -> None:
        """Add what became of a batch."""
        self.accepted += done.accepted
        self.duplicates += done.duplicates
        self._refused.update(refusal.reason for refusal in done.refusals)
        self._take([*self.report.take_refusals(), *done.refusals])

    def _take(self, refusals: list[Refusal]) -> None:
        import msgspec

        for refusal in refusals:
            kept = self._examples.setdefault(refusal.reason, [])
            if len(kept) < EXAMPLES:
                kept.append(refusal)
            if self._file is not None:
                self._file.write(msgspec.json.encode(refusal) + b"\n")

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self._ended or time.monotonic()) - self._began

    def whole(self, part: int) -> int:
        """What a count will be at the end, going by the share of the bytes that is read."""
        share = self.report.bytes_done / self.report.bytes_total if self.report.bytes_total else 1.0
        return round(part / share) if share > 0 else part

    def to_json(self) -> dict[str, Any]:
        """The whole account."""
        report = self.report
        return {
            "read": report.read,
            "messages": self.messages,
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "rejected": dict(sorted((report.rejected + self._refused).items())),
            "ignored": dict(sorted(report.ignored.items())),
            "skipped": dict(sorted(report.skipped.items())),
            "gaps": dict(sorted(report.gaps.items())),
            "examples": [_example(refusal) for kept in self._examples.values() for refusal in kept],
            "gap_examples": [
                {"reason": g.reason, "origin": g.origin, "missing": g.missing} for g in report.gap_examples
            ],
            "notes": list(report.notes),
            "seconds": round(self.seconds, 2),
            "messages_per_s": round(self.messages / max(self.seconds, 1e-3), 1),
        }

    def check(self, source: Path) -> None:
        """Raise SourceError when no message came in: zero is never a success."""
        if self.messages and (self.accepted or self.duplicates):
            return
        refused = self.report.rejected + self._refused + self.report.ignored
        whys = ", ".join(f"{count} {reason}" for reason, count in refused.items()) or "is it the export you meant?"
        what = (
            f"no messages in {source}, only people and channels"
            if self.accepted + self.duplicates
            else (f"nothing was imported from {source}")
        )
        raise SourceError(f"{what}: {self.report.read} records read, {whys}")


def _example(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.reason, "origin": refusal.origin, "detail": refusal.detail}
