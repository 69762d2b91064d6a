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
from typing import Any, Self

import msgspec
import pytest
import redis.asyncio

from streammem import open_memory
from streammem.client import connect
from streammem.core import prompts
from streammem.records import Awaited, Event, NodeId, Paid, Wording
from streammem.wiring.stream import Streaming
from streammem.workers import forgetting
from streammem.workers.care import rebuilt, verified
from streammem.workers.status import standing
from tests.e2e.stream import Stream, Worker, of_embedded, of_stream
from tests.embedding import HashingEmbedder
from tests.servers.model_server import Asked, ModelServer
from tests.stories import deleted, public, said

IN_FLIGHT = 3
WINDOW, REQUESTS = 3.0, 10
SLACK = 1.0
"""Seconds by which calls may come closer together on their way to the server, on a busy machine."""
CHANNELS = ("c", "d", "e", "f")
STORY = [
    *map(public, CHANNELS),
    *(
        said(str(n), f"DOC-{n % 3} kettle number {n}", user=("ana", "bo")[n % 2], channel=CHANNELS[n // 12])
        for n in range(48)
    ),
]
LATE = said("70", "the pelican has landed", channel="f")
EMBED: Any = lambda _: HashingEmbedder()  # noqa: E731


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """What a worker holds is free three seconds after it was killed; no answer abstains, which would show no header."""
    monkeypatch.setenv("STREAMMEM_RETRIEVAL__FLOOR", "0")
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


def start_all(stream: Stream) -> None:
    """All roles; two of the workers let the model word nodes."""
    start(stream, "ingest", "structure")
    start(stream, "index", "summarize", "query")
    start(stream, "summarize", options=("--words",))


async def until(true: Callable[[], Any], stream: Stream, seconds: float = 120.0) -> None:
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
    paid = {key: text async for key, text in store.generated() if isinstance(text, Paid)}
    return worded, {key: msgspec.structs.replace(text, beside=()) for key, text in paid.items()}


async def worded_embedded(events: Iterable[Event], stream: Stream) -> dict[NodeId, Wording]:
    """What the wordings are that one process makes of these events, undisturbed and with a server of its own."""
    async with ModelServer() as server:
        openai = stream.settings.openai.model_copy(update={"model": "m", "base_url": server.url, "headers": {}})
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
        expected = await worded_embedded(STORY, stream)
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
        await all_worded(parts, expected, stream)
        repeated = {node for node, times in server.paid.items() if times > 1}
        assert repeated <= {node for one in lost for node in one.nodes}
        assert server.paid.keys() == {prompts.id_of(key) for key in (await generated(parts.structure))[1]}
        assert server.calls > REQUESTS
        assert server.in_any_window(WINDOW - SLACK) <= REQUESTS
        stream.end()
    assert (await of_stream(stream)).summaries == (await of_embedded(STORY, 4)).summaries


# ------------------------------------------------------------------------------------- a deletion, and a slow server

SECRET = said("50", "the vault code is 4711", minute=3.5)
TALK = [public(), *(said(str(n), f"kettle number {n}") for n in range(22))]
VIEWS = 2
"""The secret stands in a channel and is what somebody says: two nodes of each level tell it."""


class Gate(ModelServer):
    """Keeps silent where it reads the secret at this level, until it is opened. What it says repeats it, as always."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level, self._open = level, asyncio.Event()
        self.held = 0

    @staticmethod
    def told(sent: Any) -> bool:
        """Whether a request tells the secret."""
        return SECRET.text in sent["messages"][-1]["content"]

    async def _complete(self, request: Any) -> Any:
        sent = msgspec.json.decode(await request.read())
        if self.told(sent) and f"Level: {self._level}\n" in sent["messages"][-1]["content"]:
            self.held += 1
            await self._open.wait()
        return await super()._complete(request)

    @property
    def told_of(self) -> int:
        """How many requests have told the secret."""
        return sum(self.told(one.request) for one in self.asked)

    async def answer(self, stream: Stream) -> None:
        """Answer what is held; return when it has been read."""
        before = self.told_of
        self._open.set()
        await until(lambda: self.told_of == before + self.held, stream)
        await until(lambda: all(one.answered == "answer" for one in self.asked), stream)


async def secret_held(stream: Stream) -> list[bytes]:
    """The keys of all that Redis keeps of this memory whose name or content tells the secret."""
    found = []
    async with redis.asyncio.from_url(stream.settings.redis.url.get_secret_value()) as client:
        async for key in client.scan_iter(f"*{stream.settings.redis.prefix}*", count=1000):
            shown = key + await _content(client, key)
            found += [key] if b"vault" in shown else []  # times may hold any digits
    return found


async def _content(client: Any, key: bytes) -> bytes:
    kind = (await client.type(key)).decode()
    if kind == "hash":
        return b" ".join(part for pair in (await client.hgetall(key)).items() for part in pair)
    if kind == "string":
        return bytes(await client.get(key))
    read = {
        "set": client.smembers,
        "zset": lambda key: client.zrange(key, 0, -1),
        "list": lambda key: client.lrange(key, 0, -1),
    }
    return b" ".join(await read[kind](key)) if kind in read else b""


class Asker:
    """Asks all the while for what is gone, by questions that wait until it is: no answer shows it in any way."""

    def __init__(self, stream: Stream, gone: Awaited) -> None:
        self._stream, self._gone, self._answers = stream, gone, 0

    async def __aenter__(self) -> Self:
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._asking.cancel()
        (outcome,) = await asyncio.gather(self._asking, return_exceptions=True)
        if not isinstance(outcome, asyncio.CancelledError):
            raise outcome

    async def _ask(self) -> None:
        async with connect(f"kafka://{self._stream.settings.kafka.bootstrap}", self._stream.settings) as memory:
            while True:
                answer = await memory.query("what is the vault code?", wait_for=self._gone)
                shown = (*(header.text for header in answer.headers), *(item.text for item in answer.evidence))
                assert answer.headers
                assert [text for text in shown if "4711" in text] == []
                self._answers += 1

    async def more(self) -> None:
        """Wait for two more answers: one of them was asked for from now on."""
        enough = self._answers + 2
        await until(lambda: self._asking.done() or self._answers >= enough, self._stream)
        assert not self._asking.done()


@asynccontextmanager
async def calls_under_way(stream: Stream, level: int) -> AsyncIterator[tuple[Gate, Streaming]]:
    """Workers that wait for the model to answer the calls of this level that tell the secret."""
    async with Gate(level) as gate, stream, stream.open() as parts:
        stream.change("openai", model="m", base_url=gate.url)
        start_all(stream)
        await stream.settled(await stream.produce([*TALK, SECRET]))
        await stream.up()
        await until(lambda: gate.held == VIEWS, stream)
        assert await secret_held(stream)
        yield gate, parts
        assert gate.held == VIEWS


async def worded_with_it(parts: Streaming) -> list[NodeId]:
    return [node for node, one in (await generated(parts.structure))[0].items() if "4711" in one.text]


@pytest.mark.parametrize("level", [1, 2])
async def test_a_call_that_began_before_a_deletion_writes_nothing_after_it(stream: Stream, level: int) -> None:
    gone = deleted(SECRET, 30)
    expected = await worded_embedded([*TALK, SECRET, gone], stream)
    async with calls_under_way(stream, level) as (gate, parts):
        assert bool(await worded_with_it(parts)) == (level == 2)
        sent = await stream.produce([gone])
        async with Asker(stream, sent) as asker:
            await stream.settled(sent)
            assert await worded_with_it(parts) == []
            await asker.more()
            told_of = gate.told_of
            await gate.answer(stream)
            assert await worded_with_it(parts) == []
            await all_worded(parts, expected, stream)
            await asker.more()
            assert gate.told_of == told_of + VIEWS
        assert (await verified(parts, 30)).sound


@pytest.mark.parametrize("level", [1, 2])
async def test_what_is_forgotten_while_a_call_that_read_it_is_under_way_leaves_nothing_behind(
    stream: Stream, level: int
) -> None:
    expected = await worded_embedded(TALK, stream)
    async with calls_under_way(stream, level) as (gate, parts):
        done = await forgetting.forgotten(parts, await forgetting.meant(parts, "w", ["50"], []))
        assert await secret_held(stream) == []
        async with Asker(stream, Awaited(log=await parts.log.end())) as asker:
            await asker.more()
            told_of = gate.told_of
            await gate.answer(stream)
            await all_worded(parts, expected, stream)
            await asker.more()
            assert gate.told_of == told_of + VIEWS
        assert await secret_held(stream) == []
        assert (await forgetting.traces(parts, done)).total == 0


# ---------------------------------------------------------------------------------------------------- a day's budget


async def test_two_workers_stop_at_the_budget_of_a_day_and_go_on_with_a_larger_one(stream: Stream) -> None:
    limit = 9_000
    stream.change("budget", tokens=limit)
    expected = await worded_embedded([*STORY, LATE], stream)

    async def stopped() -> bool:
        said = [worker.log.read_text() for worker in stream.workers[1:]]
        return all("budget of model calls is spent" in text for text in said) and not await parts.ledger.claimed()

    async with served(stream, delay=0.1) as server, stream.open() as parts:
        start_all(stream)
        await stream.settled(await stream.produce(STORY))
        await stream.up()
        await until(stopped, stream)
        calls, status = server.calls, await standing(parts)
        assert {one.headers["x-worker"] for one in server.asked} == {"1", "2"}
        assert sum(one.spent for one in server.asked) == status.model_calls.tokens <= limit
        assert status.model_calls.waiting > 0
        assert status.healthy, status.problems
        async with connect(f"kafka://{stream.settings.kafka.bootstrap}", stream.settings) as memory:
            sent = await memory.append([LATE])
            answer = await memory.query("pelican", wait_for=sent)
        assert LATE.text in [item.text for item in answer.evidence]
        assert answer.headers
        assert server.calls == calls
        assert set(stream.stop()) == {0}, stream.told()
        stream.change("budget", tokens=1_000_000)
        stream.workers.clear()
        start_all(stream)
        await all_worded(parts, expected, stream)
        assert set(server.paid.values()) == {1}
        async with stream.open() as later:
            assert (await standing(later)).model_calls.state == "made"


# --------------------------------------------------------------------------------------------------------- a rebuild


async def test_after_a_rebuild_everything_is_worded_again_and_nothing_is_asked_for(stream: Stream) -> None:
    expected = await worded_embedded(TALK, stream)
    async with served(stream, delay=0.0) as server, stream.open() as parts:
        start_all(stream)
        await stream.settled(await stream.produce(TALK))
        await all_worded(parts, expected, stream)
        calls = server.calls
        assert set(stream.stop()) == {0}, stream.told()
        await rebuilt(parts)
    async with served(stream, delay=0.0) as other, stream.open() as parts:
        start(stream, "summarize", options=("--words",))
        await all_worded(parts, expected, stream)
        assert (calls > 0, other.calls) == (True, 0)
