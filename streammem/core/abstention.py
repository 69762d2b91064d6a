"""Which floor of confidence tells questions that nobody ever answered from those that were (issue 6, Abstention).

An answer abstains when its confidence is below the floor. Of all floors that silence at most a given share of the
questions with evidence (false alarms), the highest abstains most where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as Many

import msgspec
import numpy as np

from streammem.core.scoring import Outcome, Question, Share, Table, percent

NEVER_STATED, NOT_VISIBLE = "never stated", "not visible to the asker"
ACCESS = "access"
"""The category of questions whose evidence exists, but not for the asker."""
HALVINGS = 50
"""Random halvings of a cross-validation."""
_DECIMALS = 10_000
"""A floor has four decimals, so that people can copy it."""


class Shares(msgspec.Struct, frozen=True):
    """How many abstain: of the questions with evidence (false alarms), and of those without, by kind."""

    false_alarms: Share
    abstained: dict[str, Share]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The floor for a wanted share of false alarms and what it does, to the questions that it was chosen on.

    `crossed` is what a floor chosen on one half of the questions does to the other half: the mean of many halvings.
    `telling` is false when all confidences are alike: then no floor tells anything apart.
    """

    wanted: float
    floor: float
    measured: Shares
    crossed: Shares | None
    telling: bool


def confidences(questions: Many[Question], outcomes: Many[Outcome]) -> tuple[list[float], dict[str, list[float]]]:
    """The confidences of questions with evidence, and of those without by kind.

    An answer that abstains whatever the floor is (nothing was found) has less than any.
    """
    answerable: list[float] = []
    unanswerable: dict[str, list[float]] = {NEVER_STATED: [], NOT_VISIBLE: []}
    for question, outcome in zip(questions, outcomes, strict=True):
        kind = NOT_VISIBLE if question.key.category == ACCESS else NEVER_STATED
        group = answerable if any(question.key.alternatives) else unanswerable[kind]
        group.append(-math.inf if outcome.abstained or outcome.refused else outcome.confidence)
    return answerable, unanswerable


def floor_of(answerable: Many[float], false_alarm: float) -> float:
    """The highest floor below which at most the share `false_alarm` of these confidences lie, rounded down."""
    allowed = min(math.floor(false_alarm * len(answerable)), len(answerable) - 1)
    highest = sorted(answerable)[allowed]
    return math.floor(highest * _DECIMALS) / _DECIMALS if highest > 0 else 0.0


def calibrate(
    answerable: Many[float], unanswerable: Mapping[str, Many[float]], false_alarm: float, rng: np.random.Generator
) -> Calibration:
    """Choose the floor and say what it does. Raises ValueError without a question that has evidence."""
    if not answerable:
        raise ValueError("a floor is chosen on questions with evidence, of which there are none")
    unanswerable = {kind: values for kind, values in unanswerable.items() if values}
    floor = floor_of(answerable, false_alarm)
    every = {*answerable, *(value for values in unanswerable.values() for value in values)}
    return Calibration(
        wanted=false_alarm,
        floor=floor,
        measured=_shares(answerable, unanswerable, floor),
        crossed=_crossed(answerable, unanswerable, false_alarm, rng) if len(answerable) > 1 else None,
        telling=len(every) > 1,
    )


def _shares(answerable: Many[float], unanswerable: Mapping[str, Many[float]], floor: float) -> Shares:
    return Shares(_below(answerable, floor), {kind: _below(values, floor) for kind, values in unanswerable.items()})


def _below(values: Many[float], floor: float) -> Share:
    return Share(len(values), sum(value < floor for value in values) / len(values))


def _crossed(
    answerable: Many[float], unanswerable: Mapping[str, Many[float]], false_alarm: float, rng: np.random.Generator
) -> Shares:
    """The means over halvings, each half used once to choose and once to measure. Without evidence all are measured."""
    found = []
    for _ in range(HALVINGS):
        mixed = rng.permutation(np.asarray(answerable, dtype=np.float64)).tolist()
        halves = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
        for chosen_on, measured_on in (halves, halves[::-1]):
            found.append(_shares(measured_on, unanswerable, floor_of(chosen_on, false_alarm)))
    return Shares(
        _mean([one.false_alarms for one in found], len(answerable)),
        {kind: _mean([one.abstained[kind] for one in found], len(values)) for kind, values in unanswerable.items()},
    )


def _mean(shares: Many[Share], n: int) -> Share:
    return Share(n, sum(one.share for one in shares) / len(shares))


def table(found: Calibration) -> Table:
    """What the floor does, for people, in percent."""
    columns, crossed = ("abstained", "n", "with this floor", "cross-validated"), found.crossed
    rows = [
        _row("evidence exists (false alarms)", found.measured.false_alarms, crossed.false_alarms if crossed else None)
    ]
    for kind, measured in found.measured.abstained.items():
        rows.append(_row(kind, measured, crossed.abstained[kind] if crossed else None))
    return Table(f"Floor of confidence for {percent(found.wanted)} % of false alarms", columns, tuple(rows))


def _row(name: str, measured: Share, crossed: Share | None) -> tuple[str, ...]:
    return name, str(measured.n), percent(measured.share), percent(crossed.share if crossed else None)
