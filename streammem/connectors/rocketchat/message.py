"""One document of Rocket.Chat's message collection to canonical events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from streammem.connectors.facts import reactions_of, version_of
from streammem.connectors.fields import Row, row_of, rows_of, text_of, texts_of, words_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.rocketchat.directory import Known, kind_of
from streammem.connectors.rocketchat.mongo import id_of, milliseconds, moment_of
from streammem.connectors.rocketchat.parts import Quote, attachments_of, body_of, links_of, quote_of
from streammem.errors import RejectedError
from streammem.records import (
    AttributeEvent,
    ChannelRef,
    Event,
    Forwarded,
    Ingest,
    Mention,
    MessageEvent,
    Sender,
    SenderKind,
)

Kind = Literal["message", "system", "call", "encrypted"]

NEVER_UNDONE = "99999999999999"
"""Version, in ms, of a deletion without any time: above every edit, for nothing is brought back."""

_KINDS: dict[str, Kind] = {
    "": "message",
    "e2e": "encrypted",
    "videoconf": "call",
    "jitsi_call_started": "call",
    "livechat_video_call": "call",
    "livechat_webrtc_video_call": "call",
}
_CHANGES: dict[str, Literal["name", "topic"]] = {"r": "name", "room_changed_topic": "topic"}
_EVERYBODY = frozenset({"all", "here"})


def events_of(row: Row, known: Known, origin: str = "") -> Iterator[Event]:
    """The message (or its deletion) that a document states, then what it changed in its room, then its reactions.

    `_updatedAt` orders the versions: it moves with every edit, and with reactions and replies, which are none.
    An edit that leaves nothing deletes. Raises RejectedError for a document without identity or time, IgnoredError for
    an old version kept aside (`history`).
    """
    message, room = id_of(row.get("_id")), id_of(row.get("rid")) or known.channel
    if not message:
        raise RejectedError("no-id", "a message has no '_id'")
    if not room:
        raise RejectedError("no-channel", f"message {message!r} has no 'rid'")
    if row.get("_hidden") is True and id_of(row.get("parent")):
        raise IgnoredError("history")
    if text_of(row, "t") == "rm" or row.get("_hidden") is True:
        yield _deletion(row, message, room, known, origin)
        return
    said = _said(row, message, room, known, origin)
    yield said
    yield from _change(row, room, known)
    yield from _reactions(row, said, known)


def _deletion(row: Row, message: str, room: str, known: Known, origin: str) -> MessageEvent:
    return MessageEvent(
        op="delete",
        source="rocketchat",
        source_format="rocketchat-mongo",
        workspace=known.workspace,
        channel=ChannelRef(id=room),
        id=message,
        version=milliseconds(row.get("_updatedAt"), row.get("editedAt")) or NEVER_UNDONE,
        deleted_at=moment_of(row.get("editedAt")) or moment_of(row.get("_updatedAt")),
        ingest=Ingest(origin=origin) if origin else None,
    )


def _said(row: Row, message: str, room: str, known: Known, origin: str) -> MessageEvent:
    ts = moment_of(row.get("ts"))
    if ts is None:
        raise RejectedError("bad-timestamp", f"message {message!r} has ts {row.get('ts')!r:.60}")
    kind = _KINDS.get(text_of(row, "t"), "system")
    # The `msg` of an encrypted message is its ciphertext.
    text, text_source = body_of(row) if kind != "encrypted" else ("", "none")
    attachments = attachments_of(row, told=text_source == "attachments") if kind != "encrypted" else ()
    root = id_of(row.get("tmid"))
    answered, forwarded = _quoted(quote_of(row), text, room, known)
    is_blank = kind == "message" and not (text or attachments or (forwarded and forwarded.text))
    edited = moment_of(row.get("editedAt"))
    if is_blank and edited:
        return _deletion(row, message, room, known, origin)
    return MessageEvent(
        source="rocketchat",
        source_format="rocketchat-mongo",
        workspace=known.workspace,
        channel=ChannelRef(id=room),
        id=message,
        version=milliseconds(row.get("_updatedAt"), row.get("editedAt")) or "0",
        ts=ts,
        edited_at=edited,
        kind=kind,
        subtype=text_of(row, "t") or None,
        sender=_sender(row, known),
        reply_to=root or answered or None,
        thread_id=root or None,
        broadcast=row.get("tshow") is True,
        text=text,
        text_source=text_source,
        mentions=tuple(_mentions(row, known)) if kind == "message" else (),
        links=links_of(row),
        attachments=attachments,
        forwarded=forwarded,
        ingest=Ingest(origin=origin) if origin else None,
    )


def _quoted(quote: Quote | None, text: str, room: str, known: Known) -> tuple[str, Forwarded | None]:
    """What a quote makes of the message: an answer, or, without words or from another room, a message passed on."""
    if quote is None:
        return "", None
    place = known.room_ids.get(quote.room, "")
    if text.strip() and place in ("", room):
        return quote.id, None
    return "", Forwarded(id=quote.id, channel=place or None, text=quote.text or None)


def _sender(row: Row, known: Known) -> Sender:
    """Who spoke. The name is given only where the directory has none; integrations speak under an alias."""
    person = row_of(row, "u")
    user = id_of(person.get("_id")) or id_of(row.get("u._id"))
    name = text_of(row, "alias") or text_of(person, "name", "username") or text_of(row, "u.name", "u.username")
    return Sender(
        id=user or None, name=None if user in known.kinds else name or None, kind=_kind_of_sender(row, user, known)
    )


def _kind_of_sender(row: Row, user: str, known: Known) -> SenderKind:
    if row_of(row, "bot") or row.get("bot") is True:
        return "bot"
    if user in known.kinds:
        return known.kinds[user]
    if not user:
        return "unknown"
    if text_of(row, "token"):
        return "external"  # a visitor of the livechat, who has no account
    return "unknown" if known.kinds and kind_of({}, user) == "user" else kind_of({}, user)


def _mentions(row: Row, known: Known) -> Iterator[Mention]:
    seen: set[tuple[str, str]] = set()
    for mention in (*_people(row, known), *_rooms(row, known)):
        if (mention.type, mention.id) not in seen:
            seen.add((mention.type, mention.id))
            yield mention


def _people(row: Row, known: Known) -> Iterator[Mention]:
    for named in rows_of(row, "mentions"):
        username = text_of(named, "username")
        user = id_of(named.get("_id")) or known.user_ids.get(username, username)
        if user in _EVERYBODY:
            yield Mention(type="special", id=user)
        elif user:
            group = text_of(named, "type") == "team"
            yield Mention(type="group" if group else "user", id=user, label=text_of(named, "name") or username or None)


def _rooms(row: Row, known: Known) -> Iterator[Mention]:
    for named in rows_of(row, "channels"):
        name = text_of(named, "name")
        if room := id_of(named.get("_id")) or known.room_ids.get(name, ""):
            yield Mention(type="channel", id=room, label=text_of(named, "fname") or name or None)


def _change(row: Row, room: str, known: Known) -> Iterator[Event]:
    """A room's new name or topic, which its system message tells."""
    attribute, value = _CHANGES.get(text_of(row, "t")), words_of(row, "msg")
    if attribute and value:
        yield AttributeEvent(
            workspace=known.workspace,
            entity="channel",
            id=room,
            attribute=attribute,
            value=value,
            version=version_of(milliseconds(row.get("ts"))),
        )


def _reactions(row: Row, said: MessageEvent, known: Known) -> Iterator[Event]:
    """Reactions list usernames: they become ids where the users are known, and stay what they are elsewhere."""
    reactions = row_of(row, "reactions")
    listed = [
        {
            "name": code.strip(":"),
            "users": [known.user_ids.get(name, name) for name in texts_of(row_of(reactions, code), "usernames")],
        }
        for code in reactions
    ]
    yield from reactions_of({"reactions": listed}, said.workspace, said.channel.id, said.id, said.version)
