"""What speaks for a message before its text is read: who asks, when, and what surrounds it.

Implicit and ambiguous questions need the asker's own history (EGCForest §4.2, GroupMemBench); the level-1 node
above a message carries the Collapsed signal down to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from streammem.core.numbers import Retrieval
from streammem.records import Version

_DAY = 86_400e6


class Habits(msgspec.Struct, frozen=True):
    """Where the asker speaks: messages by channel, and the threads they stood in, by the moment asked for."""

    channels: dict[str, int] = {}
    threads: frozenset[str] = frozenset()


class Surroundings(msgspec.Struct, frozen=True):
    """Cosines of the best level-1 channel nodes by (channel, index); any other node gets the least of them."""

    nodes: dict[tuple[str, int], float] = {}

    @property
    def floor(self) -> float:
        """What a node that was not among the best gets."""
        return min(self.nodes.values(), default=0.0)


def prior(
    version: Version, thread: str, habits: Habits, numbers: Retrieval, *, node: float, moment: int | None
) -> float:
    """The prior of one message, in units of the fused score. `node` is the cosine of the node above it."""
    value = numbers.node * node + _habit(version, thread, habits, numbers)
    if moment is not None:
        value += numbers.recency * math.exp(-max(0, moment - version.ts) / _DAY / numbers.recency_days)
    return value


def _habit(version: Version, thread: str, habits: Habits, numbers: Retrieval) -> float:
    said = habits.channels.get(version.channel, 0)
    if not said:
        return 0.0
    most = max(habits.channels.values())
    return numbers.habit * said / most + numbers.habit_any + numbers.habit_thread * (thread in habits.threads)


def ordered(scores: Mapping[str, float]) -> list[str]:
    """Uids by score, best first, ties by uid; rounded so that the order is the same on every machine."""
    return [uid for _, uid in sorted([(-round(score, 6), uid) for uid, score in scores.items()])]
