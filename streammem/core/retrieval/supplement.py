"""S2: messages that match weakly by themselves but stand where it matters (§3.2.2).

Two guides. Summaries: the best node on each root-to-leaf path of the selected trees opens a bounded number of its
leaves. Context: a message is scored together with its neighbours in its sequence and thread, which lifts
Recall@20 most of all on conversations (facts.md: 72 to 79 on locomo).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core import forest
from streammem.core.numbers import Retrieval
from streammem.records import Leaf, NodeId, Version

_NEAR = (1.0, 0.5)
"""How much a neighbour at distance 1 and 2 counts."""


def one_per_path(hits: Iterable[tuple[NodeId, float]], k: int, paths: int) -> list[tuple[NodeId, float]]:
    """The best nodes, best first, none of which is an ancestor of another (§3.2.2): at most `paths`."""
    kept: list[tuple[NodeId, float]] = []
    for node, score in sorted(hits, key=lambda hit: (-round(hit[1], 6), hit[0])):
        if len(kept) == paths:
            break
        if not any(forest.is_ancestor(node, other, k) or forest.is_ancestor(other, node, k) for other, _ in kept):
            kept.append((node, score))
    return kept


class Pull(msgspec.Struct, frozen=True):
    """How strongly the anchor pulls a neighbour up, and along what."""

    uid: str
    anchor: str
    weight: float
    along: str


def window_pulls(anchor: Version, ranks: Many[Version | None], place: int, numbers: Retrieval) -> list[Pull]:
    """Neighbours of an anchor in its channel: nearer in rank and time pull more, other threads not at all.

    `ranks` are the versions around the anchor (None where hidden), the anchor itself at `place`.
    """
    pulls = []
    for distance, strength in enumerate(_NEAR, 1):
        for i in (place - distance, place + distance):
            other = ranks[i] if 0 <= i < len(ranks) else None
            if other is None or topic(other) != topic(anchor):
                continue
            gap = abs(other.ts - anchor.ts) / 1e6
            weight = strength * math.exp(-gap / numbers.context_seconds)
            pulls.append(Pull(other.uid, anchor.uid, weight, "channel"))
    return pulls


def thread_pulls(anchor: Leaf, thread: Many[Leaf]) -> list[Pull]:
    """Neighbours of an anchor in its thread (the root first): nearer in rank pull more, whatever the time."""
    place = next((i for i, leaf in enumerate(thread) if leaf.uid == anchor.uid), None)
    if place is None:
        return []
    return [
        Pull(thread[i].uid, anchor.uid, strength, "thread")
        for distance, strength in enumerate(_NEAR, 1)
        for i in (place - distance, place + distance)
        if 0 <= i < len(thread)
    ]


def topic(version: Version) -> str:
    """What a message stands under: its thread, or what it answers; empty in the open channel."""
    return version.thread or version.reply_to


def lifted(
    own: Mapping[str, float], scores: Mapping[str, float], pulls: Iterable[Pull], weight: float
) -> dict[str, float]:
    """Each message's own score plus `weight` times the strongest pull of a neighbouring anchor.

    `own` holds the scores of all candidates, `scores` those of the anchors. The strongest, not the sum: a message
    among several half-relevant ones would else beat a relevant one that stands alone.
    """
    strongest: defaultdict[str, float] = defaultdict(float)
    for pull in pulls:
        strongest[pull.uid] = max(strongest[pull.uid], pull.weight * scores.get(pull.anchor, 0.0))
    return {uid: score + weight * strongest[uid] for uid, score in own.items()}


def leaves_of_path(scored: Iterable[tuple[str, float]], cap: int) -> list[str]:
    """The best leaves under one node, at most `cap`."""
    return [uid for uid, _ in sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:cap]]
