"""The vector index as a model: exact and in memory. What every other index must agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many
from math import log

import msgspec
import numpy as np

from streammem.backends.lexical import AVERAGE_LENGTH, bm25, words
from streammem.ports import MessageHit, MessagePoint, NodeHit, NodePoint, NodeSearch, Vectors, Visible
from streammem.records import FOREVER, Naming, NodeId, Version

DIGITS = 5
"""Scores are compared after rounding, so that engines whose last bits differ break ties alike: by key."""


class _Row(msgspec.Struct):
    version: Version
    until: int
    vector: Vectors
    weights: dict[int, float]
    naming: Naming


class MemoryIndex:
    """VectorIndex in dictionaries: dense scores by cosine, BM25 with IDF over what is visible."""

    def __init__(self, dimensions: int, average_length: float = AVERAGE_LENGTH) -> None:
        self._dimensions = dimensions
        self._bm25 = bm25(average_length)
        self._rows: dict[str, _Row] = {}
        self._nodes: dict[NodeId, tuple[NodePoint, Vectors]] = {}

    async def upsert(self, points: Many[MessagePoint]) -> None:
        for point in points:
            if point.version.key not in self._rows:
                self._rows[point.version.key] = self._row(point)

    def _row(self, point: MessagePoint) -> _Row:
        sparse = self._bm25.embed_document(words(point.lexical))
        weights = dict(zip(sparse.indices, sparse.values, strict=True))
        return _Row(point.version, point.until, _unit(point.vector), weights, point.naming)

    async def replace(self, points: Many[MessagePoint]) -> None:
        for point in points:
            row, known = self._row(point), self._rows.get(point.version.key)
            row.until = min(row.until, known.until) if known else row.until
            self._rows[point.version.key] = row

    async def misnamed(
        self, workspace: str, users: Mapping[str, str], channels: Mapping[str, str]
    ) -> list[tuple[str, Naming]]:
        return [
            (key, row.naming)
            for key, row in sorted(self._rows.items())
            if row.version.workspace == workspace and _is_misnamed(row, users, channels)
        ]

    async def lower(self, untils: Mapping[str, int]) -> None:
        for key, until in untils.items():
            if (row := self._rows.get(key)) is not None:
                row.until = min(row.until, until)

    async def erase(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> None:
        for key in self._keys_of(workspace, uids, users):
            del self._rows[key]

    async def traces(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> int:
        return len(self._keys_of(workspace, uids, users))

    def _keys_of(self, workspace: str, uids: Many[str], users: Many[str]) -> list[str]:
        these, theirs = set(uids), set(users)
        return [
            key
            for key, row in self._rows.items()
            if row.version.workspace == workspace and (row.version.uid in these or row.version.user in theirs)
        ]

    async def known(self, keys: Many[str]) -> set[str]:
        return {key for key in keys if key in self._rows}

    async def vectors(self, keys: Many[str]) -> list[Vectors | None]:
        return [row.vector if (row := self._rows.get(key)) is not None else None for key in keys]

    async def cosines(self, vector: Vectors, keys: Many[str]) -> list[float | None]:
        unit = _unit(vector)
        rows = [self._rows.get(key) for key in keys]
        return [None if row is None else round(float(np.dot(row.vector, unit)), 5) for row in rows]

    async def find_messages(
        self, vector: Vectors, lexical: str, limit: int, visible: Visible
    ) -> tuple[list[MessageHit], list[MessageHit]]:
        corpus = [row for row in self._rows.values() if _stands(row, visible)]
        asked = [row for row in corpus if _asked_for(row.version, visible)]
        terms = self._bm25.embed_query(words(lexical)).indices
        return _best(_dense(asked, vector), limit), _best(_lexical(asked, corpus, terms), limit)

    async def find_words(self, texts: Many[str], limit: int, visible: Visible) -> list[list[MessageHit]]:
        corpus = [row for row in self._rows.values() if _stands(row, visible)]
        asked = [row for row in corpus if _asked_for(row.version, visible)]
        terms = [self._bm25.embed_query(words(text)).indices for text in texts]
        return [_best(_lexical(asked, corpus, some), limit) for some in terms]

    async def find_nodes(self, vector: Vectors, searches: Many[NodeSearch], visible: Visible) -> list[list[NodeHit]]:
        unit = _unit(vector)
        seen = [stored for stored in self._nodes.values() if _readable(stored[0], visible)]
        return [_nearest_nodes(seen, unit, search) for search in searches]

    async def keep_nodes(self, points: Many[NodePoint]) -> None:
        for point in points:
            self._nodes[point.summary.node] = (point, _unit(np.frombuffer(point.summary.vector, "<f4")))

    async def drop_nodes(self, nodes: Many[NodeId]) -> None:
        for node in nodes:
            self._nodes.pop(node, None)

    async def flush(self) -> None:
        """Nothing here survives a kill."""

    async def counts(self) -> dict[str, int]:
        return {"message points": len(self._rows), "node points": len(self._nodes)}

    async def clear(self) -> None:
        self._rows.clear()
        self._nodes.clear()

    def close(self) -> None:
        """Nothing is held."""


def _is_misnamed(row: _Row, users: Mapping[str, str], channels: Mapping[str, str]) -> bool:
    naming, version = row.naming, row.version
    return ("user" in naming.follows and users.get(version.user, naming.speaker) != naming.speaker) or (
        "channel" in naming.follows and channels.get(version.channel, naming.room) != naming.room
    )


def _unit(vector: Vectors) -> Vectors:
    # A vector that is a unit already keeps its bits, so that what was encoded is what comes back.
    length = float(np.linalg.norm(vector))
    return vector if length == 0 or abs(length - 1) <= 1e-6 else (vector / length).astype(np.float32)


def _stands(row: _Row, visible: Visible) -> bool:
    version = row.version
    if version.workspace != visible.workspace:
        return False
    if visible.channels is not None and version.channel not in visible.channels:
        return False
    return row.until == FOREVER if visible.moment is None else version.since <= visible.moment < row.until


def _asked_for(version: Version, visible: Visible) -> bool:
    early = visible.since is not None and version.ts < visible.since
    late = visible.until is not None and version.ts >= visible.until
    return not (early or late or version.uid in visible.exclude)


def _readable(point: NodePoint, visible: Visible) -> bool:
    return (
        point.summary.node.sequence.workspace == visible.workspace
        and (visible.audiences is None or point.audience in visible.audiences)
        and (visible.moment is None or point.summary.latest <= visible.moment)
    )


def _dense(rows: list[_Row], vector: Vectors) -> list[tuple[float, Version]]:
    if not rows:
        return []
    scores = np.stack([row.vector for row in rows]) @ _unit(vector)
    return [(float(score), row.version) for score, row in zip(scores, rows, strict=True)]


def _lexical(rows: list[_Row], corpus: list[_Row], terms: Many[int]) -> list[tuple[float, Version]]:
    counts = Counter(term for row in corpus for term in terms if term in row.weights)
    idf = {term: log(1 + (len(corpus) - df + 0.5) / (df + 0.5)) for term, df in counts.items()}
    return [
        (sum(idf[term] * row.weights[term] for term in terms if term in row.weights), row.version)
        for row in rows
        if any(term in row.weights for term in terms)
    ]


def _best(scored: Iterable[tuple[float, Version]], limit: int) -> list[MessageHit]:
    hits = [MessageHit(version.uid, version.key, round(score, DIGITS)) for score, version in scored]
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:limit]


def _nearest_nodes(seen: list[tuple[NodePoint, Vectors]], vector: Vectors, search: NodeSearch) -> list[NodeHit]:
    hits = [
        NodeHit(point.summary.node, round(float(stored @ vector), DIGITS))
        for point, stored in seen
        if _sought(point, search)
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.node))[: search.limit]


def _sought(point: NodePoint, search: NodeSearch) -> bool:
    sequence = point.summary.node.sequence
    return (
        sequence.view == search.view
        and (point.summary.is_root or not search.roots_only)
        and (not search.trees or sequence.tree in search.trees)
    )
