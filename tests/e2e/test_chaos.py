"""Workers killed again and again, Redis and Kafka restarted: in the end it is the embedded memory, and faults show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.e2e.chaos import Storm, differences
from tests.e2e.stream import NotSettledError, Stream
from tests.e2e.worker import FAULTS
from tests.servers.kafka_server import KafkaServer
from tests.servers.redis_server import RedisServer, Unavailable


@pytest.fixture
def forgetful_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Syncs once a second: what it acknowledged in the last second is lost when it is killed."""
    try:
        server = RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "everysec")
    except Unavailable as error:
        missing(error)
    yield server
    server.stop()


@pytest.fixture
def storm(own_kafka: KafkaServer, forgetful_redis: RedisServer, tmp_path: Path, kafka_prefix: str) -> Storm:
    stream = Stream(
        own_kafka.bootstrap, forgetful_redis.url, tmp_path, kafka_prefix, worker={"patience": 1.0, "lease": 3.0}
    )
    return Storm(stream, own_kafka, forgetful_redis, seed=20261130)


async def test_after_kills_and_restarts_the_stream_is_the_embedded_memory(storm: Storm) -> None:
    outcome = await storm.blow(2000, kills=10)
    assert outcome.kills >= 10
    assert outcome.restarts == {"kafka": 1, "redis": 1}
    assert differences(outcome) == [], outcome.kills
    assert len(outcome.stream.untils) > 2000
    assert len(outcome.stream.summaries) > 500


@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_a_planted_fault_is_caught(storm: Storm, fault: str) -> None:
    storm.plant(fault)
    try:
        outcome = await storm.blow(300, kills=0)
    except NotSettledError:
        return  # what was acknowledged and not done never comes
    assert differences(outcome) != []
