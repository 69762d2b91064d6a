"""The runs of a measurement: what is asked, how often, and what comes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from streammem import open_memory
from streammem.core import runs
from streammem.core.abstention import NEVER_STATED
from streammem.core.numbers import Retrieval
from streammem.core.runs import FULL, UNLIMITED, Run
from streammem.core.scoring import Question, Share
from streammem.errors import QueryError
from streammem.flows.evaluate import Dataset, corpus_of, dataset_of, load_questions
from streammem.flows.measuring import Examiner, Remembering, ablate, calibrate, evaluate, stage_of, sweep
from streammem.ports import Vectors
from streammem.records import Answer, Query
from tests.embedding import HashingEmbedder
from tests.flows.datasets import EVENTS, answering, put

RUN = Run(FULL, Retrieval(), 20, 3000)


@pytest.fixture
def dataset() -> Dataset:
    return dataset_of(EVENTS)


@pytest.fixture
def questions(tmp_path: Path, dataset: Dataset) -> list[Question]:
    rows = [
        {"question": "launch June", "evidence": ["m1"], "category": "x"},
        {"question": "launch July", "evidence": ["m4", "m3"], "category": "y"},
        {"question": "zebra", "category": "none"},
    ]
    return load_questions(put(tmp_path, *rows), dataset)


class Staged:
    """A memory whose stages each find one message more, and that remembers what it was asked."""

    FOUND = ("m1", "m4", "m3")

    def __init__(self) -> None:
        self.asked: list[tuple[str, Retrieval, int | None, int | None]] = []

    async def __call__(self, query: Query, numbers: Retrieval) -> Answer:
        self.asked.append((query.text, numbers, query.limit, query.budget))
        return answering(query, self.FOUND[: numbers.stages])


async def test_each_variant_is_asked_once_with_its_own_numbers(questions) -> None:
    ask = Staged()
    examiner = Examiner(questions, ask)
    await evaluate(examiner, RUN, HashingEmbedder().encode)
    await ablate(examiner, RUN)
    variants = [variant.run.numbers for variant in runs.variants(RUN)]
    assert Counter(numbers for _, numbers, *_ in ask.asked) == Counter(dict.fromkeys((RUN.numbers, *variants), 3))


async def test_an_ablation_shows_what_each_stage_adds(questions) -> None:
    found = await ablate(Examiner(questions, Staged()), RUN)
    names, (first, second, third, full) = zip(*found.of("stages"), strict=True)
    assert names == ("S1", "+ S2", "+ S3", "+ S4 (full)")
    recalls = [row.figures.overall.recall_macro for row in (first, second, third, full) if row.figures.overall]
    assert recalls == [0.5, 0.75, 1.0, 1.0]
    assert [round(row.step.mean, 6) for row in (second, third, full) if row.step] == [0.25, 0.25, 0.0]
    assert first.figures.by_category["y"].recall_macro == 0.0


async def test_a_sweep_gives_everyone_the_same_room(questions, dataset) -> None:
    ask = Staged()
    corpus = await corpus_of(dataset, None, HashingEmbedder())
    found = await sweep(Examiner(questions, ask, corpus), RUN, (1, 2), HashingEmbedder().encode)
    assert {(limit, budget) for *_, limit, budget in ask.asked} == {(1, 150), (2, 300)}
    assert [(point.limit, point.budget, point.report.k) for point in found] == [(1, 150, 1), (2, 300, 2)]
    assert [system.name for system in found[0].report.systems] == ["streammem", "bm25", "dense", "rrf"]
    first, second = (point.report.systems[0].overall for point in found)
    assert first is not None
    assert second is not None
    assert (first.recall_macro, second.recall_macro) == (0.5, 0.75)


async def test_a_sweep_without_a_budget_says_so(questions) -> None:
    run = Run(FULL, Retrieval(), 20, UNLIMITED)
    (point,) = await sweep(Examiner(questions, Staged()), run, (2,), HashingEmbedder().encode)
    assert point.budget is None


async def test_a_sweep_does_not_ask_the_full_run_again(questions) -> None:
    ask = Staged()
    examiner = Examiner(questions, ask)
    await evaluate(examiner, RUN, HashingEmbedder().encode)
    await sweep(examiner, RUN, (20,), HashingEmbedder().encode)
    assert len(ask.asked) == 3


async def test_a_floor_is_found_by_confidences_without_one(questions) -> None:
    async def sure(query: Query, numbers: Retrieval) -> Answer:
        assert numbers.floor == 0.0
        answer = answering(query, ["m1"])
        return msgspec.structs.replace(answer, confidence=0.2 if query.text == "zebra" else 0.6)

    found = await calibrate(Examiner(questions, sure), Run(FULL, replace(Retrieval(), floor=0.9), 20, 3000), 0.05)
    assert (found.floor, found.telling) == (0.6, True)
    assert found.measured.abstained == {NEVER_STATED: Share(1, 1.0)}


async def test_a_memory_answers_with_the_numbers_that_it_is_given(tmp_path) -> None:
    async with open_memory(tmp_path / "memory", embedder=lambda _: HashingEmbedder()) as memory:
        await memory.append(EVENTS)
        counter = memory.examined(Remembering(memory.embedder))
        query = Query(text="when is the launch?", workspace="w", asker="u1")
        shares = [(await counter.ask(query, numbers)).abstained for numbers in (None, Retrieval(floor=5.0))]
        assert shares == [False, True]
        assert not (await memory.ask(query)).abstained


async def test_every_answer_and_every_refusal_is_told_of(questions) -> None:
    async def half(query: Query, numbers: Retrieval) -> Answer:
        if query.text == "zebra":
            raise QueryError("no such user")
        return answering(query, ["m1"])

    told = []
    examiner = Examiner(questions, half, told=lambda run, q, query, said: told.append((run.name, q.id, query, said)))
    asked = await examiner.put(RUN)
    assert [(name, question, query.limit) for name, question, query, _ in told] == [
        ("full", f"q{i}", 20) for i in range(3)
    ]
    assert isinstance(told[2][3], QueryError)
    assert asked.outcomes[2].refused == "no such user"
    assert len(asked.milliseconds) == 3


async def test_progress_names_the_run(questions) -> None:
    told = []
    examiner = Examiner(questions, Staged(), progress=lambda stage, n: told.append((stage, n)))
    await ablate(examiner, RUN)
    stages = ["ask full", *(stage_of(variant.run) for variant in runs.variants(RUN))]
    assert told == [(stage, 1) for stage in stages for _ in questions]


def test_a_text_is_embedded_once() -> None:
    class Counting(HashingEmbedder):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def encode(self, texts: list[str]) -> Vectors:
            self.texts += texts
            return super().encode(texts)

    inner = Counting()
    embedder = Remembering(inner)
    first = embedder.encode(["a", "b", "a"])
    again = embedder.encode(["b", "c"])
    assert inner.texts == ["a", "b", "c"]
    assert first.tolist() == HashingEmbedder().encode(["a", "b", "a"]).tolist()
    assert again.tolist() == HashingEmbedder().encode(["b", "c"]).tolist()
    assert embedder.encode([]).shape == (0, HashingEmbedder.dimensions)
    assert (embedder.name, embedder.count_tokens(["a b"])) == ("hashing", [2])
