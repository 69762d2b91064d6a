"""A whole memory over the in-memory backends, with its parts in reach of a test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import forest
from streammem.core.directory import Directory
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Forest, Retrieval, Summarizing
from streammem.flows.answer import answer
from streammem.flows.asking import Counter
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.index import index
from streammem.flows.ingest import ingest
from streammem.flows.sight import Desk
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.summarize import Bench, Summarized, summarize
from streammem.flows.verify import replay
from streammem.ports import Span
from streammem.records import Answer, Event, NodeId, Query, Sequence, Summary
from tests.embedding import HashingEmbedder


class World:
    """Takes events piece by piece; runs the flows when told to. `k` is small: few messages make several levels."""

    def __init__(
        self,
        k: int = 3,
        *,
        store: MemoryStructure | None = None,
        vectors: MemoryIndex | None = None,
        embedder: HashingEmbedder | None = None,
        numbers: Retrieval | None = None,
        words: Summarizing | None = None,
        lifecycle_markers: int = 2,
    ) -> None:
        self.log = MemoryLog()
        self.store = store or MemoryStructure()
        self.embedder = embedder or HashingEmbedder()
        self.index = vectors or MemoryIndex(self.embedder.dimensions)
        self.forest = Forest(k=k, lifecycle_markers=lifecycle_markers)
        self.numbers = numbers or Retrieval()
        self.now = 0.0
        self.bench = Bench(self.store, self.index, k, words or Summarizing(), clock=lambda: self.now)

    def counter(self) -> Counter:
        """Where questions are put that let the nodes which they meet come first."""
        return Counter(
            self.store,
            self.index,
            self.embedder,
            DEFAULT_RULES,
            forest=self.forest,
            numbers=self.numbers,
            worded=True,
        )

    # ---- writing
    async def place(self, events: Iterable[Event]) -> None:
        """Append events and let the forests and the index catch up; nothing is summarised."""
        await ingest(list(events), self.log, self.store.forbidden)
        await self.catch_up()

    async def catch_up(self, batch: int = 500) -> None:
        """Structure, then vectors, from where they were."""
        await replay(self.log, self.store, DEFAULT_RULES, after=await self.store.applied(STRUCTURED), batch=batch)
        while entries := await self.log.read(await self.store.applied(INDEXED), batch):
            await index(entries, self.store, self.index, self.embedder, DEFAULT_RULES)

    async def summarize(self, limit: int = 256) -> Summarized:
        """Everything that is due. What was held before by a summariser that ended is free by now."""
        self.now += 100.0
        return await summarize(self.bench, limit)

    async def tell(self, events: Iterable[Event]) -> Summarized:
        """Append events and settle, as Memory.append does."""
        await self.place(events)
        return await self.summarize()

    # ---- reading
    async def directory(self, workspace: str) -> Directory:
        return Directory(await self.store.facts(workspace))

    async def desk(self, workspace: str = "w") -> Desk:
        return Desk(
            self.store,
            self.index,
            self.embedder,
            await self.directory(workspace),
            DEFAULT_RULES,
            self.forest,
            self.numbers,
        )

    async def ask(self, text: str, **query: Any) -> Answer:
        asked = Query(text=text, **{"workspace": "w", **query})
        return await answer(asked, await self.desk(asked.workspace))

    def summaries(self) -> dict[NodeId, Summary]:
        """Every summary that is stored, of nodes that exist and of nodes that should not."""
        return dict(self.store._summaries)  # type: ignore[call-overload]

    def points(self) -> dict[NodeId, tuple[str, bool, bytes]]:
        """What the index holds for each node: audience, whether it is a root, its vector."""
        return {
            node: (point.audience, point.summary.is_root, vector.tobytes())
            for node, (point, vector) in self.index._nodes.items()
        }

    def said_of(self, sequence: Sequence) -> dict[tuple[int, int], Summary]:
        """The summaries of one sequence by (level, index)."""
        return {(n.level, n.index): s for n, s in self.summaries().items() if n.sequence == sequence}

    async def root(self, sequence: Sequence) -> Summary | None:
        """The summary of a sequence's root node."""
        (size,) = await self.store.sizes([sequence])
        (found,) = await self.store.summaries([NodeId(sequence, forest.root_level(size, self.forest.k), 0)])
        return found

    async def leaves(self, sequence: Sequence) -> list[str]:
        """The uids of a sequence, in order."""
        (size,) = await self.store.sizes([sequence])
        (leaves,) = await self.store.leaves([Span(sequence, 0, size)])
        return [leaf.uid for leaf in leaves]


def shape(summaries: dict[NodeId, Summary]) -> dict[NodeId, Summary]:
    """Summaries as they must be alike whatever the order of events: without serials, which count arrivals."""
    return {node: msgspec.structs.replace(summary, serial=0) for node, summary in summaries.items()}
