"""The vector index as the index flow fills it: one point for each version, whatever the order and the crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import indexing
from streammem.core.directory import Directory
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.registers import timeline
from streammem.flows.index import APPLIED, index
from streammem.flows.ingest import ingest
from streammem.flows.structure import grow, versions_of
from streammem.ports import MessagePoint, Visible
from streammem.records import (
    FOREVER,
    ChannelEvent,
    ErasureEvent,
    Event,
    LogEntry,
    MembershipEvent,
    MessageEvent,
    Position,
    Sender,
    TieEvent,
    UserEvent,
    Version,
)
from tests.embedding import HashingEmbedder
from tests.flows.worlds import World
from tests.stories import deleted, edited, public, said
from tests.strategies import histories, keyed

EVERYTHING = Visible("w", None, None)


def entries(history: Sequence[Event]) -> list[LogEntry]:
    return [LogEntry(position=i, key=key, event=event) for i, (key, event) in enumerate(keyed(list(history)), 1)]


def held(points: MemoryIndex) -> dict[str, int]:
    """Every point with its until."""
    return {key: row.until for key, row in points._rows.items()}


def wanted(history: Sequence[Event]) -> dict[str, int]:
    """Every version that can be found with its until, by the core's timeline alone."""
    known: dict[str, dict[str, Version]] = {}
    for version in versions_of(entries(history), DEFAULT_RULES):
        known.setdefault(version.uid, {})[version.key] = version
    spans = [span for versions in known.values() for span in timeline(versions.values())]
    return {version.key: until for version, _, until in spans if indexing.searchable(version)}


@settings(deadline=None, max_examples=80)
@given(histories(), st.randoms(use_true_random=False), st.sets(st.integers(1, 40), max_size=5))
def test_every_version_is_one_point_with_the_right_until_under_any_order(
    history: list[Event], chance: random.Random, edges: set[int]
) -> None:
    async def story() -> None:
        mixed = [*history, *history[::3]]
        chance.shuffle(mixed)
        world = World()
        start = 0
        for edge in [*sorted(edges), len(mixed)]:
            await world.place(mixed[start:edge])
            start = edge
        assert held(world.index) == wanted(history)

    asyncio.run(story())


@settings(deadline=None, max_examples=50)
@given(histories(), st.randoms(use_true_random=False), st.integers(1, 7))
def test_pieces_may_be_indexed_in_any_order_and_again_once_the_structure_has_them(
    history: list[Event], chance: random.Random, size: int
) -> None:
    async def story() -> None:
        log, store, points = entries(history), MemoryStructure(), MemoryIndex(64)
        pieces = [log[i : i + size] for i in range(0, len(log), size)]
        pieces += pieces[::2]
        chance.shuffle(pieces)
        for piece in pieces:
            await grow(piece, store, DEFAULT_RULES)
            await index(piece, store, points, HashingEmbedder(), DEFAULT_RULES)
        assert held(points) == wanted(history)

    asyncio.run(story())


async def test_points_are_never_written_again() -> None:
    written: list[str] = []

    class Watched(MemoryIndex):
        async def upsert(self, points: Sequence[MessagePoint]) -> None:
            written.extend(p.version.key for p in points)
            await super().upsert(points)

    world = World(vectors=Watched(64))
    told = [said("1", "the launch is in May"), said("2", "lunch?")]
    await world.place([public(), *told])
    first = dict(world.index._rows)
    await world.place([edited(told[0], "the launch is in June", 9)])
    log = await world.log.read({}, 100)
    await index(log, world.store, world.index, world.embedder, DEFAULT_RULES)
    assert len(written) == len(set(written)) == 3
    assert all(world.index._rows[key].vector is row.vector for key, row in first.items())


async def test_nothing_is_encoded_twice() -> None:
    encoded: list[str] = []

    class Counting(HashingEmbedder):
        def encode(self, texts: Any) -> Any:
            encoded.extend(texts)
            return super().encode(texts)

    world = World(embedder=Counting())
    told = [said(str(i), f"message {i}") for i in range(6)]
    await world.tell([public(), *told])
    await world.tell(told)
    await index(await world.log.read({}, 100), world.store, world.index, world.embedder, DEFAULT_RULES)
    assert sorted(encoded) == sorted(f"Ana: message {i}" for i in range(6))


EFFECTS = ("upsert", "lower", "flush")


