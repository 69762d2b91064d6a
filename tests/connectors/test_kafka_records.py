"""Dumps of Kafka topics, and what only a record tells of its message."""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Given, Report, kafka_records
from streammem.connectors.by_record import NEVER_UNDONE_MS
from streammem.connectors.slack.message import NEVER_UNDONE
from streammem.core.events import decode, encode, micros
from streammem.records import ErasureEvent, Event, MessageEvent, ReactionEvent, UserEvent
from tests.connectors.faults import expected, hold, named, written
from tests.connectors.test_any_input import mutated

SAID = {"type": "message", "user": "U1", "channel": "C1", "text": "hi", "ts": "1704190000.000100", "team_id": "T1"}
CHAT = {
    "id": "1704190000000",
    "messageType": "message",
    "createdDateTime": "2024-01-02T10:06:40Z",
    "etag": "1704190000000",
    "chatId": "19:def@thread.v2",
    "from": {"user": {"id": "u-1", "displayName": "Ada"}},
    "body": {"contentType": "text", "content": "hi"},
}
AT = 1_704_190_003_000


def dump(path: Path, *rows: Any, **given: str) -> tuple[list[Event], Report]:
    """Read a dump and hold it to what every source must keep."""
    file = path / "dump.jsonl"
    file.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    report = Report()
    events = list(kafka_records.read(file, report, Given(**given)))
    assert [decode(encode(event)) for event in events] == events
    counts = (report.ignored.total(), report.rejected.total(), report.accepted, report.duplicates, report.superseded)
    assert report.read == sum(counts)
    assert len(report.refusals) == report.rejected.total()
    assert (report.bytes_done, report.entries_done) == (report.bytes_total, report.entries_total)
    return events, report


def only(path: Path, row: Any, **given: str) -> Any:
    (event,), _ = dump(path, row, **given)
    return event


def record(value: Any, **around: Any) -> dict[str, Any]:
    return {
        "key": None,
        "topic": "chat.raw.slack.v1",
        "partition": 2,
        "offset": 9,
        "timestamp_ms": AT,
        "value": value,
    } | around


def test_the_fault_of_the_wrappers_gives_its_right_result(tmp_path: Path) -> None:
    report, right = Report(), expected("32")
    events = list(kafka_records.read(written(named("32"), tmp_path), report, Given()))
    right["messages"].sort(key=lambda message: (message["channel"], message["id"]))
    hold(events, report, right)


# ----------------------------------------------------------------------------------------------------------- dumps

