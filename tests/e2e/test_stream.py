"""The whole memory over real servers, with several processes of a role: it is the embedded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streammem import open_memory
from streammem.client import connect
from streammem.connectors import Report
from streammem.connectors.slack import export as slack_export
from streammem.core.numbers import Forest
from streammem.errors import MemoryFormatError, TransientError
from streammem.records import Query
from streammem.settings import Settings
from streammem.workers.care import rebuilt, verified
from streammem.workers.status import standing
from tests.e2e.stream import Stream, of_embedded, of_stream, running
from tests.embedding import HashingEmbedder
from tests.servers.redis_server import RedisServer
from tests.stories import edited, public, said

SAMPLE = Path(__file__).parents[2] / "streammem" / "samples"


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


def sample() -> list[Any]:
    return list(slack_export.read(SAMPLE / "harbourlight", Report()))


def questions() -> list[Query]:
    told = json.loads((SAMPLE / "questions.json").read_text())
    return [Query(text=row["question"], asker=row["asker"]) for row in told]


async def test_the_demo_over_kafka_with_two_of_a_role_is_the_embedded_memory(stream: Stream) -> None:
    roles = [("ingest",), ("ingest",), ("structure",), ("structure",), ("index", "summarize", "query")]
    async with running(stream, *roles):
        sent = await stream.produce(sample())
        await stream.settled(sent)
        async with connect(f"kafka://{stream.settings.kafka.bootstrap}", stream.settings) as memory:
            answers = [await memory.ask(msgspec.structs.replace(query, wait_for=sent)) for query in questions()]
        async with stream.open() as parts:
            assert (await verified(parts, 30)).different == []
    chosen = Settings(forest=Forest(k=stream.settings.forest.k))
    async with open_memory(stream.folder / "embedded", chosen, embedder=lambda _: HashingEmbedder()) as embedded:
        await embedded.append(sample())
        expected = [await embedded.ask(query) for query in questions()]
    assert [[e.uid for e in a.evidence] for a in answers] == [[e.uid for e in a.evidence] for a in expected]
    assert [a.headers for a in answers] == [a.headers for a in expected]
    assert all(len(a.evidence) > 3 for a in answers)
    assert await of_stream(stream) == await of_embedded(sample(), stream.settings.forest.k)


async def test_what_was_appended_is_found_by_a_question_that_waits_for_it(stream: Stream) -> None:
    address = f"kafka://{stream.settings.kafka.bootstrap}"
    processes = [("ingest", "structure"), ("index", "summarize", "query")]
    async with running(stream, *processes), connect(address, stream.settings) as memory:
        await memory.append([public()])
        for number in range(5):
            first = said(str(number), f"the pelican has landed {number} times")
            sent = await memory.append([first])
            answer = await memory.query("pelican", wait_for=sent)
            assert f"the pelican has landed {number} times" in [e.text for e in answer.evidence]
        sent = await memory.append([edited(first, "the pelican has left", 9)])
        answer = await memory.query("pelican", wait_for=sent)
        assert "the pelican has left" in [e.text for e in answer.evidence]
        assert "the pelican has landed 4 times" not in [e.text for e in answer.evidence]
        assert answer.position["structure"] == answer.position["index"] != {}


async def test_status_tells_how_fresh_a_healthy_memory_is(stream: Stream) -> None:
    async with running(stream, ("ingest", "structure", "index", "summarize", "query")):
        await stream.settled(await stream.produce([public(), *(said(str(n), f"hello {n}") for n in range(20))]))
        async with stream.open() as parts:
            status = await standing(parts)
            while any(role.handled == 0 for role in status.roles if role.role in ("ingest", "structure", "index")):
                status = await standing(parts)
        assert status.healthy, status.problems
        roles = {role.role: role for role in status.roles}
        assert [roles[role].processes for role in roles] == [1] * 5
        assert roles["ingest"].handled == roles["index"].handled == 21
        fresh = roles["index"].fresh
        assert fresh is not None
        assert 0 < fresh[0] <= fresh[1] <= fresh[2] < 60


async def test_a_rebuild_gives_the_same_memory_again(stream: Stream) -> None:
    events = [public(), *(said(str(n), f"PR #{n % 3} for DOC-{n % 5}", minute=n) for n in range(40))]
    async with running(stream, ("ingest", "structure", "index", "summarize")):
        await stream.settled(await stream.produce(events))
    before = await of_stream(stream)
    async with stream.open() as parts:
        await parts.structure.clear()
        assert (await parts.structure.counts())["messages"] == 0
        await rebuilt(parts)
    assert await of_stream(stream) == before == await of_embedded(events, stream.settings.forest.k)


async def test_a_directory_without_this_memorys_vectors_is_refused_and_a_rebuild_takes_it(
    stream: Stream, redis_url: str, tmp_path: Path
) -> None:
    async with stream.open() as parts:
        await parts.index()
    kafka = stream.settings.kafka
    other = Stream(kafka.bootstrap, redis_url, tmp_path / "other", kafka.prefix)
    async with other.open() as parts:
        with pytest.raises(MemoryFormatError, match="STREAMMEM_VECTORS__PATH"):
            await parts.index()
    for finished in (False, True):
        async with other.open() as parts:
            await parts.index(rebuild=True)
            if finished:
                await parts.renew()
        async with other.open() as parts:
            if finished:
                await parts.index()
            else:
                with pytest.raises(MemoryFormatError, match="rebuild --distributed"):
                    await parts.index()


async def test_an_index_that_could_not_be_opened_while_redis_was_away_is_opened_later(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    async with Stream("127.0.0.1:9", own_redis.url, tmp_path, "away.").open() as parts:
        own_redis.stop()
        for _ in range(2):
            with pytest.raises(TransientError):
                await parts.index()
        own_redis.start()
        assert await (await parts.index()).counts() == {"message points": 0, "node points": 0}


async def test_roles_notice_that_redis_has_forgotten_everything(stream: Stream) -> None:
    events = [public(), *(said(str(n), f"PR #{n % 3} for DOC-{n % 5}", minute=n) for n in range(40))]
    async with running(stream, ("ingest", "structure", "index", "summarize")):
        sent = await stream.produce(events)
        await stream.settled(sent)
        async with stream.open() as parts:
            await parts.structure.clear()
        await stream.settled(sent)
    assert await of_stream(stream) == await of_embedded(events, stream.settings.forest.k)
