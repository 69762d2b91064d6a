"""`streammem eval`: recall and precision on a data set with known evidence, beside flat baselines."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption
from streammem.cli.running import run
from streammem.cli.study import FLOOR, Study
from streammem.errors import MissingExtraError

if TYPE_CHECKING:
    from streammem.core.abstention import Calibration
    from streammem.core.scoring import Table

WIDE = 200
MOST = 200
"""The most messages of an answer (core.numbers)."""


def eval_(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET_DIR", help="A folder with messages.jsonl and questions.jsonl (or .gz).")
    ],
    merged: Annotated[
        bool, typer.Option("--merged", help="Search all workspaces as one, a channel for each: harder.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="Messages to return for each question.")] = 20,
    budget: Annotated[
        int, typer.Option(min=0, help="Tokens that an answer, a baseline's too, may take; 0 for no such limit.")
    ] = 3000,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Measure BM25, dense search and their fusion on the same messages too.")
    ] = False,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Ask again with each stage, view and signal left out, and compare.")
    ] = False,
    budget_sweep: Annotated[
        str | None,
        typer.Option(
            "--budget-sweep",
            metavar="N,N,...",
            help="Ask again for so many messages; tokens in proportion to --budget for --limit.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE.png", help="With --budget-sweep: a picture of it. [default: beside --out]"
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Find the floor of confidence below which to abstain.")
    ] = False,
    false_alarm: Annotated[
        float,
        typer.Option(
            "--false-alarm", min=0, max=0.5, help="With --calibrate: share of answerable questions that may abstain."
        ),
    ] = 0.05,
    memory: Annotated[
        Path | None,
        typer.Option(
            "--memory", metavar="DIR", help="Keep the memory in DIR, or use the one that an earlier run left."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write every question and its answer as JSON lines.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import a data set and measure what the memory finds: Recall@k, Precision@k, by category, with intervals.

    users.jsonl and channels.jsonl (members, private) are honoured where they are. What is for scoring only never
    reaches the memory.

    \b
    streammem eval locomo --baselines
    streammem eval gatemem --merged --baselines --memory gatemem.memory --out raw.jsonl
    streammem eval orgsim --ablate --budget-sweep 10,20,30,40,50 --out raw.jsonl
    streammem eval orgsim --calibrate --false-alarm 0.05
    """  # noqa: D301 - click wants the backspace
    from streammem.core.runs import UNLIMITED

    settings = opening.settings()
    began = time.monotonic()
    picture = _picture(plot, out, budget_sweep)
    study = Study(
        dataset,
        merged=merged,
        limit=limit,
        budget=budget or UNLIMITED,
        baselines=baselines,
        ablate=ablate,
        limits=_limits(budget_sweep),
        false_alarm=false_alarm if calibrate else None,
    )
    with nullcontext(memory) if memory else tempfile.TemporaryDirectory(prefix="streammem-eval-") as place:
        run(study.carry_out(Path(place), settings, out, picture))
    if as_json:
        shown.put_json(study.to_json(time.monotonic() - began))
    else:
        _put(study)
    return 0


def _limits(said: str | None) -> tuple[int, ...]:
    """The limits of a sweep, in order. Raises BadParameter."""
    if said is None:
        return ()
    try:
        limits = sorted({int(part) for part in said.split(",")})
    except ValueError:
        limits = []
    if not limits or not 1 <= limits[0] <= limits[-1] <= MOST:
        raise typer.BadParameter(f"--budget-sweep {said!r} must be numbers of messages from 1 to {MOST}: 10,20,30")
    return tuple(limits)


def _picture(plot: Path | None, out: Path | None, sweep: str | None) -> Path | None:
    """Where the picture of a sweep goes. One that was not asked for is left out, with a word, when it cannot be."""
    from streammem.cli import plots

    if sweep is None:
        if plot is not None:
            raise typer.BadParameter("--plot is a picture of --budget-sweep: name its numbers of messages too")
        return None
    path = plot or (out and out.with_suffix(".png"))
    if path is None:
        return None
    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"--plot {path} would be a PNG picture: name it so, FILE.png")
    if path == out:
        raise typer.BadParameter(f"--out {out} is where the picture would go: name it with --plot")
    try:
        plots.check()
    except MissingExtraError as error:
        if plot is not None:
            raise
        shown.say(f"no picture of the sweep: {error}")
        return None
    return path


def _put(study: Study) -> None:
    from streammem.core import ablations, budgets, scoring

    tables = scoring.tables(study.report)
    tables += ablations.tables(study.ablation) if study.ablation else []
    tables += budgets.tables(study.sweep)
    for table in tables:
        _put_table(table)
    if study.calibration:
        _put_calibration(study.calibration)
    if ask_ms := study.report.ask_ms:
        shown.put_counts("Milliseconds a question", {"p50": f"{ask_ms.p50:.1f}", "p95": f"{ask_ms.p95:.1f}"})


def _put_calibration(found: Calibration) -> None:
    from rich.text import Text

    from streammem.core import abstention

    _put_table(abstention.table(found))
    alike = "All confidences are alike: no floor tells these questions apart.\n"
    shown.console(width=WIDE).print(Text(f"Set {FLOOR}={found.floor}\n" if found.telling else alike))


def _put_table(table: Table) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(title=Text(table.title), title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        grid.add_column(Text(column), justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        grid.add_row(*(Text(shown.line(cell)) for cell in row))
    out = shown.console(width=WIDE)  # figures are better wrapped by the terminal than cut
    out.print(grid)
    out.print()
