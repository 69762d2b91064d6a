"""Prices to the billionth, days to the second, and limits that hold in every stretch of time, wherever it begins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streammem.core import spending
from streammem.core.spending import DAY, SECOND, Call, Standing, Window, decide, free_at
from streammem.records import Limits, Spent, Taken

NOON = 20_787 * DAY + DAY // 2
prices = st.decimals(0, 1000, places=4)


# ------------------------------------------------------------------------------------------------ prices and days


@pytest.mark.parametrize(
    ("tokens", "price", "share", "billionths"),
    [
        ((1_000_000, 0), (0.15, 0.6), 1.0, 150_000_000),
        ((0, 1_000_000), (0.15, 0.6), 1.0, 600_000_000),
        ((3, 0), (0.1, 0.0), 1.0, 300),  # in floats 300.00000000000006, rounded up 301
        ((1, 1), (0.15, 0.6), 0.5, 375),
        ((1, 0), (0.00005, 0.0), 1.0, 1),
        ((1, 0), (0.0005, 0.0), 1.0, 1),
        ((0, 0), (0.15, 0.6), 1.0, 0),
        ((7, 9), (0.0, 0.0), 1.0, 0),
        ((10**12, 0), (0.07, 0.0), 1.0, 70_000 * 10**9),
    ],
)
def test_money_is_what_the_price_list_says(tokens, price, share, billionths):
    assert spending.money(*tokens, price, share) == billionths


@given(st.integers(0, 10**9), st.integers(0, 10**9), prices, prices, st.decimals(0, 1, places=2))
def test_money_is_exact_for_decimal_prices_and_rounded_up(tokens_in, tokens_out, price_in, price_out, share):
    exact = (tokens_in * price_in + tokens_out * price_out) * share * 1000
    paid = spending.money(tokens_in, tokens_out, (float(price_in), float(price_out)), float(share))
    assert paid == exact.to_integral_value(ROUND_CEILING)
    assert isinstance(paid, int)


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 9999), prices)
def test_what_a_call_needs_at_most_is_never_less_than_what_it_takes(prompt, room, reply, price):
    assume(reply <= room)
    tokens, money = spending.most(prompt, room, (float(price), float(price) * 4))
    assert tokens >= prompt + reply
    assert money >= spending.money(prompt, reply, (float(price), float(price) * 4))


def test_a_call_without_a_price_needs_no_money():
    assert spending.most(10, 5, None) == (15, 0)


@given(st.decimals(0, 4_102_444_800, places=6))
def test_days_begin_at_midnight_in_utc(moment: Decimal):
    seconds = float(moment)
    day = datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
    assert spending.day_of(seconds) == day
    midnight = seconds + spending.until_midnight(seconds)
    assert midnight % 86_400 == 0
    assert 0 < spending.until_midnight(seconds) <= 86_400
    assert spending.day_of(midnight) > day
    assert spending.day_named(spending.day_number(spending.micros(int(seconds)))) == day


@pytest.mark.parametrize(
    ("seconds", "day"),
    [(0, "1970-01-01"), (86_399.9999999, "1970-01-01"), (86_400, "1970-01-02"), (951_782_400, "2000-02-29")],
)
def test_a_day_has_its_name(seconds, day):
    assert spending.day_of(seconds) == day


# -------------------------------------------------------------------------------------------------------- limits


Rule = Callable[[list[Call], Limits, int, int], int]
"""The calls so far, limits, tokens, now: the first moment at which a call fits."""


def by_window(calls: list[Call], limits: Limits, tokens: int, now: int) -> int:
    known = [call for call in calls if call.at + spending.micros(limits.window) > now]
    return free_at(Window(len(known), sum(call.tokens for call in known), known), limits, tokens)


def forgetting_at_the_border(calls: list[Call], limits: Limits, tokens: int, now: int) -> int:
    """A planted fault: counts anew when the clock shows a new window."""
    span = spending.micros(limits.window)
    known = [call for call in calls if call.at // span == now // span]
    fits = free_at(Window(len(known), sum(call.tokens for call in known), known), limits, tokens) == 0
    return 0 if fits else (now // span + 1) * span


def filling_a_bucket(calls: list[Call], limits: Limits, tokens: int, now: int) -> int:
    """A planted fault: the limit is a store that fills up again while it is emptied."""
    assert limits.tokens
    span = spending.micros(limits.window)
    level, last = float(limits.tokens), 0
    for call in calls:
        level = min(limits.tokens, level + (call.at - last) * limits.tokens / span) - call.tokens
        last = call.at
    level = min(limits.tokens, level + (now - last) * limits.tokens / span)
    lacking = min(tokens, limits.tokens) - level
    return now + int(lacking * span / limits.tokens) + 1 if lacking > 0 else 0


def life(rule: Rule, limits: Limits, wishes: list[tuple[int, int]]) -> list[Call]:
    """What is granted to somebody who has these wishes, each so many µs after the one before, and waits as told."""
    calls: list[Call] = []
    now = NOON
    for pause, tokens in wishes:
        now += pause
        for _ in range(3):
            now = max(now, rule(calls, limits, tokens, now))
        calls.append(Call(now, tokens))
    return calls


def exceeded(calls: list[Call], limits: Limits) -> list[Call]:
    """The calls with which a stretch of time begins that holds more than the limits."""
    return [call for call in calls if not held([c for c in calls if 0 <= c.at - call.at < window(limits)], limits)]


def window(limits: Limits) -> int:
    return spending.micros(limits.window)


def held(calls: list[Call], limits: Limits) -> bool:
    few = limits.requests is None or len(calls) <= limits.requests
    small = limits.tokens is None or sum(call.tokens for call in calls) <= limits.tokens
    return len(calls) == 1 or (few and small)


limits_of_all_kinds = st.builds(
    Limits,
    requests=st.none() | st.integers(1, 5),
    tokens=st.none() | st.integers(1, 60),
    window=st.sampled_from((0.3, 1.0, 60.0)),
)
wishes = st.lists(st.tuples(st.sampled_from((0, 1, 299_999, 300_000, SECOND, 45 * SECOND)), st.integers(0, 80)))


@given(limits_of_all_kinds, wishes)
def test_no_stretch_of_time_ever_holds_more_than_the_limits(limits, wishes):
    assert exceeded(life(by_window, limits, wishes), limits) == []


@pytest.mark.parametrize("rule", [forgetting_at_the_border, filling_a_bucket])
def test_a_rule_that_lets_twice_as_much_through_is_caught(rule):
    limits = Limits(requests=4, tokens=40, window=60)
    assert exceeded(life(rule, limits, [(55 * SECOND, 10), *[(SECOND, 10)] * 12]), limits)


@given(limits_of_all_kinds, wishes, st.integers(0, 200))
def test_the_moment_that_is_told_is_the_first_at_which_the_call_fits(limits, wishes, tokens):
    calls = life(by_window, limits, wishes)
    now = calls[-1].at if calls else NOON
    moment = by_window(calls, limits, tokens, now)
    if moment:
        assert now < moment <= now + spending.micros(limits.window)
        assert by_window(calls, limits, tokens, moment) == 0
        assert by_window(calls, limits, tokens, moment - 1) == moment


@given(st.integers(1, 60), st.integers(61, 999), wishes)
def test_a_wish_beyond_the_whole_limit_goes_alone_once_the_window_is_empty(limit, tokens, wishes):
    limits = Limits(tokens=limit)
    calls = life(by_window, limits, [*wishes, (0, tokens), (0, 0), (0, tokens), (0, 1)])
    large, small, again, last = calls[-4:]
    assert all(abs(large.at - call.at) >= window(limits) for call in calls if call is not large)
    assert [small.at - large.at, again.at - small.at, last.at - again.at] == [window(limits)] * 3


def test_calls_at_the_border_of_two_minutes_count_together():
    limits = Limits(requests=2, window=60)
    minute = NOON
    calls = [Call(minute - SECOND, 1), Call(minute - 1, 1)]
    assert by_window(calls, limits, 1, minute + SECOND) == minute + 59 * SECOND


def test_calls_under_a_budget_alone_are_in_no_window():
    assert not spending.windowed(Limits(day_tokens=1, day_money=1))
    assert spending.windowed(Limits(requests=1))
    assert spending.windowed(Limits(tokens=1))


# ------------------------------------------------------------------------------------------------------ decisions


class Case(NamedTuple):
    why: str
    standing: Standing
    wait: float


FULL = Window(1, 5, (Call(NOON - 20 * SECOND, 5),))
LIMITS = Limits(requests=1, day_tokens=100, day_money=1000)
WORST = Standing("why not", NOON + 30 * SECOND, 100, 1000, FULL)
CASES = [
    Case("paused", WORST, spending.ASK_AGAIN),
    Case("rest", WORST._replace(paused=None), 30),
    Case("budget", WORST._replace(paused=None, rest=0), 43_200),
    Case("limit", Standing(None, NOON, 99, 999, FULL), 40),
]


@pytest.mark.parametrize("case", CASES, ids=[case.why for case in CASES])
def test_of_several_reasons_the_first_is_told(case: Case):
    said = "why not" if case.why == "paused" else ""
    assert decide(case.standing, LIMITS, 1, 1, NOON) == Taken(granted=False, why=case.why, wait=case.wait, said=said)


def test_a_pause_without_words_is_a_pause():
    assert decide(Standing(paused=""), Limits(), 1, 1, NOON).why == "paused"


@pytest.mark.parametrize(("tokens", "money", "granted"), [(1, 1, True), (2, 0, False), (0, 2, False), (0, 0, True)])
def test_a_budget_is_used_up_to_the_last_token_and_billionth(tokens, money, granted):
    standing = Standing(tokens=99, money=999)
    assert decide(standing, LIMITS, tokens, money, NOON).granted is granted


def test_without_limits_everything_is_granted():
    assert decide(Standing(tokens=10**9, money=10**15, window=FULL), Limits(), 10**9, 10**15, NOON).granted


def test_accounts_add_up():
    one = Spent(day="2026-11-30", view="actor", level=2, calls=1, failed=1, nodes=2, tokens_in=3, tokens_out=4, money=5)
    other = Spent(view="actor", level=2, calls=10, nodes=20, tokens_in=30, tokens_out=40, money=50)
    assert spending.together(one, other) == Spent(
        day="2026-11-30", view="actor", level=2, calls=11, failed=1, nodes=22, tokens_in=33, tokens_out=44, money=55
    )
    assert spending.total([one, other]) == (77, 55)
    assert spending.total([]) == (0, 0)
