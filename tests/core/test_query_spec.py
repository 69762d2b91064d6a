"""Reading a question by rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.directory import Directory
from streammem.core.events import micros
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.query_spec import QuerySpec, found, parse, within
from streammem.records import ChannelEvent, MembershipEvent, UserEvent

NOW = micros(datetime(2026, 4, 10, tzinfo=UTC))
PEOPLE = Directory(
    [
        UserEvent(
            workspace="w",
            id="U1",
            name="Ana Ruiz",
            aliases=("Ana", "ana.r"),
            title="Product Manager",
            manager="U2",
            timezone="UTC-05:00",
        ),
        UserEvent(workspace="w", id="U2", name="Will Park", aliases=("Will",)),
        UserEvent(workspace="w", id="U5", name="Kit Sol", manager="U2"),
        ChannelEvent(workspace="w", id="C1", name="payments-eng", type="public"),
        ChannelEvent(workspace="w", id="C2", name="random", type="public"),
        ChannelEvent(workspace="w", id="C3", name="leads", type="private"),
        ChannelEvent(workspace="w", id="C4", name="lost"),
        MembershipEvent(workspace="w", channel="C3", user="U1"),
    ]
)


def read(text: str, asker: str | None = None, now: int = NOW) -> QuerySpec:
    return parse(text, asker, PEOPLE, DEFAULT_RULES, now)


def test_people_are_found_by_name_alias_and_mention_but_not_by_a_common_word() -> None:
    assert read("What did Ana Ruiz promise?").users == ("U1",)
    assert read("what did @ana.r promise").users == ("U1",)
    assert read("Ana's draft").users == ("U1",)
    assert read("when will it be done?").users == ()
    assert read("Will it be done?").users == ()
    assert read("did Will answer?").users == ("U2",)


def test_channels_are_found_by_hash_or_by_a_telling_name() -> None:
    assert read("what happened in #random?").channels == ("C2",)
    assert read("decisions in payments-eng").channels == ("C1",)
    assert read("a random thing").channels == ()


def test_the_asker_stands_for_the_first_person() -> None:
    mine = read("Where is my draft?", asker="U1")
    assert mine.first_person
    assert mine.users == ("U1",)
    assert "Ana Ruiz" in mine.lexical
    assert "Product Manager" in mine.lexical
    assert not read("Where is my draft?").first_person


def test_whoever_only_asks_is_not_asked_about() -> None:
    asked = read("Tell me who approved it", asker="U1")
    assert not asked.first_person
    assert asked.users == ()
    assert asked.lexical == asked.text


def test_we_are_the_asker_s_team_where_the_directory_knows_one() -> None:
    assert read("what have we decided?", asker="U1").team == ("U2", "U5")
    assert read("what have we decided?").team == ()
    assert read("what was decided?", asker="U1").team == ()
    assert not read("what does my team say?", asker="U1").first_person


def test_my_manager_is_whom_the_asker_reports_to() -> None:
    asked = read("What did my manager ask for?", asker="U1")
    assert asked.users == ("U2",)
    assert not asked.first_person
    assert "Will Park" in asked.lexical
    assert read("What did my manager ask for?", asker="U2").users == ()


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("what is the current price", "latest"),
        ("what was said before the launch", "before"),
        ("on 3 March", "on"),
        ("hi", ""),
    ],
)
def test_temporal_cues_are_read(text: str, cue: str) -> None:
    assert read(text).cue == cue


def test_a_day_is_one_of_the_asker_s_zone_and_is_searched_for_as_it_is_called_there() -> None:
    utc, west = read("what was said on 3 March?"), read("what was said on 3 March?", asker="U1")
    assert utc.span == (micros(datetime(2026, 3, 3, tzinfo=UTC)), micros(datetime(2026, 3, 4, tzinfo=UTC)))
    assert west.span == (micros(datetime(2026, 3, 3, 5, tzinfo=UTC)), micros(datetime(2026, 3, 4, 5, tzinfo=UTC)))
    assert utc.lexical.endswith(" 2026-03-03")
    assert west.lexical.endswith(" 2026-03-03")
    assert read("what was said in March?").lexical == "what was said in March?"


def test_now_is_when_the_question_is_asked() -> None:
    late = NOW + 2 * 3_600_000_000
    assert read("yesterday", now=late).span == (NOW - 86_400_000_000, NOW)
    assert "2026-04-08" in read("yesterday", asker="U1", now=late).lexical  # still the 9th in the west


def test_two_entities_are_counted() -> None:
    assert read("Did Ana approve DOC-042?").entities == 2


def test_whoever_is_called_otherwise_than_by_name_is_searched_for_by_name() -> None:
    assert read("What did the Product Manager say?").lexical.endswith(" Ana Ruiz")
    assert read("What did Ana Ruiz say?").lexical == "What did Ana Ruiz say?"


def test_a_loose_spelling_counts_once_the_memory_knows_it() -> None:
    asked = read("who approved doc 42?")
    assert (asked.identifiers, asked.entities) == ((), 0)
    assert {"DOC-42", "DOC-042"} <= set(asked.spellings)
    known = found(asked, {"DOC-042", "DOC-7"}, PEOPLE)
    assert known.identifiers == known.spellings == ("DOC-042",)
    assert known.lexical.endswith(" DOC-042")
    forgotten = found(asked, {"DOC-7"}, PEOPLE)
    assert (forgotten.identifiers, forgotten.named, forgotten.lexical) == ((), (), asked.text)


def test_what_is_written_is_meant_unless_the_memory_does_not_know_it() -> None:
    asked = read("who approved DOC-42?")
    assert asked.identifiers == ("DOC-42",)
    both = found(asked, {"DOC-42", "DOC-042"}, PEOPLE)
    assert (both.identifiers, both.spellings) == (("DOC-42",), ("DOC-42",))
    assert found(asked, {"DOC-042"}, PEOPLE).identifiers == ("DOC-42", "DOC-042")


def test_a_channel_that_the_asker_does_not_read_steers_nothing() -> None:
    asked = read("what happened in #leads and #random?")
    assert asked.channels == ("C3", "C2")
    seen = within(asked, frozenset({"C1", "C2"}))
    assert seen.channels == ("C2",)
    assert [n.ids for n in seen.named] == [("C2",)]
    assert within(asked, None) == asked


_WORDS = """
    Ana Anna Ruiz Will will Park Wil my me we who on last Monday 3 March 2026-02-31 doc 42 DOC-42 #random #radnom in
    January the Product Manager , . ? ' 明日 yesterday ago two weeks before after v2.1 7/3 I \N{PILE OF POO}
"""


questions = st.lists(st.sampled_from(_WORDS.split()), max_size=14)


@given(questions, st.sampled_from((None, "U1", "U9")), st.integers(0, 4 * 10**15))
def test_any_question_is_read_and_always_alike(words: list[str], asker: str | None, now: int) -> None:
    text = " ".join(words)
    spec = read(text, asker, now)
    assert spec == read(text, asker, now)
    assert spec.span is None or spec.span[0] < spec.span[1]
    assert spec.lexical.startswith(text)
    assert set(spec.users) <= {"U1", "U2", "U5", "U9"}
    assert all(text[n.at[0] : n.at[1]] == n.words for n in spec.named if n.how != "relation")


def test_visibility_fails_closed() -> None:
    assert PEOPLE.visible("C1", None)
    assert not PEOPLE.visible("C3", None)
    assert PEOPLE.visible("C3", "U1")
    assert not PEOPLE.visible("C3", "U2")
    assert not PEOPLE.visible("C4", "U1")  # a type nobody stated is private
    assert not PEOPLE.visible("C9", "U1")  # so is a channel nobody knows
