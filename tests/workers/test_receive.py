"""The receiver over real HTTP: who may send, what is kept, and what senders are told when it is not."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import io
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from slack_sdk.signature import SignatureVerifier
from structlog.testing import capture_logs

from streammem.connectors.json_rows import loads
from streammem.core.topics import Topic
from streammem.errors import RejectedError, SettingsError, TransientError
from streammem.settings import ReceiveSettings
from streammem.workers.duty import Pulse
from streammem.workers.receive import Receiver, signed

JSON = {"Content-Type": "application/json"}
SECRET, STATE = "8f742231b10e8888abcd99yyyzzz85a5", "s3cr3t"
EVENT = {"type": "event_callback", "team_id": "T1", "event": {"type": "message", "channel": "C1", "text": "hush"}}
NOTE = {
    "changeType": "created",
    "clientState": STATE,
    "tenantId": "t-1",
    "resource": "teams('x')/channels('19:abc@thread.tacv2')/messages('1')/replies('2')",
    "encryptedContent": {"data": "hush"},
}
STATELESS = {name: value for name, value in NOTE.items() if name != "clientState"}
BOTH = ReceiveSettings(slack_signing_secret=SecretStr(SECRET), teams_client_state=SecretStr(STATE), within=0.3)


class Topics:
    """What was sent to Kafka; `mood` is raised, or waited for, before a record is taken."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes | None, bytes | None, dict[str, bytes]]] = []
        self.asked = 0
        self.mood: Exception | asyncio.Event | None = None

    async def send(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        self.asked += 1
        if isinstance(self.mood, asyncio.Event):
            await self.mood.wait()
        elif self.mood is not None:
            raise self.mood
        self.kept.append((topic.name, key, value, dict(headers)))


@pytest.fixture
def topics() -> Topics:
    return Topics()


@asynccontextmanager
async def listening(topics: Topics, chosen: ReceiveSettings = BOTH) -> AsyncIterator[TestClient[Any, Any]]:
    receiver = Receiver(topics.send, chosen, Pulse("receive"))
    async with TestClient(TestServer(receiver.app())) as client:
        yield client


@asynccontextmanager
async def serving(topics: Topics, chosen: ReceiveSettings = BOTH) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the receiver as it listens by itself."""
    with capture_logs() as logs:
        task = asyncio.create_task(
            Receiver(topics.send, chosen.model_copy(update={"port": 0}), Pulse("receive")).serve()
        )
        while not logs:
            await asyncio.sleep(0)
    port = next(line["port"] for line in logs if line["event"] == "listens")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        yield client
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def signature(body: bytes, at: float, secret: str = SECRET) -> dict[str, str]:
    stamp = str(int(at))
    digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={digest}",
    }


async def posted(client: Any, value: Any, *, at: float | None = None, secret: str = SECRET, **more: str) -> Any:
    """Post to Slack's address as Slack does."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = signature(body, time.time() if at is None else at, secret) | {
        k.replace("_", "-"): v for k, v in more.items()
    }
    return await client.post("/slack/events", data=body, headers=headers)


async def notified(client: Any, *notes: Any, **more: Any) -> Any:
    return await client.post("/teams/notifications", json={"value": list(notes), **more})


# ------------------------------------------------------------------------------------------------------------- Slack


async def test_a_signed_event_is_kept_as_it_came_and_then_acknowledged(topics: Topics) -> None:
    body = json.dumps(EVENT, indent=2).encode()
    async with listening(topics) as client:
        answer = await posted(client, body, X_Slack_Retry_Num="2", X_Slack_Retry_Reason="http_timeout")
        assert (answer.status, await answer.text()) == (200, "")
    ((name, key, value, headers),) = topics.kept
    assert (name, key, value) == ("chat.raw.slack.v1", b"T1:C1", body)
    assert headers.pop("received-at")
    assert headers == {
        "content-type": b"application/json",
        "x-slack-retry-num": b"2",
        "x-slack-retry-reason": b"http_timeout",
    }


