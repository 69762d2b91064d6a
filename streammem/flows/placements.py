"""The Placement Map's three primitives, answered by ranks and arithmetic (EGCForest §3.1.2)."""

from __future__ import annotations

from collections.abc import Sequence as Many

from streammem.core import forest
from streammem.core.retrieval.route import Tree
from streammem.ports import Span, Stand, StructureStore
from streammem.records import Leaf, Placement, Sequence


async def placements(uids: Many[str], store: StructureStore, k: int) -> list[list[Placement]]:
    """Every place where each message stands: sequence, leaf position and parent node."""
    return [
        [
            Placement(sequence=s.sequence, position=s.rank, size=s.size, parent=forest.parent(s.sequence, s.rank, k))
            for s in stands
        ]
        for stands in await store.placements(uids)
    ]


async def trees_of(uid: str, store: StructureStore) -> list[Tree]:
    """The trees that contain a message, sorted."""
    (stands,) = await store.placements([uid])
    return sorted({forest.tree_of(stand.sequence) for stand in stands})


async def window(uid: str, sequence: Sequence, width: int, store: StructureStore) -> list[Leaf]:
    """The leaves up to `width` places around a message in a sequence, itself included; none where it does not stand."""
    (stands,) = await store.placements([uid])
    spans = [around(stand, width) for stand in stands if stand.sequence == sequence]
    return [leaf for leaves in await store.leaves(spans) for leaf in leaves]


async def cotenants(uid: str, store: StructureStore, k: int) -> list[Leaf]:
    """The leaves that share a parent node with a message, across its placements, without repeats, in order of time."""
    (stands,) = await store.placements([uid])
    found = [leaf for leaves in await store.leaves([beside(stand, k) for stand in stands]) for leaf in leaves]
    return sorted({leaf for leaf in found if leaf.uid != uid})


def around(stand: Stand, width: int) -> Span:
    """The ranks around a place."""
    ranks = forest.window(stand.rank, stand.size, width)
    return Span(stand.sequence, ranks.start, ranks.stop)


def beside(stand: Stand, k: int) -> Span:
    """The ranks under the same parent as a place."""
    ranks = forest.siblings(stand.rank, stand.size, k)
    return Span(stand.sequence, ranks.start, ranks.stop)
