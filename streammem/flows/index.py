"""The log to vectors: every message version becomes one point, insert-only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Many

from streammem.core import indexing
from streammem.core.directory import Directory
from streammem.core.identifiers import Rules
from streammem.flows.structure import versions_of
from streammem.ports import Embedder, MessagePoint, StructureStore, VectorIndex
from streammem.records import LogEntry, MessageEvent

APPLIED = "index"
"""The name of this flow's offset in the store."""


async def index(
    entries: Many[LogEntry], store: StructureStore, vectors: VectorIndex, embedder: Embedder, rules: Rules
) -> None:
    """Make a piece of the log findable; the structure flow has been over it. Running it again changes nothing."""
    versions = versions_of(entries, rules)
    uids = list(dict.fromkeys(v.uid for v in versions))
    untils = {k: u for known in await store.versions(uids) for k, u in indexing.untils(known).items()}
    events = [e.event for e in entries if isinstance(e.event, MessageEvent)]
    have = await vectors.known([v.key for v in versions])
    pairs = {
        v.key: (e, v) for e, v in zip(events, versions, strict=True) if indexing.searchable(v) and v.key not in have
    }
    names = {w: Directory(await store.facts(w)) for w in {v.workspace for v in versions}}
    texts = [indexing.dense_text(e, v, names[v.workspace]) for e, v in pairs.values()]
    encoded = await asyncio.to_thread(embedder.encode, texts) if texts else ()
    points = [
        MessagePoint(v, untils[v.key], vector, indexing.lexical_text(e, v, names[v.workspace]))
        for (e, v), vector in zip(pairs.values(), encoded, strict=True)
    ]
    await vectors.upsert(points)  # 1. the points
    await vectors.lower(untils)  # 2. what newer versions end
    await vectors.flush()  # 3. durable
    if entries:
        await store.advance(APPLIED, entries[-1].position)  # 4. last: the offset
