"""`python -m tests.benchmarks.stream`: how fast the stream form is, over real servers that it starts. Figures only.

STREAMMEM_BENCH names a folder with messages.jsonl(.gz), or one above lean_dev. Beside each figure stands its floor from
the same run: a Faust agent that does nothing, the embedded memory. `--part whole` produces the set into Kafka, verifies
and compares answers with the embedded memory (toy vectors: what is compared is the machinery); `--part chaos` is the
long storm of tests/e2e/test_chaos.py. Kafka, Redis and all roles share the cores of one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from streammem import open_memory
from streammem.backends.redis import RedisStructure
from streammem.client import connect
from streammem.connectors import Report
from streammem.connectors.slack import export as slack_export
from streammem.core import positions
from streammem.core.events import content_hash, key, normalise
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.topics import READS, group_of
from streammem.flows.structure import grow
from streammem.records import Event, LogEntry, MessageEvent, Query
from streammem.settings import Settings
from streammem.wiring.stream import Streaming
from streammem.workers.care import verified
from streammem.workers.status import standing
from tests.benchmarks.__main__ import _data
from tests.benchmarks.parts import _events, _middle_and_tail, _queries
from tests.e2e.chaos import Storm, differences
from tests.e2e.stream import Stream, Worker, of_embedded, of_stream
from tests.embedding import HashingEmbedder
from tests.servers import kafka_server, redis_server

SAMPLE = Path(__file__).parents[2] / "streammem" / "samples"
TICKS = os.sysconf("SC_CLK_TCK")

Figures = tuple[float, float, float]
"""Count, seconds, seconds of CPU."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    options = _options(arguments)
    folder = _data(os.environ.get("STREAMMEM_BENCH", ""))
    if folder is None:
        sys.stdout.write("skipped: STREAMMEM_BENCH names no folder with messages.jsonl\n")
        return 0
    for part in PARTS if options.part == "all" else (options.part,):
        sys.stdout.write(f"{part}   (load {os.getloadavg()[0]:.1f} before)\n")
        with tempfile.TemporaryDirectory(prefix="bench-") as place:
            asyncio.run(_measure(part, folder, Path(place), options))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stream", description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--limit", type=int, default=20_000, metavar="N", help="messages [20000]")
    parser.add_argument("--texts", type=int, default=600, metavar="N", help="messages where the model embeds [600]")
    parser.add_argument("--questions", type=int, default=50, metavar="N", help="questions [50]")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long `fresh` sends [60]")
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second of `fresh` [100]")
    parser.add_argument("--kills", type=int, default=20, help="of `chaos` [20]")
    parser.add_argument("--seed", type=int, default=1, help="of `chaos` [1]")
    parser.add_argument("--hashing", action="store_true", help="a toy embedder everywhere: to see that it works")
    return parser.parse_args(arguments)


def say(name: str, figure: str) -> None:
    """One figure, at once."""
    sys.stdout.write(f"  {name:32} {figure}\n")
    sys.stdout.flush()


async def _measure(part: str, folder: Path, place: Path, options: argparse.Namespace) -> None:
    kafka = kafka_server.serve(place / "kafka", restartable=True)
    redis = redis_server.RedisServer(place / "redis", "--appendonly", "yes")
    usual = Settings().worker
    worker = {"session": usual.session, "round": usual.round} if part == "fresh" else {}
    stream = Stream(kafka.bootstrap, redis.url, place, f"{part}.", forest={"k": 16}, worker=worker)
    try:
        if part == "chaos":
            await _chaos(Storm(stream, kafka, redis, seed=options.seed), options)
        else:
            async with stream:
                await PARTS[part](stream, folder, options)
    finally:
        stream.end()
        redis.stop()
        kafka.end()


# --------------------------------------------------------------------------------------------- how it is measured