class Fragile(MemoryIndex):
    """Fails at the nth effect, before or after it, and loses what was not flushed by then."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__(64)
        self.left, self.after, self._durable = at, after, ({}, {})  # type: ignore[var-annotated]
        for name in EFFECTS:
            setattr(self, name, self._failing(name))

    def _failing(self, name: str) -> Any:
        effect = getattr(self, name)

        async def call(*arguments: Any) -> None:
            self.left -= 1
            if self.left == 0 and not self.after:
                self._lose()
            await effect(*arguments)
            if name == "flush":
                self._durable = (dict(self._rows), held(self))
            if self.left == 0:
                self._lose()

        return call

    def _lose(self) -> None:
        self._rows = dict(self._durable[0])
        for key, until in self._durable[1].items():
            self._rows[key].until = until
        raise InterruptedError


@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(1, 12), st.booleans(), st.integers(1, 7))
def test_a_crash_at_any_effect_and_a_restart_give_the_same_index(
    history: list[Event], at: int, after: bool, batch: int
) -> None:
    async def story() -> None:
        world = World(vectors=Fragile(at, after=after))
        await ingest(history, world.log, world.store.forbidden)
        try:
            await world.catch_up(batch)
        except InterruptedError:
            await world.catch_up(batch)
        assert held(world.index) == wanted(history)
        assert await world.store.applied(APPLIED) == await world.log.end()

    asyncio.run(story())


async def test_a_crash_before_the_offset_is_made_good_by_the_next_run() -> None:
    class Stops(MemoryStructure):
        stopping = True

        async def advance(self, name: str, position: Position) -> None:
            if name == APPLIED and self.stopping:
                raise InterruptedError
            await super().advance(name, position)

    store, points, log = Stops(), MemoryIndex(64), MemoryLog()
    await ingest([said("1", "hello"), said("2", "world")], log, store.forbidden)
    log_entries = await log.read({}, 10)
    await grow(log_entries, store, DEFAULT_RULES)
    try:
        await index(log_entries, store, points, HashingEmbedder(), DEFAULT_RULES)
    except InterruptedError:
        store.stopping = False
    assert await store.applied(APPLIED) == {}
    await index(log_entries, store, points, HashingEmbedder(), DEFAULT_RULES)
    assert (await store.applied(APPLIED), len(held(points))) == ({0: 2}, 2)


async def test_system_messages_empty_ones_and_deletions_are_not_found() -> None:
    world = World()
    gone, told = said("3", "the launch party"), said("1", "the launch is in May")
    joined = said("2", "ana joined the launch channel", kind="system")
    await world.place([public(), told, joined, gone, deleted(gone, 9)])
    dense, lexical = await world.index.find_messages(
        world.embedder.encode(["the launch"])[0], "the launch", 10, EVERYTHING
    )
    assert [h.uid for h in dense] == [h.uid for h in lexical] == ["w/c/1"]
    assert {v.uid for v in (row.version for row in world.index._rows.values())} == {"w/c/1", "w/c/3"}


async def test_of_an_edited_message_only_the_version_that_stands_is_found() -> None:
    world = World()
    first = said("1", "the launch is in May")
    await world.place([public(), edited(first, "the launch is in June", 9), first])
    found, _ = await world.index.find_messages(world.embedder.encode(["launch"])[0], "launch", 10, EVERYTHING)
    (hit,) = found
    assert world.index._rows[hit.key].version.text == "the launch is in June"
    assert sorted(held(world.index).values())[1] == FOREVER


async def test_speakers_and_channels_are_named_in_the_words_that_are_searched() -> None:
    lexical: list[str] = []

    class Watched(MemoryIndex):
        async def upsert(self, points: Sequence[MessagePoint]) -> None:
            lexical.extend(p.lexical for p in points)
            await super().upsert(points)

    world = World(vectors=Watched(64))
    told: MessageEvent = said("1", "the launch is in May")
    await world.place([public(), told])
    assert lexical == ["Ana #c 2026-03-02 02 2 March Mar: the launch is in May"]


# ------------------------------------------------------------------------------------------------ names


def unnamed(message: MessageEvent) -> MessageEvent:
    """The message without the names that it states of its own: its words follow the directory."""
    return msgspec.structs.replace(message, sender=Sender(id=message.sender.id))


def called(user: str, name: str, version: int) -> UserEvent:
    return UserEvent(workspace="w", id=user, name=name, version=str(version))


def titled(channel: str, name: str, version: int) -> ChannelEvent:
    return ChannelEvent(workspace="w", id=channel, name=name, type="public", version=str(version))


async def renewed(points: MemoryIndex, store: MemoryStructure) -> dict[str, tuple[str, bytes, dict[int, float]]]:
    """What each point should be made of, by the directory and the versions that stand in the end."""
    names, embedder, model = Directory(await store.facts("w")), HashingEmbedder(), MemoryIndex(64)
    wanted_: dict[str, tuple[str, bytes, dict[int, float]]] = {}
    for key, row in points._rows.items():
        naming = indexing.renamed(row.naming, row.version, names)
        (vector,) = embedder.encode([indexing.dense_text(row.version, naming)])
        made = model._row(MessagePoint(row.version, 0, vector, indexing.lexical_text(row.version, naming), naming))
        wanted_[key] = (f"{naming.speaker} #{naming.room}", made.vector.tobytes(), made.weights)
    return wanted_


def worded(points: MemoryIndex) -> dict[str, tuple[str, bytes, dict[int, float]]]:
    """What each point is made of."""
    return {
        key: (f"{row.naming.speaker} #{row.naming.room}", row.vector.tobytes(), row.weights)
        for key, row in points._rows.items()
    }


TOLD: list[MessageEvent] = [unnamed(said(str(n), f"number {n}", user=user)) for n, user in enumerate(["ana", "bo"] * 2)]
FACTS: list[Event] = [called("ana", "Anna", 2), titled("c", "ops", 2), called("ana", "Ann", 3), titled("c", "war", 3)]
RENAMES = st.permutations([*TOLD, *FACTS, said("9", "named by itself")])


@settings(deadline=None, max_examples=80)
@given(RENAMES, st.sets(st.integers(1, 8), max_size=4))
def test_words_and_vectors_follow_the_directory_whatever_the_order_of_messages_and_renames(
    told: list[Event], edges: set[int]
) -> None:
    async def story() -> None:
        world = World()
        start = 0
        for edge in [*sorted(edges), len(told)]:
            await world.place(told[start:edge])
            start = edge
        assert worded(world.index) == await renewed(world.index, world.store)
        ann = {key: words for key, words in worded(world.index).items() if words[0].startswith("Ann ")}
        assert len(ann) == 2
        assert {words[0] for words in ann.values()} == {"Ann #war"}

    asyncio.run(story())


class Encoded(HashingEmbedder):
    """Remembers what was encoded."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Any) -> Any:
        self.texts.extend(texts)
        return super().encode(texts)


