"""Several processes that answer share the questions: none is lost when they take over from each other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streammem.backends.kafka import Connection
from streammem.backends.kafka_exchange import KafkaExchange
from streammem.backends.kafka_topics import KafkaTopics
from streammem.core.topics import QUERIES, group_of
from streammem.errors import SettingsError
from streammem.records import Answer, Query
from streammem.settings import KafkaSettings, Settings, WorkerSettings
from streammem.workers.duty import Pulse
from streammem.workers.query import Clerk, refusal_of


class Office:
    """Clerks of one group over a real Kafka; every answer is noted with who gave it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection, self.prefix = Connection(bootstrap=bootstrap), prefix
        self.settings = Settings(
            kafka=KafkaSettings(bootstrap=bootstrap, prefix=prefix), worker=WorkerSettings(queries=2, patience=0.5)
        )
        self.topics = KafkaTopics(self.connection, prefix)
        self.exchange = KafkaExchange(self.connection, prefix)
        self.answers: list[tuple[str, str]] = []
        self.fault: Exception | None = None

    def clerk(self, name: str) -> asyncio.Task[None]:
        async def ask(query: Query) -> Answer:
            await asyncio.sleep(0.02)
            self.answers.append((name, query.text))
            return refusal_of(query.text, "noted")

        async def reply(*arguments: Any) -> None:
            if self.fault is not None:
                raise self.fault
            await self.exchange.reply(*arguments)

        noted = SimpleNamespace(reply=reply, bury=self.exchange.bury)
        parts: Any = SimpleNamespace(settings=self.settings, exchange=noted)
        counter: Any = SimpleNamespace(ask=ask)
        return asyncio.create_task(Clerk(parts, counter, Pulse("query")).serve())

    async def put(self, start: int, stop: int) -> None:
        for n in range(start, stop):
            await self.exchange.send(QUERIES, str(n).encode(), b'{"text":"%d"}' % n)

    async def committed(self) -> int:
        found = await self.topics.committed(group_of(self.prefix, "query"))
        return sum(found.get("queries", {}).values())

    async def until(self, check: Any) -> None:
        async with asyncio.timeout(60):
            while not await check():
                await asyncio.sleep(0.1)

    async def answered(self, count: int) -> None:
        async def check() -> bool:
            return len({text for _, text in self.answers}) == count and await self.committed() == count

        await self.until(check)


async def ended(*clerks: asyncio.Task[None]) -> None:
    for clerk in clerks:
        clerk.cancel()
    await asyncio.gather(*clerks, return_exceptions=True)


@pytest.fixture
async def office(kafka: str, kafka_prefix: str) -> Any:
    made = Office(kafka, kafka_prefix)
    await made.topics.create(2, 1)
    yield made
    await made.exchange.stop()


async def test_every_question_is_answered_while_processes_come_and_go(office: Office) -> None:
    first = office.clerk("first")
    await office.put(0, 20)
    second = office.clerk("second")
    await office.put(20, 40)

    async def shared() -> bool:
        return {name for name, _ in office.answers} == {"first", "second"}

    for n in range(40, 140, 20):
        if await shared():
            break
        await office.put(n, n + 20)
        await asyncio.sleep(1)
    await office.until(shared)
    count = len({text for _, text in office.answers})
    await ended(first)
    sent = sum((await office.topics.describe([QUERIES]))[0].end.values())
    assert count <= sent
    await office.put(1000, 1005)
    await office.answered(sent + 5)
    await ended(second)


async def test_a_fault_ends_the_clerk_and_its_question_is_answered_by_the_next(office: Office) -> None:
    office.fault = SettingsError("Kafka does not allow producing to memory.answers.v1")
    await office.put(0, 1)
    with pytest.raises(SettingsError, match="does not allow"):
        await asyncio.wait_for(office.clerk("first"), 60)
    assert await office.committed() == 0
    office.fault = None
    second = office.clerk("second")
    await office.answered(1)
    await ended(second)


async def test_a_fault_of_a_file_is_not_taken_for_a_kafka_that_is_away(office: Office) -> None:
    office.fault = OSError(28, "No space left on device")
    await office.put(0, 1)
    with pytest.raises(OSError, match="No space left"):
        await asyncio.wait_for(office.clerk("first"), 60)
