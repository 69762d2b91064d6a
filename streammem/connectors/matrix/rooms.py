"""What Matrix's state events say of rooms and people, and what of it is known when messages are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, count_of, row_of, rows_of, text_of, texts_of
from streammem.records import ChannelEvent, ChannelType, Event, MembershipEvent, TieEvent, UserEvent

_OF_ROOMS = frozenset(
    {
        *("m.room.create", "m.room.name", "m.room.topic", "m.room.canonical_alias"),
        *("m.room.join_rules", "m.room.history_visibility", "m.space.parent"),
    }
)
_READ_BY_NEWCOMERS = frozenset({"world_readable", "shared"})


@dataclass(frozen=True, order=True)
class Stated:
    """When a piece of a room's state was set, by which event, to what. The latest stands."""

    ts: int
    event: str
    content: Row = field(compare=False)


@dataclass
class Rooms:
    """The state of rooms, by (room, type of state, key)."""

    workspace: str
    _state: dict[str, dict[tuple[str, str], Stated]] = field(default_factory=dict)

    def learn(self, event: Row, room: str) -> None:
        kind, key = text_of(event, "type"), event.get("state_key")
        is_direct = kind == "m.room.member" and row_of(event, "content").get("is_direct") is True
        if isinstance(key, str) and (kind in _OF_ROOMS or is_direct):
            stated = Stated(count_of(event, "origin_server_ts"), text_of(event, "event_id"), row_of(event, "content"))
            held = self._state.setdefault(room, {})
            held[kind, key] = max(stated, held.get((kind, key), stated))

    def facts(self, event: Row, room: str) -> Iterator[Event]:
        """What a state event tells the directory. A room's state is told once, by the latest event that set it."""
        kind, key = text_of(event, "type"), event.get("state_key")
        if not isinstance(key, str):
            return
        version = version_of(count_of(event, "origin_server_ts"))
        if kind == "m.room.member" and key:
            yield from self._member(row_of(event, "content"), key, room, version)
        elif kind == "m.room.tombstone" and (successor := text_of(row_of(event, "content"), "replacement_room")):
            yield TieEvent(workspace=self.workspace, entity="channel", id=successor, same_as=room, version=version)
        elif kind in _OF_ROOMS and self._is_latest(event, room):
            yield self._room(room)

    def _is_latest(self, event: Row, room: str) -> bool:
        latest = max((s for (kind, _), s in self._state.get(room, {}).items() if kind in _OF_ROOMS), default=None)
        return latest is not None and latest.event == text_of(event, "event_id")

    def _member(self, content: Row, user: str, room: str, version: str) -> Iterator[Event]:
        membership = text_of(content, "membership")
        if name := text_of(content, "displayname"):
            yield UserEvent(
                workspace=self.workspace, id=user, version=version, name=name, aliases=_localpart(user, name)
            )
        # An invited person reads nothing yet.
        if membership in ("join", "leave", "ban"):
            yield MembershipEvent(
                workspace=self.workspace, channel=room, user=user, version=version, present=membership == "join"
            )

    # ------------------------------------------------------------------------------------- a room as it stands

    def _content(self, room: str, kind: str) -> Row:
        stated = self._state.get(room, {}).get((kind, ""))
        return stated.content if stated else {}

    def _room(self, room: str) -> ChannelEvent:
        held = self._state[room]
        name = text_of(self._content(room, "m.room.name"), "name")
        aliases = self._content(room, "m.room.canonical_alias")
        addresses = [*filter(None, (text_of(aliases, "alias"),)), *texts_of(aliases, "alt_aliases")]
        shown = name or next(iter(addresses), "")
        return ChannelEvent(
            workspace=self.workspace,
            id=room,
            version=version_of(max(stated.ts for (kind, _), stated in held.items() if kind in _OF_ROOMS)),
            name=shown or None,
            type=self._type(room),
            aliases=tuple(alias for alias in dict.fromkeys(addresses) if alias != shown),
            parent_id=self._parent(room),
            topic=_topic(self._content(room, "m.room.topic")) or None,
        )

    def called(self, room: str, told: str) -> str:
        """What an export tells that a room is called. A direct one without a name Element calls by who is in it."""
        held = self._state.get(room, {})
        is_direct = any(kind == "m.room.member" for kind, _ in held)
        is_named = any((kind, "") in held for kind in ("m.room.name", "m.room.canonical_alias"))
        return "" if is_direct and not is_named else told

    def _type(self, room: str) -> ChannelType:
        """Public is a room that anybody may join and whose past newcomers may read; one that does not say is private.

        By the specification past is shared unless said otherwise.
        """
        rule = text_of(self._content(room, "m.room.join_rules"), "join_rule")
        past = text_of(self._content(room, "m.room.history_visibility"), "history_visibility") or "shared"
        if rule == "public" and past in _READ_BY_NEWCOMERS:
            return "public"
        return "dm" if any(kind == "m.room.member" for kind, _ in self._state[room]) else "private"

    def _parent(self, room: str) -> str | None:
        """The space that the room belongs to, the canonical one of several."""
        spaces = sorted(
            (stated.content.get("canonical") is not True, key)
            for (kind, key), stated in self._state[room].items()
            if kind == "m.space.parent" and key and stated.content.get("via")
        )
        return spaces[0][1] if spaces else None


def _topic(content: Row) -> str:
    """The topic, which newer rooms write as blocks of text as well."""
    texts = (text_of(part, "body") for part in rows_of(row_of(content, "m.topic"), "m.text"))
    return text_of(content, "topic") or next(filter(None, texts), "")


def _localpart(user: str, name: str) -> tuple[str, ...]:
    local = user.removeprefix("@").partition(":")[0]
    return (local,) if local and local != name else ()


SystemText = Literal["name", "topic", "body", "displayname"]
_SAID_BY: dict[str, SystemText] = {"m.room.name": "name", "m.room.topic": "topic", "m.room.tombstone": "body"}


def said_by_state(event: Row) -> str:
    """What a state event says to people, as far as it has words of its own."""
    content, kind = row_of(event, "content"), text_of(event, "type")
    if kind == "m.room.member":
        who = text_of(content, "displayname") or str(event.get("state_key"))
        return " ".join(filter(None, (who, text_of(content, "membership"))))
    return text_of(content, _SAID_BY[kind]) if kind in _SAID_BY else ""
