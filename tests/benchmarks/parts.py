"""What each part of the benchmark does, in a process of its own."""

from __future__ import annotations

import time

STARTED = (time.perf_counter(), time.process_time())

import asyncio  # noqa: E402 - from here on importing is measured
import itertools  # noqa: E402
import resource  # noqa: E402
import tempfile  # noqa: E402
from argparse import Namespace  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from streammem import open_memory  # noqa: E402
from streammem.backends.memory import MemoryStructure  # noqa: E402
from streammem.backends.sqlite import SqliteLog, SqliteStructure  # noqa: E402
from streammem.connectors import Report, jsonl  # noqa: E402
from streammem.core.identifiers import DEFAULT_RULES  # noqa: E402
from streammem.flows.ingest import ingest  # noqa: E402
from streammem.flows.structure import APPLIED  # noqa: E402
from streammem.flows.verify import replay  # noqa: E402
from streammem.ports import Embedder, Vectors  # noqa: E402
from streammem.records import Event, MessageEvent  # noqa: E402
from streammem.settings import Settings  # noqa: E402
from streammem.wiring import embedded  # noqa: E402

IMPORTED = (time.perf_counter(), time.process_time())

Clock = tuple[float, float]


def run(part: str, folder: Path, options: Namespace) -> dict[str, Any]:
    """The figures of one part."""
    events = _events(folder, options.limit)
    embedder = _toy if options.hashing else embedded.fastembed
    if part == "structure":
        return asyncio.run(structure(list(events)))
    if part == "import":
        return asyncio.run(whole_import(events, options.memory, embedder))
    return asyncio.run(ask(folder, options, embedder))


def _events(folder: Path, limit: int | None) -> Iterator[Event]:
    """The events of the set, up to its `limit`th message."""
    left = itertools.count() if limit is None else iter(range(limit))
    for event in jsonl.read(folder, Report()):
        if isinstance(event, MessageEvent) and next(left, None) is None:
            return
        yield event


def _toy(_: Settings) -> Embedder:
    from tests.embedding import HashingEmbedder  # noqa: PLC0415 - for the test of the command

    return HashingEmbedder()


# ------------------------------------------------------------------------------------------------- the parts


async def structure(events: list[Event]) -> dict[str, Any]:
    """The log alone, then log, sequences, placements, replies and identifiers, batch by batch as an import does."""
    messages = sum(isinstance(event, MessageEvent) for event in events)
    size = Settings().batch
    batches = [events[i : i + size] for i in range(0, len(events), size)]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = SqliteLog(Path(folder) / "floor.sqlite")
        before = now()
        for batch in batches:
            await ingest(batch, log, MemoryStructure().forbidden)
        floor = since(before)
        log.close()
        log, store = SqliteLog(Path(folder) / "log.sqlite"), SqliteStructure(Path(folder) / "structure.sqlite")
        before = now()
        for batch in batches:
            await ingest(batch, log, store.forbidden)
            await replay(log, store, DEFAULT_RULES, after=await store.applied(APPLIED))
        whole = since(before)
        store.close()
        log.close()
    return {
        "messages": messages,
        "events": len(events),
        "log": _rate(messages, floor),
        "whole": _rate(messages, whole),
    }


class Twice:
    """An embedder that does every batch of an import once more, alone, and keeps the time of that apart.

    One right after the other, so that both meet the same machine.
    """

    def __init__(self, inner: Embedder, longest: int) -> None:
        self._inner, self._longest = inner, longest
        self.name, self.dimensions = inner.name, inner.dimensions
        self.count_tokens = inner.count_tokens
        self.alone: Clock = (0.0, 0.0)
        self.apart: Clock = (0.0, 0.0)  # all that is not the import's: `alone` and counting
        self.texts = self.tokens = self.batches = 0

    def encode(self, texts: Any) -> Vectors:
        vectors = self._inner.encode(texts)
        before = now()
        self._inner.encode(texts)
        self.alone = plus(self.alone, since(before))
        self.tokens += sum(min(n + 2, self._longest) for n in self._inner.count_tokens(texts))
        self.texts += len(texts)
        self.batches += 1
        self.apart = plus(self.apart, since(before))
        return vectors


