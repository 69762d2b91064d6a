"""What the lists of one export told, for reading its messages."""

from __future__ import annotations

import unicodedata
from collections import defaultdict

from streammem.connectors.slack.text import Names
from streammem.records import ChannelEvent, ChannelRef, Event, GroupEvent, SenderKind, UserEvent

Root = tuple[str, ...]
"""The folder of an export inside its archive; in an organisation's export each workspace has one below the common."""


class Known:
    """Grows while the lists are read, then stands."""

    def __init__(self) -> None:
        self.user_names: dict[str, str] = {}
        self.group_names: dict[str, str] = {}
        self.kinds: dict[str, SenderKind] = {}
        self.channels: dict[str, ChannelEvent] = {}
        self.folder_names: dict[str, str] = {}
        self._folders: defaultdict[Root, dict[str, str]] = defaultdict(dict)

    @property
    def names(self) -> Names:
        channels = {channel.id: channel.name for channel in self.channels.values() if channel.name}
        return Names(self.user_names, channels, self.group_names)

    def name_bot(self, bot: str, name: str | None) -> None:
        """What a bot is called under its other id, which no list states."""
        if bot and name:
            self.user_names.setdefault(bot, name)

    def name_folder(self, channel: str, name: str) -> None:
        """What the folder of a channel may be called: of a group conversation it is no name of the channel."""
        self.folder_names[channel] = name

    def learned(self, facts: list[Event], root: Root) -> list[Event]:
        """The same facts, taken note of."""
        for fact in facts:
            if isinstance(fact, UserEvent):
                self.kinds[fact.id] = fact.kind
                if fact.name:
                    self.user_names[fact.id] = fact.name
            elif isinstance(fact, GroupEvent) and fact.name:
                self.group_names[fact.id] = fact.name
            elif isinstance(fact, ChannelEvent):
                self._learn_channel(fact, root)
        return facts

    def _learn_channel(self, channel: ChannelEvent, root: Root) -> None:
        self.channels[channel.id] = channel
        for folder in dict.fromkeys(filter(None, (channel.name, channel.id, self.folder_names.get(channel.id)))):
            self._claim(self._folders[root], unicodedata.normalize("NFC", folder), channel)

    def _claim(self, folders: dict[str, str], folder: str, channel: ChannelEvent) -> None:
        """Two channels of one name share a folder: its messages count as those of the one that fewer people read."""
        holder = self.channels.get(folders.get(folder, ""))
        if holder is None or holder.type == "public":
            folders[folder] = channel.id

    def place_of(self, root: Root, folder: str) -> ChannelRef:
        """The channel of a folder: named after the channel, or after its id for direct conversations.

        A workspace of an organisation has its own channels before the common ones. A folder in no list may be
        anything, so it counts as private.
        """
        for depth in range(len(root), -1, -1):
            if channel := self._folders.get(root[:depth], {}).get(folder):
                return ChannelRef(id=channel)
        return ChannelRef(id=folder, name=folder, type="unknown")
