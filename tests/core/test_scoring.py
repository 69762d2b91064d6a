"""Recall and its kin by hand, and the baselines against a double loop that follows the formulas word by word."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_rust_stemmers import SnowballStemmer

from streammem.core import baselines, scoring
from streammem.core.baselines import Corpus, Lexical
from streammem.core.directory import Directory
from streammem.core.scoring import Difference, Grade, Key, Outcome, Question
from streammem.records import ChannelEvent, MembershipEvent, Query, UserEvent, Version

DAY = 86_400_000_000


def key(*gold: tuple[str, ...], **more: object) -> Key:
    return msgspec.convert({"alternatives": gold, **more}, Key)


def question(number: int, *gold: tuple[str, ...], **more: object) -> Question:
    return Question(id=f"q{number}", asked=Query(text=f"question {number}"), key=key(*gold, **more))


def reported(
    questions: list[Question], k: int = 2, seed: int = 0, **systems: Iterable[tuple[str, ...]]
) -> scoring.Report:
    outcomes = {name: [Outcome(found=f, abstained=not f) for f in found] for name, found in systems.items()}
    return scoring.report(questions, outcomes, k, np.random.default_rng(seed), [1.0, 2.0, 3.0])


# ------------------------------------------------------------------------------------------------- by hand


def test_recall_is_the_share_of_gold_that_was_found() -> None:
    assert scoring.grade(["a", "x"], key(("a", "b"))) == Grade(1, 2)
    assert scoring.grade([], key(("a",))) == Grade(0, 1)


def test_a_result_given_twice_counts_once() -> None:
    assert scoring.grade(["a", "a"], key(("a", "b"))) == Grade(1, 2)


def test_the_best_alternative_counts() -> None:
    assert scoring.grade(["c", "x"], key(("a", "b"), ("c",))) == Grade(1, 1)


def test_of_alternatives_that_are_met_alike_the_one_with_more_hits_counts() -> None:
    assert scoring.grade(["a", "b", "c"], key(("c",), ("a", "b"))) == Grade(2, 2)


def test_a_question_without_gold_has_no_grade() -> None:
    assert scoring.grade(["a"], key()) is None
    assert scoring.grade(["a"], key(())) is None


def test_macro_is_the_mean_over_questions_and_micro_counts_all_gold_together() -> None:
    found = scoring.score([Grade(1, 1), Grade(1, 4)], k=5)
    assert found is not None
    assert found.recall_macro == pytest.approx((1 + 1 / 4) / 2)
    assert found.recall_micro == pytest.approx(2 / 5)
    assert found.complete == 0.5


def test_precision_counts_k_results_for_everyone() -> None:
    found = scoring.score([Grade(1, 1), Grade(2, 2)], k=10)
    assert found is not None
    assert found.precision == pytest.approx(3 / 20)


def test_no_grades_make_no_score() -> None:
    assert scoring.score([], 20) is None


def test_questions_without_gold_stay_out_of_recall_and_are_counted() -> None:
    report = reported([question(1, ("a",)), question(2)], streammem=[("a",), ()])
    assert (report.questions, report.with_evidence) == (2, 1)
    assert report.systems[0].overall == scoring.Score(1, 1.0, 1.0, 0.5, 1.0)


def test_abstaining_is_right_without_gold_and_wrong_with_it() -> None:
    questions = [question(1, category="none"), question(2, category="none"), question(3, ("a",))]
    (ours,) = reported(questions, streammem=[(), ("x",), ()]).systems
    assert ours.abstained == {"none": scoring.Share(2, 0.5)}
    assert ours.abstained_wrongly == scoring.Share(1, 1.0)


def test_forbidden_is_counted_over_the_questions_that_forbid_something() -> None:
    questions = [question(1, ("a",), forbidden=("z",)), question(2, forbidden=("z",)), question(3, ("a",))]
    (ours,) = reported(questions, streammem=[("a", "z"), ("a",), ("z",)]).systems
    assert ours.forbidden == scoring.Share(2, 0.5)


def test_scores_come_by_category_and_by_age() -> None:
    questions = [question(1, ("a",), category="x", age_hours=24), question(2, ("a",), category="y", age_hours=23.9)]
    (ours,) = reported(questions, streammem=[("a",), ()]).systems
    assert {name: s.recall_macro for name, s in ours.by_category.items()} == {"x": 1.0, "y": 0.0}
    assert {name: s.recall_macro for name, s in ours.by_age.items()} == {scoring.OLD: 1.0, scoring.YOUNG: 0.0}


def test_differences_name_the_best_baseline_for_each_age() -> None:
    questions = [question(i, ("a",), age_hours=age) for i, age in enumerate((1, 48, 48))]
    report = reported(questions, streammem=[("a",)] * 3, bm25=[("a",), (), ()], dense=[(), ("a",), ("a",)])
    best = {d.over: d.against for d in report.differences if d.is_best}
    assert best == {scoring.ALL: "dense", scoring.OLD: "dense", scoring.YOUNG: "bm25"}
    (against,) = [d for d in report.differences if d.over == scoring.ALL and d.against == "bm25"]
    assert against.mean == pytest.approx(2 / 3)
    assert against.low <= against.mean <= against.high


def test_outcomes_must_match_the_questions() -> None:
    with pytest.raises(ValueError):
        reported([question(1, ("a",))], streammem=[])


def test_a_report_goes_to_json_and_back() -> None:
    report = reported([question(1, ("a",), category="x", age_hours=30)], streammem=[("a",)], bm25=[("b",)])
    assert msgspec.json.decode(msgspec.json.encode(report), type=scoring.Report) == report


def test_tables_are_as_wide_as_their_columns_and_in_percent() -> None:
    questions = [question(1, ("a",), category="x", forbidden=("z",), age_hours=30), question(2, category="none")]
    tables = scoring.tables(reported(questions, streammem=[("a",), ()], bm25=[(), ("z",)]))
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert tables[0].rows[0] == ("streammem", "1", "100.0", "100.0", "50.0", "100.0", "0.0")
    assert len(tables) == 5


def test_an_empty_data_set_makes_an_empty_report() -> None:
    report = scoring.report([], {"streammem": [], "bm25": []}, 20, np.random.default_rng(0))
    assert (report.questions, report.differences, report.ask_ms) == (0, (), None)
    assert scoring.tables(report) == []


# --------------------------------------------------------------------------------------------- the interval


def test_the_interval_is_the_same_for_the_same_seed() -> None:
    paired = np.random.default_rng(5).normal(0.1, 0.4, 200)
    first, again, other = (scoring.interval(paired, np.random.default_rng(seed), 300) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_interval_of_equal_systems_is_nothing() -> None:
    assert scoring.interval(np.zeros(30), np.random.default_rng(0)) == (0.0, 0.0)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    spans = [scoring.interval(rng.normal(0.2, 1.0, 60), rng, 200) for _ in range(200)]
    covered = sum(low <= 0.2 <= high for low, high in spans)
    assert 178 <= covered <= 199


def test_the_interval_is_as_wide_as_theory_says() -> None:
    paired = np.random.default_rng(3).normal(0.0, 1.0, 400)
    low, high = scoring.interval(paired, np.random.default_rng(4))
    assert high - low == pytest.approx(2 * 1.96 * paired.std() / 20, rel=0.1)


def test_the_interval_is_paired() -> None:
    """Two systems that fail together differ by little, however hard the questions are."""
    golds = [("a",)] * 100
    hard = [("a",) if i % 2 else () for i in range(100)]
    better = [("a",) if i % 2 or i == 0 else () for i in range(100)]
    report = reported([question(i, g) for i, g in enumerate(golds)], streammem=better, bm25=hard)
    (found,) = report.differences
    assert isinstance(found, Difference)
    assert (found.low, found.high) == (0.0, pytest.approx(0.03, abs=0.011))


# -------------------------------------------------------------------------------------------- the baselines

WORDS = ("apple", "bread", "corn", "date", "egg")
PEOPLE = ("u1", "u2")
FACTS = [
    ChannelEvent(workspace="w", id="open", type="public"),
    ChannelEvent(workspace="w", id="closed", type="private"),
    ChannelEvent(workspace="v", id="open", type="public"),
    MembershipEvent(workspace="w", channel="closed", user="u1"),
    UserEvent(workspace="w", id="u1", name="Ann Lee", title="Baker"),
]
DIRECTORIES = {w: Directory(f for f in FACTS if f.workspace == w) for w in ("w", "v")}
READERS = {("w", "open"): {"u1", "u2", None}, ("w", "closed"): {"u1"}, ("v", "open"): {"u1", "u2", None}}


def version(row: int, place: tuple[str, str], ts: int, text: str, user: str = "u2") -> Version:
    workspace, channel = place
    uid = f"{workspace}/{channel}/m{row}"
    return Version(uid, "0", False, "", workspace, channel, f"m{row}", ts, ts, user, text)  # noqa: FBT003


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
places = st.sampled_from(sorted(READERS))
small = st.integers(-3, 3)
vectors = st.tuples(small, small, small)
messages = st.lists(st.tuples(places, st.integers(0, 9), texts, vectors), min_size=1, max_size=25)
queries = st.builds(
    Query,
    text=texts,
    workspace=st.sampled_from(["w", "v"]),
    asker=st.sampled_from([*PEOPLE, None]),
    everything=st.booleans(),
    as_of=st.none() | st.integers(0, 9),
    channels=st.sampled_from([(), ("open",), ("closed",)]),
    exclude=st.lists(st.sampled_from(["m0", "m1", "m2"]), unique=True).map(tuple),
)


def corpus_from(rows: list[tuple[tuple[str, str], int, str, tuple[int, ...]]]) -> Corpus:
    versions = [version(i, place, ts, text) for i, (place, ts, text, _) in enumerate(rows)]
    return baselines.corpus_of(versions, np.array([v for *_, v in rows], np.float32), DIRECTORIES, [10] * len(rows))


def may_find(rows: list[tuple[tuple[str, str], int, str, tuple[int, ...]]], query: Query) -> list[int]:
    """The filters, said once more without numpy or Directory."""
    return [
        row
        for row, (place, ts, _, _) in enumerate(rows)
        if place[0] == query.workspace
        and (not query.channels or place[1] in query.channels)
        and (query.everything or query.asker in READERS[place])
        and (query.as_of is None or ts <= query.as_of)
        and f"m{row}" not in query.exclude
    ]


def naive_bm25(documents: tuple[str, ...], text: str, allowed: list[int]) -> list[tuple[float, int]]:
    split = [document.split() for document in documents]
    mean = sum(map(len, split)) / len(split)
    scored = []
    for row in allowed:
        total = 0.0
        for word in dict.fromkeys(text.split()):
            tf = split[row].count(word)
            df = sum(word in split[other] for other in allowed)
            if tf:
                norm = 1.2 * (1 - 0.75 + 0.75 * len(split[row]) / mean)
                total += math.log(1 + (len(allowed) - df + 0.5) / (df + 0.5)) * (tf * (1.2 + 1) / (tf + norm))
        if total > 0:
            scored.append((-total, row))
    return sorted(scored)


@settings(deadline=None)
@given(messages, queries, vectors, st.integers(1, 8))
def test_the_baselines_are_what_a_double_loop_makes(rows, query, vector, k) -> None:
    corpus = corpus_from(rows)
    found = baselines.rank(corpus, Lexical(corpus.texts, str.split), query, np.array(vector, np.float32), k)

    allowed = may_find(rows, query)
    by_words = [row for _, row in naive_bm25(corpus.texts, query.text, allowed)]
    by_meaning = sorted(allowed, key=lambda row: (-sum(a * b for a, b in zip(rows[row][3], vector, strict=True)), row))
    fused: dict[int, float] = {}
    for ranking in (by_words, by_meaning):
        for rank, row in enumerate(ranking, 1):
            fused[row] = fused.get(row, 0.0) + 1 / (60 + rank)
    expected = {"bm25": by_words, "dense": by_meaning, "rrf": sorted(fused, key=lambda row: (-fused[row], row))}
    assert found == {name: tuple(f"m{row}" for row in ranking[:k]) for name, ranking in expected.items()}


@settings(deadline=None)
@given(messages, queries)
def test_what_a_question_may_find_is_what_its_filters_say(rows, query) -> None:
    seen = baselines.visible(corpus_from(rows), query)
    assert np.flatnonzero(seen).tolist() == may_find(rows, query)


@settings(deadline=None)
@given(messages, queries, vectors)
def test_no_baseline_goes_beyond_the_filters(rows, query, vector) -> None:
    corpus = corpus_from(rows)
    found = baselines.rank(corpus, Lexical(corpus.texts), query, np.array(vector, np.float32), 20)
    assert all(baselines.beyond(corpus, query, ids) == 0 for ids in found.values())


@settings(deadline=None)
@given(messages, queries)
def test_a_planted_ranker_that_ignores_visibility_is_caught(rows, query) -> None:
    everything = [f"m{row}" for row in range(len(rows))]
    hidden = len(rows) - len(may_find(rows, query))
    assert baselines.beyond(corpus_from(rows), query, everything) == hidden


def test_a_result_that_is_no_message_is_beyond_the_filters() -> None:
    corpus = corpus_from([(("w", "open"), 0, "apple", (1, 0, 0))])
    assert baselines.beyond(corpus, Query(text="apple", workspace="w"), ["m0", "invented"]) == 1


def test_hidden_messages_move_no_score() -> None:
    shown = [(("w", "open"), 0, "apple bread", (1, 0, 0)), (("w", "open"), 0, "corn egg", (1, 0, 0))]
    hidden = [(("w", "closed"), 0, "apple date", (1, 0, 0))] * 30
    query = Query(text="apple", workspace="w", asker="u2")
    alone, beside = corpus_from(shown), corpus_from(shown + hidden)
    scores = [Lexical(c.texts, str.split).scores("apple", baselines.visible(c, query))[:2] for c in (alone, beside)]
    assert scores[0].tolist() == scores[1].tolist()


def test_the_text_is_preceded_by_speaker_title_channel_and_date() -> None:
    said = version(0, ("w", "open"), 19_800 * DAY, "hello", user="u1")
    assert baselines.described(said, DIRECTORIES["w"]) == "Ann Lee Baker #open 2024-03-18 18 18 March Mar: hello"


def test_a_question_in_the_first_person_is_about_its_asker_as_well() -> None:
    directory = DIRECTORIES["w"]
    assert baselines.worded(Query(text="What did I bake?", asker="u1"), directory) == "What did I bake? Ann Lee Baker"
    assert baselines.worded(Query(text="What does my team bake?", asker="u1"), directory) == "What does my team bake?"
    assert baselines.worded(Query(text="What did I bake?"), directory) == "What did I bake?"


def test_words_are_stems_without_stop_words() -> None:
    assert baselines.words("Who's been baking the DOC-042 cakes?") == ["bake", "doc", "042", "cake"]
    assert SnowballStemmer("english").stem_word("baking") == "bake"


def test_a_message_that_does_not_fit_the_budget_is_passed_over() -> None:
    tokens = np.array([50, 200, 30, 40])
    assert baselines.fitting([0, 1, 2, 3], tokens, 3, 125) == [0, 2, 3]
    assert baselines.fitting([0, 1, 2, 3], tokens, 2, None) == [0, 1]
    assert baselines.fitting([1, 0], tokens, 3, 60) == [0]
