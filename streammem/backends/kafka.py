"""The log on Kafka: one compacted topic, written with acks=all, read without a consumer group.

Kafka cannot know which keys it holds: a repeated key is stored again, and readers take it as the same fact.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import structlog

from streammem.core.events import decode, encode
from streammem.core.topics import partition_of
from streammem.errors import (
    MissingExtraError,
    RejectedError,
    SettingsError,
    TransientError,
)
from streammem.ports import Appended, LogReader, LogWriter
from streammem.records import Event, LogEntry, Position

try:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
    from aiokafka import errors as kafka_errors
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.conn import create_conn
except ModuleNotFoundError as error:
    raise MissingExtraError("aiokafka", "stream") from error

__all__ = [
    "PATIENCE",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConfigResource",
    "ConfigResourceType",
    "Connection",
    "ConsumerRebalanceListener",
    "KafkaLog",
    "KafkaLogReader",
    "KafkaLogWriter",
    "NewTopic",
    "TopicPartition",
    "administering",
    "begin",
    "finish",
    "forsake",
    "kafka_errors",
    "partitions_of_topic",
    "partitions_of_topics",
    "speaking",
    "translated",
]

log = structlog.get_logger()

PATIENCE = 10.0
"""Seconds after which a server that does not answer counts as away."""

BATCH_BYTES = 256 * 1024
"""Records are sent in batches of this size: well under what a topic takes by default, and few for one append."""

SEARCHED = 5000
"""Records looked at in one go when the log is searched."""

RECORD_HEAD = 128
"""More than Kafka adds to the key and value of a record that is alone in its batch."""

Record = tuple[bytes, bytes | None]
"""Key and value. A null value erases what was stored under the key."""

_DENIED = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.AuthenticationMethodNotSupported,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.SecurityDisabled,
)
_FORBIDDEN = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
)
_WRONG = (
    kafka_errors.InvalidTopicError,
    kafka_errors.InvalidPartitionsError,
    kafka_errors.InvalidReplicationFactorError,
    kafka_errors.InvalidConfigurationError,
    kafka_errors.PolicyViolationError,
    kafka_errors.UnsupportedVersionError,
    kafka_errors.IncompatibleBrokerVersion,
)
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a Kafka cluster and who we are there."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = None
    ca_file: Path | None = None

    def __repr__(self) -> str:
        who = f"{self.username}@" if self.username else ""
        return f"Connection({self.protocol}://{who}{self.bootstrap})"

    @property
    def authenticates(self) -> bool:
        """Whether a user name and a password are sent."""
        return self.protocol.startswith("SASL")

    def options(self) -> dict[str, Any]:
        """What every client of aiokafka is given. Raises SettingsError when something is missing."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl_context"] = self._trusted()
        if self.authenticates:
            if not (self.username and self.password):
                raise SettingsError(f"{self.protocol} to Kafka at {self.bootstrap} needs a user name and a password")
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self.password
        return options

    def _trusted(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SettingsError(f"certificates of Kafka cannot be read: {self.ca_file} ({error})") from None


# ---------------------------------------------------------------------------------------------------- what goes wrong


@contextmanager
def speaking(connection: Connection, doing: str, topic: str = "") -> Iterator[None]:
    """Turn what aiokafka raises into our errors: away or busy, refused, too large (errors.py)."""
    try:
        yield
    except (kafka_errors.KafkaError, OSError, TimeoutError) as error:
        raise translated(error, connection, doing, topic) from error


def translated(error: Exception, connection: Connection, doing: str, topic: str = "") -> Exception:
    """Our error for one of aiokafka's."""
    where = f"Kafka at {connection.bootstrap}"
    if isinstance(error, _TOO_LARGE):
        return RejectedError("too-large", f"{topic} takes no record of this size (max.message.bytes)")
    if isinstance(error, _DENIED):
        return SettingsError(f"{where} does not let {connection.username or 'nobody'} in: check the password")
    if isinstance(error, _FORBIDDEN):
        return SettingsError(f"{where} does not allow {doing} {topic}: see the ACLs in deploy/topics.yaml")
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
        return absent(connection, topic)
    if isinstance(error, _WRONG):
        return SettingsError(f"{where} refuses {doing} {topic}: {_said(error)}")
    return TransientError(f"{where} did not answer: {doing} {topic} ({_said(error)})")


def absent(connection: Connection, topic: str) -> SettingsError:
    """The error for a topic that is not there."""
    return SettingsError(
        f"Kafka at {connection.bootstrap} has no topic {topic}, or does not show it: run streammem topics create"
    )


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


async def _explain(connection: Connection) -> None:
    """Raise what a first connection says: aiokafka's own start hides why it failed."""
    options = connection.options()
    host, _, port = options.pop("bootstrap_servers").partition(",")[0].rpartition(":")
    reached = await create_conn(host, int(port), request_timeout_ms=int(PATIENCE * 1000), **options)
    reached.close()


async def begin(connection: Connection, client: Any, patience: float) -> None:
    """Start a client of aiokafka; one that does not start is closed."""
    try:
        async with asyncio.timeout(patience):
            await client.start()
        await asyncio.sleep(0)  # a consumer whose tasks have not begun cannot be stopped
    except BaseException as error:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
        if isinstance(error, kafka_errors.KafkaConnectionError) and connection.authenticates:
            await _explain(connection)
        raise


async def finish(consumer: Any) -> None:
    """Stop a consumer of aiokafka, also while its broker is away: its own stop then fails halfway."""
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        pending = list(consumer._fetcher._pending_tasks) if consumer._fetcher else []  # noqa: SLF001
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await consumer._client.close()  # noqa: SLF001


async def forsake(producer: Any) -> None:
    """End a producer without waiting for what it could not deliver, as its own stop would: that may take for ever."""
    if producer._closed:  # noqa: SLF001 (aiokafka has no public way to drop undelivered batches)
        return
    producer._closed = True  # noqa: SLF001
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(1):
            await producer._sender.close()  # noqa: SLF001
    await producer.client.close()


@asynccontextmanager
async def administering(connection: Connection, doing: str, patience: float = PATIENCE) -> AsyncIterator[Any]:
    """An admin client for a few requests, which all together may take `patience` seconds."""
    with speaking(connection, doing):
        client = AIOKafkaAdminClient(request_timeout_ms=int(patience * 1000), **connection.options())
        await begin(connection, client, patience)
        try:
            async with asyncio.timeout(patience):
                yield client
        finally:
            await client.close()


async def partitions_of_topics(client: Any) -> dict[str, int]:
    """How many partitions every topic has. Asks for all of them: to ask for one by name may create it."""
    return {each["topic"]: len(each["partitions"]) for each in await client.describe_topics()}


async def partitions_of_topic(connection: Connection, topic: str, patience: float = PATIENCE) -> int:
    """How many partitions a topic has. Raises SettingsError when it is not there.

    A broker may hear of a new topic a moment later than who created it.
    """
    async with administering(connection, f"looking for {topic}", patience) as client:
        for pause in (0.1, 0.3, 0.6, 0.0):
            found = (await partitions_of_topics(client)).get(topic)
            if found:
                return found
            await asyncio.sleep(pause)
    raise absent(connection, topic)


# ------------------------------------------------------------------------------------------------------------ writing


class KafkaLogWriter(LogWriter):
    """Appends to the log. An append that fails may still have been stored in part: repeat it.

    Idempotent producers of aiokafka try for ever, so an append has a time-out of its own (`patience`, seconds); the
    producer is then given up with what it still holds, and the next append begins with a new one.
    """

    def __init__(
        self, connection: Connection, topic: str, *, max_bytes: int = 2**20, patience: float = PATIENCE
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._max_bytes = max_bytes
        self._patience = patience
        self._lock = asyncio.Lock()
        self._producer: Any = None
        self._partitions = 0

    async def append(self, events: Many[tuple[str, Event]]) -> Appended:
        if not events:
            return Appended(accepted=0, duplicates=0, position={})
        new = dict(reversed(events))
        producer = await self._started()
        records = self._records({key: new[key] for key, _ in events})
        position = await self._deliver(producer, records, "appending to")
        return Appended(accepted=len(new), duplicates=len(events) - len(new), position=position)

    async def erase(self, entries: Many[LogEntry]) -> None:
        """A null value under each key, in the partition where the entry lies."""
        if not entries:
            return
        records: dict[int, list[Record]] = {}
        for entry in entries:
            records.setdefault(entry.partition, []).append((_bytes(entry.key), None))
        await self._deliver(await self._started(), records, "erasing from")

    async def _deliver(self, producer: Any, records: Mapping[int, Many[Record]], doing: str) -> Position:
        """Send all of it and say where it ends. A producer that fails is given up."""
        try:
            with speaking(self._connection, doing, self._topic):
                async with asyncio.timeout(self._patience):
                    ends = await _finished(self._send(producer, partition, of) for partition, of in records.items())
        except Exception:
            await self._give_up(producer)
            raise
        return dict(zip(records, ends, strict=True))

    def _records(self, events: Mapping[str, Event]) -> dict[int, list[Record]]:
        """Keys and values by partition. Raises RejectedError for one that is too large, before anything is sent."""
        records: dict[int, list[Record]] = {}
        for key, event in events.items():
            name, value = _bytes(key), encode(event)
            if len(name) + len(value) + RECORD_HEAD > self._max_bytes:
                raise RejectedError("too-large", f"{key} has {len(value)} bytes, the log takes {self._max_bytes}")
            records.setdefault(partition_of(event, self._partitions), []).append((name, value))
        return records

    async def _send(self, producer: Any, partition: int, records: Many[Record]) -> int:
        sent = []
        last = 0
        for batch in _batches(producer, records):
            future = await producer.send_batch(batch, self._topic, partition=partition)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # else it warns when given up
            sent.append(future)
            last = batch.record_count()
        offset = (await _finished(sent))[-1].offset
        if offset < 0:
            raise TransientError(f"Kafka at {self._connection.bootstrap} does not say where {self._topic} ends")
        return int(offset) + last

    async def _started(self) -> Any:
        async with self._lock:
            if self._producer is None:
                self._partitions = await partitions_of_topic(self._connection, self._topic, self._patience)
                self._producer = await self._new()
            return self._producer

    async def _new(self) -> Any:
        with speaking(self._connection, "appending to", self._topic):
            producer = AIOKafkaProducer(
                acks="all",
                enable_idempotence=True,
                linger_ms=0,  # batches come whole
                max_batch_size=min(BATCH_BYTES, self._max_bytes),
                max_request_size=self._max_bytes,
                request_timeout_ms=int(self._patience * 1000),
                **self._connection.options(),
            )
            await begin(self._connection, producer, self._patience)
            return producer

    async def _give_up(self, producer: Any) -> None:
        """End a producer without waiting for what it could not deliver, as its own stop would."""
        if self._producer is producer:
            self._producer = None
        await forsake(producer)

    async def stop(self) -> None:
        """Close the connection; what was appended is durable already."""
        if self._producer is not None:
            await self._give_up(self._producer)


async def _finished(sending: Iterable[Awaitable[Any]]) -> list[Any]:
    """Wait for all, then raise what failed first or return all outcomes."""
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _batches(producer: Any, records: Many[Record]) -> Iterator[Any]:
    """Records in closed batches, in order; a record larger than a batch has one for itself."""
    now = int(time.time() * 1000)
    batch = producer.create_batch()
    for key, value in records:
        if batch.append(key=key, value=value, timestamp=now) is None:
            yield batch
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=now)
    batch.close()
    yield batch


# ------------------------------------------------------------------------------------------------------------ reading


class KafkaLogReader(LogReader):
    """Reads the log without a group. Erasures (null values) and holes of compaction are passed over.

    It stays where the last read ended, so that reading on costs no seek. New partitions are seen after `stop`.
    """

    def __init__(self, connection: Connection, topic: str, *, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._topic = topic
        self._patience = patience
        self._lock = asyncio.Lock()
        self._consumer: Any = None
        self._parts: list[Any] = []
        self._stands: dict[int, tuple[int, int]] = {}
        """For each partition a span [from, to] of positions; reading after any of them goes on from here."""

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        if limit <= 0:
            return []
        async with self._using("reading") as consumer:
            return await self._read(consumer, after, limit)

    async def end(self) -> Position:
        async with self._using("reading") as consumer:
            ends = await consumer.end_offsets(self._parts)
        return {part.partition: end for part, end in ends.items() if end > 0}

    async def erased(self, keys: Iterable[str]) -> set[str]:
        names = {_bytes(key): key for key in keys}
        stands: dict[bytes, bool] = {}
        if names:
            async with self._using("searching") as consumer:
                consumer.resume(*consumer.paused())
                ends = await consumer.end_offsets(self._parts)
                self._seek(consumer, {}, ends)
                while records := await self._next(consumer, ends, SEARCHED):
                    stands.update((r.key, r.value is not None) for of in records.values() for r in of if r.key in names)
                consumer.pause(*self._parts)
                self._stands.clear()
        return {names[key] for key, standing in stands.items() if not standing}

    async def _read(self, consumer: Any, after: Position, limit: int) -> list[LogEntry]:
        consumer.resume(*consumer.paused())
        if not self._stands_at(after):
            self._seek(consumer, after, await consumer.end_offsets(self._parts))
        elif entries := self._taken(await consumer.getmany(timeout_ms=0, max_records=limit), after):
            return entries
        ends = await consumer.end_offsets(self._parts)
        while records := await self._next(consumer, ends, limit):
            if entries := self._taken(records, after):
                return entries
        consumer.pause(*self._parts)  # or it would go on asking
        return []

    async def _next(self, consumer: Any, ends: Mapping[Any, int], limit: int) -> Mapping[Any, Many[Any]]:
        """The next records, or none when every partition is past its end."""
        async with asyncio.timeout(self._patience):
            while await _behind(consumer, ends):
                if records := await consumer.getmany(timeout_ms=50, max_records=limit):
                    return dict(records)
        return {}

    def _stands_at(self, after: Position) -> bool:
        spans = ((after.get(part.partition, 0), self._stands.get(part.partition)) for part in self._parts)
        return all(span is not None and span[0] <= asked <= span[1] for asked, span in spans)

    def _seek(self, consumer: Any, after: Position, ends: Mapping[Any, int]) -> None:
        """Go to a position; one beyond the end waits at the end."""
        for part in self._parts:
            start = min(after.get(part.partition, 0), ends[part])
            consumer.seek(part, start)
            self._stands[part.partition] = (start, start)

    def _taken(self, records: Mapping[Any, Many[Any]], after: Position) -> list[LogEntry]:
        """The entries among these records, which are now behind us."""
        entries: list[LogEntry] = []
        for part, of in records.items():
            before = len(entries)
            _decode(of, after.get(part.partition, 0), entries)
            passed = of[-1].offset + 1
            first = entries[-1].position if len(entries) > before else self._stands[part.partition][0]
            self._stands[part.partition] = (first, passed)
        return entries

    @asynccontextmanager
    async def _using(self, doing: str) -> AsyncIterator[Any]:
        """The consumer for one call. After a fault the next call begins with a new one: this one may stand anywhere."""
        async with self._lock:
            try:
                with speaking(self._connection, doing, self._topic):
                    yield await self._started()
            except (TransientError, SettingsError):
                await self._drop()
                raise

    async def _started(self) -> Any:
        if self._consumer is None:
            count = await partitions_of_topic(self._connection, self._topic, self._patience)
            consumer = self._new()
            await begin(self._connection, consumer, self._patience)
            self._consumer = consumer
            self._parts = [TopicPartition(self._topic, number) for number in range(count)]
            consumer.assign(self._parts)
            consumer.pause(*self._parts)
        return self._consumer

    def _new(self) -> Any:
        return AIOKafkaConsumer(
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,  # a question for the end waits behind a fetch on the same connection
            fetch_max_bytes=32 * 2**20,
            max_partition_fetch_bytes=4 * 2**20,
            request_timeout_ms=int(self._patience * 1000),
            **self._connection.options(),
        )

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._stands.clear()
        if consumer is not None:
            await finish(consumer)

    async def stop(self) -> None:
        """Close the connection. The next read opens it again."""
        async with self._lock:
            await self._drop()


async def _behind(consumer: Any, ends: Mapping[Any, int]) -> bool:
    """Whether some partition has records between where the consumer stands and these ends."""
    for part, end in ends.items():
        if await consumer.position(part) < end:
            return True
    return False


def _decode(records: Many[Any], floor: int, entries: list[LogEntry]) -> None:
    """Add the entries that lie after a position.

    What is no entry was not written by `ingest`: it is left out and told of, as the roles do, so that a memory can
    still be verified and rebuilt.
    """
    for record in records:
        if record.value is None or record.offset < floor:
            continue
        try:
            key, event = record.key.decode("utf-8", "surrogatepass"), decode(record.value)
        except (RejectedError, UnicodeDecodeError, AttributeError) as error:
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("left out of the log", because="it has no key" if record.key is None else _said(error), **where)
            continue
        entries.append(LogEntry(position=record.offset + 1, key=key, event=event, partition=record.partition))


class KafkaLog(LogWriter, LogReader):
    """The log of one topic, written and read. Connects when first used."""

    def __init__(
        self, connection: Connection, topic: str, *, max_bytes: int = 2**20, patience: float = PATIENCE
    ) -> None:
        self._connection, self._topic, self._patience = connection, topic, patience
        self._writer = KafkaLogWriter(connection, topic, max_bytes=max_bytes, patience=patience)
        self._reader = KafkaLogReader(connection, topic, patience=patience)

    async def append(self, events: Many[tuple[str, Event]]) -> Appended:
        return await self._writer.append(events)

    async def erase(self, entries: Many[LogEntry]) -> None:
        await self._writer.erase(entries)

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        return await self._reader.read(after, limit)

    async def end(self) -> Position:
        return await self._reader.end()

    async def erased(self, keys: Iterable[str]) -> set[str]:
        return await self._reader.erased(keys)

    async def start(self) -> None:
        """Make sure that the topic is there."""
        await partitions_of_topic(self._connection, self._topic, self._patience)

    async def stop(self) -> None:
        """Close all connections."""
        await self._writer.stop()
        await self._reader.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
