"""Erasure ends as if it had never been said, whatever the order, the crashes and the imports that follow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence as Many
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import erasure, routing
from streammem.core import events as canonical
from streammem.core.events import uid
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.registers import fact_key, number
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
    Forwarded,
    GroupEvent,
    Leaf,
    LogEntry,
    MessageEvent,
    NodeId,
    Paid,
    ReactionEvent,
    Sender,
    Sequence,
    Summary,
    TieEvent,
    UserEvent,
    Wording,
)
from tests.embedding import HashingEmbedder
from tests.flows.crashes import EFFECTS, Crashes
from tests.flows.worlds import World, shape
from tests.stories import at, deleted, edited, public, said
from tests.strategies import UIDS, USERS, WORKSPACE, histories, keyed

K = 3

wishes = st.builds(
    lambda uids, users: (tuple(sorted(uids)), tuple(sorted(users))),
    st.sets(st.sampled_from(UIDS), max_size=3),
    st.sets(st.sampled_from(USERS), max_size=1),
)


def erasures(uids: Many[str], users: Many[str]) -> list[Event]:
    wanted = Forgotten(WORKSPACE, tuple(uids), tuple(users))
    return [*forgetting._of_users(wanted), *forgetting._of_messages(wanted)]


def decided(history: Many[Event], users: Many[str]) -> bool:
    """Whether no fact that names these users beside others has the version of another fact of its register.

    Which of two facts of one version stands is by their content, and what is left of one has another.
    """
    marks = {erasure.user_mark(WORKSPACE, user) for user in users}
    facts = canonical.facts_of(history)
    partly = [f for f in facts if (left := erasure.without(f, marks)) is not None and left is not f]
    return not [
        f
        for f in partly
        for g in facts
        if g != f and (fact_key(f), number(f.version)) == (fact_key(g), number(g.version))
    ]


def entries(history: Many[Event]) -> list[LogEntry]:
    return [LogEntry(position=i, key=key, event=event) for i, (key, event) in enumerate(keyed(list(history)), 1)]


async def checksum(store: MemoryStructure) -> str:
    return (await measure(store, K, 2)).checksum


async def grown(log: Many[LogEntry], size: int = 1000) -> MemoryStructure:
    store = MemoryStructure()
    for start in range(0, len(log), size):
        await grow(log[start : start + size], store, DEFAULT_RULES)
    return store


@given(histories(), wishes, st.randoms(use_true_random=False), st.integers(1, 9))
def test_erasures_may_come_at_any_place_of_the_log(
    history: list[Event], wish: tuple[Any, Any], chance: random.Random, size: int
) -> None:
    assume(decided(history, wish[1]))
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


@given(histories(), wishes, st.integers(1, 60), st.booleans(), st.integers(1, 9))
def test_a_crash_at_any_effect_and_a_restart_forget_the_same(
    history: list[Event], wish: tuple[Any, Any], at: int, after: bool, batch: int
) -> None:
    async def crash_and_resume() -> tuple[str, str, set[Any], set[Any]]:
        log = MemoryLog()
        await ingest(history, log, MemoryStructure().forbidden)
        wanted = await forgetting.found(WORKSPACE, *wish, log)
        await forgetting._append([*forgetting._of_users(wanted), *forgetting._of_messages(wanted)], log)
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


class Meanwhile(MemoryStructure):
    """Lets another worker do all it has to do right before the nth effect of the first."""

    def __init__(self, at: int, other: list[LogEntry]) -> None:
        super().__init__()
        self.left, self.other = at, other
        for name in EFFECTS:
            setattr(self, name, self._shared(getattr(self, name)))

    def _shared(self, effect: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                await grow(self.other, self, DEFAULT_RULES)
            return await effect(*arguments)

        return call


@given(histories(), wishes, st.integers(1, 40), st.booleans())
def test_workers_that_take_in_and_erase_at_the_same_time_end_alike(
    history: list[Event], wish: tuple[Any, Any], at: int, turned: bool
) -> None:
    assume(decided(history, wish[1]))
    log = entries([*history, *erasures(*wish)])
    told, erased = log[: len(history)], log[len(history) :]
    first, second = (erased, told) if turned else (told, erased)

    async def both() -> tuple[str, str]:
        store = Meanwhile(at, second)
        await grow(first, store, DEFAULT_RULES)
        if store.left > 0:  # the first was done before the other began
            await grow(second, store, DEFAULT_RULES)
        return await checksum(store), await checksum(await grown(log))

    together, alone = asyncio.run(both())
    assert together == alone


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


async def forget(world: World, *uids: str, users: Many[str] = ()) -> Forgotten:
    wanted = await forgetting.found("w", uids, users, world.log)
    done = await forgetting.forget(wanted, world.log, world.log, world.store)
    await world.catch_up()
    await world.summarize()
    return done


async def test_summaries_do_not_quote_it_any_more() -> None:
    world = World()
    story = [public(), *(said(str(n), f"step {n} of DOC-1 was approved and merged", user="ana") for n in range(1, 12))]
    secret = said("12", "the vault code is 4711, DOC-1 approved", user="bo")
    await world.tell([*story, secret])
    await forget(world, "w/c/12")
    calm = World()
    await calm.tell(story)
    assert shape(world.summaries()) == shape(calm.summaries())
    assert world.points() == calm.points()


def paid(*sources: str) -> Paid:
    return Paid("somebody said something", sources)


async def test_paid_texts_go_with_what_they_were_made_from_and_with_what_those_were_made_from() -> None:
    world = World()
    await world.tell([public(), said("1", "the code is 4711"), said("2", "hello", user="bo")])
    low, middle, top = (f"{digit * 32}/channel/gpt-x/v1" for digit in "abc")
    texts = {low: paid("w/c/1", "w/c/2"), middle: paid(low, "x"), top: paid("x", middle), "x": paid("w/c/2")}
    await world.store.cache(texts)
    wanted = Forgotten("w", ("w/c/1",), ())
    assert (await forgetting.in_words(wanted, world.store))[1] == 3
    done = await forget(world, "w/c/1")
    assert await world.store.cached(list(texts)) == [None, None, None, texts["x"]]
    assert (await forgetting.traces(done, world.log, world.store, world.index)).total == 0


def wording(index: int, text: str = "They talked.", *, key: str = "kept", ends: str = "23", ws: str = "w") -> Wording:
    """Of a node of its own, from one message to another."""
    first, last = (Leaf(int(end), f"{ws}/c/{end}") for end in ends)
    node = NodeId(Sequence(ws, "channel", "c"), 1, index)
    return Wording(node, key, text, first, last, 2, "d", ("c",), 2, 0, "gpt-x/v1")


TRACES = [
    wording(0, ends="12"),
    wording(0, ends="21"),
    wording(0, "<@ana>: the code is 4711"),
    wording(0, "<@bo>: hi · <@ana>: the code"),
    wording(0, key="low"),
    wording(0, key="top"),
    wording(0, key="gone"),
    wording(0, "", key="low"),
]
NO_TRACES = [
    wording(0),
    wording(0, "", key="gone"),
    wording(0, "well <@ana>: please look"),
    wording(0, key="beside"),
    wording(0, ends="12", ws="v"),
    wording(0, "<@ana>: another", key="gone", ws="v"),
]


@pytest.mark.parametrize(("one", "count"), [*((one, 1) for one in TRACES), *((one, 0) for one in NO_TRACES)])
async def test_a_wording_that_says_anything_of_what_was_forgotten_is_a_trace(one: Wording, count: int) -> None:
    store, wanted = MemoryStructure(), Forgotten("w", ("w/c/1",), ("ana",))
    await store.cache({"low": paid("w/c/1"), "top": paid("low"), "kept": paid("w/c/2"), "beside": paid("kept")})
    node = one.node
    await store.keep([Summary(node, "", one.first, one.last, 2, "d", ("c",), (), 2, 0, is_root=True, vector=b"")])
    assert await store.word([one]) == [True]
    alone = await forgetting.in_words(wanted, store)
    await store.unword([node])
    assert alone == ((await forgetting.in_words(wanted, store))[0] + count, 2)


async def test_former_texts_that_quote_it_are_traces_and_go_with_it() -> None:
    store, wanted = MemoryStructure(), Forgotten("w", ("w/c/1",), ("ana",))
    store._texts |= {  # type: ignore[operator]
        "a": '{"text":"<@bo>: hi","picks":["w/c/1"]}',
        "b": '{"text":"<@ana>: hi","picks":["w/c/3"]}',
        "c": '{"text":"<@bo>: hi","picks":["w/c/2"]}',
    }
    assert await forgetting.in_words(wanted, store) == (0, 2)
    await store.uncache(["w/c/1", "w/c/3"])
    assert [key async for key, _ in store.generated()] == ["c"]


async def test_a_text_of_a_model_may_say_anything_and_is_a_trace_only_by_what_it_was_made_from() -> None:
    store, wanted = MemoryStructure(), Forgotten("w", ("w/c/1",), ("ana",))
    await store.cache({"k": Paid('"w/c/1" · <@ana>: so they said', ("w/c/2",))})
    assert await forgetting.in_words(wanted, store) == (0, 0)


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


async def test_an_answer_whose_place_came_from_the_forgotten_root_stands_where_it_would_without_it() -> None:
    world, calm = World(), World()
    root, first = said("1", "DOC-1 is drafted"), said("2", "looks good", thread_id="1", user="bo")
    later = msgspec.structs.replace(edited(first, "so does DOC-1", 5), thread_id=None, ts=at(4))
    between = said("3", "DOC-1 is blocked", user="cy")
    await world.tell([public(), root, first, later, between])
    await forget(world, "w/c/1")
    await calm.tell([public(), first, later, between])
    sequence = routing.artifact_sequence("w", "DOC-1")
    assert await world.leaves(sequence) == await calm.leaves(sequence) == ["w/c/3", "w/c/2"]


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


async def test_who_has_a_forgotten_manager_stays_known_without_one() -> None:
    world = World()
    bo = UserEvent(workspace="w", id="bo", name="Bo", manager="ana", version="2")
    await world.tell([public(), UserEvent(workspace="w", id="ana", name="Ana", version="2"), bo])
    await world.store.forbid([erasure.user_mark("w", "ana")])
    await world.store.unlearn("w", "ana")
    assert (await world.directory("w")).users == {"bo": msgspec.structs.replace(bo, manager=None)}


async def test_a_person_with_two_ids_is_forgotten_under_both() -> None:
    store, log = MemoryStructure(), MemoryLog()
    await store.learn(
        [
            UserEvent(workspace="w", id="U1", name="Ada", version="1"),
            UserEvent(workspace="w", id="aad-1", name="Ada Quill", version="1"),
            TieEvent(workspace="w", entity="user", id="U1", same_as="aad-1", version="1"),
        ]
    )
    for name in ("U1", "aad-1", "Ada", "ada quill"):
        assert (await forgetting.meant("w", (), [name], store, log)).users == ("U1", "aad-1")


async def test_an_id_that_nobody_knows_or_that_several_bear_is_refused() -> None:
    world = World()
    await world.tell([public(), public("d"), said("1", "here"), said("1", "there", channel="d")])
    with pytest.raises(QueryError, match="2 messages"):
        await forgetting.meant("w", ["1"], (), world.store, world.log)
    with pytest.raises(QueryError, match="no message"):
        await forgetting.meant("w", ["7"], (), world.store, world.log)
    with pytest.raises(QueryError, match="no user"):
        await forgetting.meant("w", (), ["zoe"], world.store, world.log)
    assert (await forgetting.meant("w", ["w/d/1"], (), world.store, world.log)).messages == ("w/d/1",)


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


class Renaming(MemoryIndex):
    """Lets an erasure come right before points are replaced."""

    meanwhile: Any = None

    async def replace(self, points: Any) -> None:
        if self.meanwhile:
            await self.meanwhile()
        await super().replace(points)


async def test_what_was_worded_anew_while_it_was_being_forgotten_does_not_stay() -> None:
    vectors = Renaming(HashingEmbedder.dimensions)
    world = World(vectors=vectors)
    unnamed = msgspec.structs.replace(said("1", "the code is 4711"), sender=Sender(id="ana"))
    await world.tell([public(), unnamed])

    async def erase() -> None:
        vectors.meanwhile = None
        await world.store.forbid(["w/c/1"])
        await vectors.erase("w", ["w/c/1"])

    vectors.meanwhile = erase
    await world.tell([UserEvent(workspace="w", id="ana", name="Ada", version="2")])
    assert vectors.meanwhile is None
    assert await vectors.traces("w", ["w/c/1"]) == 0


def test_marks_name_messages_and_users_without_mixing_them_up() -> None:
    user = ErasureEvent(workspace="w", entity="user", id="c/1")
    message = ErasureEvent(workspace="w", entity="message", channel="user", id="c/1")
    assert erasure.mark_of(user) != erasure.mark_of(message)
    assert msgspec.json.decode(msgspec.json.encode(user), type=ErasureEvent) == user


@pytest.mark.parametrize(
    ("id_", "name"), [("50%", "50%"), ("50%", "w/c/50%"), ("50%", "w/c/50%25"), ("a/b", "w/c/a%2Fb")]
)
async def test_a_message_is_found_however_its_id_is_written(id_: str, name: str) -> None:
    world = World()
    await world.tell([public(), msgspec.structs.replace(said("1", "the code is 4711"), id=id_)])
    named = await forgetting.meant("w", [name], (), world.store, world.log)
    assert (await forget(world, *named.messages)).entries == 1
    assert not [e for e in await world.log.read({}, 9) if isinstance(e.event, MessageEvent)]


async def test_a_message_can_be_named_by_its_permalink() -> None:
    world, link = World(), "https://x.slack.com/archives/c/p1"
    await world.tell(
        [public(), msgspec.structs.replace(said("1", "the code is 4711"), permalink=link), said("2", "so")]
    )
    assert (await forgetting.meant("w", [link], (), world.store, world.log)).messages == ("w/c/1",)
    with pytest.raises(QueryError, match="no message"):
        await forgetting.meant("w", [f"{link}2"], (), world.store, world.log)


async def test_a_message_is_forgotten_under_all_ids_of_its_channel() -> None:
    world = World()
    tie = TieEvent(workspace="w", entity="channel", id="c2", same_as="c", version="9")
    old = [public(), said("1", "the code is 4711"), said("2", "other")]
    new = [public("c2"), tie, said("1", "the code is 4711", channel="c2"), said("3", "later", channel="c2")]
    await world.tell([*old, *new])
    for name in ("w/c/1", "w/c2/1", "1"):
        named = await forgetting.meant("w", [name], (), world.store, world.log)
        wanted = await forgetting.found("w", named.messages, (), world.log, directory=await world.directory("w"))
        assert wanted.messages == ("w/c/1", "w/c2/1")
    assert (await forget(world, *wanted.messages)).entries == 2
    assert "4711" not in str(await world.ask("what is the code?"))


async def test_somebody_who_only_reacted_can_be_forgotten() -> None:
    world = World()
    reaction = ReactionEvent(workspace="w", channel="c", message="1", name="eyes", user="zed")
    await world.tell([public(), said("1", "hello"), reaction])
    named = await forgetting.meant("w", (), ["zed"], world.store, world.log)
    await forget(world, users=named.users)
    assert await world.store.reactions("w", "c", "1") == []
    assert (await forgetting.traces(named, world.log, world.store, world.index)).total == 0


@pytest.mark.parametrize("name", ["", " ", "@", "*", "w", "//", "w/c/", "w/c/1/2"])
async def test_what_names_nothing_forgets_nothing(name: str) -> None:
    world = World()
    await world.tell([public(), said("1", "hello"), msgspec.structs.replace(said("2", "beep"), sender=Sender())])
    for messages, users in (([name], []), ([], [name])):
        with pytest.raises(QueryError, match="no "):
            await forgetting.meant("w", messages, users, world.store, world.log)


async def test_who_has_only_a_name_is_forgotten_by_it() -> None:
    world = World()
    beep = msgspec.structs.replace(said("2", "beep 4711"), sender=Sender(name="Robo", kind="bot"))
    await world.tell([public(), said("1", "hello"), beep])
    named = await forgetting.meant("w", (), ["Robo"], world.store, world.log)
    assert (await forget(world, users=named.users)).messages == ("w/c/2",)
    assert [e.text for e in (await world.ask("beep")).evidence] == ["hello"]


async def test_mentions_count_messages_of_others_and_each_once() -> None:
    world = World()
    named = said("2", "ask ana", user="bo", mentions=["ana"])
    own = said("3", "I, ana", mentions=["ana"])
    await world.tell([public(), named, edited(named, "ask ana or cy", 5), own, said("4", "and ana", user="bo")])
    done = await forget(world, users=["ana"])
    assert (await forgetting.traces(done, world.log, world.store, world.index)).mentions == 1


async def test_messages_of_others_that_pass_it_on_are_told_so_that_they_can_be_forgotten_too() -> None:
    world = World()
    passed = Forwarded(id="1", channel="c", text="the code is 4711")
    copy = msgspec.structs.replace(said("2", "look", user="bo", channel="d"), forwarded=passed)
    other = msgspec.structs.replace(copy, id="3", forwarded=Forwarded(id="9", text="something else"))
    await world.tell([public(), public("d"), said("1", "the code is 4711"), copy, other])
    done = await forget(world, "w/c/1")
    traces = await forgetting.traces(done, world.log, world.store, world.index)
    assert (traces.total, traces.copies) == (0, ("w/d/2",))
    await forget(world, *traces.copies)
    assert (await forgetting.traces(done, world.log, world.store, world.index)).copies == ()


async def test_who_was_in_a_call_counts_as_named() -> None:
    world = World()
    call = msgspec.structs.replace(said("2", "", user="bo"), kind="call", participants=("ana", "bo"))
    await world.tell([public(), said("1", "hello"), call])
    done = await forget(world, users=["ana"])
    assert (await forgetting.traces(done, world.log, world.store, world.index)).mentions == 1


async def test_words_of_others_that_look_like_a_quote_are_no_trace() -> None:
    world = World()
    await world.tell([public(), said("1", "hello"), said("2", "well <@ana>: please look", user="bo")])
    done = await forget(world, users=["ana"])
    assert (await forgetting.traces(done, world.log, world.store, world.index)).total == 0


async def test_a_run_that_was_cut_short_is_completed_by_any_later_one() -> None:
    world = World()
    await world.tell(
        [public(), said("1", "the code is 4711"), said("2", "hello", user="bo"), said("3", "bye", user="cy")]
    )
    begun = Forgotten("w", ("w/c/2",), ("ana",))
    await forgetting._append([*forgetting._of_users(begun), *forgetting._of_messages(begun)], world.log)  # and no more
    await world.catch_up()
    cy = Forgotten("w", ("w/c/3",), ())
    assert (await forgetting.traces(cy, world.log, world.store, world.index)).log == 3
    assert (await forgetting.forget(cy, world.log, world.log, world.store)).entries == 3
    await world.catch_up()
    await world.summarize()
    assert (await forgetting.traces(cy, world.log, world.store, world.index)).total == 0


async def test_what_comes_into_the_log_while_the_marks_are_lost_is_found_and_forgotten_again() -> None:
    world, secret = World(), said("1", "the code is 4711")
    await world.tell([public(), secret])
    done = await forget(world, "w/c/1")
    await ingest([secret], world.log, MemoryStructure().forbidden)  # Redis has lost everything
    await world.catch_up()
    await world.summarize()
    assert await world.store.versions(["w/c/1"]) == [()]
    assert (await forgetting.traces(done, world.log, world.store, world.index)).total == 1
    assert (await forget(world, "w/c/1")).entries == 1
    assert (await forgetting.traces(done, world.log, world.store, world.index)).total == 0


async def test_what_a_model_began_to_word_before_it_was_forgotten_is_not_kept_and_a_text_cached_late_is_found() -> None:
    world = World()
    await world.tell([public(), said("1", "the code is 4711"), said("2", "hello", user="bo")])
    begun = wording(0, "They share the code 4711.", key="k", ends="12")
    assert await world.store.summaries([begun.node]) != [None]
    done = await forget(world, "w/c/1")
    await world.store.cache({"k": Paid(begun.text, ("w/c/1", "w/c/2"))})  # by who did not look at the marks
    assert await world.store.word([begun]) == [False]
    assert (await forgetting.traces(done, world.log, world.store, world.index)).cached == 1
    await world.store.uncache(["w/c/1"])
    assert not [said async for _, said in world.store.generated() if "4711" in str(said)]


async def test_what_cannot_be_used_of_a_forgotten_message_is_not_given_back_with_a_reason() -> None:
    log, store = MemoryLog(), MemoryStructure()
    await store.forbid(["w/c/1"])
    broken = msgspec.structs.replace(said("1", "the code is 4711"), ts=None)
    done = await ingest([broken, said("2", "hello"), msgspec.structs.replace(broken, id="3")], log, store.forbidden)
    assert (done.forgotten, done.accepted, [r.place for r in done.refusals]) == (1, 1, [2])
