"""The parts of the stream form: Kafka, Redis, and a Qdrant server or an index in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec

from streammem.backends.kafka import Connection, KafkaLog
from streammem.backends.kafka_exchange import KafkaExchange
from streammem.backends.kafka_topics import KafkaTopics
from streammem.backends.memory import MemoryStructure
from streammem.backends.qdrant_edge import EdgeIndex, discard
from streammem.backends.redis import RedisStructure
from streammem.backends.redis_beats import RedisBeats
from streammem.backends.redis_ledger import RedisLedger
from streammem.core.identifiers import DEFAULT_RULES, Rules
from streammem.core.topics import LOG, named
from streammem.errors import MemoryFormatError, SettingsError
from streammem.ports import REPLIES, Embedder, StructureStore, VectorIndex
from streammem.settings import KafkaSettings, Settings
from streammem.wiring.embedded import fastembed, hold

INDEX = "index"
"""The folder of the index in the directory of the vectors, beside its lock."""

EVER = 3650
"""Days in which somebody may have let a language model word summaries."""

FORMAT = 1
"""Of what the roles keep in the stores together. A break makes it 2."""


class Card(msgspec.Struct, frozen=True):
    """What a memory in Redis says of itself: what it was built with. The vectors name their model themselves."""

    format: int
    k: int
    rules: str


def connection(settings: KafkaSettings) -> Connection:
    """How to reach the Kafka cluster."""
    return Connection(
        bootstrap=settings.bootstrap,
        protocol=settings.protocol,
        mechanism=settings.mechanism,
        username=settings.username,
        password=settings.password.get_secret_value() if settings.password else None,
        ca_file=settings.ca_file,
    )


def exchange(settings: Settings, patience: float = 10.0) -> KafkaExchange:
    """What sends events and questions: all that a client of the stream needs."""
    kafka = settings.kafka
    return KafkaExchange(connection(kafka), kafka.prefix, max_bytes=kafka.max_bytes, patience=patience)


def topics(settings: Settings) -> KafkaTopics:
    """Administration of the topics."""
    return KafkaTopics(connection(settings.kafka), settings.kafka.prefix)


def beats(settings: Settings) -> RedisBeats:
    """Signs of life."""
    redis = settings.redis
    return RedisBeats(redis.url.get_secret_value(), redis.prefix, cluster=redis.cluster)


def ledger(settings: Settings) -> RedisLedger:
    """What model calls may take and have taken."""
    redis = settings.redis
    return RedisLedger(redis.url.get_secret_value(), redis.prefix, cluster=redis.cluster)


class Streaming:
    """The open parts of a memory in servers. Use `open_streaming`; close once. Each connects when first used."""

    def __init__(self, settings: Settings, embedder: Callable[[Settings], Embedder]) -> None:
        self.settings = settings
        self.rules: Rules = DEFAULT_RULES
        kafka, redis = settings.kafka, settings.redis
        self.exchange = exchange(settings)
        self.topics = topics(settings)
        self.log = KafkaLog(connection(kafka), named(kafka.prefix, LOG), max_bytes=kafka.max_bytes)
        self.structure = RedisStructure(redis.url.get_secret_value(), redis.prefix, cluster=redis.cluster)
        self.beats = beats(settings)
        self.ledger = ledger(settings)
        self._card = Card(FORMAT, settings.forest.k, self.rules.digest)
        self._make_embedder = embedder
        self._embedder: Embedder | None = None
        self._index: VectorIndex | None = None
        self._opening = asyncio.Lock()
        self._closing = AsyncExitStack()
        for part in (self.structure.close, self.beats.close, self.ledger.close, self.log.stop, self.exchange.stop):
            self._closing.push_async_callback(part)

    async def check(self) -> None:
        """Refuse a Redis whose data another k, rule table or version made."""
        await self.structure.check()
        standing = msgspec.json.decode(await self.structure.describe(msgspec.json.encode(self._card)), type=Card)
        place = f"the memory at Redis prefix {self.settings.redis.prefix!r}"
        if standing.format != FORMAT:
            raise MemoryFormatError(f"{place} has format {standing.format}, this streammem reads {FORMAT}: {_MEND}")
        if standing.k != self._card.k:
            raise MemoryFormatError(f"{place} has k={standing.k}, the settings say {self._card.k}: {_MEND}")
        if standing.rules != self._card.rules:
            raise MemoryFormatError(f"{place} was built with another identifier rule table: {_MEND}")

    async def renew(self) -> None:
        """Give the memory in Redis this process's card and vectors, when what was built by the old ones is gone."""
        await self.structure.redescribe(msgspec.json.encode(self._card))
        if self.settings.vectors.url is None:
            await self.structure.redescribe(_identity(self.settings.vectors.path / INDEX), "vectors")

    async def worded(self) -> bool:
        """Whether a language model words summaries here, or did once: then what changes is marked for it."""
        spent = () if self.settings.openai.model is not None else await self.ledger.spent(EVER)
        return self.settings.openai.model is not None or any(one.view != REPLIES for one in spent)

    async def embedder(self) -> Embedder:
        """The embedding model, loaded on first use."""
        async with self._opening:
            if self._embedder is None:
                self._embedder = await asyncio.to_thread(self._make_embedder, _sharing(self.settings))
            return self._embedder

    async def index(self, *, rebuild: bool = False) -> VectorIndex:
        """The vector index, opened on first use."""
        model = await self.embedder()
        async with self._opening:
            if self._index is None:
                self._index = await self._open_index(model, rebuild=rebuild)
            return self._index

    async def index_at_hand(self) -> VectorIndex:
        """The vector index if it can be opened at once: nothing is made, no process is waited for.

        Raises MemoryHeldError for a directory that a process holds, SettingsError for one that is not here.
        """
        path = self.settings.vectors.path
        if self.settings.vectors.url is None and self._index is None:
            if not (path / INDEX).exists():
                raise SettingsError(f"no vectors are at {path}: set STREAMMEM_VECTORS__PATH, on the machine of index")
            hold(path, 0.0).close()
        return await self.index()

    async def _open_index(self, model: Embedder, *, rebuild: bool) -> VectorIndex:
        """Open the index; what was opened for one that then fails is closed, as it will be tried again."""
        async with AsyncExitStack() as opened:
            if self.settings.vectors.url is None:
                index = await self._open_directory(model, opened, rebuild=rebuild)
            else:
                index = self._server(self.settings.vectors.url, model.name, model.dimensions)
                opened.push_async_callback(index.close)
                await index.open(rebuild=rebuild)
            self._closing.push_async_callback(opened.pop_all().aclose)
        return index

    async def _open_directory(self, model: Embedder, opened: AsyncExitStack, *, rebuild: bool) -> VectorIndex:
        path = self.settings.vectors.path
        path.mkdir(parents=True, exist_ok=True)
        opened.callback(hold(path, self.settings.wait).close)
        if rebuild:
            discard(path / INDEX)  # and its id: until `renew`, nobody takes the new one for the memory's
        else:
            await self._check_directory(path)
        edge = EdgeIndex(path / INDEX, model.name, model.dimensions)
        opened.callback(edge.close)
        return edge

    async def _check_directory(self, path: Path) -> None:
        """Refuse a directory that is not the one in which this memory's vectors are: it would seem to be empty."""
        name = _identity(path / INDEX)
        if await self.structure.describe(name, "vectors") != name:
            raise MemoryFormatError(
                f"{path} does not hold the vectors of this memory: set STREAMMEM_VECTORS__PATH to the directory that "
                "does, or run `streammem rebuild --distributed` to index again"
            )

    def _server(self, url: str, model: str, dimensions: int) -> Any:
        from streammem.backends.qdrant_server import QdrantIndex  # noqa: PLC0415 - an extra that not all need

        vectors = self.settings.vectors
        key = vectors.api_key.get_secret_value() if vectors.api_key else None
        return QdrantIndex(url, model, dimensions, prefix=vectors.prefix, api_key=key)

    async def ping_vectors(self) -> None:
        """Raise what is wrong with the Qdrant server, if there is to be one."""
        if self.settings.vectors.url is not None:
            server = self._server(self.settings.vectors.url, "", 1)
            try:
                await server.check_server()
            finally:
                await server.close()

    async def switch_index(self) -> None:
        """Let readers use what was rebuilt, where several indexes may stand side by side."""
        switch = getattr(self._index, "switch", None)
        if switch is not None:
            await switch()

    def fresh_structure(self) -> StructureStore:
        """An empty structure store, to rebuild into and compare."""
        return MemoryStructure()

    async def close(self) -> None:
        """Release connections and files."""
        await self._closing.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_MEND = "set it back, or run `streammem rebuild --distributed` to build it anew from its log"


def _identity(path: Path) -> bytes:
    """What names a directory of vectors among all that ever were."""
    file = path / "id"
    if not file.exists():
        path.mkdir(parents=True, exist_ok=True)
        file.write_text(uuid4().hex)
    return file.read_bytes()


def _sharing(settings: Settings) -> Settings:
    """One core is left to the others: on a full machine the model's threads wait for each other, and spin meanwhile."""
    if settings.embedding.threads is not None:
        return settings
    threads = max(1, (os.cpu_count() or 1) - 1)
    return settings.model_copy(update={"embedding": settings.embedding.model_copy(update={"threads": threads})})


def open_streaming(settings: Settings, *, embedder: Callable[[Settings], Embedder] | None = None) -> Streaming:
    """The parts of a memory in servers; nothing is connected yet."""
    return Streaming(settings, embedder or fastembed)
