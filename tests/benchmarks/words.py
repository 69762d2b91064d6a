"""`python -m tests.benchmarks.words`: node summaries by a language model, over a scripted server. Figures only.

The server is a process of its own that answers after `--delay` seconds. Beside the figures of `rate` stand their
floors from the same run: as many bare calls of the official client, and of aiohttp. The ideal is calls / in flight x
delay. CPU seconds stand beside wall seconds: on a machine with other work only the first mean something. Calls are
counted by the server; by view and level (0: above an actor's sequences) they are those of the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp
import openai

from streammem import open_memory
from streammem.backends.redis import RedisStructure
from streammem.backends.redis_ledger import RedisLedger
from streammem.core import prompts
from streammem.core.prompts import Part
from streammem.memory import Memory
from streammem.records import ChannelRef, Event, Mention, MessageEvent, Prompt, Query, Sender
from streammem.settings import Settings
from tests.benchmarks.parts import _middle_and_tail, now, since
from tests.embedding import HashingEmbedder
from tests.servers import redis_server

START = datetime(2025, 3, 3, 8, tzinfo=UTC)
"""Long ago: nothing waits for a quiet time."""

ROUNDS = 3
"""Of `append`: without wording and with it, in turn, so that both meet the same machine."""

K = Settings().forest.k
TICKS = os.sysconf("SC_CLK_TCK")
Figures = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    options = _options(arguments)
    figures = {part: _apart(part, options) for part in (PARTS if options.part == "all" else (options.part,))}
    if options.json:
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.words", description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--nodes", type=int, default=10_000, metavar="N", help="about how many are worded [10000]")
    parser.add_argument("--messages", type=int, default=10_000, metavar="N", help="in the channel of `late` [10000]")
    parser.add_argument("--questions", type=int, default=60, metavar="N", help="of `append`, with wording [60]")
    parser.add_argument("--in-flight", type=int, default=32, metavar="N", help="calls at the same time [32]")
    parser.add_argument("--delay", type=float, default=0.2, metavar="SECONDS", help="of the server [0.2]")
    parser.add_argument("--limits", action="store_true", help="with limits a minute, which are never reached")
    parser.add_argument("--redis", nargs="?", const="", metavar="URL", help="structure and ledger in Redis")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, not as they come")
    return parser.parse_args(arguments)


def _apart(part: str, options: argparse.Namespace) -> Figures:
    """The figures of one part, in a folder of its own and with servers of its own."""
    tell: Tell = (lambda name, figure: None) if options.json else _say
    if not options.json:
        sys.stdout.write(f"{part}   (load {os.getloadavg()[0]:.1f} before)\n")
    with tempfile.TemporaryDirectory(prefix="bench-") as named:
        folder = Path(named)
        with _redis(options.redis, folder) as redis, Server(options.delay, folder / "asked.jsonl") as server:
            place = Place(folder / "memory", server, redis, options)
            try:
                return asyncio.run(PARTS[part](place, tell))
            finally:
                place.forget()


def _say(name: str, figure: str) -> None:
    """One figure, at once."""
    sys.stdout.write(f"  {name:32} {figure}\n")
    sys.stdout.flush()


Tell = Callable[[str, str], None]


# ------------------------------------------------------------------------------------------------ what it runs on


class Server:
    """The scripted server, as a process."""

    def __init__(self, delay: float, log: Path) -> None:
        self._log = log
        self._command = [
            sys.executable,
            "-m",
            "tests.servers.model_server",
            f"--delay={delay}",
            f"--requests-log={log}",
        ]

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None
        self.url = self._child.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        self._child.communicate()

    def calls(self) -> int:
        """How many it has answered."""
        return self._log.read_bytes().count(b"\n")

    def cpu(self) -> float:
        """Seconds of CPU that it has had."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def _redis(url: str | None, folder: Path) -> Iterator[str | None]:
    """The URL of the Redis to be used, if one is: the named one, or one that is started."""
    if url != "":
        yield url
        return
    server = redis_server.RedisServer(folder / "redis", "--appendonly", "yes")
    try:
        yield server.url
    finally:
        server.stop()


