"""S3, structural completion: artifacts, joins over placements, hops over bridges (§3.2.3)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core.directory import fold
from streammem.core.numbers import Retrieval
from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval.substance import unmarked
from streammem.records import Bridge, Version

_WORD = re.compile(r"\w+")
_TELLING = 5
"""Words besides names that a joining message says when it says something."""
_SAYING = 0.3
"""How much that counts beside its cosine to the question."""
_RARE = 8.0
"""The BM25 score of a text with itself above which its words are rare enough to lead somewhere."""


# -------------------------------------------------------------------------------------------------------- joins


def groups(spec: QuerySpec) -> list[frozenset[str]]:
    """Whom the question names, place by place, each with all whom it may mean; the same people count once."""
    found = [frozenset(n.ids) for n in spec.named if n.kind == "user"]
    return [g for i, g in enumerate(found) if not any(g & other for other in found[:i])]


def wants_join(spec: QuerySpec) -> bool:
    """A join is tried only for a question that names at least two people (§3.2.3: two resolvable entities)."""
    return len(groups(spec)) > 1


def holds(spec: QuerySpec, version: Version, named: Iterable[str]) -> bool:
    """Whether a message stands in the trees of two whom the question names: said by, mentioning, or naming them."""
    there = {version.user, *version.mentions, *named}
    return sum(bool(group & there) for group in groups(spec)) > 1


def folded(text: str) -> list[str]:
    """The words of a text without marks like `<@user>`, folded."""
    return [fold(word) for word in _WORD.findall(unmarked(text))]


def content(text: str, beside: Collection[str]) -> list[str]:
    """The words of a text that are no names and do not stand in the question (both in `beside`, folded)."""
    return [word for word in dict.fromkeys(folded(text)) if word not in beside and not word.isdigit()]


class Join(msgspec.Struct, gc=False, frozen=True):
    """A joining message, the words in it that lead further, and how much it is trusted, at most 1."""

    uid: str
    words: tuple[str, ...]
    trust: float


def joins(candidates: Iterable[tuple[str, float, Many[str]]], numbers: Retrieval) -> list[Join]:
    """The most telling joining messages of (uid, cosine, content), best first.

    Few messages join two people, most of them greetings: one that says something counts more.
    """
    scored = [
        (cosine + _SAYING * min(1.0, len(words) / _TELLING), uid, tuple(words)) for uid, cosine, words in candidates
    ]
    best = sorted(scored, key=lambda c: (-round(c[0], 6), c[1]))[: numbers.joins]
    return [Join(uid, words, math.exp((score - best[0][0]) / numbers.join_width)) for score, uid, words in best]


def led_to(found: Iterable[tuple[Join, Mapping[str, float]]], numbers: Retrieval) -> dict[str, tuple[float, str]]:
    """What the joins give each message, and which one did: its share of the join's own words (BM25 scores by uid)."""
    gains: dict[str, tuple[float, str]] = {}
    for join, scores in found:
        whole = scores.get(join.uid, 0.0)
        reach = join.trust * min(1.0, whole / _RARE) if whole > 0 else 0.0
        given = {uid: reach * min(1.0, score / whole) for uid, score in scores.items() if reach}
        given[join.uid] = numbers.join_itself * join.trust
        for uid, value in given.items():
            if numbers.join * value > gains.get(uid, (0.0, ""))[0]:
                gains[uid] = (numbers.join * value, join.uid)
    return gains


# ------------------------------------------------------------------------------------------------------ bridges


class Hop(msgspec.Struct, frozen=True):
    """A message reached over a bridge, with its relevance and the way there."""

    uid: str
    score: float
    signal: str
    path: str


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
