"""What a memory holds, counted: messages, forests, summaries and how stale they are."""

from __future__ import annotations

from collections import Counter

import msgspec

from streammem.core import forest, routing, summaries
from streammem.core.directory import Directory
from streammem.core.registers import winner
from streammem.ports import Span, StructureStore, VectorIndex
from streammem.records import Leaf, NodeId, Sequence, Summary


class Stats(msgspec.Struct, frozen=True):
    """Counts by part. `structure` and `vectors` are the stores' own; `forests` are trees by view."""

    structure: dict[str, int]
    vectors: dict[str, int]
    forests: dict[str, int]
    summaries: dict[str, int]
    applied: dict[str, int]
    workspaces: tuple[str, ...]


async def stats(store: StructureStore, index: VectorIndex, k: int, lifecycle_markers: int) -> Stats:
    """Count everything. Reads every sequence once."""
    workspaces = await store.workspaces()
    forests: Counter[str] = Counter(channel=0, actor=0, artifact=0)
    states: Counter[str] = Counter(nodes=0, summarised=0, missing=0, shifted=0, changed=0)
    for workspace in workspaces:
        directory = Directory(await store.facts(workspace))
        sequences = await store.sequences(workspace)
        for view in ("channel", "actor"):
            forests[view] += len({s.tree for s in sequences if s.view == view})
        for sequence in sequences:
            states.update(await _states(sequence, store, k, directory))
            if sequence.view == "artifact" and len(await _markers(sequence, store)) >= lifecycle_markers:
                forests["artifact"] += 1
    return Stats(
        structure=await store.counts(),
        vectors=await index.counts(),
        forests=dict(forests),
        summaries=dict(states),
        applied={name: await store.applied(name) for name in ("structure", "index")},
        workspaces=tuple(workspaces),
    )


async def _states(sequence: Sequence, store: StructureStore, k: int, directory: Directory) -> Counter[str]:
    """How many nodes of a sequence are summarised, and how many of those are shifted or changed (design §3)."""
    (size,) = await store.sizes([sequence])
    (redactions,) = await store.redactions([sequence])
    (everything,) = await store.leaves([Span(sequence, 0, size)])
    leaves = summaries.grouped(sequence, everything, directory.is_public)
    nodes = [NodeId(sequence, level, i) for level, i in forest.nodes_from(0, len(leaves), k)]
    counts: Counter[str] = Counter(nodes=len(nodes))
    for node, summary in zip(nodes, await store.summaries(nodes), strict=True):
        ranks = forest.cover(node.level, node.index, len(leaves), k)
        if summary is None:
            counts["missing"] += 1
            continue
        counts["summarised"] += 1
        counts["changed"] += summaries.hidden(summary, redactions)
        counts["shifted"] += _shifted(summary, leaves[ranks.start], leaves[ranks.stop - 1])
    return counts


def _shifted(summary: Summary, first: Leaf, last: Leaf) -> bool:
    """Whether leaves that were summarised stand under another node now."""
    return summary.first < first or summary.last > last


async def _markers(sequence: Sequence, store: StructureStore) -> set[str]:
    """The lifecycle markers of the live leaves of a sequence."""
    (size,) = await store.sizes([sequence])
    (leaves,) = await store.leaves([Span(sequence, 0, size)])
    versions = [winner(known) for known in await store.versions([leaf.uid for leaf in leaves]) if known]
    targets = list(dict.fromkeys(t for v in versions for t in routing.targets_of(v)))
    known = dict(zip(targets, await store.versions(targets), strict=True))
    return {m for v in versions if routing.belongs(sequence, v, known) for m in v.markers}
