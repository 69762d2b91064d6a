"""Rows to canonical events: what each one means, whichever file it stands in and however it was written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from streammem.connectors.facts import offset_name, reactions_of, version_of
from streammem.connectors.fields import Row, as_list, as_row, text_of, texts_of, words_of
from streammem.connectors.json_rows import RECORD_LIMIT, loads
from streammem.connectors.report import IgnoredError, Report
from streammem.core.events import decode, micros, moment
from streammem.errors import RejectedError
from streammem.records import (
    ChannelEvent,
    ChannelRef,
    ChannelType,
    ErasureEvent,
    Event,
    Ingest,
    MembershipEvent,
    Mention,
    MessageEvent,
    Sender,
    SenderKind,
    UserEvent,
)

Convert = Callable[[Row, str], list[Event]]
"""What a row of one kind (a user, a channel, a message) means, and where it stood."""

Kind = Literal["message", "system", "call", "encrypted"]

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
"""When a workspace without any time begins."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_CANONICAL_KEYS = frozenset({"event", "op", "schema_version", "tenant"})
_CHANNEL_TYPES: tuple[ChannelType, ...] = ("public", "private", "dm", "group_dm", "thread", "unknown")
_FEWEST_FIRST: tuple[ChannelType, ...] = ("dm", "group_dm", "private", "thread", "unknown")
_AUDIENCE_KEYS = ("channel_type", "visibility")
_PRIVATE_KEYS = ("private", "is_private", "isPrivate")
_NO = frozenset({"false", "f", "no", "n", "0", "0.0"})
_OPEN = frozenset({"public", "public_channel", "channel", "open", "o", "c"})
_CLOSED = re.compile(r"(?:priv|direct|secret|restrict|closed|confiden|(?:dm|im|mpim|group|group[_ -].*|p|d|g)\Z)")
_ATTACHMENT_KINDS = ("file", "image", "canvas", "card", "unfurl", "sticker", "other")
_SENDER_KINDS: tuple[SenderKind, ...] = ("user", "bot", "external", "system", "unknown")
_MILLISECONDS_FROM = 10**11
_MESSAGE_KINDS: tuple[Kind, ...] = ("system", "call", "encrypted")
_VERSION = re.compile(r"\d{1,40}(?:\.\d{1,40})?", re.ASCII)
_NUMBER = re.compile(r"(\d{9,17})(?:\.(\d+))?", re.ASCII)


