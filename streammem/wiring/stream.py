"""The parts of the stream form: Kafka, Redis, and a Qdrant server or an index in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec

from streammem.backends.kafka import Connection, KafkaLog
from streammem.backends.kafka_exchange import KafkaExchange
from streammem.backends.kafka_topics import KafkaTopics
from streammem.backends.memory import MemoryStructure
from streammem.backends.qdrant_edge import EdgeIndex, discard
from streammem.backends.redis import RedisStructure
from streammem.backends.redis_beats import RedisBeats
from streammem.core.identifiers import DEFAULT_RULES, Rules
from streammem.core.topics import LOG, named
from streammem.errors import MemoryFormatError
from streammem.ports import Embedder, StructureStore, VectorIndex
from streammem.settings import KafkaSettings, Settings
from streammem.wiring.embedded import fastembed, hold

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


def exchange(settings: Settings) -> KafkaExchange:
    """What sends events and questions: all that a client of the stream needs."""
    return KafkaExchange(connection(settings.kafka), settings.kafka.prefix, max_bytes=settings.kafka.max_bytes)


def topics(settings: Settings) -> KafkaTopics:
    """Administration of the topics."""
    return KafkaTopics(connection(settings.kafka), settings.kafka.prefix)


def beats(settings: Settings) -> RedisBeats:
    """Signs of life."""
    redis = settings.redis
    return RedisBeats(redis.url.get_secret_value(), redis.prefix, cluster=redis.cluster)


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
        self._card = Card(FORMAT, settings.forest.k, self.rules.digest)
        self._make_embedder = embedder
        self._embedder: Embedder | None = None
        self._index: VectorIndex | None = None
        self._opening = asyncio.Lock()
        self._closing = AsyncExitStack()
        for part in (self.structure.close, self.beats.close, self.log.stop, self.exchange.stop):
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
        """Give the memory in Redis this process's card, when what was built by the old one is gone."""
        await self.structure.redescribe(msgspec.json.encode(self._card))

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

    async def _open_index(self, model: Embedder, *, rebuild: bool) -> VectorIndex:
        vectors = self.settings.vectors
        if vectors.url is None:
            vectors.path.mkdir(parents=True, exist_ok=True)
            lock = hold(vectors.path, self.settings.wait)
            self._closing.callback(lock.close)
            if rebuild:
                discard(vectors.path / "index")
            edge = EdgeIndex(vectors.path / "index", model.name, model.dimensions)
            self._closing.callback(edge.close)
            await self._check_directory(vectors.path, rebuild=rebuild)
            return edge
        from streammem.backends.qdrant_server import QdrantIndex  # noqa: PLC0415 - an extra that not all need

        key = vectors.api_key.get_secret_value() if vectors.api_key else None
        server = QdrantIndex(vectors.url, model.name, model.dimensions, prefix=vectors.prefix, api_key=key)
        try:
            await server.open(rebuild=rebuild)
        except BaseException:
            await server.close()  # it will be tried again, with a new one
            raise
        self._closing.push_async_callback(server.close)
        return server

    async def _check_directory(self, path: Path, *, rebuild: bool) -> None:
        """Refuse a directory that is not the one in which this memory's vectors are: it would seem to be empty."""
        name = _identity(path)
        if rebuild:
            await self.structure.redescribe(name, "vectors")
        elif await self.structure.describe(name, "vectors") != name:
            raise MemoryFormatError(
                f"{path} does not hold the vectors of this memory: set STREAMMEM_VECTORS__PATH to the directory that "
                "does, or run `streammem rebuild --distributed` to index again"
            )

    async def ping_vectors(self) -> None:
        """Raise what is wrong with the Qdrant server, if there is to be one."""
        vectors = self.settings.vectors
        if vectors.url is not None:
            from streammem.backends.qdrant_server import QdrantIndex  # noqa: PLC0415 - an extra that not all need

            key = vectors.api_key.get_secret_value() if vectors.api_key else None
            server = QdrantIndex(vectors.url, "", 1, prefix=vectors.prefix, api_key=key)
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
