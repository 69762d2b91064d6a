"""Dates as people say them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.calendar import zone_of
from streammem.core.dates_in_text import dated
from streammem.core.events import micros, moment

NOW = micros(datetime(2026, 4, 10, 9, tzinfo=UTC))
"""A Friday."""


def named(text: str, now: int = NOW, zone: str = "") -> str:
    """The stretch as `first..last` day of the zone."""
    found = dated(text, now, zone_of(zone))
    if found is None:
        return ""
    first, last = (moment(at).astimezone(zone_of(zone)) for at in (found.start, found.end - 1))
    return f"{first:%Y-%m-%d}" + (f"..{last:%Y-%m-%d}" if first.date() != last.date() else "")


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("what happened yesterday?", "2026-04-09"),
        ("today", "2026-04-10"),
        ("the day before yesterday", "2026-04-08"),
        ("this week", "2026-04-06..2026-04-12"),
        ("last week", "2026-03-30..2026-04-05"),
        ("last Monday", "2026-04-06"),
        ("last Friday", "2026-04-03"),
        ("on Friday", "2026-04-10"),
        ("since Wednesday", "2026-04-08"),
        ("Monday last week", "2026-03-30"),
        ("this Monday", "2026-04-06"),
        ("last weekend", "2026-04-04..2026-04-05"),
        ("3 days ago", "2026-04-07"),
        ("a couple of days ago", "2026-04-08"),
        ("two weeks ago", "2026-03-23..2026-03-29"),
        ("3 months ago", "2026-01-01..2026-01-31"),
        ("last month", "2026-03-01..2026-03-31"),
        ("in January", "2026-01-01..2026-01-31"),
        ("in December", "2025-12-01..2025-12-31"),
        ("during May 2023", "2023-05-01..2023-05-31"),
        ("in 2024", "2024-01-01..2024-12-31"),
        ("in 2026-03", "2026-03-01..2026-03-31"),
        ("the week of 20 January", "2026-01-19..2026-01-25"),
        ("between 3 and 7 March", "2026-03-03..2026-03-07"),
        ("March 3-7", "2026-03-03..2026-03-07"),
        ("between March 3 and March 7, 2025", "2025-03-03..2025-03-07"),
        ("from 28 December to 3 January", "2025-12-28..2026-01-03"),
        ("between 2026-01-02 and 2026-01-04", "2026-01-02..2026-01-04"),
        ("on 3 March", "2026-03-03"),
        ("on March 3rd, 2025", "2025-03-03"),
        ("the 3rd of March", "2026-03-03"),
        ("on 2026-03-03T10:00", "2026-03-03"),
        ("on 24 December", "2025-12-24"),
        ("on 29 February", "2024-02-29"),
        ("on 3/4", "2026-04-03"),
        ("3.4.2026", "2026-04-03"),
        ("12/25/2025", "2025-12-25"),
        ("Was war gestern?", "2026-04-09"),
        ("am 3. März", "2026-03-03"),
        ("letzte Woche", "2026-03-30..2026-04-05"),
        ("Qu'est-ce qu'on a dit hier ?", "2026-04-09"),
        ("el 3 de marzo", "2026-03-03"),
    ],
)
def test_a_date_is_read_as_people_mean_it(text: str, days: str) -> None:
    assert named(text) == days


@pytest.mark.parametrize(
    "text",
    [
        "on 31 February",
        "next Monday",
        "next Friday's demo",
        "3 marketing people",
        "the first 2 decisions",
        "24/7 support",
        "DOC-12 march",
        "report-2026-03-03.pdf",
        "the Monday meeting",
        "Wer ist hier?",
        "as of today",
        "v2.1.2026 is out",
        "within 12 months",
        "99999 days ago",
        "in 2026-13",
    ],
)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert named(text) == ""


def test_lately_reaches_up_to_now() -> None:
    found = dated("in the last two weeks", NOW)
    assert found is not None
    assert (found.start, found.end) == (NOW - 14 * 86_400_000_000, NOW + 1)


def test_an_hour_ago_is_about_then() -> None:
    found = dated("an hour ago", NOW)
    assert found is not None
    assert found.start < NOW - 3_600_000_000 < found.end


def test_a_day_begins_at_the_midnight_of_its_zone_also_when_clocks_change() -> None:
    oslo = dated("on 29 March", NOW, zone_of("Europe/Oslo"))
    assert oslo is not None
    assert moment(oslo.start) == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert oslo.end - oslo.start == 23 * 3_600_000_000
    late = micros(datetime(2026, 4, 10, 23, tzinfo=UTC))
    assert named("today", late, "Europe/Oslo") == "2026-04-11"
    assert named("today", late, "UTC-05:00") == "2026-04-10"


@pytest.mark.parametrize("name", ["", "Europe", "Nowhere/Land", "../etc/passwd", "\0", "UTC+99:00", "x" * 500])
def test_a_zone_that_nobody_knows_is_utc(name: str) -> None:
    assert zone_of(name) is UTC


def test_offsets_are_zones() -> None:
    assert zone_of("UTC+05:30").utcoffset(None) == timedelta(hours=5, minutes=30)
    assert zone_of("UTC-8").utcoffset(None) == timedelta(hours=-8)


days = st.dates(date(1990, 1, 1), date(2030, 12, 31))
zones = st.sampled_from(("", "Europe/Oslo", "UTC+05:30", "America/New_York", "Pacific/Auckland"))


@given(days, zones)
def test_every_day_is_found_however_it_is_written(day: date, zone: str) -> None:
    for text in (f"{day}", f"{day.day} {day:%B} {day.year}", f"on {day:%b} {day.day}, {day.year}", f"{day:%d.%m.%Y}"):
        assert named(f"what was said on {text}?", NOW, zone) == f"{day}"


@given(st.integers(0, 30 * 366), zones, st.sampled_from((1, 29, 31)), st.integers(1, 12))
def test_a_date_without_a_year_is_the_newest_that_had_begun(since: int, zone: str, day: int, month: int) -> None:
    now = NOW - since * 86_400_000_000
    found = dated(f"on {day} {date(2000, month, 1):%B}", now, zone_of(zone))
    if found is None:
        assert (day, month) in {(31, m) for m in (2, 4, 6, 9, 11)}
    else:
        assert found.start <= now < found.start + 8 * 366 * 86_400_000_000


@given(st.text(max_size=60) | st.from_regex(r"(in|on|last|between|week of) \d{1,4}[-/. ]\d{1,3}[-/. ]\d{1,4}.*"), zones)
def test_any_text_gives_a_stretch_that_ends_after_it_begins_or_none(text: str, zone: str) -> None:
    found = dated(text, NOW, zone_of(zone))
    assert found is None or found.start < found.end
    assert found is None or 0 <= found.at[0] < found.at[1] <= len(text)