class Place:
    """Where a memory is, and the server that words it."""

    def __init__(self, folder: Path, server: Server, redis: str | None, options: argparse.Namespace) -> None:
        self._folder, self.server, self._redis, self.options = folder, server, redis, options
        self._prefix = f"words-{os.getpid()}-{folder.parent.name}"

    @asynccontextmanager
    async def memory(self, model: str = "scripted", **numbers: Any) -> AsyncIterator[Memory]:
        """The memory, worded by a model of that name: for another one everything is to be worded anew."""
        budget: Figures = {"tokens": 10**12, "money": 10**6, "prices": {model: (0.15, 0.6)}}
        if self.options.limits:
            budget |= {"requests_per_minute": 10**7, "tokens_per_minute": 10**11}
        settings = Settings(
            openai={"model": model, "base_url": self.server.url, "key": "sk-bench"},
            wording={"in_flight": self.options.in_flight, **numbers},
            budget=budget,
        )
        opened = open_memory(self._folder, settings, embedder=lambda _: HashingEmbedder())
        async with opened as memory, self._elsewhere(memory):
            yield memory

    @asynccontextmanager
    async def _elsewhere(self, memory: Memory) -> AsyncIterator[None]:
        """Structure and ledger of a memory in Redis instead, if there is one: what a worker of the stream has."""
        if self._redis is None:
            yield
            return
        parts, own = memory._parts, (memory._parts.structure, memory._parts._ledger)
        store, ledger = RedisStructure(self._redis, self._prefix), RedisLedger(self._redis, self._prefix)
        parts.structure, parts._ledger = store, ledger
        try:
            yield
        finally:
            parts.structure, parts._ledger = own
            await store.close()
            await ledger.close()

    def forget(self) -> None:
        """Leave nothing in a Redis of others."""
        if self.options.redis:
            redis_server.forget(self.options.redis, self._prefix)


# ------------------------------------------------------------------------------------------------------- histories

_WORDS = "the team build review plan release test fix draft agreed blocked waits for customer server report today "
_WORDS += "tomorrow budget contract design change request approved merged question answer meeting deploy error table"
WORDS = _WORDS.split()


def message(number: int, chance: random.Random, *, channel: str, people: int, documents: int, **more: Any) -> Event:
    """A message that lands in four sequences: its channel's, two people's, an artifact's. 8 to 45 words."""
    speaker, named = chance.sample(range(people), 2)
    words = " ".join(chance.choices(WORDS, k=chance.randint(8, 45)))
    given = {"ts": START + timedelta(minutes=number), "id": f"m{number:06}", **more}
    return MessageEvent(
        workspace="w",
        channel=ChannelRef(id=channel, name=channel, type="public"),
        sender=Sender(id=f"u{speaker}", name=f"name{speaker}"),
        text=f"@u{named} DOC-{chance.randrange(documents):03} {words} ({number})",
        mentions=(Mention(id=f"u{named}"),),
        **given,
    )


