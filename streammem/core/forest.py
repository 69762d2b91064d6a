"""Rank arithmetic of balanced k-ary trees over sequences: the structure that needs no storing (design §3).

Ranks count from 0. Node (level, index) with level >= 1 covers the ranks [index*k**level, (index+1)*k**level).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from streammem.records import NodeId, Sequence

SKELETON = 0
"""The level of the fixed skeleton above an actor's sequences."""


def root_level(size: int, k: int) -> int:
    """The lowest level with one node over all `size` leaves; 0 for an empty sequence.

    >>> [root_level(n, 16) for n in (0, 1, 16, 17, 256, 257)]
    [0, 1, 1, 2, 2, 3]
    """
    if size == 0:
        return 0
    level, span = 1, k
    while span < size:
        level, span = level + 1, span * k
    return level


def parent(sequence: Sequence, rank: int, k: int) -> NodeId:
    """The level-1 node over the leaf of `rank`."""
    return NodeId(sequence, 1, rank // k)


def cover(level: int, index: int, size: int, k: int) -> range:
    """The ranks under a node in a sequence of `size` leaves."""
    span = k**level
    return range(min(index * span, size), min((index + 1) * span, size))


def path(rank: int, size: int, k: int) -> list[tuple[int, int]]:
    """(level, index) of every node over a leaf, from its parent to the root."""
    return [(level, rank // k**level) for level in range(1, root_level(size, k) + 1)]


def above(node: NodeId, size: int, k: int) -> list[NodeId]:
    """The ancestors of an inner node inside its sequence, nearest first."""
    return [
        NodeId(node.sequence, level, node.index // k ** (level - node.level))
        for level in range(node.level + 1, root_level(size, k) + 1)
    ]


def is_ancestor(upper: NodeId, lower: NodeId, k: int) -> bool:
    """Whether `upper` stands on the path from the root to `lower` (a node is no ancestor of itself)."""
    if upper.sequence != lower.sequence or upper.level <= lower.level:
        return False
    return bool(lower.index // k ** (upper.level - lower.level) == upper.index)


def nodes_from(rank: int, size: int, k: int) -> list[tuple[int, int]]:
    """(level, index) of every node that covers a rank >= `rank`, children before parents."""
    nodes: list[tuple[int, int]] = []
    for level in range(1, root_level(size, k) + 1):
        span = k**level
        nodes.extend((level, index) for index in range(rank // span, (size - 1) // span + 1))
    return nodes


def rising(rank: int, size: int, k: int) -> Iterator[tuple[int, int]]:
    """The same nodes in another order: each as soon as all those below it have come.

    >>> list(rising(0, 5, 2))
    [(1, 0), (1, 1), (2, 0), (1, 2), (2, 1), (3, 0)]
    """
    top = root_level(size, k)
    for index in range(rank // k, -(-size // k)):
        yield 1, index
        last = min((index + 1) * k, size) - 1  # the last rank under it
        for level in range(2, top + 1):
            if last != size - 1 and (last + 1) % k**level:
                break
            yield level, last // k**level


def children(node: NodeId, size: int, k: int) -> list[NodeId]:
    """The nodes right below one above level 1, in a sequence of `size` leaves."""
    below = -(-len(cover(node.level, node.index, size, k)) // k ** (node.level - 1))
    return [NodeId(node.sequence, node.level - 1, node.index * k + i) for i in range(below)]


def window(rank: int, size: int, width: int) -> range:
    """The ranks of the `width` neighbours on each side of a leaf, the leaf itself included."""
    return range(max(0, rank - width), min(size, rank + width + 1))


def siblings(rank: int, size: int, k: int) -> range:
    """The ranks that share the parent of a leaf, the leaf itself included."""
    return cover(1, rank // k, size, k)


def tree_of(sequence: Sequence) -> tuple[str, str]:
    """(view, tree): the tree that a sequence belongs to."""
    return (sequence.view, sequence.tree)


def skeleton(sequence: Sequence) -> list[NodeId]:
    """The nodes of the fixed skeleton above a sequence, nearest first: an actor's branch and root; else none."""
    if sequence.view != "actor":
        return []
    root = Sequence(sequence.workspace, sequence.view, sequence.tree)
    branch = Sequence(sequence.workspace, sequence.view, sequence.tree, sequence.branch)
    return [NodeId(branch, SKELETON, 0), NodeId(root, SKELETON, 1)]


def is_skeleton(sequence: Sequence) -> bool:
    """Whether it stands for the fixed nodes above an actor's sequences."""
    return sequence.view == "actor" and not sequence.channel


def top_of(sequence: Sequence) -> Sequence:
    """What stands for all the fixed nodes above an actor's sequences."""
    return Sequence(sequence.workspace, sequence.view, sequence.tree)


def digest(parts: Iterable[str]) -> str:
    """What a node was made from, in 128 bits (design §3: `made_from`)."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.encode())
        state.update(b"\x00")
    return state.hexdigest()
