"""One Slack message payload to canonical events. The same payload comes in exports, in history pages and in events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from streammem.connectors.facts import reactions_of
from streammem.connectors.fields import Row, row_of, rows_of, text_of, texts_of, words_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.slack.attachments import attachments_of, forwarded_of, is_quote, is_unfurl
from streammem.connectors.slack.blocks import BlockReading
from streammem.connectors.slack.text import Names, is_blank, unescape
from streammem.core.events import moment
from streammem.errors import RejectedError
from streammem.records import ChannelRef, Event, Ingest, MessageEvent, Sender, SenderKind

NEVER_UNDONE = "99999999999"
"""Version of a tombstone found without the time of its deletion: above every edit, for Slack brings nothing back."""

_TS = re.compile(r"(\d{1,11})(?:\.(\d{1,6}))?")
_DOUBLE = re.compile(r"\d{1,11}\.\d{7,30}|[1-9]\.\d{1,16}[eE]\+?0?\d")
_MICROSECOND = Decimal("0.000001")
_EXACT_TS = re.compile(r"[1-9]\d{0,10}\.\d{6}", re.ASCII)
_PERMALINK = re.compile(r"https://[a-z0-9-]+(?:\.enterprise)?\.slack\.com/archives/\S+")
_THREAD = re.compile(r"[?&]thread_ts=([0-9.]{1,20})(?:&|\Z)")
_SYSTEM_PREFIXES = ("channel_", "group_")
_ON_BOTS = ("bot_add", "bot_remove", "bot_enable", "bot_disable")
_SYSTEM = frozenset(
    {
        *(*_ON_BOTS, "pinned_item", "unpinned_item"),
        *("reminder_add", "reminder_delete", "app_conversation_join", "app_conversation_leave"),
        *("joiner_notification", "joiner_notification_for_inviter", "slackbot_response_disabled"),
        *("tabbed_canvas_updated", "bookmark_added", "reply_broadcast"),
    }
)
_CALLS = frozenset({"huddle_thread", "sh_room_created", "sh_room_shared"})
_CHANGES = frozenset({"message_changed", "message_deleted"})

Kind = Literal["message", "system", "call", "encrypted"]
TextSource = Literal["text", "blocks", "attachments", "none"]


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

    A double that somebody else wrote in full, or with an exponent, still tells which one it was.

    >>> exact_ts("1512104434.00049"), exact_ts(1512104435), exact_ts(True)
    ('1512104434.000490', '1512104435.000000', '')
    >>> exact_ts("1512104434.000490188"), exact_ts("1.51210443400049E9")
    ('1512104434.000490', '1512104434.000490')
    """
    if isinstance(value, str) and _EXACT_TS.fullmatch(value):
        return value
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not (isinstance(text, str) and text.isascii()):
        return ""
    if _DOUBLE.fullmatch(text.strip()):
        text = f"{Decimal(text.strip()).quantize(_MICROSECOND):f}"
    match = _TS.fullmatch(text.strip())
    if match is None:
        return ""
    return f"{int(match[1])}.{(match[2] or '').ljust(6, '0')}"


def moment_of(ts: str) -> datetime:
    """The time in an exact ts, to the microsecond."""
    return moment(int(ts.replace(".", "")))


def events_of(row: Row, place: Place, origin: str = "") -> Iterator[Event]:
    """The message (or its deletion) that a payload states, then its reactions.

    An edit that leaves nothing deletes. Raises RejectedError for a payload without identity, and IgnoredError for one
    that states nothing: shown to one person only (`ephemeral`), news about a thread (`thread-notice`), no message at
    all (`other-type`).
    """
    subtype = text_of(row, "subtype")
    if subtype == "message_replied":
        raise IgnoredError("thread-notice")
    if text_of(row, "type") not in ("", "message"):
        raise IgnoredError("other-type")
    if subtype == "message_changed":
        yield from _changed(row, place, origin)
    elif subtype == "message_deleted":
        gone = exact_ts(row.get("deleted_ts")) or exact_ts(_before(row).get("ts"))
        yield _deletion(gone, _happened(row), place, origin)
    elif subtype == "tombstone":
        yield _deletion(exact_ts(row.get("ts")), "", place, origin)
    else:
        yield from _said(row, place, origin)


