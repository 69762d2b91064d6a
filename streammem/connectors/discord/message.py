"""One message of a DiscordChatExporter file to canonical events.

The exporter has put names where Discord has ids, unless it was told to leave the text alone; ids of those who are
mentioned stand beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from streammem.connectors.facts import reactions_of
from streammem.connectors.fields import Row, as_list, count_of, row_of, rows_of, text_of, words_of
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.markdown import Reading, card, fields_of, kind_of_file
from streammem.core.events import micros
from streammem.errors import RejectedError
from streammem.records import Attachment, ChannelRef, Event, Forwarded, Ingest, Mention, MessageEvent, Sender

Kind = Literal["message", "system", "call"]

_SPOKEN = frozenset({"", "Default", "Reply", "ChatInputCommand", "ContextMenuCommand", "0", "19", "20", "23"})
"""Types whose words somebody chose; the exporter makes a sentence for others. It names few: the rest are numbers."""
_PLAIN = frozenset({"", "Default", "Reply", "0", "19"})
_CALLS = frozenset({"Call", "3"})
_REPLIES = frozenset({"Reply", "19"})
_TOKEN = re.compile(r"<@(?P<role>&)?!?(?P<user>\d{1,20})>|<#(?P<channel>\d{1,20})>|<a?:(?P<emoji>\w+):\d{1,20}>")


@dataclass(frozen=True)
class Place:
    """The channel of a file."""

    workspace: str
    channel: str
    guild: str = ""
    is_thread: bool = False


def id_of(value: Any) -> str:
    """A snowflake, exactly; some write it as a number. Empty when it is none (a fraction means that digits are lost).

    >>> id_of(1497549923779084388), id_of("2"), id_of("1.4975e+18"), id_of(None)
    ('1497549923779084388', '2', '', '')
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return text if isinstance(text, str) and text.isascii() and text.isdecimal() else ""


def name_of(user: Row) -> str:
    """What people see: the nickname, else the account's name."""
    return text_of(user, "nickname", "name")


def events_of(row: Row, place: Place, origin: str = "") -> Iterator[Event]:
    """A message, then its reactions. Raises RejectedError for one without identity."""
    message = _message(row, place, origin)
    yield message
    counted = {"reactions": [_reaction(reaction) for reaction in rows_of(row, "reactions")]}
    yield from reactions_of(counted, place.workspace, place.channel, message.id, version=_seconds(message.ts))


def _seconds(at: datetime | None) -> str:
    return f"{micros(at) // 1_000_000}" if at else "0"


def _reaction(row: Row) -> Row:
    users = [user for given in rows_of(row, "users") if (user := id_of(given.get("id")))]
    return {"name": text_of(row_of(row, "emoji"), "name", "code"), "users": users, "count": count_of(row, "count")}


