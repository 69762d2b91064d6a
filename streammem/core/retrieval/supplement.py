"""S2: messages that match weakly by themselves but stand where it matters (§3.2.2).

Two guides. Summaries: the best node on each root-to-leaf path of the selected trees opens a bounded number of its
leaves. Context: a message is scored together with its neighbours in its sequence and thread, which lifts
Recall@20 most of all on conversations (facts.md: 72 to 79 on locomo).
"""

from __future__ import annotations

import math
from bisect import bisect_left
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


class Member(msgspec.Struct, gc=False, frozen=True):
    """A message in the pool and where it stands: `rank` is its rank in its channel."""

    version: Version
    rank: int

    @property
    def thread(self) -> str:
        """Its thread, or what it answers, or itself as one that may be answered."""
        return topic(self.version) or self.version.uid


def topic(version: Version) -> str:
    """What a message stands under: its thread, or what it answers; empty in the open channel."""
    return version.thread or version.reply_to


class Pull(msgspec.Struct, gc=False, frozen=True):
    """How strongly `anchor` pulls `uid` up, and along what."""

    uid: str
    anchor: str
    weight: float
    along: str


def pulls(pool: Mapping[str, Member], numbers: Retrieval) -> list[Pull]:
    """Everything in the pool that pulls its neighbours: in the channel, in the thread, and what is answered."""
    return [*_channel_pulls(pool, numbers), *_thread_pulls(pool), *_answer_pulls(pool)]


def _channel_pulls(pool: Mapping[str, Member], numbers: Retrieval) -> list[Pull]:
    """Channel neighbours under the same topic: nearer in rank and in time pull more."""
    places = {(m.version.channel, m.rank): m for m in pool.values()}
    found = []
    for member in pool.values():
        version, under = member.version, topic(member.version)
        for distance, strength in enumerate(_NEAR, 1):
            after = places.get((version.channel, member.rank + distance))
            if after is None or topic(after.version) != under:
                continue
            gap = abs(after.version.ts - version.ts) / 1e6
            weight = strength * math.exp(-gap / numbers.context_seconds)
            found.append(Pull(version.uid, after.version.uid, weight, "channel"))
            found.append(Pull(after.version.uid, version.uid, weight, "channel"))
    return found


def _thread_pulls(pool: Mapping[str, Member]) -> list[Pull]:
    """Neighbours in a thread, its root first: nearer in order pull more, whatever the time."""
    threads: defaultdict[str, list[Member]] = defaultdict(list)
    for member in pool.values():
        threads[member.thread].append(member)
    found = []
    for members in threads.values():
        row = sorted(members, key=lambda m: (m.version.ts, m.version.uid))
        for distance, strength in enumerate(_NEAR, 1):
            for a, b in zip(row, row[distance:], strict=False):
                found.append(Pull(a.version.uid, b.version.uid, strength, "thread"))
                found.append(Pull(b.version.uid, a.version.uid, strength, "thread"))
    return found


def _answer_pulls(pool: Mapping[str, Member]) -> list[Pull]:
    """A message is pulled by what it replies to."""
    return [
        Pull(uid, member.version.reply_to, 1.0, "reply")
        for uid, member in pool.items()
        if member.version.reply_to in pool
    ]


def strongest(found: Iterable[Pull], scores: Mapping[str, float]) -> dict[str, tuple[float, Pull]]:
    """The strongest pull on each message: the anchor's score times its weight.

    The strongest, not the sum: a message among several half-relevant ones would else beat a relevant one that
    stands alone.
    """
    best: dict[str, tuple[float, Pull]] = {}
    for pull in found:
        value = pull.weight * scores.get(pull.anchor, 0.0)
        if value > 0 and (
            pull.uid not in best or (-value, pull.anchor) < (-best[pull.uid][0], best[pull.uid][1].anchor)
        ):
            best[pull.uid] = (value, pull)
    return best


def part(thread: Many[Leaf], anchor: Leaf, width: int) -> Many[Leaf]:
    """The part of a thread around an anchor (its start for the root, which is not among its own answers)."""
    place = bisect_left(thread, anchor)
    return thread[max(0, place - width) : place + width + 1]


def leaves_of_path(scored: Iterable[tuple[str, float]], cap: int) -> list[str]:
    """The best leaves under one node, at most `cap`."""
    return [uid for uid, _ in sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:cap]]
