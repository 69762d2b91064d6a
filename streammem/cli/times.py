"""Times as people type them, to microseconds UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from streammem.core.events import micros
from streammem.errors import QueryError
from streammem.records import FOREVER


def start(option: str, text: str | None) -> int | None:
    """The moment that a date-time names, or the first of a day."""
    return None if text is None else _bounded(_read(option, text)[0])


def end(option: str, text: str | None) -> int | None:
    """The moment that a date-time names, or the last of a day."""
    return None if text is None else _bounded(_read(option, text)[1] - 1)


def _read(option: str, text: str) -> tuple[int, int]:
    """The [start, end) that a text names."""
    try:
        day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
        return micros(day), micros(day) + timedelta(days=1) // timedelta(microseconds=1)
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(
            f"{option} {text!r} is not a time: write a date such as 2026-03-01, or a date-time such as "
            "2026-03-01T14:30 (UTC unless it ends in a zone such as +02:00)"
        ) from None
    at = micros(read if read.tzinfo else read.replace(tzinfo=UTC))
    return at, at + 1


def _bounded(moment: int) -> int:
    """Stay below the `until` of what still stands, so that a far future means everything."""
    return min(moment, FOREVER - 1)
