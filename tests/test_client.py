"""A memory behind Kafka, from outside: how it is named, what is sent, what is waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from streammem import settings as configuration
from streammem.backends.kafka_exchange import Produced
from streammem.client import StreamMemory, connect
from streammem.errors import QueryError, RejectedError, SettingsError, TransientError
from streammem.records import Answer, Awaited, Event, Query
from streammem.settings import KafkaSettings, Settings
from tests.servers.kafka_server import free_port
from tests.stories import said


class Exchange:
    """What would go to Kafka."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.asked: list[tuple[Query, float]] = []

    async def produce(self, events: Iterable[Event]) -> Any:
        self.sent.extend(events)
        yield Produced(1, Awaited(inputs={"messages": {0: 1}}))
        yield Produced(len(self.sent), Awaited(inputs={"messages": {0: 2}}))

    async def ask(self, query: Query, seconds: float) -> Answer:
        self.asked.append((query, seconds))
        return Answer(
            question=query.text,
            asker=None,
            as_of=None,
            evidence=(),
            headers=(),
            tokens=0,
            abstained=True,
            timings_ms={},
        )


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def memory(exchange: Exchange) -> StreamMemory:
    return StreamMemory(exchange, 30.0)  # type: ignore[arg-type]


async def test_what_was_appended_last_is_what_to_wait_for(memory: StreamMemory, exchange: Exchange) -> None:
    assert await memory.append([said("1", "a"), said("2", "b")]) == Awaited(inputs={"messages": {0: 2}})
    assert [event.id for event in exchange.sent] == ["1", "2"]  # type: ignore[union-attr]


async def test_an_event_that_would_be_refused_stops_the_append_before_anything_is_sent(
    memory: StreamMemory, exchange: Exchange
) -> None:
    with pytest.raises(RejectedError, match="no-timestamp"):
        await memory.append([said("1", "a"), msgspec.structs.replace(said("2", "b"), ts=None)])
    assert exchange.sent == []


async def test_a_question_carries_all_that_was_asked_and_waits_longer_than_the_worker(
    memory: StreamMemory, exchange: Exchange
) -> None:
    await memory.query(
        "q", asker="ana", workspace="w", channels=["c"], since=1, until=2, limit=3, exclude=["m"], as_of=9, answer=True
    )
    ((query, seconds),) = exchange.asked
    assert query == Query(
        text="q",
        asker="ana",
        workspace="w",
        channels=("c",),
        since=1,
        until=2,
        limit=3,
        exclude=("m",),
        as_of=9,
        answer=True,
    )
    assert seconds > 30.0


async def test_a_position_may_be_text_or_what_an_append_gave(memory: StreamMemory, exchange: Exchange) -> None:
    place = Awaited(log={0: 3}, inputs={"messages": {1: 2}})
    await memory.query("q", wait_for="0:3;messages=1:2")
    await memory.query("q", wait_for=place)
    await memory.query("q", wait_for=Awaited())  # of an append of nothing
    assert [query.wait_for for query, _ in exchange.asked] == [place, place, None]
    with pytest.raises(QueryError, match="is no position"):
        await memory.query("q", wait_for="yesterday")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:9092", "redis://h:1", "kafka//h:1", "kafka://user:secret@h:1", "kafka://h:1/a b", "kafka://h/a/b"],
)
async def test_a_url_that_names_no_memory_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        async with connect(url, Settings()):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "bootstrap", "prefix"),
    [
        ("kafka://", "set:1", "set."),
        ("kafka://h:1", "h:1", "set."),
        ("kafka://h:1,i:2/team.", "h:1,i:2", "team."),
        ("kafka:///team.", "set:1", "team."),
    ],
)
async def test_a_url_stands_before_the_settings(url: str, bootstrap: str, prefix: str) -> None:
    chosen = Settings(kafka=KafkaSettings(bootstrap="set:1", prefix="set."))
    async with connect(url, chosen) as memory:
        assert (memory._exchange._connection.bootstrap, memory._exchange._prefix) == (bootstrap, prefix)


async def test_a_kafka_that_is_away_is_told_when_something_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMMEM_KAFKA__BOOTSTRAP", raising=False)
    where = f"127.0.0.1:{free_port()}"
    async with connect(f"kafka://{where}", configuration.load()) as memory:
        with pytest.raises(TransientError, match=where):
            await memory.query("q")
        with pytest.raises(TransientError, match=where):
            await memory.append([said("1", "a")])
