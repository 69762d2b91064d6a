"""A post of a Mattermost bulk export to canonical events: the post, then its replies, each with its reactions.

Posts have no ids. One is made of channel, author, time and words: a post that is listed twice is one message, two
posts of one author in the same millisecond are two. A post that was edited between two exports is another message in
the second: nothing in an export ties the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from streammem.connectors.facts import moment_of_ms, version_of
from streammem.connectors.fields import Row, as_row, count_of, rows_of, text_of, words_of
from streammem.connectors.json_rows import loads
from streammem.connectors.markdown import Reading, card, fields_of, kind_of_file
from streammem.connectors.mattermost.directory import Known
from streammem.connectors.mattermost.text import read
from streammem.errors import RejectedError
from streammem.records import Attachment, ChannelRef, Event, Ingest, MessageEvent, ReactionEvent, Sender, SenderKind

Kind = Literal["message", "system", "call"]

_NOTICE = re.compile(
    r"@?(?P<who>[\w.-]+) (?:(?:has )?(?:joined|left) the (?:channel|team)"
    r"|(?:was )?(?:added to|removed from) the (?:channel|team)(?: by @?[\w.-]+)?"
    r"|updated the channel (?:header|purpose|display name)\b.*)\.?",
    re.DOTALL,
)
"""What the server writes in its own name, in exports too old to give the type of a post."""


@dataclass(frozen=True)
class Place:
    """The channel of a post, and what its export is known to hold."""

    workspace: str
    channel: ChannelRef
    team: str
    known: Known


def id_of(row: Row, channel: str) -> str:
    """The made-up id of a post, the same whenever and wherever it is read. Empty for a post without a time."""
    at = count_of(row, "create_at")
    said = json.dumps([channel, text_of(row, "user"), at, words_of(row, "message")]).encode()
    return f"syn:{blake2b(said, digest_size=16).hexdigest()}" if at else ""


def post_events(row: Row, place: Place, parent: str, origin: str) -> Iterator[Event]:
    """A post or, under its `parent`, a reply. Raises RejectedError without a time."""
    message = _message(row, place, parent, origin)
    yield message
    for reaction in rows_of(row, "reactions"):
        if (name := text_of(reaction, "emoji_name")) and (user := text_of(reaction, "user")):
            yield ReactionEvent(
                workspace=place.workspace,
                channel=place.channel.id,
                message=message.id,
                name=name,
                user=user,
                version=version_of(reaction.get("create_at")),
            )


def _message(row: Row, place: Place, parent: str, origin: str) -> MessageEvent:
    name = id_of(row, place.channel.id)
    if not name:
        raise RejectedError("no-timestamp", f"a post has create_at {row.get('create_at')!r:.40}")
    props, reading = props_of(row), Reading()
    kind = kind_of(row)
    text = read(reading, words_of(row, "message"), place.known.names, place.team)
    cards = [*_cards(props)]
    source: Literal["text", "attachments", "none"] = "text"
    if not text.strip():
        text = "\n".join(filter(None, (part.text for part in cards)))
        source = "attachments" if text else "none"
        cards = [Attachment(name=part.name, kind="card", url=part.url) for part in cards if part.name or part.url]
    attachments = (*_files(row), *cards)
    edited = edited_of(row)
    return MessageEvent(
        source="mattermost",
        source_format="mattermost-bulk",
        workspace=place.workspace,
        channel=place.channel,
        id=name,
        version=str(count_of(row, "edit_at")) if edited else "0",
        ts=moment_of_ms(count_of(row, "create_at")),
        edited_at=edited,
        kind=kind,
        subtype=text_of(row, "type") or None,
        sender=_sender(row, props, place.known),
        reply_to=parent or None,
        thread_id=parent or None,
        text=text,
        text_source=source,
        mentions=reading.mentions if kind == "message" else (),
        links=reading.links,
        attachments=attachments,
        ingest=Ingest(origin=origin) if origin else None,
    )


def edited_of(row: Row) -> datetime | None:
    """When the words were last changed."""
    at = count_of(row, "edit_at")
    try:
        return moment_of_ms(at) if at else None
    except RejectedError:
        return None


def kind_of(row: Row) -> Kind:
    """Whether a person (or bot) speaks or the server does: by type, by the wording where there is none."""
    stated = row.get("type")
    if isinstance(stated, str):
        return "call" if stated == "custom_calls" else "system" if stated.startswith("system_") else "message"
    notice = _NOTICE.fullmatch(words_of(row, "message").strip())
    joins = notice and re.search(r"(?:joined|left|updated) the ", notice[0])
    if not notice or (joins and notice["who"].lower() != text_of(row, "user").lower()):
        return "message"  # only its own coming and going is told in somebody's name
    return "system"


def _sender(row: Row, props: Row, known: Known) -> Sender:
    user = text_of(row, "user")
    override = text_of(props, "override_username")
    if override or props.get("from_webhook") in ("true", True) or props.get("from_bot") in ("true", True):
        return Sender(id=user or None, name=override or None, kind="bot")
    stranger: SenderKind = "unknown" if known.kinds or not user else "user"
    return Sender(id=user or None, kind=known.kinds.get(user, stranger))


def props_of(row: Row) -> Row:
    """The extra properties of a post: an object, or one written as text."""
    stated: Any = row.get("props")
    if isinstance(stated, str):
        try:
            stated = loads(stated.encode("utf-8", "replace"))
        except ValueError:
            return {}
    return as_row(stated)


def _files(row: Row) -> Iterator[Attachment]:
    for file in rows_of(row, "attachments"):
        if path := text_of(file, "path"):
            yield Attachment(id=path, name=path.rpartition("/")[2] or None, kind=kind_of_file(path))


def _cards(props: Row) -> Iterator[Attachment]:
    for row in rows_of(props, "attachments"):
        title, url = words_of(row, "title"), text_of(row, "title_link")
        above = "\n".join(filter(None, (words_of(row, "author_name"), words_of(row, "pretext"))))
        below = (words_of(row, "text"), *fields_of(row, name="title"), words_of(row, "footer"))
        text = card(above, title, url, below) or words_of(row, "fallback")
        if text.strip() or url:
            yield Attachment(name=title or None, kind="card", url=url or None, text=text or None)
