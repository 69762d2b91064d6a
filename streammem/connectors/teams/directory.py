"""What Graph and the tenant export list of people, teams, channels, chats and tags, to directory events.

Lists do not say when what they say began, so a list stands as of the newest message that came with it. Who is in a
channel is the exception: there a list gives way to every message that tells of somebody going.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streammem.connectors.fields import Row, row_of, rows_of, text_of, texts_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.teams.known import Known, Room, keep
from streammem.connectors.teams.message import Setting, id_of, members_of_pair
from streammem.connectors.teams.place import Place
from streammem.connectors.teams.times import fact_version, time_of
from streammem.errors import RejectedError
from streammem.records import (
    ChannelEvent,
    ChannelType,
    DirectoryEvent,
    Event,
    GroupEvent,
    MembershipEvent,
    SenderKind,
    UserEvent,
)

_IN_PASSING = "0"
"""Version of what a list says beside its subject: above what messages say in passing, below every list of its own."""
_CHATS: dict[str, ChannelType] = {"oneonone": "dm", "group": "group_dm", "meeting": "group_dm"}


def facts_of(kind: str, row: Row, setting: Setting, place: Place) -> list[Event]:
    """The events of one row of a list. Raises RejectedError for a row without an id."""
    facts: list[Event] = [*_READERS[kind](row, setting, place)]
    if not facts:
        raise IgnoredError(f"{kind}-without-facts")
    return facts


def learn(kind: str, row: Row, known: Known, place: Place) -> None:
    """Take note of names, kinds and of who is where."""
    if kind == "user":
        keep(known.user_names, id_of(row), text_of(row, "displayName").strip())
        keep(known.kinds, id_of(row), _kind_of_user(row), min)  # a guest, where somebody says so
    elif kind == "team":
        keep(known.team_names, _team(row), text_of(row, "displayName", "name").strip())
        keep(known.visibility, _team(row), text_of(row, "visibility").casefold(), min)  # private before public
    elif kind == "channel":
        known.settle(id_of(row), Room(place.team, text_of(row, "membershipType").casefold()))
        keep(known.channel_names, id_of(row), text_of(row, "displayName").strip())
        known.belongs(text_of(row, "tenantId"), id_of(row))
    elif kind == "chat":
        keep(known.channel_names, id_of(row), text_of(row, "topic").strip())
        known.settle(id_of(row), Room("", text_of(row, "chatType").casefold()))
        known.belongs(text_of(row, "tenantId"), id_of(row))
        known.told(time_of(row.get("lastUpdatedDateTime")))
        for member in rows_of(row, "members"):
            learn("member", member, known, Place(channel=id_of(row)))
    elif kind in ("member", "tag-member"):
        keep(known.member_names, text_of(row, "userId"), text_of(row, "displayName").strip())
        if _is_guest(row):
            keep(known.kinds, text_of(row, "userId"), "external", min)
        if group := place.tag or _where(row, place).team:
            known.members[group].update(filter(None, (text_of(row, "userId"),)))
    elif kind == "tag":
        known.members[id_of(row)].update(filter(None, (text_of(m, "userId") for m in rows_of(row, "members"))))


# --------------------------------------------------------------------------------------------------- people


def _user(row: Row, setting: Setting, _place: Place) -> Iterator[DirectoryEvent]:
    user = _required(row)
    if "@removed" in row and not text_of(row, "displayName"):
        raise IgnoredError("removed-user")
    names = (
        text_of(row, "displayName"),
        " ".join(filter(None, (text_of(row, "givenName").strip(), text_of(row, "surname").strip()))),
        text_of(row, "userPrincipalName"),
        text_of(row, "mail"),
    )
    name, *aliases = dict.fromkeys(filter(None, map(str.strip, names))) or (None,)
    yield UserEvent(
        workspace=setting.workspace_of(),
        id=user,
        version=fact_version(setting.known.latest),
        present=row.get("accountEnabled") is not False and "@removed" not in row,
        name=name,
        aliases=tuple(filter(None, aliases)),
        kind=setting.known.kinds.get(user, _kind_of_user(row)),
        title=text_of(row, "jobTitle").strip() or None,
        manager=text_of(row_of(row, "manager"), "id") or None,
    )


def _kind_of_user(row: Row) -> SenderKind:
    is_guest = text_of(row, "userType").casefold() == "guest" or "#EXT#" in text_of(row, "userPrincipalName")
    return "external" if is_guest else "user"


class _Where(NamedTuple):
    team: str
    channel: str
    tenant: str = ""


def _where(row: Row, place: Place) -> _Where:
    """What somebody is a member of: what the page is about, else what the id of the membership holds."""
    if place.team or place.channel:
        return _Where("" if place.channel else place.team, place.channel)
    parts = _unpacked(text_of(row, "id")).split("##")
    if len(parts) < 4:
        return _Where("", "")
    return _Where("", parts[2], parts[1]) if parts[2].startswith("19:") else _Where(parts[2], "", parts[1])


def _unpacked(name: str) -> str:
    try:
        return base64.b64decode(name + "=" * (-len(name) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _member(row: Row, setting: Setting, place: Place) -> Iterator[DirectoryEvent]:
    user, where = text_of(row, "userId"), _where(row, place)
    if not user:
        raise RejectedError("no-id", "a member has no userId")
    channels = [where.channel] if where.channel else setting.known.open_to(where.team)
    workspace = setting.workspace_of(where.tenant, where.channel)
    yield from _named(row, user, workspace, setting.known)
    for channel in channels:
        version = fact_version(time_of(row.get("visibleHistoryStartDateTime")))
        yield MembershipEvent(workspace=workspace, channel=channel, user=user, version=version)


def _named(row: Row, user: str, workspace: str, known: Known) -> Iterator[UserEvent]:
    name, email = text_of(row, "displayName").strip(), text_of(row, "email").strip()
    if name and user not in known.user_names:
        yield UserEvent(
            workspace=workspace,
            id=user,
            version=_IN_PASSING,
            name=name,
            aliases=(email,) if email and email != name else (),
            kind="external" if _is_guest(row) else "user",
        )


def _is_guest(member: Row) -> bool:
    return "guest" in map(str.casefold, (*texts_of(member, "roles"), text_of(member, "role")))


def _tag_member(row: Row, setting: Setting, _place: Place) -> Iterator[DirectoryEvent]:
    user = text_of(row, "userId")
    if not user:
        raise RejectedError("no-id", "a member has no userId")
    yield from _named(row, user, setting.workspace_of(), setting.known)


# ------------------------------------------------------------------------------------------------- the rooms


def _team(row: Row) -> str:
    return text_of(row, "groupsId", "groupId", "id")


def _team_of(row: Row, setting: Setting, _place: Place) -> Iterator[DirectoryEvent]:
    """A team as a group of people: its channels are listed apart."""
    if not (team := _team(row)):
        raise RejectedError("no-id", "a team has no id")
    yield _group(team, setting.known.team_names.get(team) or text_of(row, "displayName", "name"), setting)


def _tag(row: Row, setting: Setting, _place: Place) -> Iterator[DirectoryEvent]:
    yield _group(_required(row), text_of(row, "displayName"), setting, rows_of(row, "members"))


def _group(group: str, name: str, setting: Setting, listed: Iterable[Row] = ()) -> GroupEvent:
    members = {*setting.known.members.get(group, ()), *(text_of(member, "userId") for member in listed)} - {""}
    return GroupEvent(
        workspace=setting.workspace_of(),
        id=group,
        version=fact_version(setting.known.latest) if members else _IN_PASSING,
        name=name.strip() or None,
        members=tuple(sorted(members)),
    )


def _channel(row: Row, setting: Setting, place: Place) -> Iterator[DirectoryEvent]:
    channel, known = _required(row), setting.known
    name = text_of(row, "displayName").strip()
    stated = Room(place.team, text_of(row, "membershipType").casefold())
    yield ChannelEvent(
        workspace=setting.workspace_of(text_of(row, "tenantId"), channel),
        id=channel,
        version=fact_version(time_of(row.get("createdDateTime")), known.latest),
        name=name or None,
        type=known.type_of(channel, stated),
        aliases=tuple(sorted(known.former.get(channel, set()) - {name})),
        parent_id=place.team or None,
        topic=text_of(row, "description").strip() or None,
    )


def _chat(row: Row, setting: Setting, _place: Place) -> Iterator[DirectoryEvent]:
    chat, known = _required(row), setting.known
    name = text_of(row, "topic").strip()
    workspace = setting.workspace_of(text_of(row, "tenantId"), chat)
    times = (time_of(row.get("createdDateTime")), time_of(row.get("lastUpdatedDateTime")), known.latest)
    yield ChannelEvent(
        workspace=workspace,
        id=chat,
        version=fact_version(*times),
        name=name or None,
        type=_CHATS.get(text_of(row, "chatType").casefold(), "unknown"),
        aliases=tuple(sorted(known.former.get(chat, set()) - {name})),
    )
    yield from members_of_pair(chat, workspace)
    for member in rows_of(row, "members"):
        if text_of(member, "userId"):
            yield from _member(member, setting, Place(channel=chat))


def _required(row: Row) -> str:
    if found := id_of(row):
        return found
    raise RejectedError("no-id", "a row of a list has no id")


_READERS = {
    "user": _user,
    "member": _member,
    "team": _team_of,
    "tag": _tag,
    "tag-member": _tag_member,
    "channel": _channel,
    "chat": _chat,
}
KINDS = frozenset(_READERS)
