"""Questions as they come in: the workspace is found, the directory is at hand, and the answer says how fresh it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Many
from contextlib import suppress

import msgspec

from streammem.core import positions
from streammem.core.directory import Directory
from streammem.core.events import TEXT_LIMIT, clean
from streammem.core.identifiers import Rules
from streammem.core.numbers import Forest, Retrieval
from streammem.core.topics import READS
from streammem.errors import QueryError, TransientError
from streammem.flows.answer import answer
from streammem.flows.artifacts import Groupings
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.sight import Desk
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.wording import Directories, touch
from streammem.ports import Embedder, StructureStore, VectorIndex
from streammem.records import Answer, Awaited, NodeId, Position, Query

LOOK = 0.05
"""Seconds between two looks at how far the memory has come, while a question waits."""
LONG_LOOK = 0.5
"""The same, at most, where a look costs Kafka several requests."""
REST = 10.0
"""Seconds in which nodes that a question met are not noted again: whoever words them would be called back for ever."""
_LATELY = 10_000
"""Nodes whose time is remembered."""


class Counter:
    """Where questions are put. One serves many tasks."""

    def __init__(
        self,
        store: StructureStore,
        index: VectorIndex,
        embedder: Embedder,
        rules: Rules,
        *,
        forest: Forest,
        numbers: Retrieval,
        worded: bool = False,
    ) -> None:
        self._store, self._index, self._embedder = store, index, embedder
        self._rules, self._forest, self._numbers = rules, forest, numbers
        self._directories = Directories(store)
        self._groupings = Groupings(store)
        self._worded = worded
        self._touching: set[asyncio.Task[None]] = set()
        self._lately: dict[NodeId, float] = {}

    async def ask(self, query: Query, numbers: Retrieval | None = None) -> Answer:
        """Answer a question. `position` says how far structure and index had come before it was looked at.

        `numbers` are for this question only: measuring asks with others.
        Raises QueryError for a user, channel or workspace that is not known, and for more text than a message may have.
        """
        if len(query.text) > TEXT_LIMIT:
            raise QueryError(f"the question has {len(query.text)} characters: at most {TEXT_LIMIT} are read")
        structured, indexed, known = await asyncio.gather(
            self._store.applied(STRUCTURED), self._store.applied(INDEXED), self._store.workspaces()
        )
        position = {STRUCTURED: structured, INDEXED: indexed}
        query = msgspec.structs.replace(query, text=clean(query.text), workspace=query.workspace or only(known))
        if query.workspace not in known:
            raise QueryError(f"no workspace {query.workspace!r} in this memory: it has {', '.join(known) or 'none'}")
        directory = await self.directory(query.workspace)
        touched = self._touch if self._worded else None
        reading = await self._groupings.of(query.workspace, directory)
        desk = Desk(
            self._store,
            self._index,
            self._embedder,
            directory,
            self._rules,
            self._forest,
            numbers or self._numbers,
            touched,
            artifacts=reading,
        )
        return msgspec.structs.replace(await answer(query, desk), position=position)

    async def close(self) -> None:
        """Wait for what is still to be noted."""
        await asyncio.gather(*self._touching, return_exceptions=True)

    def _touch(self, nodes: Many[NodeId]) -> None:
        """Let these nodes be worded first. Nobody waits for that."""
        now = time.monotonic()
        nodes = [node for node in nodes if now - self._lately.get(node, -REST) >= REST]
        if not nodes:
            return
        if len(self._lately) > _LATELY:
            self._lately.clear()
        self._lately.update(dict.fromkeys(nodes, now))

        async def touching() -> None:
            with suppress(TransientError):
                await touch(nodes, self._store)

        task = asyncio.ensure_future(touching())
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def directory(self, workspace: str) -> Directory:
        """The directory of a workspace as it stands; read anew only when a fact has changed."""
        return await self._directories.of(workspace)


def only(workspaces: list[str]) -> str:
    """The one workspace of a memory. Raises QueryError when there is another number of them."""
    if len(workspaces) > 1:
        raise QueryError(f"this memory has several workspaces, name one of them: {', '.join(workspaces)}")
    if not workspaces:
        raise QueryError("this memory is empty: import something first")
    return workspaces[0]


async def findable(
    awaited: Awaited,
    store: StructureStore,
    taken_in: Callable[[], Awaitable[dict[str, Position]]],
    end: Callable[[], Awaitable[Position]],
) -> None:
    """Return when all that is awaited can be found. How long to wait is the caller's: cancel it.

    `taken_in` tells how far `ingest` has come with each input topic, `end` the end of the log. Raises QueryError for an
    input topic that there is not.
    """
    wanted = awaited.log
    if awaited.inputs:
        known = {topic.short for topic in READS["ingest"]}
        if strange := sorted(awaited.inputs.keys() - known):
            raise QueryError(
                f"there is no input topic {strange[0]!r} to wait for: it can be {' or '.join(sorted(known))}"
            )
        pause = LOOK
        while not _covered(awaited.inputs, await taken_in()):
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONG_LOOK)
        wanted = positions.joined(wanted, await end())
    for name in (STRUCTURED, INDEXED):
        while not positions.covers(await store.applied(name), wanted):
            await asyncio.sleep(LOOK)


def _covered(wanted: dict[str, Position], reached: dict[str, Position]) -> bool:
    return all(positions.covers(reached.get(name, {}), position) for name, position in wanted.items())
