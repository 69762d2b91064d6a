"""S2 as pure functions: one node a path, context, priors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import forest
from streammem.core.numbers import Retrieval
from streammem.core.retrieval import prior, supplement
from streammem.core.retrieval.prior import Habits, Surroundings
from streammem.core.retrieval.supplement import Member, Pull
from streammem.records import Leaf, NodeId, Sequence, Version

NUMBERS = Retrieval()
SEQUENCE = Sequence("w", "channel", "c")
MINUTE = 60_000_000


def member(
    name: str, rank: int, minute: float = 0, *, channel: str = "c", thread: str = "", reply_to: str = ""
) -> Member:
    version = Version(
        uid=name, number="", deleted=False, hash="", workspace="w", channel=channel, id=name, ts=int(minute * MINUTE),
        since=0, user="u", text="", thread=thread, reply_to=reply_to,
    )  # fmt: skip
    return Member(version, rank)


def pulled(*members: Member) -> dict[tuple[str, str], float]:
    found = supplement.pulls({m.version.uid: m for m in members}, NUMBERS)
    return {(p.uid, p.anchor): p.weight for p in found}


nodes = st.tuples(st.integers(1, 4), st.integers(0, 40)).map(lambda place: NodeId(SEQUENCE, *place))


@given(st.dictionaries(nodes, st.floats(0, 1), max_size=12), st.integers(2, 5), st.integers(0, 6))
def test_no_kept_node_is_above_another_and_the_best_are_kept(hits: dict, k: int, paths: int) -> None:
    kept = supplement.one_per_path(hits.items(), k, paths)
    assert len(kept) <= paths
    for node, _ in kept:
        assert not any(forest.is_ancestor(node, other, k) for other, _ in kept)
    if kept:
        assert round(kept[0][1], 6) == max(round(score, 6) for score in hits.values())


def test_neighbours_in_rank_pull_each_other_and_less_with_distance_and_time() -> None:
    near = pulled(member("a", 5, 0), member("b", 6, 1), member("c", 7, 2))
    assert near["b", "a"] == pytest.approx(math.exp(-60 / NUMBERS.context_seconds))
    assert near["c", "a"] == pytest.approx(0.5 * math.exp(-120 / NUMBERS.context_seconds))
    assert ("x", "a") not in pulled(member("a", 5), member("x", 8))
    assert ("x", "a") not in pulled(member("a", 5), member("x", 6, channel="d"))


def test_another_thread_does_not_pull_in_the_channel() -> None:
    assert pulled(member("a", 5, thread="t"), member("b", 6)) == {}


def test_a_thread_pulls_whatever_the_time_and_its_root_stands_first() -> None:
    found = pulled(member("root", 0, 0), member("a", 90, 900, thread="root"), member("b", 200, 9000, thread="root"))
    assert found["a", "root"] == found["root", "a"] == found["a", "b"] == 1.0
    assert found["b", "root"] == 0.5


def test_a_reply_is_pulled_by_what_it_answers() -> None:
    assert pulled(member("q", 0, 0), member("r", 50, 5000, reply_to="q"))["r", "q"] == 1.0


def test_the_strongest_pull_counts_not_the_sum() -> None:
    found = [Pull("x", "a", 1.0, "channel"), Pull("x", "b", 0.5, "channel"), Pull("y", "b", 0.5, "channel")]
    strongest = supplement.strongest(found, {"a": 0.4, "b": 0.6})
    assert strongest["x"] == (0.4, found[0])
    assert strongest["y"] == (0.3, found[2])


def test_a_part_of_a_thread_is_cut_around_its_anchor() -> None:
    thread = [Leaf(i, str(i)) for i in range(100)]
    assert [leaf.ts for leaf in supplement.part(thread, thread[50], 2)] == [48, 49, 50, 51, 52]
    assert [leaf.ts for leaf in supplement.part(thread, Leaf(-1, "root"), 2)] == [0, 1, 2]


def test_the_asker_is_nearer_to_where_they_speak() -> None:
    habits = Habits({"c": 10, "d": 5}, frozenset({"t"}))
    at = {
        (channel, thread): prior.prior(
            member("m", 0, channel=channel).version, thread, habits, NUMBERS, node=0, moment=None
        )
        for channel, thread in (("c", "t"), ("c", "x"), ("d", "x"), ("e", "x"))
    }
    assert at["c", "t"] > at["c", "x"] > at["d", "x"] > at["e", "x"] == 0


def test_recency_counts_only_for_a_question_as_of_a_moment() -> None:
    old, new = member("m", 0, 0).version, member("n", 0, 60 * 24 * 30).version
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