@dataclass
class Reader:
    """Turns lines into events. Remembers who and what was introduced, and the last time in each workspace."""

    home: str
    merged: str
    report: Report
    has_channels: bool
    given_channel: str = ""
    source_format: str = "jsonl"
    users: set[tuple[str, str]] = field(default_factory=set)
    roles: set[UserEvent] = field(default_factory=set)
    channels: set[tuple[str, str]] = field(default_factory=set)
    last: dict[str, datetime] = field(default_factory=dict)
    closed: set[tuple[str, str]] = field(default_factory=set)

    def learn(self, row: Row) -> None:
        """Take note of a channel that a row calls anything but public: other rows that say nothing do not open it."""
        stated = "public" if is_canonical(row) else _channel_type(row)
        if stated != "public" and (stated != "unknown" or _speaks_of_audience(row)):
            self.closed.add((text_of(row, "ws") or self.home, _id(row, "channel") or self.given_channel))

    def counted(self, raw: bytes, origin: str, convert: Convert) -> list[Event]:
        """The events of one line, or none and an account of why."""
        if not raw.strip():
            return []
        return self.report.counted(lambda: self.stated(self._of_line(raw, origin, convert)), origin)

    def counted_value(self, value: Any, origin: str, convert: Convert) -> list[Event]:
        """The events of one decoded value, or none and an account of why."""
        return self.report.counted(lambda: self.stated(self._of_value(value, origin, convert)), origin)

    def stated(self, events: list[Event]) -> list[Event]:
        """The events of one row. Raises IgnoredError for a merged channel, RejectedError for an erasure."""
        if any(isinstance(event, ErasureEvent) for event in events):
            raise RejectedError("not-importable", "an erasure is ordered, never imported")
        if events:
            return events
        raise IgnoredError("merged-channel")

    def _of_line(self, raw: bytes, origin: str, convert: Convert) -> list[Event]:
        if len(raw) >= RECORD_LIMIT:
            raise RejectedError("line-too-long", f"a line is longer than {RECORD_LIMIT} bytes")
        if b'"event"' in raw and (event := _ready(raw)):
            return [event]
        try:
            value = loads(raw)
        except ValueError as error:
            raise RejectedError("not-json", str(error)) from None
        return self._of_value(value, origin, convert)

    def _of_value(self, value: Any, origin: str, convert: Convert) -> list[Event]:
        if not isinstance(value, dict):
            raise RejectedError("not-an-object", f"a record is {type(value).__name__}")
        return canonical(value, origin) if is_canonical(value) else convert(value, origin)

    # ----------------------------------------------------------------------------------------- plain rows

    def user(self, row: Row, _origin: str) -> list[Event]:
        workspace = self.merged or text_of(row, "ws") or self.home
        user = _required(row, "id")
        self.users.add((workspace, user))
        name = text_of(row, "name") or None
        event = UserEvent(
            workspace=workspace,
            id=user,
            version=version_of(row.get("version"), row.get("updated")),
            name=name,
            aliases=tuple(alias for alias in texts_of(row, "aliases") if alias != name),
            title=text_of(row, "title") or None,
            role=text_of(row, "role") or None,
            manager=_id(row, "manager") or None,
            timezone=_zone(row.get("tz")),
        )
        return [event]

    def channel(self, row: Row, _origin: str) -> list[Event]:
        """A channel and its members. One that does not say whether it is private counts as private."""
        if self.merged:
            return []  # its channels are the workspaces
        workspace = text_of(row, "ws") or self.home
        channel = _required(row, "id")
        version = version_of(row.get("version"), row.get("updated"))
        self.channels.add((workspace, channel))
        event = ChannelEvent(
            workspace=workspace,
            id=channel,
            version=version,
            name=text_of(row, "name") or None,
            type=_channel_type(row),
            aliases=texts_of(row, "aliases"),
        )
        members = (
            MembershipEvent(workspace=workspace, channel=channel, user=user, version=version)
            for user in texts_of(row, "members")
        )
        return [event, *members]

    def message(self, row: Row, origin: str) -> list[Event]:
        """A message; before the first one that tells the role of somebody whom only rows describe, that person."""
        own = text_of(row, "ws") or self.home
        message, channel = _required(row, "id"), _id(row, "channel") or self.given_channel or _required(row, "channel")
        ts = self._time(row, own)
        text = row.get("text")
        if not isinstance(text, str):
            raise RejectedError("no-text", f"message {message!r} has no text")
        workspace, channel = (self.merged, own) if self.merged else (own, channel)
        edited = _edited(row)
        if edited and not text.strip():
            return [self._emptied((workspace, channel, message), _version(row, edited), edited, origin)]
        name = _id(row, "user")
        user = _id(row, "user_id") or name
        thread, kind = _id(row, "thread"), _kind(row)
        event = MessageEvent(
            source_format=self.source_format,
            workspace=workspace,
            channel=self._channel_ref(workspace, channel, row),
            id=message,
            version=_version(row, edited),
            ts=ts,
            edited_at=edited,
            kind=kind,
            sender=self._sender(workspace, user, text_of(row, "name") or name),
            reply_to=_id(row, "reply_to") or None,
            thread_id=thread if thread and thread != message else None,
            text=text,
            text_source="text" if text.strip() else "none",
            mentions=_mentions(row) if kind == "message" else (),
            ingest=Ingest(origin=origin),
        )
        return [*self._role(row, workspace, user, name), event]

    def _emptied(self, name: tuple[str, str, str], version: str, edited: datetime, origin: str) -> MessageEvent:
        """An edit that leaves no words deletes the message."""
        workspace, channel, message = name
        return MessageEvent(
            op="delete",
            source_format=self.source_format,
            workspace=workspace,
            channel=ChannelRef(id=channel),
            id=message,
            version=version,
            deleted_at=edited,
            ingest=Ingest(origin=origin),
        )

    def _time(self, row: Row, workspace: str) -> datetime:
        """The row's time; without one, a second after the row before: the order of a workspace is all it has."""
        before = self.last.get(workspace)
        stated = row.get("ts")
        ts = time_of(stated) if stated is not None else before + _SECOND if before else FIRST
        self.last[workspace] = ts
        return ts

    def _channel_ref(self, workspace: str, channel: str, row: Row) -> ChannelRef:
        """Where nobody speaks of channels they are public; a row that says more about its own is believed."""
        if self.merged:
            return ChannelRef(id=channel, type="public")
        if (workspace, channel) in self.channels:
            return ChannelRef(id=channel)
        stated = _channel_type(row)
        if stated == "unknown" and not self.has_channels and not _speaks_of_audience(row):
            stated = "unknown" if (workspace, channel) in self.closed else "public"
        return ChannelRef(id=channel, name=text_of(row, "channel_name") or None, type=stated)

    def _sender(self, workspace: str, user: str, name: str) -> Sender:
        if not user:
            return Sender(kind="unknown")
        return Sender(id=user, name=None if (workspace, user) in self.users else name or None)

    def _role(self, row: Row, workspace: str, user: str, name: str) -> list[Event]:
        role = text_of(row, "role")
        if not role or not user or (workspace, user) in self.users:
            return []
        told = UserEvent(workspace=workspace, id=user, version="1", name=name or None, role=role)
        if told in self.roles:
            return []
        self.roles.add(told)
        return [told]


