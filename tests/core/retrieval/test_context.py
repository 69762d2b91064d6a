"""What pulls a message up for where it stands, and how strongly."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.retrieval import context
from streammem.core.retrieval.context import Member, Pull
from streammem.records import Leaf
from tests.core.retrieval.pools import member, pool, pools, version

NUMBERS = Retrieval()


def pulled(*members: Member) -> dict[tuple[str, str, str], float]:
    return {(p.uid, p.anchor, p.along): p.weight for p in context.pulls(pool(*members), NUMBERS)}


def uttered(*members: Member) -> set[tuple[str, str]]:
    return {(p.uid, p.anchor) for p in context.utterances(pool(*members), NUMBERS)}


# ----------------------------------------------------------------------------------------------------- utterances


def test_what_one_author_says_at_once_is_one_utterance_both_ways() -> None:
    both = context.utterances(pool(member("a", 1, 0), member("b", 2, 1)), NUMBERS)
    assert {(p.uid, p.anchor, p.weight, p.along) for p in both} == {
        ("a", "b", NUMBERS.pull_utterance, "utterance"),
        ("b", "a", NUMBERS.pull_utterance, "utterance"),
    }


@pytest.mark.parametrize(
    "other",
    [
        member("b", 2, 1, user="bo"),
        member("b", 2, 1, channel="d"),
        member("b", 2, 5.1),
        member("b", 4, 1),
    ],
    ids=["another author", "another channel", "later than five minutes", "farther than the window"],
)
def test_another_author_channel_time_or_place_is_another_utterance(other: Member) -> None:
    assert uttered(member("a", 1, 0), other) == set()


def test_an_utterance_goes_on_after_a_word_of_somebody_else() -> None:
    said = [member("a", 1, 0), member("x", 2, 0.5, user="bo"), member("b", 3, 1)]
    assert uttered(*said) == {("a", "b"), ("b", "a")}


def test_only_the_next_message_of_an_author_belongs_to_an_utterance() -> None:
    assert uttered(*(member(name, rank, rank) for rank, name in enumerate("abc"))) == {
        ("a", "b"),
        ("b", "a"),
        ("b", "c"),
        ("c", "b"),
    }


def test_messages_of_nobody_known_are_not_one_utterance() -> None:
    assert uttered(member("a", 1, 0, user=""), member("b", 2, 0, user="")) == set()


# -------------------------------------------------------------------------------------------------------- channel


def test_neighbours_in_rank_pull_each_other_and_less_with_distance_and_time() -> None:
    near = pulled(member("a", 5, 0), member("b", 6, 1), member("c", 7, 2))
    at = NUMBERS.pull_channel
    assert near["b", "a", "channel"] == near["a", "b", "channel"]
    assert near["b", "a", "channel"] == pytest.approx(at * math.exp(-60 / NUMBERS.context_seconds))
    assert near["c", "a", "channel"] == pytest.approx(0.5 * at * math.exp(-120 / NUMBERS.context_seconds))


def test_what_is_three_places_away_or_in_another_channel_does_not_pull() -> None:
    assert pulled(member("a", 5), member("x", 8)) == {}
    assert pulled(member("a", 5), member("x", 6, channel="d")) == {}


def test_another_topic_does_not_pull_in_the_channel() -> None:
    assert pulled(member("a", 5, thread="t"), member("b", 6)) == {}
    assert pulled(member("a", 5, thread="t"), member("b", 6, thread="s")) == {}
    assert pulled(member("a", 5, reply_to="t"), member("b", 6)) == {}


# --------------------------------------------------------------------------------------------------------- thread


def test_a_thread_pulls_whatever_the_time_and_its_root_stands_in_it() -> None:
    found = pulled(member("root", 0, 0), member("a", 90, 900, thread="root"), member("b", 200, 9000, thread="root"))
    at = NUMBERS.pull_thread
    assert found["a", "root", "thread"] == found["root", "a", "thread"] == found["a", "b", "thread"] == at
    assert found["b", "root", "thread"] == 0.5 * at


def test_answers_to_one_message_are_a_thread_though_no_thread_is_named() -> None:
    found = pulled(member("q", 0, 0), member("a", 9, 1, reply_to="q"), member("b", 19, 2, reply_to="q"))
    assert found["a", "b", "thread"] == NUMBERS.pull_thread


# -------------------------------------------------------------------------------------------------------- answers


def test_a_message_is_pulled_by_what_it_answers_and_more_by_a_question() -> None:
    plain = pulled(member("q", 0, text="it is."), member("r", 50, 5000, reply_to="q"))
    asked = pulled(member("q", 0, text="is it?"), member("r", 50, 5000, reply_to="q"))
    assert plain["r", "q", "reply"] == NUMBERS.pull_reply
    assert asked["r", "q", "question"] == NUMBERS.pull_question
    assert NUMBERS.pull_question > NUMBERS.pull_reply
    assert ("r", "q", "question") not in plain
    assert ("r", "q", "reply") not in asked


def test_what_is_answered_is_pulled_by_its_answer() -> None:
    assert pulled(member("q", 0), member("r", 50, reply_to="q"))["q", "r", "answer"] == NUMBERS.pull_answered


def test_an_answer_to_what_is_not_in_the_pool_is_pulled_by_nothing() -> None:
    assert pulled(member("r", 50, reply_to="gone")) == {}


@pytest.mark.parametrize("text", ["is it?", "is it? :)", "是吗？", "هل هو؟", "?"])
def test_a_question_mark_near_the_end_makes_a_question(text: str) -> None:
    assert context.asks(version("q", text=text))


@pytest.mark.parametrize("text", ["", "it is.", "is it? Yes, it is, since Monday"])
def test_no_other_text_is_a_question(text: str) -> None:
    assert not context.asks(version("q", text=text))


# ----------------------------------------------------------------------------------------------- how strong it is


def test_the_strongest_pull_counts_not_the_sum() -> None:
    found = [Pull("x", "a", 1.0, "channel"), Pull("x", "b", 0.5, "channel"), Pull("y", "b", 0.5, "channel")]
    strongest = context.strongest(found, {"a": 0.4, "b": 0.6})
    assert strongest["x"] == (0.4, found[0])
    assert strongest["y"] == (0.3, found[2])


def test_what_has_no_score_pulls_nothing() -> None:
    assert context.strongest([Pull("x", "a", 1.0, "channel")], {"a": 0.0}) == {}
    assert context.strongest([Pull("x", "a", 1.0, "channel")], {}) == {}


scores = st.dictionaries(st.sampled_from([f"m{i}" for i in range(9)]), st.floats(-1, 3), max_size=9)


@given(pools(), scores, st.randoms(use_true_random=False))
def test_the_strongest_is_the_same_in_whatever_order_the_pool_is(
    some: dict[str, Member], known: dict[str, float], dice: random.Random
) -> None:
    shuffled = list(some.items())
    dice.shuffle(shuffled)
    for pulls in (context.pulls, context.utterances):
        here, there = (context.strongest(pulls(p, NUMBERS), known) for p in (some, dict(shuffled)))
        assert {uid: (value, pull.anchor) for uid, (value, pull) in here.items()} == {
            uid: (value, pull.anchor) for uid, (value, pull) in there.items()
        }


@given(pools(), scores)
def test_a_pull_comes_from_another_message_of_the_pool_in_the_same_channel_and_is_no_more_than_its_strongest(
    some: dict[str, Member], known: dict[str, float]
) -> None:
    found = [*context.pulls(some, NUMBERS), *context.utterances(some, NUMBERS)]
    for pull in found:
        assert pull.uid != pull.anchor
        assert some[pull.uid].version.channel == some[pull.anchor].version.channel
    for uid, (value, _) in context.strongest(found, known).items():
        assert value == max(p.weight * known.get(p.anchor, 0.0) for p in found if p.uid == uid)


# ----------------------------------------------------------------------------------------------------- confidence


def test_the_best_pulls_with_its_whole_score() -> None:
    assert context.confident({"a": 1.5, "b": 1.0}, NUMBERS)["a"] == 1.5


def test_confidence_falls_by_e_with_the_distance_behind_the_best() -> None:
    found = context.confident({"a": 2.0, "b": 2.0 - NUMBERS.confidence}, NUMBERS)
    assert found["b"] == pytest.approx((2.0 - NUMBERS.confidence) / math.e)


def test_a_score_below_nothing_pulls_nothing() -> None:
    assert context.confident({"a": 1.0, "b": -0.5}, NUMBERS)["b"] == 0
    assert context.confident({}, NUMBERS) == {}


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 3), min_size=2))
def test_confidence_keeps_the_order_and_takes_more_from_the_worse(known: dict[str, float]) -> None:
    found = context.confident(known, NUMBERS)
    ranked = sorted(known, key=lambda uid: -known[uid])
    for better, worse in pairwise(ranked):
        assert found[worse] <= found[better] + 1e-12
        assert known[worse] - found[worse] >= -1e-12
        if known[worse] < known[better] - 1e-6:
            assert found[worse] / max(known[worse], 1e-9) < found[better] / max(known[better], 1e-9) or not known[worse]


# ---------------------------------------------------------------------------------------------------------- parts


def test_a_part_of_a_thread_is_cut_around_its_anchor() -> None:
    thread = [Leaf(i, str(i)) for i in range(100)]
    assert [leaf.ts for leaf in context.part(thread, thread[50], 2)] == [48, 49, 50, 51, 52]
    assert [leaf.ts for leaf in context.part(thread, Leaf(-1, "root"), 2)] == [0, 1, 2]
    assert context.part([], Leaf(1, "a"), 2) == []


def test_a_message_stands_under_its_thread_or_what_it_answers_or_itself() -> None:
    assert member("a", 0, thread="t", reply_to="r").thread == "t"
    assert member("a", 0, reply_to="r").thread == "r"
    assert member("a", 0).thread == "a"
    assert context.topic(version("a")) == ""
