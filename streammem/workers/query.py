"""The role that answers: questions from their topic, evidence to the answers topic. Nothing of Faust.

A question that cannot be answered gets an answer that says so; none stops the worker. An answer may come twice after a
crash, under the same correlation id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from streammem.backends.kafka import AIOKafkaConsumer, TopicPartition, begin, kafka_errors, speaking
from streammem.core.topics import QUERIES, group_of, named
from streammem.errors import QueryError
from streammem.flows.asking import Counter, findable
from streammem.records import Answer, Query, Received, Refusal
from streammem.wiring.stream import Streaming, connection
from streammem.workers.duty import Pulse, persist
from streammem.workers.stages import Done, dead_letter

log = structlog.get_logger()
_query = msgspec.json.Decoder(Query).decode

PATIENCE = 10.0
ASKED_AT_ONCE = 0.1
"""Seconds that the consumer waits for questions before it looks at what was answered."""


def refusal_of(question: str, reason: str) -> Answer:
    """The answer to a question that has none."""
    return Answer(
        question=question,
        asker=None,
        as_of=None,
        evidence=(),
        headers=(),
        tokens=0,
        abstained=True,
        timings_ms={},
        error=reason,
    )


def committable(pending: Mapping[int, bool]) -> int | None:
    """The offset that may be committed: right behind the answered questions that no unanswered one precedes.

    `pending` says of each offset, in order, whether it is answered. None when nothing may be committed.
    """
    reached = None
    for offset, answered in pending.items():
        if not answered:
            break
        reached = offset + 1
    return reached


class Clerk:
    """Answers questions of one process, several at a time."""

    def __init__(self, parts: Streaming, counter: Counter, pulse: Pulse) -> None:
        self._parts, self._counter, self.pulse = parts, counter, pulse
        self._seconds = parts.settings.worker.timeout
        self._room = asyncio.Semaphore(parts.settings.worker.queries)
        self._pending: dict[TopicPartition, dict[int, bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Run until cancelled, through whatever is away."""
        longest = self._parts.settings.worker.patience
        await persist(self._serve, longest, self.pulse.wait)

    async def _serve(self) -> None:
        kafka = self._parts.settings.kafka
        topic = named(kafka.prefix, QUERIES)
        with speaking(connection(kafka), "reading", topic):
            consumer = AIOKafkaConsumer(
                topic,
                group_id=group_of(kafka.prefix, "query"),
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=10_000,
                heartbeat_interval_ms=3_000,
                **connection(kafka).options(),
            )
            await begin(connection(kafka), consumer, PATIENCE)
            try:
                self._pending.clear()
                while True:
                    await self._take(consumer)
                    await self._commit(consumer)
            finally:
                await self._end()
                await consumer.stop()

    async def _take(self, consumer: Any) -> None:
        async with self._room:
            pass  # no more questions are taken than can be answered at once
        found = await consumer.getmany(
            timeout_ms=int(ASKED_AT_ONCE * 1000), max_records=self._parts.settings.worker.queries
        )
        for part, records in found.items():
            pending = self._pending.setdefault(part, {})
            for record in records:
                pending[record.offset] = False
                await self._room.acquire()
                task = asyncio.create_task(self._work(received(record), pending))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self.pulse.wait("")

    async def _commit(self, consumer: Any) -> None:
        offsets = {}
        for part, pending in self._pending.items():
            if part in consumer.assignment() and (reached := committable(pending)) is not None:
                offsets[part] = reached
                for offset in [o for o in pending if o < reached]:
                    del pending[offset]
        try:
            if offsets:
                await consumer.commit(offsets)
        except kafka_errors.CommitFailedError:
            log.warning("another process has taken over", because="the group was rebalanced")

    async def _end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, record: Received, pending: dict[int, bool]) -> None:
        try:
            answer = await self.answer(record)
            await persist(
                lambda: self._parts.exchange.reply(record.key, record.headers, answer),
                self._parts.settings.worker.patience,
                self.pulse.wait,
            )
            pending[record.offset] = True
            self.pulse.count(Done(1))
        finally:
            self._room.release()

    async def answer(self, record: Received) -> Answer:
        """The answer to one record of the queries topic, always."""
        try:
            query = _query(record.value or b"")
            if not query.text.strip():
                raise msgspec.ValidationError("`text` is empty")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return await self._refused(record, str(error))
        left = self._seconds - max(0.0, time.time() - record.at / 1e6)
        try:
            async with asyncio.timeout(left):
                return await persist(lambda: self._ask(query), 1.0, self.pulse.wait)
        except QueryError as error:
            return refusal_of(query.text, str(error))
        except TimeoutError:
            return refusal_of(query.text, await self._late(query))
        except Exception as error:
            log.exception("a question failed")
            return refusal_of(query.text, f"the question failed: {type(error).__name__} (the worker's log says more)")

    async def _ask(self, query: Query) -> Answer:
        if query.wait_for is not None:
            parts = self._parts
            group = group_of(parts.settings.kafka.prefix, "ingest")
            await findable(query.wait_for, parts.structure, lambda: parts.topics.committed(group), parts.log.end)
        return await self._counter.ask(query)

    async def _refused(self, record: Received, reason: str) -> Answer:
        letter = dead_letter("query", record, Refusal(reason="no-question", detail=reason))
        await persist(lambda: self._parts.exchange.bury([letter]), 1.0, self.pulse.wait)
        self.pulse.count(Done(0, (letter,)))
        return refusal_of("", f"this is no question: {reason}")

    async def _late(self, query: Query) -> str:
        away = f" ({self.pulse.waiting})" if self.pulse.waiting else ""
        if query.wait_for is not None:
            return f"what was to be waited for is not findable after {self._seconds:g} s{away}: ask again later"
        return f"not answered within {self._seconds:g} s{away}: ask again, or start more query workers"


def received(record: Any) -> Received:
    """A record of the queries topic."""
    return Received(
        topic=QUERIES.name,
        partition=record.partition,
        offset=record.offset,
        at=record.timestamp * 1000,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers or ()),
    )
