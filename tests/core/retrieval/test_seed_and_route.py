"""S1 as pure functions: fusing, voting, routing, anchors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.retrieval import route, seed
from streammem.core.retrieval.route import Voter
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


def test_a_tree_that_the_question_names_has_its_places_among_the_anchors() -> None:
    seeds = [Seed(str(i), 10.0 - i) for i in range(8)]
    named = ("artifact", "DOC-1")
    hosts = {"6": {named}, "7": {named}, "5": {named}}
    kept = route.anchors(seeds, hosts, [named], places=4, quota=2)
    assert [s.uid for s in kept[:4]] == ["0", "1", "5", "6"]
    assert sorted(s.uid for s in kept) == sorted(s.uid for s in seeds)
    assert route.anchors(seeds, hosts, [], places=4, quota=2) == seeds


def test_votes_are_shares_and_a_named_identifier_has_them_all() -> None:
    voters = [(Voter("c1", "t1", frozenset({"DOC-1"})), 3.0), (Voter("c2", "t2", frozenset()), 1.0)]
    won = route.shares(voters, {"DOC-1": 4}, ["PR-9"])
    assert won.channels == {"c1": 0.75, "c2": 0.25}
    assert won.threads == {"t1": 0.75, "t2": 0.25}
    assert won.identifiers["PR-9"] == 1.0
    assert 0 < won.identifiers["DOC-1"] < 0.75


def test_a_vote_says_less_when_it_is_split_or_its_sequence_is_long() -> None:
    alone = route.shares([(Voter("c", "t", frozenset({"A"})), 1.0)], {"A": 1}, [])
    split = route.shares([(Voter("c", "t", frozenset({"A", "B"})), 1.0)], {"A": 1, "B": 1}, [])
    long = route.shares([(Voter("c", "t", frozenset({"A"})), 1.0)], {"A": 500}, [])
    assert alone.identifiers["A"] > split.identifiers["A"]
    assert alone.identifiers["A"] > long.identifiers["A"]


def test_a_message_is_lifted_by_where_it_stands() -> None:
    won = route.shares([(Voter("c", "t", frozenset({"A"})), 1.0)], {"A": 1}, [])
    inside = route.boost(Voter("c", "t", frozenset({"A"})), won, NUMBERS)
    beside = route.boost(Voter("c", "other", frozenset()), won, NUMBERS)
    outside = route.boost(Voter("x", "y", frozenset({"Z"})), won, NUMBERS)
    assert inside > beside > outside == 0