def _message(row: Row, place: Place, origin: str) -> MessageEvent:
    name = id_of(row.get("id"))
    if not name:
        raise RejectedError("no-id", f"a message has id {row.get('id')!r:.40}")
    if not place.channel:
        raise RejectedError("no-channel", "the file names no channel")
    kind = kind_of(row)
    reading = Reading()
    text, source, cards = _body(row, reading, _labels(row))
    forwarded, passed_on = _forwarded(row)
    attachments = (*_files(row), *cards, *passed_on)
    edited = _time(row, "timestampEdited")
    return MessageEvent(
        source="discord",
        source_format="discord-dce",
        workspace=place.workspace,
        channel=ChannelRef(id=place.channel),
        id=name,
        version=str(micros(edited) // 1000) if edited else "0",
        ts=time_of(row.get("timestamp")),
        edited_at=edited,
        kind=kind,
        subtype=None if (stated := text_of(row, "type")) in _PLAIN else stated,
        sender=sender_of(row),
        reply_to=_reply_to(row, place.channel),
        thread_id=place.channel if place.is_thread else None,
        text=text,
        text_source=source,
        mentions=(*_mentions(row), *reading.mentions) if kind == "message" else (),
        links=reading.links,
        attachments=attachments,
        permalink=f"https://discord.com/channels/{place.guild}/{place.channel}/{name}" if place.guild else None,
        forwarded=forwarded,
        participants=tuple(filter(None, (id_of(row_of(row, "author").get("id")),))) if kind == "call" else (),
        ingest=Ingest(origin=origin) if origin else None,
    )


def _time(row: Row, key: str) -> datetime | None:
    try:
        at = time_of(row[key]) if row.get(key) else None
    except RejectedError:
        return None
    return at if at and micros(at) >= 0 else None


def kind_of(row: Row) -> Kind:
    """Whether somebody speaks or Discord does."""
    stated = text_of(row, "type")
    if stated in _CALLS or text_of(row, "callEndedTimestamp"):
        return "call"
    return "message" if stated in _SPOKEN else "system"


def sender_of(row: Row) -> Sender:
    """Who spoke. Webhooks are bots whose name may differ from message to message."""
    author = row_of(row, "author")
    user = id_of(author.get("id")) or None
    name = name_of(author) or None
    if not user and not name:
        return Sender(kind="unknown")
    return Sender(id=user, name=name, kind="bot" if author.get("isBot") is True else "user")


def _reply_to(row: Row, channel: str) -> str | None:
    """The message answered. Forwards, pins, and threads that begin at a message refer to messages too."""
    reference = row_of(row, "reference")
    if text_of(row, "type") not in _REPLIES or text_of(reference, "type") not in ("", "Default"):
        return None
    elsewhere = id_of(reference.get("channelId")) not in ("", channel)
    return None if elsewhere else id_of(reference.get("messageId")) or None


# ------------------------------------------------------------------------------------------------- the words


def _labels(row: Row) -> dict[str, str]:
    return {id_of(user.get("id")): name_of(user) for user in rows_of(row, "mentions")}


def _mentions(row: Row) -> Iterator[Mention]:
    for user, name in _labels(row).items():
        if user:
            yield Mention(id=user, label=name or None)


def _body(
    row: Row, reading: Reading, labels: dict[str, str]
) -> tuple[str, Literal["text", "attachments", "none"], list[Attachment]]:
    """The words of a message, where they stood, and the cards below them."""
    text = reading.text(words_of(row, "content"), partial(_TOKEN.sub, partial(_named, reading=reading, labels=labels)))
    cards = list(_cards(row))
    if text.strip():
        return text, "text", cards
    told = "\n".join(filter(None, (part.text for part in cards)))
    bare = [Attachment(name=part.name, kind="card", url=part.url) for part in cards if part.name or part.url]
    return told, "attachments" if told else "none", bare


def _named(match: re.Match[str], reading: Reading, labels: dict[str, str]) -> str:
    """A token of Discord's own, which stands in exports that left the text alone."""
    if match["emoji"]:
        return f":{match['emoji']}:"
    if channel := match["channel"]:
        reading.note(Mention(type="channel", id=channel))
        return f"#{channel}"
    if match["role"]:
        reading.note(Mention(type="group", id=match["user"]))
    elif match["user"] not in labels:
        reading.note(Mention(id=match["user"]))
    return "@" + (labels.get(match["user"]) or match["user"])


def _forwarded(row: Row) -> tuple[Forwarded | None, list[Attachment]]:
    """A message passed on, and what was attached to it."""
    reference, original = row_of(row, "reference"), row_of(row, "forwardedMessage")
    if not original and text_of(reference, "type") != "Forward":
        return None, []
    text, _, cards = _body(original, Reading(), {})
    forwarded = Forwarded(
        id=id_of(reference.get("messageId")) or None,
        channel=id_of(reference.get("channelId")) or None,
        text=text or None,
    )
    return forwarded, [*_files(original), *cards]


def _files(row: Row) -> Iterator[Attachment]:
    for file in rows_of(row, "attachments"):
        name, url = text_of(file, "fileName"), _unsigned(text_of(file, "url"))
        if name or url:
            yield Attachment(
                id=id_of(file.get("id")) or None,
                name=name or None,
                kind=kind_of_file(name or url),
                url=url or None,
                size=count_of(file, "fileSizeBytes") or None,
            )
    for sticker in rows_of(row, "stickers"):
        if name := text_of(sticker, "name"):
            url = text_of(sticker, "sourceUrl")
            yield Attachment(id=id_of(sticker.get("id")) or None, name=name, kind="sticker", url=url or None)


def _unsigned(url: str) -> str:
    """Addresses of files are signed for a day, anew in each export: with that a message would never be the same."""
    return url.partition("?")[0] if "hm=" in url and "is=" in url else url


def _cards(row: Row) -> Iterator[Attachment]:
    for embed in rows_of(row, "embeds"):
        title, url = words_of(embed, "title"), text_of(embed, "url")
        author, footer = row_of(embed, "author"), row_of(embed, "footer")
        below = (words_of(embed, "description"), *fields_of(embed, name="name"), words_of(footer, "text"))
        text = card(words_of(author, "name"), title, url, below)
        if text.strip() or url:
            yield Attachment(name=title or None, kind="card", url=url or None, text=text or None)
    if poll := row_of(row, "poll"):
        yield Attachment(name=_poll_text(poll.get("question")) or None, kind="card", text=_poll(poll) or None)


def _poll(poll: Row) -> str:
    answers = (_poll_text(answer) for answer in as_list(poll.get("answers")))
    return "\n".join(filter(None, (_poll_text(poll.get("question")), *(f"- {text}" for text in answers if text))))


def _poll_text(value: Any) -> str:
    if isinstance(value, dict):
        return words_of(value, "text") or _poll_text(value.get("poll_media"))
    return value if isinstance(value, str) else ""
