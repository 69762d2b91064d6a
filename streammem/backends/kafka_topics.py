"""The topics on a Kafka cluster: made, described, and how far each consumer group has come in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streammem.backends.kafka import (
    PATIENCE,
    AIOKafkaConsumer,
    ConfigResource,
    ConfigResourceType,
    Connection,
    NewTopic,
    TopicPartition,
    administering,
    begin,
    finish,
    kafka_errors,
    partitions_of_topics,
    speaking,
    translated,
)
from streammem.core.topics import TOPICS, Topic, named
from streammem.records import Position

_COMPARED = ("cleanup.policy", "max.message.bytes")
"""Settings whose difference from what is wanted is worth a word: the others are the operator's affair."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one topic: whether it was made now, and where one that was there differs from what is wanted."""

    topic: Topic
    name: str
    created: bool
    partitions: int
    differences: tuple[str, ...] = ()


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it is. `records` counts places from the first kept to the end: fewer where it was compacted."""

    topic: Topic
    name: str
    exists: bool
    partitions: int = 0
    replication: int = 0
    config: dict[str, str] = {}
    end: Position = {}
    records: int = 0


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has come in one topic. A partition that it never committed counts from the first record kept.

    `behind` are messages; `seconds` is the age of the oldest one not yet committed, 0 when there is none.
    """

    group: str
    topic: Topic
    committed: Position
    end: Position
    behind: int
    seconds: float