SPEAKING_OF_AUDIENCE = (*_AUDIENCE_KEYS, *_PRIVATE_KEYS, "type")
"""Keys of rows that may say who reads their channel."""


def is_canonical(row: Row) -> bool:
    """Whether a row is an event as it stands, by keys that no plain row has."""
    return not _CANONICAL_KEYS.isdisjoint(row) or isinstance(row.get("sender"), dict)


def _ready(raw: bytes) -> Event | None:
    """A line that is a canonical event as it stands: the fast way."""
    try:
        return decode(raw)
    except RejectedError:
        return None


def canonical(row: Row, origin: str = "") -> list[Event]:
    """A canonical event from a decoded line, in today's words or in the schema proposal's (`tenant`, no `event`).

    Words of an open list that are not known read as unknown, null as absent. Raises RejectedError with a reason for a
    person.
    """
    stated: dict[str, Any] = {"event": "message", **_without_nulls(row)}
    if "tenant" in stated:
        stated.setdefault("workspace", stated["tenant"])
    if stated["event"] == "message":
        stated = _opened(stated, "kind", ("message", *_MESSAGE_KINDS), "message")
        stated["channel"] = _opened(stated.get("channel", {}), "type", _CHANNEL_TYPES)
        stated["sender"] = _opened(stated.get("sender", {}), "kind", _SENDER_KINDS)
        attached = as_list(stated.get("attachments"))
        stated["attachments"] = [_opened(one, "kind", _ATTACHMENT_KINDS, "other") for one in attached]
    try:
        event = msgspec.convert(stated, Event)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid-event", str(error)) from None
    if not isinstance(event, MessageEvent):
        return [event]
    if event.ingest is None and origin:
        event = msgspec.structs.replace(event, ingest=Ingest(origin=origin))
    return [event, *reactions_of(row, event.workspace, event.channel.id, event.id, event.version)]


def _without_nulls(row: Row) -> dict[str, Any]:
    """What is stated, in the row and in the objects of its fields and lists."""
    return {key: _stated_in(value) for key, value in row.items() if value is not None}


def _stated_in(value: Any) -> Any:
    if isinstance(value, list):
        return [_stated_in(item) if isinstance(item, dict) else item for item in value]
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else value


