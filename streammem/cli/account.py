"""The account of one source: what became of every record in it, and of the events that they state."""

from __future__ import annotations

import sys
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

_EVENTS = {"accepted": "new events", "duplicates": "events already there", "forgotten": "events of what is forgotten"}

EXAMPLES = 5
"""Refusals shown with their place, for each reason."""


class Account:
    """Adds up what became of the records and events of one source. `rejects` names a file for all refusals.

    Records (`report`) are what the source holds; `accepted`, `duplicates` and `forgotten` count the events that they
    state, by what the memory made of them.
    """

    def __init__(self, report: Report, rejects: Path | None = None) -> None:
        self.report = report
        self.accepted = 0
        self.duplicates = 0
        self.forgotten = 0
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
                self._file = self._rejects.open("wb", buffering=0)
            except OSError as error:
                raise self._unwritable(error) from None
        return self

    def _unwritable(self, error: OSError) -> SettingsError:
        return SettingsError(f"cannot write --rejects {self._rejects}: {error.strerror}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = time.monotonic()
        if kind is None:
            self.report.conclude()
        try:
            self._take(self.report.take_refusals())
        finally:
            if self._file is not None:
                self._file.close()

    def count(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on, counting the messages among them."""
        from streammem.records import MessageEvent

        for event in events:
            self.messages += isinstance(event, MessageEvent)
            yield event

    def add(self, done: Ingested) -> None:
        """Add what became of a batch."""
        self.accepted += done.accepted
        self.duplicates += done.duplicates
        self.forgotten += done.forgotten
        self._refused.update(refusal.reason for refusal in done.refusals)
        self._take([*self.report.take_refusals(), *done.refusals])

    def _take(self, refusals: list[Refusal]) -> None:
        import msgspec

        for refusal in refusals:
            kept = self._examples.setdefault(refusal.reason, [])
            if len(kept) < EXAMPLES:
                kept.append(refusal)
            if self._file is not None:
                try:
                    self._file.write(msgspec.json.encode(refusal) + b"\n")
                except OSError as error:
                    raise self._unwritable(error) from None

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
            "records": {
                "accepted": report.accepted,
                "duplicate": report.duplicates,
                "superseded": report.superseded,
                "ignored": report.ignored.total(),
                "rejected": report.rejected.total(),
            },
            "messages": self.messages,
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "forgotten": self.forgotten,
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

    def put(self, title: str, *, err: bool = False) -> None:
        """Show the account to people."""
        from streammem.cli import shown

        report = self.to_json()
        read = {f"  {name}": count for name, count in report["records"].items() if count}
        stated = {name: report[name] for name in ("accepted", "duplicates", "forgotten") if report[name]}
        totals = {"records": report["read"], **read, "messages": report["messages"]}
        events = {_EVENTS[name]: count for name, count in stated.items()}
        shown.put_counts(title, {**totals, **events, "messages per s": report["messages_per_s"]}, err=err)
        for name in ("rejected", "ignored", "skipped", "gaps"):
            if report[name]:
                shown.put_counts(name.capitalize(), report[name], err=err)
        out = sys.stderr if err else sys.stdout
        for example in report["examples"]:
            place = f"{example['reason']} at {example['origin'] or '?'}: {example['detail']}"
            out.write(shown.line(f"  {place}") + "\n")
        for note in report["notes"]:
            out.write(shown.line(f"  note: {note}") + "\n")

    def check(self, source: Path, *, in_pieces: bool) -> None:
        """Raise SourceError when no message came in: zero is a success only for a piece with people and channels."""
        whole = in_pieces and not (self.report.rejected or self._refused)
        if (self.messages or whole) and (self.accepted or self.duplicates or self.forgotten):
            return
        self.refuse(source)

    def refuse(self, source: Path) -> None:
        """Raise SourceError: the source gave no message."""
        refused = self.report.rejected + self._refused + self.report.ignored
        whys = ", ".join(f"{count} {reason}" for reason, count in refused.items()) or "is it the export you meant?"
        what = (
            f"no messages in {source}, only people and channels"
            if self.report.accepted
            else f"nothing was imported from {source}"
        )
        raise SourceError(f"{what}: {self.report.read} records read, {whys}")


def _example(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.reason, "origin": refusal.origin, "detail": refusal.detail}
