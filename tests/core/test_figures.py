"""Which numbers, dates and identifiers of a sentence other texts do not have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.figures import known, strange

MONDAY = datetime(2026, 3, 2, 9, 5, tzinfo=UTC)
THERE = known(
    (
        "DOC-042 is approved by the three of us, see PR-7 and rollout.pdf",
        "the launch is on 20 March and costs 40k, 9 GB, 3.5% of it; call at 14:30, rooms 4-6, v1.2.0",
    ),
    [("done", MONDAY)],
)

CARRIED = (
    "DOC-042 was approved.",
    "doc-042 was approved by 3 people.",
    "The launch is on 20 March 2026.",
    "The launch is on March 20th.",
    "The launch is on 2026-03-20, the 20th.",
    "It was said on 2 March 2026 at 09:05, a Monday.",
    "It was said on 2026-03-02 at 9:05.",
    "It costs 40,000.",
    "It costs $40k, which is 3.5% of it.",
    "It takes 9GB in rooms 4-6.",
    "PR 7 and PR-7 are one, and so is pr-7.",
    "It is version 1.2.0, v1.2.0.",
    "In March it may be launched.",
    "Call at 14:30.",
    "rollout.pdf says so.",
)
NOT_CARRIED = (
    ("DOC-043 was approved.", ["doc-043"]),
    ("ABC-042 was approved.", ["abc-042"]),
    ("PR-8 is open.", ["pr-8"]),
    ("x-7 is open.", ["x-7"]),
    ("The launch is on 27 March.", ["27 march"]),
    ("The launch is on April 20.", ["april 20", "April"]),
    ("The launch is on 20 March 2027.", ["20 march 2027"]),
    ("The launch is on 2026-03-21.", ["2026-03-21"]),
    ("The launch is in April.", ["April"]),
    ("It may be launched in May.", ["May"]),
    ("It was said on Friday.", ["Friday"]),
    ("It costs 41k.", ["41k"]),
    ("It costs 40 million, or 40.", ["40"]),
    ("It costs 400,000.", ["400,000"]),
    ("2 people approved it.", ["2"]),
    ("five people approved it.", ["five"]),
    ("3.6% of it.", ["3.6"]),
    ("Call at 15:30.", ["15:30"]),
    ("rooms 4-8", ["4-8"]),
    ("v1.3.0", ["v1.3.0"]),
    ("plan.pdf says so.", ["plan.pdf"]),
    ("It was said at 5 in the morning, the 2nd.", ["5", "2nd"]),
)


@pytest.mark.parametrize("sentence", CARRIED)
def test_what_is_there_may_be_repeated_in_its_usual_forms(sentence: str) -> None:
    assert strange(sentence, THERE) == []


@pytest.mark.parametrize(("sentence", "found"), NOT_CARRIED)
def test_what_is_not_there_is_told(sentence: str, found: list[str]) -> None:
    assert strange(sentence, THERE) == found


@pytest.mark.parametrize(
    ("text", "carried", "not_carried"),
    [
        ("we met yesterday", "They met on 1 March 2026.", "on 28 February"),
        ("we met last Friday", "They met on 27 February.", "They met on 26 February."),
        ("two days ago", "It was on February 28, 2026.", "It was on 2 days in January."),
        ("I did it last month", "It was done in February 2026.", "It was done in January 2026."),
        ("last year", "It was in 2025.", "It was in 2024."),
        ("it goes live tomorrow", "It goes live on 2026-03-03.", "It goes live on 2026-03-04."),
        ("it goes live on 27 March, as I said yesterday", "on 27 March", "on 27 March 2025"),
        ("nothing", "on 2 March", "on 1 March"),
    ],
)
def test_what_is_named_by_how_far_away_it_is_has_a_date(text: str, carried: str, not_carried: str) -> None:
    there = known([], [(text, MONDAY)])
    assert strange(carried, there) == []
    assert strange(not_carried, there) != []


def test_digits_of_other_scripts_and_widths_are_numbers_too() -> None:
    there = known(["٣ من الناس, ４０ persons"], [])
    assert strange("3 people, 40 persons, ٤٠ ٣", there) == []
    assert strange("٤ people", there) == ["4"]


@given(st.text(max_size=200))
def test_a_text_carries_itself(text: str) -> None:
    assert strange(text, known([text], [])) == []


@given(st.text(alphabet="0123456789 .,:-/kmth MarchDOC年", max_size=60))
def test_a_text_of_figures_carries_itself(text: str) -> None:
    assert strange(text, known([text], [])) == []


def test_a_number_of_any_length_is_no_fault() -> None:
    assert strange("9" * 10_000, THERE) == ["9" * 10_000]
