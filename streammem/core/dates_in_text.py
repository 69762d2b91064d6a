"""Dates that a text names, as people write and say them, in the zone of who speaks.

Days, weeks, months and years are the calendar's; a week begins on Monday. What is named without a year is the newest
one that had begun by now. English, and the commonest words of German, French and Spanish.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo

import msgspec

from streammem.core.calendar import Edge, before_today, days_from, micros_of, month_of, newest_day, week_of
from streammem.core.events import moment


class Dated(msgspec.Struct, frozen=True):
    """A stretch of time that a text names: [`start`, `end`) in µs UTC, and where in the text it does, in characters."""

    start: int
    end: int
    at: tuple[int, int]


def dated(text: str, now: int, zone: tzinfo = UTC) -> Dated | None:
    """The stretch of time that a text names, the plainest if it names several; None without one.

    `now` in µs UTC. Deterministic.
    """
    for pattern, reading in _READINGS:
        for match in pattern.finditer(text):
            try:
                span = reading(match, moment(now).astimezone(zone))
                first, end = (micros_of(edge, zone) for edge in span) if span else (0, 0)
            except (ValueError, OverflowError):  # no such day, or none that a calendar has
                continue
            if first < end:
                return Dated(first, end, match.span())
    return None


Reading = Callable[[re.Match[str], datetime], tuple[Edge, Edge] | None]


# ---------------------------------------------------------------------------------------------------- words

_MONTH_NAMES = """
    jan january januar janvier enero | feb february februar février febrero | mar march märz mars marzo
    apr april avril abril | may mai mayo | jun june juni juin junio | jul july juli juillet julio
    aug august août agosto | sep sept september septembre septiembre | oct october oktober octobre octubre
    nov november novembre noviembre | dec december dezember décembre diciembre
"""
_DAY_NAMES = """
    monday montag lundi lunes | tuesday dienstag mardi martes | wednesday mittwoch mercredi miércoles
    thursday donnerstag jeudi jueves | friday freitag vendredi viernes | saturday samstag samedi sábado
    sunday sonntag dimanche domingo
"""
_FRENCH = re.compile(r"\b(?:le|la|les|du|que|qui|quoi|est|on|nous|vous|il|elle)\b", re.IGNORECASE)
_NUMBER_WORDS = ("a", "an", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _numbered(names: str) -> dict[str, int]:
    return {name: i for i, some in enumerate(re.split(r"[|\n]", names.strip()), 1) for name in some.split()}


_MONTHS, _WEEKDAYS = _numbered(_MONTH_NAMES), _numbered(_DAY_NAMES)
_NUMBERS = dict(zip(_NUMBER_WORDS, (1, 1, *range(1, 11)), strict=True)) | {"couple of": 2, "few": 3}

NAMES_OF_TIME = frozenset(_MONTHS) | frozenset(_WEEKDAYS)
"""Months and days of the week: capitalised, and nobody's name in most sentences."""


