"""What a memory holds, counted: messages, forests, summaries and how stale they are."""

from __future__ import annotations

from collections import Counter

import msgspec

from streammem.core import forest, routing, summaries
from streammem.core.directory import Directory
from streammem.core.registers import winner
from streammem.flows.artifacts import overview
from streammem.ports import Span, StructureStore, VectorIndex
from streammem.records import NodeId, Position, Sequence


class Stats(msgspec.Struct, frozen=True):
    """Counts by part. `structure` and `vectors` are the stores' own; `forests` are trees by view.

    `artifacts` counts how identifiers and messages are grouped, `aliases` are a few of the names that were found and
    `merged` a few of the pairs that are one.
    """

    structure: dict[str, int]
    vectors: dict[str, int]
    forests: dict[str, int]
    summaries: dict[str, int]
    applied: dict[str, Position]
    workspaces: tuple[str, ...]
    artifacts: dict[str, int] = {}
    aliases: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()


async def stats(store: StructureStore, index: VectorIndex, k: int, lifecycle_markers: int) -> Stats:
    """Count everything. Reads every sequence once."""
    workspaces = await store.workspaces()
    forests: Counter[str] = Counter(channel=0, actor=0, artifact=0)
    states: Counter[str] = Counter(nodes=0, summarised=0, shifted=0, changed=0)
    for workspace in workspaces:
        sequences = await store.sequences(workspace)
        directory = Directory(await store.facts(workspace))
        for view in ("channel", "actor"):
            forests[view] += len({s.tree for s in sequences if s.view == view})
        for sequence in sequences:
            states.update(await _states(sequence, store, directory, k))
            if sequence.view == "artifact" and len(await _markers(sequence, store)) >= lifecycle_markers:
                forests["artifact"] += 1
    groups = [await overview(workspace, store) for workspace in workspaces]
    return Stats(
        structure=await store.counts(),
        vectors=await index.counts(),
        forests=dict(forests),
        summaries=dict(states),
        applied={name: await store.applied(name) for name in ("structure", "index")},
        workspaces=tuple(workspaces),
        artifacts={name: sum(g.counts[name] for g in groups) for name in groups[0].counts} if groups else {},
        aliases=tuple(line for g in groups for line in g.aliases),
        merged=tuple(line for g in groups for line in g.merged),
    )


async def _states(sequence: Sequence, store: StructureStore, directory: Directory, k: int) -> Counter[str]:
    """How many nodes of a sequence are summarised, and how many of those are shifted or changed (design §3).

    A node of which no leaf can be summarised has no summary and misses none.
    """
    (total,) = await store.sizes([sequence])
    (redactions,) = await store.redactions([sequence])
    (leaves,) = await store.leaves([Span(sequence, 0, total)])
    if summaries.read_by_everyone(sequence):
        leaves = tuple(summaries.grouped(sequence, leaves, directory.is_public))
    size = len(leaves)
    nodes = [NodeId(sequence, level, i) for level, i in forest.nodes_from(0, size, k)]
    counts: Counter[str] = Counter(nodes=len(nodes))
    for node, summary in zip(nodes, await store.summaries(nodes), strict=True):
        if summary is None:
            continue
        ranks = forest.cover(node.level, node.index, size, k)
        counts["summarised"] += 1
        counts["changed"] += summaries.hidden(summary, redactions)
        counts["shifted"] += not leaves[ranks.start] <= summary.first <= summary.last <= leaves[ranks.stop - 1]
    return counts


async def _markers(sequence: Sequence, store: StructureStore) -> set[str]:
    """The lifecycle markers of the live leaves of a sequence."""
    (size,) = await store.sizes([sequence])
    (leaves,) = await store.leaves([Span(sequence, 0, size)])
    versions = [winner(known) for known in await store.versions([leaf.uid for leaf in leaves]) if known]
    targets = list(dict.fromkeys(t for v in versions for t in routing.targets_of(v)))
    known = dict(zip(targets, await store.versions(targets), strict=True))
    return {m for v in versions if routing.belongs(sequence, v, known) for m in v.markers}
