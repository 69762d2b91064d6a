"""Everything that can go wrong at once: kill -9, rebalances, servers that go away, repeated and shuffled events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from streammem.core import positions
from streammem.errors import TransientError
from streammem.records import Awaited, Event
from tests.e2e.stream import Built, Stream, of_embedded, of_stream
from tests.e2e.turmoil import gust, turmoil
from tests.servers.kafka_server import KafkaServer
from tests.servers.redis_server import RedisServer

EFFECTS = {
    "ingest": ("append",),
    "structure": ("register", "enter", "link", "learn", "redact", "mark_due", "advance"),
    "index": ("upsert", "lower", "flush", "advance", "keep_nodes", "keep", "settle"),
}
PROCESSES = (("ingest",), ("ingest",), ("structure",), ("structure",), ("index", "summarize"))
DELICATE = {("ingest",): "append:1", ("structure",): "mark_due:2", ("index", "summarize"): "upsert:1"}
"""Where a fault of each role shows: records taken and not logged, leaves entered and not marked, nothing indexed."""

CHUNK = 200


class Outcome(msgspec.Struct):
    """What a storm came to, beside the embedded build of the same events."""

    kills: int
    restarts: dict[str, int]
    stream: Built
    embedded: Built


class Storm:
    """Produces events while it kills workers and restarts servers, all by one seed."""

    def __init__(self, stream: Stream, kafka: KafkaServer, redis: RedisServer, *, seed: int) -> None:
        self.stream, self.kafka, self.redis = stream, kafka, redis
        self.chance = random.Random(seed)
        self.kills = self._messages = 0
        self.restarts = {"kafka": 0, "redis": 0}
        self._seed, self._turn = seed, 0
        self._fault: tuple[str, ...] = ()
        self._told: Callable[[str], None] = lambda _: None

    def plant(self, fault: str) -> None:
        """Every worker is to have this fault."""
        self._fault = ("--fault", fault)

    async def blow(self, messages: int, kills: int, *, told: Callable[[str], None] | None = None) -> Outcome:
        """Send so many messages and all that happens to them; kill at least so often meanwhile; then settle."""
        self._told = told or self._told
        self._messages = messages
        events, last = turmoil(messages, self._seed), gust(40, self._seed)
        async with self.stream:
            for roles in PROCESSES:
                self.stream.start(*roles, options=(*self._fault, *self._death(roles)))
            sending = asyncio.create_task(self._send(events))
            await self._trouble(kills)
            sent = await self._last_gust(last, await sending)
            self._all_up(deadly=False)
            await self._settled(sent)
            codes = self.stream.stop()
            assert set(codes) == {0}, self.stream.told()
        return Outcome(
            self.kills,
            self.restarts,
            await of_stream(self.stream),
            await of_embedded([*events, *last], self.stream.settings.forest.k),
        )

    async def _last_gust(self, events: list[Event], sent: Awaited) -> Awaited:
        """A few more events, over which each role dies once at its most delicate effect and is started again."""
        self._all_up(deadly=False)
        await self._settled(sent)
        self._kill_all()
        sent = _both(sent, await self._surely(events))
        for roles, death in DELICATE.items():
            doomed = self.stream.start(*roles, options=(*self._fault, "--die", death))
            for _ in range(300):
                await asyncio.sleep(0.1)
                if not doomed.running:
                    break
            self._told(f"{roles} died of {death}" if not doomed.running else f"{roles} had nothing to die of")
            self._kill_all()
            self.stream.start(*roles, options=self._fault)
            await asyncio.sleep(5.0)  # what it does now, the next role builds on
        return sent

    async def _settled(self, sent: Awaited) -> None:
        await self.stream.up()
        await self.stream.settled(sent, 30 if self._fault else 120 + self._messages / 50)

    def _kill_all(self) -> None:
        for worker in self.stream.workers:
            worker.kill()
        self._count_the_dead()

    async def _send(self, events: list[Event]) -> Awaited:
        sent = Awaited()
        for start in range(0, len(events), CHUNK):
            sent = _both(sent, await self._surely(events[start : start + CHUNK]))
            await asyncio.sleep(0.05)
        return sent

    async def _surely(self, events: list[Event]) -> Awaited:
        while True:
            try:
                return await self.stream.produce(events)
            except TransientError:
                await asyncio.sleep(0.5)

    async def _trouble(self, kills: int) -> None:
        """Kill, one after the other; in between restart Redis (it loses what it had not synced) and Kafka."""
        while self.kills < kills:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5))
            self._count_the_dead()
            victim = self.chance.choice([w for w in self.stream.workers if w.running] or [None])
            if victim is not None:
                self._told(f"kill {victim.roles}")
                victim.kill()
            self._count_the_dead()
            if self.kills >= kills // 3 and not self.restarts["redis"]:
                await self._restart("redis", self.redis)
            if self.kills >= 2 * kills // 3 and not self.restarts["kafka"]:
                await self._restart("kafka", self.kafka)
            self._all_up(deadly=True)

    async def _restart(self, name: str, server: Any) -> None:
        self._told(f"restart {name}")
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(self.chance.uniform(0.5, 2.0))
        await asyncio.to_thread(server.start)
        self.restarts[name] += 1

    def _count_the_dead(self) -> None:
        """Workers that were killed are forgotten; one that ended in another way is a fault."""
        for worker in [w for w in self.stream.workers if not w.running]:
            assert worker.process.returncode == -9, self.stream.told()
            self.stream.workers.remove(worker)
            self.kills += 1

    def _all_up(self, *, deadly: bool) -> None:
        """Start what is missing, when `deadly` with an effect at which it will die by itself."""
        self._count_the_dead()
        missing = list(PROCESSES)
        for worker in self.stream.workers:
            missing.remove(worker.roles)
        for roles in missing:
            self.stream.start(*roles, options=(*self._fault, *(self._death(roles) if deadly else ())))
        if not deadly:
            self._replace_the_doomed()

    def _death(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        effects = EFFECTS[roles[0]]
        self._turn += 1
        return ("--die", f"{effects[self._turn % len(effects)]}:{self.chance.randint(1, 4)}")

    def _replace_the_doomed(self) -> None:
        for worker in [w for w in self.stream.workers if "--die" in w.process.args]:  # type: ignore[operator]
            worker.kill()
            self.stream.workers.remove(worker)
            self.kills += 1
            self.stream.start(*worker.roles, options=self._fault)


def _both(sent: Awaited, more: Awaited) -> Awaited:
    names = {*sent.inputs, *more.inputs}
    return Awaited(inputs={n: positions.joined(sent.inputs.get(n, {}), more.inputs.get(n, {})) for n in names})


def differences(outcome: Outcome) -> list[str]:
    """In what the stream differs from the embedded build of the same events."""
    fields = Built.__struct_fields__
    return [name for name in fields if getattr(outcome.stream, name) != getattr(outcome.embedded, name)]
