"""Due sequences to node summaries, children before parents, to the store and the vector index."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many

import msgspec
import numpy as np

from streammem.core import forest, routing, summaries
from streammem.core.directory import Directory
from streammem.core.indexing import searchable
from streammem.core.numbers import Summarizing
from streammem.core.registers import winner
from streammem.core.summaries import Reading, Source
from streammem.ports import CHANGED, UPPER, WORDS, NodePoint, Span, StructureStore, VectorIndex
from streammem.records import Due, Leaf, NodeId, Sequence, Summary, Version

Mark = tuple[Sequence, Leaf]


class Summarized(msgspec.Struct, frozen=True):
    """What a round did: nodes written, nodes found current, nodes dropped because nothing live is left.

    `waiting` sequences stay due: the index does not have all of their messages yet.
    """

    written: int = 0
    current: int = 0
    dropped: int = 0
    waiting: int = 0

    def __add__(self, other: Summarized) -> Summarized:
        return Summarized(
            self.written + other.written,
            self.current + other.current,
            self.dropped + other.dropped,
            self.waiting + other.waiting,
        )


class Bench(msgspec.Struct, frozen=True):
    """What a summariser works with: `clock` in seconds, shared by all that summarise; `lease` and `rest` in seconds.

    A sequence that is being summarised is held for a lease; one whose messages are not all indexed rests. `worded` says
    that a language model words nodes anew (flows.wording).
    """

    store: StructureStore
    index: VectorIndex
    k: int
    numbers: Summarizing
    clock: Callable[[], float] = time.time
    lease: float = 60.0
    rest: float = 1.0
    worded: bool = False


class _Draft(msgspec.Struct):
    """The nodes of one sequence in the making: said anew, still as they were, and with nothing live under them."""

    written: list[Summary] = []
    current: list[Summary] = []
    empty: list[NodeId] = []
    dropped: int = 0
    waits: bool = False


async def summarize(bench: Bench, limit: int = 1024, progress: Callable[[int], None] | None = None) -> Summarized:
    """Summarise until nothing is due that is not held by another or resting. Running it again finds all current."""
    total = Summarized()
    while batch := await bench.store.due(limit, bench.clock(), bench.lease):
        total += await _round(batch, bench)
        if progress:
            progress(len(batch))
    return total


async def _round(batch: Many[Due], bench: Bench) -> Summarized:
    directories = {w: Directory(await bench.store.facts(w)) for w in {d.sequence.workspace for d in batch}}
    drafts = [await _sequence(due, bench, directories[due.sequence.workspace]) for due in batch]
    await _write(drafts, bench, directories)
    waiting = [due for due, draft in zip(batch, drafts, strict=True) if draft.waits]
    actors = sorted({forest.top_of(d.sequence) for d in batch if d.sequence.view == "actor"})
    uppers = await _skeletons(actors, bench, directories)
    made = [*drafts, *uppers]
    above = {node.sequence for d in batch for node in forest.skeleton(d.sequence)}
    gone = await _unword([*(d.sequence for d in batch), *sorted(above)], made, bench)
    await _mark_words(batch, actors, gone, bench)
    await bench.index.flush()  # what can be found is durable before the marks go
    late = await bench.store.settle([due for due in batch if due not in waiting])
    await bench.store.mark_due([(due.sequence, due.earliest) for due in late])  # its lease ran out: look once more
    await bench.store.hold(waiting, bench.clock() + bench.rest)
    return Summarized(
        sum(len(d.written) for d in made),
        sum(len(d.current) for d in made),
        sum(d.dropped for d in made),
        len(waiting),
    )


async def _skeletons(actors: Many[Sequence], bench: Bench, directories: dict[str, Directory]) -> list[_Draft]:
    """Renew the nodes above these actors' sequences, until nobody wrote below them meanwhile (design §3)."""
    made: list[_Draft] = []
    while actors:
        drafts = [await _skeleton(actor, bench, directories[actor.workspace]) for actor in actors]
        await _write(drafts, bench, directories)
        made.extend(drafts)
        actors = [actor for actor, draft in zip(actors, drafts, strict=True) if draft.written or draft.empty]
        again = [await _skeleton(actor, bench, directories[actor.workspace]) for actor in actors]
        actors = [actor for actor, draft in zip(actors, again, strict=True) if draft.written or draft.dropped]
    return made


