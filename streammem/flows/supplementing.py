"""S2: open the best nodes of the selected trees and look around the anchors (§3.2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many

from streammem.core import forest
from streammem.core.events import native_id
from streammem.core.retrieval import prior, supplement
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.route import Route
from streammem.flows.seeding import Findings
from streammem.flows.sight import Desk, shown_summaries
from streammem.ports import NodeSearch, Span, Vectors, Visible
from streammem.records import Found, NodeId, Summary


async def supplemented(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> list[Candidate]:
    """Open the best nodes of the selected trees; rank their leaves and the pool by all that speaks for them."""
    numbers, sight = desk.numbers, found.sight
    if numbers.stages < 2:
        return []
    opened = await _open_nodes(found, visible, vector, desk)
    cosines = await sight.weigh(opened)
    total = {uid: numbers.dense_weight * max(value, 0.0) for uid, value in cosines.items()} | found.whole
    return [
        Candidate(uid, _way(uid, opened.get(uid, ""), rank, total[uid], found))
        for rank, uid in enumerate(prior.ordered(total)[: 3 * numbers.limit], 1)
    ]


def _way(uid: str, node: str, rank: int, score: float, found: Findings) -> Found:
    """How a message was come to: along structure (S3), by a node that was opened, a neighbour, or the votes (S2)."""
    pull = found.pulled.get(uid)
    if uid in found.structure:
        signal, path = found.structure[uid]
        return Found(stage="S3", signal=signal, path=path, rank=rank, score=round(score, 4))
    signal, path = ("summary", node) if node else ("votes", f"thread {native_id(found.pool[uid].thread)}")
    if not node and pull is not None:
        signal, path = "context", f"{pull[1].along} of {found.sight[pull[1].anchor].id}"
    return Found(stage="S2", signal=signal, path=path, rank=rank, score=round(score, 4))


async def _open_nodes(found: Findings, visible: Visible, vector: Vectors, desk: Desk) -> dict[str, str]:
    """The leaves that the best nodes open, each with the node it came from."""
    searches = [
        NodeSearch(view, roots_only=False, limit=3 * desk.numbers.paths, trees=_ids(view, routes, desk))
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


def _ids(view: str, routes: Many[Route], desk: Desk) -> tuple[str, ...]:
    """The trees to search: a person and a channel have one for each of their ids."""
    all_of = {"actor": desk.directory.ids_of, "channel": desk.directory.ids_of_channel}.get(view)
    return tuple(one for r in routes for one in (all_of(r.tree) if all_of else (r.tree,)))


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


def label(node: NodeId) -> str:
    """A node's name for `found_by`."""
    s = node.sequence
    return (
        "/".join(part for part in (f"{s.view}:{s.tree}", s.branch, s.channel) if part) + f"#{node.level}.{node.index}"
    )