async def test_a_renamed_channel_costs_no_encoding_and_a_renamed_user_only_their_own_messages() -> None:
    embedder = Encoded()
    world = World(embedder=embedder)
    await world.place([called("ana", "Anna", 1), called("bo", "Bo", 1), titled("c", "ops", 1), *TOLD])
    embedder.texts.clear()
    await world.place([titled("c", "war", 2)])
    assert embedder.texts == []
    await world.place([called("ana", "Ann", 2)])
    assert sorted(embedder.texts) == ["Ann: number 0", "Ann: number 2"]
    assert worded(world.index) == await renewed(world.index, world.store)


async def test_a_rename_makes_the_summaries_over_that_users_messages_due_and_no_others() -> None:
    world = World()
    await world.tell([called("ana", "Anna", 1), titled("c", "ops", 1), *TOLD, unnamed(said("5", "hi", channel="d"))])
    assert await world.store.due(100) == []
    await world.place([titled("c", "war", 2)])
    channel_named = {due.sequence for due in await world.store.due(100)}
    await world.summarize()
    await world.place([called("bo", "Bob", 1)])
    marked = {due.sequence.channel or due.sequence.tree for due in await world.store.due(100)}
    assert "c" in marked
    assert "d" not in marked
    assert all(sequence.channel == "c" or sequence.tree == "c" for sequence in channel_named)


async def test_the_own_names_of_a_message_stand_against_the_directory() -> None:
    world = World()
    await world.place([titled("c", "ops", 2), called("ana", "Anna", 9), said("1", "hello"), called("ana", "Ann", 10)])
    (row,) = world.index._rows.values()
    assert (row.naming.speaker, row.naming.room) == ("Ana", "ops")


