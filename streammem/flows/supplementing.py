"""S2: open the best nodes of the selected trees and look around the anchors (§3.2.2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as Many

from streammem.core import forest, routing
from streammem.core.retrieval import supplement
from streammem.core.retrieval.assemble import Candidate
from streammem.flows.seeding import NODES, Findings
from streammem.flows.sight import Desk, Sight, shown_summaries
from streammem.ports import NodeSearch, Span, Vectors, Visible
from streammem.records import Found, Leaf, NodeId, Summary, Version

_REACH = 8
"""Leaves of a thread looked at on each side of an anchor: the nearest two count, more of them may be hidden."""


async def supplemented(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> list[Candidate]:
    """Open the best nodes of the selected trees, look around the anchors, and rank what is found with its context."""
    numbers, sight = desk.numbers, found.sight
    opened = await _open_nodes(found, visible, vector, desk)
    pulls = await _pulls(found, desk)
    cosines = await sight.weigh([*opened, *(p.uid for p in pulls)])
    own = {uid: numbers.dense_weight * max(value, 0.0) for uid, value in cosines.items()}
    own.update({s.uid: s.score for s in found.seeds})
    scores = {s.uid: s.score for s in found.seeds[: numbers.context_anchors]}
    total = supplement.lifted(own, scores, (p for p in pulls if sight.get(p.uid)), numbers.context_weight)
    ranked = sorted(total, key=lambda uid: (-total[uid], uid))[: 3 * numbers.limit]
    along = {p.uid: f"{p.along} of {sight[p.anchor].id}" for p in reversed(pulls) if sight.get(p.anchor)}
    return [
        Candidate(
            uid,
            Found(
                stage="S2",
                signal="context" if uid in along else "summary",
                path=along.get(uid) or opened.get(uid, ""),
                rank=rank,
                score=round(total[uid], 4),
            ),
        )
        for rank, uid in enumerate(ranked, 1)
    ]


async def _open_nodes(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> dict[str, str]:
    """The leaves that the best nodes open, each with the node it came from."""
    searches = [
        NodeSearch(view, roots_only=False, limit=NODES, trees=tuple(r.tree for r in routes))
        for view, routes in found.routes.items()
        if routes
    ]
    hits = [h for some in await desk.index.find_nodes(vector, searches, visible) for h in some]
    inner = [h for h in hits if h.node.level != forest.SKELETON]
    shown = await shown_summaries([h.node for h in inner], visible, desk)
    scores = [(h.node, h.score) for h in inner if h.node in shown]
    found.nodes = supplement.one_per_path(scores, desk.forest.k, desk.numbers.paths)
    await _note_chains(found, visible, desk)
    under = await _leaves_under([node for node, _ in found.nodes], shown, desk)
    await found.sight.see(uid for uids in under.values() for uid in uids)
    cosines = await found.sight.weigh(uid for uids in under.values() for uid in uids)
    opened: dict[str, str] = {}
    for node, uids in under.items():
        scored = ((uid, cosines[uid]) for uid in uids if uid in cosines)
        for uid in supplement.leaves_of_path(scored, desk.numbers.leaves_per_path):
            opened.setdefault(uid, label(node))
    return opened


async def _leaves_under(nodes: Many[NodeId], shown: Mapping[NodeId, Summary], desk: Desk) -> dict[NodeId, list[str]]:
    """The leaves that level-1 nodes were summarised over; of higher ones those that their summary quotes."""
    low = [n for n in nodes if n.level == 1]
    ends = [(n.sequence, end) for n in low for end in (shown[n].first, shown[n].last)]
    ranks = iter(await desk.store.ranks(ends))
    spans = [Span(n.sequence, first, last + 1) for n, first, last in zip(low, ranks, ranks, strict=True)]
    under = {n: [leaf.uid for leaf in leaves] for n, leaves in zip(low, await desk.store.leaves(spans), strict=True)}
    return {n: under.get(n) or list(shown[n].picks) for n in nodes}


async def _note_chains(found: Findings, visible: Visible, desk: Desk) -> None:
    """The summaries of the opened nodes and of all above them: what may be shown as headers, in that order."""
    nodes = [node for node, _ in found.nodes]
    sizes = await desk.store.sizes([n.sequence for n in nodes])
    chains = [
        [node, *forest.above(node, size, desk.forest.k), *forest.skeleton(node.sequence)]
        for node, size in zip(nodes, sizes, strict=True)
    ]
    shown = await shown_summaries(list(dict.fromkeys(n for chain in chains for n in chain)), visible, desk)
    found.chains = [shown[n] for n in dict.fromkeys(n for chain in chains for n in chain) if n in shown]


async def _pulls(found: Findings, desk: Desk) -> list[supplement.Pull]:
    """What the anchors pull up: neighbours in their channel and in their thread."""
    sight = found.sight
    anchors = [s.uid for s in found.seeds[: desk.numbers.context_anchors]]
    reach = desk.numbers.window
    places = [(uid, s) for uid in anchors for s in found.stands.get(uid, ()) if s.sequence.view == "channel"]
    spans = [Span(s.sequence, max(0, s.rank - reach), s.rank + reach + 1) for _, s in places]
    windows = await desk.store.leaves(spans)
    roots = {uid: supplement.topic(sight[uid]) or uid for uid in anchors}
    threads = dict(zip(roots.values(), await desk.store.answers(list(roots.values())), strict=True))
    around = {uid: _around(sight[uid], root, threads[root]) for uid, root in roots.items()}
    await sight.see(leaf.uid for leaves in (*windows, *around.values()) for leaf in leaves)
    await sight.see(roots.values())
    pulls: list[supplement.Pull] = []
    for (uid, stand), span, leaves in zip(places, spans, windows, strict=True):
        ranks = [sight.get(leaf.uid) for leaf in leaves]
        pulls += supplement.window_pulls(sight[uid], ranks, stand.rank - span.start, desk.numbers)
    for uid, root in roots.items():
        pulls += supplement.thread_pulls(routing.leaf_of(sight[uid]), _thread(root, around[uid], sight))
    return [p for p in pulls if sight.get(p.uid) is not None]


def _around(anchor: Version, root: str, answers: Many[Leaf]) -> Many[Leaf]:
    """The part of a thread in which an anchor's neighbours stand: threads may be long."""
    place = 0 if anchor.uid == root else bisect_left(answers, routing.leaf_of(anchor))
    return answers[max(0, place - _REACH) : place + _REACH + 1]


def _thread(root: str, answers: Many[Leaf], sight: Sight) -> list[Leaf]:
    """A thread, or a part of it, in order, its root first, as far as the asker sees it."""
    first = sight.get(root)
    rest = [leaf for leaf in answers if sight.get(leaf.uid) is not None]
    return [routing.leaf_of(first), *rest] if first is not None else rest


def label(node: NodeId) -> str:
    """A node's name for `found_by`."""
    s = node.sequence
    return (
        "/".join(part for part in (f"{s.view}:{s.tree}", s.branch, s.channel) if part) + f"#{node.level}.{node.index}"
    )
