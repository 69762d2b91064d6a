"""Summaries: what they are made of, what hides them at once, and that they are a function of the set of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import forest, routing, summaries
from streammem.core.directory import Directory
from streammem.core.numbers import Summarizing
from streammem.core.registers import winner
from streammem.flows import summarize as flow
from streammem.flows.sight import shown_summaries, visible_to
from streammem.records import Event, NodeId, Query, Summary, Version
from streammem.records import Sequence as Run
from tests.flows.worlds import Nameless, World, shape
from tests.stories import deleted, edited, private, public, said
from tests.strategies import WORKSPACE, histories

CHANNEL = routing.channel_sequence("w", "c")
DOC = routing.artifact_sequence("w", "DOC-1")
ANA = Run("w", "actor", "ana")
AUTHORED = Run("w", "actor", "ana", "authored")
WORDS = ("kettle", "gasket", "harbour", "lantern", "pylon", "saffron", "tundra", "walnut", "zephyr", "quarry")


def talk(n: int = 10, **rest: Any) -> list[Any]:
    """Messages 1 to n, each with a word of its own."""
    return [said(str(i), f"DOC-1 {WORDS[i % len(WORDS)]} number {i}", **rest) for i in range(1, n + 1)]


async def shown(world: World, nodes: Iterable[NodeId], **query: Any) -> dict[NodeId, Summary]:
    """What an asker may see of these nodes now."""
    desk = await world.desk()
    return await shown_summaries(list(nodes), visible_to(Query(text="", workspace="w", **query), desk.directory), desk)


def over(world: World, uid: str) -> list[NodeId]:
    """The nodes whose summary was made over this message, by what they quote and by their span."""
    placed = {s.sequence for s in world.store._stands(uid)}
    leaves = {run: next(leaf for leaf in world.store._runs[run].leaves if leaf.uid == uid) for run in placed}
    upper = {n.sequence: leaf for run, leaf in leaves.items() for n in forest.skeleton(run)}
    spots = leaves | upper
    return [
        node
        for node, s in world.summaries().items()
        if node.sequence in spots and s.first <= spots[node.sequence] <= s.last
    ]


# ---------------------------------------------------------------------------------------- what they are made of


async def test_children_come_before_parents_and_every_tree_has_its_root() -> None:
    written: list[NodeId] = []

    class Watched(MemoryStructure):
        async def keep(self, summaries: Sequence[Summary]) -> None:
            written.extend(s.node for s in summaries)
            await super().keep(summaries)

    world = World(store=Watched())
    await world.tell([public(), *talk(10)])
    for sequence in (CHANNEL, DOC, routing.actor_sequence("w", "ana", "authored", "c")):
        root = await world.root(sequence)
        assert root is not None
        assert root.is_root
        levels = [n.level for n in written if n.sequence == sequence]
        assert levels == sorted(levels)
        assert set(levels) == {1, 2, 3}
    assert written.index(NodeId(AUTHORED, 0, 0)) < written.index(NodeId(ANA, 0, 1))
    assert world.summaries()[NodeId(ANA, 0, 1)].is_root


class Expected(msgspec.Struct):
    """One node, read by brute force: the live leaves under it, their mean vector."""

    leaves: list[Version]
    vectors: list[Any]
    is_root: bool


async def naive(world: World, workspace: str) -> dict[NodeId, Expected]:
    """Every node that has a live leaf, from the registers alone."""
    directory = await world.directory(workspace)
    nodes: dict[NodeId, Expected] = {}
    k = world.forest.k
    for sequence in await world.store.sequences(workspace):
        uids = await world.leaves(sequence)
        if sequence.view == "artifact":  # private leaves are not even counted
            uids = [uid for uid in uids if directory.is_public(uid.split("/")[1].replace("%2F", "/"))]
        readable = [await _readable(world, sequence, uid, directory) for uid in uids]
        top = forest.root_level(len(uids), k)
        for level in range(1, top + 1):
            for index in range(-(-len(uids) // k**level)):
                under = [r for r in readable[index * k**level : (index + 1) * k**level] if r]
                if under:
                    nodes[NodeId(sequence, level, index)] = _expected(under, is_root=level == top)
        if sequence.view == "actor" and directory.is_public(sequence.channel):
            for node in forest.skeleton(sequence):
                known = nodes.setdefault(node, _expected([], is_root=node.index == 1))
                known.leaves += [v for v, _ in filter(None, readable)]
                known.vectors += [x for _, x in filter(None, readable)]
    return {node: expected for node, expected in nodes.items() if expected.leaves}


def _expected(under: list[tuple[Version, Any]], *, is_root: bool) -> Expected:
    return Expected([v for v, _ in under], [x for _, x in under], is_root)


async def _readable(world: World, sequence: Run, uid: str, directory: Directory) -> tuple[Version, Any] | None:
    (known,) = await world.store.versions([uid])
    version = winner(known)
    targets = list(routing.targets_of(version))
    standing = dict(zip(targets, await world.store.versions(targets), strict=True))
    (vector,) = await world.index.vectors([version.key])
    if vector is None or not routing.belongs(sequence, version, standing):
        return None
    if sequence.view == "artifact" and not directory.is_public(version.channel):
        return None
    return version, vector


async def check(world: World, workspace: str) -> None:
    """Every stored summary says what its live leaves say now, and there is no other."""
    wanted = await naive(world, workspace)
    stored = world.summaries()
    assert stored.keys() == wanted.keys() == world.points().keys()
    for node, summary in stored.items():
        expected = wanted[node]
        assert summary.count == len(expected.leaves)
        assert summary.is_root == expected.is_root
        assert summary.channels == tuple(sorted({v.channel for v in expected.leaves}))
        assert set(summary.markers) == {m for v in expected.leaves for m in v.markers}
        assert summary.latest == max(v.since for v in expected.leaves)
        assert {summary.first.uid, summary.last.uid, *summary.picks} <= {v.uid for v in expected.leaves}
        assert np.allclose(np.frombuffer(summary.vector, "<f4"), np.mean(expected.vectors, axis=0), atol=1e-5)
        quotes = {v.uid: summaries.quote(v, 160) for v in expected.leaves}
        assert summary.text == " · ".join(quotes[uid] for uid in summary.picks)
    redactions = {s: r for s in {n.sequence for n in stored} for r in await world.store.redactions([s])}
    assert [n for n, s in stored.items() if summaries.hidden(s, redactions[n.sequence])] == []


async def test_a_nodes_vector_is_the_mean_of_its_leaves_at_every_level() -> None:
    world = World()
    await world.tell([public(), *talk(9), *talk(3, user="bo", mentions=("ana",))])
    await check(world, "w")
    assert {n.level for n in world.summaries()} == {0, 1, 2}


@settings(deadline=None, max_examples=60)
@given(histories(), st.randoms(use_true_random=False), st.sets(st.integers(1, 30), max_size=4))
def test_summaries_say_what_their_live_leaves_say_however_the_events_came(
    history: list[Event], chance: random.Random, edges: set[int]
) -> None:
    async def story() -> None:
        world = World(k=2)
        chance.shuffle(history)
        for piece in pieces(history, edges):
            await world.tell(piece)
            await check(world, WORKSPACE)

    asyncio.run(story())


@settings(deadline=None, max_examples=60)
@given(histories(), histories(max_size=6))
def test_whatever_happens_next_a_summary_over_something_that_changed_is_hidden_before_it_is_renewed(
    history: list[Event], then: list[Event]
) -> None:
    async def story() -> None:
        world = World(k=2)
        await world.tell(history)
        made_of = {node: expected.leaves for node, expected in (await naive(world, WORKSPACE)).items()}
        await world.place(then)
        desk = await world.desk(WORKSPACE)
        everybody = visible_to(Query(text="", workspace=WORKSPACE, everything=True), desk.directory)
        for node in await shown_summaries(list(made_of), everybody, desk):
            for version in made_of[node]:
                (known,) = await world.store.versions([version.uid])
                assert winner(known) == version

    asyncio.run(story())


def pieces(items: list[Any], edges: set[int]) -> list[list[Any]]:
    marks = [0, *sorted(e for e in edges if e < len(items)), len(items)]
    return [items[a:b] for a, b in zip(marks, marks[1:], strict=False)]


@settings(deadline=None, max_examples=60)
@given(histories(), st.randoms(use_true_random=False), st.sets(st.integers(1, 30), max_size=4))
def test_any_order_of_events_and_of_summarising_gives_the_same_summaries(
    history: list[Event], chance: random.Random, edges: set[int]
) -> None:
    async def story() -> None:
        plain, mixed = World(k=2, embedder=Nameless()), World(k=2, embedder=Nameless())
        await plain.tell(history)
        shuffled = list(history)
        chance.shuffle(shuffled)
        for piece in pieces(shuffled, edges):
            await mixed.place(piece)
            await mixed.summarize(limit=chance.choice((1, 2, 256)))
        assert shape(mixed.summaries()) == shape(plain.summaries())
        assert mixed.points() == plain.points()

    asyncio.run(story())
