"""A question and the directory to a query specification, by rules alone (EGCForest §3.2, design §9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from streammem.core.directory import Directory, fold
from streammem.core.events import micros, moment
from streammem.core.identifiers import Rules

Cue = Literal["", "before", "after", "on", "latest", "first"]

_WORD = re.compile(r"[#@]?\w(?:[\w.'’-]*\w)?")
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|me|my|mine|myself)\b(?! (?:own )?(?:team|group|unit|colleagues))")
_CUES: tuple[tuple[Cue, re.Pattern[str]], ...] = (
    ("before", re.compile(r"\b(?:before|prior to|until|earlier than|by the time)\b", re.IGNORECASE)),
    ("after", re.compile(r"\b(?:after|since|following|later than|once)\b", re.IGNORECASE)),
    (
        "latest",
        re.compile(r"\b(?:latest|current(?:ly)?|now|most recent(?:ly)?|newest|these days|last)\b", re.IGNORECASE),
    ),
    ("first", re.compile(r"\b(?:first|original(?:ly)?|initial(?:ly)?|earliest|at the start)\b", re.IGNORECASE)),
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? (\d{{4}}))?\b", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}}))?", re.IGNORECASE)
_LONGEST_NAME = 4


class QuerySpec(msgspec.Struct, frozen=True):
    """What a question names. Ids throughout; a name borne by several people gives all of them.

    `day` is the [start, end) in µs of a date that the question names; `lexical` the words to search with.
    """

    text: str
    lexical: str
    asker: str | None
    first_person: bool
    users: tuple[str, ...]
    channels: tuple[str, ...]
    identifiers: tuple[str, ...]
    cue: Cue
    day: tuple[int, int] | None = None

    @property
    def entities(self) -> int:
        """How many resolvable entities the question names: S3's join wants two (§3.2.3)."""
        return len(self.users) + len(self.channels) + len(self.identifiers)


def within(spec: QuerySpec, channels: frozenset[str] | None) -> QuerySpec:
    """The specification without channels that the asker does not read (None: reads all): their names steer nothing."""
    if channels is None:
        return spec
    return msgspec.structs.replace(spec, channels=tuple(c for c in spec.channels if c in channels))


def parse(text: str, asker: str | None, directory: Directory, rules: Rules, now: int) -> QuerySpec:
    """Read a question. `now` (µs) gives the year of a date that names none. Deterministic."""
    first_person = asker is not None and _FIRST_PERSON.search(text) is not None
    users = _users(text, directory)
    if first_person and asker is not None and asker not in users:
        users = (*users, asker)
    words = [text]
    if first_person and asker is not None:
        words += [directory.user_name(asker), directory.user_title(asker)]
    day = date_named(text, now)
    if day is not None and (spelled := f"{moment(day[0]):%Y-%m-%d}") not in text:
        words.append(spelled)
    return QuerySpec(
        text=text,
        lexical=" ".join(w for w in words if w),
        asker=asker,
        first_person=first_person,
        users=users,
        channels=_channels(text, directory),
        identifiers=rules.identifiers(text),
        cue=next((cue for cue, pattern in _CUES if pattern.search(text)), "on" if day else ""),
        day=day,
    )


def _phrases(text: str) -> Iterator[str]:
    """Every run of up to four words, longest first at each place."""
    spans = [m.span() for m in _WORD.finditer(text)]
    for i in range(len(spans)):
        for j in range(min(len(spans), i + _LONGEST_NAME), i, -1):
            yield text[spans[i][0] : spans[j - 1][1]]


def _users(text: str, directory: Directory) -> tuple[str, ...]:
    found: dict[str, None] = {}
    names = directory.user_names
    for phrase in _phrases(text):
        bare = re.sub(r"['’]s$", "", phrase)
        if bare[0].isupper() or bare[0] == "@" or any(c.isdigit() for c in bare):
            found.update(dict.fromkeys(sorted(names.get(fold(bare), ()))))
    return tuple(found)


def _channels(text: str, directory: Directory) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for phrase in _phrases(text):
        named = directory.channel_names.get(fold(phrase), ())
        if named and (phrase[0] == "#" or "-" in phrase or phrase in named):
            found.update(dict.fromkeys(c for name in sorted(named) for c in directory.ids_of_channel(name)))
    return tuple(found)


def date_named(text: str, now: int) -> tuple[int, int] | None:
    """The first calendar day that a text names, as [start, end) in µs UTC; the newest one not after `now`."""
    if m := _ISO.search(text):
        return _day(int(m[1]), int(m[2]), int(m[3]))
    if m := _DAY_MONTH.search(text):
        return _dated(int(m[1]), m[2], m[3], now)
    if m := _MONTH_DAY.search(text):
        return _dated(int(m[2]), m[1], m[3], now)
    return None


def _dated(day: int, month: str, year: str | None, now: int) -> tuple[int, int] | None:
    number = _MONTHS.index(month[:3].lower()) + 1
    if year:
        return _day(int(year), number, day)
    this = moment(now).year
    found = _day(this, number, day)
    return found if found is None or found[0] <= now else _day(this - 1, number, day)


def _day(year: int, month: int, day: int) -> tuple[int, int] | None:
    try:
        start = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
    return micros(start), micros(start + timedelta(days=1))
