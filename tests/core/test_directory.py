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


# --------------------------------------------------------------------------------------------------- people


def test_a_team_is_whom_one_reports_to_with_all_who_report_there_or_to_oneself() -> None:
    people = [user("U0", "Boss"), user("U1", "Ada", manager="U0"), user("U2", "Eve", manager="U0")]
    people += [
        user("U3", "Bo", manager="U1"),
        user("U4", "Cy", manager="U3"),
        user("U5", "Gone", manager="U0", present=False),
    ]
    org = Directory(people)
    assert org.team_of("U1") == {"U0", "U2", "U3"}
    assert org.team_of("U0") == {"U1", "U2"}
    assert org.team_of("U9") == frozenset()
    assert [org.manager_of(one) for one in ("U1", "U0", "U9")] == ["U0", "", ""]


def test_a_person_with_several_ids_is_one_in_its_team_and_has_one_zone() -> None:
    people = [user("U1", "Ada", manager="M2"), user("U2", "Ada", same_as=("U1",), timezone="Asia/Tokyo")]
    org = Directory([*people, user("M1", "Boss"), user("M2", "Boss", same_as=("M1",)), user("U3", "Eve", manager="M1")])
    assert org.team_of("U2") == {"M1", "U3"} == org.team_of("U1")
    assert org.user_zone("U1") == org.user_zone("U2") == "Asia/Tokyo"
    assert org.user_zone("U3") == ""


def test_titles_are_of_people_who_are_there_and_roles_of_several_words_count_too() -> None:
    org = Directory(
        [
            user("U1", "Ada", title="QA  Lead", role="lead"),
            user("U2", "Eve", title="QA Lead", present=False),
            user("U3", "Bo", role="Head of Data"),
            user("B1", "Bot", title="QA Lead", kind="bot"),
        ]
    )
    assert org.titles == {"qa lead": {"U1"}, "head of data": {"U3"}}


def test_first_names_are_of_people_with_several_names() -> None:
    org = Directory([user("U1", "Ada Stone"), user("U2", "Ada"), user("B1", "Ada Bot", kind="bot")])
    assert org.first_names == {"ada": {"U1"}}
