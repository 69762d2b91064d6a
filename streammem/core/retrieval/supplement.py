"""S2: messages that match weakly by themselves but stand where it matters (§3.2.2).

The best node on each root-to-leaf path of the selected trees opens a bounded number of its leaves. What stands around a
message is the other guide (context.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from streammem.core import forest
from streammem.records import NodeId


def one_per_path(hits: Iterable[tuple[NodeId, float]], k: int, paths: int) -> list[tuple[NodeId, float]]:
    """The best nodes, best first, none of which is an ancestor of another (§3.2.2): at most `paths`."""
    kept: list[tuple[NodeId, float]] = []
    for node, score in sorted(hits, key=lambda hit: (-round(hit[1], 6), hit[0])):
        if len(kept) == paths:
            break
        if not any(forest.is_ancestor(node, other, k) or forest.is_ancestor(other, node, k) for other, _ in kept):
            kept.append((node, score))
    return kept


def leaves_of_path(scored: Iterable[tuple[str, float]], cap: int) -> list[str]:
    """The best leaves under one node, at most `cap`."""
    return [uid for uid, _ in sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:cap]]
