"""Summaries: what they are made of, what hides them at once, and that they are a function of the set of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
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
from tests.flows.worlds import World, shape
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
    return [items[a:b] for a, b in pairwise(marks)]


@settings(deadline=None, max_examples=60)
@given(histories(), st.randoms(use_true_random=False), st.sets(st.integers(1, 30), max_size=4))
def test_any_order_of_events_and_of_summarising_gives_the_same_summaries(
    history: list[Event], chance: random.Random, edges: set[int]
) -> None:
    async def story() -> None:
        plain, mixed = World(k=2), World(k=2)
        await plain.tell(history)
        shuffled = list(history)
        chance.shuffle(shuffled)
        for piece in pieces(shuffled, edges):
            await mixed.place(piece)
            await mixed.summarize(limit=chance.choice((1, 2, 256)))
        assert shape(mixed.summaries()) == shape(plain.summaries())
        assert mixed.points() == plain.points()

    asyncio.run(story())


# ------------------------------------------------------------------------------------------- hidden and renewed


async def test_summarising_again_writes_nothing() -> None:
    world = World()
    first = await world.tell([public(), *talk(10)])
    before = (world.summaries(), world.points())
    assert first.written == len(before[0])
    for sequence in await world.store.sequences("w"):
        (leaves,) = await world.store.leaves([_whole(sequence)])
        await world.store.mark_due([(sequence, leaves[0])])
    again = await world.summarize()
    assert (again.written, again.dropped) == (0, 0)
    assert again.current == first.written
    assert (world.summaries(), world.points()) == before


def _whole(sequence: Run) -> Any:
    return flow.Span(sequence, 0, 10_000)


@pytest.mark.parametrize(
    "change",
    [lambda m: edited(m, "DOC-1 nothing to see here", 60), lambda m: deleted(m, 60)],
    ids=["edited", "deleted"],
)
async def test_a_change_hides_every_summary_over_it_at_once_and_they_are_renewed_without_the_old_text(
    change: Callable[[Any], Event],
) -> None:
    world = World()
    told = talk(10)
    await world.tell([public(), *told])
    secret = WORDS[5]  # only message 5 has this word
    touched = over(world, "w/c/5")
    assert {(n.sequence.view, n.level) for n in touched} == {
        *(("channel", level) for level in (1, 2, 3)),
        *(("artifact", level) for level in (1, 2, 3)),
        *(("actor", level) for level in (0, 1, 2, 3)),
    }
    untouched = world.summaries().keys() - set(touched)
    assert any(secret in h.text for h in (await world.ask(f"DOC-1 {secret} number 5")).headers)

    await world.place([change(told[4])])
    seen = await shown(world, world.summaries())
    assert seen.keys() == untouched
    headers = (await world.ask(f"DOC-1 {secret} number 5")).headers
    assert [h.text for h in headers if secret in h.text] == []

    await world.summarize()
    seen = await shown(world, world.summaries())
    assert seen.keys() == {*touched, *untouched}
    assert [s.text for s in seen.values() if secret in s.text] == []
    await check(world, "w")


async def test_a_late_message_leaves_the_shifted_summaries_in_use_until_they_are_renewed() -> None:
    world = World()
    await world.tell([public(), *talk(9)])
    before = world.said_of(CHANNEL)
    await world.place([said("99", "DOC-1 said between the second and the third", minute=2.5)])
    seen = await shown(world, [s.node for s in before.values()])
    assert {(n.level, n.index): s for n, s in seen.items()} == before
    assert (await world.ask(f"DOC-1 {WORDS[5]} number 5")).headers
    await world.summarize()
    after = world.said_of(CHANNEL)
    assert [after[1, i].first.uid for i in range(4)] == ["w/c/1", "w/c/3", "w/c/6", "w/c/9"]
    await check(world, "w")


async def test_a_channel_that_turns_private_hides_the_pooled_summaries_made_from_it_at_once() -> None:
    world = World()
    await world.tell([public(), public("leads"), *talk(4), said("21", "DOC-1 approved by quorum", channel="leads")])
    pooled = {n for n, s in world.summaries().items() if "leads" in s.channels and n.sequence.view != "channel"}
    assert {(n.sequence.view, n.level) for n in pooled} == {
        *(("artifact", 1), ("artifact", 2)),
        *(("actor", 0), ("actor", 1)),
    }
    await world.place(private("leads", "bo", version="2"))
    assert not (await shown(world, pooled)).keys() & pooled
    assert [h for h in (await world.ask("DOC-1 approved by quorum")).headers if "quorum" in h.text] == []
    await world.summarize()
    seen = await shown(world, world.summaries())
    assert {n.sequence for n in seen} >= {DOC, ANA, AUTHORED, CHANNEL}
    assert [s.text for s in seen.values() if "quorum" in s.text] == []
    own = await shown(world, world.summaries(), asker="bo")
    assert {n.sequence.view for n, s in own.items() if "quorum" in s.text} == {"channel", "actor"}
    await check(world, "w")


async def test_a_channel_that_turns_public_joins_the_pooled_summaries_and_its_own_are_found_by_everybody() -> None:
    world = World()
    await world.tell([public(), *private("leads"), *talk(4), said("21", "DOC-1 approved by quorum", channel="leads")])
    assert not (await shown(world, [n for n, s in world.summaries().items() if "quorum" in s.text]))
    await world.tell([public("leads", version="2")])
    seen = await shown(world, world.summaries())
    assert {n.sequence.view for n, s in seen.items() if "quorum" in s.text} == {"channel", "actor", "artifact"}
    assert {audience for audience, _, _ in world.points().values()} == {"public"}
    await check(world, "w")


async def test_private_messages_are_never_in_a_pooled_summary_nor_counted_in_its_shape() -> None:
    secrets = [said(str(i), f"DOC-1 approved in secret {i}", channel="leads", minute=i / 10) for i in range(1, 40)]
    with_, without = World(), World()
    await with_.tell([public(), *private("leads", "ana"), *talk(10), *secrets])
    await without.tell([public(), *private("leads", "ana"), *talk(10)])
    pooled = {n: s for n, s in shape(with_.summaries()).items() if "leads" not in (n.sequence.tree, n.sequence.channel)}
    assert pooled == shape(without.summaries())
    assert all(s.channels == ("c",) for s in pooled.values())


# ------------------------------------------------------------------------------------------ marks, cache, crashes


async def test_a_mark_that_arrives_while_summarising_is_not_lost() -> None:
    late = said("11", "DOC-1 approved at the last moment")

    class Interrupted(MemoryStructure):
        world: World

        async def keep(self, summaries: Sequence[Summary]) -> None:
            await super().keep(summaries)
            if (await self.world.log.end())[0] < 12:
                await self.world.place([late])

    store = Interrupted()
    store.world = world = World(store=store)
    await world.tell([public(), *talk(10)])
    assert await store.due(10) == []
    assert (await world.store.sizes([CHANNEL])) == [11]
    await check(world, "w")


async def test_the_views_word_the_same_messages_each_in_its_own_way_and_whichever_comes_first() -> None:
    told = [said("1", "good morning all"), said("2", "we approved it")]  # as near to their mean, one shows a marker
    quoted = {}
    for views in (("channel", "actor"), ("actor", "channel")):
        world = World(words=Summarizing(quotes=1))
        await world.place([public(), *told])
        marks = {d.sequence.view: d for d in await world.store.due(10)}
        for view in views:
            await flow._round([marks[view]], world.bench)
        quoted[views] = {n.sequence.view: s.picks for n, s in world.summaries().items() if n.level == 1}
    assert quoted["channel", "actor"] == quoted["actor", "channel"] == {"channel": ("w/c/2",), "actor": ("w/c/1",)}


EFFECTS = {
    "store": (
        *("register", "enter", "link", "learn", "redact", "mark_due", "advance"),
        *("keep", "drop", "cache", "settle", "hold"),
    ),
    "index": ("upsert", "replace", "lower", "keep_nodes", "drop_nodes", "flush"),
}


def crashing(part: Any, names: Iterable[str], fuse: list[int], *, after: bool) -> Any:
    """Fails at the nth effect, counted over all parts, before or after doing it."""

    def failing(effect: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            fuse[0] -= 1
            if fuse[0] == 0 and not after:
                raise InterruptedError
            outcome = await effect(*arguments)
            if fuse[0] == 0:
                raise InterruptedError
            return outcome

        return call

    for name in names:
        setattr(part, name, failing(getattr(part, name)))
    return part


class Forgetful(MemoryIndex):
    """Loses, when it is cut off, the points that were not flushed."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self._durable: tuple[Any, Any] = ({}, {})

    async def flush(self) -> None:
        self._durable = (dict(self._rows), dict(self._nodes))

    def cut_off(self) -> None:
        self._rows, self._nodes = map(dict, self._durable)  # type: ignore[assignment]


