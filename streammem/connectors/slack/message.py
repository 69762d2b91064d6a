"""One Slack message payload to canonical events. The same payload comes in exports, in history pages and in events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from streammem.connectors.facts import reactions_of
from streammem.connectors.fields import Row, count_of, row_of, rows_of, text_of, words_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.slack.text import Names, Reading, is_blank, unescape
from streammem.core.events import moment
from streammem.errors import RejectedError
from streammem.records import (
    Attachment,
    ChannelRef,
    Event,
    Ingest,
    MessageEvent,
    Sender,
    SenderKind,
)

NEVER_UNDONE = "99999999999"
"""Version of a tombstone found without the time of its deletion: above every edit, for Slack brings nothing back."""

_TS = re.compile(r"(\d{1,11})(?:\.(\d{1,6}))?")
_PERMALINK = re.compile(r"https://[a-z0-9-]+(?:\.enterprise)?\.slack\.com/archives/\S+")
_SYSTEM_PREFIXES = ("channel_", "group_")
_SYSTEM = frozenset(
    {
        *("bot_add", "bot_remove", "bot_enable", "bot_disable", "pinned_item", "unpinned_item"),
        *("reminder_add", "reminder_delete", "app_conversation_join", "app_conversation_leave"),
        *("joiner_notification", "joiner_notification_for_inviter", "slackbot_response_disabled"),
        *("tabbed_canvas_updated", "bookmark_added", "reply_broadcast"),
    }
)
_CALLS = frozenset({"huddle_thread", "sh_room_created", "sh_room_shared"})

Kind = Literal["message", "system", "call", "encrypted"]


@dataclass(frozen=True)
class Place:
    """Where a payload was found, and what its workspace is known to hold."""

    workspace: str
    channel: ChannelRef
    names: Names = field(default_factory=Names)
    kinds: dict[str, SenderKind] = field(default_factory=dict)
    has_directory: bool = False
    domain: str = ""
    source_format: str = "slack-export"


def exact_ts(value: Any) -> str:
    """A Slack `ts` as the exact id that Slack gave: six decimals, never through a double. Empty when it is none.

    >>> exact_ts("1512104434.00049"), exact_ts(1512104435), exact_ts(True)
    ('1512104434.000490', '1512104435.000000', '')
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _TS.fullmatch(text.strip()) if isinstance(text, str) and text.isascii() else None
    if match is None:
        return ""
    return f"{int(match[1])}.{(match[2] or '').ljust(6, '0')}"


def moment_of(ts: str) -> datetime:
    """The time in an exact ts, to the microsecond."""
    return moment(int(ts.replace(".", "")))


def events_of(row: Row, place: Place, origin: str = "") -> Iterator[Event]:
    """The message (or its deletion) that a payload states, then its reactions.

    Raises RejectedError for a payload without identity, and IgnoredError for one that states nothing: no text, blocks,
    attachments or files (`empty`), news about a thread (`thread-notice`), no message at all (`other-type`).
    """
    subtype = text_of(row, "subtype")
    if subtype == "message_replied":
        raise IgnoredError("thread-notice")
    if text_of(row, "type") not in ("", "message"):
        raise IgnoredError("other-type")
    if subtype == "message_changed":
        inner = {**row_of(row, "message")}
        yield from _changed(inner, exact_ts(row.get("event_ts")) or exact_ts(row.get("ts")), place, origin)
    elif subtype == "message_deleted":
        when = exact_ts(row.get("event_ts")) or exact_ts(row.get("ts"))
        yield _deletion(exact_ts(row.get("deleted_ts")), when, place, origin)
    elif subtype == "tombstone":
        yield _deletion(exact_ts(row.get("ts")), "", place, origin)
    else:
        yield from _said(row, place, origin)


def _changed(inner: dict[str, Any], when: str, place: Place, origin: str) -> Iterator[Event]:
    if text_of(inner, "subtype") == "tombstone":
        yield _deletion(exact_ts(inner.get("ts")), when, place, origin)
        return
    if text_of(inner, "subtype") in ("message_changed", "message_deleted"):
        raise RejectedError("nested-change", "a message_changed holds another change")
    yield from _said(inner, place, origin)


def _deletion(ts: str, when: str, place: Place, origin: str) -> MessageEvent:
    if not ts:
        raise RejectedError("no-timestamp", "a deletion names no message")
    return MessageEvent(
        op="delete",
        source="slack",
        source_format=place.source_format,
        workspace=place.workspace,
        channel=place.channel,
        id=ts,
        version=when or NEVER_UNDONE,
        deleted_at=moment_of(when) if when else None,
        ingest=Ingest(origin=origin) if origin else None,
    )


def _said(row: Row, place: Place, origin: str) -> Iterator[Event]:
    ts = exact_ts(row.get("ts"))
    if not ts:
        shown = "no ts" if row.get("ts") is None else f"ts {row.get('ts')!r:.40}"
        raise RejectedError("no-timestamp", f"a message has {shown}")
    yield _message(row, ts, place, origin)
    yield from reactions_of(row, place.workspace, place.channel.id, ts, version=ts)


