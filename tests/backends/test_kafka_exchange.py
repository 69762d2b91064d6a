"""What is sent to the memory over a real Kafka, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from streammem.backends.kafka import AIOKafkaConsumer, AIOKafkaProducer, Connection, TopicPartition
from streammem.backends.kafka_exchange import CORRELATION, KafkaExchange
from streammem.backends.kafka_topics import KafkaTopics
from streammem.core import events
from streammem.core.topics import ANSWERS, DEAD_LETTERS, DIRECTORY, LOG, MESSAGES, QUERIES, RAW_SLACK, Topic, named
from streammem.errors import MemoryFormatError, QueryError, RejectedError, SettingsError, TransientError
from streammem.records import Answer, DeadLetter, Event, Query, Received
from tests.servers.kafka_server import KafkaServer, free_port
from tests.stories import private, public, said

MADE = (MESSAGES, DIRECTORY, DEAD_LETTERS, QUERIES, ANSWERS)


@pytest.fixture
async def prefix(kafka: str, kafka_prefix: str) -> str:
    await KafkaTopics(Connection(bootstrap=kafka), kafka_prefix).create(2, 1, MADE)
    return kafka_prefix


@asynccontextmanager
async def exchanging(bootstrap: str, prefix: str, **rest: Any) -> AsyncIterator[KafkaExchange]:
    exchange = KafkaExchange(Connection(bootstrap=bootstrap), prefix, **rest)
    try:
        yield exchange
    finally:
        await exchange.stop()


@pytest.fixture
async def exchange(kafka: str, prefix: str) -> AsyncIterator[KafkaExchange]:
    async with exchanging(kafka, prefix) as open_:
        yield open_


@asynccontextmanager
async def client(kind: Any, bootstrap: str, **rest: Any) -> AsyncIterator[Any]:
    made = kind(bootstrap_servers=bootstrap, **rest)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def put(bootstrap: str, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    async with client(AIOKafkaProducer, bootstrap) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def taken(bootstrap: str, topic: str, count: int) -> list[Any]:
    """The first records of a topic."""
    found: list[Any] = []
    async with client(AIOKafkaConsumer, bootstrap, group_id=None) as consumer:
        parts = [TopicPartition(topic, n) for n in range(2)]
        consumer.assign(parts)
        await consumer.seek_to_beginning()
        async with asyncio.timeout(20):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(records)
    return found


def answer(question: str = "q", error: str | None = None) -> Answer:
    return Answer(
        question=question,
        asker=None,
        as_of=None,
        evidence=(),
        headers=(),
        tokens=0,
        abstained=True,
        timings_ms={},
        error=error,
    )


@asynccontextmanager
async def answering(
    bootstrap: str, prefix: str, *replies: bytes | None, key: bytes | None = None
) -> AsyncIterator[None]:
    """Answers every question with these values, one after the other."""

    async def work(consumer: Any, producer: Any) -> None:
        async for record in consumer:
            for reply in replies:
                await producer.send_and_wait(named(prefix, ANSWERS), reply, key=key or record.key)

    async with (
        client(AIOKafkaConsumer, bootstrap, group_id=None, auto_offset_reset="earliest") as consumer,
        client(AIOKafkaProducer, bootstrap) as out,
    ):
        consumer.assign([TopicPartition(named(prefix, QUERIES), n) for n in range(2)])
        task = asyncio.create_task(work(consumer, out))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# ------------------------------------------------------------------------------------------------------------ events


async def produced(exchange: KafkaExchange, told: Iterable[Event], **rest: Any) -> list[Any]:
    return [done async for done in exchange.produce(told, **rest)]


async def test_events_go_to_their_topics_under_their_keys_and_the_position_covers_them(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    told: list[Event] = [public(), *private("p", "ana"), *[said(str(n), f"number {n}") for n in range(7)]]
    steps = await produced(exchange, told, at_once=4)
    assert [done.count for done in steps] == sorted(done.count for done in steps)
    assert steps[-1].count == 10
    topics = {short: sum(place.values()) for short, place in steps[-1].awaited.inputs.items()}
    assert topics == {"messages": 7, "directory": 3}
    found = await taken(kafka, named(prefix, MESSAGES), 7)
    assert {record.key for record in found} == {b"w:c"}
    assert [events.decode(record.value) for record in found] == told[3:]
    assert (await exchange.produce([]).__anext__()).count == 0


async def test_an_id_that_is_no_unicode_is_sent_all_the_same(exchange: KafkaExchange) -> None:
    event = said("1", "hello", channel="c")
    strange = msgspec.structs.replace(event, channel=msgspec.structs.replace(event.channel, id="é☃"))
    assert (await produced(exchange, [strange]))[-1].count == 1


async def test_producing_to_topics_that_are_not_there_names_the_mend_and_makes_none(
    kafka: str, kafka_prefix: str
) -> None:
    async with exchanging(kafka, kafka_prefix) as exchange:
        with pytest.raises(SettingsError, match="run streammem topics create"):
            await produced(exchange, [said("1", "a")])
    assert not any(d.exists for d in await KafkaTopics(Connection(bootstrap=kafka), kafka_prefix).describe())


async def test_a_record_that_the_topic_does_not_take_is_refused_and_the_next_is_sent(
    exchange: KafkaExchange, prefix: str
) -> None:
    with pytest.raises(RejectedError, match="too-large"):
        await exchange.send(ANSWERS, b"k", b"x" * (2 * 2**20))
    with pytest.raises(RejectedError, match="too-large"):
        await exchange.send(ANSWERS, b"k", b"x" * (8 * 2**20))
    assert (await exchange.send(ANSWERS, b"k", b"x"))[1] == 1


async def test_a_broker_that_is_away_is_told_in_one_line_within_the_patience(kafka_prefix: str) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    async with exchanging(bootstrap, kafka_prefix, patience=1.0) as exchange:
        for work in (
            produced(exchange, [said("1", "a")]),
            exchange.ask(Query(text="q"), 2.0),
            exchange.bury([letter()]),
        ):
            with pytest.raises(TransientError, match=bootstrap) as caught:
                await work
            assert "\n" not in str(caught.value)


async def test_a_broker_that_dies_under_way_ends_what_is_sent_and_read_and_the_same_exchange_goes_on_later(
    own_kafka: KafkaServer, kafka_prefix: str
) -> None:
    if not own_kafka.restartable:
        pytest.skip("the named broker is not ours to stop")
    connection = Connection(bootstrap=own_kafka.bootstrap)
    await KafkaTopics(connection, kafka_prefix).create(2, 1, MADE)
    async with exchanging(own_kafka.bootstrap, kafka_prefix, patience=2.0) as exchange:
        detail = "x" * 2000  # more in each partition than one fetch brings
        letters = [msgspec.structs.replace(letter(n), key=str(n).encode(), detail=detail) for n in range(2000)]
        for start in range(0, len(letters), 100):
            await exchange.bury(letters[start : start + 100])

        def told() -> Iterable[Event]:
            yield said("1", "a")
            own_kafka.kill()
            yield said("2", "b")

        assert len(await _rest(exchange.letters())) == len(letters)
        for work in (produced(exchange, told()), exchange.bury([letter()]), _rest(exchange.letters())):
            with pytest.raises(TransientError):
                await asyncio.wait_for(work, 30)
        own_kafka.start()
        for attempt in range(20):
            try:
                await exchange.bury([letter(99)])
                break
            except TransientError:
                assert attempt < 19
        assert 99 in {found.offset for found in await _rest(exchange.letters())}


async def _rest(reading: AsyncIterator[tuple[str, DeadLetter]]) -> list[DeadLetter]:
    return [found async for _, found in reading]


# ------------------------------------------------------------------------------------------------------------ answers


async def test_a_question_has_its_answer_and_a_second_one_of_the_same_is_passed_over(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    raw = msgspec.json.encode(answer("q"))
    async with answering(kafka, prefix, raw, raw):
        found = await asyncio.gather(*(exchange.ask(Query(text="q"), 20.0) for _ in range(5)))
        assert found == [answer("q")] * 5
        assert await exchange.ask(Query(text="q"), 20.0) == answer("q")


async def test_an_answer_that_says_why_there_is_none_is_a_query_error(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    async with answering(kafka, prefix, msgspec.json.encode(answer("q", "nobody is called so"))):
        with pytest.raises(QueryError, match="nobody is called so"):
            await exchange.ask(Query(text="q"), 20.0)


@pytest.mark.parametrize("value", [b"junk", b"{}", b"\xff", b'{"question":7}'])
async def test_an_answer_that_cannot_be_read_is_told_in_one_line(
    exchange: KafkaExchange, kafka: str, prefix: str, value: bytes
) -> None:
    async with answering(kafka, prefix, value):
        with pytest.raises(MemoryFormatError, match="another version"):
            await exchange.ask(Query(text="q"), 20.0)


async def test_answers_of_others_and_null_values_are_passed_over(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    await put(kafka, named(prefix, ANSWERS), (None, b"junk"), (b"k", None), (b"other", b"x"))
    async with answering(kafka, prefix, None, msgspec.json.encode(answer("q"))):
        assert (await exchange.ask(Query(text="q"), 20.0)).question == "q"


async def test_no_answer_in_time_names_what_to_look_at(exchange: KafkaExchange) -> None:
    with pytest.raises(TransientError, match="is a query worker running"):
        await exchange.ask(Query(text="q"), 0.2)


async def test_asking_where_there_are_no_topics_names_the_mend(kafka: str, kafka_prefix: str) -> None:
    async with exchanging(kafka, kafka_prefix) as exchange:
        with pytest.raises(SettingsError, match="run streammem topics create"):
            await exchange.ask(Query(text="q"), 5.0)


@pytest.mark.parametrize(
    ("headers", "correlation"),
    [((), b"k"), (((CORRELATION, b"7"),), b"7"), (((CORRELATION, None),), b"k"), ((("other", b"1"),), b"k")],
)
async def test_an_answer_carries_the_key_and_the_correlation_id_of_its_question(
    exchange: KafkaExchange, kafka: str, prefix: str, headers: Any, correlation: bytes
) -> None:
    await exchange.reply(b"k", headers, answer("q"))
    (record,) = await taken(kafka, named(prefix, ANSWERS), 1)
    assert (record.key, dict(record.headers)[CORRELATION]) == (b"k", correlation)
    assert msgspec.json.decode(record.value, type=Answer) == answer("q")


async def test_a_question_without_a_key_is_answered_without_one(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    await exchange.reply(None, (), answer("q"))
    (record,) = await taken(kafka, named(prefix, ANSWERS), 1)
    assert record.key is None


# ------------------------------------------------------------------------------------------------------- dead letters


def letter(offset: int = 0, topic: Topic = MESSAGES, partition: int = 0) -> DeadLetter:
    return DeadLetter(
        role="ingest",
        reason="not-json",
        topic=topic.name,
        partition=partition,
        offset=offset,
        at=5,
        key=b"\xff",
        value=b"\x00",
    )


async def test_dead_letters_are_read_with_their_names(exchange: KafkaExchange) -> None:
    await exchange.bury([letter(n) for n in range(5)])
    await exchange.bury([])
    found = {name: each async for name, each in exchange.letters()}
    assert sorted(each.offset for each in found.values()) == list(range(5))
    assert all(name.count(":") == 1 for name in found)


async def test_what_somebody_else_put_among_the_dead_letters_is_shown_as_what_it_is(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    await put(kafka, named(prefix, DEAD_LETTERS), (b"k", b"junk" * 1000), (None, b"\xff"), (b"k", None), (b"k", b"{}"))
    found = [each async for _, each in exchange.letters()]
    assert [(each.reason, each.offset) for each in found] == [("not-a-dead-letter", n) for n in (0, 1, 3)]
    assert (len(found[0].value or b""), found[0].size) == (1024, 4000)


async def test_the_original_of_a_dead_letter_is_read_while_its_topic_keeps_it(
    exchange: KafkaExchange, kafka: str, prefix: str
) -> None:
    await put(kafka, named(prefix, MESSAGES), (b"a", b"first"), (None, b"second" * 500), (b"c", None))
    found = [await exchange.original(letter(n)) for n in range(4)]
    assert [(r.key, r.value) if isinstance(r, Received) else None for r in found] == [
        (b"a", b"first"),
        (None, b"second" * 500),
        (b"c", None),
        None,
    ]
    gone = (letter(0, LOG), letter(0, DEAD_LETTERS), letter(0, partition=99), letter(0, QUERIES))
    assert [await exchange.original(each) for each in gone] == [None] * 4


async def test_topics_that_are_not_there_are_named_and_not_made(exchange: KafkaExchange, prefix: str) -> None:
    for _ in range(2):
        assert await exchange.missing((MESSAGES, RAW_SLACK, LOG)) == [named(prefix, RAW_SLACK), named(prefix, LOG)]


async def test_the_original_of_a_raw_payload_is_read_like_any_other(kafka: str, kafka_prefix: str) -> None:
    await KafkaTopics(Connection(bootstrap=kafka), kafka_prefix).create(2, 1, (RAW_SLACK,))
    async with exchanging(kafka, kafka_prefix) as exchange:
        partition, reached = await exchange.send(RAW_SLACK, None, b"{}", (("content-type", b"application/json"),))
        lost = DeadLetter(
            role="connect", reason="r", topic=RAW_SLACK.name, partition=partition, offset=reached - 1, at=1
        )
        original = await exchange.original(lost)
    assert original is not None
    assert (original.value, original.headers) == (b"{}", (("content-type", b"application/json"),))


async def test_a_record_of_nothing_is_sent(exchange: KafkaExchange, kafka: str, prefix: str) -> None:
    await exchange.send(MESSAGES, None, None)
    (record,) = await taken(kafka, named(prefix, MESSAGES), 1)
    assert (record.key, record.value) == (b"", None)


async def test_an_exchange_that_was_never_used_or_is_stopped_twice_closes_quietly(kafka: str, prefix: str) -> None:
    async with exchanging(kafka, prefix) as exchange:
        pass
    async with exchanging(kafka, prefix) as exchange:
        await exchange.bury([letter()])
        await exchange.stop()
