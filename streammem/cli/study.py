"""One measurement of `streammem eval`: the data set, how it is asked, and what of it is written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from streammem.cli import opening, plots
from streammem.cli.account import Account
from streammem.cli.ask import answer_to_json
from streammem.cli.import_ import load
from streammem.cli.progress import Progress
from streammem.errors import QueryError, SettingsError, SourceError

if TYPE_CHECKING:
    from streammem.connectors import Report as Reading
    from streammem.core.ablations import Ablation
    from streammem.core.abstention import Calibration
    from streammem.core.budgets import Point
    from streammem.core.numbers import Retrieval
    from streammem.core.runs import Run
    from streammem.core.scoring import Question, Report
    from streammem.flows.evaluate import Dataset
    from streammem.memory import Memory
    from streammem.records import Answer, Event, Query
    from streammem.settings import Settings

STAGES = opening.IMPORTING | {"baselines": "ranking by the baselines"}
FLOOR = "STREAMMEM_RETRIEVAL__FLOOR"
"""The setting that a calibration is for."""


class Study:
    """What is measured in one go. After `carry_out` the findings are in its fields."""

    report: Report

    def __init__(
        self,
        dataset: Path,
        *,
        merged: bool,
        limit: int,
        budget: int,
        baselines: bool,
        ablate: bool = False,
        limits: tuple[int, ...] = (),
        false_alarm: float | None = None,
    ) -> None:
        from streammem.connectors import Report as Reading

        self._dataset = dataset
        self._merged = dataset.resolve().name if merged else ""
        self._limit, self._budget = limit, budget
        self._baselines, self._ablate = baselines, ablate
        self._limits, self._false_alarm = limits, false_alarm
        self._account = Account(Reading())
        self.ablation: Ablation | None = None
        self.sweep: list[Point] = []
        self.calibration: Calibration | None = None

    def _events(self, reading: Reading | None = None) -> Iterator[Event]:
        from streammem.connectors import Report as Reading
        from streammem.connectors import jsonl

        return jsonl.read(self._dataset, reading or Reading(), merged=self._merged)

    async def carry_out(self, path: Path, settings: Settings, out: Path | None, picture: Path | None) -> None:
        """Import once, ask under every run, score; write answers and the picture of the sweep where they are wanted."""
        from streammem.flows import evaluate

        dataset = evaluate.dataset_of(self._events())  # before a memory is made: a folder without questions makes none
        questions = evaluate.load_questions(self._dataset, dataset)
        if self._false_alarm is not None and not any(any(q.key.alternatives) for q in questions):
            raise SourceError(f"{self._dataset}: no question has evidence, and a floor is chosen by those that have")
        runs = self._runs(settings.retrieval)
        with (
            _written(out, "--out") as file,
            _written(picture, "--plot") as drawing,
            Progress(STAGES | _labels(runs)) as progress,
        ):
            async with opening.open_(path, settings, create=True, progress=progress) as memory:
                _refuse_others(path, await memory.workspaces(), dataset)
                with self._account:
                    await load(memory, self._events(self._account.report), self._account, progress)
                self._expect(runs, len(questions), progress)
                await self._measure(memory, dataset, questions, runs[0], Raw(file), progress)
            if drawing is not None:
                plots.draw(self.sweep, drawing)

    def _runs(self, numbers: Retrieval) -> list[Run]:
        """All runs in the order in which they are asked, the full one first, those with the same terms once."""
        from streammem.core import runs

        full = runs.Run(runs.FULL, numbers, self._limit, self._budget)
        more = [variant.run for variant in runs.variants(full)] if self._ablate else []
        more += runs.budgets(full, self._limits)
        more += [runs.without_floor(full)] if self._false_alarm is not None else []
        known: dict[object, Run] = {}
        for run in (full, *more):
            known.setdefault(run.terms, run)
        return list(known.values())

    def _expect(self, runs: list[Run], questions: int, progress: Progress) -> None:
        from streammem.flows.measuring import stage_of

        for run in runs:
            progress.expect(stage_of(run), questions)
        progress.expect("baselines", questions * (1 + len(self._limits)))

    async def _measure(
        self, memory: Memory, dataset: Dataset, questions: list[Question], full: Run, raw: Raw, progress: Progress
    ) -> None:
        from streammem.flows import measuring

        embedder = measuring.Remembering(memory.embedder)
        corpus = await memory.corpus(dataset) if self._baselines else None
        ask = memory.examined(embedder).ask
        examiner = measuring.Examiner(questions, ask, corpus, told=raw.write, progress=progress)
        self.report = await measuring.evaluate(examiner, full, embedder.encode)
        if self._ablate:
            self.ablation = await measuring.ablate(examiner, full)
        if self._limits:
            self.sweep = await measuring.sweep(examiner, full, self._limits, embedder.encode)
        if self._false_alarm is not None:
            self.calibration = await measuring.calibrate(examiner, full, self._false_alarm)

    def to_json(self, seconds: float) -> dict[str, Any]:
        """The findings with what they were made of."""
        import msgspec

        made = {"dataset": str(self._dataset), "merged": bool(self._merged), "import": self._account.to_json()}
        more = {
            "ablation": self.ablation,
            "budgets": self.sweep or None,
            "calibration": self.calibration and {"setting": FLOOR, **msgspec.to_builtins(self.calibration)},
        }
        wanted = {name: msgspec.to_builtins(found) for name, found in more.items() if found is not None}
        return {**made, **msgspec.to_builtins(self.report), **wanted, "seconds": round(seconds, 1)}


def _labels(runs: list[Run]) -> dict[str, str]:
    """What people read while each run is asked."""
    from streammem.flows.measuring import stage_of

    many = len(runs) > 1
    return {
        stage_of(run): f"asking {run.name} ({place} of {len(runs)})" if many else "asking"
        for place, run in enumerate(runs, 1)
    }


def _refuse_others(path: Path, workspaces: list[str], dataset: Dataset) -> None:
    """Raise SettingsError for a memory of another chat: the data set would be added to it, and stay."""
    if others := sorted(set(workspaces) - dataset.directories.keys()):
        named = ", ".join(others[:3])
        raise SettingsError(f"{path} holds another chat than this data set's ({named}): name another --memory")


def _written(path: Path | None, option: str) -> Any:
    """A file to write, opened before the work starts; nothing for none. Raises SettingsError."""
    if path is None:
        return nullcontext()
    try:
        return path.open("wb")
    except OSError as error:
        raise SettingsError(f"cannot write {option} {path}: {error.strerror}") from None


class Raw:
    """Writes down question, key and answer as JSON lines; of variants only what was found, and how."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def write(self, run: Run, question: Question, query: Query, said: Answer | QueryError) -> None:
        """A line for one question of one run."""
        import msgspec

        if self._file is None:
            return
        row = {"id": question.id, "variant": run.name, "asked": query, "key": question.key, "answer": _said(run, said)}
        self._file.write(msgspec.json.encode(row) + b"\n")


def _said(run: Run, said: Answer | QueryError) -> dict[str, Any]:
    from streammem.core.runs import FULL

    if isinstance(said, QueryError):
        return {"refused": str(said)}
    whole = answer_to_json(said)
    if run.name == FULL:
        return whole
    found = [{"id": item["id"], "found_by": item["found_by"]} for item in whole["evidence"]]
    return {"evidence": found, "abstained": said.abstained, "confidence": said.confidence}