async def test_a_message_keeps_its_until_when_its_words_are_renewed() -> None:
    world = World()
    first = unnamed(said("1", "the launch is in May"))
    await world.place([public(), first, edited(first, "the launch is in June", 9)])
    before = held(world.index)
    await world.place([called("ana", "Anna", 2)])
    assert held(world.index) == before
    assert worded(world.index) == await renewed(world.index, world.store)


class Stepping:
    """Lets one of several tasks go on at a time, by a schedule; every call of a part is a step."""

    def __init__(self, schedule: list[int]) -> None:
        self._schedule, self._gates = schedule, {}  # type: ignore[var-annotated]

    def through(self, part: Any, names: Sequence[str], task: int) -> Any:
        """The part as this task sees it: it waits for its turn before each call, and once after it."""
        stepping = self

        class Turned:
            def __getattr__(self, name: str) -> Any:
                call = getattr(part, name)
                if name not in names:
                    return call

                async def turned(*arguments: Any) -> Any:
                    await stepping.turn(task)
                    outcome = await call(*arguments)
                    await stepping.turn(task)
                    return outcome

                return turned

        return Turned()

    async def turn(self, task: int) -> None:
        gate = self._gates[task] = asyncio.get_running_loop().create_future()
        await gate

    async def run(self, *work: Any) -> None:
        tasks = [asyncio.ensure_future(each) for each in work]
        turns = iter(self._schedule)
        while not all(task.done() for task in tasks):
            for _ in range(3):
                await asyncio.sleep(0)
            wanted_ = next(turns, 0) % len(tasks)
            waiting = [n for n in self._gates if not self._gates[n].done()]
            if waiting:
                chosen = min(waiting, key=lambda n: (n - wanted_) % len(tasks))
                self._gates[chosen].set_result(None)
            else:
                await asyncio.sleep(0.001)  # in the thread that encodes
        for task in tasks:
            task.result()


STORE = ("facts", "facts_generation", "versions", "advance", "mark_due", "placements")
INDEX = ("known", "upsert", "lower", "misnamed", "vectors", "replace", "flush")


async def concurrently(pieces: list[list[Event]], schedule: list[int]) -> tuple[MemoryIndex, MemoryStructure]:
    """Each piece placed and indexed by a process of its own, step by step in turns."""
    store, points = MemoryStructure(), MemoryIndex(64)
    stepping = Stepping(schedule)

    async def work(n: int, log: list[LogEntry]) -> None:
        mine, its = stepping.through(store, STORE, n), stepping.through(points, INDEX, n)
        await stepping.turn(n)
        await grow(log, store, DEFAULT_RULES)  # the structure may run as far ahead as it likes
        await index(log, mine, its, HashingEmbedder(), DEFAULT_RULES)

    await stepping.run(*(work(n, entries(piece)) for n, piece in enumerate(pieces)))
    return points, store


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2), max_size=60), st.permutations(range(3)))
def test_processes_that_index_at_the_same_time_leave_the_words_of_the_last_name(
    schedule: list[int], order: list[int]
) -> None:
    async def story() -> None:
        pieces = [
            [*TOLD[:2], called("ana", "Anna", 2)],
            [*TOLD[2:], titled("c", "ops", 2)],
            [called("ana", "Ann", 3), titled("c", "war", 3)],
        ]
        points, store = await concurrently([pieces[n] for n in order], schedule)
        assert len(points._rows) == len(TOLD)
        assert worded(points) == await renewed(points, store)

    asyncio.run(story())


async def test_a_rename_that_is_done_while_an_older_one_is_being_written_stands_in_the_end() -> None:
    class Overtaken(MemoryIndex):
        async def replace(self, points: Sequence[MessagePoint]) -> None:
            if later:
                overtaking = [later.pop()]
                await grow(overtaking, store, DEFAULT_RULES)
                await index(overtaking, store, self, HashingEmbedder(), DEFAULT_RULES)  # another process, whole
            await super().replace(points)

    later: list[LogEntry] = []
    store, points = MemoryStructure(), Overtaken(64)
    *told, older, newer = entries([*TOLD, called("ana", "Anna", 2), called("ana", "Ann", 3)])
    for piece in (told, [older]):
        await grow(piece, store, DEFAULT_RULES)
        later[:] = [newer] if piece == [older] else []
        await index(piece, store, points, HashingEmbedder(), DEFAULT_RULES)
    assert not later
    assert {row.naming.speaker for row in points._rows.values() if row.version.user == "ana"} == {"Ann"}
    assert worded(points) == await renewed(points, store)


