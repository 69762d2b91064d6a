"""What the wording of a question asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streammem.core import cues
from streammem.core.dates_in_text import dated
from streammem.core.events import micros

NOW = micros(datetime(2026, 4, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("what is the price at present?", "latest"),
        ("as things stand, who owns it?", "latest"),
        ("is it still blocked?", "latest"),
        ("who uses it nowadays?", "latest"),
        ("is the page up to date?", "latest"),
        ("as of today, where are we?", "latest"),
        ("the actual price", ""),
        ("¿cuál es el precio actual?", "latest"),
        ("Wie ist der aktuelle Stand?", "latest"),
        ("quel est le prix actuel", "latest"),
        ("what was the original date?", "first"),
        ("at first, who owned it?", "first"),
        ("what came before the launch?", "before"),
        ("once it was merged, what followed?", "after"),
        ("how often, once a week?", ""),
        ("at last", ""),
    ],
)
def test_a_cue_says_on_which_side_of_time(text: str, cue: str) -> None:
    assert cues.cue_of(text, dated(text, NOW)) == cue


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("what happened last week?", "on"),
        ("what did they say on 3 March?", "on"),
        ("what was decided before 3 March?", "before"),
        ("what was due by Friday?", "before"),
        ("since last Monday", "after"),
        ("since December", "after"),
        ("what followed after the launch on 3 March?", "after"),
        ("from 3 March to 7 March", "on"),
        ("my paper from 3 March", "on"),
        ("what was the latest yesterday?", "latest"),
    ],
)
def test_beside_a_date_the_cue_is_about_it_and_inside_it_there_is_none(text: str, cue: str) -> None:
    assert cues.cue_of(text, dated(text, NOW)) == cue


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Who approved it?", "who"),
        ("Which person approved it?", "who"),
        ("When did it land?", "when"),
        ("On which day did it land?", "when"),
        ("How long did the review take?", "how_long"),
        ("How many days passed?", "how_long"),
        ("How many people came?", "how_many"),
        ("Why was it sent back?", "why"),
        ("Where was it decided?", "where"),
        ("What did Ana say when it broke?", "what"),
        ("the plan", ""),
    ],
)
def test_the_first_question_word_says_what_is_asked_for(text: str, asks: str) -> None:
    assert cues.asks_of(text) == asks


def test_the_whole_life_of_a_thing_is_asked_for_in_many_ways() -> None:
    for text in (
        "Which stages did it go through?",
        "the whole life of DOC-1",
        "history of DOC-1",
        "give me a timeline",
        "tell it step by step",
        "from draft to release",
        "how did the plan for the launch change?",
        "how has it evolved",
        "what reviews did the paper go through?",
    ):
        assert cues.wants_lifecycle(text), text
    for text in ("who approved DOC-1?", "the step-by-step guide", "end-to-end tests", "what did Jon go through?"):
        assert not cues.wants_lifecycle(text), text


def test_who_is_asked_about_is_not_who_asks() -> None:
    for text in (
        "what did I promise?",
        "did anyone answer me?",
        "My draft",
        "tell me what I said",
        "was habe ich gesagt",
    ):
        assert cues.first_person(text), text
    for text in (
        "tell me who said it",
        "I need to know the price",
        "Can I ask who owns it?",
        "what does my own team say?",
        "the i/o layer, i.e. this",
        "I wonder who did it",
    ):
        assert not cues.first_person(text), text


def test_we_is_a_team_and_the_us_is_a_country() -> None:
    assert cues.of_the_team("what have we decided?")
    assert cues.of_the_team("what do people in my team say?")
    assert not cues.of_the_team("who leads the US launch?")
    assert not cues.of_the_team("my draft")
