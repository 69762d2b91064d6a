"""What payloads told of people, teams and channels, for reading others. Learning commutes: nothing depends on order.

Nothing says which of two statements is newer. Where they tell who may read, the one that lets fewer people in stands.
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from streammem.connectors.teams.mentions import Names
from streammem.records import ChannelType, SenderKind

_LINK = re.compile(
    r"https://(?:[a-z0-9-]+\.)*(?:microsoft\.(?:com|us)|cloud\.microsoft|live\.com)/l/message/\S+", re.IGNORECASE
)
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")


_NARROWEST_FIRST = ("private", "shared", "standard")


@dataclass(frozen=True)
class Room:
    """A channel of a team. `membership` is standard, private or shared."""

    team: str = ""
    membership: str = ""

    def with_statement(self, other: Room) -> Room:
        """What two statements about one channel come to."""
        return Room(max(self.team, other.team), min(self.membership, other.membership, key=_width))


def _width(membership: str) -> tuple[int, str]:
    known = membership in _NARROWEST_FIRST
    return _NARROWEST_FIRST.index(membership) if known else 9 if not membership else 5, membership


@dataclass
class Known:
    """Grows while payloads are shown to it. Of two names of one id the greatest stands, whatever came first."""

    user_names: dict[str, str] = field(default_factory=dict)
    member_names: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, SenderKind] = field(default_factory=dict)
    channel_names: dict[str, str] = field(default_factory=dict)
    rooms: dict[str, Room] = field(default_factory=dict)
    visibility: dict[str, str] = field(default_factory=dict)
    team_names: dict[str, str] = field(default_factory=dict)
    members: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    former: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    latest: datetime | None = None
    _tenants: Counter[str] = field(default_factory=Counter)
    _visitors: Counter[str] = field(default_factory=Counter)
    _tenant_of: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        return Names(ChainMap(self.user_names, self.member_names), self.channel_names)

    def settle(self, channel: str, room: Room) -> None:
        """Take note of what is said of a channel."""
        if channel:
            self.rooms[channel] = room.with_statement(self.rooms.get(channel, room))

    def told(self, time: datetime | None) -> None:
        """A time of the source: what it says without a time it said no earlier."""
        if time is not None:
            self.latest = max(time, self.latest or time)

    def belongs(self, tenant: str, channel: str = "") -> None:
        """The tenant that the source or one of its channels is of."""
        if _TENANT.fullmatch(tenant):
            self._tenants[tenant] += 1
            if channel:
                keep(self._tenant_of, channel, tenant)

    def visited(self, tenant: str) -> None:
        """The tenant that somebody is at home in: a guest's is another one, but most are not guests."""
        if _TENANT.fullmatch(tenant):
            self._visitors[tenant] += 1

    def tenant(self, own: str = "", channel: str = "") -> str:
        """A record's tenant: what it says itself, else that of its channel, else that of the source; empty for none."""
        counted = self._tenants or self._visitors
        most = min(counted, key=lambda name: (-counted[name], name), default="")
        return own or self._tenant_of.get(channel, "") or most

    def type_of(self, channel: str, stated: Room) -> ChannelType:
        """Everybody may read the standard channels of a public team; where the team is not known it may be private."""
        room = stated.with_statement(self.rooms.get(channel, stated))
        if room.membership in ("private", "shared"):
            return "private"
        seen = self.visibility.get(room.team, "")
        return "unknown" if room.membership != "standard" or not seen else "public" if seen == "public" else "private"

    def open_to(self, team: str) -> list[str]:
        """The channels that every member of a team is in."""
        return sorted(c for c, room in self.rooms.items() if room.team == team and room.membership == "standard")

    def left_with(self, team: str) -> list[str]:
        """The channels that nobody can be in who is not in the team."""
        return sorted(c for c, room in self.rooms.items() if room.team == team and room.membership != "shared")


def keep(known: dict[str, Any], name: str, value: Any, choose: Callable[[Any, Any], Any] = max) -> None:
    """Of two things told of one name the greatest stands, or the one that is chosen."""
    if value and name:
        known[name] = choose(value, known.get(name, value))


def tenant_of_link(url: str) -> str:
    """The tenant that the address of a message names; empty for any other address."""
    if not _LINK.fullmatch(url):
        return ""
    try:
        query = parse_qs(urlsplit(url).query)
    except ValueError:
        return ""
    tenant = next((values[0] for key, values in query.items() if key.casefold() == "tenantid"), "")
    return tenant if _TENANT.fullmatch(tenant) else ""


def is_link(url: str) -> bool:
    """Whether an address leads to a message in Teams."""
    return _LINK.fullmatch(url) is not None
