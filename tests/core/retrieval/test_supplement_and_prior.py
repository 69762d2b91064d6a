"""S2's nodes and what speaks for a message beforehand, as pure functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import forest
from streammem.core.numbers import Retrieval
from streammem.core.retrieval import prior, supplement
from streammem.core.retrieval.prior import Habits, Surroundings
from streammem.records import NodeId, Sequence
from tests.core.retrieval.pools import version

NUMBERS = Retrieval()
SEQUENCE = Sequence("w", "channel", "c")

nodes = st.tuples(st.integers(1, 4), st.integers(0, 40)).map(lambda place: NodeId(SEQUENCE, *place))


@given(st.dictionaries(nodes, st.floats(0, 1), max_size=12), st.integers(2, 5), st.integers(0, 6))
def test_no_kept_node_is_above_another_and_the_best_are_kept(hits: dict, k: int, paths: int) -> None:
    kept = supplement.one_per_path(hits.items(), k, paths)
    assert len(kept) <= paths
    for node, _ in kept:
        assert not any(forest.is_ancestor(node, other, k) for other, _ in kept)
    if kept:
        assert round(kept[0][1], 6) == max(round(score, 6) for score in hits.values())


def test_a_path_gives_its_best_leaves_and_no_more_ties_by_uid() -> None:
    assert supplement.leaves_of_path([("c", 0.5), ("b", 0.5), ("a", 0.1), ("d", 0.9)], 3) == ["d", "b", "c"]
    assert supplement.leaves_of_path([("a", 0.1)], 0) == []


def test_the_asker_is_nearer_to_where_they_speak() -> None:
    habits = Habits({"c": 10, "d": 5}, frozenset({"t"}))
    at = {
        (channel, thread): prior.prior(version("m", channel=channel), thread, habits, NUMBERS, node=0, moment=None)
        for channel, thread in (("c", "t"), ("c", "x"), ("d", "x"), ("e", "x"))
    }
    assert at["c", "t"] > at["c", "x"] > at["d", "x"] > at["e", "x"] == 0


def test_recency_counts_only_for_a_question_as_of_a_moment() -> None:
    old, new = version("m", 0), version("n", 60 * 24 * 30)
    score = {
        (v.uid, moment): prior.prior(v, "", Habits(), NUMBERS, node=0, moment=moment)
        for v in (old, new)
        for moment in (None, new.ts)
    }
    assert score["m", None] == score["n", None] == 0
    assert score["n", new.ts] == pytest.approx(NUMBERS.recency)
    assert score["m", new.ts] == pytest.approx(NUMBERS.recency / math.e)


def test_a_node_that_was_not_found_counts_as_the_least_of_those_that_were() -> None:
    assert Surroundings({("c", 0): 0.6, ("c", 1): 0.4}).floor == 0.4
    assert Surroundings().floor == 0.0


def test_scores_that_differ_by_noise_are_ordered_by_uid() -> None:
    assert prior.ordered({"b": 0.5, "a": 0.5 + 1e-9, "c": 0.6}) == ["c", "a", "b"]