class KafkaTopics:
    """Administration of the topics under one prefix. Each call connects, asks and closes, within `patience` seconds."""

    def __init__(self, connection: Connection, prefix: str = "", *, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._prefix = prefix
        self._patience = patience

    def name(self, topic: Topic) -> str:
        """The name of a topic on the cluster."""
        return named(self._prefix, topic)

    # ------------------------------------------------------------------------------------------------------- making

    async def create(self, partitions: int, replication: int, topics: Many[Topic] = TOPICS) -> list[Made]:
        """Make the topics that are not there; the others are left alone and compared."""
        async with administering(self._connection, "creating topics", self._patience) as client:
            there = await partitions_of_topics(client)
            missing = [topic for topic in topics if self.name(topic) not in there]
            made = await self._make(client, missing, partitions, replication)
            there = await self._seen(client, made)
            configs = await self._configs(client, [topic for topic in topics if topic not in made])
        return [self._made(topic, topic in made, there[self.name(topic)], partitions, configs) for topic in topics]

    async def _make(self, client: Any, topics: Many[Topic], partitions: int, replication: int) -> list[Topic]:
        """Those that were made now: another process may make the same at the same time."""
        if not topics:
            return []
        wanted = [NewTopic(self.name(t), partitions, replication, topic_configs=t.config) for t in topics]
        answer = await client.create_topics(wanted, timeout_ms=int(self._patience * 1000))
        outcomes = {name: (code, said) for name, code, said in answer.topic_errors}
        for name, (code, said) in outcomes.items():
            error = kafka_errors.for_code(code)
            if error not in {kafka_errors.NoError, kafka_errors.TopicAlreadyExistsError}:
                raise translated(error(said), self._connection, "creating", name)
        return [topic for topic in topics if outcomes[self.name(topic)][0] == 0]

    async def _seen(self, client: Any, made: Many[Topic]) -> dict[str, int]:
        """Wait until the broker tells of what was made, and return the partitions of all topics."""
        while True:
            there = await partitions_of_topics(client)
            if all(there.get(self.name(topic)) for topic in made):
                return there
            await asyncio.sleep(0.05)

    def _made(
        self, topic: Topic, created: bool, partitions: int, wanted: int, configs: Mapping[str, Mapping[str, str]]
    ) -> Made:
        name = self.name(topic)
        differences = () if created else _differences(topic, partitions, wanted, configs.get(name, {}))
        return Made(topic=topic, name=name, created=created, partitions=partitions, differences=differences)

    async def _configs(self, client: Any, topics: Many[Topic]) -> dict[str, dict[str, str]]:
        if not topics:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, self.name(topic)) for topic in topics]
        configs: dict[str, dict[str, str]] = {}
        for answer in await client.describe_configs(asked):
            for code, said, _, name, entries in answer.resources:
                if code:
                    raise translated(kafka_errors.for_code(code)(said), self._connection, "describing", name)
                configs[name] = {entry[0]: entry[1] for entry in entries}
        return configs

    # --------------------------------------------------------------------------------------------------- describing

    async def describe(self, topics: Many[Topic] = TOPICS) -> list[Described]:
        """Every topic as it is on the cluster."""
        async with administering(self._connection, "describing topics", self._patience) as client:
            found = {each["topic"]: each["partitions"] for each in await client.describe_topics()}
            there = [topic for topic in topics if self.name(topic) in found]
            configs = await self._configs(client, there)
        counts = {self.name(topic): len(found[self.name(topic)]) for topic in there}
        starts, ends = await self._bounds(counts)
        return [
            Described(
                topic=topic,
                name=name,
                exists=True,
                partitions=len(found[name]),
                replication=len(found[name][0]["replicas"]),
                config={key: value for key, value in configs[name].items() if key in topic.config},
                end={number: end for number, end in ends[name].items() if end},
                records=sum(ends[name].values()) - sum(starts[name].values()),
            )
            if (name := self.name(topic)) in found
            else Described(topic=topic, name=name, exists=False)
            for topic in topics
        ]

    async def _bounds(self, counts: Mapping[str, int]) -> tuple[dict[str, Position], dict[str, Position]]:
        """Where the partitions of these topics begin and end, as offsets."""
        parts = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        async with self._consumer() as consumer:
            starts, ends = await consumer.beginning_offsets(parts), await consumer.end_offsets(parts)
        return _by_topic(counts, starts), _by_topic(counts, ends)

    @asynccontextmanager
    async def _consumer(self, group_id: str | None = None) -> AsyncIterator[Any]:
        with speaking(self._connection, "asking for offsets"):
            consumer = AIOKafkaConsumer(
                group_id=group_id,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                request_timeout_ms=int(self._patience * 1000),
                **self._connection.options(),
            )
            await begin(self._connection, consumer, self._patience)
            try:
                async with asyncio.timeout(self._patience):
                    yield consumer
            finally:
                await finish(consumer)

    # ------------------------------------------------------------------------------------------------------- groups

    async def committed(self, group: str) -> dict[str, Position]:
        """How far a group has come, by the short names of topics: nothing where it never committed."""
        counts = await self._counts({self.name(topic) for topic in TOPICS})
        return await self._committed(group, counts)

    async def _counts(self, names: set[str]) -> dict[str, int]:
        """The partitions of those of these topics that are there."""
        async with administering(self._connection, "looking for topics", self._patience) as client:
            return {name: count for name, count in (await partitions_of_topics(client)).items() if name in names}

    async def _committed(self, group: str, counts: Mapping[str, int]) -> dict[str, Position]:
        """Asked by a member that never joins: unlike the admin client it waits for a coordinator that is loading."""
        parts = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        async with self._consumer(group_id=group) as consumer:
            offsets = await asyncio.gather(*(consumer.committed(part) for part in parts))
        shorts = {self.name(topic): topic.short for topic in TOPICS}
        positions: dict[str, Position] = {}
        for part, offset in zip(parts, offsets, strict=True):
            if offset:
                positions.setdefault(shorts[part.topic], {})[part.partition] = offset
        return positions

    async def lags(self, groups: Mapping[str, Many[Topic]]) -> list[Lag]:
        """For each group and each of its topics, how far it has come and how far it is behind."""
        counts = await self._counts({self.name(topic) for of in groups.values() for topic in of})
        starts, ends = await self._bounds(counts)
        committed = {group: await self._committed(group, counts) for group in groups}
        asked = [(group, topic, self.name(topic)) for group, of in groups.items() for topic in of]
        return [
            await self._lag(group, topic, committed[group], starts.get(name, {}), ends.get(name, {}))
            for group, topic, name in asked
        ]

    async def _lag(
        self, group: str, topic: Topic, committed: Mapping[str, Position], starts: Position, ends: Position
    ) -> Lag:
        at = committed.get(topic.short, {})
        next_ = {number: max(at.get(number, 0), start) for number, start in starts.items()}
        waiting = {number: place for number, place in next_.items() if place < ends[number]}
        return Lag(
            group=group,
            topic=topic,
            committed=at,
            end={number: end for number, end in ends.items() if end},
            behind=sum(ends[number] - place for number, place in waiting.items()),
            seconds=await self._age(self.name(topic), waiting) if waiting else 0.0,
        )

    async def _age(self, name: str, waiting: Position) -> float:
        """Seconds since the oldest of the records that stand at these offsets."""
        async with self._consumer() as consumer:
            parts = {TopicPartition(name, number): place for number, place in waiting.items()}
            consumer.assign(list(parts))
            for part, place in parts.items():
                consumer.seek(part, place)
            oldest = await _oldest(consumer, parts)
        return max(0.0, time.time() - oldest / 1000)


async def _oldest(consumer: Any, parts: Mapping[Any, int]) -> float:
    """The least timestamp (ms) of the first record of each partition from its offset on."""
    left = dict(await consumer.end_offsets(list(parts)))
    oldest = float("inf")
    while left:
        for part, records in (await consumer.getmany(*left, timeout_ms=100)).items():
            oldest = min(oldest, records[0].timestamp)
            left.pop(part, None)
            consumer.pause(part)
        left = {part: end for part, end in left.items() if await consumer.position(part) < end}
    return oldest


def _differences(topic: Topic, partitions: int, wanted: int, config: Mapping[str, str]) -> tuple[str, ...]:
    """Where a topic that was there already is not as it would be made now."""
    found = [f"{partitions} partitions instead of {wanted}"] if partitions != wanted else []
    pairs = [(setting, config.get(setting, ""), topic.config[setting]) for setting in _COMPARED]
    return (*found, *(f"{setting} {is_} instead of {ought}" for setting, is_, ought in pairs if is_ and is_ != ought))


def _by_topic(counts: Mapping[str, int], offsets: Mapping[Any, int]) -> dict[str, Position]:
    by_topic: dict[str, Position] = {name: {} for name in counts}
    for part, offset in offsets.items():
        by_topic[part.topic][part.partition] = offset
    return by_topic
