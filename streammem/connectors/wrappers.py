"""One Kafka record to the chat payloads in it: what bridges, databases and exporters wrap around them is taken off.

CloudEvents (structured, binary, batch), Debezium, Kafka Connect, Airbyte, the mark of a schema registry, JSON in JSON,
and any of them inside another. What no wrapper is goes through as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from typing import Any

from streammem.connectors.fields import Row, as_row, count_of, row_of, text_of
from streammem.connectors.json_rows import loads
from streammem.connectors.report import IgnoredError
from streammem.errors import RejectedError
from streammem.records import Received

DEPTH = 8
"""Wrappers inside each other, at most."""
NULL = "null-value"

_PRODUCTS = (("slack", re.compile(r"slack")), ("teams", re.compile(r"teams|microsoft\.graph|msgraph")))
_SOURCES = frozenset(
    ("slack", "teams", "mattermost", "discord", "zulip", "rocketchat", "matrix", "gitter", "generic"),
)
_KEY = re.compile(r"([a-z]+):([^:]+):(.+?):(syn:.+|\$.+|[^:]+)")
"""source:tenant:channel:id. Teams has colons in its channels, Matrix in both, made-up ids begin with `syn:`."""
_WORKSPACE = re.compile(r"(?:slack|teams|tenants)/([^/?#]+)", re.IGNORECASE)
_ROW_OPS = frozenset("crud")
_OTHER_OPS = frozenset("tm")
_AIRBYTE_OTHERS = frozenset(("STATE", "LOG", "TRACE", "SPEC", "CATALOG", "CONNECTION_STATUS", "CONTROL"))
_AVRO_TYPES = frozenset(("string", "int", "long", "float", "double", "boolean", "bytes", "array", "map"))
_BUSY = re.compile(rb"\s*[\[{\"]")
_SUBJECT = re.compile(r"([^/]+)/(.+)")
"""channel/id, as CloudEvents about messages name theirs."""
_KEYS = re.compile(rb"[a-z]{4,10}:[^:]+:")
_PACKED = re.compile(rb"[A-Za-z0-9+/]{8,}={0,2}")


@dataclass(frozen=True)
class Payload:
    """What a product sent, and what its wrappers say of it: empty where they say nothing.

    `deleted`: the value names or is a message that is gone, `changed`: it is a row that was another one before, both
    since `at` (µs, 0 when not told). `stream` is Airbyte's.
    """

    value: Any = None
    product: str = ""
    workspace: str = ""
    stream: str = ""
    deleted: bool = False
    changed: bool = False
    at: int = 0


@dataclass(frozen=True)
class Tombstone:
    """A message that is gone, by the key of a record without a value."""

    source: str
    workspace: str
    channel: str
    id: str


Found = Payload | Tombstone | IgnoredError | RejectedError
_Opened = tuple[Any, Payload] | IgnoredError | RejectedError | None


def unwrapped(record: Received) -> list[Found]:
    """What is in a record, at least one thing. Never raises: what cannot be used is the error that says why."""
    if record.value is None:
        return [_tombstone(record)]
    if not record.value.strip():
        return [IgnoredError("empty-value")]
    try:
        value = loads(_unmarked(_unpacked(record.value)))
    except ValueError as error:
        return [RejectedError("not-json", str(error))]
    told = _told_by_headers(record.headers, _told_by_key(record.key))
    found = list(_opened(value, told, DEPTH))
    if len(found) == 1 and isinstance(found[0], IgnoredError) and found[0].reason == NULL:
        return [_tombstone(record)]
    return found


def product_in(*texts: str) -> str:
    """The product that one of these texts names, empty when none does."""
    lowered = [text.lower() for text in texts]
    return next((name for name, word in _PRODUCTS for text in lowered if word.search(text)), "")


def _unpacked(value: bytes) -> bytes:
    """What proxies and cloud functions hand over in base64, which is never JSON by itself."""
    if not _PACKED.fullmatch(value):
        return value
    try:
        unpacked = base64.b64decode(value, validate=True)
    except binascii.Error:
        return value
    return unpacked if _BUSY.match(_unmarked(unpacked)) or _KEYS.match(unpacked) else value


def _unmarked(value: bytes) -> bytes:
    """Without the five bytes with which a schema registry marks JSON."""
    return value[5:] if value[:1] == b"\0" and _BUSY.match(value, 5) else value


# -------------------------------------------------------------------------------------------------------- the key


def _tombstone(record: Received) -> Tombstone | IgnoredError:
    """The message that a record without a value ends: by its key, else by the headers of a CloudEvent."""
    return _named_by(record.key) or _named_in(_headers(record.headers)) or IgnoredError(NULL)


def _named_in(said: dict[str, str]) -> Tombstone | None:
    subject = _SUBJECT.fullmatch(said.get("ce_subject", ""))
    told = _told(Payload(), said.get("ce_type", ""), said.get("ce_source", ""))
    if not (subject and told.product and told.workspace):
        return None
    return Tombstone(told.product, told.workspace, subject[1], subject[2])


def _told_by_key(key: bytes | None) -> Payload:
    named = _named_by(key)
    return Payload() if named is None else Payload(product=named.source, workspace=named.workspace)


def _named_by(key: bytes | None) -> Tombstone | None:
    match = _KEY.fullmatch(_key_text(key))
    return Tombstone(*match.groups()) if match and match[1] in _SOURCES else None


def _key_text(key: bytes | None) -> str:
    """A key as text; one in JSON, of Kafka Connect perhaps, or in base64 is read."""
    if key is None:
        return ""
    key = _unmarked(_unpacked(key))
    try:
        value = loads(key) if _BUSY.match(key) else key.decode()
    except ValueError:
        return ""
    value = as_row(value).get("payload") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


# --------------------------------------------------------------------------------------------------- the wrappers


def _told_by_headers(headers: Many[tuple[str, bytes | None]], told: Payload) -> Payload:
    """What the headers of CloudEvents in binary mode say."""
    said = _headers(headers)
    return _told(told, said.get("ce_type", ""), said.get("ce_source", ""))


def _headers(headers: Many[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name.lower().replace("-", "_"): (value or b"").decode("utf-8", "replace") for name, value in headers}


def _told(told: Payload, *texts: str) -> Payload:
    """With the product and the workspace that these texts name. What stands further inside is nearer to the payload."""
    workspace = next((match[1] for text in texts if (match := _WORKSPACE.search(text))), "")
    return replace(told, product=product_in(*texts) or told.product, workspace=workspace or told.workspace)


def _opened(value: Any, told: Payload, left: int) -> Iterator[Found]:
    if not left:
        yield RejectedError("nested-too-deeply", f"more than {DEPTH} wrappers inside each other")
    elif isinstance(value, str):
        yield from _opened_text(value, told, left)
    elif isinstance(value, list):
        yield from (found for item in value for found in _opened(item, told, left - 1))
        if not value:
            yield IgnoredError("empty")
    elif isinstance(value, dict):
        yield from _opened_row(value, told, left)
    else:
        yield _no_payload(value)


def _no_payload(value: Any) -> Found:
    if value is None:
        return IgnoredError(NULL)
    return RejectedError("not-an-object", f"a payload is {type(value).__name__}")


def _opened_text(value: str, told: Payload, left: int) -> Iterator[Found]:
    """JSON in JSON."""
    try:
        inner = loads(value.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        yield RejectedError("not-json", f"a text that is no JSON: {error}")
    else:
        yield from _opened(inner, told, left - 1)


def _opened_row(row: dict[str, Any], told: Payload, left: int) -> Iterator[Found]:
    for opens in (_cloud_event, _debezium, _flat_debezium, _flat_airbyte, _airbyte, _connect):
        opened = opens(row, told)
        if isinstance(opened, tuple):
            yield from _opened(*opened, left - 1)
            return
        if opened is not None:
            yield opened
            return
    yield replace(told, value=row)


def _cloud_event(row: Row, told: Payload) -> _Opened:
    if not (text_of(row, "specversion") and text_of(row, "type") and text_of(row, "source")):
        return None
    told = _told(told, text_of(row, "type"), text_of(row, "source"))
    if row.get("data") is not None:
        return row["data"], told
    if packed := text_of(row, "data_base64"):
        try:
            return loads(_unmarked(base64.b64decode(packed, validate=True))), told
        except (ValueError, binascii.Error) as error:
            return RejectedError("not-json", f"data_base64: {error}")
    return IgnoredError("no-data")


def _debezium(row: Row, told: Payload) -> _Opened:
    op = text_of(row, "op")
    if op not in _ROW_OPS | _OTHER_OPS or not {"before", "after", "source"} & row.keys():
        return None
    if any(_is_union(row.get(side)) for side in ("before", "after")):
        row = _without_unions(row, DEPTH)
    source = row_of(row, "source")
    told = _told(told, *(text_of(source, key) for key in ("table", "collection", "schema", "db", "name")))
    if op in _OTHER_OPS:
        return IgnoredError("other-type")
    told = replace(told, at=1000 * (count_of(source, "ts_ms") or count_of(row, "ts_ms")))
    if op != "d":
        after = row.get("after")
        return IgnoredError("no-data") if after is None else (after, replace(told, changed=op == "u"))
    if row.get("before") is None:
        return RejectedError("no-before", "a deletion that does not say of what")
    return row["before"], replace(told, deleted=True)


def _is_union(value: Any) -> bool:
    """Whether a value is written as Avro's JSON writes one of several types: under the name of its type."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((name, inner),) = value.items()
    return name in _AVRO_TYPES or ("." in name and isinstance(inner, dict))


