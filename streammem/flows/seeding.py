"""S1: search, check every hit, route to trees, gather the pool and score it (§3.2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from streammem.core import forest, routing
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import prior, route, seed, supplement
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.prior import Habits, Surroundings
from streammem.core.retrieval.route import Route, Tree
from streammem.core.retrieval.seed import Seed
from streammem.core.retrieval.supplement import Member, Pull
from streammem.flows.placements import around
from streammem.flows.sight import Desk, Sight, shown_summaries
from streammem.ports import NodeSearch, Span, Stand, Vectors, Visible
from streammem.records import FOREVER, Leaf, NodeId, Query, Summary

VIEWS = ("channel", "actor", "artifact")
ROOTS, INNER = 16, 64
"""Roots fetched for each view by the Root signal, and inner nodes by the Collapsed signal."""

_HISTORY = 256
"""The asker's own messages that are looked at for the threads they speak in."""


class Findings(msgspec.Struct):
    """What the stages have found so far. `flat` scores a message by itself, `full` with its neighbours."""

    spec: QuerySpec
    sight: Sight
    seeds: list[Seed]
    stands: dict[str, tuple[Stand, ...]] = {}
    routes: dict[str, list[Route]] = {}
    pool: dict[str, Member] = {}
    flat: dict[str, float] = {}
    full: dict[str, float] = {}
    pulled: dict[str, tuple[float, Pull]] = {}
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
    good = {h.key for h in (*dense, *lexical) if (v := sight.get(h.uid)) is not None and v.key == h.key}
    cosines = {h.uid: h.score for h in dense if h.key in good}
    words = [(h.uid, h.score) for h in lexical if h.key in good]
    cosines = await sight.weigh([*cosines, *(uid for uid, _ in words)], cosines)
    return Findings(spec, sight, seed.fuse(words, cosines, numbers))


