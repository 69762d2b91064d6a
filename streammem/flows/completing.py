"""S3: hops over bridges, within a small budget (§3.2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from streammem.core import bridges, routing
from streammem.core.retrieval import complete
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.complete import Hop
from streammem.core.retrieval.route import Tree
from streammem.flows.seeding import Findings
from streammem.flows.sight import Desk
from streammem.records import Bridge, Found, Leaf, Version


async def completed(found: Findings, first: Many[Candidate], second: Many[Candidate], desk: Desk) -> list[Candidate]:
    """Follow bridges from the strongest leaves, within a small budget."""
    numbers = desk.numbers
    if numbers.stages < 3 or not numbers.bridge_messages:
        return []
    kept = complete.kept(await _hops(found, first, second, desk), numbers.bridge_messages, numbers.bridge_floor)
    return [
        Candidate(h.uid, Found(stage="S3", signal=h.signal, path=h.path, rank=i, score=round(h.score, 4)))
        for i, h in enumerate(kept, 1)
    ]


async def _hops(found: Findings, first: Many[Candidate], second: Many[Candidate], desk: Desk) -> list[Hop]:
    """At most one bridge from each strong leaf, into a tree outside the pool, and a look around its endpoint."""
    sight, numbers = found.sight, desk.numbers
    pool = [c.uid for c in (*first[: numbers.anchors], *second[: numbers.expansion])]
    strong = list(dict.fromkeys(pool))[: numbers.bridge_anchors]
    links = await _bridges([sight[uid] for uid in strong], found, desk)
    ends = list(dict.fromkeys(b.target for some in links for b in some))
    await sight.see(ends)
    await sight.weigh(ends)
    stands = await sight.stands(ends)
    ends_in = {uid: [sight.tree_of(s.sequence) for s in some] for uid, some in stands.items()}
    hosts = found.hosts()
    trees = {tree for uid in pool for tree in hosts.get(uid, ())}
    followed = [
        bridge
        for some in links
        if (bridge := complete.hop(some, sight.cosine, lambda uid: _outside(ends_in.get(uid, ()), trees, uid, pool)))
    ]
    places = [(stand.sequence, stand.rank) for bridge in followed for stand in stands[bridge.target][:1]]
    near = await sight.near(places, numbers.window, numbers.window + 1)
    windows = [[v.uid for v in some] for some in near]
    await sight.weigh(uid for uids in windows for uid in uids)
    taken = set(pool)
    return [
        hop
        for bridge, uids in zip(followed, windows, strict=True)
        for hop in complete.reached(bridge, uids, sight.cosine)
        if hop.uid not in taken
    ]


def _outside(stands: Iterable[Tree], trees: set[Tree], uid: str, pool: Many[str]) -> bool:
    """Whether an endpoint brings a tree that the pool does not have."""
    return uid not in pool and any(tree not in trees for tree in stands)


async def _bridges(leaves: Many[Version], found: Findings, desk: Desk) -> list[list[Bridge]]:
    """The reply and identifier bridges at each leaf, as far as the asker sees their ends."""
    sight, numbers = found.sight, desk.numbers
    answers = await sight.answers([v.uid for v in leaves])
    await sight.see(leaf.uid for some in answers for leaf in some)
    carriers = await _carriers(leaves, found, desk)
    out = []
    for version, some in zip(leaves, answers, strict=True):
        replies = [v for leaf in some if (v := sight.get(leaf.uid)) is not None]
        out.append([*bridges.replies(version, replies), *bridges.identifiers(version, carriers, numbers.fan_out)])
    return out


async def _carriers(leaves: Many[Version], found: Findings, desk: Desk) -> dict[str, list[Leaf]]:
    """For each identifier at these leaves: the messages around them that carry it and that the asker sees."""
    sight, reach = found.sight, 4 * desk.numbers.fan_out
    wanted = [(i, routing.artifact_sequence(v.workspace, i), routing.leaf_of(v)) for v in leaves for i in v.identifiers]
    ranks = await desk.store.ranks([(sequence, leaf) for _, sequence, leaf in wanted])
    places = [(sequence, rank) for (_, sequence, _), rank in zip(wanted, ranks, strict=True)]
    carriers: dict[str, list[Leaf]] = {}
    for (identifier, _, _), some in zip(wanted, await sight.near(places, reach, reach + 1), strict=True):
        carrying = [routing.leaf_of(v) for v in some if identifier in v.identifiers]
        carriers.setdefault(identifier, []).extend(carrying)
    return {identifier: list(dict.fromkeys(some)) for identifier, some in carriers.items()}