@settings(deadline=None, max_examples=60)
@given(histories(), histories(max_size=6), st.integers(1, 40), st.booleans(), st.sampled_from((1, 3, 256)))
def test_a_crash_at_any_effect_and_a_restart_give_the_same_summaries(
    history: list[Event], then: list[Event], at: int, after: bool, limit: int
) -> None:
    async def story() -> None:
        calm, index = World(k=2), Forgetful()
        world = World(k=2, vectors=index)
        for some in (calm, world):
            await some.tell(history)
        fuse = [at]
        crashing(world.store, EFFECTS["store"], fuse, after=after)
        crashing(index, EFFECTS["index"], fuse, after=after)
        try:
            await world.place(then)
            await world.summarize(limit)
        except InterruptedError:
            index.cut_off()
            await world.catch_up()
            await world.summarize(limit)
        await calm.tell(then)
        assert shape(world.summaries()) == shape(calm.summaries())
        assert world.points() == calm.points()

    asyncio.run(story())


# ------------------------------------------------------------------------------------- several summarisers, leases


def beside(world: World, store: Any = None, index: Any = None, **rest: Any) -> flow.Bench:
    """The bench of another process over the same memory."""
    return msgspec.structs.replace(world.bench, store=store or world.store, index=index or world.index, **rest)


