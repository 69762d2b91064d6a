"""Days, weeks, months and years of the calendar as stretches of time, and the zones in which they begin."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from streammem.core.events import micros

Edge = date | datetime
"""A moment, or a day: its midnight."""


def zone_of(name: str) -> tzinfo:
    """The time zone of a name such as Europe/Oslo or UTC+05:30; UTC for one that nobody knows."""
    if match := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-offset if match[1] == "-" else offset) if offset < timedelta(hours=24) else UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # nobody's name, no name at all, a folder of names
        return UTC


_OFFSET = re.compile(r"(?:UTC|GMT)([+-])(\d{1,2})(?::?(\d{2}))?")


def micros_of(edge: Edge, zone: tzinfo) -> int:
    """A moment, or the midnight that a day begins with."""
    begun = edge if isinstance(edge, datetime) else datetime(edge.year, edge.month, edge.day, tzinfo=zone)
    return micros(begun.astimezone(UTC))


def newest_day(month: int, day: int, year: str | None, today: date) -> date:
    """The day of that year, else the newest one not after `today`. The 29th of February is one of a leap year."""
    if year:
        return date(int(year), month, day)
    for earlier in range(9):
        try:
            found = date(today.year - earlier, month, day)
        except ValueError:
            continue
        if found <= today:
            return found
    raise ValueError(f"no {day}.{month}. in any year")


def days_from(day: date, days: int = 1) -> tuple[date, date]:
    """So many days, this one first."""
    return day, day + timedelta(days=days)


def week_of(day: date) -> tuple[date, date]:
    """The week of a day, from Monday on."""
    return days_from(day - timedelta(days=day.weekday()), 7)


def month_of(year: int, month: int) -> tuple[date, date]:
    """A month; months count on over the ends of years."""
    first, after = year * 12 + month - 1, year * 12 + month
    return date(first // 12, first % 12 + 1, 1), date(after // 12, after % 12 + 1, 1)


def before_today(unit: str, back: int, today: date) -> tuple[date, date]:
    """The day, week, month or year that lies `back` of them before today's."""
    if unit == "day":
        return days_from(today - timedelta(days=back))
    if unit == "week":
        return week_of(today - timedelta(weeks=back))
    if unit == "month":
        return month_of(today.year, today.month - back)
    return date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1)
