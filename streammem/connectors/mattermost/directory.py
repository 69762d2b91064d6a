"""What a Mattermost bulk export says of teams, channels and people.

People are known by their usernames, channels by `team/channel`, direct conversations by their members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, count_of, row_of, rows_of, text_of, texts_of
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.mattermost.text import Names
from streammem.core.events import micros
from streammem.errors import RejectedError
from streammem.records import ChannelEvent, ChannelType, Event, MembershipEvent, SenderKind, UserEvent

_TYPES: dict[str, ChannelType] = {"O": "public", "P": "private"}


def direct_of(members: Iterable[str]) -> tuple[str, ChannelType]:
    """The id of the direct conversation of these people, and its type. Talking to oneself is one of one."""
    present = sorted(set(members))
    if not present:
        raise RejectedError("no-channel", "a direct conversation names no members")
    return "dm:" + ",".join(present), "dm" if len(present) < 3 else "group_dm"


def members_of(row: Row) -> tuple[str, ...]:
    """The members of a direct conversation: a list of names, or of participants in newer exports."""
    named = texts_of(row, "members") or texts_of(row, "channel_members")
    return named or tuple(filter(None, (text_of(part, "username") for part in rows_of(row, "participants"))))


@dataclass
class Known:
    """What all lines of an export told, for reading each of them. Learning commutes."""

    names: Names = field(default_factory=Names)
    kinds: dict[str, SenderKind] = field(default_factory=dict)
    open_teams: dict[str, bool] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    types: dict[str, ChannelType] = field(default_factory=dict)
    _written: int = 0
    _newest: int = 0
    _teams_of: dict[str, frozenset[str]] = field(default_factory=dict)
    _keeping_out: dict[str, bool] = field(default_factory=dict)

    @property
    def known_at(self) -> str:
        """As of when the directory stands: when the export was written, else when the newest post was."""
        return version_of(self._written or self._newest)

    def learn(self, row: Any) -> None:
        """Take note of a line. Never raises. Of two lines about one name the same one counts, in any order."""
        kind = text_of(row, "type") if isinstance(row, dict) else ""
        if learn := getattr(self, f"_learn_{kind}", None):
            learn(row_of(row, "info" if kind == "version" else kind))

    def _learn_version(self, info: Row) -> None:
        try:
            written = micros(time_of(text_of(info, "created"))) // 1000
        except RejectedError:
            return
        self._written = max(self._written, written)

    def _learn_team(self, row: Row) -> None:
        team = text_of(row, "name")
        # Absent means no, as it does to Mattermost's own importer.
        is_open = row.get("allow_open_invite") is True and row.get("type") != "I"
        self.open_teams[team] = is_open and self.open_teams.get(team, True)

    def _learn_channel(self, row: Row) -> None:
        channel, shown = f"{text_of(row, 'team')}/{text_of(row, 'name')}", text_of(row, "display_name", "name")
        self.names.channels[channel] = max(shown, self.names.channels.get(channel, ""))
        self.types[channel] = min(_TYPES.get(text_of(row, "type"), "private"), self.types.get(channel, "public"))

    def _learn_user(self, row: Row) -> None:
        user, kind = text_of(row, "username"), kind_of(row)
        self._call(user, next(iter(names_of(row)), user), kind)
        if not count_of(row, "delete_at") and kind == "user":
            teams = frozenset(text_of(team, "name") for team in rows_of(row, "teams"))
            self._teams_of[user] = teams & self._teams_of.get(user, teams)

    def _learn_bot(self, row: Row) -> None:
        self._call(text_of(row, "username"), text_of(row, "display_name", "username"), "bot")

    def _learn_direct_channel(self, row: Row) -> None:
        if members := members_of(row):
            self.declared.add(direct_of(members)[0])
            self._meet(members)

    def _learn_post(self, row: Row) -> None:
        self._meet((text_of(row, "user"), *(text_of(reply, "user") for reply in rows_of(row, "replies"))))
        self._newest = max(self._newest, count_of(row, "create_at"))

    def _learn_direct_post(self, row: Row) -> None:
        self._meet(members_of(row))
        self._learn_post(row)

    def _call(self, user: str, shown: str, kind: SenderKind) -> None:
        if user:
            stated = self.names.users.get(user, "") if user in self.kinds else ""
            self.names.users[user] = max(shown, stated)
            self.kinds[user] = min(kind, self.kinds.get(user, kind))

    def _meet(self, users: Iterable[str]) -> None:
        """Names of people without a line of their own can be mentioned too."""
        for user in filter(None, users):
            self.names.users.setdefault(user, user)

    def is_public(self, channel: str) -> bool:
        """Whether everybody may read a channel: it is a public one, and its team is open or everybody's.

        Guests (`external`) are no part of everybody. Asked for when all lines are learned.
        """
        team = channel.partition("/")[0]
        if team not in self._keeping_out:
            everybody = self._teams_of.values()
            is_everybodys = bool(everybody) and all(team in teams for teams in everybody)
            self._keeping_out[team] = not (self.open_teams.get(team, False) or is_everybodys)
        return self.types.get(channel) == "public" and not self._keeping_out[team]


def names_of(row: Row) -> list[str]:
    """Every name once, the one that people see first."""
    full = " ".join(filter(None, (text_of(row, "first_name"), text_of(row, "last_name"))))
    return list(dict.fromkeys(filter(None, (text_of(row, "nickname"), full))))


def kind_of(row: Row) -> SenderKind:
    """Guests read what they were invited to and no more."""
    return "external" if "system_guest" in text_of(row, "roles").split() else "user"


def user_events(row: Row, known: Known, workspace: str) -> Iterator[Event]:
    """A user and the channels that he or she is a member of."""
    user = _required(row, "username")
    names = names_of(row)
    kind = kind_of(row)
    present = not count_of(row, "delete_at")
    yield UserEvent(
        workspace=workspace,
        id=user,
        version=known.known_at,
        present=present,
        name=names[0] if names else None,
        aliases=tuple(names[1:]),
        kind=kind,
        title=text_of(row, "position") or None,
    )
    if present:
        for channel in _joined(row, known, guest=kind == "external"):
            yield MembershipEvent(workspace=workspace, channel=channel, user=user, version=known.known_at)


def _joined(row: Row, known: Known, *, guest: bool) -> Iterator[str]:
    """The channels that somebody may read and not everybody. Guests need to be members of public ones too."""
    for channel in _listed(row):
        if guest or not known.is_public(channel):
            yield channel


def _listed(row: Row) -> Iterator[str]:
    for team in rows_of(row, "teams"):
        for channel in rows_of(team, "channels"):
            if (name := text_of(team, "name")) and (joined := text_of(channel, "name")):
                yield f"{name}/{joined}"


def bot_events(row: Row, known: Known, workspace: str) -> Iterator[Event]:
    """A bot, which has a line of its own kind."""
    yield UserEvent(
        workspace=workspace,
        id=_required(row, "username"),
        version=known.known_at,
        present=not count_of(row, "delete_at"),
        name=text_of(row, "display_name") or None,
        kind="bot",
        title=text_of(row, "description") or None,
    )


def channel_events(row: Row, known: Known, workspace: str) -> Iterator[Event]:
    """A channel. A public one of a team that keeps people out counts as private: its members read it."""
    team, name = _required(row, "team"), _required(row, "name")
    shown = text_of(row, "display_name") or name
    yield ChannelEvent(
        workspace=workspace,
        id=f"{team}/{name}",
        version=known.known_at,
        name=shown,
        type="public" if known.is_public(f"{team}/{name}") else "private",
        aliases=(name,) if name != shown else (),
        topic=text_of(row, "header", "purpose") or None,
    )


def direct_events(row: Row, known: Known, workspace: str) -> Iterator[Event]:
    """A direct conversation and its members."""
    members = members_of(row)
    channel, kind = direct_of(members)
    topic = text_of(row, "header") or None
    yield ChannelEvent(workspace=workspace, id=channel, version=known.known_at, type=kind, topic=topic)
    for user in sorted(set(members)):
        yield MembershipEvent(workspace=workspace, channel=channel, user=user, version=known.known_at)


def _required(row: Row, key: str) -> str:
    if found := text_of(row, key):
        return found
    raise RejectedError("no-id", f"a line has no {key!r}")