# -------------------------------------------------------------------------------- conversations called by their members


def direct(version: int = 1, channel: str = "d") -> ChannelEvent:
    return ChannelEvent(workspace="w", id=channel, type="group_dm", version=str(version))


def member(user: str, version: int = 1, *, present: bool = True, channel: str = "d") -> MembershipEvent:
    return MembershipEvent(workspace="w", channel=channel, user=user, version=str(version), present=present)


def same(entity: Literal["user", "channel"], one: str, other: str) -> TieEvent:
    return TieEvent(workspace="w", entity=entity, id=one, same_as=other, version="1")


FORGET_EVE = ErasureEvent(workspace="w", entity="user", id="eve")
TALK = [unnamed(said(str(n), f"number {n}", user=user, channel="d")) for n, user in enumerate(["ana", "bo"])]
MEETING: list[Event] = [
    *(*TALK, direct(), unnamed(said("5", "moved", channel="e")), direct(channel="e")),
    *(member("ana"), member("bo"), member("eve"), member("cid", 2), member("cid", 3, present=False)),
    *(called("ana", "Anna", 2), called("ana2", "Ann", 3), called("eve", "Eve Stone", 2), called("cid", "Cid", 1)),
    *(same("user", "ana2", "a"), same("user", "ana", "a"), same("channel", "e", "d"), member("dov", channel="e")),
]


@settings(deadline=None, max_examples=100)
@given(st.permutations([*MEETING, FORGET_EVE]), st.sets(st.integers(1, 17), max_size=6))
def test_words_follow_who_is_in_a_conversation_whatever_the_order_of_coming_going_and_forgetting(
    told: list[Event], edges: set[int]
) -> None:
    async def story() -> None:
        world = World()
        start = 0
        for edge in [*sorted(edges), len(told)]:
            await told_to(world, told[start:edge])
            start = edge
        assert worded(world.index) == await renewed(world.index, world.store)
        assert {row.naming.room for row in world.index._rows.values()} == {"Anna, bo, dov"}

    asyncio.run(story())


async def told_to(world: World, events: Sequence[Event]) -> None:
    """Append, erasures as `forget` does, and catch up."""
    erasures = [event for event in events if isinstance(event, ErasureEvent)]
    await ingest([event for event in events if event not in erasures], world.log, world.store.forbidden)
    await world.log.append(keyed(list(erasures)))
    await world.catch_up()


async def test_whoever_joins_leaves_is_renamed_or_forgotten_is_so_in_the_words_at_once() -> None:
    world = World()

    async def room(*events: Event) -> str:
        await told_to(world, events)
        assert worded(world.index) == await renewed(world.index, world.store)
        (name,) = {row.naming.room for row in world.index._rows.values()}
        return name

    assert await room(*TALK, direct()) == "d"
    assert await room(member("ana"), member("bo"), member("eve")) == "ana, bo, eve"
    assert await room(called("eve", "Eve Stone", 1)) == "Eve Stone, ana, bo"
    assert await room(called("bo", "Bo", 1), member("cid")) == "Bo, Eve Stone, ana, cid"
    assert await room(member("cid", 2, present=False)) == "Bo, Eve Stone, ana"
    assert await room(FORGET_EVE) == "Bo, ana"
    assert await room(msgspec.structs.replace(direct(2), name="lunch")) == "lunch"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), max_size=80), st.permutations(range(4)))
def test_processes_that_index_at_the_same_time_leave_the_words_of_those_who_are_in_the_conversation(
    schedule: list[int], order: list[int]
) -> None:
    async def story() -> None:
        pieces: list[list[Event]] = [
            [*TALK, member("ana")],
            [direct(), member("bo"), member("eve"), called("eve", "Eve Stone", 1)],
            [called("ana", "Ann", 3), member("cid", 2), member("bo", 2, present=False)],
            [FORGET_EVE],
        ]
        points, store = await concurrently([pieces[n] for n in order], schedule)
        assert worded(points) == await renewed(points, store)
        assert {row.naming.room for row in points._rows.values()} == {"Ann, cid"}

    asyncio.run(story())