def _happened(row: Row) -> str:
    return exact_ts(row.get("event_ts")) or exact_ts(row.get("ts"))


def _before(row: Row) -> Row:
    """The message as it was; exports of workspaces that keep edits have another word for it."""
    return row_of(row, "previous_message") or row_of(row, "original")


def _changed(row: Row, place: Place, origin: str) -> Iterator[Event]:
    inner, before = row_of(row, "message"), _before(row)
    if not inner:
        raise RejectedError("no-message", "a message_changed holds no message")
    ts = exact_ts(inner.get("ts")) or exact_ts(before.get("ts"))
    subtype = text_of(inner, "subtype")
    if subtype == "tombstone":
        yield _deletion(ts, _happened(row), place, origin)
    elif subtype in _CHANGES:
        raise RejectedError("nested-change", "a message_changed holds another change")
    else:
        changed = _happened(row) if before and _differs_unedited(inner, before) else ""
        yield from _said({**inner, "ts": ts}, place, origin, changed)


def _differs_unedited(inner: Row, before: Row) -> bool:
    """Whether what is said changed and nobody edited it: a call that ended, a file taken away.

    What Slack adds to a message by itself (unfurls, reactions, counts of replies) is not a change of it.
    """
    if row_of(inner, "edited").get("ts") != row_of(before, "edited").get("ts"):
        return False
    return _substance(inner) != _substance(before)


def _substance(row: Row) -> tuple[Any, ...]:
    files = [(text_of(file, "id"), text_of(file, "mode") == "tombstone") for file in rows_of(row, "files")]
    reading, text = BlockReading(Names()), words_of(row, "text")
    blocks = reading.blocks(rows_of(row, "blocks")) if is_blank(text) else ""
    cards = [reading.attachment(card) for card in rows_of(row, "attachments") if not is_unfurl(card)]
    return text, blocks, cards, files, row_of(row, "room")


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


def _said(row: Row, place: Place, origin: str, changed: str = "") -> Iterator[Event]:
    ts = exact_ts(row.get("ts"))
    if not ts:
        shown = "no ts" if row.get("ts") in (None, "") else f"ts {row.get('ts')!r:.40}"
        raise RejectedError("no-timestamp", f"a message has {shown}")
    if row.get("is_ephemeral") is True:
        raise IgnoredError("ephemeral")
    yield _message(row, ts, place, origin, changed)
    yield from reactions_of(row, place.workspace, place.channel.id, ts, version=ts)


def _message(row: Row, ts: str, place: Place, origin: str, changed: str) -> MessageEvent:
    subtype = text_of(row, "subtype")
    kind = kind_of(subtype)
    reading = BlockReading(place.names)
    text, text_source = body_of(row, reading)
    forwarded = forwarded_of(row, place.names) if not text and "attachments" in row else None
    told = text_source == "attachments"
    attachments = attachments_of(row, place.names, told=told, passed_on=forwarded is not None)
    participants = participants_of(row)
    edited = exact_ts(row_of(row, "edited").get("ts"))
    if kind == "message" and not (text or attachments or (forwarded and forwarded.text)):
        if not participants and (emptied := changed or edited):
            return _deletion(ts, emptied, place, origin)
        kind = "call" if participants else kind
    root = exact_ts(row.get("thread_ts")) or _root_in_link(row)
    answered = root if root != ts and root else None
    return MessageEvent(
        source="slack",
        source_format=place.source_format,
        workspace=place.workspace,
        channel=place.channel,
        id=ts,
        version=changed or edited or "0",
        ts=moment_of(ts),
        edited_at=moment_of(edited) if edited else None,
        kind=kind,
        subtype=subtype or None,
        sender=sender_of(row, subtype, place),
        reply_to=answered,
        thread_id=answered,
        broadcast=subtype == "thread_broadcast",
        text=text,
        text_source=text_source,
        mentions=reading.mentions if kind == "message" else (),
        links=reading.links,
        attachments=attachments,
        permalink=_permalink(row, ts, answered, place),
        forwarded=forwarded,
        participants=participants,
        ingest=Ingest(origin=origin) if origin else None,
    )


