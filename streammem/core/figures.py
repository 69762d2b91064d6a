"""Numbers, dates and identifiers of a sentence that other texts do not have: what a model made up or mixed up.

Only what can be told by its form is looked at: whether the rest of a sentence is true, nothing here can say. Months,
days of the week and number words are known in English; all else does not depend on a language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from streammem.core.dates_in_text import dated
from streammem.core.events import moment
from streammem.core.identifiers import DEFAULT_RULES

Day = tuple[int, int]
"""Month and day of the month."""


class Known(msgspec.Struct, frozen=True):
    """What texts have: numbers and words with digits in all their readings, identifiers, dates, months, weekdays."""

    readings: frozenset[str]
    identifiers: frozenset[str]
    days: frozenset[Day]
    months: frozenset[int]
    weekdays: frozenset[int]


def known(texts: Iterable[str], said: Iterable[tuple[str, datetime]]) -> Known:
    """What these texts have, and what was said, and when (UTC).

    Of the moment of a saying its date and its time of day count, not their single numbers; and so does the date of what
    it calls yesterday, last month or tomorrow.
    """
    said = tuple(said)
    texts, moments = (*texts, *(text for text, _ in said)), [at for _, at in said]
    dates, rest = _dates("\n".join(map(_plain, texts)))
    dates += [date for text, at in said for date in _meant(text, at)]
    words = set(_WORD.findall(rest))
    readings = {reading for word in _figures(rest) for reading in _readings(word)}
    readings |= {_NUMBERS[word] for word in words if word in _NUMBERS}
    readings |= {part for date in dates for part in (date.year, str(date.day[1])) if part.strip("0")}
    readings |= {part for at in moments for part in (str(at.year), f"{at.hour}:{at.minute:02}")}
    return Known(
        readings=frozenset(readings),
        identifiers=frozenset(_identifiers("\n".join(texts))),
        days=frozenset([date.day for date in dates] + [(at.month, at.day) for at in moments]),
        months=frozenset(
            [date.day[0] for date in dates]
            + [at.month for at in moments]
            + [_MONTHS[word] for word in words if word in _MONTHS]
        ),
        weekdays=frozenset([at.weekday() for at in moments] + [_WEEKDAYS[word] for word in words if word in _WEEKDAYS]),
    )


def strange(sentence: str, there: Known) -> list[str]:
    """The numbers, dates and identifiers of a sentence that are not there, without repeats."""
    found = sorted(_identifiers(sentence) - there.identifiers)
    dates, rest = _dates(_plain(sentence))
    found += [date.written for date in dates if not _has_date(date, there)]
    found += [word for word in _figures(rest) if not _has_figure(word, there)]
    found += [word for word in _WORD.findall(rest) if _NUMBERS.get(word, "1") not in {"0", "1", *there.readings}]
    found += [word for word, month in _named_months(sentence) if month not in there.months]
    found += [day for day in _CAPITAL.findall(sentence) if _weekday(day) not in {None, *there.weekdays}]
    return list({word.casefold(): word for word in found}.values())


def _plain(text: str) -> str:
    """Small letters, and digits of every script as 0 to 9."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return text if text.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in text)


def _identifiers(text: str) -> set[str]:
    return {identifier.casefold() for identifier in DEFAULT_RULES.identifiers(text)}


# ----------------------------------------------------------------------------------------------------------- numbers

_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_WORD = re.compile(r"[^\W\d_]+")
_FIGURE = re.compile(r"[^\W_]+(?:[-_./:,'’][^\W_]+)*")
_DIGIT = re.compile(r"\d")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_THOUSANDS = re.compile(r"\d{1,3}(?:[,'’]\d{3})+")
_SHORT = re.compile(r"(\d+)(?:\.(\d))?([km])")
_UNIT = re.compile(r"(\d+(?:[.,]\d+)?)(?!(?:k|m|b|bn)\b)[a-z]{1,5}")
_TIME = re.compile(r"0*(\d+):(\d{2})")
_SERIES = re.compile(r"\d+(?:[-/]\d+)+")
_NUMBERED = re.compile(r"[a-z]+-(\d+)")
_VERSION = re.compile(r"v\d[\w.]*")


def _figures(text: str) -> Iterator[str]:
    """Words with a digit in them, without the punctuation around them."""
    return (word for word in _FIGURE.findall(text) if _DIGIT.search(word))


def _readings(word: str) -> Iterator[str]:
    """The forms in which a figure may be repeated: 40k as 40000, 3rd as 3, 09:00 as 9:00, v1.2 as 1.2, 5gb as 5."""
    yield word
    if word.isdecimal():
        yield _bare(word)
    if match := _ORDINAL.fullmatch(word):
        yield match[1]
    if _THOUSANDS.fullmatch(word):
        yield re.sub(r"\D", "", word)
    if match := _SHORT.fullmatch(word):
        zeros = {"k": 3, "m": 6}[match[3]] - bool(match[2])
        yield f"{match[1]}{match[2] or ''}{'0' * zeros}"
    if match := _UNIT.fullmatch(word):
        yield match[1]
    if match := _TIME.fullmatch(word):
        yield f"{match[1]}:{match[2]}"
    if _SERIES.fullmatch(word):
        yield from map(_bare, re.split("[-/]", word))
    if match := _NUMBERED.fullmatch(word):  # what one calls PR-12 is PR 12 to others
        yield _bare(match[1])
    if _VERSION.fullmatch(word):
        yield word[1:]


