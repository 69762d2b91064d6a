"""Taking care of a memory in servers: the proof that it is what its log says, and building it anew."""

from __future__ import annotations

import asyncio

from streammem.core import positions
from streammem.errors import MemoryHeldError, SettingsError, TransientError
from streammem.flows.artifacts import Grouper, group_due
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.index import index
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.summarize import Bench, Summarized, summarize
from streammem.flows.verify import Verified, replay, verify
from streammem.memory import Progress
from streammem.records import Position
from streammem.wiring.stream import Streaming

TRIES = 3
"""A memory that is written to while it is read may seem to differ: it is read again."""


async def verified(parts: Streaming, seconds: float, progress: Progress | None = None) -> Verified:
    """Rebuild the forests from the log in this process and compare them with Redis; trace what summaries cover.

    Waits up to so many seconds for `structure` to reach the end of the log. Raises TransientError if it does not.
    """
    settings = parts.settings
    told = (lambda n: progress("replay", n)) if progress else None
    traced = (lambda n: progress("summaries", n)) if progress else None
    for left in reversed(range(TRIES)):
        end = await parts.log.end()
        await _structured(parts, end, seconds)
        found = await verify(
            parts.log,
            parts.structure,
            parts.fresh_structure(),
            parts.rules,
            k=settings.forest.k,
            fan_out=settings.retrieval.fan_out,
            progress=told,
            traced=traced,
            grouper=await _grouper(parts),
        )
        if found.sound or not left or await parts.log.end() == end:
            break
    return found


async def _grouper(parts: Streaming) -> Grouper | None:
    """What groups artifacts again, None where the vectors that takes cannot be opened from here."""
    try:
        index = await parts.index_at_hand()
    except (MemoryHeldError, SettingsError, TransientError):
        return None
    return Grouper(parts.structure, index, parts.rules, parts.settings.grouping)


async def _structured(parts: Streaming, end: Position, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not positions.covers(applied := await parts.structure.applied(STRUCTURED), end):
                await asyncio.sleep(0.1)
    except TimeoutError:
        behind = positions.between(applied, end)
        raise TransientError(
            f"structure is {behind} entries behind the log: start a structure worker, then try again"
        ) from None


async def rebuilt(parts: Streaming, progress: Progress | None = None) -> Summarized:
    """Drop what Redis and the vectors hold, except the cache of summaries, and build it again from the log.

    Workers may go on meanwhile: what they write is the same. With an index in a directory, stop the process that
    holds it first.
    """
    settings = parts.settings
    vectors, embedder = await parts.index(rebuild=True), await parts.embedder()
    await parts.structure.clear()
    await vectors.clear()
    await parts.renew()
    await parts.check()
    told = (lambda n: progress("log", n)) if progress else None
    await replay(parts.log, parts.structure, parts.rules, progress=told)
    while entries := await parts.log.read(await parts.structure.applied(INDEXED), settings.pool):
        await index(entries, parts.structure, vectors, embedder, parts.rules)
        if progress:
            progress("index", len(entries))
    bench = Bench(
        parts.structure,
        vectors,
        settings.forest.k,
        settings.summary,
        lease=settings.worker.lease,
        worded=await parts.worded(),
    )
    done = await summarize(bench, progress=(lambda n: progress("summaries", n)) if progress else None)
    await group_due(Grouper(parts.structure, vectors, parts.rules, settings.grouping, lease=settings.worker.lease))
    await parts.switch_index()
    return done