def via(part: Any, **calls: Any) -> Any:
    """The part with some of its calls replaced; each is given the part's own call first."""

    class Seen:
        def __getattr__(self, name: str) -> Any:
            own = getattr(part, name)
            replaced = calls.get(name)
            return own if replaced is None else lambda *given, **named: replaced(own, *given, **named)

    return Seen()


async def test_what_one_summariser_holds_no_other_is_given() -> None:
    world = World()
    await world.place([public(), *talk(10)])
    held: list[Run] = []

    async def keep(own: Any, written: Sequence[Summary]) -> None:
        held.extend(d.sequence for d in await world.store.due(100, world.now, 60.0))
        await own(written)

    await flow.summarize(beside(world, store=via(world.store, keep=keep)), limit=100)
    assert held == []
    assert await world.store.due(100) == []
    await check(world, "w")


@settings(deadline=None, max_examples=40)
@given(histories(), st.integers(1, 3), st.integers(1, 3))
def test_two_summarisers_at_the_same_time_never_work_at_one_sequence_and_end_as_one_alone(
    history: list[Event], limit: int, other_limit: int
) -> None:
    async def story() -> None:
        calm, world = World(k=2), World(k=2)
        await calm.tell(history)
        await world.place(history)
        at_work: set[Run] = set()

        def process(limit: int) -> Any:
            mine: list[Run] = []

            async def due(own: Any, *asked: Any) -> Any:
                found = await own(*asked)
                assert not at_work & {d.sequence for d in found}
                mine[:] = [d.sequence for d in found]
                at_work.update(mine)
                await asyncio.sleep(0)
                return found

            async def settle(own: Any, marks: Any) -> Any:
                at_work.difference_update(mine)
                await asyncio.sleep(0)
                return await own(marks)

            async def slowly(own: Any, *asked: Any, **named: Any) -> Any:
                await asyncio.sleep(0)
                found = await own(*asked, **named)
                await asyncio.sleep(0)
                return found

            store = via(world.store, due=due, settle=settle, summaries=slowly, keep=slowly, sequences=slowly)
            return flow.summarize(beside(world, store=store), limit)

        await asyncio.gather(process(limit), process(other_limit))
        await world.summarize()
        assert shape(world.summaries()) == shape(calm.summaries())
        assert world.points() == calm.points()
        await check(world, WORKSPACE)

    asyncio.run(story())


