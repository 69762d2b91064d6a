"""S1: search, check every hit, route to trees, keep anchors (§3.2.1)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from streammem.core import forest, routing
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import route, seed
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.route import Route, Tree
from streammem.core.retrieval.seed import Seed
from streammem.flows.sight import Desk, Sight, shown_summaries
from streammem.ports import NodeSearch, Stand, Vectors, Visible
from streammem.records import NodeId, Query, Summary

VIEWS = ("channel", "actor", "artifact")
NODES = 64
"""Inner nodes fetched for each view by the Collapsed signal, and roots by the Root signal."""


class Findings(msgspec.Struct):
    """What the stages have found so far."""

    spec: QuerySpec
    sight: Sight
    seeds: list[Seed]
    stands: dict[str, tuple[Stand, ...]]
    routes: dict[str, list[Route]]
    nodes: list[tuple[NodeId, float]] = []
    chains: list[Summary] = []

    def hosts(self) -> dict[str, set[Tree]]:
        """The trees of each message."""
        return {uid: {forest.tree_of(s.sequence) for s in stands} for uid, stands in self.stands.items()}


async def seeded(spec: QuerySpec, visible: Visible, vector: Vectors, query: Query, desk: Desk) -> Findings:
    """Search by words and by meaning, check every hit against the registers, fuse."""
    numbers = desk.numbers
    dense, lexical = await desk.index.find_messages(vector, spec.lexical, numbers.seeds, visible)
    sight = Sight(desk, query, visible, vector)
    await sight.see(hit.uid for hit in (*dense, *lexical))
    good = {h.key for h in (*dense, *lexical) if (v := sight.get(h.uid)) is not None and v.key == h.key}
    cosines = {h.uid: h.score for h in dense if h.key in good}
    words = [(h.uid, h.score) for h in lexical if h.key in good]
    cosines = await sight.weigh([*cosines, *(uid for uid, _ in words)], cosines)
    return Findings(spec, sight, seed.fuse(words, cosines, numbers), {}, {})


async def routed(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> None:
    """Score trees by the three signals and keep the best of each view."""
    uids = [s.uid for s in found.seeds[: desk.numbers.context_anchors]]
    found.stands = dict(zip(uids, await desk.store.placements(uids), strict=True))
    searches = [NodeSearch(view, roots, NODES) for roots in (True, False) for view in VIEWS]
    hits = await desk.index.find_nodes(vector, searches, visible)
    shown = await shown_summaries([h.node for some in hits for h in some], visible, desk)
    scored = [[(forest.tree_of(h.node.sequence), h.score) for h in some if h.node in shown] for some in hits]
    signals = {
        "leaf2tree": route.leaf2tree(found.seeds[: desk.numbers.context_anchors], found.hosts()),
        "root": route.best(pair for some in scored[:3] for pair in some),
        "collapsed": route.best(pair for some in scored[3:] for pair in some),
    }
    living = await _living({tree for s in signals.values() for tree in s if tree[0] == "artifact"}, visible, desk)
    kept = {name: {t: v for t, v in s.items() if t[0] != "artifact" or t in living} for name, s in signals.items()}
    found.routes = route.routes(kept, desk.numbers)


async def _living(trees: set[Tree], visible: Visible, desk: Desk) -> set[Tree]:
    """The artifacts that show enough lifecycle to be trees, by what the asker may see: their root summaries.

    A root stands as high as its public leaves reach; all leaves of the sequence say how high that is at most.
    """
    sequences = [routing.artifact_sequence(visible.workspace, tree) for _, tree in sorted(trees)]
    heights = [forest.root_level(size, desk.forest.k) for size in await desk.store.sizes(sequences)]
    tops = [NodeId(s, level, 0) for s, height in zip(sequences, heights, strict=True) for level in range(1, height + 1)]
    shown = await shown_summaries(tops, visible, desk)
    return {
        forest.tree_of(node.sequence)
        for node, summary in shown.items()
        if summary.is_root and len(summary.markers) >= desk.forest.lifecycle_markers
    }


def anchored(found: Findings, desk: Desk) -> list[Candidate]:
    """The seeds in order, with a few places kept for the trees that the question names."""
    selected = {(r.view, r.tree) for some in found.routes.values() for r in some}
    named = [("actor", u) for u in found.spec.users] + [("artifact", i) for i in found.spec.identifiers]
    hosts = found.hosts()
    kept = route.anchors(
        found.seeds, hosts, [t for t in named if t in selected], desk.numbers.anchors, desk.numbers.view_quota
    )
    found.seeds = kept
    best = {r.tree: f"{r.view}:{r.tree}" for some in found.routes.values() for r in some}
    return [
        Candidate(s.uid, msgspec.structs.replace(s.found, rank=i, path=_first_route(hosts.get(s.uid, set()), best)))
        for i, s in enumerate(kept, 1)
    ]


def _first_route(hosts: set[Tree], best: Mapping[str, str]) -> str:
    return next((label for tree, label in best.items() if any(t == tree for _, t in hosts)), "")
