"""A record of a Kafka topic as dumps write it in JSON: objects with their bytes as text or in base64, and `kcat -J`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from streammem.connectors.fields import as_list, as_row, row_of, text_of
from streammem.connectors.jsonl_rows import time_of
from streammem.core.events import micros
from streammem.errors import RejectedError
from streammem.records import Received

_AROUND = frozenset({"key", "headers", "topic", "partition", "offset", "timestamp_ms"})
_NOWHERE = -1


def is_record(row: Any) -> bool:
    """Whether an object is a whole record and not only the value of one. Pages of Graph have a `value`, too."""
    if not isinstance(row, dict):
        return False
    if "payload" in row and "value" not in row:
        return {"topic", "offset"} <= row.keys()
    return not {"value", "value_b64"}.isdisjoint(row) and not _AROUND.isdisjoint(row)


def rows_in(payload: Any) -> Iterator[tuple[str, Any]]:
    """The rows of a payload with the end of their origins: a batch, as cloud functions are called with, holds many."""
    if not is_batch(payload):
        yield "", payload
        return
    listed = (row for rows in payload["records"].values() for row in as_list(rows))
    yield from ((f"/{index}", row) for index, row in enumerate(listed))


def is_batch(payload: Any) -> bool:
    """Whether a payload holds the records of several partitions: lists of them by partition."""
    partitions = list(row_of(as_row(payload), "records").values())
    return bool(partitions) and all(isinstance(rows, list) and is_record(next(iter(rows), None)) for rows in partitions)


def record_of(row: Any) -> Received:
    """The record that a row of a dump is; a row that is none counts as the value of one. Its place may be unknown.

    Raises RejectedError for a value that is no base64, or nested too deeply.
    """
    if not is_record(row):
        return Received(topic="", partition=0, offset=_NOWHERE, at=0, value=_written(row))
    return Received(
        topic=text_of(row, "topic"),
        partition=max(0, _integer(row.get("partition"))),
        offset=_integer(row.get("offset")),
        at=_micros(row.get("timestamp_ms", row.get("timestamp", row.get("ts")))),
        key=_bytes(row.get("key"), row.get("key_b64")),
        value=_bytes(row["value"] if "value" in row else row.get("payload"), row.get("value_b64")),
        headers=headers_of(row.get("headers")),
    )


def _bytes(value: Any, packed: Any = None) -> bytes | None:
    """Bytes that a dump shows in base64, as text, or as the JSON that they are."""
    if isinstance(packed, str):
        try:
            return base64.b64decode(packed, validate=True)
        except (ValueError, binascii.Error) as error:
            raise RejectedError("not-base64", str(error)) from None
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else _written(value)


def _micros(time: Any) -> int:
    """When the record was made: ms, or a time as text; 0 where that is not told."""
    if isinstance(time, str):
        try:
            return max(0, micros(time_of(time)))
        except RejectedError:
            return 0
    return 1000 * max(0, _integer(time))


def _written(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise RejectedError("not-json", "nested too deeply") from None


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**50 else _NOWHERE


def headers_of(value: Any) -> tuple[tuple[str, bytes], ...]:
    """Headers as an object, a flat list of names and values (kcat), or a list of pairs or of small objects."""
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(item, str | None) for item in value):
        pairs = list(zip(value[::2], value[1::2], strict=False))
    else:
        pairs = [_pair(item) for item in value] if isinstance(value, list) else []
    read = ((name, _header(said)) for name, said in pairs if isinstance(name, str))
    return tuple((name, said) for name, said in read if said is not None)


def _header(said: Any) -> bytes | None:
    """The value of a header, a text or a list of numbers of one byte each."""
    if isinstance(said, str):
        return said.encode()
    is_bytes = isinstance(said, list) and all(type(number) is int and -128 <= number < 256 for number in said)
    return bytes(number % 256 for number in said) if is_bytes else None


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, list):
        return (item[0], item[1]) if len(item) == 2 else (None, None)
    row = as_row(item)
    return (row["key"], row.get("value")) if "key" in row else next(iter(row.items()), (None, None))