SHAPES = {
    "an object with the value as it is": record(SAID),
    "an object with the value as text": record(json.dumps(SAID)),
    "an object with the value in base64": {
        "topic": "chat.raw.slack.v1",
        "value_b64": base64.b64encode(json.dumps(SAID).encode()).decode(),
    },
    "kcat -J": {
        "topic": "chat.raw.slack.v1",
        "partition": 0,
        "offset": 4,
        "tstype": "create",
        "ts": AT,
        "broker": 1,
        "headers": ["content-type", "application/json", "odd"],
        "key": None,
        "payload": json.dumps(SAID),
    },
    "rpk topic consume": {"topic": "slack", "value": json.dumps(SAID), "timestamp": AT, "partition": 0, "offset": 1},
    "the value alone": SAID,
    "another topic": record(SAID, topic="acme.slack-messages"),
    "a topic that says nothing": record(SAID, topic="messages"),
    "headers in pairs": record(SAID, headers=[["a", "b"], {"key": "c", "value": "d"}, 17]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_record_is_read_however_the_dump_writes_it(name: str, tmp_path: Path) -> None:
    event = only(tmp_path, SHAPES[name])
    assert isinstance(event, MessageEvent)
    assert (event.workspace, event.channel.id, event.id, event.text) == ("T1", "C1", "1704190000.000100", "hi")
    assert event.ingest is not None
    assert event.ingest.origin == "dump.jsonl#1"
    assert kafka_records.recognises(tmp_path / "dump.jsonl") is (name != "the value alone")


@pytest.mark.parametrize(
    "row",
    [
        record(CHAT, topic="chat.raw.teams.v1"),
        record(CHAT, topic="t", headers={"ce_source": "/tenants/t-1", "ce_type": "Microsoft.Graph.chatMessage"}),
        record(CHAT, topic="t"),
        record({"value": [CHAT]}, topic="t"),
    ],
)
def test_a_message_of_teams_is_known_by_its_topic_its_wrapper_or_its_looks(row: Any, tmp_path: Path) -> None:
    event = only(tmp_path, row)
    assert (event.source, event.id, event.text) == ("teams", "1704190000000", "hi")


def test_canonical_events_in_a_dump_stay_what_they_are(tmp_path: Path) -> None:
    said = {"event": "message", "workspace": "w", "channel": {"id": "c"}, "id": "1", "ts": "2024-01-01T00:00:00Z"}
    gone = {"op": "delete", "tenant": "w", "channel": {"id": "c"}, "id": "1", "version": "9"}
    erased = {"event": "erasure", "workspace": "w", "entity": "user", "id": "u"}
    rows = (record({**said, "text": "hi"}), {**said, "id": "2", "text": "ho"}, record(gone), record(erased))
    events, _ = dump(tmp_path, *rows)
    assert [type(event) for event in events] == [MessageEvent, MessageEvent, MessageEvent, ErasureEvent]
    assert [event.op for event in events[:3]] == ["upsert", "upsert", "delete"]  # type: ignore[union-attr]


def test_what_nobody_knows_is_refused(tmp_path: Path) -> None:
    rows = (
        record({"hello": "world"}, topic="t"),
        record(None, value_b64="%"),
        b"not json",
        b"17",
        b'{"value": 1, "key": 2}',
    )
    events, report = dump(tmp_path, *rows)
    assert events == []
    assert report.rejected == {"unknown-payload": 1, "not-base64": 1, "not-json": 1, "not-an-object": 2}


def test_rows_of_airbyte_have_its_own_name_for_the_channel_and_lists_in_pieces(tmp_path: Path) -> None:
    row = {key: value for key, value in SAID.items() if key != "channel"} | {
        "channel_id": "C7",
        "float_ts": 1704190000.0001,
    }
    rows = [
        {"type": "RECORD", "record": {"stream": stream, "namespace": "slack", "data": data}}
        for stream, data in {
            "channel_messages": row,
            "users": {"id": "U1", "name": "ada", "team_id": "T1", "profile": {"real_name": "Ada"}},
            "channels": {"id": "C7", "name": "ops", "is_channel": True, "is_private": False, "context_team_id": "T1"},
        }.items()
    ]
    events, _ = dump(tmp_path, *rows, workspace="acme")
    assert {type(event).__name__ for event in events} >= {"MessageEvent", "UserEvent", "ChannelEvent"}
    (said,) = [event for event in events if isinstance(event, MessageEvent)]
    assert (said.channel.id, said.id) == ("C7", "1704190000.000100")
    assert [event.name for event in events if isinstance(event, UserEvent)] == ["Ada"]


def test_the_order_of_records_changes_nothing(tmp_path: Path) -> None:
    rows = [
        record(SAID),
        record({**SAID, "edited": {"ts": "1704190005.000000"}, "text": "ho"}),
        record(CHAT, topic="teams"),
    ]
    orders = [dump(tmp_path, *some)[0] for some in itertools.permutations(rows)]
    bare = [sorted(encode(_anywhere(event)) for event in events) for events in orders]
    assert all(events == bare[0] for events in bare)


def _anywhere(event: Event) -> Event:
    return msgspec.structs.replace(event, ingest=None) if isinstance(event, MessageEvent) else event


# --------------------------------------------------------------------------------------------------------- deletions

GONE = {"channel": "C1", "ts": "1704190000.000100", "team_id": "T1"}
DELETED = {"op": "d", "before": GONE, "after": None}


@pytest.mark.parametrize(
    ("row", "version"),
    [
        (record(None, key="slack:T1:C1:1704190000.000100"), "1704190003.000000"),
        (record(None, key="slack:T1:C1:1704190000.000100", timestamp_ms=None), NEVER_UNDONE),
        (record(None, key="slack:T1:C1:1704190000.000100", timestamp_ms=1), NEVER_UNDONE),
        (record(None, key="slack:T1:C1:1704190000.0001"), "1704190003.000000"),
        (record(None, key_b64="c2xhY2s6VDE6QzE6MTcwNDE5MDAwMC4wMDAxMDA="), "1704190003.000000"),
        (record(DELETED), "1704190003.000000"),
        (record(DELETED, timestamp_ms=-1), NEVER_UNDONE),
        (record(DELETED | {"ts_ms": 1704190001500}), "1704190001.500000"),
        (record(DELETED | {"ts_ms": 1}), "1704190003.000000"),
        (record(DELETED | {"ts_ms": 7, "source": {"ts_ms": 1704190002000}}), "1704190002.000000"),
        (record({**SAID, "__deleted": "true"}), "1704190003.000000"),
        (record(DELETED | {"before": {"type": "event_callback", "team_id": "T1", "event": GONE}}), "1704190003.000000"),
    ],
)
def test_a_deletion_of_slack_has_the_time_that_is_known_in_seconds(row: Any, version: str, tmp_path: Path) -> None:
    event = only(tmp_path, row)
    assert (event.op, event.source, event.workspace, event.channel.id) == ("delete", "slack", "T1", "C1")
    assert (event.id, event.version, event.text) == ("1704190000.000100", version, "")
    assert (event.deleted_at is None) == (version == NEVER_UNDONE)


@pytest.mark.parametrize(
    ("row", "version"),
    [
        (record(None, topic="t", key="teams:t-1:19:def@thread.v2:1704190000000"), str(AT)),
        (record(None, topic="t", key="teams:t-1:19:def@thread.v2:1704190000000", timestamp_ms=0), NEVER_UNDONE_MS),
        (record({"op": "d", "before": CHAT}, topic="teams"), str(AT)),
        (record({"op": "d", "before": CHAT, "ts_ms": AT - 1}, topic="teams"), str(AT - 1)),
    ],
)
def test_a_deletion_of_teams_has_the_time_that_is_known_in_milliseconds(row: Any, version: str, tmp_path: Path) -> None:
    event = only(tmp_path, row)
    assert (event.op, event.source, event.channel.id) == ("delete", "teams", "19:def@thread.v2")
    assert (event.id, event.version) == ("1704190000000", version)


def test_a_deleted_canonical_row_is_deleted(tmp_path: Path) -> None:
    said = {"event": "message", "source": "zulip", "workspace": "w", "channel": {"id": "c"}, "id": "1", "text": "hi"}
    event = only(tmp_path, record({"op": "d", "before": {**said, "ts": "2024-01-01T00:00:00Z"}}))
    assert (event.op, event.id, event.version, event.text) == ("delete", "1", str(AT), "")


def test_a_deletion_of_which_its_product_tells_no_time_has_the_time_of_its_record(tmp_path: Path) -> None:
    note = {
        "changeType": "deleted",
        "tenantId": "t-1",
        "resource": "chats('19:def@thread.v2')/messages('1704190000000')",
        "resourceData": {"id": "1704190000000"},
    }
    tombstone = {"type": "message", "subtype": "tombstone", "channel": "C1", "ts": "1704190000.000100"}
    events, _ = dump(tmp_path, record({"value": [note]}, topic="teams"), record(tombstone))
    assert [event.version for event in events if isinstance(event, MessageEvent)] == [str(AT), "1704190003.000000"]
    dated = {**note, "resourceData": {"id": "1704190000000", "etag": "1704190000500"}}
    stated = only(tmp_path, record({"value": [dated]}, topic="teams"))
    assert stated.version == "1704190000500"


def test_the_change_of_a_row_that_tells_no_edit_has_the_time_of_the_change(tmp_path: Path) -> None:
    def version(row: Any, op: str = "u", **more: Any) -> str:
        return str(
            only(tmp_path, record({"op": op, "after": row, **more}, topic="teams" if row is CHAT else "slack")).version
        )

    assert version(SAID) == "1704190003.000000"
    assert version(SAID, ts_ms=1704190002500) == "1704190002.500000"
    assert version(SAID, "c", ts_ms=1704190002500) == version(SAID, "r") == "0"
    assert version({**SAID, "edited": {"ts": "1704190001.000000"}}) == "1704190001.000000"
    assert version(CHAT, ts_ms=AT) == str(AT)
    flat = only(tmp_path, record({**SAID, "__deleted": "false", "__op": "u", "__ts_ms": AT - 1000}))
    assert (flat.version, flat.text) == ("1704190002.000000", "hi")


def test_a_deletion_that_names_no_message_is_refused(tmp_path: Path) -> None:
    events, report = dump(
        tmp_path, record({"op": "d", "before": {"channel": "C1"}}), record({"op": "d", "before": None})
    )
    assert (events, report.rejected.total()) == ([], 2)


# ------------------------------------------------------------------------------------------------------------- names

BARE = {"user": "U1", "channel": "C1", "text": "no ts", "reactions": [{"name": "wave", "users": ["U2"], "count": 1}]}


def test_a_message_without_a_name_has_that_of_its_record(tmp_path: Path) -> None:
    events, _ = dump(tmp_path, record(BARE), workspace="acme")
    said, waved = events
    assert isinstance(said, MessageEvent)
    assert isinstance(waved, ReactionEvent)
    assert said.id == waved.message == "syn:chat.raw.slack.v1/2/9"
    assert said.ts is not None
    assert (micros(said.ts), said.text) == (AT * 1000, "no ts")


def test_a_message_of_teams_without_a_name_has_that_of_its_record(tmp_path: Path) -> None:
    bare = {key: value for key, value in CHAT.items() if key not in ("id", "etag", "createdDateTime")}
    event = only(tmp_path, record(bare, topic="teams"))
    assert (event.id, event.text) == ("syn:teams/2/9", "hi")
    assert micros(event.ts) == AT * 1000


@pytest.mark.parametrize("time", [AT, str(AT), "2024-01-02T10:06:43Z", "2024-01-02 11:06:43+01:00"])
def test_the_time_of_a_record_may_be_written_in_many_ways(time: Any, tmp_path: Path) -> None:
    row = record(BARE | {"reactions": []}) | {"timestamp": time}
    del row["timestamp_ms"]
    assert micros(only(tmp_path, row, workspace="acme").ts) == AT * 1000


def test_records_of_one_moment_are_messages_of_their_own(tmp_path: Path) -> None:
    events, report = dump(tmp_path, *(record({**BARE, "reactions": []}, offset=n) for n in range(3)), workspace="acme")
    assert len({event.id for event in events if isinstance(event, MessageEvent)}) == report.accepted == 3


def test_messages_of_one_record_are_messages_of_their_own(tmp_path: Path) -> None:
    events, _ = dump(tmp_path, record([BARE | {"reactions": []}] * 2), workspace="acme")
    assert [event.id for event in events if isinstance(event, MessageEvent)] == [
        "syn:chat.raw.slack.v1/2/9/0",
        "syn:chat.raw.slack.v1/2/9/1",
    ]


@pytest.mark.parametrize("around", [{"timestamp_ms": None}, {"offset": None}, {"topic": None}])
def test_a_record_without_a_time_or_a_place_names_nothing(around: dict[str, Any], tmp_path: Path) -> None:
    events, report = dump(tmp_path, record({**BARE, "team_id": "T1"}, **around))
    assert (events, report.rejected.total()) == ([], 1)


def test_a_name_that_is_wrong_is_no_missing_one(tmp_path: Path) -> None:
    events, report = dump(tmp_path, record({**SAID, "ts": "yesterday"}))
    assert (events, report.rejected.total()) == ([], 1)


# --------------------------------------------------------------------------------------------------------- any input


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        mutated(record({"payload": DELETED | {"after": SAID, "op": "u"}}, headers={"ce_type": "slack"})), max_size=3
    )
)
def test_a_damaged_record_never_costs_another(rows: list[bytes]) -> None:
    good = record({**SAID, "text": "after"})
    with tempfile.TemporaryDirectory() as folder:
        events, _ = dump(Path(folder), *(row.replace(b"\n", b" ") for row in rows), good)
    assert isinstance(events[-1], MessageEvent)
    assert events[-1].text == "after"


def test_the_records_that_a_cloud_function_is_called_with_are_read(tmp_path: Path) -> None:
    def packed(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    around = {"topic": "chat", "partition": 0, "timestamp": AT, "timestampType": "CREATE_TIME", "key": packed("k")}
    told = [{"ce_type": [*b"com.slack.message"]}, {"ce_source": [*b"/slack/T7"]}, {"odd": {}}]
    first = {**around, "offset": 1, "value": packed(json.dumps({**SAID, "team_id": None})), "headers": told}
    second = {**around, "offset": 2, "value": None, "key": packed("slack:T7:C1:1704190000.000100"), "headers": []}
    batch = {"eventSource": "aws:kafka", "records": {"chat-0": [first], "chat-1": [second, 7]}}
    (said, gone), report = dump(tmp_path, batch)
    assert (said.workspace, said.text, gone.op, gone.id) == ("T7", "hi", "delete", said.id)
    assert said.ingest.origin.endswith("#1/0")
    assert report.rejected == {"not-an-object": 1}
    assert kafka_records.recognises(tmp_path / "dump.jsonl")
