"""What Slack's objects say of people, channels and user groups: in the lists of an export, in pages and in events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from streammem.connectors.facts import offset_name, version_of
from streammem.connectors.fields import Row, count_of, row_of, text_of, texts_of
from streammem.connectors.slack.text import unescape
from streammem.records import ChannelEvent, ChannelType, GroupEvent, MembershipEvent, SenderKind, UserEvent

SLACKBOT = "USLACKBOT"
_OF_HANDLES = re.compile(r"mpdm-.+-\d+")
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False}


def _states(row: Row, sign: str) -> bool | None:
    """A yes or no, which tables write as words and numbers; None when it is neither."""
    value = row.get(sign)
    return _YES_OR_NO.get(str(value).casefold()) if isinstance(value, bool | int | str) else None


def user_of(row: Row, workspace: str, known_at: str = "") -> UserEvent | None:
    """The state of a user; None for a row without an id. A deactivated account is absent and keeps its names."""
    user = text_of(row, "id")
    if not user:
        return None
    profile = row_of(row, "profile")
    names = _names(row, profile)
    return UserEvent(
        workspace=workspace,
        id=user,
        version=version_of(row.get("updated") or known_at),
        present=not _states(row, "deleted"),
        name=names[0] if names else None,
        aliases=tuple(names[1:]),
        kind=_kind(row, user),
        title=unescape(text_of(profile, "title")) or None,
        timezone=text_of(row, "tz") or offset_name(row.get("tz_offset")),
    )


def _names(row: Row, profile: Row) -> list[str]:
    """Every name once, the one that people see first."""
    seen = (
        text_of(profile, "display_name"),
        text_of(profile, "real_name") or text_of(row, "real_name"),
        text_of(row, "name"),
        text_of(row, "real_name"),
    )
    return list(dict.fromkeys(unescape(name) for name in seen if name))


def _kind(row: Row, user: str) -> SenderKind:
    if _states(row, "is_bot") or user == SLACKBOT:
        return "bot"
    outside = any(_states(row, sign) for sign in ("is_stranger", "is_restricted", "is_ultra_restricted"))
    return "external" if outside else "user"


def bot_id_of(row: Row) -> str:
    """The other id of a user that is a bot: the one under which its messages may come."""
    return text_of(row_of(row, "profile"), "bot_id")


def bot_of(row: Row, workspace: str, known_at: str = "") -> UserEvent | None:
    """The state of a bot, which speaks under an id of its own; None without id or name."""
    bot, name = text_of(row, "id"), unescape(text_of(row, "name"))
    if not (bot and name):
        return None
    return UserEvent(
        workspace=workspace,
        id=bot,
        version=version_of(row.get("updated") or known_at),
        present=not _states(row, "deleted"),
        name=name,
        kind="bot",
    )


def channel_of(row: Row, kind: ChannelType, workspace: str, known_at: str = "") -> ChannelEvent | None:
    """The state of a channel; None for a row without an id.

    Most exports say only when a channel was made, not when it last changed: then it stands as of `known_at`.
    """
    channel = text_of(row, "id")
    if not channel:
        return None
    name, *former = (given_name(each, kind) for each in (text_of(row, "name"), *texts_of(row, "previous_names")))
    return ChannelEvent(
        workspace=workspace,
        id=channel,
        version=version_of(row.get("created"), row.get("updated") or known_at),
        name=name or None,
        type=kind,
        aliases=tuple(dict.fromkeys(other for other in former if other and other != name)),
        topic=unescape(text_of(row_of(row, "topic"), "value")) or None,
    )


def listed_type(row: Row, listed: ChannelType) -> ChannelType:
    """The type of the list a channel stands in, unless the row itself knows that fewer people may read."""
    if _states(row, "is_im"):
        return "dm"
    if _states(row, "is_mpim") or (listed == "private" and text_of(row, "name").startswith("mpdm-")):
        return "group_dm"
    is_closed = _states(row, "is_private") or _states(row, "is_group")
    return "private" if is_closed and listed == "public" else listed


def stated_type(row: Row) -> ChannelType | None:
    """The type that a channel object states by itself; None when it does not say."""
    if any(_states(row, sign) for sign in ("is_private", "is_group", "is_im", "is_mpim")):
        return listed_type(row, "private")
    is_private = _states(row, "is_private")
    if is_private is None and row.get("is_private") is not None:
        return None
    return "public" if is_private is False or _states(row, "is_channel") else None


def given_name(raw: str, kind: ChannelType | None = None) -> str:
    """The name that people gave a channel. Those of direct conversations Slack makes of handles, and keeps afterwards.

    Who is in them is told as membership: a name of names would outlive the people in it.
    """
    return "" if kind in ("dm", "group_dm") or _OF_HANDLES.fullmatch(raw) else unescape(raw)


def members_of(
    row: Row, channel: ChannelEvent, kinds: Mapping[str, SenderKind] = MappingProxyType({})
) -> Iterator[MembershipEvent]:
    """Who may read a channel because of being in it: of a public one that is guests only (`kinds` tells who is)."""
    counterpart = texts_of({"user": [row.get("user")]}, "user") if channel.type == "dm" else ()
    for user in dict.fromkeys((*texts_of(row, "members"), *counterpart)):
        if channel.type == "public" and kinds.get(user) != "external":
            continue
        yield MembershipEvent(workspace=channel.workspace, channel=channel.id, user=user, version=channel.version)


def group_of(row: Row, workspace: str, known_at: str = "") -> GroupEvent | None:
    """The state of a user group; None for a row without an id.

    Without its members it is a hint only: below every version that lists them, above older hints.
    """
    group = text_of(row, "id")
    if not group:
        return None
    version = version_of(row.get("date_create"), row.get("date_update") or known_at, row.get("date_delete"))
    is_whole = isinstance(row.get("users"), list) or row.get("user_count") in (0, "0")
    names = dict.fromkeys(unescape(name) for name in (text_of(row, "handle"), text_of(row, "name")) if name)
    return GroupEvent(
        workspace=workspace,
        id=group,
        version=version if is_whole else f"0.{version.partition('.')[0]:0>17}",
        present=not count_of(row, "date_delete"),
        name=next(iter(names), None),
        aliases=tuple(names)[1:],
        members=texts_of(row, "users"),
    )
