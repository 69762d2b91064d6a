"""What `connect` makes of a batch of raw records: every one is accounted for, and doing it again changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streammem.connectors.connector import Given
from streammem.connectors.kafka_records import RecordReader
from streammem.core.events import encode
from streammem.errors import RejectedError, TransientError
from streammem.records import Event, MessageEvent, Received
from streammem.workers.connect import TELL, Connecting
from streammem.workers.stages import Done

NOW = 1_704_190_010_000_000


def said(number: int, text: str = "hi", **more: Any) -> dict[str, Any]:
    event = {"type": "message", "user": "U1", "channel": "C1", "text": text, "ts": f"17041900{number:02d}.000100"}
    return {"type": "event_callback", "team_id": "T1", "event_id": f"Ev{number}", "event": event | more}


def note(message: str, **more: Any) -> dict[str, Any]:
    resource = f"chats('19:def@thread.v2')/messages('{message}')"
    return {"changeType": "created", "tenantId": "t-1", "resource": resource, "resourceData": {"id": message}} | more


def record(value: Any, offset: int = 0, topic: str = "chat.raw.slack.v1", key: bytes | None = None) -> Received:
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Received(topic=topic, partition=1, offset=offset, at=NOW, key=key, value=raw)


class Told:
    """The stage and what it produced. `fault` is raised once, after so many events of a batch have gone out."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.events: list[Event] = []
        self.fault, self.now = fault, 0.0
        self.stage = Connecting(self._produce, RecordReader(Given()), lambda: self.now)

    async def _produce(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessageEvent) and "too large" in event.text:
                raise RejectedError("too-large", "more than the topic takes")
            self.events.append(event)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

    async def do(self, *values: Any, **rest: Any) -> Done:
        return await self.stage([record(value, n, **rest) for n, value in enumerate(values)])

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, MessageEvent)]


@pytest.fixture
def told() -> Told:
    return Told()


async def test_payloads_become_events_that_say_where_they_came_from(told: Told) -> None:
    done = await told.do(said(1, "one"), said(2, "two"))
    assert (done.handled, done.refused, told.texts) == (2, (), ["one", "two"])
    (first, _) = told.events
    assert isinstance(first, MessageEvent)
    assert (first.workspace, first.channel.id, first.id) == ("T1", "C1", "1704190001.000100")
    assert first.ingest is not None
    assert first.ingest.origin == "chat.raw.slack.v1/1@0"


async def test_poison_goes_to_the_dead_letters_and_costs_nothing_else(told: Told) -> None:
    done = await told.do(said(1, "one"), b"\xfe\xff\x00\x01", said(2, "two"), {"hello": "world"}, said(3, "three"))
    assert (done.handled, told.texts) == (3, ["one", "two", "three"])
    letters = [(letter.role, letter.topic, letter.partition, letter.offset, letter.reason) for letter in done.refused]
    assert letters[0] == ("connect", "chat.raw.slack.v1", 1, 1, "not-json")
    assert (letters[1][3], done.refused[0].value, done.refused[0].size) == (3, b"\xfe\xff\x00\x01", 4)


async def test_a_page_keeps_its_good_rows_and_has_one_letter_for_each_reason(told: Told) -> None:
    rows = [said(n)["event"] for n in range(3)]
    bad = [{**rows[0], "ts": "never"}] * 12
    done = await told.do({"ok": True, "channel": "C1", "messages": [*rows, *bad, 17]})
    assert (done.handled, len(told.texts)) == (1, 3)
    assert sorted(letter.reason for letter in done.refused) == ["no-timestamp", "not-an-object"]


async def test_a_batch_given_again_gives_the_same_events(told: Told) -> None:
    batch = (said(1), said(1), note("1704190000000"), None, said(2, subtype="message_deleted", deleted_ts="1.0"))
    first = [await told.do(*batch), [encode(event) for event in told.events]]
    again = Told()
    assert [await again.do(*batch), [encode(event) for event in again.events]][1] == first[1]


async def test_what_was_produced_before_a_crash_is_only_produced_twice(told: Told) -> None:
    told.fault = TransientError("killed between the produce and the commit")
    with pytest.raises(TransientError):
        await told.do(said(1, "one"), said(2, "two"))
    done = await told.do(said(1, "one"), said(2, "two"))
    assert (done.handled, told.texts) == (2, ["one", "two", "one", "two"])
    assert [encode(event) for event in told.events[:2]] == [encode(event) for event in told.events[2:]]


async def test_what_notifications_do_not_hold_is_a_letter_and_no_refusal(told: Told) -> None:
    locked = note("1704190000001", encryptedContent={"data": "x"})
    done = await told.do({"value": [note("1704190000000"), locked]}, topic="chat.raw.teams.v1")
    assert (done.handled, told.events) == (1, [])
    (letter,) = done.refused
    assert letter.reason == "pending-fetch"
    assert "19:def@thread.v2/1704190000000" in letter.detail
    assert "19:def@thread.v2/1704190000001" in letter.detail


async def test_what_the_product_says_it_lost_is_logged(told: Told) -> None:
    lost = {"lifecycleEvent": "missed", "subscriptionId": "s", "tenantId": "t-1"}
    with capture_logs() as logs:
        done = await told.do({"value": [lost]}, topic="chat.raw.teams.v1")
    assert (done.handled, done.refused) == (1, ())
    assert [(line["reason"], line["offset"]) for line in logs] == [("missed-notifications", 0)]


async def test_what_says_nothing_is_counted_by_reason_and_told_now_and_then(told: Told) -> None:
    nothing = [said(1, subtype="message_replied"), None, b"", b" "]
    with capture_logs() as logs:
        assert (await told.do(*nothing)).handled == 4
        assert told.stage.ignored == {"thread-notice": 1, "null-value": 1, "empty-value": 2}
        assert logs == []
        told.now += TELL
        await told.do(b"")
        await told.do(b"")
    assert [(line["event"], line["empty-value"]) for line in logs] == [("ignored since the start", 3)]
    assert told.events == []


async def test_a_null_value_under_the_key_of_a_message_is_its_deletion(told: Told) -> None:
    await told.stage([record(None, key=b"slack:T1:C1:1704190001.000100")])
    (gone,) = told.events
    assert isinstance(gone, MessageEvent)
    assert (gone.op, gone.id, gone.version) == ("delete", "1704190001.000100", "1704190010.000000")


async def test_an_event_that_its_topic_does_not_take_is_given_up_alone(told: Told) -> None:
    done = await told.do(*(said(n, "too large" if n in (3, 11) else f"{n}") for n in range(20)))
    assert sorted({*map(int, told.texts)}) == [n for n in range(20) if n not in (3, 11)]
    assert [(letter.reason, letter.offset) for letter in done.refused] == [("too-large", 3), ("too-large", 11)]


async def test_products_do_not_erase(told: Told) -> None:
    erased = {"event": "erasure", "workspace": "T1", "entity": "user", "id": "U1"}
    done = await told.do(erased, said(1, "one"))
    assert (told.texts, [letter.reason for letter in done.refused]) == (["one"], ["erasure"])
    assert len(told.events) == 1


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.binary(max_size=30) | st.none() | st.sampled_from([json.dumps(said(1)).encode(), b"[{}]"]), max_size=6)
)
async def test_every_record_is_handled_or_refused(values: list[bytes | None]) -> None:
    done = await Told().do(*values)
    refused = {letter.offset for letter in done.refused}
    assert done.handled + len(refused) >= len(values)
    assert done.handled <= len(values)
