"""Canonical events: their identity, their validation, and what they say about the directory.

An event's key is uid/version/content hash (directory: entity/version/content hash), so the same fact always has
the same key and two different facts never share one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from streammem.core import identifiers
from streammem.core.registers import fact_key, number
from streammem.errors import RejectedError
from streammem.records import (
    Attachment,
    ChannelEvent,
    DirectoryEvent,
    ErasureEvent,
    Event,
    MessageEvent,
    ReactionEvent,
    UserEvent,
    Version,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_LONE = re.compile("[\ud800-\udfff]")
_KINDS = {"message", "reaction", "user", "channel", "membership"}

TEXT_LIMIT = 64 * 1024
"""Longest text kept, in characters: longer ones are cut at a code point and say so (chat-formats/kafka.md)."""

CARD_LIMIT = 2_000
"""Characters of a card that are kept beside a message's own words."""

EVENT_LIMIT = 900_000
"""Longest event kept, in bytes of JSON: what a record of the log may be by Kafka's defaults, with room for its key."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def micros(moment: datetime) -> int:
    """Microseconds UTC since 1970, exact."""
    return (moment - _EPOCH) // _MICRO


def moment(microseconds: int) -> datetime:
    """The date-time of a count of microseconds UTC since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _quote(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F") if "/" in part or "%" in part else part


def uid(workspace: str, channel: str, message: str) -> str:
    """The identity of a message: products' ids are unique in their channel only (design §3)."""
    return f"{_quote(workspace)}/{_quote(channel)}/{_quote(message)}"


def workspace_of(name: str) -> str:
    """The workspace of the message that a uid names."""
    return name.partition("/")[0].replace("%2F", "/").replace("%25", "%")


def native_id(name: str) -> str:
    """The id that the product gave the message that a uid names."""
    return name.rpartition("/")[2].replace("%2F", "/").replace("%25", "%")


def channel_of(name: str) -> str:
    """The channel of the message that a uid names."""
    channel = name.split("/", 2)[1]
    return channel.replace("%2F", "/").replace("%25", "%") if "%" in channel else channel


def encode(event: Event) -> bytes:
    """The canonical JSON of an event."""
    return _encoder.encode(event)


def decode(raw: bytes | str) -> Event:
    """Read one canonical event. Raises RejectedError with a reason that a person can act on."""
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid-event", str(error)) from None
    except msgspec.DecodeError as error:
        raise RejectedError("not-json", str(error)) from None
    except RecursionError:
        raise RejectedError("not-json", "nested too deeply") from None


def content_hash(event: Event) -> str:
    """128 bits over everything the source said: how the event came here (`ingest`) is left out."""
    said = msgspec.structs.replace(event, ingest=None) if event.ingest is not None else event
    return hashlib.blake2b(_encoder.encode(said), digest_size=16).hexdigest()


def key(event: Event, digest: str) -> str:
    """The event's key in the log: the same fact always has the same key (design §4)."""
    if isinstance(event, MessageEvent):
        name = uid(event.workspace, event.channel.id, event.id)
        return f"{name}/{number(event.version)}/{'d' if event.op == 'delete' else 'u'}{digest}"
    if isinstance(event, ErasureEvent):
        return "/".join(map(_quote, ("erasure", event.entity, event.workspace, event.channel, event.id)))
    return "/".join(map(_quote, fact_key(event))) + f"/{number(event.version)}/{digest}"


def clean(text: str) -> str:
    """The text without what no store keeps and no model reads: NUL, lone surrogates, CRLF."""
    if "\x00" in text or "\r" in text:
        text = text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


def _cut(attachment: Attachment) -> Attachment:
    return msgspec.structs.replace(attachment, text=attachment.text[:TEXT_LIMIT] if attachment.text else None)


def normalise(event: Event) -> Event:
    """The event in the form that the log keeps. Raises RejectedError when it cannot be used.

    Text loses NUL, lone surrogates and CRLF and is cut at TEXT_LIMIT with a mark, an attachment's text is cut there
    too; text of blanks is none, wherever it stood; nothing else is touched.
    """
    if event.schema_version.partition(".")[0] != "1":
        raise RejectedError("unknown-schema-version", f"schema_version {event.schema_version!r}: 1.x is known here")
    usable = _normalise_message(event) if isinstance(event, MessageEvent) and event.op == "upsert" else event
    size = len(_encoder.encode(usable))
    if size > EVENT_LIMIT:
        raise RejectedError("too-large", f"{size} bytes as an event, at most {EVENT_LIMIT} are kept")
    return usable


def _normalise_message(event: MessageEvent) -> MessageEvent:
    if event.ts is None:
        raise RejectedError("no-timestamp", f"message {event.id!r} has no ts")
    if not _EPOCH <= event.ts < _LATEST:
        raise RejectedError("time-out-of-range", f"message {event.id!r} has ts {event.ts.isoformat()}")
    if any(len(a.text or "") > TEXT_LIMIT for a in event.attachments):
        event = msgspec.structs.replace(event, attachments=tuple(map(_cut, event.attachments)))
    text = clean(event.text)
    if not text.strip():
        return msgspec.structs.replace(event, text="", text_source="none")
    if len(text) > TEXT_LIMIT:
        size = event.text_bytes or len(text.encode())
        return msgspec.structs.replace(event, text=text[:TEXT_LIMIT], text_truncated=True, text_bytes=size)
    return event if text is event.text else msgspec.structs.replace(event, text=text)


def _passed_on(event: MessageEvent) -> str:
    """The words of the message that this one forwards."""
    return (event.forwarded.text or "").strip() if event.forwarded else ""


def _since(event: MessageEvent) -> int:
    """When this version was said. A delete without a time counts from its own version if that is a time."""
    if event.op == "delete":
        stated = event.deleted_at or event.ts
        return micros(stated) if stated else 0
    return micros(event.edited_at or event.ts or _EPOCH)


def shown_text(event: MessageEvent) -> str:
    """What a person read: the text, else the forwarded words, else what the attachments carry."""
    if event.text.strip():
        return event.text
    return _passed_on(event) or "\n".join(a.text or a.name or a.url or "" for a in event.attachments).strip()


def attached_text(event: MessageEvent) -> str:
    """What came with a message that has words of its own: the words it passes on, cards, names of files."""
    if not event.text.strip():
        return ""
    return "\n".join(filter(None, (_passed_on(event), *(_beside(a, event.text) for a in event.attachments))))


def _beside(attachment: Attachment, text: str) -> str:
    """What an attachment adds: the words of a card, the name of a file. Previews of links add nothing."""
    if attachment.kind == "card":
        return (attachment.text or "")[:CARD_LIMIT].strip()
    named = attachment.name if attachment.kind in ("file", "image", "canvas") else None
    return named if named and named not in text else ""


def version_of(event: MessageEvent, digest: str, rules: identifiers.Rules) -> Version:
    """The version record of a message event: everything the forests need, derived once."""
    name = uid(event.workspace, event.channel.id, event.id)
    if event.op == "delete":
        return Version(
            uid=name,
            number=number(event.version),
            deleted=True,
            hash=digest,
            workspace=event.workspace,
            channel=event.channel.id,
            id=event.id,
            ts=0,
            since=_since(event),
            user="",
            text="",
        )
    text, attached = shown_text(event), attached_text(event)
    words = f"{text}\n{attached}" if attached else text
    here = (event.workspace, event.channel.id)
    thread = event.thread_id if event.thread_id and event.thread_id != event.id else None
    spoken = event.kind == "message"
    return Version(
        uid=name,
        number=number(event.version),
        deleted=False,
        hash=digest,
        workspace=event.workspace,
        channel=event.channel.id,
        id=event.id,
        ts=micros(event.ts or _EPOCH),
        since=_since(event),
        user=event.sender.id or event.sender.name or "",
        text=text,
        reply_to=uid(*here, event.reply_to) if event.reply_to and event.reply_to != event.id else "",
        thread=uid(*here, thread) if thread else "",
        mentions=tuple(sorted({m.id for m in event.mentions if m.type == "user"})) if spoken else (),
        identifiers=rules.identifiers(words) if spoken else (),
        markers=rules.markers(words) if spoken else (),
        kind=event.kind,
        permalink=event.permalink or "",
        attached=attached,
    )


def hints(event: MessageEvent) -> list[DirectoryEvent]:
    """What a message says in passing about its channel and sender, as facts that any directory event beats.

    Their version is a fraction below one made of the message's time, so the newest hint wins among hints only
    (core.registers.fact_order).
    """
    if event.ts is None:
        return []
    version = f"0.{micros(event.ts):017d}"
    facts: list[DirectoryEvent] = []
    channel, sender = event.channel, event.sender
    if channel.name or channel.type:
        facts.append(
            ChannelEvent(
                workspace=event.workspace,
                id=channel.id,
                version=version,
                name=channel.name,
                type=channel.type or "unknown",
            )
        )
    if sender.id and sender.name:
        facts.append(
            UserEvent(workspace=event.workspace, id=sender.id, version=version, name=sender.name, kind=sender.kind)
        )
    return facts


def facts_of(events: Iterable[Event]) -> list[DirectoryEvent | ReactionEvent]:
    """All directory facts and reactions that a batch of events states, in passing or outright.

    Of the hints about one entity only the newest are returned: the others could not win their register.
    """
    facts: list[DirectoryEvent | ReactionEvent] = []
    newest: dict[tuple[str, ...], list[DirectoryEvent]] = {}
    for event in events:
        if isinstance(event, ErasureEvent):
            continue
        if not isinstance(event, MessageEvent):
            facts.append(event)
            continue
        for hint in hints(event):
            known = newest.setdefault(fact_key(hint), [hint])
            if hint.version > known[0].version:
                known[:] = [hint]
            elif hint.version == known[0].version and hint not in known:
                known.append(hint)
    return facts + [hint for known in newest.values() for hint in known]
