"""One Matrix event to canonical events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from streammem.connectors.fields import Row, count_of, row_of, text_of
from streammem.connectors.matrix.content import (
    POLLS,
    Relation,
    attachments_of,
    links_of,
    mentions_of,
    relation_of,
    rooms_named,
    text_of_message,
)
from streammem.connectors.matrix.known import Known, Original, redaction_inside, redacts
from streammem.connectors.matrix.rooms import Rooms, said_by_state
from streammem.connectors.report import IgnoredError
from streammem.core.events import moment
from streammem.errors import RejectedError
from streammem.records import ChannelRef, Event, Ingest, MessageEvent, ReactionEvent, Sender

NEVER_UNDONE = "99999999999999"
"""Version, in ms, of a deletion: above every edit, for what was redacted never comes back."""

_SAID = frozenset({"m.room.message", "m.sticker", "m.room.encrypted", *POLLS})
_UNREADABLE = "m.bad.encrypted"
_SIGNALS = ("m.call.", "org.matrix.msc3381.poll.", "m.poll.")
_END_OF_TIME = 253_402_300_800_000


@dataclass(frozen=True)
class Reading:
    """One event being read."""

    known: Known
    event: Any
    room: str
    room_name: str
    origin: str

    def events(self) -> list[Event]:
        if not isinstance(self.event, dict):
            raise RejectedError("not-an-object", f"an event is {type(self.event).__name__}")
        for key in ("type", "event_id"):
            if not text_of(self.event, key):
                raise RejectedError(f"no-{key}", f"an event has no {key!r}")
        if not self.room:
            raise RejectedError("no-channel", "an event has no 'room_id'")
        return [*self._stated()]

    @property
    def _id(self) -> str:
        return text_of(self.event, "event_id")

    @property
    def _kind(self) -> str:
        return text_of(self.event, "type")

    @property
    def _ts(self) -> int:
        return count_of(self.event, "origin_server_ts")

    @property
    def _content(self) -> Row:
        return row_of(self.event, "content")

    @property
    def _rooms(self) -> Rooms:
        return self.known.rooms(self.room)

    def _stated(self) -> Iterator[Event]:
        if self._kind == "m.room.redaction":
            yield self._redaction()
        elif "state_key" in self.event:
            yield from self._rooms.facts(self.event, self.room)
            yield self._message(self._id, self._ts, Relation(), kind="system", text=said_by_state(self.event))
        elif self._kind == "m.reaction":
            yield self._reaction()
        elif self._kind in _SAID:
            yield self._said()
        elif self._kind == "m.call.invite":
            yield self._message(self._id, self._ts, Relation(), kind="call")
        else:
            raise IgnoredError("signal" if self._kind.startswith(_SIGNALS) else "other-type")

    # -------------------------------------------------------------------------------------- what takes back

    def _redaction(self) -> Event:
        """A message deleted, a reaction taken back; an edit taken back is told by what stands after it."""
        target = redacts(self.event)
        if not target:
            raise RejectedError("no-target", "a redaction names no event")
        original = self.known.originals.get(target)
        relation = original.relation if original else Relation()
        if relation.kind == "m.annotation" and original and relation.key:
            return self._given(relation, original.sender, present=False)
        if relation.kind == "m.replace":
            raise IgnoredError("edit-taken-back")
        return self._deletion(target, self._ts)

    def _deletion(self, target: str, ts: int) -> MessageEvent:
        return MessageEvent(
            op="delete",
            source="matrix",
            source_format="matrix-element",
            workspace=self._rooms.workspace,
            channel=ChannelRef(id=self.room),
            id=target,
            version=NEVER_UNDONE,
            deleted_at=_moment(ts),
            ingest=Ingest(origin=self.origin),
        )

    def _reaction(self) -> Event:
        relation = relation_of(self._content)
        if not (relation.target and relation.key):
            raise IgnoredError("redacted" if redaction_inside(self.event) else "no-target")
        return self._given(relation, text_of(self.event, "sender"), present=True)

    def _given(self, relation: Relation, user: str, *, present: bool) -> ReactionEvent:
        return ReactionEvent(
            workspace=self._rooms.workspace,
            channel=self.room,
            message=relation.target,
            name=relation.key,
            user=user,
            version=str(self._ts),
            present=present,
        )

    # ------------------------------------------------------------------------------------------ what is said

    def _said(self) -> Event:
        relation = relation_of(self._content)
        if relation.kind == "m.replace" and relation.target:
            return self._edit(relation.target)
        if because := redaction_inside(self.event):
            return self._deletion(self._id, count_of(because, "origin_server_ts"))
        if relation.kind == "m.annotation":
            raise IgnoredError("encrypted-reaction")
        return self._version_of(self._id, self._ts, relation, self._content, edited=0)

    def _edit(self, target: str) -> Event:
        """The original as this event makes it read. Only its author may do that."""
        original = self.known.originals.get(target)
        if reason := self._why_it_edits_nothing(original):
            raise IgnoredError(reason)
        content = row_of(self._content, "m.new_content") or _without_star(self._content)
        ts, relation = (original.ts, original.relation) if original else (self._ts, Relation())
        return self._version_of(target, ts, relation, content, edited=self._ts)

    def _why_it_edits_nothing(self, original: Original | None) -> str:
        if original and original.sender != text_of(self.event, "sender"):
            return "edit-by-another"
        if original and original.relation.kind == "m.replace":
            return "edit-of-an-edit"
        if self._kind == "m.room.encrypted" or text_of(self._content, "msgtype") == _UNREADABLE:
            return "encrypted-edit"  # it would hide words that are known
        return "redacted" if self._id in self.known.redacted else ""

    def _version_of(self, message: str, ts: int, relation: Relation, content: Row, *, edited: int) -> MessageEvent:
        if self._kind == "m.room.encrypted" or text_of(content, "msgtype") == _UNREADABLE:
            return self._message(message, ts, relation, kind="encrypted", edited=edited)
        if not content:
            raise IgnoredError("empty")  # what a redaction has left
        text = text_of_message(content, answers=bool(relation.reply_to))
        return self._message(message, ts, relation, kind="message", text=text, content=content, edited=edited)

    def _message(
        self,
        message: str,
        ts: int,
        relation: Relation,
        *,
        kind: Literal["message", "system", "call", "encrypted"],
        text: str = "",
        content: Row | None = None,
        edited: int = 0,
    ) -> MessageEvent:
        said, when = content or {}, _moment(ts)
        if when is None:
            raise RejectedError("bad-timestamp", f"event {message!r} has no sane origin_server_ts")
        return MessageEvent(
            source="matrix",
            source_format="matrix-element",
            workspace=self._rooms.workspace,
            channel=ChannelRef(id=self.room, name=self._rooms.called(self.room, self.room_name) or None),
            id=message,
            version=self._version(message, edited),
            ts=when,
            edited_at=_moment(edited),
            kind=kind,
            subtype=None if self._kind == "m.room.message" else self._kind,
            sender=self._sender(said),
            reply_to=relation.reply_to or None,
            thread_id=relation.thread or None,
            text=text,
            text_source="text" if text.strip() else "none",
            mentions=(*mentions_of(said), *rooms_named(said)),
            links=links_of(said),
            attachments=attachments_of(said, is_sticker=self._kind == "m.sticker"),
            ingest=Ingest(origin=self.origin),
        )

    def _sender(self, content: Row) -> Sender:
        user = text_of(self.event, "sender")
        is_bot = text_of(content, "msgtype") == "m.notice"
        return Sender(id=user or None, kind="bot" if is_bot else "user" if user else "unknown")

    def _version(self, message: str, edited: int) -> str:
        """The time of the edit. What stands after a later edit was taken back is told as of that moment."""
        return str(max(edited, self.known.restated(message, edited)))


def _without_star(content: Row) -> Row:
    body = text_of(content, "body")
    return {**content, "body": body.removeprefix("* ")}


def _moment(ts: int) -> datetime | None:
    return moment(ts * 1000) if 0 < ts < _END_OF_TIME else None
