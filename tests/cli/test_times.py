from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streammem.cli import times
from streammem.core.events import micros
from streammem.errors import QueryError
from streammem.records import FOREVER

MIDNIGHT = micros(datetime(2026, 3, 1, tzinfo=UTC))
DAY = 86_400_000_000


def test_a_date_starts_at_midnight_utc() -> None:
    assert times.start("--since", "2026-03-01") == MIDNIGHT


def test_a_date_ends_with_its_last_microsecond() -> None:
    assert times.end("--until", "2026-03-01") == MIDNIGHT + DAY - 1


def test_a_date_time_is_the_same_moment_at_both_ends() -> None:
    assert times.start("--since", "2026-03-01T12:00") == times.end("--until", "2026-03-01T12:00") == MIDNIGHT + DAY // 2


def test_a_zone_is_honoured() -> None:
    assert times.start("--since", "2026-03-01T02:00+02:00") == times.start("--since", "2026-03-01T00:00Z") == MIDNIGHT


def test_no_time_is_none() -> None:
    assert times.start("--since", None) is times.end("--until", None) is None


def test_a_far_future_is_still_before_for_ever() -> None:
    assert times.end("--as-of", "9999-12-31") == FOREVER - 1


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "2026-03-01T25:00", "1772442000.000100"])
def test_what_is_no_time_is_refused_naming_the_option(text: str) -> None:
    with pytest.raises(QueryError, match=r"--since .* is not a time"):
        times.start("--since", text)
