"""What is sent to the memory over Kafka and what comes back: events, questions and answers, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from collections.abc import Sequence as Many
from typing import Any
from uuid import uuid4

import msgspec

from streammem.backends.kafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    Connection,
    TopicPartition,
    administering,
    begin,
    finish,
    forsake,
    kafka_errors,
    partitions_of_topic,
    partitions_of_topics,
    speaking,
    translated,
)
from streammem.core import positions
from streammem.core.events import encode
from streammem.core.topics import ANSWERS, DEAD_LETTERS, MESSAGES, QUERIES, READS, REPLAYED, Topic, input_of, named
from streammem.errors import MemoryFormatError, QueryError, TransientError
from streammem.records import Answer, Awaited, DeadLetter, Event, Position, Query, Received

IN_FLIGHT = 2000
"""Records sent and not yet acknowledged: bounds memory, and what is sent twice after an interruption."""

INPUTS = {topic.short: topic for topic in READS["ingest"]}
CORRELATION = "correlation-id"
DONE = "done-with"
"""The reason of a letter that says of another (`detail` names it) that it is done with."""

_answer = msgspec.json.Decoder(Answer).decode
_letter = msgspec.json.Decoder(DeadLetter).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Produced(msgspec.Struct, frozen=True):
    """How many events are acknowledged, and what to wait for to find them."""

    count: int
    awaited: Awaited


class KafkaExchange:
    """Sends events and questions, reads answers and dead letters. Connects when first used; close with `stop`."""

    def __init__(self, connection: Connection, prefix: str, *, max_bytes: int = 2**20, patience: float = 10.0) -> None:
        self._connection, self._prefix = connection, prefix
        self._max_bytes, self._patience = max_bytes, patience
        self._producer: Any = None
        self._lock = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._seen: set[str] = set()

    async def stop(self) -> None:
        """Close the connections; nothing that was acknowledged is lost."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._producer is not None:
            producer, self._producer = self._producer, None
            try:
                async with asyncio.timeout(self._patience):
                    await producer.stop()
            except TimeoutError:
                await forsake(producer)

    # ---- events
    async def produce(self, events: Iterable[Event], *, at_once: int = IN_FLIGHT) -> AsyncIterator[Produced]:
        """Send events to the input topics; tell now and then, and at the end, what is acknowledged so far."""
        for short in INPUTS.keys() - self._seen:  # to send to a topic that is not there may create it
            await partitions_of_topic(self._connection, named(self._prefix, INPUTS[short]), self._patience)
            self._seen.add(short)
        producer = await self._started()
        flying: deque[tuple[str, asyncio.Future[Any]]] = deque()
        done = Produced(0, Awaited())
        with speaking(self._connection, "producing to", "the input topics"):
            try:
                for event in events:
                    flying.append(await self._launched(producer, event))
                    if len(flying) >= at_once:
                        done = await self._landed(flying, at_once // 2, done)
                        yield done
                yield await self._landed(flying, len(flying), done)
            except (kafka_errors.KafkaError, OSError, TimeoutError):
                await self._give_up(producer)
                raise

    async def _launched(self, producer: Any, event: Event) -> tuple[str, asyncio.Future[Any]]:
        short, key = input_of(event)
        name = named(self._prefix, INPUTS[short])
        future = await producer.send(name, encode(event), key.encode("utf-8", "surrogatepass"))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # else it warns when given up
        return short, future

    async def _landed(self, flying: deque[tuple[str, asyncio.Future[Any]]], count: int, done: Produced) -> Produced:
        """Wait for the oldest of what was sent, not for ever for each."""
        inputs: dict[str, Position] = dict(done.awaited.inputs)
        for _ in range(count):
            short, future = flying.popleft()
            if not future.done():
                await asyncio.wait([future], timeout=self._patience)
            if not future.done():
                raise TimeoutError(f"nothing acknowledged for {self._patience:g} s")
            sent = future.result()
            inputs[short] = positions.joined(inputs.get(short, {}), {sent.partition: sent.offset + 1})
        return Produced(done.count + count, Awaited(inputs=inputs))

    # ---- questions and answers
    async def ask(self, query: Query, seconds: float) -> Answer:
        """Put a question and wait for its answer. Raises QueryError for one that says so, TransientError for none."""
        query_id = str(uuid4())
        await self._listen()
        waiting = self._waiting[query_id.encode()] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self.send(QUERIES, query_id.encode(), msgspec.json.encode(query))
                answer = _answer(await waiting)
        except _UNREADABLE as error:
            raise MemoryFormatError(f"the answer is from another version of streammem: {error}") from None
        except TimeoutError:
            raise TransientError(
                f"no answer within {seconds:g} s: is a query worker running? (`streammem status` says)"
            ) from None
        finally:
            self._waiting.pop(query_id.encode(), None)
        if answer.error is not None:
            raise QueryError(answer.error)
        return answer

    async def _listen(self) -> None:
        """Read answers from now on, for all questions of this process."""
        async with self._lock:
            if self._listening is not None and not self._listening.done():
                return
            reading = self._reading(ANSWERS)
            with speaking(self._connection, "waiting for answers on", named(self._prefix, ANSWERS)):
                consumer = await reading.__aenter__()
                try:
                    await consumer.seek_to_end()
                    for part in consumer.assignment():
                        await consumer.position(part)
                except BaseException:
                    await reading.__aexit__()
                    raise
            self._listening = asyncio.create_task(self._dispatch(reading, consumer))

    async def _dispatch(self, reading: _Reading, consumer: Any) -> None:
        try:
            async for record in consumer:
                waiting = self._waiting.get(record.key)
                if waiting is not None and not waiting.done() and record.value is not None:
                    waiting.set_result(record.value)
        except kafka_errors.KafkaError as error:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(translated(error, self._connection, "waiting for answers on", ANSWERS.name))
        finally:
            await reading.__aexit__()

    async def reply(self, key: bytes | None, headers: Many[tuple[str, bytes]], answer: Answer) -> None:
        """Send an answer under the key and the correlation id of its question."""
        correlation = dict(headers).get(CORRELATION) or key or b""
        await self.send(ANSWERS, key, msgspec.json.encode(answer), ((CORRELATION, correlation),))

    # ---- dead letters
    async def bury(self, letters: Many[DeadLetter]) -> None:
        """Send records that could not be used to the dead-letter topic; return when they are durable."""
        await asyncio.gather(*(self.send(DEAD_LETTERS, letter.key, msgspec.json.encode(letter)) for letter in letters))

    async def letters(self) -> AsyncIterator[tuple[str, DeadLetter]]:
        """Every dead letter that is kept and not done with, with its name (PARTITION:OFFSET), by partition."""
        found: dict[str, DeadLetter] = {}
        done: set[str] = set()
        async for record in self._all(DEAD_LETTERS):
            if record.value is not None:
                letter = _read(record, record.value)
                if letter.reason == DONE:
                    done.add(letter.detail)
                else:
                    found[f"{record.partition}:{record.offset}"] = letter
        for name, letter in found.items():
            if name not in done:
                yield name, letter

    async def holding(self, topic: Topic, needles: Many[tuple[bytes, ...]]) -> tuple[int, int]:
        """How many records of a topic hold all the words of one of these needles, and the newest's time (µs; 0: none).

        A compacted topic gives them until its cleaner has been over it. Marks of erasure are passed over.
        """
        count = newest = 0
        async for record in self._all(topic):
            if record.value is None or (record.key or b"").startswith(b"erasure/"):
                continue
            said = (record.key or b"") + b"\n" + record.value
            if any(all(word in said for word in needle) for needle in needles):
                count, newest = count + 1, max(newest, record.at)
        return count, newest

    async def close(self, names: Iterable[str]) -> None:
        """Say of dead letters that they are done with: they are not told of any more."""
        at = time.time_ns() // 1000
        topic = DEAD_LETTERS.name
        await self.bury(
            [
                DeadLetter(role="operator", reason=DONE, detail=name, topic=topic, partition=0, offset=0, at=at)
                for name in names
            ]
        )

    async def original(self, letter: DeadLetter) -> Received | None:
        """The record that a dead letter is of, as long as its topic keeps it."""
        topic = next((t for t in REPLAYED if t.name == letter.topic), None)
        if topic is None:
            return None
        with speaking(self._connection, "reading", named(self._prefix, topic)):
            async with self._reading(topic) as consumer:
                part = TopicPartition(named(self._prefix, topic), letter.partition)
                if part not in consumer.assignment():
                    return None
                starts, ends = await consumer.beginning_offsets([part]), await consumer.end_offsets([part])
                if not starts[part] <= letter.offset < ends[part]:
                    return None
                consumer.seek(part, letter.offset)
                async with asyncio.timeout(self._patience):
                    record = await consumer.getone(part)
                return received(record, topic) if record.offset == letter.offset else None

    async def send(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: Many[tuple[str, bytes]] = ()
    ) -> tuple[int, int]:
        """Send one record; return its partition and its position when it is durable."""
        producer = await self._started()
        name = named(self._prefix, topic)
        if key is None and value is None:
            key = b""  # aiokafka takes no record of nothing
        with speaking(self._connection, "producing to", name):
            try:
                async with asyncio.timeout(self._patience):
                    sent = await producer.send_and_wait(name, value, key, headers=list(headers))
            except TimeoutError:
                await self._give_up(producer)  # it would go on trying, beside whoever tries again
                raise
        return sent.partition, sent.offset + 1

    async def missing(self, topics: Many[Topic]) -> list[str]:
        """The names of those topics that are not there, or not shown to this client."""
        async with administering(self._connection, "looking for topics", self._patience) as client:
            there = await partitions_of_topics(client)
        return [name for topic in topics if (name := named(self._prefix, topic)) not in there]

    # ---- connections
    async def _started(self) -> Any:
        async with self._lock:
            if self._producer is None:
                with speaking(self._connection, "connecting", ""):
                    producer = AIOKafkaProducer(
                        acks="all",
                        enable_idempotence=True,
                        linger_ms=0,  # a question waits for nobody; events fill batches while others are under way
                        max_request_size=max(self._max_bytes, MESSAGES.max_bytes),
                        request_timeout_ms=int(self._patience * 1000),
                        **self._connection.options(),
                    )
                    await begin(self._connection, producer, self._patience)
                    self._producer = producer
            return self._producer

    async def _give_up(self, producer: Any) -> None:
        if self._producer is producer:
            self._producer = None
        await forsake(producer)

    def _reading(self, topic: Topic) -> _Reading:
        return _Reading(self._connection, named(self._prefix, topic), self._patience)

    async def _all(self, topic: Topic) -> AsyncIterator[Received]:
        with speaking(self._connection, "reading", named(self._prefix, topic)):
            async with self._reading(topic) as consumer:
                parts = sorted(consumer.assignment())
                starts, ends = await consumer.beginning_offsets(parts), await consumer.end_offsets(parts)
                for part in parts:
                    consumer.seek(part, starts[part])
                for part in parts:  # all stay assigned: aiokafka may never stop when its assignment has just changed
                    while records := await self._next(consumer, part, ends[part]):
                        for record in records:
                            if record.offset < ends[part]:
                                yield received(record, topic)

    async def _next(self, consumer: Any, part: Any, end: int) -> Many[Any]:
        """The next records of a partition, none at this end. Raises TimeoutError when none come before it."""
        async with asyncio.timeout(self._patience):
            while await consumer.position(part) < end:
                if found := await consumer.getmany(part, timeout_ms=200, max_records=500):
                    return list(found[part])
        return []


class _Reading:
    """A consumer without a group over all partitions of one topic."""

    def __init__(self, connection: Connection, topic: str, patience: float) -> None:
        self._connection, self._topic, self._patience = connection, topic, patience

    async def __aenter__(self) -> Any:
        count = await partitions_of_topic(self._connection, self._topic, self._patience)
        self._consumer = AIOKafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            request_timeout_ms=int(self._patience * 1000),
            **self._connection.options(),
        )
        await begin(self._connection, self._consumer, self._patience)
        self._consumer.assign([TopicPartition(self._topic, number) for number in range(count)])
        return self._consumer

    async def __aexit__(self, *_: object) -> None:
        await finish(self._consumer)


def _read(record: Received, value: bytes) -> DeadLetter:
    """A dead letter; what somebody else put among them is one itself."""
    try:
        return _letter(value)
    except _UNREADABLE as error:
        return DeadLetter(
            role="",
            reason="not-a-dead-letter",
            detail=str(error),
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            at=record.at,
            key=record.key[:1024] if record.key is not None else None,
            value=value[:1024],
            size=len(value),
        )


def received(record: Any, topic: Topic) -> Received:
    """A record of aiokafka's as ours."""
    return Received(
        topic=topic.name,
        partition=record.partition,
        offset=record.offset,
        at=record.timestamp * 1000,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers or ()),
    )
