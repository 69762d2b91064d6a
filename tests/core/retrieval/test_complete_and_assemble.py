"""S3 and S4 as pure functions: hops, joins, quotas, budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import assemble, complete
from streammem.core.retrieval.assemble import Candidate
from streammem.records import Bridge, Found, Header, Version

NUMBERS = Retrieval()


def spec(**named: object) -> QuerySpec:
    given_names = {"users": (), "channels": (), "identifiers": (), "cue": ""} | named
    return QuerySpec(text="", lexical="", asker=None, first_person=False, **given_names)  # type: ignore[arg-type]


def version(name: str, ts: int = 0, *, user: str = "u", identifiers: tuple[str, ...] = ()) -> Version:
    return Version(
        uid=name, number="", deleted=False, hash="", workspace="w", channel="c", id=name, ts=ts, since=ts, user=user,
        text="text", identifiers=identifiers,
    )  # fmt: skip


def candidates(stage: str, names: str) -> list[Candidate]:
    return [Candidate(name, Found(stage=stage, signal="")) for name in names]


def test_a_join_wants_two_entities() -> None:
    assert not complete.wants_join(spec(users=("ana",)))
    assert complete.wants_join(spec(users=("ana",), identifiers=("DOC-1",)))


def test_a_join_goes_from_a_message_of_one_entity_to_one_of_the_other() -> None:
    asked = spec(users=("ana",), identifiers=("DOC-1",))
    first = version("a", 5, user="ana")
    others = [
        (version("b", 9, identifiers=("DOC-1",)), 0.6),
        (version("c", 9), 0.9),
        (version("d", 1, identifiers=("DOC-1",)), 0.7),
    ]
    assert complete.join(asked, first, others, NUMBERS).uid == "d"  # type: ignore[union-attr]
    later = spec(users=("ana",), identifiers=("DOC-1",), cue="after")
    assert complete.join(later, first, others, NUMBERS).uid == "b"  # type: ignore[union-attr]
    assert complete.join(asked, first, [(others[0][0], 0.1)], NUMBERS) is None


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


@pytest.mark.parametrize(
    ("sizes", "places"),
    [
        ((50, 50, 50), (14, 4, 2)),
        ((50, 50, 0), (14, 6, 0)),
        ((50, 0, 0), (20, 0, 0)),
        ((50, 1, 5), (17, 1, 2)),
        ((3, 50, 2), (3, 15, 2)),
        ((0, 0, 9), (0, 0, 9)),
    ],
)
def test_unused_places_flow_to_the_other_stages(sizes: tuple[int, int, int], places: tuple[int, int, int]) -> None:
    assert assemble.quotas(sizes, 20, NUMBERS) == places


names = st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), unique=True, max_size=26).map("".join)


@given(names, names, names, st.integers(1, 30), st.integers(1, 400))
def test_limit_and_budget_hold_and_nothing_is_chosen_twice(a: str, b: str, c: str, limit: int, budget: int) -> None:
    stages = [candidates("S1", a), candidates("S2", b), candidates("S3", c)]
    cost = {name: 5 + 7 * (ord(name) % 9) for name in "abcdefghijklmnopqrstuvwxyz"}

    def priced(uid: str, room: int) -> int | None:
        return cost[uid] if cost[uid] <= room else None

    chosen = assemble.choose(stages, priced, limit, budget, NUMBERS)
    assert len(chosen.found) <= limit
    assert chosen.tokens == sum(cost[uid] for uid in chosen.found) <= budget
    assert set(chosen.found) <= {*a, *b, *c}
    if budget == 400 and limit == 1 and a:
        assert list(chosen.found) == [a[0]]


@given(names, names, names)
def test_places_are_not_left_empty_while_something_was_found(a: str, b: str, c: str) -> None:
    stages = [candidates("S1", a), candidates("S2", b), candidates("S3", c)]
    chosen = assemble.choose(stages, lambda _uid, _room: 1, 20, 3000, NUMBERS)
    assert len(chosen.found) == min(20, len({*a, *b, *c}))


def test_a_message_keeps_every_way_it_was_found() -> None:
    stages = [candidates("S1", "ab"), candidates("S2", "b"), []]
    chosen = assemble.choose(stages, lambda _uid, _room: 1, 20, 3000, NUMBERS)
    assert [w.stage for w in chosen.found["b"]] == ["S1", "S2"]


def test_headers_take_at_most_their_share_and_only_what_messages_leave() -> None:
    headers = [
        (Header(view="channel", tree=str(i), label="", level=1, text="", first=0, last=0), 300) for i in range(9)
    ]
    assert len(assemble.headers(headers, 3000, 0, NUMBERS)) == 3  # 35 % of 3,000
    assert len(assemble.headers(headers, 3000, 2500, NUMBERS)) == 1
    assert assemble.headers(headers, 3000, 2900, NUMBERS) == []
