"""`streammem eval`: recall and precision on a data set with known evidence, beside flat baselines."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, shown
from streammem.cli.account import Account
from streammem.cli.ask import answer_to_json
from streammem.cli.import_ import load
from streammem.cli.opening import JsonOption
from streammem.cli.progress import Progress
from streammem.cli.running import run
from streammem.errors import QueryError, SettingsError

if TYPE_CHECKING:
    from streammem.connectors import Report as Reading
    from streammem.core.scoring import Question, Report, Table
    from streammem.memory import Memory
    from streammem.records import Answer, Event, Query
    from streammem.settings import Settings

WIDE = 200
STAGES = opening.IMPORTING | {"ask": "asking", "baselines": "ranking by the baselines"}


def eval_(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET_DIR", help="A folder with messages.jsonl and questions.jsonl (or .gz).")
    ],
    merged: Annotated[
        bool, typer.Option("--merged", help="Search all workspaces as one, a channel for each: harder.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Messages to return for each question.")] = 20,
    budget: Annotated[
        int, typer.Option(min=0, help="Tokens that an answer, a baseline's too, may take; 0 for no such limit.")
    ] = 3000,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Measure BM25, dense search and their fusion on the same messages too.")
    ] = False,
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
    """  # noqa: D301 - click wants the backspace
    settings = opening.settings()
    began = time.monotonic()
    study = Study(dataset, merged=merged, limit=limit, budget=budget or UNLIMITED, baselines=baselines)
    with nullcontext(memory) if memory else tempfile.TemporaryDirectory(prefix="streammem-eval-") as place:
        report = run(study.carry_out(Path(place), settings, out))
    if as_json:
        shown.put_json(study.to_json(report, time.monotonic() - began))
    else:
        _put(report)
    return 0


UNLIMITED = 10**9
"""A token budget that nothing reaches."""


class Study:
    """One measurement: the data set and how it is asked."""

    def __init__(self, dataset: Path, *, merged: bool, limit: int, budget: int, baselines: bool) -> None:
        from streammem.connectors import Report as Reading

        self._dataset = dataset
        self._merged = dataset.resolve().name if merged else ""
        self._limit = limit
        self._budget = budget
        self._baselines = baselines
        self._account = Account(Reading())

    def _events(self, reading: Reading | None = None) -> Iterator[Event]:
        from streammem.connectors import Report as Reading
        from streammem.connectors import jsonl

        return jsonl.read(self._dataset, reading or Reading(), merged=self._merged)

    async def carry_out(self, path: Path, settings: Settings, out: Path | None) -> Report:
        """Import, ask, score."""
        from streammem.flows import evaluate as measuring

        dataset = measuring.dataset_of(self._events())  # before a memory is made: a folder without questions makes none
        questions = measuring.load_questions(self._dataset, dataset)
        with Progress(STAGES) as progress, _written(out) as file:
            async with opening.open_(path, settings, create=True, progress=progress) as memory:
                with self._account:
                    await load(memory, self._events(self._account.report), self._account, progress)
                progress.expect("ask", len(questions))
                progress.expect("baselines", len(questions))
                return await measuring.evaluate(
                    questions,
                    _Recorded(memory, questions, file).ask,
                    await memory.corpus(dataset) if self._baselines else None,
                    memory.encode,
                    limit=self._limit,
                    budget=self._budget,
                    progress=progress,
                )

    def to_json(self, report: Report, seconds: float) -> dict[str, Any]:
        """The report with what it was made of."""
        import msgspec

        made = {"dataset": str(self._dataset), "merged": bool(self._merged), "import": self._account.to_json()}
        return {**made, **msgspec.to_builtins(report), "seconds": round(seconds, 1)}


def _written(out: Path | None) -> Any:
    if out is None:
        return nullcontext()
    try:
        return out.open("wb")
    except OSError as error:
        raise SettingsError(f"cannot write --out {out}: {error.strerror}") from None


class _Recorded:
    """Asks the memory, and writes down question, key and answer. Questions come in their order."""

    def __init__(self, memory: Memory, questions: list[Question], file: IO[bytes] | None) -> None:
        self._memory = memory
        self._questions = iter(questions)
        self._file = file

    async def ask(self, query: Query) -> Answer:
        question = next(self._questions)
        try:
            answer = await self._memory.ask(query)
        except QueryError as error:
            self._write(question, {"refused": str(error)})
            raise
        self._write(question, answer_to_json(answer))
        return answer

    def _write(self, question: Question, said: dict[str, Any]) -> None:
        import msgspec

        if self._file is not None:
            row = {"id": question.id, "asked": question.asked, "key": question.key, "answer": said}
            self._file.write(msgspec.json.encode(row) + b"\n")


def _put(report: Report) -> None:
    from streammem.core import scoring

    for table in scoring.tables(report):
        _put_table(table)
    if report.ask_ms:
        shown.put_counts(
            "Milliseconds a question", {"p50": f"{report.ask_ms.p50:.1f}", "p95": f"{report.ask_ms.p95:.1f}"}
        )


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
