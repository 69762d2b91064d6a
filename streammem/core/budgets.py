"""Recall and precision against the size of an answer (EGCForest, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence as Many

import msgspec

from streammem.core.scoring import ALL, Difference, Report, Table, percent, points


class Point(msgspec.Struct, frozen=True):
    """The report at one size: at most `limit` messages and `budget` tokens (None: any number), for every system."""

    limit: int
    budget: int | None
    report: Report


def curves(sweep: Many[Point]) -> dict[str, tuple[list[float], list[float]]]:
    """For each system its Recall (macro) and its Precision at every point, as shares of 1."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for point in sweep:
        for system in point.report.systems:
            if system.overall:
                recalls, precisions = found.setdefault(system.name, ([], []))
                recalls.append(system.overall.recall_macro)
                precisions.append(system.overall.precision)
    return found


def tables(sweep: Many[Point]) -> list[Table]:
    """The sweep as tables for people, in percent; none for a data set without evidence."""
    drawn = curves(sweep)
    if not drawn:
        return []
    columns = ("messages", "tokens", *drawn)
    bests = [_best(point.report) for point in sweep]
    beside = ("above the best", "95 % interval") if any(bests) else ()
    recall, precision = [], []
    for place, (point, best) in enumerate(zip(sweep, bests, strict=True)):
        size = (str(point.limit), "any" if point.budget is None else f"{point.budget:,}")
        recall.append((*size, *(percent(recalls[place]) for recalls, _ in drawn.values()), *_above(best)))
        precision.append((*size, *(percent(precisions[place]) for _, precisions in drawn.values())))
    return [
        Table("Recall macro by budget", (*columns, *beside), tuple(recall)),
        Table("Precision by budget", columns, tuple(precision)),
    ]


def _best(report: Report) -> Difference | None:
    """Ours against the best of the others."""
    return next((d for d in report.differences if d.is_best and d.over == ALL), None)


def _above(best: Difference | None) -> tuple[str, ...]:
    if best is None:
        return ()
    mean, interval = points(best)
    return f"{mean} ({best.against})", interval
