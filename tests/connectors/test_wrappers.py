"""What bridges and exporters wrap around a payload is taken off, whatever is inside whatever."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors.report import IgnoredError
from streammem.connectors.wrappers import DEPTH, Found, Payload, Tombstone, unwrapped
from streammem.errors import RejectedError
from streammem.records import Received

ROW = {"type": "message", "user": "U1", "channel": "C1", "text": "hi", "ts": "1704190000.000100"}
SOCKET = {"envelope_id": "e", "type": "events_api", "payload": {"type": "event_callback", "event": ROW}}
EVENT = {"specversion": "1.0", "type": "com.slack.message", "source": "/slack/T0001", "id": "Ev1"}
DEBEZIUM = {"before": None, "after": ROW, "source": {"ts_ms": 1704190009000, "table": "slack_messages"}, "op": "c"}


def record(value: Any, key: bytes | None = None, **headers: str) -> Received:
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    pairs = tuple((name, said.encode()) for name, said in headers.items())
    return Received(topic="t", partition=0, offset=7, at=0, key=key, value=raw, headers=pairs)


def found(value: Any, key: bytes | None = None, **headers: str) -> list[Any]:
    """Everything in a record: values of payloads, and the reasons of what cannot be used."""
    return [_plain(part) for part in unwrapped(record(value, key, **headers))]


def _plain(part: Found) -> Any:
    if isinstance(part, IgnoredError | RejectedError):
        return type(part).__name__, part.reason
    return part.value if isinstance(part, Payload) else part


WRAPPED = {
    "nothing": ROW,
    "a CloudEvent": {**EVENT, "data": ROW},
    "a CloudEvent with bytes": {**EVENT, "data_base64": base64.b64encode(json.dumps(ROW).encode()).decode()},
    "a CloudEvent of a text": {**EVENT, "data": json.dumps(ROW)},
    "Debezium, a new row": DEBEZIUM,
    "Debezium, a changed row": {**DEBEZIUM, "op": "u", "before": {"text": "ho"}},
    "Debezium, a row of the snapshot": {**DEBEZIUM, "op": "r"},
    "Debezium with its schema": {"schema": {"type": "struct"}, "payload": DEBEZIUM},
    "Debezium, made flat": {**ROW, "__deleted": "false", "__op": "u", "__ts_ms": 1},
    "Kafka Connect": {"schema": {"type": "struct", "name": "com.slack.message"}, "payload": ROW},
    "Kafka Connect without a schema": {"schema": None, "payload": ROW},
    "Kafka Connect of a text": {"schema": {"type": "string"}, "payload": json.dumps(ROW)},
    "Airbyte": {"type": "RECORD", "record": {"stream": "channel_messages", "data": ROW, "emitted_at": 1}},
    "Airbyte's raw table": {"_airbyte_raw_id": "r", "_airbyte_extracted_at": 1, "_airbyte_data": json.dumps(ROW)},
    "a text": json.dumps(ROW),
    "a text in a text": json.dumps(json.dumps(ROW)),
    "the mark of a schema registry": b"\0\0\0\0\x07" + json.dumps(ROW).encode(),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(ROW).encode(),
    "a CloudEvent in Kafka Connect": {"schema": None, "payload": {**EVENT, "data": ROW}},
    "Debezium in a CloudEvent in Kafka Connect": {"payload": {**EVENT, "data": json.dumps(DEBEZIUM)}},
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_payload_comes_out_of_its_wrappers(name: str) -> None:
    assert found(WRAPPED[name]) == [ROW]


@pytest.mark.parametrize("row", [SOCKET, SOCKET["payload"], {"ok": True, "messages": [ROW]}, {"value": [{"id": "1"}]}])
def test_what_a_product_sends_itself_is_no_wrapper(row: Any) -> None:
    assert found(row) == [row]


def test_a_batch_gives_each_of_its_payloads_and_what_cannot_be_used_costs_no_other() -> None:
    batch = [{**EVENT, "data": ROW}, {**EVENT}, 17, {**EVENT, "data": SOCKET}]
    assert found(batch) == [ROW, ("IgnoredError", "no-data"), ("RejectedError", "not-an-object"), SOCKET]


NOTHING = {
    "no bytes": (b"", "empty-value"),
    "blanks": (b" \n", "empty-value"),
    "null": (b"null", "null-value"),
    "a null of Kafka Connect": ({"schema": None, "payload": None}, "null-value"),
    "an empty list": ([], "empty"),
    "a CloudEvent without data": (EVENT, "no-data"),
    "a row of Debezium that was not told": ({**DEBEZIUM, "after": None}, "no-data"),
    "a truncated table": ({"op": "t", "source": {}, "ts_ms": 1}, "other-type"),
    "a state of Airbyte": ({"type": "STATE", "state": {"data": {}}}, "other-type"),
    "a log line of Airbyte": ({"type": "LOG", "log": {"level": "INFO", "message": "hi"}}, "other-type"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_says_nothing_is_ignored_with_a_reason(name: str) -> None:
    value, reason = NOTHING[name]
    assert found(value) == [("IgnoredError", reason)]


REFUSED = {
    "bytes": (b"\xfe\xff\x00\x01", "not-json"),
    "Avro behind the mark of a registry": (b"\0\0\0\0\x07\x02\x08abcd", "not-json"),
    "a text that is no JSON": ('"hello"', "not-json"),
    "a number": (17, "not-an-object"),
    "a deletion of nothing": ({**DEBEZIUM, "op": "d"}, "no-before"),
    "base64 that is none": ({**EVENT, "data_base64": "%%%"}, "not-json"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_a_reason(name: str) -> None:
    value, reason = REFUSED[name]
    assert found(value) == [("RejectedError", reason)]


def test_wrappers_may_not_go_on_for_ever() -> None:
    value: Any = ROW
    for _ in range(DEPTH - 1):
        value = {"payload": value}
    assert found(value) == [ROW]
    assert found({"payload": value}) == [("RejectedError", "nested-too-deeply")]


# ------------------------------------------------------------------------------------------------------ what is told


def told(value: Any, key: bytes | None = None, **headers: str) -> tuple[str, str]:
    (part,) = unwrapped(record(value, key, **headers))
    assert isinstance(part, Payload)
    return part.product, part.workspace


def test_wrappers_tell_the_product_and_the_workspace() -> None:
    assert told({**EVENT, "data": {}}) == ("slack", "T0001")
    graph = {**EVENT, "type": "Microsoft.Graph.ChatMessageCreated", "source": "/tenants/t-1/applications/a"}
    assert told({**graph, "data": {}}) == ("teams", "t-1")
    assert told({}, ce_type="com.slack.message", ce_source="/slack/T2") == ("slack", "T2")
    assert told({}, **{"Ce-Type": "x", "CE_SOURCE": "https://acme.example/teams/t-2"}) == ("teams", "t-2")
    assert told(DEBEZIUM) == ("slack", "")
    assert told(WRAPPED["Kafka Connect"]) == ("slack", "")
    assert told({}, b"teams:t-3:19:abc@thread.tacv2:1704190000000") == ("teams", "t-3")
    assert told({}) == ("", "")


def test_a_deleted_row_is_told_with_its_time() -> None:
    gone = {"channel": "C1", "ts": "1704190000.000100"}
    for value in ({**DEBEZIUM, "op": "d", "before": gone, "after": None}, {**gone, "__deleted": True, "__ts_ms": 5}):
        (part,) = unwrapped(record(value))
        assert isinstance(part, Payload)
        assert (part.value, part.deleted, part.at > 0) == (gone, True, True)


# --------------------------------------------------------------------------------------------------------- null values

KEYS = {
    b"slack:T0001:C0001:1704190000.000100": ("slack", "T0001", "C0001", "1704190000.000100"),
    b"slack:T0001:C0001:syn:slack-input/0/42": ("slack", "T0001", "C0001", "syn:slack-input/0/42"),
    b"teams:t-1:19:abc@thread.tacv2:1704190000000": ("teams", "t-1", "19:abc@thread.tacv2", "1704190000000"),
    b"matrix:example.org:!r:example.org:$e:example.org": ("matrix", "example.org", "!r:example.org", "$e:example.org"),
    b'"slack:T0001:C0001:1704190000.000100"': ("slack", "T0001", "C0001", "1704190000.000100"),
    b'{"schema": null, "payload": "slack:T0001:C0001:1.0"}': ("slack", "T0001", "C0001", "1.0"),
}


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_null_value_under_the_key_of_a_message_is_its_deletion(key: bytes) -> None:
    assert found(None, key) == [Tombstone(*KEYS[key])] == found(b"null", key)


@pytest.mark.parametrize(
    "key", [None, b"", b"k", b"C0001", b"\xff\xfe", b"a:b:c:d", b"slack:T1:C1", b"{", b"17"], ids=repr
)
def test_a_null_value_under_any_other_key_is_ignored(key: bytes | None) -> None:
    assert found(None, key) == [("IgnoredError", "null-value")]


def test_empty_bytes_are_no_deletion() -> None:
    assert found(b"", b"slack:T0001:C0001:1704190000.000100") == [("IgnoredError", "empty-value")]


# ------------------------------------------------------------------------------------------------------------ any input

NAMES = [
    *EVENT,
    *DEBEZIUM,
    *ROW,
    "data",
    "data_base64",
    "payload",
    "schema",
    "record",
    "stream",
    "_airbyte_data",
    "__deleted",
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["RECORD", "STATE", "c", "d", "t", "1.0", "{}", '{"payload": null}', "[[]]", "null"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=400)
@given(
    VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40), st.none() | st.binary(max_size=30)
)
def test_whatever_a_record_holds_there_is_an_account_of_it(value: bytes, key: bytes | None) -> None:
    parts = unwrapped(record(value, key, ce_type="x"))
    assert parts
    assert all(isinstance(part, Payload | Tombstone | IgnoredError | RejectedError) for part in parts)
    assert all(isinstance(part.value, dict) for part in parts if isinstance(part, Payload))


def test_values_and_keys_in_base64_are_read() -> None:
    def packed(text: str) -> bytes:
        return base64.b64encode(text.encode())

    assert found(packed(json.dumps(ROW))) == [ROW]
    assert found(None, packed("slack:T1:C1:1704190000.000100")) == [
        Tombstone("slack", "T1", "C1", "1704190000.000100"),
    ]
    assert found(packed("no JSON at all")) == [("RejectedError", "not-json")]
    assert found(b"1234567890123456") == [("RejectedError", "not-an-object")]


def test_a_cloud_event_without_a_value_ends_the_message_that_its_subject_names() -> None:
    told = {"ce_specversion": "1.0", "ce_type": "chat.message.deleted", "ce_source": "/slack/T1"}
    ended = Tombstone("slack", "T1", "C1", "1704190000.000100")
    assert found(None, b"k", **told, ce_subject="C1/1704190000.000100") == [ended]
    assert found(None, None, **told) == [("IgnoredError", "null-value")]


@pytest.mark.parametrize(("gone", "deleted"), [("2024-01-02T10:00:00Z", True), (None, False), ("", False)])
def test_a_row_that_airbyte_saw_go_is_deleted(gone: str | None, *, deleted: bool) -> None:
    data = {**ROW, "_ab_cdc_deleted_at": gone, "_ab_cdc_lsn": 1}
    (part,) = unwrapped(record({"type": "RECORD", "record": {"stream": "slack_messages", "data": data}}))
    assert isinstance(part, Payload)
    assert (part.value, part.deleted) == (ROW, deleted)


def test_a_row_in_the_json_of_avro_is_read_without_the_names_of_its_types() -> None:
    typed = {"db.public.slack_messages.Value": {key: {"string": value} for key, value in ROW.items()}}
    row = {"before": None, "after": typed, "source": {"table": "slack_messages"}, "op": "c", "ts_ms": {"long": 5}}
    assert found(row) == [ROW]
    (gone,) = unwrapped(record({**row, "before": typed, "after": None, "op": "d"}))
    assert isinstance(gone, Payload)
    assert (gone.value, gone.deleted, gone.at) == (ROW, True, 5000)
