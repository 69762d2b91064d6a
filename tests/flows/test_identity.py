"""One person with several ids, and a channel whose id changed: what the directory ties together reads as one."""

from __future__ import annotations

from streammem.core.directory import Directory
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    GroupEvent,
    MembershipEvent,
    TieEvent,
    UserEvent,
)
from tests.flows.worlds import World
from tests.stories import deleted, private, public, said


def tied(entity: str, one: str, other: str, version: str = "5", *, present: bool = True) -> TieEvent:
    return TieEvent(workspace="w", entity=entity, id=one, same_as=other, version=version, present=present)  # type: ignore[arg-type]


def user(name: str, called: str) -> UserEvent:
    return UserEvent(workspace="w", id=name, name=called, version="1")


def named(entity: str, one: str, attribute: str, value: str, version: str) -> AttributeEvent:
    return AttributeEvent(workspace="w", entity=entity, id=one, attribute=attribute, value=value, version=version)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ people


async def test_who_asks_reads_the_channels_of_all_its_ids() -> None:
    world = World()
    await world.tell(
        [
            user("U1", "Ada"),
            user("aad-1", "Ada Quill"),
            *private("slack-room", "U1"),
            *private("teams-room", "aad-1"),
            said("1", "the budget is 40k", user="bo", channel="slack-room"),
            said("2", "the budget is 50k now", user="bo", channel="teams-room"),
        ]
    )
    assert [e.id for e in (await world.ask("the budget", asker="U1")).evidence] == ["1"]
    await world.tell([tied("user", "U1", "aad-1")])
    for asker in ("U1", "aad-1", "Ada"):
        assert {e.id for e in (await world.ask("the budget", asker=asker)).evidence} == {"1", "2"}
    await world.tell([tied("user", "U1", "aad-1", "9", present=False)])
    assert [e.id for e in (await world.ask("the budget", asker="U1")).evidence] == ["1"]


async def test_a_question_about_a_person_goes_to_the_trees_of_all_its_ids() -> None:
    world = World()
    told = [said(str(n), f"note {n}", user="U1" if n % 2 else "aad-1") for n in range(8)]
    await world.tell([public(), user("U1", "Ada"), user("aad-1", "Ada Quill"), tied("user", "aad-1", "U1"), *told])
    answer = await world.ask("what did Ada say?")
    assert {e.user for e in answer.evidence} == {"U1", "aad-1"}
    assert {e.user_name for e in answer.evidence} <= {"Ada", "Ada Quill"}


def test_ties_are_followed_through_and_have_no_direction() -> None:
    facts = [tied("user", "a", "b"), tied("user", "c", "b"), tied("user", "x", "y")]
    for some in (facts, facts[::-1]):
        directory = Directory(some)
        assert {directory.person(one) for one in "abc"} == {"a"}
        assert directory.ids_of("c") == ("a", "b", "c")
        assert directory.ids_of("y") == ("x", "y")
        assert directory.person("z") == "z"


# ---------------------------------------------------------------------------------------------------------- channels


MOVED = [
    ChannelEvent(workspace="w", id="G1", name="ops", type="private", version="1"),
    MembershipEvent(workspace="w", channel="G1", user="ana", version="1"),
    ChannelEvent(workspace="w", id="C9", name="ops-new", type="private", version="2"),
    tied("channel", "C9", "G1"),
]


async def test_a_channel_that_changed_its_id_is_one_channel() -> None:
    world = World()
    root = said("1", "DOC-1 is drafted", channel="G1")
    reply = said("2", "looks good to me", channel="C9", user="bo", reply_to="1")
    await world.tell([*MOVED, root, reply])
    answer = await world.ask("who said DOC-1 looks good?", asker="ana", channels=("ops-new",))
    assert {(e.id, e.channel, e.channel_name) for e in answer.evidence} == {
        ("1", "C9", "ops-new"),
        ("2", "C9", "ops-new"),
    }
    assert (await world.ask("DOC-1")).evidence == ()
    former = await world.ask("who said DOC-1 looks good?", asker="ana", channels=("G1",))
    assert {e.id for e in former.evidence} == {"1", "2"}


async def test_a_message_that_came_under_both_ids_is_found_once_and_its_last_version_counts() -> None:
    world = World()
    before = said("1", "the launch is in march", channel="G1")
    after = said("1", "the launch is in may", channel="C9", version="7")
    await world.tell([*MOVED, before, after])
    assert [e.text for e in (await world.ask("the launch", asker="ana")).evidence] == ["the launch is in may"]
    await world.tell([deleted(after, 60)])
    assert (await world.ask("the launch", asker="ana")).evidence == ()


