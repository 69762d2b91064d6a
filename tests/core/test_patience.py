"""Waiting for a server that fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Wording
from streammem.core.patience import Breaker, backoff

NUMBERS = Wording(backoff=0.5, longest=60.0, trips=3, cooling=10.0)
chances = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 60), chances)
def test_a_backoff_lies_anywhere_below_a_bound_that_doubles_and_has_an_end(attempt: int, chance: float) -> None:
    bound = min(60.0, 0.5 * 2 ** (attempt - 1))
    assert 0 <= backoff(attempt, chance, NUMBERS) <= bound
    assert backoff(attempt, 0.0, NUMBERS) == 0.0
    assert backoff(attempt, 0.5, NUMBERS) == bound / 2


def failing(breaker: Breaker, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        breaker.failed(now)


def test_it_opens_after_so_many_failures_in_a_row_and_a_success_between_them_counts_anew() -> None:
    breaker = Breaker(NUMBERS)
    failing(breaker, 2)
    breaker.went_well()
    failing(breaker, 2)
    assert not breaker.open
    assert breaker.wait(0.0) == 0.0
    failing(breaker, 1)
    assert breaker.open
    assert breaker.wait(0.0) == 10.0
    assert breaker.wait(4.0) == 6.0


def test_calls_that_were_on_their_way_when_it_opened_do_not_make_the_pause_longer() -> None:
    breaker = Breaker(NUMBERS)
    failing(breaker, 3, 0.0)
    failing(breaker, 20, 5.0)
    assert breaker.wait(5.0) == 5.0


def test_after_the_pause_one_call_may_go_and_the_others_wait_for_how_it_went() -> None:
    breaker = Breaker(NUMBERS)
    failing(breaker, 3)
    assert breaker.wait(10.0) == 0.0
    assert breaker.wait(10.0) > 0
    breaker.went_well()
    assert not breaker.open
    assert [breaker.wait(10.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_try_in_vain_doubles_the_pause_up_to_a_bound_and_a_success_makes_it_short_again() -> None:
    breaker = Breaker(NUMBERS)
    failing(breaker, 3)
    now, pauses = 0.0, []
    for _ in range(8):
        now += (pause := breaker.wait(now))
        pauses.append(pause)
        assert breaker.wait(now) == 0.0
        breaker.failed(now)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 200.0, 200.0, 200.0]
    now += breaker.wait(now)
    assert breaker.wait(now) == 0.0
    breaker.went_well()
    failing(breaker, 3, now)
    assert breaker.wait(now) == 10.0


def test_a_try_that_was_given_up_lets_another_try() -> None:
    breaker = Breaker(NUMBERS)
    failing(breaker, 3)
    assert breaker.wait(10.0) == 0.0
    breaker.given_up()
    assert breaker.open
    assert breaker.wait(10.0) == 0.0


@given(st.lists(st.sampled_from(("wait", "failed", "well", "given up", "later")), max_size=60))
def test_while_it_is_open_never_two_calls_try_at_the_same_time(steps: list[str]) -> None:
    breaker, now, trying = Breaker(NUMBERS), 0.0, False
    for step in steps:
        if step == "later":
            now += 7.0
        elif step == "wait":
            was_open = breaker.open
            wait = breaker.wait(now)
            assert wait >= 0
            if was_open and wait == 0:
                assert not trying
                trying = True
        else:
            happened(breaker, step, now)
            trying = False


def happened(breaker: Breaker, step: str, now: float) -> None:
    if step == "failed":
        breaker.failed(now)
    else:
        (breaker.went_well if step == "well" else breaker.given_up)()
