"""A workspace grouped into artifacts: from public messages alone, the same for any order, gone with what is gone."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.core.artifacts import named_in, stands
from streammem.core.directory import Directory
from streammem.core.events import uid
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Grouping
from streammem.core.registers import winner
from streammem.flows import forgetting
from streammem.flows.artifacts import (
    NOTHING,
    Grouper,
    Groupings,
    begin,
    compare,
    group_due,
    make,
    mark_groups,
    overview,
    why,
)
from streammem.flows.forgetting import Forgotten
from streammem.flows.verify import replay
from streammem.ports import GROUPS
from streammem.records import Artifacts, Event, Version
from tests.flows.worlds import World
from tests.stories import deleted, edited, private, public, said
from tests.strategies import WORKSPACE, histories

PLAN = said("1", "drafted DOC-42 - payout ledger rollout plan")
PATCH = said("2", "PR #9 implements DOC-42", user="bo")
LATER = said("3", "merged the payout ledger rollout plan", user="cy")
THANKS = said("4", "thanks!", user="ana", reply_to="3")
STORY = [public("c"), PLAN, PATCH, LATER, THANKS]
NAMED, ANSWER = uid("w", "c", "3"), uid("w", "c", "4")


def grouper(world: World, **rest) -> Grouper:
    return Grouper(world.store, world.index, DEFAULT_RULES, Grouping(), clock=lambda: world.now, **rest)


async def told(*events: Event) -> tuple[World, Artifacts]:
    world = World()
    await world.place(events)
    await group_due(grouper(world))
    return world, await stored(world)


async def stored(world: World, workspace: str = "w") -> Artifacts:
    return await world.store.grouping(workspace) or Artifacts("")


async def seen(world: World) -> dict[str, Version]:
    uids = [uid("w", c, str(n)) for c in ("c", "p") for n in range(1, 9)]
    return {u: winner(known) for u, known in zip(uids, await world.store.versions(uids), strict=True) if known}


def joined(made: Artifacts) -> dict[str, str]:
    return {j.uid: j.why for j in made.joined}


async def test_what_is_placed_is_grouped_and_nothing_is_due_after_it():
    world, made = await told(*STORY)
    assert [(t.one, t.other, t.why) for t in made.ties] == [("DOC-42", "PR-9", "said")]
    assert joined(made) == {NAMED: "named", ANSWER: "answer"}
    assert made.channels == ("c",)
    assert await group_due(grouper(world)) == 0
    assert (await world.store.counts())[GROUPS] == 0


async def test_every_batch_marks_its_workspaces():
    world, _ = await told(*STORY)
    await world.place([said("5", "DOC-50 is new"), said("6", "hello", workspace="v")])
    due = await world.store.due(9, 0.0, 0.0, GROUPS)
    assert sorted(d.sequence.workspace for d in due) == ["v", "w"]


async def test_nothing_is_made_from_what_not_everybody_may_read():
    plan = said("1", "drafted DOC-42 - payout ledger rollout plan", channel="p")
    tie = said("5", "PR #9 implements DOC-42", channel="p")
    _, made = await told(public("c"), *private("p", "ana"), plan, tie, said("6", "DOC-42 again"), LATER)
    assert (made.joined, made.ties, made.aliases, made.channels) == ((), (), (), ("c",))


async def test_a_channel_that_nobody_described_is_private():
    _, made = await told(PLAN, PATCH, LATER)
    assert made == Artifacts("w", digest=made.digest)


async def test_a_channel_that_turns_private_hides_at_once_what_it_derived():
    world, _ = await told(*STORY)
    groupings = Groupings(world.store)
    assert (await groupings.of("w", await world.directory("w"))).joined("DOC-42")
    await world.place(private("c", "ana", version="9"))
    assert await groupings.of("w", await world.directory("w")) is NOTHING
    await group_due(grouper(world))
    assert (await stored(world)).joined == ()


@pytest.mark.parametrize("change", [edited(PLAN, "drafted DOC-42", 9), deleted(PLAN, 9)])
async def test_an_edit_or_deletion_hides_what_rested_on_it_before_anything_is_grouped_again(change):
    world, made = await told(*STORY)
    facts = [*made.joined]
    known = await seen(world)
    assert all(stands(fact, known.get) for fact in facts)
    await world.place([change])
    standing = {u: v for u, v in (await seen(world)).items() if not v.deleted}
    assert not any(stands(fact, standing.get) for fact in facts)
    await group_due(grouper(world))
    assert (await stored(world)).joined == ()


async def test_groupings_are_read_once_for_each_change():
    world, _ = await told(*STORY)
    groupings, directory = Groupings(world.store), await world.directory("w")
    first = await groupings.of("w", directory)
    assert await groupings.of("w", directory) is first
    await world.place([said("5", "the payout ledger rollout plan once more", user="cy")])
    assert await groupings.of("w", directory) is first
    await group_due(grouper(world))
    assert len((await groupings.of("w", directory)).joined("DOC-42")) == 3


async def test_a_workspace_without_a_grouping_reads_as_nothing():
    world = World()
    reading = await Groupings(world.store).of("w", Directory())
    assert reading.identifiers_of("DOC-1") == ("DOC-1",)
    assert reading.joined("DOC-1") == reading.joins_of("x") == []


# ------------------------------------------------------------------------------------------------------- forgetting


async def forget(world: World, *messages: str) -> Forgotten:
    wanted = Forgotten("w", tuple(uid("w", "c", m) for m in messages), ())
    await forgetting.forget(wanted, world.log, world.log, world.store)
    await replay(world.log, world.store, DEFAULT_RULES, after=await world.store.applied("structure"))
    return wanted


async def test_forgetting_leaves_no_grouping_that_names_it():
    world, made = await told(*STORY)
    assert NAMED in named_in(made)
    wanted = await forget(world, "3")
    assert await world.store.grouping("w") is None
    await world.catch_up()
    await group_due(grouper(world))
    assert NAMED not in named_in(await stored(world))
    assert (await forgetting.traces(wanted, world.log, world.store, world.index)).artifacts == 0


async def test_what_was_being_grouped_while_something_is_forgotten_is_not_kept():
    world, _ = await told(*STORY)
    begun = await make("w", grouper(world))
    await forget(world, "1")
    assert not await world.store.group(*begun)
    assert await world.store.grouping("w") is None


async def test_a_grouping_that_still_names_what_is_forgotten_is_found():
    world, made = await told(*STORY)
    wanted = await forget(world, "3")
    await world.store.group(made, await world.store.grouping_generation("w"))
    assert (await forgetting.traces(wanted, world.log, world.store, world.index)).artifacts > 0


# ------------------------------------------------------------------------------------------------------ convergence


@settings(max_examples=40, deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.integers(1, 9))
def test_any_order_and_batching_gives_the_same_grouping(history: list[Event], chance: random.Random, batch: int):
    async def grown(events: list[Event], size: int) -> Artifacts | None:
        world = World()
        for start in range(0, len(events), size):
            await world.place(events[start : start + size])
            if chance.random() < 0.3:
                await group_due(grouper(world))
        await group_due(grouper(world))
        return await world.store.grouping(WORKSPACE)

    async def both() -> None:
        shuffled = list(history)
        chance.shuffle(shuffled)
        assert await grown(history, 99) == await grown(shuffled, batch)

    asyncio.run(both())


async def test_verifying_finds_a_grouping_that_is_not_what_the_messages_say():
    world, made = await told(*STORY)
    assert await compare(grouper(world)) == (1, ())
    wrong = msgspec.structs.replace(made, joined=made.joined[1:])
    await world.store.group(wrong, await world.store.grouping_generation("w"))
    assert await compare(grouper(world)) == (1, ("w",))


async def test_a_grouping_that_is_due_anyhow_is_no_fault():
    world, _ = await told(*STORY)
    await world.place([said("5", "DOC-50 is new")])
    assert await compare(grouper(world)) == (0, ())


async def test_a_memory_from_before_there_were_groupings_is_grouped_once():
    world = World()
    await world.place(STORY)
    await world.store.settle(await world.store.due(9, 0.0, 0.0, GROUPS), GROUPS)
    assert await group_due(grouper(world)) == 0
    await begin(world.store)
    assert await group_due(grouper(world)) == 1
    await begin(world.store)
    assert await group_due(grouper(world)) == 0


async def test_a_workspace_is_grouped_by_one_process_at_a_time():
    world = World()
    await world.place(STORY)
    assert await world.store.due(1, world.now, 60.0, GROUPS)
    assert await group_due(grouper(world)) == 0
    world.now += 61.0
    assert await group_due(grouper(world)) == 1


async def test_a_mark_that_comes_while_a_workspace_is_grouped_is_not_lost():
    world = World()
    await world.place(STORY)
    (due,) = await world.store.due(1, world.now, 60.0, GROUPS)
    await mark_groups(["w"], world.store)
    await world.store.settle([due], GROUPS)
    assert await group_due(grouper(world)) == 1


# --------------------------------------------------------------------------------------------------------- telling


async def test_it_is_told_why_a_message_belongs_and_why_identifiers_are_one():
    world, made = await told(*STORY)
    reading = await Groupings(world.store).of("w", await world.directory("w"))
    known = await seen(world)
    assert why(reading.joins_of(NAMED)[0], reading, known.get) == "DOC-42: alias 'payout ledger rollout plan'"
    assert why(reading.joins_of(ANSWER)[0], reading, known.get) == "DOC-42: it answers a message about it"
    assert why(made.ties[0], reading, known.get) == "DOC-42 and PR-9: a message says so"


async def test_words_of_an_alias_are_not_told_to_who_does_not_see_the_message_as_it_was():
    world, _ = await told(*STORY)
    reading = await Groupings(world.store).of("w", await world.directory("w"))
    assert "ledger" not in why(reading.joins_of(NAMED)[0], reading, {}.get)


async def test_a_grouping_is_counted_with_examples():
    world, _ = await told(*STORY)
    found = await overview("w", world.store)
    assert found.counts == {
        "artifacts_of_several_identifiers": 1,
        "identifiers_in_them": 2,
        "borderline_pairs_kept_apart": 0,
        "aliases": 1,
        "joined_by_alias": 1,
        "joined_by_going_on": 0,
        "joined_by_answering": 1,
    }
    assert found.aliases == ("DOC-42: payout ledger rollout plan",)
    assert found.merged == ("DOC-42 and PR-9: a message says so",)
