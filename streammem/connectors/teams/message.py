"""One Graph chatMessage to canonical events. The same message comes in pages, in notifications and in exports.

A message is ordered by its etag, milliseconds that grow with every change: edit, reaction, deletion and its undo.
Exports have none; the times of the message then say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from streammem.connectors.fields import Row, row_of, rows_of, text_of, words_of
from streammem.connectors.teams.body import Body, read_body
from streammem.connectors.teams.html import is_blank
from streammem.connectors.teams.identity import identity_of
from streammem.connectors.teams.known import Known, is_link, tenant_of_link
from streammem.connectors.teams.place import NOWHERE, Place
from streammem.connectors.teams.reactions import reactions_of
from streammem.connectors.teams.system import event_of, facts_of, is_system, kind_of, participants_of
from streammem.connectors.teams.times import milliseconds, time_in, time_of
from streammem.core.events import moment
from streammem.errors import RejectedError
from streammem.records import ChannelRef, ChannelType, Event, Ingest, MembershipEvent, MessageEvent, Sender

NEVER_UNDONE = "99999999999999"
"""Version of a deletion that Graph calls final, without a time: above every etag."""

HOME = "teams"
"""The workspace of payloads that name no tenant anywhere."""

_ETAG = re.compile(r'(?:W/)?"?(\d{1,20})"?', re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)
_TIMES = ("createdDateTime", "lastModifiedDateTime", "lastEditedDateTime", "deletedDateTime")
_PAIR = re.compile(r"19:([0-9a-fA-F-]{36})_([0-9a-fA-F-]{36})@unq\.gbl\.spaces")


@dataclass(frozen=True)
class Setting:
    """What the caller gave, what other payloads told, and the tenant that the record's wrapping names."""

    known: Known
    workspace: str = ""
    channel: str = ""
    source_format: str = "teams-graph"
    tenant: str = ""

    def workspace_of(self, own: str = "", channel: str = "") -> str:
        """The given workspace, else the tenant."""
        return self.workspace or self.known.tenant(own or self.tenant, channel) or HOME


def events_of(row: Row, setting: Setting, origin: str = "", place: Place = NOWHERE) -> Iterator[Event]:
    """The message (or its deletion) that a payload states, then its reactions and what it tells of its channel.

    Raises RejectedError for a payload without identity.
    """
    said = Said(row, setting, place, origin)
    if "@removed" in row:
        final = text_of(row_of(row, "@removed"), "reason").casefold() == "deleted"
        yield said.deletion(said.stated_version or (NEVER_UNDONE if final else just_after(said.id)))
    elif said.is_deleted:
        yield said.deletion(said.version)
    else:
        yield said.message()
        yield from said.facts()


def id_of(row: Row, key: str = "id") -> str:
    """An id, which some write as a number; 0 is none."""
    value = row.get(key)
    found = (
        str(value) if isinstance(value, int) and not isinstance(value, bool) and value < 2**63 else text_of(row, key)
    )
    return "" if found == "0" else found


def channel_in(row: Row, place: Place = NOWHERE) -> str:
    """The channel or chat that a message says it is in, else the one of its page."""
    stated = text_of(row_of(row, "channelIdentity"), "channelId") or text_of(row, "chatId") or place.channel
    return stated.partition(";messageid=")[0]


def just_after(message: str) -> str:
    """The version of a deletion whose time is not told: it ends the message as first said, and any undo is later."""
    return str(int(message) + 1) if _NUMBER.fullmatch(message) else "1"


def version_in(row: Row) -> str:
    """The etag as a number; empty when there is none."""
    for key in ("etag", "eTag", "@odata.etag", "@Odata.Etag"):
        match = _ETAG.fullmatch(str(row.get(key)).strip()) if isinstance(row.get(key), str | int) else None
        if match:
            return str(int(match[1]))
    return ""


