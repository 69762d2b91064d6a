"""Erasure in servers: marked in Kafka's log, followed by the workers, proved by a search, and never undone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio

from streammem.core import events
from streammem.flows.forgetting import Forgotten
from streammem.records import Awaited, MessageEvent, UserEvent
from streammem.workers import forgetting
from streammem.workers.care import verified
from tests.e2e.stream import Stream, of_embedded, of_stream, running
from tests.stories import edited, public, said

ROLES = [("ingest",), ("structure",), ("structure",), ("index", "summarize")]


WORDS = (b"4711", b"4712", b"VAULT-77", b"vault-plan", b"Quill")
"""What stood only in what is forgotten, and the name of who is."""


async def held(stream: Stream) -> set[bytes]:
    """Those of the words that stand anywhere in what Redis keeps of this memory, names of keys included."""
    prefix, found = stream.settings.redis.prefix, set[bytes]()
    async with redis.asyncio.from_url(stream.settings.redis.url.get_secret_value()) as client:
        async for key in client.scan_iter(f"{prefix}:*", count=1000):
            shown = (key + await _content(client, key)).lower()
            found |= {word for word in WORDS if word.lower() in shown}
    return found


async def _content(client: Any, key: bytes) -> bytes:
    kind = await client.type(key)
    if kind == b"hash":
        return b" ".join(part for pair in (await client.hgetall(key)).items() for part in pair)
    if kind == b"set":
        return b" ".join(await client.smembers(key))
    if kind == b"zset":
        return b" ".join(await client.zrange(key, 0, -1))
    assert kind == b"string", kind
    return bytes(await client.get(key))


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


async def test_a_message_and_a_person_are_forgotten_by_all_workers_and_stay_forgotten(stream: Stream) -> None:
    names = {"ana": "Ana Quill", "bo": "Bo"}
    people = [UserEvent(workspace="w", id=u, name=name, version="3") for u, name in names.items()]
    kept = [public(), people[1], *(said(str(n), f"PR #{n % 3} for DOC-{n % 5}", user="bo") for n in range(40))]
    one = said("50", "the vault code is 4711, see VAULT-77 and vault-plan.pdf", user="bo")
    hers = [people[0], *(said(str(n), f"DOC-{n % 5} is mine", user="ana", reply_to="3") for n in range(60, 75))]
    told = [*kept, one, edited(one, "the vault code is 4712, see VAULT-77 and vault-plan.pdf", 51), *hers]
    async with running(stream, *ROLES):
        await stream.settled(await stream.produce(told))
        assert await held(stream) == set(WORDS)
        async with stream.open() as parts:
            wanted = await forgetting.meant(parts, "w", ["50"], ["Ana Quill"])
            assert (len(wanted.messages), wanted.users) == (16, ("ana",))
            done = await forgetting.forgotten(parts, wanted)
            assert done.entries == len(hers) + 2
            found = await forgetting.traces(parts, done)
            assert (found.total, found.vectors) == (0, None)
            assert "stop it and run forget --prove again" in found.unsearched
            assert set(found.topics) >= {"chat.messages.v1", "memory.log.v1"}
        assert await held(stream) == set()
        await stream.settled(await stream.produce(told))  # the exporter sends everything again
        async with stream.open() as parts:
            assert (await forgetting.traces(parts, done)).total == 0
            assert (await verified(parts, 30)).different == []
        await _comes_back_and_goes(stream, one, done)
        assert await held(stream) == set()
    files = [file.read_bytes() for file in (stream.folder / "vectors").rglob("*") if file.is_file()]
    assert not [word for word in WORDS for content in files if word in content]
    async with stream.open() as parts:
        found = await forgetting.traces(parts, done)  # nobody holds the directory now
        assert (found.vectors, found.unsearched) == (0, "")
    left, never = await of_stream(stream), await of_embedded(kept, stream.settings.forest.k)
    assert msgspec.structs.replace(left, checksum="") == msgspec.structs.replace(never, checksum="")


async def _comes_back_and_goes(stream: Stream, message: MessageEvent, done: Forgotten) -> None:
    """Into the log, as when Redis has lost its marks; then it is forgotten by two at once."""
    async with stream.open() as parts, stream.open() as others:
        await parts.log.append([(events.key(message, events.content_hash(message)), message)])
        await stream.settled(Awaited())
        found = await forgetting.traces(parts, done)
        assert (found.log, found.total) == (1, 1)
        await asyncio.gather(*(forgetting.forgotten(each, done) for each in (parts, others)))
        assert (await forgetting.traces(parts, done)).total == 0
