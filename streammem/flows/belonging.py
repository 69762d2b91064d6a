"""S3: the artifacts that a question is about, and all that belongs to them (§3.1.1, §3.2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from streammem.core import routing
from streammem.core.artifacts import Joined, Tie, stands
from streammem.core.retrieval import prior, route
from streammem.flows.artifacts import why
from streammem.flows.seeding import Findings
from streammem.flows.sight import Desk, end
from streammem.ports import Visible


async def belonging(found: Findings, visible: Visible, desk: Desk) -> dict[str, tuple[float, str]]:
    """The members of the artifacts that the question is most likely about, with how likely that is and which one."""
    likely = route.about(await _speaking(found, desk), await _named(found, desk), desk.numbers)
    members: dict[str, tuple[float, str]] = {}
    for artifact, ways in zip(likely, await _members(list(likely), found, visible, desk), strict=True):
        for uid, way in ways.items():
            if uid not in members or likely[artifact] > members[uid][0]:
                members[uid] = (likely[artifact], way)
    return members


async def _named(found: Findings, desk: Desk) -> list[str]:
    """The artifacts that the question names, as the asker sees them."""
    await _look(found.spec.identifiers, found, desk)
    return list(dict.fromkeys(desk.artifacts.artifact_of(i, found.sight.get) for i in found.spec.identifiers))


async def _speaking(found: Findings, desk: Desk) -> list[tuple[list[str], float]]:
    """The artifacts of the best anchors, each with the anchor's score, best first."""
    sight, reading = found.sight, desk.artifacts
    top = prior.ordered(found.plain)[: desk.numbers.about_anchors]
    roots = {uid: found.pool[uid].thread for uid in top}
    await sight.see(roots.values())
    joins = [join for uid in top for join in reading.joins_of(uid)]
    await _see(joins, found)
    own: dict[str, set[str]] = {uid: set(sight[uid].identifiers) for uid in top}
    for uid, root in roots.items():
        own[uid].update(version.identifiers if (version := sight.get(root)) is not None else ())
    for join in (join for join in joins if stands(join, sight.get)):
        own[join.uid].add(join.identifier)
    await _look({i for some in own.values() for i in some}, found, desk)
    return [(sorted({reading.artifact_of(i, sight.get) for i in own[uid]}), found.plain[uid]) for uid in top]


async def _look(identifiers: Iterable[str], found: Findings, desk: Desk) -> None:
    """Look at what the ties of these identifiers' artifacts rest on."""
    await _see({tie for i in identifiers for tie in desk.artifacts.ties_around(i)}, found)


async def _see(facts: Iterable[Tie | Joined], found: Findings) -> None:
    """Look at what these rest on: before that none of them stands (artifacts.stands)."""
    await found.sight.see(sorted({uid for fact in facts for uid, _ in fact.sources}))


async def _members(artifacts: Many[str], found: Findings, visible: Visible, desk: Desk) -> list[dict[str, str]]:
    """The messages of each artifact that the asker sees, and why: the newest of its sequences and what joined."""
    sight, reading, numbers = found.sight, desk.artifacts, desk.numbers
    names = [reading.identifiers_of(a, sight.get) for a in artifacts]
    sequences = [routing.artifact_sequence(visible.workspace, i) for some in names for i in some]
    ends = await desk.store.ranks([(s, end(visible)) for s in sequences])
    near = iter(await sight.near(list(zip(sequences, ends, strict=True)), numbers.pool_cap, 0))
    members = [{v.uid: a for _ in some for v in next(near)} for a, some in zip(artifacts, names, strict=True)]
    await _see([join for some in names for i in some for join in reading.joined(i)], found)
    for some, ways in zip(names, members, strict=True):
        for join in (join for i in some for join in reading.joined(i) if stands(join, sight.get)):
            ways.setdefault(join.uid, why(join, reading, sight.get))
    return members