async def test_the_verification_token_is_not_kept_and_all_else_is_as_it_was_written(topics: Topics) -> None:
    event = b'{ "ts": 1.10, "token": "said", "text": "\\u00fc" , "n": 1e3}'
    body = b'{"token": "proof-1", "team_id":"T1", "event": ' + event + b', "t\\u006fken":"proof-2"}'
    async with listening(topics) as client:
        assert (await posted(client, body)).status == 200
    assert topics.kept[0][2] == b'{"team_id":"T1","event":' + event + b"}"


@pytest.mark.parametrize("damage", [b"", b"\\ud800", b"\n"])
async def test_the_verification_token_is_not_kept_of_what_only_a_lenient_reader_reads(
    topics: Topics, damage: bytes
) -> None:
    body = b'\xef\xbb\xbf{"token": "proof", "team_id": "T1", "event": {"ts": "1.10", "text": "a' + damage + b'b"}}'
    async with listening(topics) as client:
        assert (await posted(client, body)).status == 200
    kept = loads(topics.kept[0][2] or b"")
    assert kept == {name: value for name, value in loads(body).items() if name != "token"}


@pytest.mark.parametrize("deep", [100, 700, 20_000])
async def test_a_body_that_is_nested_deeply_is_kept_without_its_token_or_refused(topics: Topics, deep: int) -> None:
    body = b'{"token": "proof", "event": ' + b"[" * deep + b"]" * deep + b"}"
    async with listening(topics) as client:
        assert (await posted(client, body)).status == (200 if deep < 1000 else 400)
    assert all(b"proof" not in (value or b"") for _, _, value, _ in topics.kept)


async def test_a_retry_is_kept_like_any_other(topics: Topics) -> None:
    async with listening(topics) as client:
        for retry in ("", "1", "2", "3"):
            assert (await posted(client, EVENT, X_Slack_Retry_Num=retry)).status == 200
    assert len(topics.kept) == 4


async def test_the_challenge_is_sent_back_to_who_can_sign(topics: Topics) -> None:
    asked = {"type": "url_verification", "challenge": "<b>3eZbrw1aB</b>", "token": "x"}
    async with listening(topics) as client:
        answer = await posted(client, asked)
        assert (answer.status, await answer.text()) == (200, "<b>3eZbrw1aB</b>")
        assert answer.content_type == "text/plain"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (await posted(client, asked, secret="other")).status == 401
        assert (await posted(client, {**asked, "challenge": "x" * 10_000})).status == 400
    assert topics.kept == []


@pytest.mark.parametrize("offset", [-301, 301, -1_000_000])
async def test_an_old_request_is_refused_even_when_it_is_signed(topics: Topics, offset: int) -> None:
    async with listening(topics) as client:
        assert (await posted(client, EVENT, at=time.time() + offset)).status == 401
    assert topics.kept == []


FORGED = {
    "another secret": {"secret": "guessed"},
    "no signature": {"X_Slack_Signature": ""},
    "a signature of another version": {"X_Slack_Signature": "v1=00"},
    "a signature beyond ASCII": {"X_Slack_Signature": "v0=ü"},
    "no time": {"X_Slack_Request_Timestamp": ""},
    "a time that is none": {"X_Slack_Request_Timestamp": "yesterday"},
    "a time with a sign": {"X_Slack_Request_Timestamp": "-1"},
    "a time of a million digits": {"X_Slack_Request_Timestamp": "9" * 5000},
}


@pytest.mark.parametrize("name", FORGED)
async def test_what_slack_did_not_sign_is_refused(topics: Topics, name: str) -> None:
    async with listening(topics) as client:
        answer = await posted(client, EVENT, **FORGED[name])
        assert (answer.status, (await answer.text()).count("\n")) == (401, 0)
        assert (await client.post("/slack/events", json=EVENT)).status == 401
    assert topics.kept == []


