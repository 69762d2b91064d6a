"""Times as Graph writes them: 0 to 7 digits of a fraction, any offset, sometimes broken, and ids that are times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from streammem.core.events import micros, moment

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s?(?:[Zz]|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_ID = re.compile(r"\d{12,14}", re.ASCII)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


def time_of(value: Any) -> datetime | None:
    """An RFC 3339 time in UTC, to the microsecond; None for anything else, and for .NET's year 1, which means none.

    >>> time_of("2020-11-29T23:20:+00:00"), time_of("0001-01-01T00:00:00Z")
    (None, None)
    >>> time_of("2024-10-25T13:11:15.0000001-08:00").isoformat()
    '2024-10-25T21:11:15+00:00'
    """
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    fraction = (match[7] or "").ljust(6, "0")[:6]
    offset = timedelta(hours=int(match[9] or 0), minutes=int(match[10] or 0))
    try:
        zone = timezone(-offset if match[8] == "-" else offset)
        stated = datetime(*map(int, match.groups()[:6]), int(fraction), tzinfo=zone).astimezone(UTC)  # type: ignore[misc,arg-type]
    except (ValueError, OverflowError):
        return None
    return stated if _FIRST < stated < _LAST else None


def time_in(name: str) -> datetime | None:
    """When a message was written, from its id: Teams gives milliseconds since 1970."""
    if not _ID.fullmatch(name):
        return None
    stated = moment(int(name) * 1000)
    return stated if stated < _LAST else None


def milliseconds(time: datetime) -> int:
    """Milliseconds since 1970: the scale of etags and ids."""
    return micros(time) // 1000


def fact_version(*times: datetime | None) -> str:
    """The greatest of the times as the version of a fact, in seconds; at least 1, for hints must never beat a fact."""
    latest = max((micros(time) for time in times if time is not None), default=1_000_000)
    whole, fraction = divmod(latest, 1_000_000)
    return f"{whole}.{fraction:06d}".rstrip("0").rstrip(".")