def _without_unions(value: Any, left: int) -> Any:
    if _is_union(value):
        (value,) = value.values()
    if isinstance(value, dict) and left:
        return {key: _without_unions(inner, left - 1) for key, inner in value.items()}
    return [_without_unions(inner, left - 1) for inner in value] if isinstance(value, list) and left else value


def _flat_debezium(row: Row, told: Payload) -> _Opened:
    """A row that Debezium's ExtractNewRecordState has made flat."""
    if "__deleted" not in row:
        return None
    inner = {key: value for key, value in row.items() if not key.startswith("__")}
    at = 1000 * (count_of(row, "__source_ts_ms") or count_of(row, "__ts_ms"))
    is_gone = str(row["__deleted"]).lower() == "true"
    return inner, replace(told, deleted=is_gone, changed=not is_gone and row.get("__op") == "u", at=at)


def _flat_airbyte(row: Row, told: Payload) -> _Opened:
    """A row of a database that Airbyte follows: one that is gone comes once more, with the time."""
    if "_ab_cdc_deleted_at" not in row:
        return None
    inner = {key: value for key, value in row.items() if not key.startswith("_ab_cdc_")}
    return inner, replace(told, deleted=told.deleted or bool(row["_ab_cdc_deleted_at"]))


def _airbyte(row: Row, told: Payload) -> _Opened:
    kind, record = text_of(row, "type"), row_of(row, "record")
    if kind == "RECORD" and record:
        told = replace(_told(told, text_of(record, "namespace")), stream=text_of(record, "stream"))
        return IgnoredError("no-data") if record.get("data") is None else (record["data"], told)
    if kind in _AIRBYTE_OTHERS and isinstance(row.get(_airbyte_key(kind)), dict):
        return IgnoredError("other-type")
    if "_airbyte_data" in row:
        return row["_airbyte_data"], replace(told, stream=text_of(row, "_airbyte_stream") or told.stream)
    return None


def _airbyte_key(kind: str) -> str:
    return {"CONNECTION_STATUS": "connectionStatus"}.get(kind, kind.lower())


def _connect(row: Row, told: Payload) -> _Opened:
    if "payload" not in row or not row.keys() <= {"schema", "payload"}:
        return None
    return row["payload"], _told(told, text_of(row_of(row, "schema"), "name"))