async def clear(
    stream: Stream, workers: Iterable[Worker], put: Callable[[], Awaitable[int]], done: Callable[[], Awaitable[bool]]
) -> Figures:
    """How long these workers, idle at first, take from when something is put before them until it is done."""
    workers = list(workers)
    async with stream.open() as parts:
        while len(await parts.beats.beats()) < sum(len(w.roles) for w in workers):
            await asyncio.sleep(0.2)
    await asyncio.sleep(6)  # the group has its partitions
    cpu, began = sum(map(cpu_of, workers)), time.perf_counter()
    count = await put()
    while not await done():
        await asyncio.sleep(0.05)
    seconds, spent = time.perf_counter() - began, sum(map(cpu_of, workers)) - cpu
    for worker in workers:
        worker.terminate()
        stream.workers.remove(worker)
    await asyncio.sleep(16)  # their signs of life are forgotten
    return count, seconds, spent


def cpu_of(worker: Worker) -> float:
    """Seconds of CPU that a worker has had."""
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rate(figures: Figures) -> str:
    """Messages a second, by the wall and by CPU."""
    count, seconds, cpu = figures
    return f"{count / seconds:,.0f}/s, {count / cpu:,.0f} by CPU ({100 * cpu / seconds:.0f} % of a core)"


async def append(parts: Streaming, events: list[Event]) -> int:
    """Straight into the log, as `ingest` would."""
    keyed = [(key(usable, content_hash(usable)), usable) for usable in map(normalise, events)]
    for start in range(0, len(keyed), 2000):
        await parts.log.append(keyed[start : start + 2000])
    return len(keyed)


def at_the_end(parts: Streaming, name: str) -> Callable[[], Awaitable[bool]]:
    """Whether the store has everything that is in the log."""

    async def done() -> bool:
        return positions.covers(await parts.structure.applied(name), await parts.log.end())

    return done


def committed(parts: Streaming, role: str) -> Callable[[], Awaitable[bool]]:
    """Whether a group has acknowledged everything in its topics."""

    async def done() -> bool:
        lags = await parts.topics.lags({group_of(parts.settings.kafka.prefix, role): READS[role]})
        return not any(lag.behind for lag in lags)

    return done


def model(options: argparse.Namespace) -> tuple[str, ...]:
    """What tells a worker which embedder to take."""
    return () if options.hashing else ("--model",)


# ------------------------------------------------------------------------------------------------------ the parts


async def _roles(stream: Stream, folder: Path, options: argparse.Namespace) -> None:
    """Each role alone with everything put before it at once."""
    events = list(_events(folder, options.limit))
    async with stream.open() as parts:
        await _direct(stream, events)
        put: Callable[[], Awaitable[int]] = lambda: append(parts, events)  # noqa: E731
        floor = await clear(
            stream, [stream.start("structure", options=("--nothing",))], put, committed(parts, "structure")
        )
        say("a Faust agent that does nothing", rate(floor))
        one = await clear(stream, [stream.start("structure")], put, at_the_end(parts, "structure"))
        say("structure", f"{rate(one)}; {one[1] / floor[1]:.2f} times doing nothing")
        two = await clear(
            stream, [stream.start("structure"), stream.start("structure")], put, at_the_end(parts, "structure")
        )
        say("structure, two processes", f"{rate(two)}; {one[1] / two[1]:.2f} times one")

        async def produce() -> int:
            await stream.produce(events)
            return len(events)

        say("ingest", rate(await clear(stream, [stream.start("ingest")], produce, committed(parts, "ingest"))))


async def _embedding(stream: Stream, folder: Path, options: argparse.Namespace) -> None:
    """The roles that need vectors: index with the model, and summarize over what it made."""
    events = list(_events(folder, options.texts))
    async with stream.open() as parts:
        await append(parts, events)
        grower = stream.start("structure")
        while not await at_the_end(parts, "structure")():
            await asyncio.sleep(0.1)
        grower.terminate()
        stream.workers.remove(grower)
        began = time.perf_counter()
        worker = stream.start("index", "summarize", options=model(options))
        while not await parts.structure.applied("index"):
            await asyncio.sleep(0.02)
        first, cpu = time.perf_counter(), cpu_of(worker)
        before = sum((await parts.structure.applied("index")).values())
        while not await at_the_end(parts, "index")():
            await asyncio.sleep(0.05)
        figures = (len(events) - before, time.perf_counter() - first, cpu_of(worker) - cpu)
        say("index, with summarize beside it", f"{rate(figures)}; started and first batch {first - began:.1f} s")
        while (await parts.structure.counts())["due"]:
            await asyncio.sleep(0.05)
        nodes = (await parts.structure.counts())["summaries"]
        say("summaries", f"{nodes:,} nodes, all current {time.perf_counter() - first:.1f} s after the first batch")


