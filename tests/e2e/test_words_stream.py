"""Two workers let a language model word a memory in servers: they share the work, the limits and the budget.

What a `kill -9` can cost is as in test_words: the calls of the killed worker that were in flight, at most `in_flight`
of them. In these tests one process holds the vectors; the other does the half of `summarize` that needs none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio

from streammem import open_memory
from streammem.client import StreamMemory, connect
from streammem.core import prompts
from streammem.core.summaries import said_whole
from streammem.records import Awaited, Event, NodeId, Paid, Wording
from streammem.workers import forgetting
from streammem.workers.care import verified
from streammem.workers.status import standing
from streammem.wiring.stream import Streaming
from tests.e2e.stream import Stream, Worker, of_embedded, of_stream
from tests.embedding import HashingEmbedder
from tests.servers.model_server import Answer, Asked, ModelServer, Slow
from tests.stories import deleted, public, said

IN_FLIGHT = 3
WINDOW, REQUESTS = 4.0, 10
STORY = [public(), *(said(str(n), f"DOC-1 kettle number {n}", user=("ana", "bo")[n % 2]) for n in range(60))]
EMBED: Any = lambda _: HashingEmbedder()  # noqa: E731


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    """What a worker holds is free three seconds after it was killed."""
    numbers = {"in_flight": IN_FLIGHT, "pack": 2, "lease": 3.0, "attempts": 20}
    return Stream(
        kafka, redis_url, tmp_path, kafka_prefix, worker={"lease": 3.0, "patience": 1.0}, wording=numbers, openai={}
    )


@asynccontextmanager
async def served(stream: Stream, script: Any = None, delay: float = 0.3) -> AsyncIterator[ModelServer]:
    """The stream, without workers, and the server that words it."""
    async with ModelServer(*filter(None, (script,)), delay=delay) as server, stream:
        stream.change("openai", model="m", base_url=server.url)
        yield server


def start(stream: Stream, *roles: str, options: tuple[str, ...] = ()) -> Worker:
    """A worker whose calls can be told from those of others."""
    stream.change("openai", headers={"x-worker": str(len(stream.workers))})
    return stream.start(*roles, options=options)


async def until(true: Callable[[], Any], stream: Stream, seconds: float = 30.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while True:
        found = true()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < deadline, stream.told()
        await asyncio.sleep(0.05)


async def generated(store: Any) -> tuple[dict[NodeId, Wording], dict[str, Paid]]:
    """Wordings, without the count of arrivals and what was paid for them, and the cache."""
    found = [item async for _, item in store.generated()]
    worded = {w.node: msgspec.structs.replace(w, serial=0, tokens=0) for w in found if isinstance(w, Wording)}
    return worded, {key: text async for key, text in store.generated() if isinstance(text, Paid)}


async def worded_embedded(events: Iterable[Event], stream: Stream) -> dict[NodeId, Wording]:
    """What the wordings are that one process makes of these events, undisturbed and with a server of its own."""
    async with ModelServer() as server:
        openai = stream.settings.openai.model_copy(update={"base_url": server.url, "headers": {}})
        budget = stream.settings.budget.model_copy(update={"tokens": None, "requests_per_minute": None})
        chosen = stream.settings.model_copy(update={"openai": openai, "budget": budget})
        async with open_memory(stream.folder / "embedded", chosen, embedder=EMBED) as memory:
            await memory.append(events)
            await memory.word()
            return (await generated(memory._parts.structure))[0]


async def all_worded(parts: Streaming, expected: dict[NodeId, Wording], stream: Stream) -> None:
    """Wait until the wordings are these."""

    async def alike() -> bool:
        return (await generated(parts.structure))[0] == expected

    await until(alike, stream)


# ----------------------------------------------------------------------------------------------- a worker is killed


def asked_by(worker: int, server: ModelServer) -> list[Asked]:
    return [one for one in server.asked if one.headers.get("x-worker") == str(worker)]


@pytest.mark.parametrize("victim", [1, 2])
async def test_when_one_of_two_is_killed_the_other_goes_on_and_nothing_is_paid_twice(
    stream: Stream, victim: int
) -> None:
    window = ("--window", str(WINDOW))
    stream.change("budget", requests_per_minute=REQUESTS)

    def in_the_middle() -> bool:
        each = [[one.answered for one in asked_by(number, server)] for number in (1, 2)]
        return all(answers.count("answer") >= 2 for answers in each) and "" in each[victim - 1]

    async with served(stream) as server, stream.open() as parts:
        await parts.ledger.pause("not before both are there")
        start(stream, "ingest", "structure")
        start(stream, "index", "summarize", options=window)
        start(stream, "summarize", options=("--words", *window))
        await stream.settled(await stream.produce(STORY))
        await stream.up()
        assert server.calls == 0
        await parts.ledger.resume()
        await until(in_the_middle, stream)
        stream.workers[victim].kill()
        kept = {prompts.id_of(key) for key in (await generated(parts.structure))[1]}
        lost = [one for one in asked_by(victim, server) if not kept.issuperset(one.nodes)]
        assert 0 < len(lost) <= IN_FLIGHT
        expected = await worded_embedded(STORY, stream)
        await all_worded(parts, expected, stream)
        repeated = {node for node, times in server.paid.items() if times > 1}
        assert repeated <= {node for one in lost for node in one.nodes}
        assert server.paid.keys() == {prompts.id_of(key) for key in (await generated(parts.structure))[1]}
        assert REQUESTS < server.calls
        assert server.in_any_window(WINDOW - 0.5) <= REQUESTS
        stream.end()
    assert (await of_stream(stream)).summaries == (await of_embedded(STORY, 4)).summaries
