"""What products post, from HTTP through Kafka into the log, on real servers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from pydantic import SecretStr

from streammem.core.topics import RAW_SLACK, group_of
from streammem.records import DeadLetter, Event, MessageEvent
from streammem.settings import ReceiveSettings, Settings
from streammem.wiring.stream import Streaming, exchange, topics
from streammem.workers.duty import Pulse
from streammem.workers.receive import Receiver
from streammem.workers.status import standing
from tests.e2e.stream import Stream, Worker, running
from tests.servers.kafka_server import KafkaServer

SECRET, STATE = "8f742231b10e8888abcd99yyyzzz85a5", "s3cr3t"


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv("STREAMMEM_RECEIVE__PORT", "0")
    monkeypatch.setenv("STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET", SECRET)
    monkeypatch.setenv("STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE", STATE)
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


def said(number: int) -> dict[str, Any]:
    event = {"type": "message", "user": "U1", "channel": f"C{number % 5}", "text": f"message {number}"}
    return {"type": "event_callback", "team_id": "T1", "event": {**event, "ts": f"170419{number:04d}.000100"}}


async def until(look: Callable[[], Any], stream: Stream, seconds: float = 60.0) -> Any:
    """The first outcome that is something."""
    deadline = time.monotonic() + seconds
    while not (found := await look()):
        assert time.monotonic() < deadline, stream.told()
        await asyncio.sleep(0.1)
    return found


async def entries(parts: Streaming) -> list[Event]:
    return [entry.event for entry in await parts.log.read({}, 100_000)]


async def port_of(worker: Worker, stream: Stream) -> int:
    async def listens() -> int:
        match = re.search(r'"port": (\d+)', worker.log.read_text())
        return int(match[1]) if match else 0

    return int(await until(listens, stream))


def signed(body: bytes) -> dict[str, str]:
    stamp = str(int(time.time()))
    digest = hmac.new(SECRET.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={digest}",
    }


async def test_a_signed_request_comes_into_the_log_and_what_is_still_to_be_fetched_is_told(stream: Stream) -> None:
    body = json.dumps(said(1)).encode()
    note = {
        "changeType": "created",
        "clientState": STATE,
        "tenantId": "t-1",
        "resource": "chats('19:def@thread.v2')/messages('1704190000000')",
        "resourceData": {"id": "1704190000000"},
        "encryptedContent": {"data": "x"},
    }
    async with running(stream, ("receive",), ("connect", "ingest")), stream.open() as parts:
        port = await port_of(stream.workers[0], stream)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            for headers, status in ((signed(body), 200), (signed(body), 200), (signed(b"other"), 401)):
                assert (await client.post("/slack/events", data=body, headers=headers)).status == status
            assert (await client.post("/teams/notifications", json={"value": [note]})).status == 202
            assert (await (await client.get("/health")).json())["kafka"] == "ok"

        async def kept() -> list[Event]:
            return await entries(parts)

        async def buried() -> list[DeadLetter]:
            return [letter async for _, letter in parts.exchange.letters()]

        (event,) = await until(kept, stream)
        assert isinstance(event, MessageEvent)
        assert (event.workspace, event.channel.id, event.text) == ("T1", "C1", "message 1")
        assert event.ingest is not None
        assert (event.ingest.origin or "").startswith("chat.raw.slack.v1/")
        (letter,) = await until(buried, stream)
        assert (letter.role, letter.reason, letter.topic) == ("connect", "pending-fetch", "chat.raw.teams.v1")
        original = await parts.exchange.original(letter)
        assert original is not None
        kept = {name: value for name, value in note.items() if name != "clientState"}
        assert json.loads(original.value or b"") == {"value": [kept]}
        assert {name for name, _ in original.headers} == {"content-type", "received-at"}

        async def counted() -> bool:
            roles = {role.role: role for role in (await standing(parts)).roles}
            return (roles["connect"].processes, roles["connect"].handled) == (1, 3)

        assert await until(counted, stream)
    assert "message 1" not in stream.told()


async def test_a_connect_that_is_killed_at_work_loses_nothing(stream: Stream) -> None:
    total = 3000
    async with stream, stream.open() as parts:
        stream.start("ingest")
        worker = stream.start("connect")
        for start in range(0, total, 500):
            values = [json.dumps(said(number)).encode() for number in range(start, start + 500)]
            await asyncio.gather(*(parts.exchange.send(RAW_SLACK, None, value) for value in [*values, b"\xfe poison"]))

        async def begun() -> bool:
            return len(await entries(parts)) > 0

        async def all_there() -> set[str]:
            found = {event.id for event in await entries(parts) if isinstance(event, MessageEvent)}
            return found if len(found) == total else set()

        await until(begun, stream)
        worker.kill()
        stream.start("connect", "structure")
        assert len(await until(all_there, stream)) == total

        async def committed() -> bool:
            taken = await parts.topics.committed(group_of(stream.settings.kafka.prefix, "connect"))
            return sum(taken.get(RAW_SLACK.short, {}).values()) == total + total // 500

        await until(committed, stream)
        letters = [letter async for _, letter in parts.exchange.letters()]
        assert {letter.reason for letter in letters} == {"not-json"}
        assert len({(letter.partition, letter.offset) for letter in letters}) == total // 500
        for left in stream.workers[:1] + stream.workers[2:]:
            assert left.terminate() == 0, stream.told()


async def test_without_raw_payloads_nobody_misses_connect(stream: Stream) -> None:
    async with stream, stream.open() as parts:
        assert "connect" not in {role.role for role in (await standing(parts)).roles}
        await parts.exchange.send(RAW_SLACK, None, b"{}")
        status = await standing(parts)
        assert "no process works as connect: start `streammem worker connect`" in status.problems


async def test_while_the_broker_is_away_senders_are_told_in_time_and_when_it_is_back_all_is_kept(
    own_kafka: KafkaServer, kafka_prefix: str
) -> None:
    if not own_kafka.restartable:
        pytest.skip("the named broker is not ours to stop")
    settings = Settings(kafka={"bootstrap": own_kafka.bootstrap, "prefix": kafka_prefix})
    chosen = ReceiveSettings(slack_signing_secret=SecretStr(SECRET))
    await topics(settings).create(1, 1, (RAW_SLACK,))
    sender = exchange(settings, patience=chosen.within)
    body = json.dumps(said(1)).encode()
    statuses = []
    async with TestClient(TestServer(Receiver(sender.send, chosen, Pulse("receive")).app())) as client:
        for change in (lambda: None, own_kafka.stop, lambda: None, own_kafka.start):
            await asyncio.to_thread(change)
            began = time.monotonic()
            answer = await client.post("/slack/events", data=body, headers=signed(body))
            statuses.append(answer.status)
            assert time.monotonic() - began < 3

        async def kept() -> bool:
            return (await client.post("/slack/events", data=body, headers=signed(body))).status == 200

        deadline = time.monotonic() + 60
        while not await kept():
            assert time.monotonic() < deadline
    await sender.stop()
    assert statuses[:3] == [200, 503, 503]
