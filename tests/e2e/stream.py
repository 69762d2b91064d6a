"""A whole memory as a stream for tests: real servers, worker processes that can be killed, and ways to look at it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.backends.qdrant_points import point_id
from streammem.core import forest, positions
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.topics import READS, group_of
from streammem.errors import TransientError
from streammem.flows.index import index
from streammem.flows.ingest import ingest
from streammem.flows.summarize import Bench, summarize
from streammem.flows.verify import measure, replay
from streammem.ports import StructureStore
from streammem.records import Awaited, Event, NodeId, Version
from streammem.settings import Settings
from streammem.wiring.stream import Streaming, open_streaming
from tests.embedding import HashingEmbedder

ROOT = Path(__file__).parents[2]


class NotSettledError(AssertionError):
    """What was sent is not in the stores after all that time."""


class Worker:
    """A worker process and what it logs."""

    def __init__(self, roles: tuple[str, ...], folder: Path, environment: dict[str, str], *options: str) -> None:
        self.roles = roles
        self.log = folder / f"{'-'.join(roles)}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.worker", *options, *roles],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=file,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def started(self) -> bool:
        """Whether every role of it has come up."""
        return self.log.read_text().count('"event": "started"') == len(self.roles)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = 10.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.roles} did not end within {seconds} s:\n{self.log.read_text()[-2000:]}"
            ) from None


class Stream:
    """One memory on these servers, with its own topics, keys and index. `k` is bound to it."""

    def __init__(self, bootstrap: str, redis_url: str, folder: Path, prefix: str, **settings: Any) -> None:
        self.folder = folder
        self._others = settings
        self.settings = Settings(
            kafka={"bootstrap": bootstrap, "prefix": prefix, "partitions": 4},
            redis={"url": redis_url, "prefix": prefix.rstrip(".")},
            vectors={"path": folder / "vectors"},
            worker={"session": 3.0, "round": 0.5, **settings.pop("worker", {})},
            **{"forest": {"k": 4}, **settings},
        )
        self.workers: list[Worker] = []

    @property
    def environment(self) -> dict[str, str]:
        """The settings as a process is given them."""
        told = dict(os.environ)
        told["OPENBLAS_NUM_THREADS"] = "1"
        for group in ("kafka", "redis", "vectors", "worker"):
            part = getattr(self.settings, group)
            for name in part.model_fields_set:
                value = getattr(part, name)
                shown = value.get_secret_value() if hasattr(value, "get_secret_value") else value
                told[f"STREAMMEM_{group}__{name}".upper()] = str(shown)
        told["STREAMMEM_FOREST__K"] = str(self.settings.forest.k)
        for group, fields in self._others.items():
            for name, value in fields.items():
                shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                told[f"STREAMMEM_{group}__{name}".upper()] = shown
        return told

    def change(self, group: str, **fields: Any) -> None:
        """Set other settings for the workers that start from now on, and for whoever looks."""
        self._others = {**self._others, group: {**self._others.get(group, {}), **fields}}
        known = getattr(self.settings, group)
        self.settings = self.settings.model_copy(update={group: known.model_copy(update=fields)})

    def open(self) -> Streaming:
        """The parts, to look at them."""
        return open_streaming(self.settings, embedder=lambda _: HashingEmbedder())

    def start(self, *roles: str, options: tuple[str, ...] = ()) -> Worker:
        worker = Worker(roles, self.folder, self.environment, *options)
        self.workers.append(worker)
        return worker

    async def up(self, seconds: float = 60.0) -> None:
        """Return when every worker has started."""
        deadline = time.monotonic() + seconds
        while not all(worker.started for worker in self.workers):
            assert time.monotonic() < deadline, self.told()
            await asyncio.sleep(0.1)

    def stop(self) -> list[int]:
        """End all workers cleanly; their exit codes."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
        return [worker.terminate() for worker in self.workers if worker.process.returncode is None]

    def end(self) -> None:
        """End all workers anyhow."""
        for worker in self.workers:
            if worker.running:
                worker.kill()

    def told(self) -> str:
        """The end of every worker's log, for a test that failed."""
        return "\n".join(f"== {w.log.name} {w.process.returncode}\n{w.log.read_text()[-1500:]}" for w in self.workers)

    async def __aenter__(self) -> Self:
        async with self.open() as parts:
            await parts.topics.create(self.settings.kafka.partitions, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    async def produce(self, events: Iterable[Event]) -> Awaited:
        """Send events; return what to wait for."""
        sent = Awaited()
        async with self.open() as parts:
            async for done in parts.exchange.produce(events):
                sent = done.awaited
        return sent

    async def settled(self, sent: Awaited, seconds: float = 90.0) -> None:
        """Return when all that was sent is in the log, the stores and the summaries."""
        deadline = time.monotonic() + seconds
        async with self.open() as parts:
            state = "nothing seen yet"
            while state:
                try:
                    state = await self._unsettled(parts, sent)
                except TransientError as error:
                    state = str(error)
                if state and time.monotonic() > deadline:
                    raise NotSettledError(f"not settled after {seconds} s: {state}\n{self.told()}")
                await asyncio.sleep(0.2)

    async def _unsettled(self, parts: Streaming, sent: Awaited) -> str:
        taken = await parts.topics.committed(group_of(self.settings.kafka.prefix, "ingest"))
        for topic in READS["ingest"]:
            if not positions.covers(taken.get(topic.short, {}), sent.inputs.get(topic.short, {})):
                return f"ingest is at {taken} of {sent.inputs}"
        end = await parts.log.end()
        for name in ("structure", "index"):
            if not positions.covers(applied := await parts.structure.applied(name), end):
                return f"{name} is at {applied} of {end}"
        due = (await parts.structure.counts())["due"]
        return f"{due} sequences are due" if due else ""


# ------------------------------------------------------------------------------------------- the embedded build


class Built(msgspec.Struct):
    """What a memory came to, in a form that can be compared."""

    checksum: str
    leaves: int
    untils: dict[str, int]
    summaries: dict[NodeId, tuple[Any, ...]]


async def of_stream(stream: Stream) -> Built:
    """What the stream came to. Its workers must have ended: the index is opened here."""
    async with stream.open() as parts:
        vectors: Any = await parts.index()
        store = parts.structure
        keys = [v.key for v in await _all_versions(store)]
        points = vectors._messages.retrieve(
            [point_id(key) for key in keys], with_payload=["key", "until"], with_vector=False
        )
        untils = {point.payload["key"]: point.payload["until"] for point in points}
        return await _built(store, untils, stream.settings.forest.k)


async def of_embedded(events: Iterable[Event], k: int) -> Built:
    """The same events in one process, in the order given, without any server."""
    log, store, vectors = MemoryLog(), MemoryStructure(), MemoryIndex(HashingEmbedder.dimensions)
    await ingest(list(events), log, store.forbidden)
    await replay(log, store, DEFAULT_RULES)
    await index(await log.read({}, 10_000_000), store, vectors, HashingEmbedder(), DEFAULT_RULES)
    await summarize(Bench(store, vectors, k, Settings().summary))
    return await _built(store, {key: row.until for key, row in vectors._rows.items()}, k)


async def _all_versions(store: StructureStore) -> list[Any]:
    found = []
    async for name, content in store.everything():
        if name == "version":
            found.append(msgspec.msgpack.decode(content, type=Version))
    return found


async def _built(store: StructureStore, untils: dict[str, int], k: int) -> Built:
    sequences = [s for workspace in await store.workspaces() for s in await store.sequences(workspace)]
    sizes = await store.sizes(sequences)
    nodes = [
        NodeId(sequence, level, place)
        for sequence, size in zip(sequences, sizes, strict=True)
        for level, place in forest.nodes_from(0, size, k)
    ]
    nodes += sorted({node for sequence in sequences for node in forest.skeleton(sequence)})
    kept = {
        summary.node: (summary.made_from, summary.first, summary.last, summary.count, summary.is_root, summary.text)
        for summary in await store.summaries(nodes)
        if summary is not None
    }
    return Built((await measure(store, k, 2)).checksum, sum(sizes), untils, kept)


@asynccontextmanager
async def running(stream: Stream, *processes: tuple[str, ...]) -> AsyncIterator[Stream]:
    """The stream with these processes, each with its roles, ended cleanly."""
    async with stream:
        for roles in processes:
            stream.start(*roles)
        yield stream
        await stream.up()
        assert stream.stop() == [0] * len(processes), stream.told()
