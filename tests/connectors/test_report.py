"""Days on which messages seem to be missing."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta

import pytest

from streammem.connectors.report import missing_days

FIRST = date(2024, 1, 1)


def working_days(weeks: int, said: int) -> Counter[date]:
    days = (FIRST + timedelta(days=n) for n in range(7 * weeks))
    return Counter({day: said for day in days if day.weekday() < 5})


def test_a_working_day_without_a_message_in_a_busy_workspace_is_missing() -> None:
    days = working_days(8, 40)
    gone = FIRST + timedelta(days=22)
    del days[gone]
    assert missing_days(days) == [gone]


def test_weekends_are_not_missing() -> None:
    assert missing_days(working_days(8, 40)) == []


@pytest.mark.parametrize(("share", "most"), [(0.3, 20), (0.5, 5), (0.7, 5), (0.7, 60)])
def test_a_quiet_channel_that_rests_now_and_then_misses_nothing(share: float, most: int) -> None:
    chance = random.Random(1)
    span = (FIRST + timedelta(days=n) for n in range(730))
    assert missing_days(Counter({day: chance.randint(1, most) for day in span if chance.random() < share})) == []


def test_no_days_miss_none() -> None:
    assert missing_days(Counter()) == []
