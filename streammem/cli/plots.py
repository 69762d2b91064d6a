"""Pictures of what `eval` measures. They need matplotlib, the extra `plots`; no display."""

from __future__ import annotations

from collections.abc import Sequence as Many
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING

from streammem.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streammem.core.budgets import Point

_INCHES, _DOTS = (9.0, 3.8), 150
"""The size of a picture, and dots to the inch."""


def check() -> None:
    """Raise MissingExtraError if pictures cannot be drawn here: before long work, not after it."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def draw(sweep: Many[Point], file: IO[bytes]) -> None:
    """Write a PNG of Recall and Precision against the most messages of an answer, a line for each system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from streammem.core import budgets

    figure = Figure(figsize=_INCHES, layout="constrained")
    recall, precision = figure.subplots(1, 2)
    limits = [point.limit for point in sweep]
    for system, (recalls, precisions) in budgets.curves(sweep).items():
        _line(recall, limits, recalls, system)
        _line(precision, limits, precisions, system)
    for axes, title in ((recall, "Recall macro"), (precision, "Precision")):
        axes.set_title(title)
        axes.set_xlabel("messages at most")
        axes.set_ylabel("%")
        axes.set_xticks(limits)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    recall.legend()
    FigureCanvasAgg(figure).print_figure(file, dpi=_DOTS, format="png")


def _line(axes: Axes, limits: list[int], shares: list[float], system: str) -> None:
    from streammem.core.scoring import OURS

    thick = 2.5 if system == OURS else 1.2
    axes.plot(limits, [100 * share for share in shares], marker="o", linewidth=thick, label=system)