async def _write(drafts: Many[_Draft], bench: Bench, directories: dict[str, Directory]) -> None:
    """To the store what changed, to the index everything: it may have lost what the store still has."""
    written = [s for d in drafts for s in d.written]
    empty = [n for d in drafts for n in d.empty]
    points = []
    for summary in (*written, *(s for d in drafts for s in d.current)):
        directory = directories[summary.node.sequence.workspace]
        points.append(NodePoint(summary, summaries.audience_of_summary(summary, directory.is_public)))
    await bench.index.drop_nodes(empty)
    await bench.index.keep_nodes(points)
    await bench.store.drop(empty)
    await bench.store.keep(written)


async def _unword(due: Iterable[Sequence], drafts: Iterable[_Draft], bench: Bench) -> list[Mark]:
    """Drop the wordings that an edit or a deletion hides, and say where they were.

    A model may not come to it for days: what was said must be gone before.
    """
    sequences = list(due)
    redacted = {s: r for s, r in zip(sequences, await bench.store.redactions(sequences), strict=True) if r}
    nodes = [s.node for draft in drafts for s in (*draft.written, *draft.current) if s.node.sequence in redacted]
    known = [w for w in await bench.store.wordings(nodes) if w is not None]
    gone = [w for w in known if summaries.hidden(w, redacted[w.node.sequence])]
    await bench.store.unword([w.node for w in gone])
    return [(w.node.sequence, w.first) for w in gone]


async def _mark_words(batch: Many[Due], actors: Many[Sequence], gone: Many[Mark], bench: Bench) -> None:
    """Say what a language model may have to word now. It looks for itself what that is."""
    if bench.worded:
        await bench.store.mark_due([m for m in gone if m[0] not in actors], CHANGED)
        await bench.store.mark_due([(d.sequence, d.earliest) for d in batch], WORDS)
        earliest = {forest.top_of(d.sequence): d.earliest for d in batch if d.sequence.view == "actor"}
        await bench.store.mark_due([(actor, earliest[actor]) for actor in actors], UPPER)


class Stretch(msgspec.Struct, frozen=True):
    """The leaves from rank `start` on of the `size` that a sequence's nodes group; `total` counts the others too."""

    start: int
    size: int
    total: int
    leaves: Many[Leaf]


