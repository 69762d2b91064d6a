"""What channels are called, and how their names are written."""

from __future__ import annotations

from typing import Any

from streammem.core.directory import Directory
from streammem.records import ChannelEvent, ChannelType, DirectoryEvent, MembershipEvent, TieEvent, UserEvent


def channel(name: str | None = None, type: ChannelType = "dm", **rest: Any) -> ChannelEvent:  # noqa: A002
    return ChannelEvent(workspace="w", id=rest.pop("id", "D1"), name=name, type=type, **rest)


def user(id_: str, name: str, **rest: Any) -> UserEvent:
    return UserEvent(workspace="w", id=id_, name=name, **rest)


def joined(*users: str, channel: str = "D1", **rest: Any) -> list[DirectoryEvent]:
    return [MembershipEvent(workspace="w", channel=channel, user=one, **rest) for one in users]


def test_a_direct_conversation_without_a_name_is_called_by_who_is_in_it() -> None:
    people = [user("U1", "Eve Stone"), user("U2", "Ada"), *joined("U1", "U2", "U3")]
    assert Directory([channel(), *people]).channel_name("D1") == "Ada, Eve Stone, U3"
    assert Directory([channel(type="group_dm"), *people]).channel_name("D1") == "Ada, Eve Stone, U3"
    assert Directory([channel("lunch", "group_dm"), *people]).channel_name("D1") == "lunch"
    assert Directory([channel(type="private"), *people]).channel_name("D1") == "D1"


def test_without_members_it_is_called_by_its_id_and_of_many_six_are_named() -> None:
    assert Directory([channel()]).channel_name("D1") == "D1"
    assert Directory([channel(), *joined("U1", present=False)]).channel_name("D1") == "D1"
    assert Directory([channel(), *joined(*"fedcba")]).channel_name("D1") == "a, b, c, d, e, f"
    assert Directory([channel(), *joined(*"gfedcba")]).channel_name("D1") == "a, b, c, d, e, f, …"


def test_tied_ids_of_a_person_are_named_once_and_of_a_channel_are_one_conversation() -> None:
    tie = TieEvent(workspace="w", entity="channel", id="D2", same_as="D1", version="1")
    facts = [channel(), tie, user("U2", "Ada", same_as=("U1",)), *joined("U1"), *joined("U2", "U3", channel="D2")]
    named = Directory(facts)
    assert [named.channel_name(one) for one in ("D1", "D2")] == ["Ada, U3", "Ada, U3"]
    assert named.direct_of("U1") == {"D1", "D2"} == named.direct_channels


def test_only_channels_that_people_enter_are_written_with_a_number_sign() -> None:
    facts = [channel(), *joined("U1"), channel("ops", "public", id="C1"), channel("lunch", "group_dm", id="D2")]
    named = Directory(facts)
    assert [named.room(one) for one in ("D1", "D2", "C1", "C9")] == ["U1", "lunch", "#ops", "#C9"]


def test_a_conversation_is_found_by_the_names_of_several_but_not_by_that_of_one() -> None:
    both = Directory([channel(), user("U1", "Eve"), user("U2", "Ada"), *joined("U1", "U2")])
    assert both.channel_names["ada, eve"] == {"D1"}
    assert "eve" not in Directory([channel(), user("U1", "Eve"), *joined("U1")]).channel_names
