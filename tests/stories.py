"""Short histories for tests, told in few words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from streammem.records import ChannelEvent, ChannelRef, MembershipEvent, Mention, MessageEvent, Sender

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def at(minute: float) -> datetime:
    """So many minutes into the story."""
    return START + timedelta(minutes=minute)


def said(
    message: str, text: str, *, user: str = "ana", channel: str = "c", minute: float | None = None, **rest: Any
) -> MessageEvent:
    """One message; its minute is its id unless said otherwise; `mentions` are user ids."""
    mentions = tuple(Mention(id=m) for m in rest.pop("mentions", ()))
    when = at(float(message) if minute is None else minute)
    return MessageEvent(
        workspace=rest.pop("workspace", "w"),
        channel=ChannelRef(id=channel),
        id=message,
        ts=when,
        sender=Sender(id=user, name=user.title()),
        text=text,
        mentions=mentions,
        **rest,
    )


def edited(message: MessageEvent, text: str, minute: float) -> MessageEvent:
    """The message with another text, from that minute on."""
    return msgspec.structs.replace(message, text=text, version=str(int(at(minute).timestamp())), edited_at=at(minute))


def deleted(message: MessageEvent, minute: float) -> MessageEvent:
    """The deletion of a message at that minute."""
    return MessageEvent(
        workspace=message.workspace,
        channel=ChannelRef(id=message.channel.id),
        id=message.id,
        op="delete",
        version=str(int(at(minute).timestamp())),
        deleted_at=at(minute),
    )


def public(channel: str = "c", version: str = "1", **rest: Any) -> ChannelEvent:
    """A channel that everybody reads."""
    return ChannelEvent(workspace="w", id=channel, name=channel, type="public", version=version, **rest)


def private(channel: str, *members: str, version: str = "1") -> list[ChannelEvent | MembershipEvent]:
    """A channel that only its members read."""
    return [
        ChannelEvent(workspace="w", id=channel, name=channel, type="private", version=version),
        *(MembershipEvent(workspace="w", channel=channel, user=m, version=version) for m in members),
    ]
