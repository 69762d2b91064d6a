"""The role that answers: questions from their topic, evidence to the answers topic. Nothing of Faust.

A question that cannot be answered gets an answer that says so; none stops the worker. An answer may come twice after a
crash, under the same correlation id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from streammem.backends.kafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
    begin,
    finish,
    kafka_errors,
    speaking,
)
from streammem.backends.kafka_exchange import received
from streammem.core.topics import ANSWERS, QUERIES, group_of, named
from streammem.errors import QueryError, RejectedError, StreammemError
from streammem.flows.asking import Counter, findable
from streammem.flows.replying import Mute, Replier, unwritten
from streammem.records import Answer, Query, Received, Refusal
from streammem.wiring.stream import Streaming, connection
from streammem.workers.duty import Pulse, persist
from streammem.workers.stages import Done, dead_letter

log = structlog.get_logger()
_query = msgspec.json.Decoder(Query).decode

PATIENCE = 10.0
ASKED_AT_ONCE = 0.1
"""Seconds that the consumer waits for questions before it looks at what was answered."""
SENDING = 0.5
"""Seconds of a question's time that are left for sending its answer when a reply is written."""
NOBODY = Mute("no language model answers here")
REPLY = 16 * 1024
"""Bytes of an answer's record that are left for a reply."""
HEAD = 2048
"""Bytes of an answer's record that are left for its key, its headers and a note."""
ECHO = 1000
"""Characters of a question, and of what is wrong with it, that an answer without evidence repeats."""


def refusal_of(question: str, reason: str) -> Answer:
    """The answer to a question that has none."""
    return Answer(
        question=question[:ECHO],
        asker=None,
        as_of=None,
        evidence=(),
        headers=(),
        tokens=0,
        abstained=True,
        timings_ms={},
        error=reason[: 2 * ECHO],
    )