def kind_of(subtype: str) -> Kind:
    """Whether a person (or bot) speaks or Slack does. A subtype nobody has heard of is a person speaking."""
    if not subtype:
        return "message"
    if subtype in _CALLS:
        return "call"
    if subtype == "ekm_access_denied":
        return "encrypted"
    return "system" if subtype in _SYSTEM or subtype.startswith(_SYSTEM_PREFIXES) else "message"


def participants_of(row: Row) -> tuple[str, ...]:
    """Who was in a huddle or in a call that an app announced."""
    room = row_of(row, "room")
    if room:
        return tuple(dict.fromkeys((*texts_of(room, "participant_history"), *texts_of(room, "participants"))))
    if "blocks" not in row:
        return ()
    calls = (row_of(row_of(block, "call"), "v1") for block in rows_of(row, "blocks") if block.get("type") == "call")
    people = (
        person for call in calls for key in ("all_participants", "active_participants") for person in rows_of(call, key)
    )
    return tuple(dict.fromkeys(filter(None, (text_of(person, "slack_id") for person in people))))


def sender_of(row: Row, subtype: str, place: Place) -> Sender:
    """Who spoke: user, else bot, else the author of a file comment; a huddle is its creator's, not Slackbot's.

    The name is given only where the directory has none. Whom the directory knows as a person stays one when an app
    speaks for him, and who adds a bot is none.
    """
    host = text_of(row_of(row, "room"), "created_by") if subtype in _CALLS else ""
    user = host or text_of(row, "user") or text_of(row_of(row, "user"), "id")
    bot = text_of(row, "bot_id")
    sender = user or bot or text_of(row_of(row, "comment"), "user") or text_of(row_of(row, "room"), "created_by")
    stranger = _name_of_stranger(row, is_bot=not user) or place.names.users.get(sender)
    name = None if sender in place.kinds else stranger
    is_app = bool(bot) and sender not in place.kinds and not subtype.startswith(_ON_BOTS)
    is_bot = not host and (is_app or sender == "USLACKBOT" or subtype == "bot_message")
    return Sender(id=sender or None, name=name, kind="bot" if is_bot else _kind_of_person(sender, name, place))


def _name_of_stranger(row: Row, *, is_bot: bool) -> str | None:
    profile = row_of(row, "user_profile")
    person = text_of(profile, "display_name", "real_name", "name")
    bot = text_of(row, "username") or text_of(row_of(row, "bot_profile"), "name")
    return unescape(bot or person if is_bot else person or bot) or None


def _kind_of_person(sender: str, name: str | None, place: Place) -> SenderKind:
    if sender in place.kinds:
        return place.kinds[sender]
    if not sender:
        return "bot" if name else "unknown"
    return "unknown" if place.has_directory else "user"


def body_of(row: Row, reading: BlockReading) -> tuple[str, TextSource]:
    """The words of a message and where they stood: text, else blocks, else attachments, else a conversation's title.

    A message that is quoted is not among them: whoever passes it on did not say it.
    """
    text = words_of(row, "text")
    if not is_blank(text):
        return reading.mrkdwn(text), "text"
    if not is_blank(text := reading.blocks(rows_of(row, "blocks"))):
        return text, "blocks"
    told = [reading.attachment(card) for card in rows_of(row, "attachments") if not is_quote(card)]
    if text := "\n".join(filter(None, told)):
        return text, "attachments"
    title = text_of(row_of(row, "assistant_app_thread"), "title")
    return (unescape(title), "text") if title else ("", "none")


def _root_in_link(row: Row) -> str:
    """The thread of a message that a search found: only its address tells."""
    found = _THREAD.search(row["permalink"]) if isinstance(row.get("permalink"), str) else None
    return exact_ts(found[1]) if found else ""


def _permalink(row: Row, ts: str, root: str | None, place: Place) -> str | None:
    stated = text_of(row, "permalink")
    if stated and _PERMALINK.fullmatch(stated):
        return stated
    if not place.domain:
        return None
    link = f"https://{place.domain}.slack.com/archives/{place.channel.id}/p{ts.replace('.', '')}"
    return f"{link}?thread_ts={root}&cid={place.channel.id}" if root else link
