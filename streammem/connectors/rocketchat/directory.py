"""Rocket.Chat's users, rooms and subscriptions to directory events, and what messages need to know of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streammem.connectors.facts import offset_name, version_of
from streammem.connectors.fields import Row, as_list, row_of, text_of, texts_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.rocketchat.mongo import id_of, milliseconds
from streammem.errors import RejectedError
from streammem.records import ChannelEvent, ChannelType, Event, MembershipEvent, SenderKind, UserEvent

_TYPES: dict[str, ChannelType] = {"c": "public", "p": "private", "d": "dm", "l": "private", "v": "private"}
"""Livechat (`l`) and telephone (`v`) are read by their agents only."""
ROOM_TYPES = frozenset(_TYPES)
_BOTS = frozenset({"bot", "app"})
_SYSTEM_BOT = "rocket.cat"


@dataclass
class Known:
    """What the dump tells about people and rooms. Filled before messages are read, in any order."""

    workspace: str
    channel: str = ""
    user_ids: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, SenderKind] = field(default_factory=dict)
    room_ids: dict[str, str] = field(default_factory=dict)
    public_teams: set[str] = field(default_factory=set)

    def learn_user(self, row: Row) -> None:
        user = id_of(row.get("_id"))
        if user:
            self.kinds[user] = kind_of(row, user)
            if username := text_of(row, "username"):
                self.user_ids[username] = user

    def learn_room(self, row: Row) -> None:
        room = id_of(row.get("_id"))
        for name in filter(None, (room, text_of(row, "name"))):
            # Two rooms of one name (a rename came between): the choice must not depend on their order.
            self.room_ids[name] = min(room, self.room_ids.get(name, room))
        if row.get("teamMain") is True and row.get("t") == "c" and (team := id_of(row.get("teamId"))):
            self.public_teams.add(team)


def kind_of(row: Row, user: str) -> SenderKind:
    """Whether a user is a person, by its own row (empty when there is none) or its id."""
    if text_of(row, "type") in _BOTS or user == _SYSTEM_BOT:
        return "bot"
    return "user"


def user_of(row: Row, known: Known) -> list[Event]:
    """The state of a user. A deactivated account is absent and keeps its names."""
    user = _required(row, "_id")
    username, name = text_of(row, "username"), text_of(row, "name")
    names = list(dict.fromkeys(filter(None, (name, username, text_of(row, "nickname")))))
    return [
        UserEvent(
            workspace=known.workspace,
            id=user,
            version=_version(row, "createdAt"),
            present=row.get("active") is not False,
            name=names[0] if names else None,
            aliases=tuple(names[1:]),
            kind=kind_of(row, user),
            timezone=_zone(row.get("utcOffset")),
        )
    ]


def room_of(row: Row, known: Known) -> list[Event]:
    """The state of a room, and the people of a direct one."""
    room = _required(row, "_id")
    version = _version(row, "ts", "lm")
    # Those of a direct room are made of the names of its people, who are told as its members.
    slug, title = ("", "") if row.get("t") == "d" else (text_of(row, "name"), text_of(row, "fname"))
    channel = ChannelEvent(
        workspace=known.workspace,
        id=room,
        version=version,
        name=title or slug or None,
        type=_type(row, known),
        aliases=(slug,) if title and slug and slug != title else (),
        parent_id=id_of(row.get("prid")) or None,
        topic=text_of(row, "topic") or None,
    )
    return [channel, *_people(row, known, room, version)]


def _type(row: Row, known: Known) -> ChannelType:
    """A public room of a team is open to all only where its team is known to be."""
    kind = _TYPES.get(text_of(row, "t"), "unknown")
    team = id_of(row.get("teamId"))
    if kind == "public" and team and team not in known.public_teams:
        return "private"
    return "group_dm" if kind == "dm" and len(as_list(row.get("uids"))) > 2 else kind


def _people(row: Row, known: Known, room: str, version: str) -> Iterator[MembershipEvent]:
    if row.get("t") == "d":
        for user in texts_of(row, "uids"):
            yield MembershipEvent(workspace=known.workspace, channel=room, user=user, version=version)


def member_of(row: Row, known: Known) -> list[Event]:
    """Who has joined a room. One who is only invited reads nothing yet."""
    room, user = _required(row, "rid"), id_of(row_of(row, "u").get("_id")) or id_of(row.get("u._id"))
    if not user:
        raise RejectedError("no-user", "a subscription has no user")
    if text_of(row, "status") == "INVITED":
        raise IgnoredError("invitation")
    return [MembershipEvent(workspace=known.workspace, channel=room, user=user, version=_version(row, "ts"))]


def _required(row: Row, key: str) -> str:
    if found := id_of(row.get(key)):
        return found
    raise RejectedError("no-id", f"a record has no {key!r}")


def _version(row: Row, *others: str) -> str:
    return version_of(milliseconds(*(row.get(key) for key in ("_updatedAt", *others))))


def _zone(hours: Any) -> str | None:
    try:
        return offset_name(round(float(hours) * 3600))
    except (TypeError, ValueError, OverflowError):
        return None