def fitting(answer: Answer, room: int) -> Answer:
    """The answer in at most `room` bytes of JSON: if need be without headers and with the best of the evidence only.

    A reply goes first: it would cite what is not there.
    """
    encode = msgspec.json.encode
    if len(encode(answer)) <= room:
        return answer
    if answer.reply is not None:
        alone = msgspec.structs.replace(answer, reply=None)
        return fitting(unwritten(alone, "it does not fit into a Kafka record"), room)
    left = room - len(encode(msgspec.structs.replace(answer, evidence=(), headers=())))
    kept = 0
    for item in answer.evidence:
        left -= len(encode(item)) + 1
        if left < 0:
            break
        kept += 1
    note = f"{len(answer.evidence) - kept} messages and the headers are left out: they do not fit into a Kafka record"
    return msgspec.structs.replace(
        answer, evidence=answer.evidence[:kept], headers=(), notes=(*answer.notes, note), abstained=not kept
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


def _once(act: Callable[[], None]) -> Callable[[], None]:
    """Does it when called first, and nothing when called again."""
    left = [act]

    def acting() -> None:
        if left:
            left.pop()()

    return acting


class Clerk:
    """Answers questions of one process, several at a time."""

    def __init__(self, parts: Streaming, counter: Counter, pulse: Pulse, replier: Replier | Mute = NOBODY) -> None:
        self._parts, self._counter, self.pulse, self._replier = parts, counter, pulse, replier
        self._seconds = parts.settings.worker.timeout
        self._room = asyncio.Semaphore(parts.settings.worker.queries)
        self._pending: dict[TopicPartition, dict[int, bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: list[BaseException] = []
        kafka = parts.settings.kafka
        self._fits = min(kafka.max_bytes, ANSWERS.max_bytes) - HEAD

    async def serve(self) -> None:
        """Run until cancelled, through whatever is away."""
        longest = self._parts.settings.worker.patience
        await persist(self._serve, longest, self.pulse.wait)

    async def _serve(self) -> None:
        kafka = self._parts.settings.kafka
        topic = named(kafka.prefix, QUERIES)
        with speaking(connection(kafka), "reading", topic):
            consumer = AIOKafkaConsumer(
                group_id=group_of(kafka.prefix, "query"),
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=int(1000 * self._parts.settings.worker.session),
                heartbeat_interval_ms=int(1000 * self._parts.settings.worker.session / 3),
                **connection(kafka).options(),
            )
            consumer.subscribe([topic], listener=_Handover(self, consumer))
            await begin(connection(kafka), consumer, PATIENCE)
            self.pulse.wait("")
            try:
                self._pending.clear()
                while not self._faults:
                    await self._take(consumer)
                    await self.commit(consumer)
            finally:
                await self._end()
                await finish(consumer)
        raise self._faults[0]

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
                task = asyncio.create_task(self._work(received(record, QUERIES), pending))
                self._tasks.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._faults.append(fault)  # it ends the worker, with the question not acknowledged

    async def commit(self, consumer: Any) -> None:
        """Acknowledge what was answered."""
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

    def forget(self) -> None:
        """Nothing that was taken is ours any more: what is not acknowledged will come again, here or elsewhere."""
        self._pending.clear()

    async def _end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, record: Received, pending: dict[int, bool]) -> None:
        leave = _once(self._room.release)
        try:
            answer = await self.answer(record, leave)
            longest = self._parts.settings.worker.patience
            await persist(lambda: self._reply(record, answer), longest, self.pulse.wait)
            pending[record.offset] = True
            self.pulse.count(Done(1))
        finally:
            leave()

    async def _reply(self, record: Received, answer: Answer) -> None:
        """Send the answer, or that it is too large; where even that is (its key may be), bury the question."""
        short = refusal_of(answer.question, "the answer is larger than the topic of answers takes: ask for less")
        for said in (fitting(answer, self._fits), short):
            try:
                return await self._parts.exchange.reply(record.key, record.headers, said)
            except RejectedError as error:
                reason = str(error)
        letter = dead_letter("query", record, Refusal(reason="no-answer-fits", detail=reason))
        return await self._parts.exchange.bury([letter])

    async def answer(self, record: Received, leave: Callable[[], None] = lambda: None) -> Answer:
        """The answer to one record of the queries topic, always. `leave` is called before a model is waited for."""
        try:
            query = _query(record.value or b"")
            if not query.text.strip():
                raise msgspec.ValidationError("`text` is empty")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return await self._refused(record, str(error))
        old = max(0.0, time.time() - record.at / 1e6)
        if old >= self._seconds:
            return refusal_of(
                query.text, f"the question was {old:.0f} s old, by its time stamp, when it came: ask again"
            )
        until = time.monotonic() + self._seconds - old
        answer = await self._answered(query, self._seconds - old)
        if not query.answer or answer.error is not None:
            return answer
        leave()
        return await self._replied(
            fitting(answer, self._fits - min(REPLY, self._fits // 4)), until - time.monotonic() - SENDING
        )

    async def _replied(self, answer: Answer, seconds: float) -> Answer:
        """The answer with a reply, where one is written in time. Whatever goes wrong, the evidence goes back."""
        try:
            return await self._replier(answer, max(0.0, seconds))
        except Exception as error:
            log.exception("a reply failed")
            return unwritten(answer, f"it failed: {type(error).__name__} (the worker's log says more)")

    async def _answered(self, query: Query, seconds: float) -> Answer:
        away = ""

        def told(reason: str) -> None:
            nonlocal away
            away = reason
            self.pulse.wait(reason)

        try:
            async with asyncio.timeout(seconds):
                answer = await persist(lambda: self._ask(query), 1.0, told)
            self.pulse.wait("")  # whatever another question still says: nothing is away
        except QueryError as error:
            return refusal_of(query.text, str(error))
        except TimeoutError:
            return refusal_of(query.text, self._late(query, away))
        except StreammemError as error:
            log.warning("a question failed", because=str(error))
            return refusal_of(query.text, f"the question failed: {error}")
        except Exception as error:
            log.exception("a question failed")
            return refusal_of(query.text, f"the question failed: {type(error).__name__} (the worker's log says more)")
        return answer

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

    def _late(self, query: Query, reason: str) -> str:
        away = f" ({reason})" if reason else ""
        if query.wait_for is not None:
            return f"what was to be waited for is not findable after {self._seconds:g} s{away}: ask again later"
        return f"not answered within {self._seconds:g} s{away}: ask again, or start more query workers"


class _Handover(ConsumerRebalanceListener):  # type: ignore[misc]
    """When the group shares its partitions anew, what was answered is acknowledged and the rest forgotten."""

    def __init__(self, clerk: Clerk, consumer: Any) -> None:
        self._clerk, self._consumer = clerk, consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Before another process may take them over."""
        if revoked:
            await self._clerk.commit(self._consumer)
        self._clerk.forget()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """What is now ours is read from where it was acknowledged."""
