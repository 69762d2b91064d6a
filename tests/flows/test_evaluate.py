"""An evaluation from files to report: what is asked, what stays with the scorer, and who sees what."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streammem.core import scoring
from streammem.core.events import micros
from streammem.core.numbers import Retrieval
from streammem.core.runs import FULL, Run
from streammem.core.scoring import OURS
from streammem.errors import QueryError, SourceError
from streammem.flows import measuring
from streammem.flows.evaluate import Dataset, corpus_of, dataset_of, load_questions
from streammem.flows.measuring import Examiner, evaluate
from streammem.ports import Vectors
from streammem.records import Answer, ChannelRef, MessageEvent, Query, UserEvent
from tests.embedding import HashingEmbedder
from tests.flows.datasets import EVENTS, START, Asked, put, said

SCORING = {
    "answer": "KEY-answer",
    "evidence": ["m1"],
    "evidence_any": [["m1"], ["KEY-alternative"]],
    "forbidden": ["KEY-forbidden"],
    "include": ["KEY-include"],
    "category": "KEY-category",
    "sub": "KEY-sub",
    "derive": [{"msg": "KEY-derive"}],
    "absent": {"a": ["KEY-absent"]},
    "truth": "KEY-truth",
    "channel_hint": "KEY-hint",
    "age_hours": 4321.25,
}


class Index:
    """The one verb of a VectorIndex that an evaluation uses."""

    def __init__(self, dimensions: int, known: Iterable[str]) -> None:
        self.vector = np.eye(1, dimensions, dtype=np.float32)[0]
        self.known = set(known)

    async def vectors(self, keys: list[str]) -> list[Vectors | None]:
        return [self.vector if key in self.known else None for key in keys]


@pytest.fixture
def dataset() -> Dataset:
    return dataset_of(EVENTS)


async def measured(folder: Path, dataset: Dataset, ask: measuring.Ask, limit: int = 2) -> scoring.Report:
    examiner = Examiner(load_questions(folder, dataset), ask, await corpus_of(dataset, None, HashingEmbedder()))
    return await evaluate(examiner, Run(FULL, Retrieval(), limit, 3000), HashingEmbedder().encode)


# ------------------------------------------------------------------------------------------ what is asked


@pytest.mark.parametrize("packed", [False, True])
def test_a_question_splits_into_what_is_asked_and_what_scores(tmp_path, dataset, packed) -> None:
    put(tmp_path, {"question": "when is the launch?", "asker": "u1", **SCORING}, packed=packed)
    (question,) = load_questions(tmp_path, dataset)
    assert question.asked == Query(text="when is the launch?", workspace="w", asker="u1")
    assert question.key.alternatives == (("m1",), ("KEY-alternative",))
    assert (question.key.forbidden, question.key.age_hours) == (("KEY-forbidden",), 4321.25)


async def test_nothing_that_scores_ever_reaches_the_memory(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "when is the launch?", "asker": "u1", **SCORING})
    ask = Asked("m1")
    await measured(tmp_path, dataset, ask)
    encoded = msgspec.json.encode(ask.queries)
    assert b"KEY" not in encoded
    assert b"4321" not in encoded
    assert b"m1" not in encoded
    assert ask.queries == [Query(text="when is the launch?", workspace="w", asker="u1", limit=2, budget=3000)]


def test_before_leaves_out_the_moment_itself(tmp_path, dataset) -> None:
    moment = "2024-03-01T04:00:00"
    put(tmp_path, {"question": "?", "as_of": moment, "before": True}, {"question": "?", "as_of": moment + "Z"})
    before, upto = load_questions(tmp_path, dataset)
    at = micros(START + timedelta(hours=4))
    assert (before.asked.as_of, upto.asked.as_of) == (at - 1, at)


def test_an_as_of_that_is_a_message_is_that_messages_time(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "?", "as_of": "m3"})
    assert load_questions(tmp_path, dataset)[0].asked.as_of == micros(START + timedelta(hours=3))


def test_an_as_of_that_is_nothing_known_names_its_line(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "?"}, {"question": "?", "as_of": "m99"})
    with pytest.raises(SourceError, match=r"questions\.jsonl#2: as_of 'm99'"):
        load_questions(tmp_path, dataset)


@pytest.mark.parametrize(
    ("stated", "asker"),
    [
        ({"asker": "u2"}, "u2"),
        ({"asker": "Bob"}, "u2"),
        ({"asker": "bob", "asker_id": "u1"}, "u1"),
        ({"asker": "nobody here"}, None),
        ({}, None),
    ],
)
def test_an_asker_is_known_by_id_or_by_name(tmp_path, dataset, stated, asker) -> None:
    put(tmp_path, {"question": "?", **stated})
    assert load_questions(tmp_path, dataset)[0].asked.asker == asker


def test_a_name_that_several_bear_is_nobody(tmp_path) -> None:
    put(tmp_path, {"question": "?", "asker": "Bob"})
    dataset = dataset_of([*EVENTS, UserEvent(workspace="w", id="u3", name="Bob")])
    assert load_questions(tmp_path, dataset)[0].asked.asker is None


def test_merged_workspaces_are_asked_as_one(tmp_path) -> None:
    merged = dataset_of([said(1, "hello", channel="w", workspace="*"), said(2, "you", channel="v", workspace="*")])
    put(tmp_path, {"question": "?", "ws": "v", "as_of": "m2"})
    (question,) = load_questions(tmp_path, merged)
    assert (question.asked.workspace, question.asked.as_of) == ("*", micros(START + timedelta(hours=2)))


def test_a_workspace_of_which_nothing_is_known_is_refused(tmp_path) -> None:
    dataset = dataset_of([said(1, "a"), said(1, "b", workspace="v")])
    put(tmp_path, {"question": "?", "ws": "x"})
    with pytest.raises(SourceError, match="workspace 'x'"):
        load_questions(tmp_path, dataset)


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"id": 7, "question": "?"}', b"\xff"])
def test_a_line_that_cannot_be_read_is_named(tmp_path, dataset, line) -> None:
    (tmp_path / "questions.jsonl").write_bytes(b'{"id": "q", "question": "?", "ws": "w"}\n\n' + line + b"\n")
    with pytest.raises(SourceError, match=r"questions\.jsonl#3"):
        load_questions(tmp_path, dataset)


def test_a_folder_without_questions_says_so(tmp_path, dataset) -> None:
    with pytest.raises(SourceError, match=r"no questions\.jsonl"):
        load_questions(tmp_path, dataset)


def test_a_file_without_a_question_says_so(tmp_path, dataset) -> None:
    (tmp_path / "questions.jsonl").write_bytes(b"\n\n")
    with pytest.raises(SourceError, match="no question in"):
        load_questions(tmp_path, dataset)


def test_a_packed_file_that_breaks_off_says_so(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "?"}, packed=True)
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(SourceError, match=r"questions\.jsonl\.gz"):
        load_questions(tmp_path, dataset)


# ---------------------------------------------------------------------------------------- the same messages


def test_the_corpus_holds_what_the_memory_can_find(dataset) -> None:
    more = [
        said(1, "the launch moves to May", version="2"),
        MessageEvent(workspace="w", channel=ChannelRef(id="open"), id="m3", version="9", op="delete"),
        said(5, "   "),
        msgspec.structs.replace(said(6, "Ann joined"), kind="system"),
    ]
    for events in ([*EVENTS, *more], [*reversed(more), *reversed(EVENTS)]):
        spoken = {v.id: v.text for _, v in dataset_of(events).spoken}
        assert spoken == {
            "m1": "the launch moves to May",
            "m2": "the launch budget is secret: 40k",
            "m4": "the launch moves to July",
        }


async def test_the_baselines_take_the_vectors_that_the_memory_has(dataset) -> None:
    embedder = HashingEmbedder()
    keys = [version.key for _, version in dataset.spoken]
    corpus = await corpus_of(dataset, Index(embedder.dimensions, keys[:2]), embedder)
    made = embedder.encode(["Bob: lunch is at noon", "Ann Lee: the launch moves to July"])
    assert corpus.vectors[:2].tolist() == [np.eye(1, embedder.dimensions)[0].tolist()] * 2
    assert corpus.vectors[2:].tolist() == made.tolist()


async def test_a_data_set_without_messages_has_an_empty_corpus() -> None:
    corpus = await corpus_of(dataset_of([]), None, HashingEmbedder())
    assert corpus.vectors.shape == (0, HashingEmbedder.dimensions)


# ------------------------------------------------------------------------------------------- the same filters


async def test_memory_and_baselines_are_held_to_the_same_filters(tmp_path, dataset) -> None:
    put(
        tmp_path,
        {"question": "launch budget secret", "asker": "u1", "evidence": ["m2"]},
        {"question": "launch budget secret", "asker": "u2", "forbidden": ["m2"]},
        {"question": "launch July", "asker": "u2", "evidence": ["m1"], "as_of": "m3"},
        {"question": "launch June", "asker": "u2", "evidence": ["m4"], "exclude": ["m1"]},
    )
    questions = load_questions(tmp_path, dataset)
    corpus = await corpus_of(dataset, None, HashingEmbedder())
    outcomes = measuring.baseline_outcomes([q.asked for q in questions], corpus, HashingEmbedder().encode, 20)
    assert [set(o.found) for o in outcomes["dense"]] == [
        {"m1", "m2", "m3", "m4"},
        {"m1", "m3", "m4"},
        {"m1", "m3"},
        {"m3", "m4"},
    ]
    assert all(o.beyond == 0 for found in outcomes.values() for o in found)


@pytest.mark.parametrize(
    ("row", "ids"),
    [
        ({"asker": "u2"}, ("m2",)),
        ({}, ("m2",)),
        ({"asker": "u1", "as_of": "m1"}, ("m2", "m4")),
        ({"asker": "u1", "exclude": ["m1"]}, ("m1",)),
    ],
)
async def test_a_planted_ranker_that_ignores_the_filters_is_caught(tmp_path, dataset, row, ids) -> None:
    put(tmp_path, {"question": "launch", "evidence": ["m1"], **row})
    ours, *others = (await measured(tmp_path, dataset, Asked(*ids))).systems
    assert (ours.name, ours.beyond) == (OURS, len(ids))
    assert [s.beyond for s in others] == [0, 0, 0]


# ------------------------------------------------------------------------------------------------ the report


async def test_a_report_compares_the_memory_with_all_baselines(tmp_path, dataset) -> None:
    put(
        tmp_path,
        {"question": "launch July", "evidence": ["m4"], "category": "x"},
        {"question": "zebra?", "category": "none"},
    )
    report = await measured(tmp_path, dataset, Asked("m4", "m1"))
    assert [s.name for s in report.systems] == [OURS, "bm25", "dense", "rrf"]
    assert (report.k, report.questions, report.with_evidence) == (2, 2, 1)
    ours, bm25, *_ = report.systems
    assert ours.overall == bm25.overall == scoring.Score(1, 1.0, 1.0, 0.5, 1.0)
    assert (ours.abstained["none"].share, bm25.abstained["none"].share) == (0.0, 1.0)
    assert report.ask_ms is not None
    assert 0 <= report.ask_ms.p50 <= report.ask_ms.p95


async def test_without_a_corpus_there_are_no_baselines(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "launch", "evidence": ["m4"]})
    examiner = Examiner(load_questions(tmp_path, dataset), Asked("m4"))
    report = await evaluate(examiner, Run(FULL, Retrieval(), 2, 3000), HashingEmbedder().encode)
    assert [s.name for s in report.systems] == [OURS]
    assert report.differences == ()


async def test_a_question_that_the_memory_refuses_counts_as_one_with_no_results(tmp_path, dataset) -> None:
    async def refusing(query: Query, numbers: Retrieval) -> Answer:
        raise QueryError("no such user")

    put(tmp_path, {"question": "launch", "evidence": ["m4"]})
    ours = (await measured(tmp_path, dataset, refusing)).systems[0]
    assert ours.refused == {"no such user": 1}
    assert ours.overall is not None
    assert ours.overall.recall_macro == 0.0


async def test_no_more_than_k_results_count(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "launch", "evidence": ["m4"]})
    ours = (await measured(tmp_path, dataset, Asked("m1", "m3", "m4"), limit=2)).systems[0]
    assert ours.overall is not None
    assert ours.overall.recall_macro == 0.0


async def test_two_evaluations_report_the_same(tmp_path, dataset) -> None:
    rows = [{"question": f"launch {word}", "evidence": [f"m{i}"]} for i, word in enumerate(("June", "July", "noon"), 1)]
    put(tmp_path, *rows)
    reports = [await measured(tmp_path, dataset, Asked("m1")) for _ in range(2)]
    assert reports[0].systems == reports[1].systems
    assert reports[0].differences == reports[1].differences


async def test_progress_is_told_for_both_stages(tmp_path, dataset) -> None:
    put(tmp_path, {"question": "a"}, {"question": "b"})
    told: list[tuple[str, int]] = []
    corpus = await corpus_of(dataset, None, HashingEmbedder())
    questions = load_questions(tmp_path, dataset)
    examiner = Examiner(questions, Asked(), corpus, progress=lambda stage, n: told.append((stage, n)))
    await evaluate(examiner, Run(FULL, Retrieval(), 20, 3000), HashingEmbedder().encode)
    assert told == [("ask full", 1)] * 2 + [("baselines", 1)] * 2
