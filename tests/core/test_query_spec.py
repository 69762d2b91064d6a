"""Reading a question by rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streammem.core.directory import Directory
from streammem.core.events import micros
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.query_spec import QuerySpec, date_named, parse
from streammem.records import ChannelEvent, MembershipEvent, UserEvent

NOW = micros(datetime(2026, 4, 10, tzinfo=UTC))
PEOPLE = Directory(
    [
        UserEvent(workspace="w", id="U1", name="Ana Ruiz", aliases=("Ana", "ana.r"), title="Product Manager"),
        UserEvent(workspace="w", id="U2", name="Will Park", aliases=("Will",)),
        ChannelEvent(workspace="w", id="C1", name="payments-eng", type="public"),
        ChannelEvent(workspace="w", id="C2", name="random", type="public"),
        ChannelEvent(workspace="w", id="C3", name="leads", type="private"),
        ChannelEvent(workspace="w", id="C4", name="lost"),
        MembershipEvent(workspace="w", channel="C3", user="U1"),
    ]
)


def read(text: str, asker: str | None = None) -> QuerySpec:
    return parse(text, asker, PEOPLE, DEFAULT_RULES, NOW)


def test_people_are_found_by_name_alias_and_mention_but_not_by_a_common_word() -> None:
    assert read("What did Ana Ruiz promise?").users == ("U1",)
    assert read("what did @ana.r promise").users == ("U1",)
    assert read("Ana's draft").users == ("U1",)
    assert read("when will it be done?").users == ()
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
    assert not read("Where is my draft?").first_person


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


@pytest.mark.parametrize("text", ["on 3 March", "on March 3rd, 2026", "on 2026-03-03"])
def test_a_date_is_a_day_in_utc(text: str) -> None:
    day = date_named(text, NOW)
    assert day == (micros(datetime(2026, 3, 3, tzinfo=UTC)), micros(datetime(2026, 3, 4, tzinfo=UTC)))


def test_a_date_without_a_year_is_the_last_one_there_was() -> None:
    day = date_named("on 24 December", NOW)
    assert day is not None
    assert day[0] == micros(datetime(2025, 12, 24, tzinfo=UTC))
    assert date_named("on 31 February", NOW) is None


def test_two_entities_are_counted() -> None:
    assert read("Did Ana approve DOC-042?").entities == 2


def test_visibility_fails_closed() -> None:
    assert PEOPLE.visible("C1", None)
    assert not PEOPLE.visible("C3", None)
    assert PEOPLE.visible("C3", "U1")
    assert not PEOPLE.visible("C3", "U2")
    assert not PEOPLE.visible("C4", "U1")  # a type nobody stated is private
    assert not PEOPLE.visible("C9", "U1")  # so is a channel nobody knows
