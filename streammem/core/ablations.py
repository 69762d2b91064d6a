"""What it costs to leave something out: the rows of EGCForest's Table 2 and Figure 3, with paired intervals."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from typing import Any

import msgspec
import numpy as np

from streammem.core import scoring
from streammem.core.runs import Run, Variant, differing
from streammem.core.scoring import Gap, Outcome, Question, SystemReport, Table, percent


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One variant: which numbers it has otherwise, its figures, and its Recall (macro) minus that of the full run.

    `step` is the same minus the row before, for stages: what this stage adds to those before it.
    """

    kind: str
    name: str
    changed: dict[str, Any]
    figures: SystemReport
    to_full: Gap | None = None
    step: Gap | None = None


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """The full run and all variants. `full.step` is what the last stage adds."""

    k: int
    full: Row
    variants: tuple[Row, ...]

    def of(self, kind: str) -> list[tuple[str, Row]]:
        """The variants of one table by what people call them, the full run last: its last stage is the next one."""
        found = [(row.name, row) for row in self.variants if row.kind == kind]
        name = f"+ S{len(found) + 1} ({self.full.name})" if kind == "stages" else self.full.name
        return [*found, (name, self.full)] if found else []


class Answered(msgspec.Struct, frozen=True):
    """A variant with its outcomes, in the order of the questions."""

    variant: Variant
    outcomes: Many[Outcome]


def ablation(
    questions: Many[Question], run: Run, full: Many[Outcome], answered: Many[Answered], rng: np.random.Generator
) -> Ablation:
    """Score every variant against the full run; the full run's outcomes are `full`."""
    k, before = run.limit, None
    rows = []
    for one in answered:
        staged = one.variant.kind == "stages"
        rows.append(
            Row(
                kind=one.variant.kind,
                name=one.variant.run.name,
                changed=differing(one.variant.run, run),
                figures=scoring.system(one.variant.run.name, questions, one.outcomes, k),
                to_full=scoring.gap(questions, one.outcomes, full, rng),
                step=scoring.gap(questions, one.outcomes, before, rng) if staged and before is not None else None,
            )
        )
        before = one.outcomes if staged else before
    step = scoring.gap(questions, full, before, rng) if before is not None else None
    whole = Row(kind="full", name=run.name, changed={}, figures=scoring.system(run.name, questions, full, k), step=step)
    return Ablation(k=k, full=whole, variants=tuple(rows))


# --------------------------------------------------------------------------------------------------- tables


def tables(found: Ablation) -> list[Table]:
    """The ablation as tables for people, in percent and points; empty ones are left out."""
    made = [
        _stages(found),
        _by_category(found, "stages"),
        _compared(found, "views", "Views"),
        _by_category(found, "views"),
        _compared(found, "signals", "Signals, each off by itself"),
    ]
    return [table for table in made if table.rows]


def _stages(found: Ablation) -> Table:
    columns = (*_heads(found, "stages"), "over the row before", "95 % interval", "minus full", "95 % interval")
    rows = [(name, *_figures(row), *_points(row.step), *_points(row.to_full)) for name, row in _scored(found, "stages")]
    return Table("Stages", columns, tuple(rows))


def _compared(found: Ablation, kind: str, title: str) -> Table:
    columns = (*_heads(found, kind), "minus full", "95 % interval")
    rows = [(name, *_figures(row), *_points(row.to_full)) for name, row in _scored(found, kind)]
    return Table(title, columns, tuple(rows))


def _by_category(found: Ablation, kind: str) -> Table:
    rows = dict(_scored(found, kind))
    categories = sorted({name for row in rows.values() for name in row.figures.by_category})
    made = []
    for category in categories:
        scores = [row.figures.by_category[category] for row in rows.values()]
        made.append((category, str(scores[0].n), *(percent(score.recall_macro) for score in scores)))
    title = f"Recall@{found.k} macro by {kind} and category"
    return Table(title, ("category", "n", *rows), tuple(made))


def _scored(found: Ablation, kind: str) -> Iterator[tuple[str, Row]]:
    return ((name, row) for name, row in found.of(kind) if row.figures.overall)


def _heads(found: Ablation, kind: str) -> tuple[str, ...]:
    return kind, f"P@{found.k}", f"R@{found.k}"


def _figures(row: Row) -> tuple[str, ...]:
    overall = row.figures.overall
    return (percent(overall.precision), percent(overall.recall_macro)) if overall else ("", "")


def _points(gap: Gap | None) -> tuple[str, str]:
    return scoring.points(gap) if gap else ("", "")
