"""S3 as pure functions: who is joined, where their words lead, hops over bridges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import complete
from streammem.core.retrieval.complete import Join
from streammem.core.words_in_text import Named
from streammem.records import Bridge
from tests.core.retrieval.pools import version

NUMBERS = Retrieval()


def spec(*named: str, kind: str = "user") -> QuerySpec:
    """A question that names these, each by all whom it may mean, one letter each."""
    return QuerySpec(
        text="",
        lexical="",
        asker=None,
        first_person=False,
        users=(),
        channels=(),
        identifiers=(),
        cue="",
        named=tuple(Named(kind, name, tuple(name), (0, 0)) for name in named),  # type: ignore[arg-type]
    )


# --------------------------------------------------------------------------------------------------------- joins


def test_a_join_wants_two_people() -> None:
    assert not complete.wants_join(spec())
    assert not complete.wants_join(spec("a"))
    assert not complete.wants_join(spec("a", "b", kind="channel"))
    assert complete.wants_join(spec("a", "b"))


def test_who_is_named_twice_is_one() -> None:
    assert complete.groups(spec("a", "a")) == [frozenset("a")]
    assert not complete.wants_join(spec("a", "ab"))
    assert complete.groups(spec("ab", "c")) == [frozenset("ab"), frozenset("c")]


def test_a_message_joins_two_if_it_is_said_by_mentions_or_names_them() -> None:
    asked = spec("a", "b")
    assert complete.holds(asked, version("m", user="a", mentions=("b",)), [])
    assert complete.holds(asked, version("m", user="a"), ["b"])
    assert complete.holds(asked, version("m", user="x"), ["a", "b"])
    assert complete.holds(asked, version("m", user="x", mentions=("a", "b")), [])
    assert not complete.holds(asked, version("m", user="a", mentions=("x",)), ["a"])
    assert not complete.holds(asked, version("m", user="x"), [])


def test_two_bearers_of_one_name_join_nobody() -> None:
    assert not complete.holds(spec("ab", "c"), version("m", user="a", mentions=("b",)), [])
    assert complete.holds(spec("ab", "c"), version("m", user="b", mentions=("c",)), [])


def test_content_is_what_neither_names_nor_the_question_say() -> None:
    beside = {"mira", "what", "hand", "over"}
    text = "Mira, hand over the Nimbus scheduler to <@U7> and @bo.k: the scheduler, 12 nodes"
    assert complete.content(text, beside) == ["the", "nimbus", "scheduler", "to", "and", "nodes"]
    assert complete.content("Mira <@U7> 12!", beside) == []


def test_words_are_folded_and_without_what_stands_beside_them() -> None:
    assert complete.folded("Does the CRANE (harbour?) wait") == ["does", "the", "crane", "harbour", "wait"]


def test_a_joining_message_that_says_something_counts_more_than_a_greeting() -> None:
    greeting, telling = ("a", 0.5, ["thanks"]), ("b", 0.45, ["nimbus", "scheduler", "runs", "on", "blue"])
    found = complete.joins([greeting, telling], NUMBERS)
    assert [join.uid for join in found] == ["b", "a"]
    assert found[0].trust == 1.0
    behind = (0.45 + 0.3) - (0.5 + 0.3 / 5)
    assert found[1].trust == pytest.approx(math.exp(-behind / NUMBERS.join_width))


def test_only_the_best_joins_lead_further_ties_by_uid() -> None:
    same = [(uid, 0.5, ["word"]) for uid in "dbca"]
    assert [join.uid for join in complete.joins(same, Retrieval(joins=2))] == ["a", "b"]
    assert complete.joins(same, Retrieval(joins=0)) == []
    assert complete.joins([], NUMBERS) == []


def test_a_join_gives_what_shares_its_words_in_proportion() -> None:
    join = Join("j", ("nimbus",), 1.0)
    found = complete.led_to([(join, {"j": 20.0, "x": 10.0, "y": 30.0})], NUMBERS)
    assert found == {
        "x": (pytest.approx(0.5), "j"),
        "y": (pytest.approx(1.0), "j"),  # never more than the join itself has
        "j": (pytest.approx(NUMBERS.join_itself), "j"),
    }


def test_ordinary_words_lead_less_far() -> None:
    rare, ordinary = (complete.led_to([(Join("j", (), 1.0), {"j": s, "x": s})], NUMBERS)["x"][0] for s in (8.0, 2.0))
    assert (rare, ordinary) == (pytest.approx(1.0), pytest.approx(0.25))


def test_a_join_that_the_search_does_not_find_itself_leads_nowhere() -> None:
    assert complete.led_to([(Join("j", ("x",), 1.0), {"x": 9.0})], NUMBERS) == {"j": (NUMBERS.join_itself, "j")}
    assert complete.led_to([(Join("j", (), 0.5), {})], NUMBERS) == {"j": (NUMBERS.join_itself * 0.5, "j")}


found_by = st.dictionaries(st.sampled_from("abjk"), st.floats(0.1, 30), max_size=4)


@given(found_by, found_by, st.floats(0.01, 1), st.sampled_from((0.2, 1.0, 3.0)))
def test_of_two_joins_the_one_that_gives_more_counts_in_whatever_order(
    one: dict[str, float], other: dict[str, float], trust: float, weight: float
) -> None:
    numbers = Retrieval(join=weight)
    joins = [(Join("j", ("x",), 1.0), one), (Join("k", ("y",), trust), other)]
    there, back = complete.led_to(joins, numbers), complete.led_to(joins[::-1], numbers)
    assert {uid: gain for uid, (gain, _) in there.items()} == {uid: gain for uid, (gain, _) in back.items()}
    alone = [complete.led_to([join], numbers) for join in joins]
    for uid, (gain, _) in there.items():
        assert gain == max(some[uid][0] for some in alone if uid in some)


@given(found_by, st.floats(0.01, 1))
def test_a_join_gives_nobody_more_than_itself(scores: dict[str, float], trust: float) -> None:
    found = complete.led_to([(Join("j", ("x",), trust), scores)], NUMBERS)
    assert max(gain for gain, _ in found.values()) == found["j"][0] == NUMBERS.join_itself * NUMBERS.join * trust


# ------------------------------------------------------------------------------------------------------- bridges


def test_one_bridge_is_followed_to_its_most_relevant_end_outside_the_pool() -> None:
    links = [Bridge(kind="reply", source="a", target=t) for t in "bcde"]
    scores = {"b": 0.9, "c": 0.5, "d": 0.4}
    followed = complete.hop(links, scores.get, lambda uid: uid != "b")
    assert followed is not None
    assert followed.target == "c"
    assert complete.hop(links, scores.get, lambda uid: False) is None


def test_around_the_end_of_a_bridge_the_most_relevant_message_is_taken_too() -> None:
    link = Bridge(kind="identifier", source="a", target="b", label="DOC-1")
    hops = complete.reached(link, ["b", "x", "y", "hidden"], {"b": 0.4, "x": 0.2, "y": 0.3}.get)
    assert [(h.uid, h.signal) for h in hops] == [
        ("b", "identifier bridge DOC-1"),
        ("y", "window of a identifier bridge DOC-1"),
    ]


def test_hops_are_few_and_over_the_floor() -> None:
    hops = [
        complete.Hop(uid, score, "", "") for uid, score in (("a", 0.5), ("a", 0.6), ("b", 0.1), ("c", 0.4), ("d", 0.45))
    ]
    assert [h.uid for h in complete.kept(hops, 2, 0.35)] == ["a", "d"]
