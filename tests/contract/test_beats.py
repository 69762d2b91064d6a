"""What `status` relies on: a process that says no more is forgotten, and nobody else with it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streammem.backends.memory_beats import MemoryBeats
from streammem.backends.redis_beats import RedisBeats
from streammem.records import Beat
from tests.servers import redis_server


@pytest.fixture(params=["memory", "redis", "redis-cluster"])
async def beats(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[Any]:
    """No signs of life yet, of each backend."""
    if request.param == "memory":
        yield MemoryBeats()
        return
    cluster = request.param == "redis-cluster"
    url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
    remote = RedisBeats(url, redis_prefix, cluster=cluster)
    yield remote
    await remote.close()
    redis_server.forget(url, redis_prefix)


def beat(role: str, process: str = "host-1", handled: int = 0) -> Beat:
    return Beat(
        role=role, process=process, at=1.5, started=0.25, handled=handled, waiting="for\nKafka ☃", fresh=(1, 2, 3)
    )


async def test_nobody_has_said_anything_yet(beats):
    assert await beats.beats() == []


async def test_what_was_said_comes_back_whole_by_role_and_process(beats):
    said = [beat("structure", "b"), beat("index", "z"), beat("structure", "a"), beat("index", "z y")]
    for one in said:
        await beats.beat(one, 60)
    assert await beats.beats() == [said[1], said[3], said[2], said[0]]


async def test_the_newest_word_of_a_role_of_a_process_stands(beats):
    await beats.beat(beat("index", handled=1), 60)
    await beats.beat(beat("index", handled=2), 60)
    assert await beats.beats() == [beat("index", handled=2)]


async def test_who_says_no_more_is_forgotten_and_nobody_else(beats):
    await beats.beat(beat("index"), 0.05)
    await beats.beat(beat("structure"), 60)
    await asyncio.sleep(0.1)
    assert await beats.beats() == [beat("structure")]
    await beats.beat(beat("index", handled=3), 60)
    assert await beats.beats() == [beat("index", handled=3), beat("structure")]


async def test_who_says_it_again_in_time_is_not_forgotten(beats):
    await beats.beat(beat("index"), 0.05)
    await beats.beat(beat("index"), 60)
    await asyncio.sleep(0.1)
    assert await beats.beats() == [beat("index")]
