"""Erasure ends as if it had never been said, whatever the order, the crashes and the imports that follow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.core import erasure
from streammem.core.events import uid
from streammem.core.identifiers import DEFAULT_RULES
from streammem.errors import QueryError
from streammem.flows import forgetting
from streammem.flows.forgetting import Forgotten
from streammem.flows.index import index
from streammem.flows.ingest import ingest
from streammem.flows.structure import grow
from streammem.flows.verify import measure, replay
from streammem.records import (
    ErasureEvent,
    Event,
    GroupEvent,
    LogEntry,
    MessageEvent,
    ReactionEvent,
    TieEvent,
    UserEvent,
)
from tests.flows.worlds import World, shape
from tests.stories import deleted, edited, public, said
from tests.strategies import UIDS, USERS, WORKSPACE, histories, keyed

K = 3

wishes = st.builds(
    lambda uids, users: (tuple(sorted(uids)), tuple(sorted(users))),
    st.sets(st.sampled_from(UIDS), max_size=3),
    st.sets(st.sampled_from(USERS), max_size=1),
)


def erasures(uids: Sequence[str], users: Sequence[str]) -> list[Event]:
    wanted = Forgotten(WORKSPACE, tuple(uids), tuple(users))
    return [*forgetting._of_users(wanted), *forgetting._of_messages(wanted)]


def entries(history: Sequence[Event]) -> list[LogEntry]:
    return [LogEntry(position=i, key=key, event=event) for i, (key, event) in enumerate(keyed(list(history)), 1)]


async def checksum(store: MemoryStructure) -> str:
    return (await measure(store, K, 2)).checksum


async def grown(log: Sequence[LogEntry], size: int = 1000) -> MemoryStructure:
    store = MemoryStructure()
    for start in range(0, len(log), size):
        await grow(log[start : start + size], store, DEFAULT_RULES)
    return store


@given(histories(), wishes, st.randoms(use_true_random=False), st.integers(1, 9))
def test_erasures_may_come_at_any_place_of_the_log(
    history: list[Event], wish: tuple[Any, Any], chance: random.Random, size: int
) -> None:
    log = entries([*history, *erasures(*wish)])
    mixed = [*log, *log[:3]]
    chance.shuffle(mixed)

    async def both() -> tuple[str, str]:
        return await checksum(await grown(mixed, size)), await checksum(await grown(log))

    first, second = asyncio.run(both())
    assert first == second


@given(histories(), wishes)
def test_it_is_as_if_it_had_never_been_said(history: list[Event], wish: tuple[Any, Any]) -> None:
    marks = {erasure.mark_of(e) for e in erasures(*wish) if isinstance(e, ErasureEvent)}
    refused = {
        uid(e.workspace, e.channel.id, e.id)
        for e in history
        if isinstance(e, MessageEvent) and erasure.without(e, marks) is None
    }
    left = [e for event in history if (e := erasure.without(event, marks | refused)) is not None]
    hints = [h for e in history if isinstance(e, MessageEvent) for h in forgetting.canonical.hints(e)]
    stated = [h for h in hints if erasure.without(h, marks) is h]

    async def both() -> tuple[str, str]:
        store = await grown(entries([*history, *erasures(*wish)]))
        never = await grown(entries([*left, *stated, *erasures(*wish)]))
        await never.forbid(sorted(refused))
        return await checksum(store), await checksum(never)

    erased, never = asyncio.run(both())
    assert erased == never


@settings(deadline=None)
@given(histories(), wishes, st.integers(0, 30))
def test_nothing_is_left_and_an_import_of_the_same_brings_nothing_back(
    history: list[Event], wish: tuple[Any, Any], cut: int
) -> None:
    async def forgotten() -> None:
        world = World(k=K)
        await ingest(history[:cut], world.log, world.store.forbidden)
        await world.catch_up()
        wanted = await forgetting.found(WORKSPACE, *wish, world.log)
        await forgetting.forget(wanted, world.log, world.log, world.store)
        await world.catch_up()
        await world.summarize()
        again = await forgetting.forget(wanted, world.log, world.log, world.store)
        assert again.entries == 0
        await ingest(history[:cut], world.log, world.store.forbidden)
        await world.catch_up()
        await world.summarize()
        traces = await forgetting.traces(wanted, world.log, world.store, world.index)
        assert (traces.total, traces.vectors) == (0, 0)
        rebuilt = MemoryStructure()
        await replay(world.log, rebuilt, DEFAULT_RULES)
        assert await checksum(rebuilt) == await checksum(world.store)

    asyncio.run(forgotten())


EFFECTS = (
    *("forbid", "withdraw", "unlink", "strike", "unlearn", "uncache"),
    *("register", "enter", "link", "learn", "redact", "mark_due", "advance"),
)


class Crashes(MemoryStructure):
    """Fails at the nth effect, before or after doing it."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.left, self.after = at, after
        for name in EFFECTS:
            setattr(self, name, self._failing(getattr(self, name)))

    def _failing(self, effect: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise InterruptedError
            outcome = await effect(*arguments)
            if self.left == 0:
                raise InterruptedError
            return outcome

        return call


@given(histories(), wishes, st.integers(1, 60), st.booleans(), st.integers(1, 9))
def test_a_crash_at_any_effect_and_a_restart_forget_the_same(
    history: list[Event], wish: tuple[Any, Any], at: int, after: bool, batch: int
) -> None:
    async def crash_and_resume() -> tuple[str, str, set[Any], set[Any]]:
        log = MemoryLog()
        await ingest(history, log, MemoryStructure().forbidden)
        await forgetting._append(erasures(*wish), log)
        store, calm = Crashes(at, after=after), MemoryStructure()
        for _ in range(2):
            try:
                await replay(log, store, DEFAULT_RULES, after=await store.applied("structure"), batch=batch)
            except InterruptedError:
                continue
            break
        await replay(log, calm, DEFAULT_RULES, batch=batch)
        due = [{d.sequence for d in await s.due(10_000)} for s in (store, calm)]
        return await checksum(store), await checksum(calm), due[0], due[1]

    crashed, calm, due, due_calm = asyncio.run(crash_and_resume())
    assert crashed == calm
    assert due >= due_calm


class KeepsLeaves(MemoryStructure):
    """A planted fault: leaves stay where they are."""

    async def withdraw(self, leaves: Any) -> None:
        return


class ForgetsMarks(MemoryStructure):
    """A planted fault: nothing keeps what was forgotten from coming back."""

    async def forbidden(self, marks: Any) -> set[str]:
        return set()


@pytest.mark.parametrize("fault", [KeepsLeaves, ForgetsMarks])
async def test_the_search_catches_a_planted_fault(fault: type[MemoryStructure]) -> None:
    world = World(store=fault())
    told = [public(), said("1", "the code is 4711"), said("2", "thanks", reply_to="1", user="bo")]
    await world.tell(told)
    wanted = Forgotten("w", ("w/c/1",), ())
    await forgetting.forget(wanted, world.log, world.log, world.store)
    await world.catch_up()
    await world.tell(told)
    assert (await forgetting.traces(wanted, world.log, world.store, world.index)).total > 0


# ------------------------------------------------------------------------------------------------------ by example


async def forget(world: World, *uids: str, users: Sequence[str] = ()) -> Forgotten:
    wanted = await forgetting.found("w", uids, users, world.log)
    done = await forgetting.forget(wanted, world.log, world.log, world.store)
    await world.catch_up()
    await world.summarize()
    return done


async def test_summaries_and_cached_words_do_not_quote_it_any_more() -> None:
    world = World()
    story = [public(), *(said(str(n), f"step {n} of DOC-1 was approved and merged", user="ana") for n in range(1, 12))]
    secret = said("12", "the vault code is 4711, DOC-1 approved", user="bo")
    await world.tell([*story, secret])
    await forget(world, "w/c/12")
    calm = World()
    await calm.tell(story)
    assert shape(world.summaries()) == shape(calm.summaries())
    assert world.points() == calm.points()
    assert not [text async for kind, text in world.store.generated() if kind == "cached" and "4711" in str(text)]


@pytest.mark.parametrize("count", [3, 4, 9, 10, 27, 28])
async def test_a_tree_that_shrinks_keeps_its_root_and_no_node_behind_its_end(count: int) -> None:
    world, calm = World(), World()
    story = [public(), *(said(str(n), f"message {n}") for n in range(count))]
    await world.tell([*story, said(str(count), "the last one")])
    await forget(world, f"w/c/{count}")
    await calm.tell(story)
    assert shape(world.summaries()) == shape(calm.summaries())
    assert world.points() == calm.points()


async def test_every_version_of_it_and_every_reaction_to_it_goes() -> None:
    world = World()
    first = said("1", "hello")
    reaction = ReactionEvent(workspace="w", channel="c", message="1", name="eyes", user="bo")
    done = [public(), first, edited(first, "hello there", 5), deleted(first, 9), reaction, said("2", "other")]
    await world.tell(done)
    assert (await forget(world, "w/c/1")).entries == 4
    assert await world.store.versions(["w/c/1"]) == [()]
    assert await world.store.reactions("w", "c", "1") == []


async def test_replies_stay_as_replies_to_something_that_never_came() -> None:
    world, calm = World(), World()
    root, reply = said("1", "DOC-1 is drafted"), said("2", "looks good", reply_to="1", user="bo")
    await world.tell([public(), root, reply])
    await forget(world, "w/c/1")
    await calm.tell([public(), reply])
    assert shape(world.summaries()) == shape(calm.summaries())
    assert await world.store.sequences("w", "artifact") == []


async def test_a_person_is_forgotten_with_all_that_it_said_and_was() -> None:
    world = World()
    ada = UserEvent(workspace="w", id="ana", version="5", name="Ada Quill")
    group = GroupEvent(workspace="w", id="S1", name="ops", members=("ana", "bo"), version="2")
    reaction = ReactionEvent(workspace="w", channel="c", message="2", name="eyes", user="ana")
    await world.tell(
        [public(), ada, group, said("1", "mine"), said("2", "yours", user="bo", mentions=["ana"]), reaction]
    )
    done = await forget(world, users=["ana"])
    assert done.messages == ("w/c/1",)
    directory = await world.directory("w")
    assert "ana" not in directory.users
    assert directory.groups["S1"].members == ("bo",)
    traces = await forgetting.traces(done, world.log, world.store, world.index)
    assert (traces.total, traces.mentions) == (0, 1)
    assert [e.text for e in (await world.ask("mine or yours?")).evidence] == ["yours"]


async def test_a_person_with_two_ids_is_forgotten_under_both() -> None:
    store = MemoryStructure()
    await store.learn(
        [
            UserEvent(workspace="w", id="U1", name="Ada", version="1"),
            UserEvent(workspace="w", id="aad-1", name="Ada Quill", version="1"),
            TieEvent(workspace="w", entity="user", id="U1", same_as="aad-1", version="1"),
        ]
    )
    for name in ("U1", "aad-1", "Ada", "ada quill"):
        assert (await forgetting.meant("w", (), [name], store)).users == ("U1", "aad-1")


async def test_an_id_that_nobody_knows_or_that_several_bear_is_refused() -> None:
    world = World()
    await world.tell([public(), public("d"), said("1", "here"), said("1", "there", channel="d")])
    with pytest.raises(QueryError, match="2 messages"):
        await forgetting.meant("w", ["1"], (), world.store)
    with pytest.raises(QueryError, match="no message"):
        await forgetting.meant("w", ["7"], (), world.store)
    with pytest.raises(QueryError, match="no user"):
        await forgetting.meant("w", (), ["zoe"], world.store)
    assert (await forgetting.meant("w", ["w/d/1"], (), world.store)).messages == ("w/d/1",)


async def test_an_erasure_in_an_import_is_refused() -> None:
    log, store = MemoryLog(), MemoryStructure()
    done = await ingest([ErasureEvent(workspace="w", entity="user", id="ana")], log, store.forbidden)
    assert [r.reason for r in done.refusals] == ["not-importable"]


async def test_what_was_indexed_while_it_was_being_forgotten_does_not_stay() -> None:
    world = World()
    await ingest([public(), said("1", "secret")], world.log, world.store.forbidden)
    await replay(world.log, world.store, DEFAULT_RULES)
    before = await world.log.read({}, 10)
    await world.store.forbid(["w/c/1"])
    await index(before, world.store, world.index, world.embedder, DEFAULT_RULES)
    assert await world.index.traces("w", ["w/c/1"]) == 0


def test_marks_name_messages_and_users_without_mixing_them_up() -> None:
    user = ErasureEvent(workspace="w", entity="user", id="c/1")
    message = ErasureEvent(workspace="w", entity="message", channel="user", id="c/1")
    assert erasure.mark_of(user) != erasure.mark_of(message)
    assert msgspec.json.decode(msgspec.json.encode(user), type=ErasureEvent) == user
