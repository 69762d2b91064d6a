"""What is known of people and channels, applied when reading: names, types, membership, who may see what.

Directory facts never re-route a message (design §3). An unknown channel is private; an unknown name is a stub.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from streammem.records import ChannelEvent, DirectoryEvent, MembershipEvent, UserEvent

_SPACE = re.compile(r"[\s_]+")


def fold(name: str) -> str:
    """The form in which names are compared: no case, no leading @ or #, single spaces."""
    return _SPACE.sub(" ", name.strip().lstrip("@#")).casefold()


class Directory:
    """The directory of one workspace: an immutable reading of its facts.

    Names resolve to every entity that bears them; deciding among several is the caller's.
    """

    def __init__(self, facts: Iterable[DirectoryEvent] = ()) -> None:
        self.users: dict[str, UserEvent] = {}
        self.channels: dict[str, ChannelEvent] = {}
        self._members: dict[str, set[str]] = defaultdict(set)
        for fact in facts:
            if isinstance(fact, MembershipEvent):
                if fact.present:
                    self._members[fact.user].add(fact.channel)
            elif isinstance(fact, ChannelEvent):
                self.channels[fact.id] = fact
            elif isinstance(fact, UserEvent):
                self.users[fact.id] = fact

    def is_public(self, channel: str) -> bool:
        """Whether the whole workspace may read the channel now."""
        known = self.channels.get(channel)
        return known is not None and known.present and known.type == "public"

    def visible(self, channel: str, asker: str | None) -> bool:
        """Whether `asker` may read the channel now (design §5, Audience). Fail closed."""
        return self.is_public(channel) or (asker is not None and channel in self._members.get(asker, ()))

    def private_channels_of(self, asker: str | None) -> frozenset[str]:
        """The channels that `asker` reads by membership, not because everybody may."""
        return frozenset(c for c in self._members.get(asker or "", ()) if not self.is_public(c))

    @cached_property
    def public_channels(self) -> frozenset[str]:
        """The channels that everybody in the workspace may read now."""
        return frozenset(c for c in self.channels if self.is_public(c))

    def user_name(self, user: str) -> str:
        """What people call the user; the id for a stub."""
        known = self.users.get(user)
        return (known.name if known else None) or user

    def user_title(self, user: str) -> str:
        """Title or role of the user, empty when the directory has none."""
        known = self.users.get(user)
        return (known.title or known.role or "") if known else ""

    def channel_name(self, channel: str) -> str:
        """What people call the channel; the id when nobody said."""
        known = self.channels.get(channel)
        return (known.name if known else None) or channel

    @cached_property
    def user_names(self) -> dict[str, frozenset[str]]:
        """Folded name, alias or id to the users that bear it."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        for user in self.users.values():
            for name in (user.id, user.name or "", *user.aliases):
                if name:
                    names[fold(name)].add(user.id)
        return {name: frozenset(ids) for name, ids in names.items()}

    @cached_property
    def channel_names(self) -> dict[str, frozenset[str]]:
        """Folded name, alias or id to the channels that bear it."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        for channel in self.channels.values():
            for name in (channel.id, channel.name or "", *channel.aliases):
                if name:
                    names[fold(name)].add(channel.id)
        return {name: frozenset(ids) for name, ids in names.items()}