def _bare(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _has_figure(word: str, there: Known) -> bool:
    if word in there.readings:
        return True
    if _SERIES.fullmatch(word):  # 20-22, 2/3: each of its numbers
        return all(_bare(part) in there.readings for part in re.split("[-/]", word))
    if named := _identifiers(word.upper()):
        return named <= there.identifiers
    return not _NUMBERED.fullmatch(word) and not there.readings.isdisjoint(_readings(word))


# ------------------------------------------------------------------------------------------------------------- dates

_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTHS = {name: number for number, whole in enumerate(_MONTH_NAMES, 1) for name in (whole, whole[:3])} | {"sept": 9}
_WEEKDAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS = {name: number for number, whole in enumerate(_WEEKDAY_NAMES) for name in (whole, whole[:3])}

_CAPITAL = re.compile(r"(?<!\w)[A-Z][a-z]+(?!\w)")
_BEFORE_A_MONTH = "in|by|until|till|since|from|to|of|before|after|during|early|late|mid|end"
_MAY = re.compile(rf"(?<!\w)(?i:{_BEFORE_A_MONTH})[ -]May(?!\w)")

_A_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR = r"(?:,? ?(?P<year>\d{4})(?!\d))?"
_DATES = re.compile(
    r"(?<![\d-])(?P<iso>\d{4})-(?P<iso_month>\d{2})-(?P<iso_day>\d{2})(?![\d-])"
    rf"|(?<!\w)(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?[ -]?(?:of )?(?P<month>{_A_MONTH})(?!\w)\.?{_YEAR}"
    rf"|(?<!\w)(?P<first>{_A_MONTH})\.? (?:the )?(?P<then>\d{{1,2}})(?:st|nd|rd|th)?(?![\w:]|[.,]\d)"
    rf"{_YEAR.replace('year', 'last')}"
    rf"|(?<!\w)(?P<only>{_A_MONTH})\.?,? (?P<whole>\d{{4}})(?!\w)"
)


class _Date(msgspec.Struct, frozen=True):
    """A date as a text writes it. The day of the month is 0, the year empty, where it says none."""

    written: str
    day: Day
    year: str


def _dates(text: str) -> tuple[list[_Date], str]:
    """The dates in a text in small letters, and the text without them."""
    return [_date(match) for match in _DATES.finditer(text)], _DATES.sub("\n", text)


def _date(match: re.Match[str]) -> _Date:
    written = match[0].strip(" .,")
    if match["iso"]:
        return _Date(written, (int(match["iso_month"]), int(match["iso_day"])), match["iso"])
    month = _MONTHS[match["month"] or match["first"] or match["only"]]
    year = match["year"] or match["last"] or match["whole"] or ""
    return _Date(written, (month, int(match["day"] or match["then"] or 0)), year)


_TOMORROW = re.compile(r"\btomorrow\b", re.IGNORECASE)
_WEEK, _MONTH = timedelta(days=7), timedelta(days=31)


def _meant(text: str, at: datetime) -> Iterator[_Date]:
    """The dates of a text that names a time by how far away it is."""
    if _TOMORROW.search(text):
        yield _of(at + timedelta(days=1))
    found = dated(text, int(at.timestamp() * 1e6))
    if found is None or _dates(_plain(text[slice(*found.at)]))[0]:
        return
    start, end = moment(found.start), moment(found.end)
    if end - start <= _WEEK:
        yield from (_of(start + timedelta(days=n)) for n in range((end - start).days))
    elif end - start <= _MONTH:
        yield _Date("", (start.month, 0), str(start.year))
    else:
        yield _Date("", (0, 0), str(start.year))


def _of(at: datetime) -> _Date:
    return _Date("", (at.month, at.day), str(at.year))


def _has_date(date: _Date, there: Known) -> bool:
    has_day = date.day in there.days if date.day[1] else date.day[0] in there.months
    return has_day and (not date.year or date.year in there.readings)


def _named_months(sentence: str) -> Iterator[tuple[str, int]]:
    """Months that are named; May only where it can be nothing else."""
    for word in _CAPITAL.findall(sentence):
        if word.casefold() in _MONTH_NAMES and word != "May":
            yield word, _MONTHS[word.casefold()]
    yield from (("May", 5) for _ in _MAY.finditer(sentence))


def _weekday(word: str) -> int | None:
    """Which day of the week is named in full."""
    return _WEEKDAYS[word.casefold()] if word.casefold() in _WEEKDAY_NAMES else None