async def test_a_body_that_is_changed_after_it_was_signed_is_refused(topics: Topics) -> None:
    body = json.dumps(EVENT).encode()
    async with listening(topics) as client:
        answer = await client.post("/slack/events", data=body + b" ", headers=signature(body, time.time()))
        assert answer.status == 401


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b"17", b"\xff\xfe", b'"text"'])
async def test_garbage_is_refused_even_when_it_is_signed(topics: Topics, body: bytes) -> None:
    async with listening(topics) as client:
        assert (await posted(client, body)).status in {400, 401}
    assert topics.kept == []


def test_whatever_is_in_the_headers_is_no_signature() -> None:
    verifier = SignatureVerifier(SECRET)

    @settings(deadline=None)
    @given(st.binary(max_size=20), st.text(max_size=20), st.text(max_size=20))
    def never(body: bytes, stamp: str, said: str) -> None:
        assert not signed(verifier, body, {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": said})

    never()


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ({"item": {"channel": "C2"}}, b"T1:C2"),
        ({"channel": {"id": "C3"}}, b"T1:C3"),
        ({"channel": 17}, b"T1"),
        ({}, b"T1"),
    ],
)
async def test_the_key_is_the_channel_as_far_as_it_is_told(topics: Topics, event: Any, key: bytes) -> None:
    async with listening(topics) as client:
        assert (await posted(client, {**EVENT, "event": event})).status == 200
    assert topics.kept[0][1] == key


# ------------------------------------------------------------------------------------------------------------- Teams


async def test_a_notification_is_kept_as_it_came_and_then_accepted(topics: Topics) -> None:
    async with listening(topics) as client:
        answer = await notified(client, NOTE, validationTokens=["jwt"])
        assert (answer.status, await answer.text()) == (202, "")
    ((name, key, value, headers),) = topics.kept
    assert (name, key) == ("chat.raw.teams.v1", b"t-1:teams('x')/channels('19:abc@thread.tacv2')")
    assert json.loads(value or b"") == {"value": [STATELESS], "validationTokens": ["jwt"]}
    assert headers["content-type"].startswith(b"application/json")


async def test_the_client_state_of_no_notification_is_kept(topics: Topics) -> None:
    notes = [NOTE, {**NOTE, "resourceData": {"clientState": "said"}}]
    async with listening(topics) as client:
        assert (await notified(client, *notes)).status == 202
        body = b'\xef\xbb\xbf{"value": [{"clientState": "s3cr3t", "resource": "r"}]}'
        assert (await client.post("/teams/notifications", data=body, headers=JSON)).status == 202
    (_, _, told, _), (_, _, marked, _) = topics.kept
    assert json.loads(told or b"") == {"value": [STATELESS, {**STATELESS, "resourceData": {"clientState": "said"}}]}
    assert json.loads(marked or b"") == {"value": [{"resource": "r"}]}


async def test_news_of_the_subscription_goes_the_same_way(topics: Topics) -> None:
    async with listening(topics) as client:
        note = {"lifecycleEvent": "reauthorizationRequired", "clientState": STATE, "subscriptionId": "s"}
        assert (await notified(client, note)).status == 202
    assert len(topics.kept) == 1