async def stretch(due: Due, store: StructureStore, k: int, directory: Directory) -> Stretch:
    """What is due of a sequence, from the first leaf of a node on."""
    sequence = due.sequence
    (total,) = await store.sizes([sequence])
    if not summaries.read_by_everyone(sequence):
        (first,) = await store.ranks([(sequence, due.earliest)])
        rank = min(first, max(total - 1, 0))  # the last node too: it may be a root now
        (leaves,) = await store.leaves([Span(sequence, rank // k * k, total)])
        return Stretch(rank // k * k, total, total, leaves)
    (pooled,) = await store.leaves([Span(sequence, 0, total)])
    public = summaries.grouped(sequence, pooled, directory.is_public)
    rank = min(bisect_left(public, due.earliest), max(len(public) - 1, 0))  # the last node too: it may be a root now
    return Stretch(rank // k * k, len(public), total, public[rank // k * k :])


async def _sequence(due: Due, bench: Bench, directory: Directory) -> _Draft:
    """Renew the nodes of one sequence from the due leaf on."""
    sequence, k = due.sequence, bench.k
    (redactions,) = await bench.store.redactions([sequence])
    serial = max((r.serial for r in redactions), default=0)
    due_now = await stretch(due, bench.store, bench.k, directory)
    start, size = due_now.start, due_now.size
    draft = _Draft()
    sources = await _live(sequence, [leaf.uid for leaf in due_now.leaves], bench, directory, draft)
    fresh: dict[NodeId, Summary] = {}
    for level, index in forest.nodes_from(start, size, k):
        node = NodeId(sequence, level, index)
        if level == 1:
            span = due_now.leaves[index * k - start : (index + 1) * k - start]
            reading = summaries.reading_of_leaves(
                node, [(leaf, sources[leaf.uid]) for leaf in span if leaf.uid in sources]
            )
        else:
            reading = await _above(node, due_now, fresh, bench, directory)
        await _renew(node, reading, draft, fresh, bench, is_root=level == forest.root_level(size, k), serial=serial)
    await _demote(sequence, due_now, draft, bench)
    await _vacate(sequence, due_now, draft, bench)
    return draft


async def _renew(
    node: NodeId,
    reading: Reading | None,
    draft: _Draft,
    fresh: dict[NodeId, Summary],
    bench: Bench,
    *,
    is_root: bool,
    serial: int,
) -> None:
    (stored,) = await bench.store.summaries([node])
    if reading is None:
        draft.empty.append(node)
        draft.dropped += stored is not None
    elif stored is not None and summaries.is_current(stored, reading, is_root=is_root, serial=serial):
        draft.current.append(stored)
        fresh[node] = stored
    else:
        words = summaries.extract(reading, bench.numbers)
        summary = summaries.written(reading, words, is_root=is_root, serial=serial)
        draft.written.append(summary)
        fresh[node] = summary


async def _demote(sequence: Sequence, due_now: Stretch, draft: _Draft, bench: Bench) -> None:
    """A sequence that grew a level has a new root: the old roots, if nothing else was due there, stop being one."""
    levels = range(1, forest.root_level(due_now.size, bench.k))
    old = [NodeId(sequence, level, 0) for level in levels if due_now.start >= bench.k**level]
    for stored in await bench.store.summaries(old):
        if stored is not None:
            (draft.written if stored.is_root else draft.current).append(msgspec.structs.replace(stored, is_root=False))


async def _vacate(sequence: Sequence, due_now: Stretch, draft: _Draft, bench: Bench) -> None:
    """Drop the nodes that stand over nothing any more.

    Channels that were pooled here are no longer public, or leaves were erased: then the nodes behind the end that have
    a summary are found one after the other.
    """
    now = set(forest.nodes_from(due_now.start, due_now.size, bench.k))
    ever = [n for n in forest.nodes_from(due_now.start, due_now.total, bench.k) if n not in now]
    nodes = [NodeId(sequence, level, index) for level, index in ever]
    draft.dropped += sum(s is not None for s in await bench.store.summaries(nodes))
    beyond = await _beyond(sequence, due_now.total, bench)
    draft.dropped += len(beyond)
    draft.empty.extend([*nodes, *beyond])


async def _beyond(sequence: Sequence, total: int, bench: Bench) -> list[NodeId]:
    """The nodes with a summary that stand behind all the leaves there are."""
    found: list[NodeId] = []
    top = forest.root_level(total, bench.k) + 1
    nodes = [NodeId(sequence, level, -(-total // bench.k**level) if level < top else 0) for level in range(1, top + 1)]
    while nodes:
        stored = await bench.store.summaries(nodes, vectors=False)
        there = [node for node, summary in zip(nodes, stored, strict=True) if summary is not None]
        found.extend(there)
        higher = [NodeId(sequence, top + 1, 0)] if any(node.level == top for node in there) else []
        top += len(higher)
        nodes = [NodeId(sequence, n.level, n.index + 1) for n in there] + higher
    return found


async def _above(
    node: NodeId, due_now: Stretch, fresh: dict[NodeId, Summary], bench: Bench, directory: Directory
) -> Reading | None:
    """Read a node from its children: those renewed just now, and the stored ones before what is due."""
    ids = forest.children(node, due_now.size, bench.k)
    first_due = due_now.start // bench.k ** (node.level - 1)
    stored = await bench.store.summaries([n for n in ids if n.index < first_due])
    children = [s for s in stored if s is not None] + [fresh[n] for n in ids if n in fresh]
    return await _reading(node, children, bench, directory)


async def _reading(node: NodeId, children: Many[Summary], bench: Bench, directory: Directory) -> Reading | None:
    quoted = await _live(node.sequence, [uid for c in children for uid in c.picks], bench, directory)
    return summaries.reading_of_children(node, children, quoted)


async def _skeleton(actor: Sequence, bench: Bench, directory: Directory) -> _Draft:
    """Renew the fixed nodes above an actor's sequences, from public channels only (design §5, Audience)."""
    draft = _Draft()
    sequences = [
        s for s in await bench.store.sequences(actor.workspace, "actor", actor.tree) if directory.is_public(s.channel)
    ]
    sizes = await bench.store.sizes(sequences)
    roots = [NodeId(s, forest.root_level(n, bench.k), 0) for s, n in zip(sequences, sizes, strict=True)]
    upper = [actor, *(Sequence(actor.workspace, "actor", actor.tree, b) for b in (routing.AUTHORED, routing.MENTIONED))]
    serials = [max((r.serial for r in known), default=0) for known in await bench.store.redactions(upper)]
    standing = [s for s in await bench.store.summaries(roots) if s is not None]
    branches: list[Summary] = []
    for sequence, serial in zip(upper[1:], serials[1:], strict=True):
        node = NodeId(sequence, forest.SKELETON, 0)
        children = [s for s in standing if s.node.sequence.branch == sequence.branch]
        fresh: dict[NodeId, Summary] = {}
        reading = await _reading(node, children, bench, directory)
        await _renew(node, reading, draft, fresh, bench, is_root=False, serial=serial)
        branches.extend(fresh.values())
    root = NodeId(actor, forest.SKELETON, 1)
    reading = await _reading(root, branches, bench, directory)
    await _renew(root, reading, draft, {}, bench, is_root=True, serial=serials[0])
    return draft


async def _live(
    sequence: Sequence, uids: Iterable[str], bench: Bench, directory: Directory, draft: _Draft | None = None
) -> dict[str, Source]:
    """The leaves that a summariser may read and that are embedded.

    Whether they belong to the sequence is looked at for a draft only, and whether some are still to be embedded said.
    """
    readable = await speaking(sequence, uids, bench.store, directory, belonging=draft is not None)
    vectors = await bench.index.vectors([v.key for v in readable.values()])
    if draft is not None:
        draft.waits = any(
            vector is None and searchable(v) for v, vector in zip(readable.values(), vectors, strict=True)
        )
    return {
        uid: Source(
            v, vector.astype(np.float32), summaries.audience_of(v.channel, public=directory.is_public(v.channel))
        )
        for (uid, v), vector in zip(readable.items(), vectors, strict=True)
        if vector is not None
    }


async def speaking(
    sequence: Sequence, uids: Iterable[str], store: StructureStore, directory: Directory, *, belonging: bool = True
) -> dict[str, Version]:
    """What stands of the leaves that a summariser may read: not deleted, public where the sequence pools channels."""
    wanted = list(dict.fromkeys(uids))
    versions = await store.versions(wanted)
    standing = {uid: winner(known) for uid, known in zip(wanted, versions, strict=True) if known}
    readable = {
        uid: v
        for uid, v in standing.items()
        if not v.deleted and (directory.is_public(v.channel) or not summaries.read_by_everyone(sequence))
    }
    return await _belonging(sequence, readable, store) if belonging else readable


async def _belonging(sequence: Sequence, readable: dict[str, Version], store: StructureStore) -> dict[str, Version]:
    if sequence.view != "artifact":
        return {uid: v for uid, v in readable.items() if routing.belongs(sequence, v, {})}
    targets = list(dict.fromkeys(t for v in readable.values() for t in routing.targets_of(v)))
    known = dict(zip(targets, await store.versions(targets), strict=True))
    return {uid: v for uid, v in readable.items() if routing.belongs(sequence, v, known)}