async def routed(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> None:
    """Score trees by the three signals and keep the best of each view."""
    searches = [NodeSearch(view, roots, ROOTS if roots else INNER) for roots in (True, False) for view in VIEWS]
    hits = await desk.index.find_nodes(vector, searches, visible)
    shown = await shown_summaries([h.node for some in hits for h in some], visible, desk)
    scored = [[(h.node, h.score) for h in some if h.node in shown] for some in hits]
    level = {(n.sequence.tree, n.index): score for n, score in scored[3] if n.level == 1}
    found.surroundings = Surroundings(level)
    found.habits = await _habits(found, visible, desk)
    await _admit([s.uid for s in found.seeds], found, desk)
    first = _plain(found, desk, visible.moment)
    best = prior.ordered(first)[: desk.numbers.context_anchors]
    found.stands = await found.sight.stands(best)
    trees = [[(found.sight.tree_of(node.sequence), score) for node, score in some] for some in scored]
    voters = [s for s in found.seeds if s.uid in found.stands]
    signals = {
        "leaf2tree": route.leaf2tree(voters, found.hosts()),
        "root": route.best(pair for some in trees[:3] for pair in some),
        "collapsed": route.best(pair for some in trees[3:] for pair in some),
    }
    living = await _living({tree for s in signals.values() for tree in s if tree[0] == "artifact"}, visible, desk)
    kept = {name: {t: v for t, v in s.items() if t[0] != "artifact" or t in living} for name, s in signals.items()}
    found.routes = route.routes(kept, desk.numbers)
    await _gather(found, first, best, visible, desk)


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


async def _habits(found: Findings, visible: Visible, desk: Desk) -> Habits:
    """Where the asker speaks, by the moment asked for."""
    asker = found.spec.asker
    if asker is None:
        return Habits()
    known = [
        s
        for one in desk.directory.ids_of(asker)
        for s in await desk.store.sequences(visible.workspace, "actor", one)
        if s.branch == routing.AUTHORED
    ]
    own = [s for s in known if visible.channels is None or s.channel in visible.channels]
    counts = await desk.store.ranks([(s, _end(visible)) for s in own])
    busiest = sorted(zip(counts, own, strict=True), reverse=True)[:8]
    spans = [Span(s, max(0, n - _HISTORY // 8), n) for n, s in busiest]
    leaves = [leaf for some in await desk.store.leaves(spans) for leaf in some]
    await found.sight.see(leaf.uid for leaf in leaves)
    said = [v for leaf in leaves if (v := found.sight.get(leaf.uid)) is not None]
    threads = frozenset(supplement.topic(v) or v.uid for v in said)
    return Habits({s.channel: n for n, s in zip(counts, own, strict=True) if n}, threads)


def _end(visible: Visible) -> Leaf:
    """A leaf behind all that had been said by the moment asked for."""
    return Leaf(FOREVER if visible.moment is None else visible.moment + 1, "")


# ---------------------------------------------------------------------------------------------------- the pool


async def _admit(uids: Iterable[str], found: Findings, desk: Desk) -> None:
    """Take visible messages into the pool, with their rank in their channel and their cosine."""
    sight = found.sight
    new = [uid for uid in dict.fromkeys(uids) if uid not in found.pool and sight.get(uid) is not None]
    places = [
        (routing.channel_sequence(v.workspace, v.channel), routing.leaf_of(v)) for v in map(sight.__getitem__, new)
    ]
    ranks = await desk.store.ranks(places)
    await sight.weigh(new)
    found.pool.update({uid: Member(sight[uid], rank) for uid, rank in zip(new, ranks, strict=True)})


def _plain(found: Findings, desk: Desk, moment: int | None) -> dict[str, float]:
    """Each pool member by its text and its prior."""
    numbers, around = desk.numbers, found.surroundings
    floor = around.floor
    words = {s.uid: s.score for s in found.seeds}
    scores = {}
    for uid, member in found.pool.items():
        version = member.version
        node = around.nodes.get((version.channel, member.rank // desk.forest.k), floor)
        own = words.get(uid)
        if own is None:
            own = numbers.dense_weight * max(found.sight.cosine(uid) or 0.0, 0.0)
        scores[uid] = own + prior.prior(version, member.thread, found.habits, numbers, node=node, moment=moment)
    return scores


async def _gather(found: Findings, first: Mapping[str, float], best: list[str], visible: Visible, desk: Desk) -> None:
    """Add to the pool what stands around the best seeds and where they vote, then score everything."""
    members = await _members(found, first, best, visible, desk)
    around = await _around(found, best, desk)
    joining = [*around, *(uid for uids in members.values() for uid in uids)]
    await found.sight.see(joining)
    await _admit(joining, found, desk)
    plain = _plain(found, desk, visible.moment)
    found.pulled = supplement.strongest(supplement.pulls(found.pool, desk.numbers), plain)
    lifted = {
        uid: score + desk.numbers.context_weight * found.pulled[uid][0] if uid in found.pulled else score
        for uid, score in plain.items()
    }
    voters = _voters(found, members)
    seen = {i: sum(found.sight.get(uid) is not None for uid in uids) for i, uids in members.items()}
    top = [(voters[uid], lifted[uid]) for uid in prior.ordered(lifted)[: desk.numbers.voters]]
    won = route.shares(top, seen, found.spec.identifiers)
    boosts = {uid: route.boost(voter, won, desk.numbers) for uid, voter in voters.items()}
    found.flat = {uid: score + boosts[uid] for uid, score in plain.items()}
    found.full = {uid: score + boosts[uid] for uid, score in lifted.items()}


async def _members(
    found: Findings, first: Mapping[str, float], best: list[str], visible: Visible, desk: Desk
) -> dict[str, list[str]]:
    """The members of the identifier sequences that the best anchors and the question name (newest first to go in)."""
    numbers = desk.numbers
    voters = _voters(found, {})
    votes = route.shares([(voters[uid], first[uid]) for uid in best[: numbers.voters]], {}, found.spec.identifiers)
    names = prior.ordered(votes.identifiers)[: numbers.trees_per_view]
    sequences = [routing.artifact_sequence(visible.workspace, name) for name in names]
    ends = await desk.store.ranks([(s, _end(visible)) for s in sequences])
    near = await found.sight.near(list(zip(sequences, ends, strict=True)), numbers.pool_cap, 0)
    return {name: [v.uid for v in some] for name, some in zip(names, near, strict=True)}


def _voters(found: Findings, members: Mapping[str, Iterable[str]]) -> dict[str, route.Voter]:
    """Each pool member by where it stands: its own identifiers, and the sequences it was found in."""
    joined: dict[str, set[str]] = {uid: set(m.version.identifiers) for uid, m in found.pool.items()}
    for uid, stands in found.stands.items():
        joined[uid].update(s.sequence.tree for s in stands if s.sequence.view == "artifact")
    for name, uids in members.items():
        for uid in uids:
            if uid in joined:
                joined[uid].add(name)
    return {uid: route.Voter(m.version.channel, m.thread, frozenset(joined[uid])) for uid, m in found.pool.items()}


async def _around(found: Findings, best: list[str], desk: Desk) -> list[str]:
    """The neighbours of the best seeds in their channels and threads, more of a thread where a voter stands."""
    numbers, sight = desk.numbers, found.sight
    reach = numbers.window
    places = [s for uid in best for s in found.stands.get(uid, ()) if s.sequence.view == "channel"]
    windows = await desk.store.leaves([around(s, reach) for s in places])
    roots = {uid: found.pool[uid].thread for uid in best}
    threads = dict(zip(roots.values(), await sight.answers(list(roots.values())), strict=True))
    uids = [leaf.uid for leaves in windows for leaf in leaves] + list(roots.values())
    for place, (uid, root) in enumerate(roots.items()):
        width = numbers.pool_cap // 2 if place < numbers.voters else 4 * reach
        uids += [leaf.uid for leaf in supplement.part(threads[root], routing.leaf_of(sight[uid]), width)]
    return list(dict.fromkeys(uids))


def anchored(found: Findings, desk: Desk) -> list[Candidate]:
    """The seeds by their own score, with a few places kept for the trees that the question names."""
    selected = {(r.view, r.tree): f"{r.view}:{r.tree}" for some in found.routes.values() for r in some}
    named = [("actor", u) for u in found.spec.users] + [("artifact", i) for i in found.spec.identifiers]
    hosts = found.hosts()
    seeds = {s.uid: s for s in found.seeds}
    in_order = [seeds[uid] for uid in prior.ordered(found.flat) if uid in seeds]
    kept = route.anchors(
        in_order, hosts, [t for t in named if t in selected], desk.numbers.anchors, desk.numbers.view_quota
    )
    return [
        Candidate(
            s.uid,
            msgspec.structs.replace(
                s.found, rank=i, path=_first_route(hosts.get(s.uid, set()), selected), score=round(found.flat[s.uid], 4)
            ),
        )
        for i, s in enumerate(kept[: 3 * desk.numbers.limit], 1)
    ]


def _first_route(hosts: set[Tree], best: Mapping[Tree, str]) -> str:
    return next((label for tree, label in best.items() if tree in hosts), "")
