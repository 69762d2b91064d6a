"""What a Slack export says of people and channels: users.json, channels.json, groups.json, dms.json, mpims.json."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator

from streammem.connectors.facts import offset_name, version_of
from streammem.connectors.fields import Row, row_of, text_of, texts_of
from streammem.connectors.slack.text import Names, unescape
from streammem.records import (
    ChannelEvent,
    ChannelRef,
    ChannelType,
    Event,
    MembershipEvent,
    SenderKind,
    UserEvent,
)

USER_LISTS = ("org_users.json", "users.json")
CHANNEL_LISTS: dict[str, ChannelType] = {
    "channels.json": "public",
    "groups.json": "private",
    "dms.json": "dm",
    "mpims.json": "group_dm",
}


def user_of(row: Row, workspace: str) -> UserEvent | None:
    """The state of a user; None for a row without an id. A deactivated account is absent and keeps its names."""
    user = text_of(row, "id")
    if not user:
        return None
    profile = row_of(row, "profile")
    names = _names(row, profile)
    return UserEvent(
        workspace=workspace,
        id=user,
        version=version_of(row.get("updated")),
        present=row.get("deleted") is not True,
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
    if row.get("is_bot") is True or user == "USLACKBOT":
        return "bot"
    return "external" if row.get("is_stranger") is True else "user"


def channel_of(row: Row, listed: ChannelType, workspace: str, known_at: str = "") -> ChannelEvent | None:
    """The state of a channel; None for a row without an id.

    Most exports say only when a channel was made, not when it last changed: then it stands as of `known_at`.
    """
    channel = text_of(row, "id")
    if not channel:
        return None
    name = text_of(row, "name") or None
    previous = (unescape(other) for other in texts_of(row, "previous_names"))
    return ChannelEvent(
        workspace=workspace,
        id=channel,
        version=version_of(row.get("created"), row.get("updated") or known_at),
        name=name,
        type=_type(row, listed),
        aliases=tuple(other for other in previous if other != name),
        topic=unescape(text_of(row_of(row, "topic"), "value")) or None,
    )


def _type(row: Row, listed: ChannelType) -> ChannelType:
    """The list's type, unless the row itself knows that fewer people may read."""
    if row.get("is_im") is True:
        return "dm"
    if row.get("is_mpim") is True or (listed == "private" and text_of(row, "name").startswith("mpdm-")):
        return "group_dm"
    return "private" if row.get("is_private") is True and listed == "public" else listed


def members_of(row: Row, channel: ChannelEvent) -> Iterator[MembershipEvent]:
    """Who may read a channel that not everybody may read."""
    if channel.type == "public":
        return
    for user in texts_of(row, "members"):
        yield MembershipEvent(workspace=channel.workspace, channel=channel.id, user=user, version=channel.version)


class Known:
    """What the lists of one export told, for reading its messages. Grows while they are read, then stands."""

    def __init__(self) -> None:
        self.user_names: dict[str, str] = {}
        self.kinds: dict[str, SenderKind] = {}
        self.channels: dict[str, ChannelEvent] = {}
        self.teams: Counter[str] = Counter()
        self._folders: dict[str, str] = {}

    @property
    def names(self) -> Names:
        channels = {channel.id: channel.name for channel in self.channels.values() if channel.name}
        return Names(self.user_names, channels)

    def learned(self, facts: list[Event]) -> list[Event]:
        """The same facts, taken note of."""
        for fact in facts:
            self.learn(fact)
        return facts

    def learn(self, fact: Event) -> None:
        if isinstance(fact, UserEvent):
            self.kinds[fact.id] = fact.kind
            if fact.name:
                self.user_names[fact.id] = fact.name
        elif isinstance(fact, ChannelEvent):
            self.channels[fact.id] = fact
            for folder in filter(None, (fact.name, fact.id)):
                self._claim(unicodedata.normalize("NFC", folder), fact)

    def _claim(self, folder: str, channel: ChannelEvent) -> None:
        """Two channels of one name share a folder: its messages count as those of the one that fewer people read."""
        holder = self.channels.get(self._folders.get(folder, ""))
        if holder is None or holder.type == "public":
            self._folders[folder] = channel.id

    def place_of(self, folder: str) -> ChannelRef:
        """The channel of a folder: named after the channel, or after its id for direct conversations.

        A folder in no list may be anything, so it counts as private.
        """
        if channel := self._folders.get(folder):
            return ChannelRef(id=channel)
        return ChannelRef(id=folder, name=folder, type="unknown")
