"""The vector index as the index flow fills it: one point for each version, whatever the order and the crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import indexing
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.registers import timeline
from streammem.flows.index import APPLIED, index
from streammem.flows.ingest import ingest
from streammem.flows.structure import grow, versions_of
from streammem.ports import MessagePoint, Visible
from streammem.records import FOREVER, Event, LogEntry, MessageEvent, Position, Version
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
        await ingest(history, world.log)
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
    await ingest([said("1", "hello"), said("2", "world")], log)
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
