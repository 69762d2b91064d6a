"""What only a log on Kafka meets: erasures, holes, large records, brokers that go away, topics that are missing."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from structlog.testing import capture_logs

from streammem.backends.kafka import Connection, KafkaLog
from streammem.backends.kafka_topics import KafkaTopics
from streammem.core import positions
from streammem.core.topics import DIRECTORY, LOG, MESSAGES, TOPICS, Topic, named
from streammem.errors import RejectedError, SettingsError, TransientError
from streammem.records import ChannelRef, MessageEvent
from tests.conftest import missing
from tests.servers import kafka_server

ONE = 1
LOOSE = msgspec.structs.replace(LOG, cleanup="delete")
"""A log that takes what a compacted topic refuses: records without a key, deletion of its start."""


def said(number: int, text: str = "ok", channel: str = "C") -> tuple[str, MessageEvent]:
    return f"key-{number}", MessageEvent(workspace="W", channel=ChannelRef(id=channel), id=str(number), text=text)


async def whole(log: KafkaLog, limit: int = 100, after: dict[int, int] | None = None) -> list[str]:
    keys, position = [], dict(after or {})
    while read := await log.read(position, limit):
        keys += [entry.key for entry in read]
        position = positions.joined(position, positions.after(read))
    return keys


@asynccontextmanager
async def made(bootstrap: str, prefix: str, partitions: int = ONE, topic: Topic = LOG, **options):
    connection = Connection(bootstrap=bootstrap)
    await KafkaTopics(connection, prefix).create(partitions, 1, [topic])
    log = KafkaLog(connection, named(prefix, topic), **options)
    try:
        yield log
    finally:
        await log.stop()


@pytest.fixture
async def log(kafka: str, kafka_prefix: str):
    """A log of one partition."""
    async with made(kafka, kafka_prefix) as opened:
        yield opened


@pytest.fixture
async def raw(kafka: str, kafka_prefix: str):
    """Writes records to that log as they are."""
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        topic = named(kafka_prefix, LOG)
        yield lambda key, value: producer.send_and_wait(topic, value, key and key.encode(), partition=0)


# ----------------------------------------------------------------------------------------------------- what is read


async def test_erasures_are_passed_over(log, raw):
    await log.append([said(1)])
    await raw("key-0", None)
    await log.append([said(2)])
    assert [(e.key, e.position) for e in await log.read({}, 10)] == [("key-1", 1), ("key-2", 3)]
    assert await log.end() == {0: 3}


async def test_a_log_that_ends_with_erasures_comes_to_an_end(log, raw):
    await log.append([said(1)])
    for number in range(5):
        await raw(f"key-{number}", None)
    assert await whole(log, limit=1) == ["key-1"]
    assert await log.read({0: 1}, 10) == []
    await log.append([said(2)])
    assert await whole(log, after={0: 1}) == ["key-2"]


async def test_a_log_of_nothing_but_erasures_is_empty(log, raw):
    for number in range(3):
        await raw(f"key-{number}", None)
    assert await log.read({}, 10) == []
    assert await log.read({0: 1}, 10) == []


async def test_what_was_deleted_at_the_start_is_no_obstacle(kafka, kafka_prefix):
    async with made(kafka, kafka_prefix, topic=LOOSE) as log:
        await log.append([said(n) for n in range(10)])
        assert [e.key for e in await log.read({}, 2)] == ["key-0", "key-1"]
        await deleted(kafka, named(kafka_prefix, LOG), 6)
        assert await whole(log) == [f"key-{n}" for n in range(6, 10)]
        await deleted(kafka, named(kafka_prefix, LOG), 10)
        assert await whole(log, after={0: 3}) == []
        assert await log.end() == {0: 10}


async def deleted(bootstrap: str, topic: str, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=before)})
    finally:
        await admin.close()


async def test_a_compacted_log_is_read_across_its_holes(kafka, kafka_prefix):
    quick = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "200"}
    topic = msgspec.structs.replace(LOG, more={**LOG.more, **quick})
    async with made(kafka, kafka_prefix, topic=topic) as log:
        for _ in range(3):
            await log.append([said(n) for n in range(20)])
            await asyncio.sleep(0.3)
        await log.append([said(20)])
        kept = await holed(kafka, named(kafka_prefix, LOG), 40)
        assert await whole(log, limit=7) == kept
        assert sorted(set(kept)) == sorted(f"key-{n}" for n in range(21))
        for after in (0, 1, 25, 40, 59, 60):
            rest = await whole(log, limit=3, after={0: after})
            assert rest == kept[len(kept) - len(rest) :]
        assert await whole(log, after={0: 60}) == ["key-20"]


async def test_an_erased_entry_is_dropped_where_it_lies(kafka, kafka_prefix):
    quick = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "200"}
    topic = msgspec.structs.replace(LOG, more={**LOG.more, **quick})
    async with made(kafka, kafka_prefix, partitions=3, topic=topic) as log:
        await log.append([said(n, channel=f"C{n}") for n in range(12)])
        read = await log.read({}, 100)
        assert len({entry.partition for entry in read}) > 1
        gone = read[::3]
        await log.erase(gone)
        ends = await log.end()
        assert sum(ends.values()) == len(read) + len(gone)
        left = sorted(entry.key for entry in read if entry not in gone)
        until = time.monotonic() + 60
        while sorted(await whole(log)) != left:  # the next record closes a segment, which is then compacted
            assert time.monotonic() < until, "was not compacted within a minute"
            await asyncio.sleep(0.5)
            await log.erase(gone)
        assert [e.key for e in await log.read(ends, 100)] == []


async def holed(bootstrap: str, topic: str, most: int) -> list[str]:
    """Wait until compaction has left at most so many records, and return their keys."""
    part = TopicPartition(topic, 0)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([part])
            (end,) = (await consumer.end_offsets([part])).values()
            keys = []
            while await consumer.position(part) < end:
                keys += [r.key.decode() for r in (await consumer.getmany(part, timeout_ms=200)).get(part, [])]
        if len(keys) <= most:
            return keys
        await asyncio.sleep(0.5)
    pytest.fail(f"{topic} was not compacted within a minute: {len(keys)} records")


@pytest.mark.parametrize(("value", "why"), [(b"\xff\x00", "not-json"), (b'{"event": "message"}', "invalid-event")])
async def test_what_is_no_entry_is_left_out_and_told_of(log, raw, kafka_prefix, value, why):
    await log.append([said(1)])
    await raw("key-2", value)
    await log.append([said(3)])
    for after, keys in (({}, ["key-1", "key-3"]), ({}, ["key-1", "key-3"]), ({0: 1}, ["key-3"]), ({0: 2}, ["key-3"])):
        with capture_logs() as told:
            assert [e.key for e in await log.read(after, 100)] == keys
        assert [(t["offset"], t["because"].partition(":")[0]) for t in told] == [(1, why)] * (after != {0: 2})


async def test_an_entry_without_a_key_is_left_out(kafka, kafka_prefix, raw):
    async with made(kafka, kafka_prefix, topic=LOOSE) as log:
        await raw(None, b"{}")
        with capture_logs() as told:
            assert await log.read({}, 5) == []
        assert [t["because"] for t in told] == ["it has no key"]


async def test_reading_back_and_forth_gives_the_same(log):
    await log.append([said(n) for n in range(50)])
    for after, limit in ((0, 5), (5, 5), (3, 4), (40, 50), (7, 1), (8, 1), (50, 3), (0, 50)):
        read = await log.read({0: after}, limit)
        assert [e.position for e in read] == list(range(after + 1, after + 1 + len(read)))
        assert bool(read) == (after < 50)


async def test_many_may_append_and_read_at_once(kafka, kafka_prefix):
    async with made(kafka, kafka_prefix, partitions=4) as log:
        entries = [said(n, channel=f"C{n % 9}") for n in range(200)]
        await asyncio.gather(*(log.append(entries[n : n + 10]) for n in range(0, 200, 10)), log.read({}, 5), log.end())
        assert sorted(await whole(log, limit=33)) == sorted(key for key, _ in entries)
        assert sum((await log.end()).values()) == 200


async def test_all_versions_of_a_message_share_a_partition(kafka, kafka_prefix):
    async with made(kafka, kafka_prefix, partitions=5) as log:
        for version in range(10):
            name = {"workspace": "W", "version": str(version), "text": f"text {version}"}
            events = [MessageEvent(channel=ChannelRef(id=f"C{n}"), id="1", **name) for n in range(12)]
            await log.append([(f"{e.channel.id}/{version}", e) for e in events])
        places: dict[str, set[int]] = {}
        for entry in await log.read({}, 200):
            places.setdefault(entry.event.channel.id, set()).add(entry.partition)
    assert len(places) == 12
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) > 1


# ---------------------------------------------------------------------------------------------------- large records


async def test_a_record_of_two_mebibytes_is_refused_before_anything_is_sent(log):
    with pytest.raises(RejectedError, match=r"too-large: key-1 has 2\d{6} bytes, the log takes 1048576"):
        await log.append([said(0), said(1, "x" * 2 * 2**20)])
    assert await log.end() == {}
    await log.append([said(0)])
    assert await whole(log) == ["key-0"]


async def test_a_record_of_two_mebibytes_passes_where_it_may(kafka, kafka_prefix):
    topic = msgspec.structs.replace(LOG, max_bytes=MESSAGES.max_bytes)
    async with made(kafka, kafka_prefix, topic=topic, max_bytes=MESSAGES.max_bytes) as log:
        done = await log.append([said(0), said(1, "x" * 2 * 2**20), said(2)])
        assert done.position == {0: 3}
        assert [len(e.event.text) for e in await log.read({}, 5)] == [2, 2 * 2**20, 2]


async def test_a_record_that_the_topic_does_not_take_is_refused_and_the_next_append_works(kafka, kafka_prefix):
    async with made(kafka, kafka_prefix, max_bytes=MESSAGES.max_bytes) as log:
        await log.append([said(0)])
        with pytest.raises(RejectedError, match=rf"too-large: {named(kafka_prefix, LOG)}.*max.message.bytes"):
            await log.append([said(1, "x" * 2 * 2**20)])
        await log.append([said(2)])
        assert await whole(log) == ["key-0", "key-2"]


# ------------------------------------------------------------------------------------------------- Kafka goes away


async def test_a_broker_that_is_away_is_named_in_bounded_time():
    bootstrap = f"127.0.0.1:{kafka_server.free_port()}"
    log = KafkaLog(Connection(bootstrap=bootstrap), "memory.log.v1", patience=2)
    topics = KafkaTopics(Connection(bootstrap=bootstrap), patience=2)
    calls = (
        *(log.append([said(1)]), log.read({}, 1), log.end(), log.start()),
        *(topics.create(1, 1), topics.describe(), topics.committed("g"), topics.lags({"g": [LOG]})),
    )
    for call in calls:
        with pytest.raises(TransientError, match=bootstrap):
            await asyncio.wait_for(call, 30)
    await log.stop()


async def test_a_broker_that_goes_and_comes_back_loses_nothing(own_kafka, kafka_prefix):
    async with made(own_kafka.bootstrap, kafka_prefix, partitions=2, patience=3) as log:
        entries = [said(n, channel=f"C{n % 5}") for n in range(30)]
        await log.append(entries[:10])
        read = await log.read({}, 4)

        await asyncio.to_thread(own_kafka.kill)
        for call in (lambda: log.append(entries[10:12]), lambda: log.read({}, 20), log.end):
            with pytest.raises(TransientError, match=own_kafka.bootstrap):
                await asyncio.wait_for(call(), 30)

        await asyncio.to_thread(own_kafka.start)
        await again(lambda: log.append(entries[10:20]))
        rest = await whole(log, limit=3, after=positions.after(read))
        assert set(rest) | {e.key for e in read} >= {key for key, _ in entries[:20]}

        await asyncio.to_thread(own_kafka.stop)
        await asyncio.to_thread(own_kafka.start)
        await again(lambda: log.append(entries[20:]))
        assert set(await whole(log)) == {key for key, _ in entries}


async def test_an_erasure_that_the_broker_did_not_take_may_be_repeated(own_kafka, kafka_prefix):
    async with made(own_kafka.bootstrap, kafka_prefix, patience=3) as log:
        await log.append([said(1), said(2)])
        read = await log.read({}, 10)
        await asyncio.to_thread(own_kafka.kill)
        with pytest.raises(TransientError, match="erasing from"):
            await log.erase(read)
        await asyncio.to_thread(own_kafka.start)
        await again(lambda: log.erase(read))
        assert (await log.end())[0] >= 4
        assert len(await log.read({}, 10)) == 2


async def test_an_append_and_a_read_survive_a_short_absence(own_kafka, kafka_prefix):
    async with made(own_kafka.bootstrap, kafka_prefix, patience=60) as log:
        await log.append([said(1)])
        assert await whole(log) == ["key-1"]
        await asyncio.to_thread(own_kafka.stop)
        appending = asyncio.create_task(log.append([said(2)]))
        reading = asyncio.create_task(log.read({}, 5))
        await asyncio.to_thread(own_kafka.start)
        assert (await appending).position == {0: 2}
        assert "key-1" in [e.key for e in await reading]
        assert await whole(log) == ["key-1", "key-2"]


async def test_an_append_that_was_broken_off_does_not_hold_up_the_end(own_kafka, kafka_prefix):
    async with made(own_kafka.bootstrap, kafka_prefix, patience=60) as log:
        await log.append([said(1)])
        await asyncio.to_thread(own_kafka.kill)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(log.append([said(2)]), 0.5)
        await asyncio.wait_for(log.stop(), 30)


async def again(call):
    """Try until it works, as a worker does."""
    until = time.monotonic() + 60
    while True:
        try:
            return await call()
        except TransientError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


# ------------------------------------------------------------------------------------------------- wrong set-up


async def test_a_missing_topic_is_named_with_the_mend(kafka, kafka_prefix):
    log = KafkaLog(Connection(bootstrap=kafka), named(kafka_prefix, LOG))
    for call in (log.append([said(1)]), log.read({}, 1), log.end(), log.start()):
        with pytest.raises(SettingsError, match=rf"{kafka}.*{named(kafka_prefix, LOG)}.*streammem topics create"):
            await call
    await log.stop()


def test_a_password_is_never_shown():
    connection = Connection(bootstrap="b:1", protocol="SASL_SSL", username="ann", password="pst")
    assert "pst" not in f"{connection} {connection!r}"
    assert connection.options()["sasl_plain_password"] == "pst"


def test_a_password_that_is_missing_is_asked_for():
    with pytest.raises(SettingsError, match="SASL_PLAINTEXT to Kafka at b:1 needs a user name and a password"):
        Connection(bootstrap="b:1", protocol="SASL_PLAINTEXT", username="ann").options()


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"certificates.*absent\.pem"):
        Connection(bootstrap="b:1", protocol="SSL", ca_file=tmp_path / "absent.pem").options()


LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
GUARDED = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{LOGIN} username="a" password="b" user_a="b" user_ann="right";',
}


async def test_a_wrong_password_is_a_fault_of_the_set_up(tmp_path: Path):
    try:
        server = kafka_server.serve(tmp_path / "kafka", restartable=True, more=GUARDED)
    except kafka_server.Unavailable as error:
        missing(error)
    with server:
        right = Connection(bootstrap=server.bootstrap, protocol="SASL_PLAINTEXT", username="ann", password="right")
        await KafkaTopics(right).create(1, 1, [LOG])
        log = KafkaLog(right, LOG.name)
        await log.append([said(1)])
        assert await whole(log) == ["key-1"]
        await log.stop()

        wrong = msgspec.structs.replace(right, password="wr-ong")
        for call in (KafkaLog(wrong, LOG.name).append([said(1)]), KafkaTopics(wrong).describe()):
            with pytest.raises(SettingsError, match="does not let ann in") as caught:
                await call
            assert "wr-ong" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- topics


async def test_topics_are_created_once_and_left_alone_then(kafka, kafka_prefix):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    first = await topics.create(3, 1)
    assert [(m.topic, m.name, m.created, m.partitions) for m in first] == [
        (topic, kafka_prefix + topic.name, True, 3) for topic in TOPICS
    ]
    second = await topics.create(3, 1)
    assert [(m.created, m.partitions, m.differences) for m in second] == [(False, 3, ())] * len(TOPICS)


async def test_a_topic_that_differs_from_what_is_wanted_is_reported(kafka, kafka_prefix):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    await topics.create(2, 1, [msgspec.structs.replace(LOG, cleanup="delete", max_bytes=5000)])
    await topics.create(2, 1, [msgspec.structs.replace(MESSAGES, retention=1000)])
    log, messages = await topics.create(4, 1, [LOG, MESSAGES])
    assert log.differences == (
        "2 partitions instead of 4",
        "cleanup.policy delete instead of compact",
        f"max.message.bytes 5000 instead of {LOG.max_bytes}",
    )
    assert messages.differences == ("2 partitions instead of 4",)
    assert (log.created, log.partitions) == (False, 2)


async def test_two_may_create_the_topics_at_once(kafka, kafka_prefix):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    both = await asyncio.gather(topics.create(2, 1), topics.create(2, 1))
    assert all(sum(made.created for made in pair) <= 1 for pair in zip(*both, strict=True))
    assert all(described.partitions == 2 for described in await topics.describe())


async def test_more_copies_than_brokers_are_refused(kafka, kafka_prefix):
    with pytest.raises(SettingsError, match=rf"{kafka} refuses creating {kafka_prefix}.*replication"):
        await KafkaTopics(Connection(bootstrap=kafka), kafka_prefix).create(1, 30)


async def test_topics_are_described_as_they_are(kafka, kafka_prefix, log):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    await log.append([said(n) for n in range(4)])
    described = {each.topic.short: each for each in await topics.describe()}
    assert [short for short, each in described.items() if each.exists] == ["log"]
    found = described["log"]
    assert (found.partitions, found.replication, found.end, found.records) == (1, 1, {0: 4}, 4)
    assert found.config == LOG.config


@asynccontextmanager
async def taking_part(bootstrap: str, group: str, topic: str):
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


async def test_lags_count_what_a_group_has_not_committed(kafka, kafka_prefix):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    async with made(kafka, kafka_prefix, partitions=2) as log:
        group, name = f"{kafka_prefix}structure", named(kafka_prefix, LOG)
        assert await topics.committed(group) == {}
        (empty,) = await topics.lags({group: [LOG]})
        assert (empty.behind, empty.seconds, empty.end) == (0, 0.0, {})

        end = (await log.append([said(n, channel=f"C{n % 9}") for n in range(40)])).position
        (never,) = await topics.lags({group: [LOG]})
        assert (never.behind, never.committed, never.end) == (40, {}, end)
        assert 0 < never.seconds < 600

        async with taking_part(kafka, group, name) as consumer:
            await consumer.getone()
            await consumer.commit({TopicPartition(name, 0): 3, TopicPartition(name, 1): end[1]})
        (some,) = await topics.lags({group: [LOG]})
        assert await topics.committed(group) == {"log": {0: 3, 1: end[1]}}
        assert (some.behind, some.committed) == (end[0] - 3, {0: 3, 1: end[1]})
        assert some.seconds > 0

        async with taking_part(kafka, group, name) as consumer:
            await consumer.getone()
            await consumer.commit({TopicPartition(name, 0): end[0]})
        (none,) = await topics.lags({group: [LOG]})
        assert (none.behind, none.seconds) == (0, 0.0)


async def test_the_lag_in_seconds_is_that_of_the_oldest_message_not_committed(kafka, kafka_prefix):
    topics = KafkaTopics(Connection(bootstrap=kafka), kafka_prefix)
    await topics.create(2, 1, [MESSAGES, DIRECTORY])
    name = named(kafka_prefix, MESSAGES)
    now = int(time.time() * 1000)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for partition, age in ((0, 500), (0, 900), (1, 300), (1, 40)):
            await producer.send_and_wait(name, b"{}", partition=partition, timestamp_ms=now - age * 1000)
    inputs, directory = await topics.lags({f"{kafka_prefix}ingest": [MESSAGES, DIRECTORY]})
    assert inputs.behind == 4
    assert 500 <= inputs.seconds < 800
    assert (directory.behind, directory.seconds) == (0, 0.0)


async def test_a_topic_that_is_not_there_has_no_lag(kafka, kafka_prefix):
    (lag,) = await KafkaTopics(Connection(bootstrap=kafka), kafka_prefix).lags({f"{kafka_prefix}g": [LOG]})
    assert (lag.behind, lag.seconds, lag.end) == (0, 0.0, {})
