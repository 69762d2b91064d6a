"""S1: search, check every hit, route to trees (§3.2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from streammem.core import forest, routing
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import context, prior, route, seed
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.context import Member, Pull
from streammem.core.retrieval.prior import Habits, Surroundings
from streammem.core.retrieval.route import Route, Tree
from streammem.core.retrieval.seed import Seed
from streammem.flows.sight import Desk, Sight, shown_summaries
from streammem.ports import NodeSearch, Span, Stand, Vectors, Visible
from streammem.records import NodeId, Query, Summary

ROOTS, INNER = 16, 64
"""Roots fetched for each view by the Root signal, and inner nodes by the Collapsed signal."""

_HISTORY = 256
"""The asker's own messages that are looked at for the threads they speak in."""


class Findings(msgspec.Struct):
    """What the stages have found so far, and what each message of the pool scores.

    `plain` by its text and what speaks for it beforehand; `flat` with the votes of the anchors (S1); `whole` with its
    context (S2), its artifacts and joins (S3).
    """

    spec: QuerySpec
    sight: Sight
    seeds: list[Seed]
    stands: dict[str, tuple[Stand, ...]] = {}
    routes: dict[str, list[Route]] = {}
    pool: dict[str, Member] = {}
    plain: dict[str, float] = {}
    flat: dict[str, float] = {}
    whole: dict[str, float] = {}
    pulled: dict[str, tuple[float, Pull]] = {}
    structure: dict[str, tuple[str, str]] = {}
    nodes: list[tuple[NodeId, float]] = []
    chains: list[Summary] = []
    habits: Habits = Habits()
    surroundings: Surroundings = Surroundings()

    def hosts(self) -> dict[str, set[Tree]]:
        """The trees of each message."""
        return {uid: {self.sight.tree_of(s.sequence) for s in stands} for uid, stands in self.stands.items()}


async def seeded(spec: QuerySpec, visible: Visible, vector: Vectors, query: Query, desk: Desk) -> Findings:
    """Search by words and by meaning, check every hit against the registers, fuse."""
    numbers = desk.numbers
    dense, lexical = await desk.index.find_messages(vector, spec.lexical, numbers.seeds, visible)
    sight = Sight(desk, query, visible, vector)
    await sight.see(hit.uid for hit in (*dense, *lexical))
    cosines = {h.uid: h.score for h in sight.standing(dense)}
    words = [(h.uid, h.score) for h in sight.standing(lexical)]
    cosines = await sight.weigh([*cosines, *(uid for uid, _ in words)], cosines)
    return Findings(spec, sight, seed.fuse(words, cosines, numbers))


async def routed(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> list[str]:
    """Score trees by the three signals and keep the best of each view. The best anchors, best first."""
    numbers, views = desk.numbers, desk.numbers.views
    searches = [NodeSearch(view, roots, ROOTS if roots else INNER) for roots in (True, False) for view in views]
    hits = await desk.index.find_nodes(vector, searches, visible)
    shown = await shown_summaries([h.node for some in hits for h in some], visible, desk)
    scored = [[(h.node, h.score) for h in some if h.node in shown] for some in hits]
    by_search = dict(zip(((s.view, s.roots_only) for s in searches), scored, strict=True))
    nodes = by_search.get(("channel", False), [])
    found.surroundings = Surroundings({(n.sequence.tree, n.index): score for n, score in nodes if n.level == 1})
    found.habits = await _habits(found, desk) if "actor" in views else Habits()
    await admit([s.uid for s in found.seeds], found, desk)
    found.plain = plain(found, desk, visible.moment)
    best = prior.ordered(found.plain)[: numbers.context_anchors]
    found.stands = await found.sight.stands(best)
    trees = {
        key: [(found.sight.tree_of(node.sequence), score) for node, score in some] for key, some in by_search.items()
    }
    signals = {
        "leaf2tree": route.leaf2tree([s for s in found.seeds if s.uid in found.stands], found.hosts()),
        "root": route.best(pair for (_, roots), some in trees.items() if roots for pair in some),
        "collapsed": route.best(pair for (_, roots), some in trees.items() if not roots for pair in some),
    }
    living = await _living({tree for s in signals.values() for tree in s if tree[0] == "artifact"}, visible, desk)
    kept = {
        name: {t: v for t, v in s.items() if t[0] in views and (t[0] != "artifact" or t in living)}
        for name, s in signals.items()
    }
    found.routes = route.routes(kept, numbers)
    return best


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


async def _habits(found: Findings, desk: Desk) -> Habits:
    """Where the asker speaks, by the moment asked for."""
    asker = found.spec.asker
    if asker is None:
        return Habits()
    counts = await found.sight.said_by(asker)
    busiest = sorted(((n, s) for s, n in counts.items()), reverse=True)[:8]
    spans = [Span(s, max(0, n - _HISTORY // 8), n) for n, s in busiest]
    leaves = [leaf for some in await desk.store.leaves(spans) for leaf in some]
    await found.sight.see(leaf.uid for leaf in leaves)
    said = [v for leaf in leaves if (v := found.sight.get(leaf.uid)) is not None]
    threads = frozenset(context.topic(v) or v.uid for v in said)
    return Habits({s.channel: n for s, n in counts.items() if n}, threads)


async def admit(uids: Iterable[str], found: Findings, desk: Desk) -> None:
    """Take visible messages into the pool, with their rank in their channel and what they have of the question."""
    sight = found.sight
    new = [uid for uid in dict.fromkeys(uids) if uid not in found.pool and sight.get(uid) is not None]
    places = [
        (routing.channel_sequence(v.workspace, v.channel), routing.leaf_of(v)) for v in map(sight.__getitem__, new)
    ]
    ranks = await desk.store.ranks(places)
    await sight.weigh(new)
    found.pool.update({uid: Member(sight[uid], rank) for uid, rank in zip(new, ranks, strict=True)})


def plain(found: Findings, desk: Desk, moment: int | None) -> dict[str, float]:
    """Each pool member by its text and its prior. Those that were weighed before keep what they have."""
    numbers, around = desk.numbers, found.surroundings
    floor = around.floor
    words = {s.uid: s.score for s in found.seeds}
    scores = dict(found.plain)
    for uid, member in found.pool.items():
        if uid in scores:
            continue
        version = member.version
        node = around.nodes.get((version.channel, member.rank // desk.forest.k), floor)
        own = words.get(uid)
        if own is None:
            own = numbers.dense_weight * max(found.sight.cosine(uid) or 0.0, 0.0)
        scores[uid] = own + prior.prior(version, member.thread, found.habits, numbers, node=node, moment=moment)
    return scores


def anchored(found: Findings, desk: Desk) -> list[Candidate]:
    """The seeds by their own score and the votes."""
    selected = {(r.view, r.tree): f"{r.view}:{r.tree}" for some in found.routes.values() for r in some}
    hosts = found.hosts()
    seeds = {s.uid: s for s in found.seeds if s.uid in found.flat}
    best = prior.ordered({uid: found.flat[uid] for uid in seeds})
    in_order = [seeds[uid] for uid in best[: 3 * desk.numbers.limit]]
    return [
        Candidate(
            s.uid,
            msgspec.structs.replace(
                s.found, rank=i, path=_first_route(hosts.get(s.uid, set()), selected), score=round(found.flat[s.uid], 4)
            ),
        )
        for i, s in enumerate(in_order, 1)
    ]


def _first_route(hosts: set[Tree], best: Mapping[Tree, str]) -> str:
    return next((label for tree, label in best.items() if tree in hosts), "")
