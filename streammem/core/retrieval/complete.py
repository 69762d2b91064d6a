"""S3, structural completion: bounded joins over placements and hops over bridges (§3.2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many

import msgspec

from streammem.core.numbers import Retrieval
from streammem.core.query_spec import QuerySpec
from streammem.records import Bridge, Version


class Hop(msgspec.Struct, frozen=True):
    """A message reached over a bridge or a join, with its relevance and the way there."""

    uid: str
    score: float
    signal: str
    path: str


def wants_join(spec: QuerySpec) -> bool:
    """A join is tried only for a question that names at least two resolvable entities (§3.2.3)."""
    return spec.entities >= 2


def holds(spec: QuerySpec, version: Version) -> set[str]:
    """Which of the question's entities a message is placed under: author, mentions, channel or identifiers."""
    own = {version.user, version.channel, *version.mentions, *version.identifiers}
    return own & {*spec.users, *spec.channels, *spec.identifiers}


def in_order(spec: QuerySpec, first: Version, candidate: Version) -> bool:
    """Whether a candidate stands on the side of `first` that the temporal cue asks for."""
    if spec.cue == "before":
        return candidate.ts <= first.ts
    return candidate.ts >= first.ts if spec.cue in ("after", "latest") else True


def join(
    spec: QuerySpec, first: Version, candidates: Iterable[tuple[Version, float]], numbers: Retrieval
) -> Hop | None:
    """The best candidate for the entities that `first` lacks: above the floor, on the right side in time."""
    missing = {*spec.users, *spec.channels, *spec.identifiers} - holds(spec, first)
    fit = [
        Hop(v.uid, score, "placement join", f"with {first.id}")
        for v, score in candidates
        if v.uid != first.uid and holds(spec, v) & missing and in_order(spec, first, v) and score >= numbers.join_floor
    ]
    return min(fit, key=lambda hop: (-hop.score, hop.uid), default=None)


def hop(bridges: Many[Bridge], score: Callable[[str], float | None], outside: Callable[[str], bool]) -> Bridge | None:
    """The one bridge of a leaf to follow: into a tree outside the pool, its endpoint most relevant to the question."""
    open_ends = [b for b in bridges if score(b.target) is not None and outside(b.target)]
    return min(open_ends, key=lambda b: (-(score(b.target) or 0.0), b.target), default=None)


def reached(bridge: Bridge, window: Iterable[str], score: Callable[[str], float | None]) -> list[Hop]:
    """The endpoint of a bridge and the most relevant message in a bounded window around it."""
    name = "reply bridge" if bridge.kind == "reply" else f"identifier bridge {bridge.label}"
    hops = [Hop(bridge.target, score(bridge.target) or 0.0, name, f"from {bridge.source}")]
    near = [(uid, s) for uid in window if uid != bridge.target and (s := score(uid)) is not None]
    if near:
        uid, value = min(near, key=lambda pair: (-pair[1], pair[0]))
        hops.append(Hop(uid, value, f"window of a {name}", f"beside {bridge.target}"))
    return hops


def kept(hops: Iterable[Hop], limit: int, floor: float) -> list[Hop]:
    """The best hops over the floor, each message once."""
    best: dict[str, Hop] = {}
    for found in sorted(hops, key=lambda h: (-h.score, h.uid)):
        if found.score >= floor:
            best.setdefault(found.uid, found)
    return list(best.values())[:limit]
