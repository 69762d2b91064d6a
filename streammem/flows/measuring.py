"""Measure a memory on the questions of a data set: as it is set, with things left out, with other budgets, its floor.

All start from an `Examiner`, which asks every question under a run; flat baselines rank the same messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Many

import msgspec
import numpy as np

from streammem.core import ablations, abstention, baselines, runs, scoring
from streammem.core.ablations import Ablation, Answered
from streammem.core.abstention import Calibration
from streammem.core.baselines import Corpus
from streammem.core.budgets import Point
from streammem.core.numbers import Retrieval
from streammem.core.runs import UNLIMITED, Run
from streammem.core.scoring import OURS, Outcome, Question, Report
from streammem.errors import QueryError
from streammem.ports import Embedder, Vectors
from streammem.records import Answer, Query

Ask = Callable[[Query, Retrieval], Awaitable[Answer]]
"""Answers a query with the numbers given. Raises QueryError for one that it refuses."""
Told = Callable[[Run, Question, Query, Answer | QueryError], None]
"""Hears what was said to each question of a run, in order."""
Embed = Callable[[Many[str]], Vectors]
Progress = Callable[[str, int], None]
"""Told, by stage (`ask` and the name of the run; `baselines`), how many more questions are done."""


class Remembering:
    """An embedder that encodes no text twice: the same questions are asked again and again."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    def encode(self, texts: Many[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._embedder.encode(new), strict=True) if new else ())
        return np.array([self._known[text] for text in texts], dtype=np.float32).reshape(len(texts), self.dimensions)

    def count_tokens(self, texts: Many[str]) -> list[int]:
        return self._embedder.count_tokens(texts)


class Asked(msgspec.Struct, frozen=True):
    """What a run gave: an outcome for each question, in order, and the milliseconds that it took."""

    outcomes: tuple[Outcome, ...]
    milliseconds: tuple[float, ...]


class Examiner:
    """Asks all questions, one after the other. What was asked under the same terms is not asked again.

    With a corpus, results that a question's own filters rule out are counted, and baselines can be measured.
    """

    def __init__(
        self,
        questions: Many[Question],
        ask: Ask,
        corpus: Corpus | None = None,
        *,
        told: Told | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.questions, self.corpus, self.progress = questions, corpus, progress
        self._ask, self._told = ask, told
        self._asked: dict[object, Asked] = {}

    async def put(self, run: Run) -> Asked:
        """Ask every question under a run."""
        if run.terms not in self._asked:
            answered = [await self._answered(question, run) for question in self.questions]
            self._asked[run.terms] = Asked(tuple(o for o, _ in answered), tuple(ms for _, ms in answered))
        return self._asked[run.terms]

    async def _answered(self, question: Question, run: Run) -> tuple[Outcome, float]:
        """The outcome of one question and its milliseconds. A refused question counts as one with no results."""
        query = sized(question.asked, run)
        start = time.perf_counter()
        said: Answer | QueryError
        try:
            said = await self._ask(query, run.numbers)
        except QueryError as error:
            said = error
        elapsed = 1000 * (time.perf_counter() - start)
        if self._told:
            self._told(run, question, query, said)
        if self.progress:
            self.progress(stage_of(run), 1)
        return self._outcome(query, said), elapsed

    def _outcome(self, query: Query, said: Answer | QueryError) -> Outcome:
        if isinstance(said, QueryError):
            return Outcome(refused=str(said))
        found = tuple(evidence.id for evidence in said.evidence)[: query.limit]
        ruled_out = baselines.beyond(self.corpus, query, found) if self.corpus is not None else 0
        return Outcome(found=found, abstained=said.abstained, confidence=said.confidence, beyond=ruled_out)


def stage_of(run: Run) -> str:
    """What Progress calls the asking of a run."""
    return f"ask {run.name}"


def sized(query: Query, run: Run) -> Query:
    """A question under the limit and the budget of a run, the memory's and the baselines' alike."""
    return msgspec.structs.replace(query, limit=run.limit, budget=run.budget)


# ------------------------------------------------------------------------------------------------- what is told


async def evaluate(examiner: Examiner, run: Run, embed: Embed, *, seed: int = 0) -> Report:
    """Score the answers of a run; with a corpus, the baselines too."""
    asked = await examiner.put(run)
    outcomes: dict[str, Many[Outcome]] = {OURS: asked.outcomes}
    if examiner.corpus is not None:
        queries = [sized(question.asked, run) for question in examiner.questions]
        outcomes |= await asyncio.to_thread(
            baseline_outcomes, queries, examiner.corpus, embed, run.limit, examiner.progress
        )
    rng = np.random.default_rng(seed)
    return scoring.report(examiner.questions, outcomes, run.limit, rng, asked.milliseconds)


async def ablate(examiner: Examiner, run: Run, *, seed: int = 0) -> Ablation:
    """Score the run with each stage, view and signal left out (EGCForest, Table 2 and Figure 3)."""
    full = await examiner.put(run)
    answered = [Answered(variant, (await examiner.put(variant.run)).outcomes) for variant in runs.variants(run)]
    return ablations.ablation(examiner.questions, run, full.outcomes, answered, np.random.default_rng(seed))


async def sweep(examiner: Examiner, run: Run, limits: Many[int], embed: Embed, *, seed: int = 0) -> list[Point]:
    """The report at each limit of messages, with a token budget in proportion to the run's (EGCForest, Figure 4)."""
    points = []
    for one in runs.budgets(run, limits):
        budget = one.budget if one.budget < UNLIMITED else None
        points.append(Point(one.limit, budget, await evaluate(examiner, one, embed, seed=seed)))
    return points


async def calibrate(examiner: Examiner, run: Run, false_alarm: float, *, seed: int = 0) -> Calibration:
    """The floor below which at most `false_alarm` of the questions with evidence abstain. Raises ValueError of none."""
    asked = await examiner.put(runs.without_floor(run))
    answerable, unanswerable = abstention.confidences(examiner.questions, asked.outcomes)
    return abstention.calibrate(answerable, unanswerable, false_alarm, np.random.default_rng(seed))


def baseline_outcomes(
    asked: Many[Query], corpus: Corpus, embed: Embed, limit: int, progress: Progress | None = None
) -> dict[str, list[Outcome]]:
    """What BM25, dense and their fusion find for each question, in the order of the questions."""
    vectors = embed([query.text for query in asked]) if asked else ()
    outcomes: dict[str, list[Outcome]] = {name: [] for name in baselines.NAMES}
    for query, vector in zip(asked, vectors, strict=True):
        ranked = baselines.rank(corpus, corpus.lexical, query, vector, limit)
        for name, found in ranked.items():
            ruled_out = baselines.beyond(corpus, query, found)
            outcomes[name].append(Outcome(found=found, abstained=not found, beyond=ruled_out))
        if progress:
            progress("baselines", 1)
    return outcomes