def history(nodes: int) -> list[Event]:
    """Messages under which about so many nodes are to be worded, in large and small sequences."""
    count, chance = round(nodes * 2.7), random.Random(5)
    channels = [f"c{round(20 * chance.random() ** 2)}" for _ in range(count)]
    return [
        message(n, chance, channel=channel, people=60, documents=max(1, count // 40))
        for n, channel in enumerate(channels)
    ]


def one_channel(messages: int) -> list[Event]:
    """A channel of so many messages. Its last node is half full."""
    chance = random.Random(6)
    return [message(n, chance, channel="c", people=8, documents=20) for n in range(messages // K * K + K // 2)]


# ------------------------------------------------------------------------------------------------------------ rate


async def _rate(place: Place, tell: Tell) -> Figures:
    """All nodes of a memory, one a call and then together, between as many bare calls."""
    figures: Figures = {}
    async with place.memory(pack=1) as memory:
        events = history(place.options.nodes)
        await memory.append(events)
        figures["alone"] = await _worded(memory, place)
        tell("one node a call", _told(figures["alone"]))
    asked = _prompt(events[:K])
    for name, call in (("client", _client_call), ("aiohttp", _aiohttp_call)):
        figures[name] = await _bare(call, asked, figures["alone"]["calls"], place)
        tell(f"bare calls, {name}", _told(figures[name]))
    async with place.memory("scripted-together") as memory:
        figures["together"] = await _worded(memory, place)
        tell("several nodes a call", _told(figures["together"]))
    return figures


async def _worded(memory: Memory, place: Place) -> Figures:
    """What wording all that is due takes."""
    calls, server, before = place.server.calls(), place.server.cpu(), now()
    done = await memory.word()
    figures = _figures(place, since(before), place.server.calls() - calls, place.server.cpu() - server)
    return {"nodes": done.worded, "failed": done.failed, **figures}


def _figures(place: Place, took: tuple[float, float], calls: int, server: float) -> Figures:
    ideal = calls / place.options.in_flight * place.options.delay
    return {
        "calls": calls,
        "seconds": took[0],
        "cpu": took[1],
        "server_cpu": server,
        "ideal": ideal,
        "ratio": took[0] / ideal if calls else 0.0,
        "cpu_ms_a_call": 1000 * took[1] / max(1, calls),
    }


def _told(figures: Figures) -> str:
    nodes = f"{figures['nodes']:,} nodes, " if "nodes" in figures else ""
    failed = f", {figures['failed']} FAILED" if figures.get("failed") else ""
    return (
        f"{nodes}{figures['calls']:,} calls in {figures['seconds']:.1f} s, {figures['ratio']:.2f} times the ideal"
        f"{failed}; CPU {figures['cpu']:.1f} s, {figures['cpu_ms_a_call']:.2f} ms a call, "
        f"server {figures['server_cpu']:.1f} s"
    )


def _prompt(events: list[Any]) -> Prompt:
    """What is asked for a node of these messages."""
    lines = tuple(f"{n} | 2025-03-03 08:00 | <@{event.sender.id}> | {event.text}" for n, event in enumerate(events, 1))
    return prompts.prompt([Part("key", "channel", "<#c>", 1, 0, 0, (), lines)], Settings().wording.length)


Call = Callable[[], Awaitable[object]]


async def _bare(calling: Callable[[str, Prompt], Any], prompt: Prompt, calls: int, place: Place) -> Figures:
    """What so many calls take, as many in flight, when nothing else is done."""
    left, served, before = iter(range(calls)), place.server.cpu(), now()

    async def work(call: Call) -> None:
        for _ in left:
            await call()

    async with calling(place.server.url, prompt) as call:
        await asyncio.gather(*(work(call) for _ in range(place.options.in_flight)))
    return _figures(place, since(before), calls, place.server.cpu() - served)


@asynccontextmanager
async def _client_call(url: str, prompt: Prompt) -> AsyncIterator[Call]:
    """The official client, as its documentation calls it."""
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-bench", max_retries=0) as client:
        yield lambda: client.chat.completions.create(**_body(prompt))


@asynccontextmanager
async def _aiohttp_call(url: str, prompt: Prompt) -> AsyncIterator[Call]:
    """Bytes out and bytes in."""
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer sk-bench"}) as session:

        async def call() -> bytes:
            async with session.post(f"{url}/chat/completions", json=_body(prompt)) as response:
                return await response.read()

        yield call


def _body(prompt: Prompt) -> Figures:
    named = {"name": "summaries", "schema": prompt.schema, "strict": True}
    return {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": prompt.instructions},
            {"role": "user", "content": prompt.data},
        ],
        "max_tokens": prompt.room,
        "temperature": 0.0,
        "response_format": {"type": "json_schema", "json_schema": named},
    }


# ----------------------------------------------------------------------------------------------------------- again


async def _again(place: Place, tell: Tell) -> Figures:
    """The calls of importing the same once more, and of building everything anew from the log."""
    events = history(place.options.nodes // 5)
    async with place.memory() as memory:
        await memory.append(events)
        figures: Figures = {"first": await _calls(place, memory.word)}
        tell("first", f"{figures['first']:,} calls")

        async def imported() -> None:
            await memory.append(events)
            await memory.word()

        async def rebuilt() -> None:
            await memory.rebuild()
            await memory.word()

        for name, act in (("imported again", imported), ("rebuilt", rebuilt)):
            figures[name] = await _calls(place, act)
            tell(name, f"{figures[name]:,} calls (at most 0)")
    return figures


async def _calls(place: Place, act: Callable[[], Awaitable[object]]) -> int:
    before = place.server.calls()
    await act()
    return place.server.calls() - before


# ------------------------------------------------------------------------------------------------------------ late


async def _late(place: Place, tell: Tell) -> Figures:
    """Calls by view and level after one late message or one deletion in a long channel."""
    events = one_channel(place.options.messages)
    size, chance = len(events), random.Random(7)
    late: Callable[..., Event] = lambda n, at: message(  # noqa: E731
        n, chance, channel="c", people=8, documents=20, ts=START + timedelta(minutes=at)
    )
    figures: Figures = {"messages": size}
    async with place.memory(renew="touched") as memory:
        await memory.append(events)
        figures["all"] = await _by_level(place, memory)
    tell("all", f"{size:,} messages: {_told_levels(figures['all'])}")
    acts = (
        ("late, open node", late(size, size - 3.5)),
        ("late, in the middle", late(size + 1, size // 2 + 0.5)),
        ("deleted, in the middle", _deleted(events[size // 3])),
    )
    for name, event in acts:
        figures[name] = await _after(place, event)
        tell(name, _told_levels(figures[name]["before"]))
        tell("  renewed lazily", _told_levels(figures[name]["renewal"]))
    return figures


def _deleted(event: Any) -> Event:
    return MessageEvent(workspace="w", channel=event.channel, id=event.id, version="9", op="delete")


async def _after(place: Place, event: Event) -> Figures:
    """The calls after one event: before the lazy renewal, and of that."""
    async with place.memory(renew="touched") as memory:
        await memory.append([event])
        before = await _by_level(place, memory)
    async with place.memory(renew="idle") as memory:
        return {"before": before, "renewal": await _by_level(place, memory)}


async def _by_level(place: Place, memory: Memory) -> Figures:
    """The calls of wording what is due, by view and level. The server counts as many."""
    counted, spent = place.server.calls(), await _accounts(memory)
    await memory.word()
    levels = await _accounts(memory)
    levels.subtract(spent)
    calls = place.server.calls() - counted
    assert calls == sum(levels.values()), f"the server counts {calls} calls, the ledger {dict(levels)}"
    return {name: count for name, count in sorted(levels.items()) if count}


async def _accounts(memory: Memory) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in await memory._parts.ledger.spent(2):
        counts[f"{one.view} {one.level}"] += one.calls
    return counts


def _told_levels(levels: Figures) -> str:
    """The calls in the channel's sequence by level, and those in all others."""
    named = [name.split() for name in levels]
    own = {int(level): levels[f"{view} {level}"] for view, level in named if view == "channel"}
    others = Counter({view: sum(n for name, n in levels.items() if name.startswith(view)) for view, _ in named})
    del others["channel"]
    told = [f"level {level}: {calls:,}" for level, calls in sorted(own.items())]
    return (
        f"channel {', '.join(told) or '0'}; others {', '.join(f'{v} {n:,}' for v, n in sorted(others.items())) or '0'}"
    )


# ---------------------------------------------------------------------------------------------------------- append


async def _append(place: Place, tell: Tell) -> Figures:
    """One message appended and one question, in turn, with nodes being worded beside and without."""
    figures: Figures = {}
    took: dict[str, dict[str, list[float]]] = {name: {"append": [], "question": []} for name in ("without", "with")}
    async with place.memory() as memory:
        events = history(place.options.nodes)
        await memory.append(events)
        acts = _acts(memory, len(events))
        each = max(1, place.options.questions // ROUNDS)
        await _timed(acts, 3, took["without"])
        took["without"] = {"append": [], "question": []}
        for _ in range(ROUNDS):
            await _timed(acts, each, took["without"])
            async with _wording(memory, place) as beside:
                await _timed(acts, each, took["with"])
                figures["calls"] = figures.get("calls", 0) + beside()
    for act in ("append", "question"):
        alone, beside_ = (_middle_and_tail(took[name][act]) for name in ("without", "with"))
        ratio = [round(b / a, 2) if a else 0.0 for a, b in zip(alone, beside_, strict=True)]
        figures[act] = {"without": alone, "with": beside_, "ratio": ratio}
        tell(
            f"{act}, p50 and p95",
            "{} and {} ms alone, {} and {} ms with wording beside: {} and {} times".format(*alone, *beside_, *ratio),
        )
    tell("calls meanwhile", f"{figures['calls']:,}")
    return figures


def _acts(memory: Memory, size: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """What is timed: a message appended, durable, findable and summarised; a question answered."""
    chance, numbers = random.Random(8), iter(range(size, 2 * size + 1000))

    async def append() -> None:
        await memory.append([message(next(numbers), chance, channel="c1", people=60, documents=20)])

    async def ask() -> None:
        words = " ".join(chance.choices(WORDS, k=6))
        await memory.ask(Query(text=f"who {words} DOC-{chance.randrange(20):03}?", workspace="w"))

    return {"append": append, "question": ask}


async def _timed(acts: dict[str, Callable[[], Awaitable[object]]], times: int, took: dict[str, list[float]]) -> None:
    for _ in range(times):
        for name, act in acts.items():
            began = time.perf_counter()
            await act()
            took[name].append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _wording(memory: Memory, place: Place) -> AsyncIterator[Callable[[], int]]:
    """Nodes are worded meanwhile; gives the number of calls by now."""
    before = place.server.calls()
    task = asyncio.create_task(memory.word())
    while place.server.calls() < before + place.options.in_flight and not task.done():
        await asyncio.sleep(0.05)
    begun = place.server.calls()
    try:
        yield lambda: place.server.calls() - begun
    finally:
        if task.done():
            sys.stderr.write("the wording ended before the questions did: give it more --nodes, or fewer --questions\n")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


PARTS: dict[str, Callable[[Place, Tell], Awaitable[Figures]]] = {
    "rate": _rate,
    "again": _again,
    "late": _late,
    "append": _append,
}

if __name__ == "__main__":
    sys.exit(main())