async def whole_import(events: Iterator[Event], path: Path, embedder: Callable[[Settings], Embedder]) -> dict[str, Any]:
    """Events to a memory that answers, beside what embedding the same texts alone takes in the same batches."""
    settings = Settings()
    inner = embedder(settings)
    inner.encode(["the model is loaded before anything is measured"])
    twice = Twice(inner, settings.embedding.max_tokens)
    stages: defaultdict[str, float] = defaultdict(float)
    before = now()
    async with open_memory(path, settings, embedder=lambda _: twice) as memory:
        stopwatch = _Stages(stages, twice)
        async for _ in memory.load(events, stopwatch):
            stopwatch("structure", 0)
        await memory.settle(stopwatch)
        stopwatch("summaries", 0)
    seconds, cpu = (a - b for a, b in zip(since(before), twice.apart, strict=True))
    return {
        "texts": twice.texts,
        "batches": twice.batches,
        "tokens": twice.tokens,
        "tokens_per_second": twice.tokens / twice.alone[0],
        "whole": {"seconds": seconds, "cpu": cpu},
        "alone": {"seconds": twice.alone[0], "cpu": twice.alone[1]},
        "ratio": seconds / twice.alone[0],
        "cpu_ratio": cpu / twice.alone[1],
        "stages": {name: stages[name] for name in ("structure", "index", "summaries")},
        "peak_mb": peak_mb(),
        "disk_mb": disk_mb(path),
    }


class _Stages:
    """Seconds by stage, by the memory's progress: the time since the last word is that of the stage that speaks."""

    def __init__(self, stages: defaultdict[str, float], twice: Twice) -> None:
        self._stages, self._twice, self._last = stages, twice, time.perf_counter()

    def __call__(self, stage: str, _: int) -> None:
        at = time.perf_counter() - self._twice.apart[0]
        self._stages["structure" if stage == "log" else stage] += at - self._last
        self._last = at


async def ask(folder: Path, options: Namespace, embedder: Callable[[Settings], Embedder]) -> dict[str, Any]:
    """Open a memory as a new process does, answer once, then every question in turn."""
    before = now()
    async with open_memory(options.memory, create=False, embedder=embedder) as memory:
        opening = since(before)
        queries = _queries(folder, options)
        before = now()
        await memory.ask(queries[0])
        first = since(before)
        wall, cpu, steps = [], [], defaultdict(list)
        for query in queries:
            before = now()
            answer = await memory.ask(query)
            took = since(before)
            wall.append(1000 * took[0])
            cpu.append(1000 * took[1])
            for step, ms in answer.timings_ms.items():
                steps[step].append(ms)
    return {
        "importing": _timed((IMPORTED[0] - STARTED[0], IMPORTED[1] - STARTED[1])),
        "opening": _timed(opening),
        "first": _timed(first),
        "questions": len(queries),
        "wall": _middle_and_tail(wall),
        "cpu": _middle_and_tail(cpu),
        "steps": {step: _middle_and_tail(values) for step, values in steps.items()},
        "peak_mb": peak_mb(),
    }


def _queries(folder: Path, options: Namespace) -> list[Any]:
    from streammem.flows import evaluate  # noqa: PLC0415 - only asking needs it

    dataset = evaluate.dataset_of(_events(folder, options.limit))
    asked = [question.asked for question in evaluate.load_questions(folder, dataset)]
    step = max(1, len(asked) // options.questions) if options.questions else 1
    return asked[::step][: options.questions]


# ----------------------------------------------------------------------------------------------- the figures


def now() -> Clock:
    """(wall, CPU of all threads) in seconds."""
    return time.perf_counter(), time.process_time()


def since(before: Clock) -> Clock:
    """What has passed of both."""
    return time.perf_counter() - before[0], time.process_time() - before[1]


def plus(a: Clock, b: Clock) -> Clock:
    """Both together."""
    return a[0] + b[0], a[1] + b[1]


def _timed(clock: Clock) -> dict[str, float]:
    return {"seconds": clock[0], "cpu": clock[1]}


def _rate(count: int, clock: Clock) -> dict[str, float]:
    return {**_timed(clock), "per_second": count / clock[0], "per_cpu_second": count / clock[1]}


def _middle_and_tail(values: list[float]) -> list[float]:
    """p50 and p95."""
    return [round(float(value), 1) for value in np.percentile(values, [50, 95])]


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def disk_mb(path: Path) -> dict[str, float]:
    """What each part of a memory takes on disk, holes left out."""
    return {
        part.name: round(sum(f.stat().st_blocks * 512 for f in (part, *part.rglob("*")) if f.is_file()) / 1e6, 1)
        for part in sorted(path.iterdir())
        if part.stat().st_size > 4096 or part.is_dir()
    }