async def test_the_validation_token_comes_back_as_plain_text(topics: Topics) -> None:
    token = "Validation: Testing <script>&amp; client+application"
    async with listening(topics) as client:
        answer = await client.post("/teams/notifications", params={"validationToken": token})
        assert (answer.status, await answer.text(), answer.content_type) == (200, token, "text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for bad in ("", "a\nb", "x" * 4097):
            assert (await client.post("/teams/notifications", params={"validationToken": bad})).status == 400
    assert topics.kept == []


@pytest.mark.parametrize("state", [None, "", "guessed", 17, "s3cr3t ", "ü"])
async def test_one_notification_with_another_client_state_refuses_them_all(topics: Topics, state: Any) -> None:
    async with listening(topics) as client:
        assert (await notified(client, NOTE, {**NOTE, "clientState": state})).status == 401
    assert topics.kept == []


@pytest.mark.parametrize("body", [{}, {"value": []}, {"value": [17]}, {"value": {}}, [], 17])
async def test_a_body_without_notifications_is_refused(topics: Topics, body: Any) -> None:
    async with listening(topics) as client:
        assert (await client.post("/teams/notifications", json=body)).status == 400
    assert topics.kept == []


# -------------------------------------------------------------------------------------------------------------- Kafka


@pytest.mark.parametrize(
    ("mood", "status"),
    [
        (TransientError("Kafka at h:1 did not answer"), 503),
        (SettingsError("Kafka at h:1 has no topic"), 503),
        (RejectedError("too-large", "x"), 413),
        (ValueError("a bug"), 500),
    ],
)
async def test_what_kafka_does_not_take_is_not_acknowledged(topics: Topics, mood: Exception, status: int) -> None:
    async with listening(topics) as client:
        topics.mood = mood
        with capture_logs():
            assert (await posted(client, EVENT)).status == status
            assert (await notified(client, NOTE)).status == status
        topics.mood = None
        assert (await posted(client, EVENT)).status == 200
    assert len(topics.kept) == 1


async def test_a_slow_kafka_is_not_waited_for_longer_than_the_sender_waits(topics: Topics) -> None:
    topics.mood = asyncio.Event()
    async with listening(topics) as client:
        answers = await asyncio.gather(posted(client, EVENT), notified(client, NOTE))
        assert [answer.status for answer in answers] == [503, 503]
        assert (await (await client.get("/health")).json())["kafka"] == "away"
        topics.mood.set()  # what was late is kept after all, and comes again
        assert (await posted(client, EVENT)).status == 200
        assert (await (await client.get("/health")).json())["kafka"] == "ok"
    assert len(topics.kept) == 3


async def test_more_than_can_be_held_at_once_is_told_to_come_again(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammem.workers.receive.AT_ONCE", 2)
    topics.mood = asyncio.Event()
    async with listening(topics, BOTH.model_copy(update={"within": 30.0})) as client:
        posts = [asyncio.create_task(posted(client, EVENT)) for _ in range(4)]
        while sum(post.done() for post in posts) < 2:
            await asyncio.sleep(0)
        assert [post.result().status for post in posts if post.done()] == [503, 503]
        topics.mood.set()
        assert sorted([(await post).status for post in posts]) == [200, 200, 503, 503]


# --------------------------------------------------------------------------------------------------------- everything


async def test_without_its_secret_a_product_is_refused(topics: Topics) -> None:
    with capture_logs() as logs:
        async with listening(topics, ReceiveSettings()) as client:
            first = await posted(client, EVENT)
            assert (first.status, await first.text()) == (503, "STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET is not set")
            for answer in (
                await notified(client, NOTE),
                await client.post("/teams/notifications", params={"validationToken": "x"}),
            ):
                assert (answer.status, await answer.text()) == (503, "STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE is not set")
            assert (await (await client.get("/health")).json())["slack"] is False
    assert topics.kept == []
    assert len(logs) == 3


@pytest.mark.parametrize("path", ["/slack/events", "/teams/notifications"])
async def test_other_requests_have_the_right_status_and_one_line(topics: Topics, path: str) -> None:
    async with listening(topics) as client:
        for answer, status in (
            (await client.get(path), 405),
            (await client.put(path, json=EVENT), 405),
            (await client.post(path, data={"payload": "{}"}), 415),
            (await client.post(path, data=b"{}", headers={"Content-Type": "text/plain"}), 415),
            (await client.post(path + "/x", json=EVENT), 404),
            (await client.post(path, data=io.BytesIO(bytes(2**20 + 1)), headers=JSON), 413),
        ):
            assert (answer.status, len((await answer.text()).splitlines())) == (status, 1)
        assert (await client.get("/health")).status == 200
    assert topics.kept == []


async def test_a_body_that_does_not_come_is_not_waited_for(topics: Topics) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await answered.wait()

    answered = asyncio.Event()
    async with listening(topics) as client:
        answer = await client.post("/slack/events", data=slow(), headers=signature(b"{", time.time()))
        assert answer.status == 408
        answered.set()


async def test_bodies_that_do_not_come_hold_only_so_much_memory(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammem.workers.receive.AT_ONCE", 2)
    ended = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await ended.wait()

    async with listening(topics) as client:
        posts = [asyncio.create_task(client.post("/teams/notifications", data=slow(), headers=JSON)) for _ in range(4)]
        answers = [await post for post in posts]
        assert sorted(answer.status for answer in answers) == [408, 408, 503, 503]
        ended.set()
        assert (await posted(client, EVENT)).status == 200


async def test_a_compressed_body_is_not_unpacked(topics: Topics) -> None:
    body = gzip.compress(json.dumps({"value": [NOTE]}).encode())
    async with serving(topics) as client:
        answer = await client.post("/teams/notifications", data=body, headers=JSON | {"Content-Encoding": "gzip"})
        assert answer.status == 400
        assert (await posted(client, EVENT)).status == 200
    assert len(topics.kept) == 1


async def test_neither_secrets_nor_what_people_said_are_logged(topics: Topics) -> None:
    with capture_logs() as logs:
        async with listening(topics) as client:
            await posted(client, EVENT)
            await posted(client, EVENT, secret="other")
            await notified(client, NOTE)
            await notified(client, {**NOTE, "clientState": "wrong-state"})
            await client.post("/teams/notifications", params={"validationToken": "tok-en"})
            topics.mood = ValueError("bug")
            await posted(client, EVENT)
    told = json.dumps(logs, default=str)
    assert len(logs) >= 5
    assert not [word for word in (SECRET, STATE, "hush", "wrong-state", "tok-en", "v0=") if word in told]


@pytest.mark.parametrize(
    ("chosen", "closed"),
    [
        (BOTH.model_copy(update={"slack_signing_secret": None}), ("slack", "STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET")),
        (BOTH.model_copy(update={"teams_client_state": None}), ("teams", "STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE")),
        (BOTH, None),
    ],
)
async def test_a_receiver_says_at_start_which_product_is_closed_and_what_opens_it(
    topics: Topics, chosen: ReceiveSettings, closed: tuple[str, str] | None
) -> None:
    with capture_logs() as logs:
        serving = asyncio.create_task(
            Receiver(topics.send, chosen.model_copy(update={"port": 0}), Pulse("receive")).serve()
        )
        while not logs:
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    said = [(line["product"], line["opened_by"]) for line in logs if line["event"] == "closed"]
    assert said == ([closed] if closed else [])


def test_a_blank_secret_is_none() -> None:
    chosen = ReceiveSettings(slack_signing_secret=SecretStr(" "), teams_client_state=SecretStr(""))
    assert (chosen.slack_signing_secret, chosen.teams_client_state) == (None, None)
    assert SECRET not in repr(BOTH)
    assert STATE not in repr(BOTH)


async def test_it_stops_when_what_is_under_way_is_kept(topics: Topics) -> None:
    topics.mood = asyncio.Event()
    chosen = BOTH.model_copy(update={"port": 0, "within": 30.0})
    with capture_logs() as logs:
        serving = asyncio.create_task(Receiver(topics.send, chosen, Pulse("receive")).serve())
        while not logs:
            await asyncio.sleep(0)
    port = next(line["port"] for line in logs if line["event"] == "listens")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        asking = asyncio.create_task(posted(client, EVENT))
        while not topics.asked:
            await asyncio.sleep(0)
        serving.cancel()
        topics.mood.set()
        assert (await asking).status == 200
        await asyncio.gather(serving, return_exceptions=True)
        with pytest.raises(aiohttp.ClientConnectorError):
            await posted(client, EVENT)
    assert len(topics.kept) == 1


async def test_an_address_in_use_is_an_error_that_names_the_setting(topics: Topics) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    taken = BOTH.model_copy(update={"port": runner.addresses[0][1]})
    with pytest.raises(SettingsError, match="STREAMMEM_RECEIVE__PORT"):
        await Receiver(topics.send, taken, Pulse("receive")).serve()
    await runner.cleanup()