def _one_of(words: dict[str, int]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_MONTH, _WEEKDAY = rf"(?:{_one_of(_MONTHS)})\b\.?", rf"(?:{_one_of(_WEEKDAYS)})"
_NUMBER = rf"(?:a )?(?P<n>\d{{1,3}}|{_one_of(_NUMBERS)})"
_TH = r"(?:st|nd|rd|th|\.)?"
_UNIT = r"(?P<unit>minute|hour|day|week|month|year)"
_TO = r"\s*(?:and|to|till|until|through|und|bis|et|à|y|al|-|–)\s*"


def _written(i: int) -> str:
    """A day as it is written, in named groups that end in `i`."""
    return (
        rf"(?:(?P<y{i}>\d{{4}})-(?P<m{i}>\d{{1,2}})-(?P<d{i}>\d{{1,2}})(?!\d)"
        rf"|(?P<dd{i}>\d{{1,2}}){_TH}\s+(?:of\s+|de\s+)?(?P<dm{i}>{_MONTH})(?:,?\s+(?:de\s+)?(?P<dy{i}>\d{{4}})\b)?"
        rf"|(?P<mm{i}>{_MONTH})\s+(?P<md{i}>\d{{1,2}}){_TH}(?![\d/])(?:,?\s+(?P<my{i}>\d{{4}})\b)?)"
    )


# ----------------------------------------------------------------------------------------------------- days


def _day(match: re.Match[str], i: int, today: date) -> date:
    """The day of `_written(i)`. Raises ValueError for a day that no calendar has."""
    groups = match.groupdict()
    if groups[f"y{i}"]:
        return date(int(groups[f"y{i}"]), int(groups[f"m{i}"]), int(groups[f"d{i}"]))
    form = "d" if groups[f"dd{i}"] else "m"
    month, year = groups[f"{form}m{i}"], groups[f"{form}y{i}"]
    return newest_day(_MONTHS[month.rstrip(".").lower()], int(groups[f"{form}d{i}"]), year, today)


# ------------------------------------------------------------------------------------------------- readings


def _between(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    last = _day(match, 2, now.date())
    return _day(match, 1, last), last + timedelta(days=1)


def _within_month(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    last = _day(match, 1, now.date())
    return last.replace(day=int(match["from"])), last + timedelta(days=1)


def _week_of(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    return week_of(_day(match, 1, now.date()))


def _written_day(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    return days_from(_day(match, 1, now.date()))


def _in_figures(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    """Day before month, unless only the other way makes a date."""
    day, month, year = int(match["d"]), int(match["m"]), match["y"]
    if month > 12 >= day:
        day, month = month, day
    return days_from(newest_day(month, day, f"20{year}" if year and len(year) == 2 else year, now.date()))


def _back(days: int) -> Reading:
    return lambda _, now: days_from(now.date() - timedelta(days=days))


def _hier(match: re.Match[str], now: datetime) -> tuple[Edge, Edge] | None:
    """Yesterday in French, here in German."""
    return days_from(now.date() - timedelta(days=1)) if _FRENCH.search(match.string) else None


def _ago(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    number, unit = _count(match["n"]), match["unit"].lower()
    if unit in ("minute", "hour"):
        step = timedelta(**{f"{unit}s": 1})
        return now - (number + 1) * step, now - (number - 1) * step
    return before_today(unit, number, now.date())


def _lately(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    """So many days up to now, whatever the calendar says."""
    number, unit = _count(match["n"] or "1"), match["unit"].lower()
    days = {"day": 1, "week": 7, "month": 30, "year": 365}
    length = timedelta(days=number * days[unit]) if unit in days else timedelta(**{f"{unit}s": number})
    return now - length, now + timedelta(microseconds=1)


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _of_calendar(back: int, unit: str = "") -> Reading:
    return lambda match, now: before_today(unit or match["unit"].lower(), back, now.date())


def _weekday(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    """The newest such day: today counts, but not as the last one; `this` one is of this week."""
    today, how = now.date(), (match["how"] or "").lower()
    back = (today.isoweekday() - _WEEKDAYS[match["day"].lower()]) % 7
    if how == "this":
        return days_from(week_of(today)[0] + timedelta(days=_WEEKDAYS[match["day"].lower()] - 1))
    return days_from(today - timedelta(days=back or 7 * how.startswith(("last", "past", "letzte"))))


def _weekday_of_last_week(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    monday = week_of(now.date() - timedelta(weeks=1))[0]
    return days_from(monday + timedelta(days=_WEEKDAYS[match["day"].lower()] - 1))


def _weekend(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    """The newest Saturday and Sunday; while one lasts, `last` is the one before."""
    weekday = now.date().isoweekday()
    back = weekday - 6 if weekday >= 6 and match["how"].lower() not in ("last", "past") else weekday + 1
    return days_from(now.date() - timedelta(days=back), 2)


def _named_month(match: re.Match[str], now: datetime) -> tuple[Edge, Edge]:
    """A month of its year, else the newest that has begun; `last` does not count the one that it is now."""
    month, today = _MONTHS[match["month"].rstrip(".").lower()], now.date()
    if match["year"]:
        return month_of(int(match["year"]), month)
    begun = month < today.month or (month == today.month and (match["how"] or "").lower() != "last")
    return month_of(today.year if begun else today.year - 1, month)


def _month_in_figures(match: re.Match[str], _now: datetime) -> tuple[Edge, Edge]:
    date(int(match["year"]), int(match["month"]), 1)  # or else it is no month
    return month_of(int(match["year"]), int(match["month"]))


def _year(match: re.Match[str], _now: datetime) -> tuple[Edge, Edge]:
    return date(int(match["year"]), 1, 1), date(int(match["year"]) + 1, 1, 1)


_BY = r"(?:on|since|before|after|until|till|by|from|of|am|seit|le|el)"
_OVER = r"(?:in|over|during|within|for|from)"
_WHEN = rf"(?:{_OVER}|since|before|after|until|till|by|of|last|early|mid|late|throughout|im|seit|en|de)"
_PAST = r"(?:last|previous|letzte[nrs]?)"

_MONTH_FIRST = (
    rf"\b(?P<mm1>{_MONTH})\s+(?P<from>\d{{1,2}}){_TH}{_TO}(?P<md1>\d{{1,2}}){_TH}(?!\w)(?:,?\s+(?P<my1>\d{{4}})\b)?"
    r"(?P<y1>)(?P<dd1>)"
)
_RULES: tuple[tuple[str, Reading], ...] = (
    (
        rf"\b(?:between|from|zwischen|entre|du|del|vom)\s+(?:the\s+)?{_written(1)}{_TO}(?:the\s+)?{_written(2)}",
        _between,
    ),
    (rf"(?<![\w-])(?P<from>\d{{1,2}}){_TH}{_TO}(?:the\s+)?{_written(1)}", _within_month),
    (_MONTH_FIRST, _within_month),
    (
        rf"\b(?:week|woche|semaine|semana)\s+(?:of|from|commencing|beginning|starting|vom|du|del)\s+(?:on\s+)?(?:the\s+)?{_written(1)}",
        _week_of,
    ),
    (rf"(?<![\w-]){_written(1)}", _written_day),
    (r"(?<![\w./-])(?P<d>\d{1,2})(?P<sep>[/.])(?P<m>\d{1,2})(?P=sep)(?P<y>\d{4}|\d\d)(?![\w/]|\.\d)", _in_figures),
    (rf"\b{_BY}\s+(?P<d>\d{{1,2}})/(?P<m>\d{{1,2}})(?P<y>)(?![\w/])", _in_figures),
    (r"\b(?:the day before yesterday|vorgestern|avant-hier|anteayer)\b", _back(2)),
    (r"\b(?:yesterday|last night|gestern|ayer)\b", _back(1)),
    (r"\bhier\b", _hier),
    (r"\b(?:(?<!as of )today|this (?:morning|afternoon|evening)|tonight|heute|hoy|aujourd['’]hui)\b", _back(0)),
    (rf"\b{_NUMBER}\s+{_UNIT}s?\s+ago\b", _ago),
    (rf"\b(?:{_OVER}\s+the\s+)?(?:last|past|previous)\s+{_NUMBER}\s+{_UNIT}s?\b", _lately),
    (rf"\b(?:{_OVER}\s+the\s+last|the\s+past)\s+(?P<n>){_UNIT}\b", _lately),
    (rf"\b(?:on\s+)?(?P<day>{_WEEKDAY})\s+(?:of\s+)?last\s+week\b", _weekday_of_last_week),
    (rf"\b(?P<how>last|past|this|letzten|{_BY}(?:\s+last)?)\s+(?P<day>{_WEEKDAY})\b", _weekday),
    (rf"(?P<how>)(?<!next )\b(?P<day>{_WEEKDAY})['’]s\b", _weekday),
    (r"\b(?P<how>last|past|this|over the|on the|at the)\s+weekend\b", _weekend),
    (r"\bthis\s+(?P<unit>week|month|year)\b", _of_calendar(0)),
    (rf"\b{_PAST}\s+(?P<unit>week|month|year)\b", _of_calendar(1)),
    (rf"\b{_PAST}\s+woche\b|\bla semaine dernière\b|\bla semana pasada\b", _of_calendar(1, "week")),
    (rf"\b{_PAST}\s+monat\b|\ble mois dernier\b|\bel mes pasado\b", _of_calendar(1, "month")),
    (rf"\b(?P<how>{_WHEN})\s+(?P<month>{_MONTH})(?!\s*\d{{1,2}}\b)(?:,?\s+(?P<year>\d{{4}})\b)?", _named_month),
    (rf"(?P<how>)\b(?P<month>{_MONTH})\s+(?P<year>\d{{4}})\b", _named_month),
    (r"(?<![\w-])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?![\w-])", _month_in_figures),
    (rf"\b(?:{_OVER}|since|before|after|until|by|throughout|im jahr|en)\s+(?P<year>(?:19|20)\d\d)(?![\w-])", _year),
)
_READINGS = tuple((re.compile(pattern, re.IGNORECASE), reading) for pattern, reading in _RULES)