def _opened(part: Any, word: str, known: tuple[str, ...], otherwise: str = "unknown") -> Any:
    if isinstance(part, dict) and isinstance(part.get(word), str) and part[word] not in known:
        return {**part, word: otherwise}
    return part


# ------------------------------------------------------------------------------------------------ the fields


def _id(row: Row, key: str) -> str:
    """An id, which some write as a number."""
    value = row.get(key)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text_of(row, key)


def _required(row: Row, key: str) -> str:
    if found := _id(row, key):
        return found
    raise RejectedError(f"no-{key}", f"a row has no {key!r}")


def time_of(value: Any) -> datetime:
    """An ISO 8601 time (without a zone: UTC) or seconds or milliseconds since 1970, exactly, in UTC.

    >>> time_of("2024-03-01T10:00:00+01:00") == time_of("2024-03-01 09:00") == time_of("1709283600.000000")
    True
    """
    written = str(value).strip()
    try:
        if match := _NUMBER.fullmatch(written):
            return moment(_microseconds(match))
        stated = datetime.fromisoformat(written)
        return (stated if stated.tzinfo else stated.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RejectedError("bad-timestamp", f"ts {written!r:.60} is neither ISO 8601 nor a count of seconds") from None


def _microseconds(match: re.Match[str]) -> int:
    whole, fraction = int(match[1]), (match[2] or "").ljust(6, "0")[:6]
    return whole * 1000 if whole >= _MILLISECONDS_FROM else whole * 1_000_000 + int(fraction)


def _mentions(row: Row) -> tuple[Mention, ...]:
    listed = row.get("mentions")
    ids = (_id({"id": item}, "id") or text_of(as_row(item), "id") for item in as_list(listed))
    return tuple(Mention(id=user) for user in dict.fromkeys(filter(None, ids)))


def _kind(row: Row) -> Kind:
    """What a row says of itself, in `kind` or in `type`; most say nothing."""
    stated = (row.get("kind"), row.get("type"))
    return next((kind for kind in _MESSAGE_KINDS if kind in stated), "message")


def _edited(row: Row) -> datetime | None:
    try:
        return time_of(row["edited_at"]) if row.get("edited_at") is not None else None
    except RejectedError:
        return None


def _version(row: Row, edited: datetime | None) -> str:
    """The stated version, else the time of the edit in ms."""
    stated = _id(row, "version")
    if _VERSION.fullmatch(stated):
        return stated
    return str(micros(edited) // 1000) if edited and edited > EPOCH else "0"


def _channel_type(row: Row) -> ChannelType:
    """The stated type of a channel. Where words contradict each other it is what fewer people read."""
    stated = {word for key in (*_AUDIENCE_KEYS, "type") if (word := words_of(row, key).strip().lower())}
    private = _is_private(row)
    if known := next((known for known in _FEWEST_FIRST if known in stated), None):
        return known
    if private or any(map(_CLOSED.match, stated)):
        return "private"
    is_open = (
        private is False or "public" in stated or any(words_of(row, key).lower() in _OPEN for key in _AUDIENCE_KEYS)
    )
    return "public" if is_open else "unknown"


def _is_private(row: Row) -> bool | None:
    """Whether a row calls its channel private: it does unless its words plainly say no. None where there are none."""
    stated = [row[key] for key in _PRIVATE_KEYS if row.get(key) not in (None, "")]
    return any(str(word).strip().lower() not in _NO for word in stated) if stated else None


def _speaks_of_audience(row: Row) -> bool:
    """Whether a row says anything of who may read its channel, in words that are known or not."""
    return row.get("type") == "unknown" or any(row.get(key) not in (None, "") for key in _AUDIENCE_KEYS)


def _zone(value: Any) -> str | None:
    """A zone's name, or its distance from UTC in hours."""
    try:
        return offset_name(round(float(value) * 3600))
    except (TypeError, ValueError, OverflowError):
        return value if isinstance(value, str) and value else None
