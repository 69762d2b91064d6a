"""Tables of variants and of budgets, on outcomes that are made by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streammem.core import ablations, budgets, runs, scoring
from streammem.core.ablations import Ablation, Answered
from streammem.core.budgets import Point
from streammem.core.numbers import Retrieval
from streammem.core.runs import FULL, Run
from streammem.core.scoring import Key, Outcome, Question
from streammem.records import Query

WHOLE = Run(FULL, Retrieval(), 4, 600)
N = 40
QUESTIONS = [
    Question(
        id=f"q{i}",
        asked=Query(text=f"question {i}"),
        key=Key(alternatives=(("a", "b"),), category="even" if i % 2 == 0 else "odd"),
    )
    for i in range(N)
]


def finding(*found: str) -> list[Outcome]:
    return [Outcome(found=found)] * N


def ablated(**found: list[Outcome]) -> Ablation:
    """An ablation in which the named variants found this, all others everything."""
    answered = [Answered(v, found.get(v.run.name.replace("+ ", ""), finding("a", "b"))) for v in runs.variants(WHOLE)]
    return ablations.ablation(QUESTIONS, WHOLE, finding("a", "b"), answered, np.random.default_rng(0))


def rows(table: scoring.Table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table.rows}


def test_each_stage_is_compared_with_the_one_before_and_with_all() -> None:
    table, *_ = ablations.tables(ablated(S1=finding(), S2=finding("a")))
    assert table.columns[:3] == ("stages", "P@4", "R@4")
    assert rows(table) == {
        "S1": ("0.0", "0.0", "", "", "-100.0", "-100.0 to -100.0"),
        "+ S2": ("25.0", "50.0", "+50.0", "+50.0 to +50.0", "-50.0", "-50.0 to -50.0"),
        "+ S3": ("50.0", "100.0", "+50.0", "+50.0 to +50.0", "+0.0", "+0.0 to +0.0"),
        "+ S4 (full)": ("50.0", "100.0", "+0.0", "+0.0 to +0.0", "", ""),
    }


def test_the_last_stage_is_compared_with_the_stage_before_whatever_else_was_left_out() -> None:
    found = ablated(S3=finding("a"), **{"without recency": finding()})
    assert found.full.step is not None
    assert found.full.step.mean == pytest.approx(0.5)


def test_a_difference_that_is_uneven_has_an_interval_around_it() -> None:
    some = [Outcome(found=("a", "b") if i < 10 else ()) for i in range(N)]
    (first, *_) = ablated(S1=some).variants
    assert first.to_full is not None
    assert first.to_full.mean == pytest.approx(-0.75)
    assert -0.95 < first.to_full.low < -0.75 < first.to_full.high < -0.55


def test_stages_are_told_by_category() -> None:
    odd = [Outcome(found=("a",) if i % 2 else ()) for i in range(N)]
    _, table, *_ = ablations.tables(ablated(S1=odd))
    assert table.columns == ("category", "n", "S1", "+ S2", "+ S3", "+ S4 (full)")
    assert rows(table)["even"][:2] == ("20", "0.0")
    assert rows(table)["odd"][:2] == ("20", "50.0")


def test_views_and_signals_have_their_tables_with_the_full_run_last() -> None:
    tables = {table.title: table for table in ablations.tables(ablated(actor=finding("a")))}
    views, signals = tables["Views"], tables["Signals, each off by itself"]
    assert rows(views)["actor"] == ("25.0", "50.0", "-50.0", "-50.0 to -50.0")
    assert [table.rows[-1][0] for table in (views, signals)] == ["full", "full"]
    assert "without root" in rows(signals)


def test_an_ablation_says_which_numbers_were_changed_and_goes_to_json() -> None:
    written = msgspec.json.decode(msgspec.json.encode(ablated()))
    assert [row["changed"] for row in written["variants"] if row["kind"] == "stages"] == [
        {"stages": 1},
        {"stages": 2},
        {"stages": 3},
    ]
    assert written["full"]["figures"]["overall"]["recall_macro"] == 1.0


def test_tables_are_as_wide_as_their_columns() -> None:
    assert all(len(row) == len(table.columns) for table in ablations.tables(ablated()) for row in table.rows)


def test_nothing_is_told_without_questions() -> None:
    answered = [Answered(variant, []) for variant in runs.variants(WHOLE)]
    assert ablations.tables(ablations.ablation([], WHOLE, [], answered, np.random.default_rng(0))) == []
    assert budgets.tables([]) == []


# -------------------------------------------------------------------------------------------------- budgets


def point(limit: int, budget: int | None, **found: list[Outcome]) -> Point:
    return Point(limit, budget, scoring.report(QUESTIONS, found, limit, np.random.default_rng(0)))


SWEEP = [
    point(2, 300, streammem=finding("a"), bm25=finding(), dense=finding("b")),
    point(4, 600, streammem=finding("a", "b"), bm25=finding("a"), dense=finding()),
]


def test_each_system_has_a_curve() -> None:
    assert budgets.curves(SWEEP) == {
        "streammem": ([0.5, 1.0], [0.5, 0.5]),
        "bm25": ([0.0, 0.5], [0.0, 0.25]),
        "dense": ([0.5, 0.0], [0.5, 0.0]),
    }


def test_a_sweep_names_the_best_of_the_others_at_each_budget() -> None:
    recall, precision = budgets.tables(SWEEP)
    assert recall.columns == ("messages", "tokens", "streammem", "bm25", "dense", "above the best", "95 % interval")
    assert recall.rows == (
        ("2", "300", "50.0", "0.0", "50.0", "+0.0 (dense)", "+0.0 to +0.0"),
        ("4", "600", "100.0", "50.0", "0.0", "+50.0 (bm25)", "+50.0 to +50.0"),
    )
    assert precision.rows[1] == ("4", "600", "50.0", "25.0", "0.0")


def test_a_sweep_without_baselines_compares_nothing() -> None:
    recall, _ = budgets.tables([point(2, None, streammem=finding("a"))])
    assert recall.columns == ("messages", "tokens", "streammem")
    assert recall.rows == (("2", "any", "50.0"),)
