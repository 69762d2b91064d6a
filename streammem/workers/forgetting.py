"""Forgetting in a memory in servers: mark it in the log, wait until the workers have followed, search everything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Sequence as Many

import msgspec

from streammem.core import positions
from streammem.core.directory import Directory
from streammem.core.events import moment
from streammem.core.topics import TOPICS
from streammem.errors import MemoryHeldError, SettingsError, TransientError
from streammem.flows import forgetting
from streammem.flows.erasing import unsay
from streammem.flows.forgetting import Forgotten, Traces
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.memory import Progress
from streammem.ports import VectorIndex
from streammem.wiring.stream import Streaming

LOOK = 0.2
HELD = "the process that runs index holds the directory; stop it and run forget --prove again"


async def meant(
    parts: Streaming, workspace: str, messages: Iterable[str], users: Iterable[str], progress: Progress | None = None
) -> Forgotten:
    """What these names stand for, and all that these users said. Raises QueryError for a name nobody knows."""
    store, log = parts.structure, parts.log
    named = await forgetting.meant(workspace, messages, users, store, log)
    names = Directory(await store.facts(named.workspace))
    return await forgetting.found(named.workspace, named.messages, named.users, log, _told(progress), directory=names)


async def forgotten(parts: Streaming, wanted: Forgotten, progress: Progress | None = None) -> Forgotten:
    """Forget it, and wait until no worker has anything left to do about it. Raises TransientError when they do not."""
    done = await forgetting.forget(wanted, parts.log, parts.log, parts.structure, _told(progress))
    await _followed(parts, done)
    await unsay(done.messages, parts.structure)  # a model may have been told of it before
    await parts.structure.sweep()
    return done


async def _followed(parts: Streaming, done: Forgotten) -> None:
    """Wait for structure and vectors to come to where the log ends now, and until no summary speaks of it.

    Where people go on talking there is always something due, so that is not waited for.
    """
    store, end = parts.structure, await parts.log.end()
    doing = ""
    try:
        async with asyncio.timeout(parts.settings.worker.timeout * 4):
            for name in (STRUCTURED, INDEXED):
                doing = name
                while not positions.covers(await store.applied(name), end):
                    await asyncio.sleep(LOOK)
            doing = "summarize"
            while (await store.counts())["due"] and (await forgetting.in_words(done, store))[0]:
                await asyncio.sleep(5 * LOOK)
    except TimeoutError:
        raise TransientError(
            f"it is marked in the log, but {doing} has not followed: start a worker of this role and run this again"
        ) from None


async def traces(parts: Streaming, wanted: Forgotten, progress: Progress | None = None) -> Traces:
    """Search log, stores, vectors and topics. Vectors in a directory are searched where it is and nobody holds it."""
    vectors, unsearched = await _vectors(parts)
    found = await forgetting.traces(wanted, parts.log, parts.structure, vectors, _told(progress))
    topics = await _waiting(parts, forgetting.needles(wanted))
    return msgspec.structs.replace(found, unsearched=unsearched, topics=topics)


async def _vectors(parts: Streaming) -> tuple[VectorIndex | None, str]:
    """The vectors, or why they cannot be searched. Of a server, that is an error as everywhere."""
    try:
        return await parts.index_at_hand(), ""
    except MemoryHeldError:
        return None, HELD
    except SettingsError as error:
        if parts.settings.vectors.url is not None:
            raise
        return None, str(error)


async def _waiting(parts: Streaming, needles: Many[tuple[bytes, ...]]) -> dict[str, str]:
    """The topics that still hold records of it, and until when."""
    waiting: dict[str, str] = {}
    for topic in TOPICS:
        count, newest = await parts.exchange.holding(topic, needles)
        if count and topic.retention is not None:
            waiting[topic.name] = (
                f"{count} records, dropped by {moment(newest + topic.retention * 1000):%Y-%m-%d %H:%M} UTC"
            )
        elif count:
            waiting[topic.name] = f"{count} records until Kafka compacts them: readers are given none of them"
    return waiting


def _told(progress: Progress | None) -> forgetting.Progress | None:
    return (lambda n: progress("replay", n)) if progress else None