def _message(row: Row, ts: str, place: Place, origin: str) -> MessageEvent:
    kind = kind_of(text_of(row, "subtype"))
    reading = Reading(place.names)
    text, text_source = body_of(row, reading)
    attachments = _attachments(row, place.names, told=text_source == "attachments")
    if kind == "message" and not text and not attachments:
        raise IgnoredError("empty")
    edited = exact_ts(row_of(row, "edited").get("ts"))
    root = exact_ts(row.get("thread_ts"))
    answered = root if root != ts and root else None
    return MessageEvent(
        source="slack",
        source_format=place.source_format,
        workspace=place.workspace,
        channel=place.channel,
        id=ts,
        version=edited or "0",
        ts=moment_of(ts),
        edited_at=moment_of(edited) if edited else None,
        kind=kind,
        subtype=text_of(row, "subtype") or None,
        sender=sender_of(row, place),
        reply_to=answered,
        thread_id=answered,
        broadcast=row.get("subtype") == "thread_broadcast",
        text=text,
        text_source=text_source,
        mentions=reading.mentions if kind == "message" else (),
        links=reading.links,
        attachments=attachments,
        permalink=_permalink(row, ts, place),
        ingest=Ingest(origin=origin) if origin else None,
    )


def kind_of(subtype: str) -> Kind:
    """Whether a person (or bot) speaks or Slack does. A subtype nobody has heard of is a person speaking."""
    if subtype in _CALLS:
        return "call"
    if subtype == "ekm_access_denied":
        return "encrypted"
    return "system" if subtype in _SYSTEM or subtype.startswith(_SYSTEM_PREFIXES) else "message"


def sender_of(row: Row, place: Place) -> Sender:
    """Who spoke: user, else bot, else the author of a file comment; a huddle is its creator's, not Slackbot's.

    The name is given only where the directory has none.
    """
    host = text_of(row_of(row, "room"), "created_by") if text_of(row, "subtype") in _CALLS else ""
    user = host or text_of(row, "user")
    bot = text_of(row, "bot_id")
    sender = user or bot or text_of(row_of(row, "comment"), "user") or text_of(row_of(row, "room"), "created_by")
    name = None if sender in place.kinds else _name_of_stranger(row, is_bot=not user)
    return Sender(id=sender or None, name=name, kind=_sender_kind(row, sender, name, place, is_host=bool(host)))


def _name_of_stranger(row: Row, *, is_bot: bool) -> str | None:
    profile = row_of(row, "user_profile")
    person = text_of(profile, "display_name", "real_name", "name")
    bot = text_of(row, "username") or text_of(row_of(row, "bot_profile"), "name")
    return unescape(bot or person if is_bot else person or bot) or None


def _sender_kind(row: Row, sender: str, name: str | None, place: Place, *, is_host: bool) -> SenderKind:
    is_bot = sender == "USLACKBOT" or row.get("subtype") == "bot_message" or bool(text_of(row, "bot_id"))
    if is_bot and not is_host:
        return "bot"
    if sender in place.kinds:
        return place.kinds[sender]
    if not sender:
        return "bot" if name else "unknown"
    return "unknown" if place.has_directory else "user"


def body_of(row: Row, reading: Reading) -> tuple[str, Literal["text", "blocks", "attachments", "none"]]:
    """The words of a message and where they stood: text, else blocks, else attachments."""
    text = words_of(row, "text")
    if not is_blank(text):
        return reading.mrkdwn(text), "text"
    if not is_blank(text := reading.blocks(rows_of(row, "blocks"))):
        return text, "blocks"
    told = [reading.attachment(attachment) for attachment in rows_of(row, "attachments")]
    text = "\n".join(filter(None, told))
    return (text, "attachments") if text else ("", "none")


def _attachments(row: Row, names: Names, *, told: bool) -> tuple[Attachment, ...]:
    files = [*rows_of(row, "files")] or [single for single in (row_of(row, "file"),) if single]
    cards = (_card(card, names, told=told) for card in rows_of(row, "attachments"))
    return (*map(_file, files), *(card for card in cards if card != Attachment(kind=card.kind)))


def _file(file: Row) -> Attachment:
    mime = text_of(file, "mimetype")
    mode = text_of(file, "mode")
    canvas = mode in ("quip", "canvas") or text_of(file, "filetype") in ("quip", "canvas")
    lost: dict[str, Literal["deleted", "unavailable"]] = {"tombstone": "deleted", "hidden_by_limit": "unavailable"}
    return Attachment(
        id=text_of(file, "id") or None,
        name=unescape(text_of(file, "title", "name")) or None,
        kind="canvas" if canvas else "image" if mime.startswith("image/") else "file",
        url=_without_token(text_of(file, "permalink", "url_private")) or None,
        mime=mime or None,
        size=count_of(file, "size") or None,
        state=lost.get(mode, "available"),
        text=unescape(text_of(file, "plain_text", "preview")) or None,
    )


def _without_token(url: str) -> str:
    """Exports sign file addresses with a token that opens the file to anybody: it must not be kept."""
    return url.partition("?")[0] if "t=xox" in url else url


def _card(card: Row, names: Names, *, told: bool) -> Attachment:
    url = text_of(card, "title_link", "from_url", "original_url", "image_url")
    return Attachment(
        name=unescape(text_of(card, "title")) or None,
        kind="unfurl" if text_of(card, "from_url", "original_url", "service_name") else "card",
        url=_without_token(unescape(url)) or None,
        text=None if told else Reading(names).attachment(card) or None,
    )


def _permalink(row: Row, ts: str, place: Place) -> str | None:
    stated = text_of(row, "permalink")
    if _PERMALINK.fullmatch(stated):
        return stated
    if not place.domain:
        return None
    return f"https://{place.domain}.slack.com/archives/{place.channel.id}/p{ts.replace('.', '')}"
