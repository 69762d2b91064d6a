"""How much a message says of its own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.core.retrieval.substance import commonplaces, gist, substance

NUMBERS = Retrieval()
LONG = "the crane stays locked until the inspection on friday"


def test_a_text_that_is_long_enough_and_said_once_counts_in_full() -> None:
    assert len(LONG) >= NUMBERS.substantial
    assert substance(LONG, {}, NUMBERS) == 1.0


def test_a_short_text_counts_in_proportion() -> None:
    assert substance("on it", {}, NUMBERS) == pytest.approx(5 / NUMBERS.substantial)
    assert substance("", {}, NUMBERS) == 0.0


def test_what_is_said_again_and_again_counts_less_with_the_logarithm() -> None:
    common = {gist(LONG): 50}
    assert substance(LONG, common, NUMBERS) == pytest.approx(1 / (1 + NUMBERS.commonplace * math.log(50)))
    assert substance("something else that is said only once, here", common, NUMBERS) == 1.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("thanks @mira!", "Thanks"),
        ("thanks <@U07ABC>", "thanks <@U99>"),
        ("see <#C1|ops> at 10:30", "see <#C2> at 9"),
        ("DOC-1 is done", "DOC-22 is done"),
        ("good   morning", "Good morning..."),
    ],
)
def test_names_numbers_case_and_punctuation_do_not_matter_for_a_gist(one: str, other: str) -> None:
    assert gist(one) == gist(other)


def test_other_words_are_another_gist() -> None:
    assert gist("thanks for the plan") != gist("thanks for the crane")
    assert gist("спасибо") != gist("пожалуйста")


def test_a_commonplace_is_said_at_least_so_often() -> None:
    said = ["thanks @mira"] * 2 + ["Thanks!"] * 3 + ["on it"] * 4 + ["ok"]
    assert commonplaces(said, 5) == {gist("thanks"): 5}
    assert commonplaces(said, 4) == {gist("thanks"): 5, gist("on it"): 4}
    assert commonplaces([], 1) == {}


texts = st.lists(st.sampled_from(("thanks", "thanks 2", "on it", "ok", "", LONG)), max_size=30)


@given(texts, st.randoms(use_true_random=False), st.integers(1, 6))
def test_commonplaces_do_not_depend_on_order(said: list[str], dice: object, least: int) -> None:
    shuffled = list(said)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert commonplaces(said, least) == commonplaces(shuffled, least)


@given(st.text(max_size=80), st.integers(1, 1000), st.integers(1, 1000))
def test_substance_is_a_share_and_falls_the_oftener_a_text_is_said(text: str, one: int, other: int) -> None:
    less, more = sorted((one, other))
    often, seldom = (substance(text, {gist(text): n}, NUMBERS) for n in (more, less))
    assert 0 <= often <= seldom <= 1


@given(st.text(max_size=80, alphabet=st.characters(codec=None)))
def test_any_text_has_a_gist_of_six_bytes(text: str) -> None:
    assert 0 <= gist(text) < 2**48
    assert gist("a lone surrogate \ud800") == gist("A LONE surrogate \ud800 7")
