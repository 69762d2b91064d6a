"""Promise 1: the memory is a function of the set of events, never of order, duplicates, batches or crashes."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.core import routing
from streammem.core.identifiers import DEFAULT_RULES
from streammem.flows.ingest import ingest
from streammem.flows.structure import grow
from streammem.flows.verify import measure, replay
from streammem.ports import Span
from streammem.records import Entry, Event, Leaf, LogEntry
from tests.flows.crashes import Crashes
from tests.stories import said
from tests.strategies import histories, keyed

K = 3
"""Small, so that trees of a few messages have several levels."""

Store = Callable[[], MemoryStructure]


async def grown(pieces: Sequence[Sequence[LogEntry]], store: Store = MemoryStructure) -> str:
    """The checksum after these pieces of a log, in this order."""
    kept = store()
    for piece in pieces:
        await grow(piece, kept, DEFAULT_RULES)
    return (await measure(kept, K, 2)).checksum


def entries(history: Sequence[Event]) -> list[LogEntry]:
    return [LogEntry(position=i, key=key, event=event) for i, (key, event) in enumerate(keyed(list(history)), 1)]


def cut(items: Sequence[Any], at: set[int]) -> list[Sequence[Any]]:
    edges = [0, *sorted(i for i in at if 0 < i < len(items)), len(items)]
    return [items[a:b] for a, b in itertools.pairwise(edges)]


@given(histories(), st.randoms(use_true_random=False), st.sets(st.integers(1, 40)), st.data())
def test_any_order_duplication_and_batching_gives_the_same_memory(
    history: list[Event], chance: random.Random, edges: set[int], data: st.DataObject
) -> None:
    log = entries(history)
    again = data.draw(st.lists(st.sampled_from(log), max_size=6)) if log else []
    mixed = [*log, *again]
    chance.shuffle(mixed)
    assert asyncio.run(grown(cut(mixed, edges))) == asyncio.run(grown([log]))


@given(histories())
def test_one_event_at_a_time_gives_the_same_memory_as_one_batch(history: list[Event]) -> None:
    log = entries(history)
    assert asyncio.run(grown([[entry] for entry in reversed(log)])) == asyncio.run(grown([log]))


class PlacesByArrival(MemoryStructure):
    """A planted fault: leaves get the rank of their arrival instead of their place in time."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived = 0

    async def enter(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._arrived += 1
            await super().enter([Entry(entry.sequence, Leaf(self._arrived, entry.leaf.uid))])


class LastWriteWins(MemoryStructure):
    """A planted fault: the version that arrives last replaces the others."""

    async def versions(self, uids: Sequence[str]) -> Any:
        return [known[-1:] for known in await super().versions(uids)]


class NoThreads(MemoryStructure):
    """A planted fault: what answers a message is forgotten, so an answer that comes before its target is not placed."""

    async def answers(self, uids: Sequence[str]) -> Any:
        return [() for _ in uids]


@pytest.mark.parametrize("fault", [PlacesByArrival, LastWriteWins, NoThreads])
def test_the_property_catches_a_planted_fault(fault: Store) -> None:
    @settings(database=None, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    @given(histories())
    def property_holds(history: list[Event]) -> None:
        log = entries(history)
        forward, backward = [[entry] for entry in log], [[entry] for entry in reversed(log)]
        assert asyncio.run(grown(backward, fault)) == asyncio.run(grown(forward, fault))

    with pytest.raises((AssertionError, ExceptionGroup)):
        property_holds()


@given(histories(), st.integers(1, 40), st.booleans(), st.integers(1, 7))
def test_a_crash_at_any_effect_and_a_restart_give_the_same_memory(
    history: list[Event], at: int, after: bool, batch: int
) -> None:
    async def crash_and_resume() -> tuple[str, str, set[Any], set[Any]]:
        log = MemoryLog()
        await ingest(history, log, MemoryStructure().forbidden)
        store, calm = Crashes(at, after=after), MemoryStructure()
        for _ in range(2):
            try:
                await replay(log, store, DEFAULT_RULES, after=await store.applied("structure"), batch=batch)
            except InterruptedError:
                continue
            break
        await replay(log, calm, DEFAULT_RULES, batch=batch)
        due = [{d.sequence for d in await s.due(10_000)} for s in (store, calm)]
        return (await measure(store, K, 2)).checksum, (await measure(calm, K, 2)).checksum, due[0], due[1]

    crashed, calm, due, due_calm = asyncio.run(crash_and_resume())
    assert crashed == calm
    assert due == due_calm


@given(histories())
def test_every_leaf_stands_where_its_time_says(history: list[Event]) -> None:
    async def forests() -> None:
        store = MemoryStructure()
        await grow(entries(history), store, DEFAULT_RULES)
        for workspace in await store.workspaces():
            for sequence in await store.sequences(workspace):
                (size,) = await store.sizes([sequence])
                (leaves,) = await store.leaves([Span(sequence, 0, size)])
                assert list(leaves) == sorted(leaves)
                for rank, stands in enumerate(await store.placements([leaf.uid for leaf in leaves])):
                    assert (sequence, rank, size) in {(s.sequence, s.rank, s.size) for s in stands}

    asyncio.run(forests())


async def test_a_reply_joins_the_artifact_of_its_root_whichever_comes_first() -> None:
    root = said("1", "DOC-1 is drafted")
    reply = said("2", "looks good", reply_to="1")
    for history in ([root, reply], [reply, root]):
        store = MemoryStructure()
        for entry in entries(history):
            await grow([entry], store, DEFAULT_RULES)
        assert await store.sizes([routing.artifact_sequence("w", "DOC-1")]) == [2]
