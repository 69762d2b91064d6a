"""The account of an import: what became of every input record, and how far the reading is."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import blake2b

from streammem.core import events as canonical
from streammem.errors import RejectedError
from streammem.records import ChannelEvent, Event, MembershipEvent, MessageEvent, Refusal

EXAMPLES = 100
"""Gaps kept with their place; all of them are counted."""
_FRESH = 1 << 20
_MANY = 10
"""Messages of a whole source on one day: below that a day without any says nothing."""
_EXCEPTION = 0.1


class IgnoredError(Exception):
    """A record that is sound and states no event. `reason` is a short stable code for counts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Gap:
    """Something the source itself says exists and did not hand over."""

    reason: str
    origin: str
    missing: int


class Seen:
    """Names seen before, by 64 bits of their digest: 8 bytes for each, and a set for the newest million."""

    def __init__(self) -> None:
        self._fresh: set[int] = set()
        self._sorted = array("Q")

    def add(self, name: str) -> bool:
        """Take note of a name; whether it is new."""
        mark = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        if mark in self._fresh or self._holds(mark):
            return False
        self._fresh.add(mark)
        if len(self._fresh) >= _FRESH:
            self._sorted = array("Q", sorted([*self._sorted, *self._fresh]))
            self._fresh.clear()
        return True

    def _holds(self, mark: int) -> bool:
        at = bisect_left(self._sorted, mark)
        return at < len(self._sorted) and self._sorted[at] == mark


@dataclass(slots=True)
class Report:
    """Filled by a connector while its events are drawn.

    At any pause read = accepted + duplicates + superseded + ignored + rejected. `duplicates` state only what the
    source had stated before; `superseded` counts records of messages of which the source holds another version, all
    but one. Only totals and `refusals` not yet taken are held, so an importer that calls `take_refusals` after each
    batch stays in bounded memory. `skipped` counts files, not records.
    """

    read: int = 0
    accepted: int = 0
    duplicates: int = 0
    superseded: int = 0
    messages: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    gap_examples: list[Gap] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_total: int = 0
    bytes_done: int = 0
    entries_total: int = 0
    entries_done: int = 0
    days: Counter[date] = field(default_factory=Counter)
    _spoken: set[tuple[str, str]] = field(default_factory=set)
    _readable: set[tuple[str, str]] = field(default_factory=set)
    _seen: Seen = field(default_factory=Seen)
    _said: Seen = field(default_factory=Seen)

    def counted(self, events: Callable[[], Iterable[Event]], origin: str) -> list[Event]:
        """What one input record states, or nothing and an account of why.

        `events` draws them and may raise IgnoredError or RejectedError. They come back in the form that the log keeps.
        """
        try:
            usable = [canonical.normalise(event) for event in events()]
        except IgnoredError as ignored:
            self.ignore(ignored.reason)
        except RejectedError as rejected:
            self.reject(rejected.reason, rejected.detail, origin)
        else:
            self._accept(usable)
            return usable
        return []

    def _accept(self, events: list[Event]) -> None:
        self.read += 1
        new = [event for event in events if self._said.add(canonical.key(event, canonical.content_hash(event)))]
        said = next((event for event in new if isinstance(event, MessageEvent)), None)
        if events and not new:
            self.duplicates += 1
        elif said is None or self._seen.add(canonical.uid(said.workspace, said.channel.id, said.id)):
            self.accepted += 1
        else:
            self.superseded += 1
        for event in events:
            self._note_readers(event)
        if said is not None:
            self.messages += 1
            if said.ts is not None:
                self.days[said.ts.date()] += 1

    def _note_readers(self, event: Event) -> None:
        """Take note of which channels are spoken in, and of which it is known that somebody reads them."""
        if isinstance(event, MessageEvent):
            where = (event.workspace, event.channel.id)
            self._spoken.add(where)
            if event.channel.type == "public":
                self._readable.add(where)
        elif isinstance(event, ChannelEvent) and event.type == "public":
            self._readable.add((event.workspace, event.id))
        elif isinstance(event, MembershipEvent) and event.present:
            self._readable.add((event.workspace, event.channel))

    def ignore(self, reason: str) -> None:
        self.read += 1
        self.ignored[reason] += 1

    def reject(self, reason: str, detail: str, origin: str) -> None:
        self.read += 1
        self.rejected[reason] += 1
        self.refusals.append(Refusal(reason=reason, detail=detail[:200], origin=origin))

    def gap(self, reason: str, origin: str, missing: int = 1) -> None:
        self.gaps[reason] += missing
        if len(self.gap_examples) < EXAMPLES:
            self.gap_examples.append(Gap(reason, origin, missing))

    def cut_short(self, detail: str, place: str, origin: str) -> None:
        """Take note of a file that is damaged or ends too early, and of where in it that was noticed."""
        self.reject("truncated-file", detail, place)
        self.gap("truncated-file", origin)

    def conclude(self) -> None:
        """Take note of days that seem to be missing, and of channels that nobody reads. For when all has been read."""
        for day in missing_days(self.days):
            self.gap("missing-day", day.isoformat())
        if closed := sorted(channel for _, channel in self._spoken - self._readable):
            shown = ", ".join(closed[:3]) + (", …" if len(closed) > 3 else "")
            self.notes.append(
                f"channels not known here as public or to have members: {len(closed)} ({shown}); until some source "
                "says so, their messages are found with --all only"
            )

    def take_refusals(self) -> list[Refusal]:
        """The refusals since the last call, for the dead-letter store."""
        taken, self.refusals = self.refusals, []
        return taken


def missing_days(days: Counter[date], busy: int = 3) -> list[date]:
    """Days without a message on which there should be many: `busy` of the four same weekdays around them had.

    Holidays of a whole workspace look the same, so this is a hint. There is none where such days are no exception:
    a place that rests now and then has lost nothing.
    """
    if not days:
        return []
    first, last = min(days), max(days)
    span = (first + timedelta(days=n) for n in range((last - first).days + 1))
    expected = [day for day in span if _weekdays_around(day, days) >= busy]
    missing = [day for day in expected if day not in days]
    return missing if len(missing) <= len(expected) * _EXCEPTION else []


def _weekdays_around(day: date, days: Counter[date]) -> int:
    return sum(days[day + timedelta(weeks=weeks)] >= _MANY for weeks in (-2, -1, 1, 2))
