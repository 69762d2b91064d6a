"""The floor that a wanted share of false alarms leaves, and what it does to questions that it was not chosen on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import abstention
from streammem.core.abstention import ACCESS, NEVER_STATED, NOT_VISIBLE, Calibration, calibrate, floor_of
from streammem.core.scoring import Key, Outcome, Question, Share
from streammem.records import Query

confidences = st.lists(st.floats(0, 3) | st.just(-math.inf), min_size=1, max_size=60)
alarms = st.floats(0, 0.5)


def calibrated(
    answerable: list[float], never: list[float], false_alarm: float = 0.05, hidden: list[float] | None = None
) -> Calibration:
    unanswerable = {NEVER_STATED: never, NOT_VISIBLE: hidden or []}
    return calibrate(answerable, unanswerable, false_alarm, np.random.default_rng(0))


def test_the_floor_leaves_out_no_more_than_may_be() -> None:
    answerable = [i / 100 for i in range(1, 101)]
    found = calibrated(answerable, [0.01, 0.02, 0.059, 0.06, 0.9])
    assert found.floor == 0.06
    assert found.measured.false_alarms == Share(100, 0.05)
    assert found.measured.abstained == {NEVER_STATED: Share(5, 0.6)}


@given(confidences, alarms)
def test_false_alarms_never_pass_what_is_wanted_beyond_those_that_no_floor_avoids(answerable, false_alarm) -> None:
    floor = floor_of(answerable, false_alarm)
    silenced = sum(value < floor for value in answerable)
    unavoidable = sum(value == -math.inf for value in answerable)
    assert silenced <= max(false_alarm * len(answerable), unavoidable)


@given(confidences, alarms)
def test_no_higher_floor_of_four_decimals_would_do(answerable, false_alarm) -> None:
    higher = floor_of(answerable, false_alarm) + 0.00011
    silenced = sum(value < higher for value in answerable)
    if max(answerable) >= higher:  # above all of them, every floor does the same
        assert silenced > false_alarm * len(answerable) - 1e-9 or silenced == 0


def test_ties_at_the_floor_are_kept() -> None:
    found = calibrated([0.5] * 50 + [0.8] * 50, [0.5, 0.4], false_alarm=0.1)
    assert (found.floor, found.measured.false_alarms.share) == (0.5, 0.0)
    assert found.measured.abstained[NEVER_STATED].share == 0.5


def test_confidences_that_are_all_alike_tell_nothing() -> None:
    found = calibrated([0.0] * 10, [0.0] * 10)
    assert (found.floor, found.telling) == (0.0, False)
    assert found.measured.abstained[NEVER_STATED].share == 0.0


def test_what_is_not_visible_is_told_apart_from_what_was_never_stated() -> None:
    found = calibrated([0.5, 0.6], [0.1, 0.2], hidden=[0.1, 0.9, 0.9, 0.9])
    assert found.measured.abstained == {NEVER_STATED: Share(2, 1.0), NOT_VISIBLE: Share(4, 0.25)}
    assert [row[0] for row in abstention.table(found).rows] == [
        "evidence exists (false alarms)",
        NEVER_STATED,
        NOT_VISIBLE,
    ]


def test_other_halves_show_a_floor_that_was_fitted_to_chance() -> None:
    """With 20 questions, half of them leave no room: the lowest of one half is above the lowest of the other."""
    answerable = [i / 20 for i in range(1, 21)]
    found = calibrated(answerable, [0.0] * 10)
    assert found.measured.false_alarms.share == 0.05
    assert found.crossed is not None
    assert found.crossed.false_alarms.n == 20
    assert 0.05 < found.crossed.false_alarms.share < 0.2
    assert found.crossed.abstained[NEVER_STATED] == Share(10, 1.0)


def test_many_questions_hold_on_the_other_half() -> None:
    rng = np.random.default_rng(1)
    found = calibrated(rng.normal(1.0, 0.2, 2000).tolist(), rng.normal(0.4, 0.2, 500).tolist())
    assert found.crossed is not None
    assert found.crossed.false_alarms.share == pytest.approx(0.05, abs=0.01)
    assert found.crossed.abstained[NEVER_STATED].share == pytest.approx(
        found.measured.abstained[NEVER_STATED].share, abs=0.02
    )


def test_one_question_cannot_be_halved() -> None:
    assert calibrated([0.5], [0.1]).crossed is None


def test_a_floor_needs_questions_with_evidence() -> None:
    with pytest.raises(ValueError, match="evidence"):
        calibrated([], [0.1])


def test_confidences_are_taken_by_what_a_question_has() -> None:
    def asked(category: str, *gold: str) -> Question:
        return Question(id="q", asked=Query(text="?"), key=Key(alternatives=(gold,) if gold else (), category=category))

    questions = [asked("x", "a"), asked("access", "a"), asked(ACCESS), asked("none"), asked("x", "a")]
    outcomes = [
        Outcome(found=("a",), confidence=0.7),
        Outcome(refused="no such user", confidence=0.9),
        Outcome(confidence=0.2),
        Outcome(confidence=0.3),
        Outcome(abstained=True, confidence=0.9),
    ]
    answerable, unanswerable = abstention.confidences(questions, outcomes)
    assert answerable == [0.7, -math.inf, -math.inf]
    assert unanswerable == {NEVER_STATED: [0.3], NOT_VISIBLE: [0.2]}