async def test_a_reply_across_the_change_is_a_bridge_to_its_root() -> None:
    world = World()
    noise = [said(str(n), f"something else entirely {n}", channel="d", user="cy") for n in range(10, 40)]
    root = said("1", "shall we move the archive to cold storage?", channel="G1")
    reply = said("2", "yes", channel="C9", user="bo", reply_to="1")
    await world.tell([*MOVED, public("d"), *noise, root, reply])
    answer = await world.ask("move the archive to cold storage", asker="ana", limit=4)
    assert {"1", "2"} <= {e.id for e in answer.evidence}


def test_a_former_id_follows_the_newest_change_and_a_circle_counts_for_nothing() -> None:
    chain = Directory([tied("channel", "B", "A", "1"), tied("channel", "C", "B", "2"), tied("channel", "X", "A", "0")])
    assert [chain.in_use(c) for c in "ABC"] == ["C", "C", "C"]
    assert chain.ids_of_channel("B") == ("C", "A", "B")
    circle = Directory([tied("channel", "B", "A"), tied("channel", "A", "B")])
    assert [circle.in_use(c) for c in "AB"] == ["A", "B"]


async def test_a_channel_that_becomes_private_under_a_new_id_is_hidden_at_once() -> None:
    world = World()
    told = [said(str(n), f"the plan is {n}", channel="A") for n in range(5)]
    await world.tell([public("A"), *told])
    assert (await world.ask("the plan")).evidence
    await world.tell(
        [ChannelEvent(workspace="w", id="B", name="b", type="private", version="8"), tied("channel", "B", "A")]
    )
    answer = await world.ask("the plan")
    assert (answer.evidence, answer.headers) == ((), ())


# ------------------------------------------------------------------------------------------------------------ guests


async def test_a_guest_reads_only_the_channels_that_it_is_a_member_of() -> None:
    world = World()
    guest = UserEvent(workspace="w", id="eve", name="Eve", kind="external", version="1")
    joined = MembershipEvent(workspace="w", channel="d", user="eve", version="1")
    told = [said(str(n), f"the plan is {n}", channel="cd"[n % 2]) for n in range(8)]
    await world.tell([public("c"), public("d"), guest, joined, *told])
    answer = await world.ask("the plan", asker="eve")
    assert {e.channel for e in answer.evidence} == {"d"}
    assert answer.headers == ()
    assert answer.hidden_channels == 1
    assert {e.channel for e in (await world.ask("the plan", asker="ana")).evidence} == {"c", "d"}
    await world.tell([tied("user", "eve", "zoe"), user("zoe", "Zoe")])
    assert {e.channel for e in (await world.ask("the plan", asker="eve")).evidence} == {"c", "d"}


# --------------------------------------------------------------------------------------------------- single attributes


def test_a_single_attribute_stands_over_an_older_state_and_under_a_newer_one() -> None:
    state = ChannelEvent(workspace="w", id="C1", name="ops", type="public", topic="t", version="5")
    assert Directory([state, named("channel", "C1", "name", "ops-new", "6")]).channel_name("C1") == "ops-new"
    assert Directory([state, named("channel", "C1", "name", "older", "4")]).channel_name("C1") == "ops"
    assert Directory([named("channel", "C1", "name", "only", "4")]).channel_name("C1") == "only"
    renamed = Directory([state, named("channel", "C1", "name", "ops-new", "6")])
    assert (renamed.is_public("C1"), renamed.channels["C1"].topic) == (True, "t")


async def test_a_channel_that_turns_private_by_an_attribute_is_hidden_at_once() -> None:
    world = World()
    await world.tell([public(), *(said(str(n), f"the plan is {n}") for n in range(5))])
    await world.tell([named("channel", "c", "type", "private", "6")])
    answer = await world.ask("the plan")
    assert (answer.evidence, answer.headers) == ((), ())
    assert Directory([named("channel", "c", "type", "nonsense", "6")]).is_public("c") is False


async def test_text_shows_names_where_a_product_tells_only_ids() -> None:
    world = World()
    group = GroupEvent(workspace="w", id="S0OPS1234", name="ops-team", version="1")
    told = said("1", "thanks @U0ADA1234 and @S0OPS1234, see #C0GEN1234 (not @U0ADA12345678 or me@U0ADA1234)")
    people = [user("U0ADA1234", "ada"), ChannelEvent(workspace="w", id="C0GEN1234", name="general", version="1")]
    await world.tell([public(), *people, group, told])
    (found,) = (await world.ask("thanks")).evidence
    assert found.text == "thanks @ada and @ops-team, see #general (not @U0ADA12345678 or me@U0ADA1234)"