async def test_a_lease_that_ran_out_is_taken_over() -> None:
    world = World()
    await world.place([public(), *talk(4)])
    await world.store.due(100, world.now, 60.0)  # by a process that was killed
    world.now = 59.0
    assert await flow.summarize(world.bench) == flow.Summarized()
    world.now = 60.0
    assert (await flow.summarize(world.bench)).written > 0
    await check(world, "w")


async def test_what_a_summariser_writes_after_its_lease_ran_out_is_looked_at_once_more() -> None:
    world = World()
    await world.place([public(), *talk(4)])

    async def keep(own: Any, written: Sequence[Summary]) -> None:
        if world.now == 0.0:  # this process sleeps over its lease, another does the work, and more is said meanwhile
            world.now = 1000.0
            await flow.summarize(beside(world))
            await world.place([edited(talk(4)[0], "DOC-1 was never a kettle", 30)])
            await flow.summarize(beside(world))
        await own(written)

    await flow.summarize(beside(world, store=via(world.store, keep=keep)))
    await flow.summarize(world.bench)
    assert await world.store.due(100) == []
    assert [s.text for s in world.summaries().values() if "kettle number" in s.text] == []
    await check(world, "w")


async def test_a_sequence_whose_messages_are_not_all_indexed_rests_stays_due_and_is_completed() -> None:
    world = World()
    await world.place([public(), *talk(3)])
    rows = dict(world.index._rows)
    gone = next(key for key, row in rows.items() if row.version.id == "2")
    del world.index._rows[gone]
    first = await flow.summarize(world.bench, limit=100)
    assert first.waiting > 0
    assert await flow.summarize(world.bench) == flow.Summarized()  # it rests
    assert CHANNEL in {d.sequence for d in await world.store.due(100, world.bench.rest)}
    world.now += world.bench.rest
    assert (await flow.summarize(world.bench)).waiting > 0
    world.index._rows[gone] = rows[gone]
    world.now += world.bench.rest
    done = await flow.summarize(world.bench)
    assert (done.waiting, done.written > 0) == (0, True)
    assert await world.store.due(100) == []
    await check(world, "w")


async def test_the_nodes_above_an_actor_are_right_when_another_summariser_writes_below_them_meanwhile() -> None:
    calm, world = World(), World()
    told = [public(), public("d"), *talk(4), *[said(f"1{n}", f"PR-2 {n}", channel="d") for n in range(4)]]
    await calm.tell(told)
    await world.place(told)
    marks = await world.store.due(100)
    other = [d for d in marks if d.sequence.channel == "d"]
    one = [d for d in marks if d not in other]
    entered = 0

    async def drop(own: Any, nodes: Any) -> None:
        nonlocal entered
        entered += 1
        if entered == 2:  # the upper nodes are worded and not yet written
            await flow._round(other, beside(world))
        await own(nodes)

    await flow._round(one, beside(world, store=via(world.store, drop=drop)))
    assert await world.store.due(100) == []
    assert shape(world.summaries()) == shape(calm.summaries())