class Said:
    """One message payload being read."""

    def __init__(self, row: Row, setting: Setting, place: Place, origin: str) -> None:
        self._row, self._setting, self._origin = row, setting, origin
        self.id = id_of(row) or place.message
        self.channel = channel_in(row, place) or setting.channel
        if not self.id:
            raise RejectedError("no-id", "a message has no id")
        if not self.channel:
            raise RejectedError("no-channel", f"message {self.id!r:.60} names no channel and no chat")
        self.team = text_of(row_of(row, "channelIdentity"), "teamId") or place.team
        self.is_chat = bool(text_of(row, "chatId")) or _chat_type(self.channel) is not None
        answered = id_of(row, "replyToId") or place.root
        self.root = answered if answered != self.id else ""
        self.tenant = tenant_of_link(text_of(row, "webUrl"))
        self.workspace = setting.workspace_of(self.tenant, self.channel)

    # ----------------------------------------------------------------------------------------- its versions

    @property
    def stated_version(self) -> str:
        """What orders the versions: the etag, else the latest time that the message tells; empty for neither."""
        return version_in(self._row) or (str(milliseconds(max(times))) if (times := [*self._times()]) else "")

    @property
    def version(self) -> str:
        return self.stated_version or (self.id if _NUMBER.fullmatch(self.id) else "0")

    def _times(self) -> Iterator[datetime]:
        found = [time_of(self._row.get(key)) for key in _TIMES]
        if found[1] is None:  # without its last change the history tells when that was
            found += (time_of(item.get("modifiedDateTime")) for item in rows_of(self._row, "messageHistory"))
            found += (time_of(item.get("createdDateTime")) for item in rows_of(self._row, "reactions"))
        yield from filter(None, found)

    @property
    def ts(self) -> datetime | None:
        """When it was written: what it says, else its id, else the earliest other time."""
        return time_of(self._row.get("createdDateTime")) or time_in(self.id) or min(self._times(), default=None)

    @property
    def is_deleted(self) -> bool:
        """Whether it says when it was deleted, or looks like it: a person's, changed, and nothing is left."""
        row = self._row
        if time_of(row.get("deletedDateTime")):
            return True
        if is_system(row) or not row_of(row_of(row, "from"), "user") or not self._is_hollow:
            return False
        unreadable = words_of(row, "deletedDateTime")
        return bool(unreadable and not unreadable.startswith("0001")) or self.version != self._first_version

    @property
    def _is_hollow(self) -> bool:
        left = (*rows_of(self._row, "attachments"), text_of(self._row, "subject").strip())
        return not any(left) and is_blank(words_of(row_of(self._row, "body"), "content"))

    @property
    def _first_version(self) -> str:
        created = time_of(self._row.get("createdDateTime"))
        return str(milliseconds(created)) if created and not version_in(self._row) else self.id

    def deletion(self, version: str) -> MessageEvent:
        return MessageEvent(
            op="delete",
            source="teams",
            source_format=self._setting.source_format,
            workspace=self.workspace,
            channel=ChannelRef(id=self.channel),
            id=self.id,
            version=version,
            deleted_at=time_of(self._row.get("deletedDateTime")),
            ingest=Ingest(origin=self._origin) if self._origin else None,
        )

    # ------------------------------------------------------------------------------------------ what it says

    def message(self) -> MessageEvent:
        row = self._row
        kind = kind_of(row)
        body = read_body(row, self._setting.known.names)
        participants = participants_of(row)
        return MessageEvent(
            source="teams",
            source_format=self._setting.source_format,
            workspace=self.workspace,
            channel=self._channel(),
            id=self.id,
            version=self.version,
            ts=self.ts,
            edited_at=time_of(row.get("lastEditedDateTime")),
            kind=kind,
            subtype=event_of(row) or None,
            sender=self._sender(is_event=kind != "message"),
            reply_to=self._answered(body),
            thread_id=self.root or None,
            text=body.text,
            text_source=body.text_source,
            text_truncated=body.is_cut,
            mentions=body.mentions if kind == "message" else (),
            links=body.links,
            attachments=body.attachments,
            permalink=self._permalink(),
            forwarded=body.forwarded,
            participants=participants,
            ingest=Ingest(origin=self._origin) if self._origin else None,
        )

    def facts(self) -> Iterator[Event]:
        """The reactions, and what an event or the id of a chat tells of the people and the name of the channel."""
        said = self.ts or moment(0)
        changed = moment(int(self.version) * 1000) if time_in(self.version) else said
        yield from reactions_of(self._row, (self.workspace, self.channel, self.id), said, changed)
        yield from facts_of(self._row, self._setting.known, self.workspace, self.channel, said)
        yield from members_of_pair(self.channel, self.workspace)

    def _answered(self, body: Body) -> str | None:
        quoted = body.quoted if self.is_chat and body.quoted != self.id else ""
        return self.root or quoted or None

    def _channel(self) -> ChannelRef:
        """A chat's kind is told by its id; channels are described by their lists only."""
        stated = self.channel in self._setting.known.rooms
        return ChannelRef(id=self.channel, type=None if stated else _chat_type(self.channel) if self.is_chat else None)

    def _sender(self, *, is_event: bool) -> Sender:
        found = identity_of(row_of(self._row, "from"))
        kinds, names = self._setting.known.kinds, self._setting.known.user_names
        if found is None:
            found = identity_of(row_of(row_of(self._row, "eventDetail"), "initiator"))
            if found is None:
                return Sender(kind="system" if is_event else "unknown")
            if found.kind == "unknown":  # events never name people
                found = found._replace(kind="user")
        kind = found.kind
        if kind == "user" and self.tenant and found.tenant and found.tenant != self.tenant:
            kind = "external"
        kind = kinds.get(found.id, kind) if kind in ("user", "unknown") else kind
        return Sender(id=found.id or None, name=None if found.id in names else found.name or None, kind=kind)

    def _permalink(self) -> str | None:
        """The message's address, put together as Graph does where it tells none."""
        if is_link(stated := text_of(self._row, "webUrl")):
            return stated
        address = f"https://teams.microsoft.com/l/message/{quote(self.channel, safe='')}/{quote(self.id, safe='')}"
        if self.is_chat:
            return f"{address}?context=%7B%22contextType%22%3A%22chat%22%7D"
        tenant = self._setting.known.tenant(self.tenant, self.channel)
        parts = {"groupId": self.team, "tenantId": tenant}
        parts |= {"createdTime": self.id, "parentMessageId": self.root or self.id}
        return f"{address}?{urlencode({key: value for key, value in parts.items() if value})}"


def _chat_type(channel: str) -> ChannelType | None:
    """What kind of chat an id is of; None for the id of a channel."""
    if channel.endswith("@unq.gbl.spaces") or channel.startswith("48:"):
        return "dm"
    return "group_dm" if channel.endswith("@thread.v2") else None


def members_of_pair(channel: str, workspace: str) -> Iterator[MembershipEvent]:
    """The two people of a conversation of two, for ever: their ids make up its id."""
    if pair := _PAIR.fullmatch(channel):
        for user in dict.fromkeys(pair.groups()):
            yield MembershipEvent(workspace=workspace, channel=channel, user=user, version="1")


def learn_message(row: Row, known: Known, place: Place = NOWHERE) -> None:
    """Take note of the tenant, the times and the names that a message tells."""
    channel = channel_in(row, place)
    known.belongs(tenant_of_link(text_of(row, "webUrl")), channel)
    known.visited(text_of(row_of(row_of(row, "from"), "user"), "tenantId"))
    known.told(time_of(row.get("createdDateTime")))
    renamed: Any = row_of(row, "eventDetail")
    if name := text_of(renamed, "channelDisplayName", "chatDisplayName").strip():
        known.former[text_of(renamed, "channelId") or channel].add(name)