async def _direct(stream: Stream, events: list[Event]) -> None:
    """The flow of `structure` over Redis, batch by batch, in this process; and what Redis needs."""
    store = RedisStructure(stream.settings.redis.url.get_secret_value(), "direct")
    keyed = [(key(usable, content_hash(usable)), usable) for usable in map(normalise, events)]
    entries = [LogEntry(position=n, key=name, event=event) for n, (name, event) in enumerate(keyed, 1)]
    before = await _redis_bytes(store)
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(entries), 500):
        await grow(entries[start : start + 500], store, DEFAULT_RULES)
    figures = (len(entries), time.perf_counter() - wall, time.process_time() - cpu)
    say("structure flow without Faust", f"{rate(figures)} (goal 6,000)")
    messages = sum(isinstance(event, MessageEvent) for event in events)
    say("Redis", f"{(await _redis_bytes(store) - before) / messages:,.0f} bytes a message (goal under 2,048)")
    await store.clear()
    await store.close()


async def _redis_bytes(store: RedisStructure) -> int:
    (found,) = await store._redis.run([("INFO", "memory")])
    return int(found["used_memory"])


async def _fresh(stream: Stream, folder: Path, options: argparse.Namespace) -> None:
    """Messages of chat length at a steady rate, with the embedding on the same cores: how long until each is found."""
    told = list(slack_export.read(SAMPLE / "harbourlight", Report()))
    messages = [e for e in told if isinstance(e, MessageEvent) and e.op == "upsert"]
    words = sum(len(e.text.split()) for e in messages) / len(messages)
    say("texts", f"{words:.0f} words on average")
    stream.start("ingest", "structure")
    stream.start("index", "summarize", "query", options=model(options))
    async with stream.open() as parts:
        await stream.settled(await stream.produce(told), 300)
        began, sent = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < options.seconds:
            due = int(passed * options.rate) - sent
            some = [_now(messages[n % len(messages)], n) for n in range(sent, sent + due)]
            async for _ in parts.exchange.produce(some):
                pass
            sent += due
            await asyncio.sleep(0.05)
        status = await standing(parts)
        for role in status.roles:
            fresh = "findable p50 {:.2f} s, p95 {:.2f} s, longest {:.2f} s".format(*role.fresh) if role.fresh else ""
            say(role.role, f"{role.rate:,.1f}/s, {role.behind:,} behind; {fresh}")
        say("sent", f"{sent / options.seconds:,.1f} messages/s for {options.seconds:.0f} s (goal: index p95 under 2 s)")
        for worker in stream.workers:
            say(f"CPU of {'+'.join(worker.roles)}", f"{cpu_of(worker):.1f} s since it started")


def _now(message: MessageEvent, number: int) -> MessageEvent:
    """What was said once, said again now."""
    return msgspec.structs.replace(message, id=f"now{number}", ts=datetime.now(UTC), reply_to=None, thread_id=None)


async def _query(stream: Stream, folder: Path, options: argparse.Namespace) -> None:
    """Questions through Kafka and Redis beside the same questions to an embedded memory, with the same vectors."""
    events = list(_events(folder, options.limit))
    options.limit = options.limit or None
    queries = _queries(folder, options)[: options.questions]
    stream.start("ingest", "structure")
    stream.start("index", "summarize", "query")
    await stream.settled(await stream.produce(events), 600)
    async with connect(f"kafka://{stream.settings.kafka.bootstrap}", stream.settings) as memory:
        await _asked(memory, queries[:5])
        wall, inside, answers = await _asked(memory, queries)
    stream.stop()
    expected = await _embedded(stream, events, queries)
    say("embedded, p50 and p95", "{} and {} ms".format(*_middle_and_tail(expected[0])))
    say("stream, inside the answer", "{} and {} ms".format(*_middle_and_tail(inside)))
    say("stream, as the asker sees it", "{} and {} ms".format(*_middle_and_tail(wall)))
    added = [outer - inner for outer, inner in zip(wall, inside, strict=True)]
    say("added by the query worker", "{} and {} ms (goal under 10)".format(*_middle_and_tail(added)))
    _compare(answers, expected[2])


