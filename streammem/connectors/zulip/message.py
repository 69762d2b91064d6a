"""A row of zerver_message to canonical events: the message as it stands, and what it said before it was edited.

Its topic is a name (`topic`), not a thread that some message opened: moving a message to another topic changes the
name and nothing else, and nothing has to be known of other messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streammem.connectors.fields import Row, as_list, rows_of, text_of, words_of
from streammem.connectors.json_rows import loads
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.zulip.directory import Known, id_of
from streammem.connectors.zulip.text import Words
from streammem.core.events import micros
from streammem.errors import RejectedError
from streammem.records import ChannelRef, Ingest, MessageEvent, Sender, SenderKind

_WIDGET = re.compile(r"/(poll|todo)(?=\s)")
_NO_TOPIC = "\x07"
"""Stands for the topic of a direct message in newer exports."""


@dataclass(frozen=True)
class Edit:
    """One change of a message: when, and the words before it (None where only the topic changed)."""

    at: datetime
    before: str | None


def events_of(row: Row, known: Known, origin: str = "") -> Iterator[MessageEvent]:
    """The versions of a message, newest first. Raises RejectedError without identity."""
    edits = edits_of(row)
    current = _message(row, known, _edited(row, edits), origin)
    yield current
    said = words_of(row, "content")
    for index, edit in enumerate(edits):
        if edit.before is None or edit.before == said:
            continue
        said = edit.before
        since = next((older.at for older in edits[index + 1 :] if older.before is not None), None)
        earlier = _message({**row, "content": said}, known, since, origin, is_current=False)
        if earlier.text.strip() and (since is None or not current.edited_at or since < current.edited_at):
            yield earlier


def edits_of(row: Row) -> list[Edit]:
    """The edits that Zulip remembers, newest first; they are JSON written as text."""
    stated: Any = row.get("edit_history")
    if isinstance(stated, str):
        try:
            stated = loads(stated.encode("utf-8", "replace"))
        except ValueError:
            return []
    edits = []
    for edit in rows_of({"edits": as_list(stated)}, "edits"):
        before = edit.get("prev_content")
        if at := _time(edit, "timestamp"):
            edits.append(Edit(at, before if isinstance(before, str) else None))
    return sorted(edits, key=lambda edit: edit.at, reverse=True)


def _edited(row: Row, edits: list[Edit]) -> datetime | None:
    """When the words last changed: a message that was only moved says what it said before."""
    if edits and all(edit.before is None for edit in edits):
        return None
    return _time(row, "last_edit_time") or next((edit.at for edit in edits if edit.before is not None), None)


def _message(row: Row, known: Known, edited: datetime | None, origin: str, *, is_current: bool = True) -> MessageEvent:
    name, sender = id_of(row, "id"), id_of(row, "sender", "sender_id")
    if not name:
        raise RejectedError("no-id", f"a message has id {row.get('id')!r:.40}")
    channel, members = known.channel_of(id_of(row, "recipient", "recipient_id"), sender)
    who = _sender(sender, known)
    content, subtype = _widget(words_of(row, "content"))
    words = Words(known.names, channel)
    text = words.text(content)
    forwarded = words.forwarded
    changed = _time(row, "last_edit_time") if is_current else edited
    spoken = who.kind != "system"
    return MessageEvent(
        source="zulip",
        source_format="zulip-export",
        workspace=known.workspace,
        channel=_channel(channel, known),
        id=name,
        version=str(micros(last) // 1000) if (last := changed or edited) else "0",
        ts=time_of(row.get("date_sent") or row.get("pub_date")),
        edited_at=edited,
        kind="message" if spoken else "system",
        subtype=subtype or None,
        sender=who,
        reply_to=words.reply_to or None,
        text=text,
        text_source="text" if text.strip() else "none",
        mentions=words.reading.mentions if spoken else (),
        links=words.reading.links,
        attachments=tuple(words.reading.files),
        topic=None if members or channel.startswith("group:") else _topic(row),
        forwarded=forwarded,
        ingest=Ingest(origin=origin) if origin else None,
    )


def _channel(channel: str, known: Known) -> ChannelRef:
    is_listed = channel in known.names.streams or channel.startswith(("dm:", "group:"))
    return ChannelRef(id=channel) if is_listed else ChannelRef(id=channel, type="unknown")


def _sender(user: str, known: Known) -> Sender:
    stranger: SenderKind = "unknown" if known.kinds or not user else "user"
    return Sender(id=user or None, kind=known.kinds.get(user, stranger))


def _topic(row: Row) -> str | None:
    topic = text_of(row, "subject", "topic")
    return None if topic in ("", _NO_TOPIC) else topic


def _widget(content: str) -> tuple[str, str]:
    """The words of a command, and which. A poll reads as its question and the answers to choose from."""
    command, _, rest = content.partition(" ")
    if command == "/me":
        return rest, "me"
    if (match := _WIDGET.match(content)) is None:
        return content, ""
    question, *answers = content[match.end() :].strip().split("\n")
    shown = (answer if answer.startswith("-") else f"- {answer}" for answer in answers if answer.strip())
    return "\n".join((question, *shown)), match[1]


def _time(row: Row, key: str) -> datetime | None:
    try:
        at = time_of(row[key]) if row.get(key) else None
    except RejectedError:
        return None
    return at if at and micros(at) >= 0 else None
