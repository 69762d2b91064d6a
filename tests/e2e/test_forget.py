"""Erasure in servers: marked in Kafka's log, followed by the workers, proved by a search, and never undone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streammem.records import UserEvent
from streammem.workers import forgetting
from streammem.workers.care import verified
from tests.e2e.stream import Stream, of_embedded, of_stream, running
from tests.stories import edited, public, said

ROLES = [("ingest",), ("structure",), ("structure",), ("index", "summarize")]


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


async def test_a_message_and_a_person_are_forgotten_by_all_workers_and_stay_forgotten(stream: Stream) -> None:
    people = [UserEvent(workspace="w", id=u, name=u.title(), version="3") for u in ("ana", "bo")]
    kept = [public(), people[1], *(said(str(n), f"PR #{n % 3} for DOC-{n % 5}", user="bo") for n in range(40))]
    one = said("50", "the vault code is 4711, see DOC-1", user="bo")
    hers = [people[0], *(said(str(n), f"DOC-{n % 5} is mine", user="ana", reply_to="3") for n in range(60, 75))]
    events = [*kept, one, edited(one, "the vault code is 4712, see DOC-1", 51), *hers]
    async with running(stream, *ROLES):
        await stream.settled(await stream.produce(events))
        async with stream.open() as parts:
            wanted = await forgetting.meant(parts, "w", ["50"], ["Ana"])
            assert (len(wanted.messages), wanted.users) == (16, ("ana",))
            done = await forgetting.forgotten(parts, wanted)
            assert done.entries == len(hers) + 2
            found = await forgetting.traces(parts, done)
            assert (found.total, found.vectors) == (0, None)
            assert set(found.topics) >= {"chat.messages.v1", "memory.log.v1"}
        await stream.settled(await stream.produce(events))  # the exporter sends everything again
        async with stream.open() as parts:
            assert (await forgetting.traces(parts, done)).total == 0
            assert (await verified(parts, 30)).different == []
    async with stream.open() as parts:
        vectors = await parts.index()
        assert await vectors.traces("w", done.messages, done.users) == 0
    left, never = await of_stream(stream), await of_embedded(kept, stream.settings.forest.k)
    assert msgspec.structs.replace(left, checksum="") == msgspec.structs.replace(never, checksum="")