async def _asked(memory: Any, queries: list[Query]) -> tuple[list[float], list[float], list[Any]]:
    """Milliseconds as the asker sees them, those that the answer tells, and the answers."""
    wall, inside, answers = [], [], []
    for query in queries:
        began = time.perf_counter()
        answer = await memory.ask(query)
        wall.append(1000 * (time.perf_counter() - began))
        inside.append(answer.timings_ms["total"])
        answers.append(answer)
    return wall, inside, answers


async def _embedded(stream: Stream, events: list[Event], queries: list[Query]) -> tuple[list[float], list[float], Any]:
    chosen = Settings(forest=stream.settings.forest)
    async with open_memory(stream.folder / "embedded", chosen, embedder=lambda _: HashingEmbedder()) as memory:
        await memory.append(events)
        await _asked(memory, queries[:5])
        return await _asked(memory, queries)


def _compare(answers: list[Any], expected: list[Any]) -> None:
    alike = [
        [e.uid for e in answer.evidence] == [e.uid for e in other.evidence]
        for answer, other in zip(answers, expected, strict=True)
    ]
    say("evidence as of the embedded", f"{sum(alike)} of {len(alike)} questions")


async def _whole(stream: Stream, folder: Path, options: argparse.Namespace) -> None:
    """The whole set through two processes of ingest and structure: lag while it runs, `verify`, the same answers."""
    events = list(_events(folder, options.limit))
    for roles in (("ingest",), ("ingest",), ("structure",), ("structure",), ("index", "summarize", "query")):
        stream.start(*roles)
    began = time.perf_counter()
    sent = await stream.produce(events)
    say("produced", f"{len(events):,} events in {time.perf_counter() - began:.1f} s")
    async with stream.open() as parts:
        for _ in range(3):
            await asyncio.sleep(3)
            status = await standing(parts)
            say("lag", ", ".join(f"{r.role} {r.behind:,} ({r.seconds:.0f} s)" for r in status.roles))
        await stream.settled(sent, 1200)
        seconds = time.perf_counter() - began
        say("chain", f"{len(events) / seconds:,.0f} events/s until summarised, {seconds:.1f} s, toy vectors")
        for worker in stream.workers:
            say(f"CPU of {'+'.join(worker.roles)}", f"{cpu_of(worker):.1f} s")
        found = await verified(parts, 60)
        say("verify", f"{found.entries:,} entries, {'clean' if not found.different else found.different}")
    queries = _queries(folder, options)[: options.questions]
    async with connect(f"kafka://{stream.settings.kafka.bootstrap}", stream.settings) as memory:
        _, _, answers = await _asked(memory, queries)
    stream.stop()
    _compare(answers, (await _embedded(stream, events, queries))[2])
    same = await of_stream(stream) == await of_embedded(events, stream.settings.forest.k)
    say("registers, leaves, points, nodes", "the same" if same else "DIFFERENT")


async def _chaos(storm: Storm, options: argparse.Namespace) -> None:
    """The storm: what it came to beside the embedded build."""
    began = time.perf_counter()
    outcome = await storm.blow(options.limit, options.kills)
    say("storm", f"{options.limit:,} messages, {outcome.kills} kills, restarts {json.dumps(outcome.restarts)}")
    say("took", f"{time.perf_counter() - began:.0f} s, {outcome.stream.leaves:,} leaves")
    say("checksum", f"{outcome.stream.checksum}, embedded {outcome.embedded.checksum}")
    say("differences", ", ".join(differences(outcome)) or "none")


PARTS: dict[str, Callable[[Stream, Path, argparse.Namespace], Awaitable[None]]] = {
    "roles": _roles,
    "embedding": _embedding,
    "fresh": _fresh,
    "query": _query,
    "whole": _whole,
    "chaos": lambda *_: asyncio.sleep(0),
}

if __name__ == "__main__":
    sys.exit(main())
