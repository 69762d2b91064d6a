"""What only its Kafka record tells of a message: which one it is, that it is gone, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from streammem.connectors.fields import Row, row_of, text_of, words_of
from streammem.connectors.slack.message import NEVER_UNDONE, exact_ts
from streammem.connectors.teams.message import just_after
from streammem.connectors.wrappers import Payload, Tombstone
from streammem.core.events import moment
from streammem.records import ChannelRef, Event, Ingest, MessageEvent, ReactionEvent, Received

NEVER_UNDONE_MS = f"{NEVER_UNDONE}000"
_LATEST = 2**52
"""In µs: the year 2112."""


def millis(record: Received) -> int:
    """When the record was made, in ms; 0 when nobody knows, or at an impossible time."""
    at = (record.at + 500) // 1000  # a worker's µs come through a double
    return at if 0 < at < _LATEST // 1000 else 0


# ------------------------------------------------------------------------------------------------------- deletions


def version_at(source: str, message: str, times: Iterable[int]) -> tuple[str, int]:
    """A version by time, and the time in µs: the first of these by which the message had been said.

    In the unit of the source's versions: seconds for Slack, ms for all others. Without a time (0), above every edit.
    """
    said = _said_at(source, message)
    at = next((at for at in times if max(said, 1) <= at < _LATEST), 0)
    if source == "slack":
        return (f"{at // 1_000_000}.{at % 1_000_000:06d}", at) if at else (NEVER_UNDONE, 0)
    return (str(at // 1000), at) if at else (NEVER_UNDONE_MS, 0)


def _said_at(source: str, message: str) -> int:
    """When a message was said, in µs, by its id; 0 where ids do not say."""
    if source == "slack":
        return int(exact_ts(message).replace(".", "") or 0)
    is_time = source == "teams" and message.isascii() and message.isdecimal() and len(message) < 15
    return 1000 * int(message) if is_time else 0


def deletion_of(tombstone: Tombstone, workspace: str, record: Received, origin: str) -> MessageEvent:
    """The deletion that a record without a value stands for."""
    named = MessageEvent(
        source=tombstone.source,
        source_format="kafka",
        workspace=workspace,
        channel=ChannelRef(id=tombstone.channel),
        id=(tombstone.source == "slack" and exact_ts(tombstone.id)) or tombstone.id,
        ingest=Ingest(origin=origin),
    )
    return _deleted(named, (1000 * millis(record),))


def as_deleted(payload: Payload, product: str) -> Any:
    """A payload that is gone in its product's own words: what it names and where, as deleted."""
    row: Row = payload.value
    if product == "teams":
        return {**row, "deletedDateTime": row.get("deletedDateTime") or "1970-01-01T00:00:01Z"}
    if inner := row_of(row, "event"):
        return {**row, "type": "event_callback", "event": _slack_deleted(inner)}
    return _slack_deleted(row)


def _slack_deleted(row: Row) -> Row:
    place = {key: row[key] for key in ("channel", "channel_id", "channel_type") if key in row}
    return {**place, "type": "message", "subtype": "message_deleted", "deleted_ts": row.get("ts"), "ts": row.get("ts")}


def deleting(payload: Payload, record: Received) -> Callable[[Iterable[Event]], list[Event]]:
    """What makes the events that a deleted payload was read as the deletion of its message."""
    times = (payload.at, 1000 * millis(record))

    def deleted(events: Iterable[Event]) -> list[Event]:
        return [_deleted(event, times) for event in events if isinstance(event, MessageEvent)]

    return deleted


def _deleted(event: MessageEvent, times: Iterable[int]) -> MessageEvent:
    version, at = version_at(event.source, event.id, times)
    return MessageEvent(
        op="delete",
        source=event.source,
        source_format=event.source_format,
        workspace=event.workspace,
        channel=event.channel,
        id=event.id,
        version=version,
        deleted_at=moment(at) if at else None,
        ingest=event.ingest,
    )


def dated(event: Event, payload: Payload, record: Received) -> Event:
    """A deletion, or the change of a row, whose time its product does not tell has its wrapper's or its record's."""
    if not isinstance(event, MessageEvent) or not _is_undated(event, payload):
        return event
    version, at = version_at(event.source, event.id, (payload.at, 1000 * millis(record)))
    if not at:
        return event
    deleted_at = moment(at) if event.op == "delete" else None
    return msgspec.structs.replace(event, version=version, deleted_at=deleted_at)


def _is_undated(event: MessageEvent, payload: Payload) -> bool:
    if event.op == "upsert":
        return payload.changed and event.edited_at is None and event.version in ("0", event.id)
    return event.deleted_at is None and event.version in (NEVER_UNDONE, just_after(event.id))


# ---------------------------------------------------------------------------------------------------------- names


def with_time(payload: Payload, product: str, record: Received) -> Row | None:
    """A message that its product did not name, with the record's time in place of its name; None for any other.

    Where the record has neither time nor place there is nothing to name the message by.
    """
    at = millis(record)
    if not (at and record.topic and record.offset >= 0) or not isinstance(payload.value, dict):
        return None
    row: Row = payload.value
    if product == "teams":
        return _teams_with_time(row, at)
    if text_of(row, "type") == "event_callback":
        inner = _slack_with_time(row_of(row, "event"), at)
        return {**row, "event": inner} if inner else None
    return _slack_with_time(row, at)


def _slack_with_time(row: Row, at: int) -> Row | None:
    unnamed = row.get("ts") in (None, "") and text_of(row, "type") in ("", "message") and not row.get("subtype")
    if not unnamed or not (words_of(row, "text") or row.get("blocks") or row.get("attachments")):
        return None
    return {**row, "ts": f"{at // 1000}.{at % 1000:03d}000"}


def _teams_with_time(row: Row, at: int) -> Row | None:
    if row.get("id") not in (None, "") or not isinstance(row.get("body"), dict):
        return None
    return {**row, "id": str(at), "createdDateTime": row.get("createdDateTime") or moment(1000 * at).isoformat()}


def naming(record: Received, part: int | None) -> Callable[[Iterable[Event]], list[Event]]:
    """What gives a message, and what is said of it, the record's own name; one of several in it says which."""
    name = f"syn:{record.topic}/{record.partition}/{record.offset}" + ("" if part is None else f"/{part}")

    def named(events: Iterable[Event]) -> list[Event]:
        return [_named(event, name) for event in events]

    return named


def _named(event: Event, name: str) -> Event:
    if isinstance(event, MessageEvent):
        return msgspec.structs.replace(event, id=name, permalink=None)
    return msgspec.structs.replace(event, message=name) if isinstance(event, ReactionEvent) else event
