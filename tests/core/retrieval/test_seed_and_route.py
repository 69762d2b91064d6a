"""S1 as pure functions: fusing, voting, routing, and what a question is about."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.retrieval import route, seed
from streammem.core.retrieval.seed import Seed

NUMBERS = Retrieval()
RANKS = Retrieval(fusion="ranks", dense_weight=0.5)

scores = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 9), max_size=8)


def by_score(found: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(found.items(), key=lambda pair: -pair[1])


def test_the_best_lexical_hit_counts_one_and_a_cosine_counts_itself() -> None:
    fused = seed.fuse([("a", 8.0), ("b", 4.0)], {"b": 0.7, "c": 0.9}, NUMBERS)
    assert {s.uid: s.score for s in fused} == pytest.approx({"a": 1.0, "b": 1.2, "c": 0.9})
    assert [s.uid for s in fused] == ["b", "a", "c"]


def test_fusing_ranks_is_the_papers_formula() -> None:
    fused = {s.uid: s.score for s in seed.fuse([("a", 8.0), ("b", 4.0)], {"b": 0.7, "c": 0.9}, RANKS)}
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 0.5 / 62, "c": 0.5 / 61})


@given(scores, scores)
def test_fusing_keeps_every_message_once_and_does_not_depend_on_order(words: dict, cosines: dict) -> None:
    fused = seed.fuse(by_score(words), cosines, NUMBERS)
    assert sorted(s.uid for s in fused) == sorted({*words, *cosines})
    assert fused == seed.fuse(by_score(words), dict(reversed(cosines.items())), NUMBERS)
    assert [s.score for s in fused] == sorted((s.score for s in fused), reverse=True)


def test_how_a_seed_was_found_is_said_in_words() -> None:
    (first, *_) = seed.fuse([("a", 8.0)], {"a": 0.5}, NUMBERS)
    assert first.found.signal == "lexical #1 + dense #1"


def test_signals_are_ranked_within_each_view() -> None:
    collapsed = {("channel", "c1"): 0.9, ("channel", "c2"): 0.8, ("actor", "u1"): 0.1}
    found = route.routes({"collapsed": collapsed}, NUMBERS)
    assert [(r.tree, r.ranks) for r in found["channel"]] == [("c1", {"collapsed": 1}), ("c2", {"collapsed": 2})]
    assert found["actor"][0].ranks == {"collapsed": 1}
    assert found["actor"][0].score == found["channel"][0].score == NUMBERS.weight_collapsed


def test_trees_add_up_weight_over_rank_of_the_three_signals() -> None:
    tree = ("channel", "c1")
    (best,) = route.routes({"leaf2tree": {tree: 3.0}, "root": {tree: 0.2}, "collapsed": {tree: 0.3}}, NUMBERS)[
        "channel"
    ]
    assert best.score == pytest.approx(2.0 + 0.8 + 0.8)


def test_every_anchor_votes_for_all_its_trees() -> None:
    seeds = [Seed("a", 2.0), Seed("b", 1.0)]
    hosts = {"a": [("channel", "c")], "b": [("channel", "c"), ("actor", "u")]}
    assert route.leaf2tree(seeds, hosts) == {("channel", "c"): 3.0, ("actor", "u"): 1.0}


def test_the_best_hit_of_a_tree_counts() -> None:
    tree, other = ("channel", "c"), ("actor", "u")
    assert route.best([(tree, 0.2), (other, 0.4), (tree, 0.6), (tree, 0.3)]) == {tree: 0.6, other: 0.4}


def test_no_more_trees_of_a_view_are_selected_than_asked_for() -> None:
    numbers = Retrieval(trees_per_view=2)
    votes = {("channel", name): 9.0 - place for place, name in enumerate("abcd")} | {("actor", "u"): 0.1}
    found = route.routes({"leaf2tree": votes}, numbers)
    assert {view: [r.tree for r in some] for view, some in found.items()} == {"channel": ["a", "b"], "actor": ["u"]}


# ---------------------------------------------------------------------------------------------------------- shares


def test_shares_keep_how_far_one_is_ahead() -> None:
    won = route.shares([("c1", "t1", 3.0), ("c2", "t2", 0.5), ("c2", "t3", 0.5)])
    assert won.channels == {"c1": 0.75, "c2": 0.25}
    assert won.threads == {"t1": 0.75, "t2": 0.125, "t3": 0.125}


def test_without_votes_nobody_has_a_share() -> None:
    assert route.shares([]) == route.Shares({}, {})
    assert set(route.shares([("c", "t", 0.0)]).channels.values()) == {0.0}


votes = st.lists(st.tuples(st.sampled_from("cd"), st.sampled_from("tsr"), st.floats(0.01, 3)), min_size=1, max_size=9)


@given(votes, st.randoms(use_true_random=False))
def test_shares_add_up_to_one_in_any_order(voters: list[tuple[str, str, float]], dice: random.Random) -> None:
    won = route.shares(voters)
    assert sum(won.channels.values()) == pytest.approx(1.0)
    assert sum(won.threads.values()) == pytest.approx(1.0)
    shuffled = list(voters)
    dice.shuffle(shuffled)
    assert route.shares(shuffled).threads == pytest.approx(won.threads)


# ------------------------------------------------------------------------------------- what a question is about


def test_an_artifact_counts_by_its_best_anchor() -> None:
    found = route.about([(["A"], 2.0), (["B"], 1.9), (["A", "B"], 1.0)], [], NUMBERS)
    assert found == pytest.approx({"A": 1.0, "B": math.exp(-0.1 / NUMBERS.about_width)})


def test_many_weak_anchors_are_not_one_strong_one() -> None:
    found = route.about([(["A"], 2.0), *[(["B"], 1.9)] * 50], [], NUMBERS)
    assert list(found) == ["A", "B"]
    assert found["B"] == pytest.approx(math.exp(-0.1 / NUMBERS.about_width))


def test_what_the_question_names_is_ahead_of_every_anchor() -> None:
    wide = Retrieval(about_width=0.3, about_named=0.3)
    assert route.about([(["A"], 2.0)], ["N"], wide) == pytest.approx({"N": 1.0, "A": math.exp(-1)})
    assert route.about([(["A"], 2.0)], ["N"], NUMBERS) == {"N": 1.0}
    assert route.about([(["A", "N"], 2.0)], ["N"], NUMBERS) == {"N": 1.0}
    assert route.about([], ["N"], NUMBERS) == {"N": 1.0}


def test_an_artifact_behind_an_anchor_without_one_is_less_likely() -> None:
    assert route.about([([], 2.0), (["A"], 1.0)], [], NUMBERS) == pytest.approx({"A": 0.5})


def test_what_is_too_little_to_change_an_order_is_dropped() -> None:
    assert list(route.about([(["A"], 2.0), (["B"], 1.0)], [], NUMBERS)) == ["A"]
    assert route.about([(["A"], 0.0)], [], NUMBERS) == {}
    assert route.about([], [], NUMBERS) == {}


def test_no_more_artifacts_are_completed_than_asked_for_and_ties_go_by_name() -> None:
    numbers = Retrieval(artifacts=2)
    for names in (["C", "B", "A"], ["A", "C", "B"]):
        assert list(route.about([(names, 1.0)], [], numbers)) == ["A", "B"]
    assert route.about([(["A"], 1.0)], ["N"], Retrieval(artifacts=0)) == {}


anchors = st.lists(st.tuples(st.lists(st.sampled_from("ABCD"), max_size=3), st.floats(0, 3)), max_size=8).map(
    lambda some: sorted(some, key=lambda pair: -pair[1])
)


@given(anchors, st.lists(st.sampled_from("CDE"), unique=True), st.integers(0, 4))
def test_likeliness_is_a_share_best_first_and_the_order_of_names_says_nothing(
    known: list[tuple[list[str], float]], named: list[str], most: int
) -> None:
    numbers = Retrieval(artifacts=most)
    found = route.about(known, named, numbers)
    assert len(found) <= most
    assert all(0 < value <= 1 for value in found.values())
    assert list(found.values()) == sorted(found.values(), reverse=True)
    turned = [(artifacts[::-1], score) for artifacts, score in known]
    assert list(route.about(turned, named[::-1], numbers).items()) == list(found.items())
    assert set(list(found)[: len(named)]) <= set(named) or not named
