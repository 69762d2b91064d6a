"""Slack's events about reactions, channels, people and groups to facts. Everything else is ignored by its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, row_of, text_of, words_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.slack.directory import (
    bot_of,
    channel_of,
    given_name,
    group_of,
    members_of,
    stated_type,
    user_of,
)
from streammem.connectors.slack.items import Item
from streammem.connectors.slack.learned import Learned
from streammem.connectors.slack.message import exact_ts
from streammem.connectors.slack.text import unescape
from streammem.errors import RejectedError
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    ChannelRef,
    Event,
    MembershipEvent,
    ReactionEvent,
    TieEvent,
)

Attribute = Literal["name", "type", "topic"]

_PASSING = {
    **dict.fromkeys(("channel_archive", "channel_unarchive", "group_archive", "group_unarchive"), "channel-archived"),
    **dict.fromkeys(("user_huddle_changed", "user_status_changed", "user_typing", "presence_change"), "presence"),
    **dict.fromkeys(
        ("channel_left", "group_left", "channel_close", "group_close", "im_close", "mpim_close"), "own-view"
    ),
    **dict.fromkeys(("channel_marked", "group_marked", "im_marked", "mpim_open", "group_open"), "own-view"),
}
"""Events that state nothing a memory keeps: an archived channel reads as before, presence passes."""


def facts_of(item: Item, workspace: str, channel: str, learned: Learned) -> Iterator[Event]:
    """The facts that an event or a row of a list states, `channel` being the id in use of the channel it names.

    Raises IgnoredError for one that states none, RejectedError for one without the ids it needs.
    """
    if (state := _STATES.get(item.kind)) is not None:
        if (fact := state(item.row, workspace, item.when)) is None:
            raise RejectedError("no-id", f"a {item.kind} has no id")
        yield fact
    elif item.kind == "channel":
        yield from _channel(item, workspace, learned)
    elif item.kind == "subteam_members_changed":
        yield from _group_change(item.row, workspace, learned)
    elif item.kind == "channel_id_changed":
        yield _new_id(item, workspace)
    elif (change := _CHANGES.get(item.kind)) is not None:
        if text_of(row_of(item.row, "item"), "type") not in ("", "message"):
            raise IgnoredError("other-item")
        if not channel:
            raise RejectedError("no-channel", f"a {item.kind} names no channel")
        yield from change(item, workspace, channel)
    elif item.team or item.when or item.kind in _PASSING:
        raise IgnoredError(_PASSING.get(item.kind, "other-event"))
    else:
        raise RejectedError("unknown-payload", f"type {item.kind!r:.60}")


# ---------------------------------------------------------------------------------------------------- states


_STATES: Mapping[str, Callable[[Row, str, str], Event | None]] = MappingProxyType(
    {"user": user_of, "bot": bot_of, "group": group_of}
)


def _group_change(row: Row, workspace: str, learned: Learned) -> Iterator[Event]:
    if not text_of(row, "subteam_id"):
        raise RejectedError("no-id", "a changed user group has no id")
    if (group := learned.groups.after(row, workspace)) is None:
        raise IgnoredError("partial-group")
    yield group


def _channel(item: Item, workspace: str, learned: Learned) -> Iterator[Event]:
    """The whole state of a channel, or only its name where the source does not say who may read it."""
    name, kind = text_of(item.row, "id"), stated_type(item.row)
    if not name:
        raise RejectedError("no-id", "a channel has no id")
    row = {**item.row, "id": learned.current(name)}
    if kind is None:
        yield from _named(row, workspace, version_of(row.get("created"), row.get("updated"), item.when))
    elif (channel := channel_of(row, kind, workspace, item.when)) is not None:
        names = dict.fromkeys((*channel.aliases, *learned.former_names(channel.id)))
        yield msgspec.structs.replace(channel, aliases=tuple(name for name in names if name != channel.name))
        yield from members_of(row, channel)


def _named(row: Row, workspace: str, version: str) -> Iterator[Event]:
    if not (name := given_name(text_of(row, "name"))):
        raise IgnoredError("no-state")
    yield _attribute(workspace, text_of(row, "id"), "name", name, version)


# --------------------------------------------------------------------------------------------------- changes


def _reaction(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    target = row_of(item.row, "item")
    message, user, name = exact_ts(target.get("ts")), text_of(item.row, "user"), text_of(item.row, "reaction")
    if not (message and user and name):
        raise RejectedError("no-id", "a reaction names no message, no giver or no emoji")
    yield ReactionEvent(
        workspace=workspace,
        channel=channel,
        message=message,
        name=name,
        user=user,
        version=version_of(item.when),
        present=item.kind == "reaction_added",
    )


def _rename(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    stated = text_of(row_of(item.row, "channel"), "name") or text_of(item.row, "name")
    if not stated:
        raise RejectedError("no-name", "a renamed channel has no name")
    if not (name := given_name(stated)):
        raise IgnoredError("no-state")
    yield _attribute(workspace, channel, "name", name, version_of(item.when))


def _conversion(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    kind = "private" if item.kind.endswith("private") else "public"
    yield _attribute(workspace, channel, "type", kind, version_of(item.when))


def _attribute(workspace: str, channel: str, attribute: Attribute, value: str, version: str) -> AttributeEvent:
    return AttributeEvent(
        workspace=workspace, entity="channel", id=channel, attribute=attribute, value=value, version=version
    )


def _new_id(item: Item, workspace: str) -> TieEvent:
    old, new = text_of(item.row, "old_channel_id"), text_of(item.row, "new_channel_id")
    if not (old and new):
        raise RejectedError("no-id", "a changed channel id names only one id")
    if old == new:
        raise IgnoredError("same-id")
    return TieEvent(workspace=workspace, entity="channel", id=new, same_as=old, version=version_of(item.when))


def _membership(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    user = text_of(item.row, "user")
    if not user:
        raise RejectedError("no-user", f"a {item.kind} names no user")
    present = item.kind != "member_left_channel"
    yield MembershipEvent(
        workspace=workspace, channel=channel, user=user, version=version_of(item.when), present=present
    )


def _direct(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    """A direct conversation that was opened. Not a whole state: its name and the other member stand elsewhere."""
    yield _attribute(workspace, channel, "type", "dm", version_of(item.when))
    if user := text_of(item.row, "user"):
        yield MembershipEvent(workspace=workspace, channel=channel, user=user, version=version_of(item.when))


def _removal(item: Item, workspace: str, channel: str) -> Iterator[Event]:
    yield ChannelEvent(workspace=workspace, id=channel, version=version_of(item.when), present=False)


_CHANGES: Mapping[str, Callable[[Item, str, str], Iterator[Event]]] = MappingProxyType(
    {
        "reaction_added": _reaction,
        "reaction_removed": _reaction,
        "channel_rename": _rename,
        "group_rename": _rename,
        "channel_convert_to_private": _conversion,
        "channel_convert_to_public": _conversion,
        "member_joined_channel": _membership,
        "member_left_channel": _membership,
        "member": _membership,
        "im_created": _direct,
        "im_open": _direct,
        "channel_deleted": _removal,
        "group_deleted": _removal,
    }
)

# ------------------------------------------------------------------------------- what system messages state


def facts_in_message(row: Row, workspace: str, channel: ChannelRef) -> Iterator[Event]:
    """What Slack's own messages state besides their words: history pages hold no events."""
    subtype = text_of(row, "subtype")
    if subtype not in _TOLD or not (ts := exact_ts(row.get("ts"))):
        return
    attribute, key = _TOLD[subtype]
    if attribute == "member":
        if user := text_of(row, "user"):
            yield MembershipEvent(workspace=workspace, channel=channel.id, user=user, version=ts, present=key == "join")
    elif attribute == "type":
        yield _attribute(workspace, channel.id, "type", key, ts)
    elif isinstance(row.get(key), str) and (attribute == "topic" or given_name(text_of(row, key))):
        yield _attribute(workspace, channel.id, attribute, unescape(words_of(row, key)), ts)
        if old := given_name(text_of(row, "old_name")):
            yield _was_called(old, workspace, channel, ts)


def _was_called(old: str, workspace: str, channel: ChannelRef, ts: str) -> ChannelEvent:
    """A hint that a channel had another name, below all that lists state (core.events.hints)."""
    return ChannelEvent(
        workspace=workspace,
        id=channel.id,
        version=f"0.{ts.replace('.', ''):0>17}",
        type=channel.type or "unknown",
        aliases=(old,),
    )


_TOLD: Mapping[str, tuple[Literal["name", "topic", "type", "member"], str]] = MappingProxyType(
    {
        "channel_name": ("name", "name"),
        "group_name": ("name", "name"),
        "channel_topic": ("topic", "topic"),
        "group_topic": ("topic", "topic"),
        "channel_convert_to_private": ("type", "private"),
        "channel_convert_to_public": ("type", "public"),
        "channel_join": ("member", "join"),
        "group_join": ("member", "join"),
        "channel_leave": ("member", "leave"),
        "group_leave": ("member", "leave"),
    }
)
