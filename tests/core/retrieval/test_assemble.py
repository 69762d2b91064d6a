"""S4 as pure functions: places, budget, headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.retrieval import assemble
from streammem.core.retrieval.assemble import Candidate
from streammem.records import Found, Header
from tests.core.retrieval.pools import candidates

NUMBERS = Retrieval(bridge_messages=2)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CAPITALS = LETTERS.upper()


def order(first: str, second: str, third: str, limit: int = 20, numbers: Retrieval = NUMBERS) -> str:
    return "".join(
        assemble.in_order([candidates("S1", first), candidates("S2", second), candidates("S3", third)], limit, numbers)[
            :limit
        ]
    )


# -------------------------------------------------------------------------------------------------------- places


def test_of_twenty_places_anchors_have_eight_and_ends_of_bridges_two() -> None:
    assert order(LETTERS, CAPITALS, "01") == LETTERS[:8] + CAPITALS[:10] + "01"


def test_what_both_rank_takes_one_place() -> None:
    assert order("abcdefgh", "abcdefghXY", "") == "abcdefghXY"
    assert order("abcdefghi", "hgfXYZ", "") == "abcdefghXYZi"


def test_an_end_of_a_bridge_that_is_ranked_high_takes_no_place_of_its_own() -> None:
    assert order(LETTERS, CAPITALS, "AB") == LETTERS[:8] + CAPITALS[:12]
    assert order(LETTERS, CAPITALS, "a1") == LETTERS[:8] + CAPITALS[:11] + "1"


def test_an_end_of_a_bridge_that_is_ranked_low_is_brought_forward() -> None:
    assert order(LETTERS, CAPITALS, "YZ") == LETTERS[:8] + CAPITALS[:10] + "YZ"


@pytest.mark.parametrize(
    ("first", "second", "third", "places"),
    [
        (LETTERS, "", "", LETTERS[:20]),
        (LETTERS, "A", "01", LETTERS[:8] + "A01" + LETTERS[8:17]),
        ("abc", CAPITALS, "01", "abc" + CAPITALS[:15] + "01"),
        ("", CAPITALS, "", CAPITALS[:20]),
        ("", "", "0123456", "0123456"),
    ],
)
def test_places_that_a_stage_does_not_use_go_to_the_others(first: str, second: str, third: str, places: str) -> None:
    assert order(first, second, third) == places


@pytest.mark.parametrize(
    ("limit", "places"), [(1, "A"), (2, "aA"), (3, "aAB"), (5, "abABC"), (10, "abcdABCDE0"), (40, LETTERS[:16])]
)
def test_a_smaller_limit_is_shared_in_proportion(limit: int, places: str) -> None:
    assert order(LETTERS, CAPITALS, "0123", limit).startswith(places)


def test_numbers_say_how_many_places_there_are() -> None:
    assert order(LETTERS, CAPITALS, "01", 4, Retrieval(anchors=1, expansion=3, bridge_messages=1)) == "aAB0"
    assert order(LETTERS, CAPITALS, "01", 4, Retrieval(anchors=4, expansion=0, bridge_messages=0)) == "abcd"
    assert order(LETTERS, CAPITALS, "01", 4, Retrieval(anchors=0, expansion=0)) == "abcd"


names = st.lists(st.sampled_from(LETTERS), unique=True, max_size=26).map("".join)


@given(names, names, names, st.integers(1, 30))
def test_every_message_has_one_place_and_none_is_left_out(a: str, b: str, c: str, limit: int) -> None:
    stages = [candidates("S1", a), candidates("S2", b), candidates("S3", c)]
    placed = assemble.in_order(stages, limit, NUMBERS)
    assert sorted(placed) == sorted({*a, *b, *c})


@given(names, names, names, st.integers(1, 30))
def test_the_best_anchors_and_the_best_ranked_are_always_among_the_first(a: str, b: str, c: str, limit: int) -> None:
    placed = order(a, b, c, limit)
    share = round(limit * 8 / 20)
    assert placed.startswith(a[:share])
    ranked = [uid for uid in b if uid not in a[:share]]
    others = min(len(c), round(limit * 2 / 20))
    kept = max(0, limit - len(a[:share]) - others)
    assert set(ranked[:kept]) <= set(placed)


# -------------------------------------------------------------------------------------------------------- budget


@given(names, names, names, st.integers(1, 30), st.integers(1, 400))
def test_limit_and_budget_hold_and_nothing_is_chosen_twice(a: str, b: str, c: str, limit: int, budget: int) -> None:
    stages = [candidates("S1", a), candidates("S2", b), candidates("S3", c)]
    cost = {name: 5 + 7 * (ord(name) % 9) for name in LETTERS}

    def priced(uid: str, room: int) -> int | None:
        return cost[uid] if cost[uid] <= room else None

    chosen = assemble.choose(stages, priced, limit, budget, NUMBERS)
    assert len(chosen.found) <= limit
    assert chosen.tokens == sum(cost[uid] for uid in chosen.found) <= budget
    assert set(chosen.found) <= {*a, *b, *c}
    assert set(chosen.found).isdisjoint(chosen.too_long)
    if len(chosen.found) < limit:  # whoever is left out did not fit
        assert {*chosen.found, *chosen.too_long} == {*a, *b, *c}
    assert list(chosen.found) == [uid for uid in assemble.in_order(stages, limit, NUMBERS) if uid in chosen.found]


@given(names, names, names)
def test_places_are_not_left_empty_while_something_was_found(a: str, b: str, c: str) -> None:
    stages = [candidates("S1", a), candidates("S2", b), candidates("S3", c)]
    chosen = assemble.choose(stages, lambda _uid, _room: 1, 20, 3000, NUMBERS)
    assert len(chosen.found) == min(20, len({*a, *b, *c}))


def test_what_does_not_fit_is_passed_over_and_the_next_takes_its_place() -> None:
    stages = [candidates("S1", "abc"), [], []]
    chosen = assemble.choose(stages, lambda uid, _room: None if uid == "b" else 1, 2, 100, NUMBERS)
    assert list(chosen.found) == ["a", "c"]
    assert chosen.too_long == ("b",)


def test_a_message_keeps_every_way_it_was_found_in_the_order_of_stages() -> None:
    ways = [Candidate("b", Found(stage="S3", signal="reply bridge"))]
    stages = [candidates("S1", "ab"), candidates("S2", "b"), ways]
    chosen = assemble.choose(stages, lambda _uid, _room: 1, 20, 3000, NUMBERS)
    assert [w.stage for w in chosen.found["b"]] == ["S1", "S2", "S3"]
    assert [w.stage for w in chosen.found["a"]] == ["S1"]


def test_headers_take_at_most_their_share_and_only_what_messages_leave() -> None:
    headers = [
        (Header(view="channel", tree=str(i), label="", level=1, text="", first=0, last=0), 300) for i in range(9)
    ]
    assert len(assemble.headers(headers, 3000, 0, NUMBERS)) == 3  # 35 % of 3,000
    assert len(assemble.headers(headers, 3000, 2500, NUMBERS)) == 1
    assert assemble.headers(headers, 3000, 2900, NUMBERS) == []
    assert len(assemble.headers([headers[0]] * 3, 3000, 0, NUMBERS)) == 1
