"""What realm.json of a Zulip export says of people, channels, groups, and who takes part in direct conversations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, text_of
from streammem.connectors.zulip.text import Names
from streammem.core.registers import number
from streammem.errors import RejectedError
from streammem.records import (
    ChannelEvent,
    ChannelType,
    Event,
    GroupEvent,
    MembershipEvent,
    SenderKind,
    UserEvent,
)

USERS = ("zerver_userprofile", "zerver_userprofile_crossrealm", "zerver_userprofile_mirrordummy")
GROUPS = ("zerver_namedusergroup", "zerver_usergroup")
LEARNED = (
    *("zerver_realm", "zerver_recipient", "zerver_usergroupmembership", "zerver_subscription"),
    *("zerver_userpresence", "zerver_useractivity", "zerver_stream", *USERS, *GROUPS),
)

_PERSONAL, _STREAM, _GROUP = "1", "2", "3"
_GUEST = "600"
_TIMES = ("last_login", "date_joined", "last_visit", "last_active_time", "last_connected_time", "date_created")


def id_of(row: Row, *keys: str) -> str:
    """An id, which is a number. Empty when there is none."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return str(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            return str(int(value)) if len(value) < 1000 else ""
    return ""


@dataclass
class Known:
    """What realm.json told, for reading its rows and the messages. Learning commutes."""

    workspace: str = ""
    known_at: str = field(default_factory=version_of)
    names: Names = field(default_factory=Names)
    kinds: dict[str, SenderKind] = field(default_factory=dict)
    recipients: dict[str, tuple[str, str]] = field(default_factory=dict)
    types: dict[str, ChannelType] = field(default_factory=dict)
    subscribed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    grouped: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def learn(self, table: str, row: Row) -> None:
        """Take note of a row of one of the LEARNED tables. Never raises."""
        self.known_at = max((self.known_at, *(version_of(row.get(key)) for key in _TIMES if row.get(key))), key=number)
        if table == "zerver_realm":
            self.workspace = max(self.workspace, text_of(row, "string_id", "name"))
        elif table == "zerver_recipient":
            self._learn_recipient(row)
        elif table == "zerver_stream":
            self._learn_stream(row)
        elif table == "zerver_subscription":
            self.subscribed[id_of(row, "recipient")].add(id_of(row, "user_profile"))
        elif table == "zerver_usergroupmembership":
            self.grouped[id_of(row, "user_group")].add(id_of(row, "user_profile"))
        elif table in GROUPS and (name := text_of(row, "name")):
            self.names.groups[name] = max(id_of(row, "usergroup_ptr", "id"), self.names.groups.get(name, ""))
        elif table in USERS:
            self._learn_user(table, row)

    def _learn_recipient(self, row: Row) -> None:
        name, stated = id_of(row, "id"), (id_of(row, "type"), id_of(row, "type_id"))
        self.recipients[name] = max(stated, self.recipients.get(name, stated))

    def _learn_stream(self, row: Row) -> None:
        if (stream := id_of(row, "id")) and (name := text_of(row, "name")):
            self.names.streams[stream] = max(name, self.names.streams.get(stream, ""))
            self.names.streams_named.setdefault(name, set()).add(stream)
        self.types[stream] = min(type_of(row), self.types.get(stream, "public"))

    def _learn_user(self, table: str, row: Row) -> None:
        if user := id_of(row, "id"):
            name = name_of(row)
            self.names.users[user] = max(name, self.names.users.get(user, ""))
            self.names.users_named.setdefault(name, set()).add(user)
            self.kinds[user] = max(kind_of(table, row), self.kinds.get(user, "bot"))

    def channel_of(self, recipient: str, sender: str) -> tuple[str, tuple[str, ...]]:
        """The channel that a message to `recipient` stands in; of a direct conversation its members too.

        Raises RejectedError for a recipient that the export does not hold.
        """
        kind, target = self.recipients.get(recipient, ("", ""))
        if kind == _STREAM and target:
            return target, ()
        if kind == _PERSONAL and target and sender:
            return _direct({target, sender})
        if kind == _GROUP and target:
            members = self.subscribed.get(recipient, set()) - {""}
            return _direct(members) if members else (f"group:{target}", ())
        raise RejectedError("no-channel", f"nothing is known of recipient {recipient!r:.40}")


def _direct(members: set[str]) -> tuple[str, tuple[str, ...]]:
    present = tuple(sorted(members, key=int))
    return f"dm:{','.join(present)}", present


def name_of(row: Row) -> str:
    """The full name; system bots may be listed with an address only (notification-bot@zulip.com)."""
    return text_of(row, "full_name") or text_of(row, "email").partition("@")[0].replace("-", " ").title()


def kind_of(table: str, row: Row) -> SenderKind:
    """Zulip itself speaks as its notification bot. Guests read what they are subscribed to and no more."""
    if table.endswith("crossrealm") or row.get("is_bot") is True:
        return "system" if name_of(row) == "Notification Bot" else "bot"
    is_guest = id_of(row, "role") == _GUEST or row.get("is_mirror_dummy") is True or table.endswith("mirrordummy")
    return "external" if is_guest else "user"


def type_of(row: Row) -> ChannelType:
    """Everybody reads a channel that one need not be invited to. A row that does not say so tells of a private one."""
    if row.get("is_web_public") is True and row.get("invite_only") is not True:
        return "public"
    return "public" if row.get("invite_only") is False else "private"


def user_events(table: str, row: Row, known: Known) -> Iterator[Event]:
    """A user; one who was deactivated is absent and keeps the name."""
    yield UserEvent(
        workspace=known.workspace,
        id=_required(row, "id"),
        version=known.known_at,
        present=row.get("is_active") is not False,
        name=name_of(row) or None,
        kind=kind_of(table, row),
        timezone=text_of(row, "timezone") or None,
    )


def stream_events(row: Row, known: Known) -> Iterator[Event]:
    """A channel. One of which two rows speak is what fewer people read."""
    stream = _required(row, "id")
    yield ChannelEvent(
        workspace=known.workspace,
        id=stream,
        version=known.known_at,
        name=text_of(row, "name") or None,
        type=known.types.get(stream, "private"),
        topic=text_of(row, "description") or None,
    )


def subscription_events(row: Row, known: Known) -> Iterator[Event]:
    """That somebody reads a channel which not everybody reads. Guests need it for public channels too."""
    user, (kind, stream) = _required(row, "user_profile"), known.recipients.get(id_of(row, "recipient"), ("", ""))
    if kind == _STREAM and stream and (known.types.get(stream) != "public" or known.kinds.get(user) == "external"):
        present = row.get("active") is not False
        yield MembershipEvent(
            workspace=known.workspace, channel=stream, user=user, version=known.known_at, present=present
        )


def group_events(row: Row, known: Known) -> Iterator[Event]:
    """A user group; of Zulip's own (role:members ...) nothing is told."""
    group, name = id_of(row, "usergroup_ptr", "id"), text_of(row, "name")
    if name and not name.startswith("role:"):
        yield GroupEvent(
            workspace=known.workspace,
            id=group or _required(row, "id"),
            version=known.known_at,
            present=row.get("deactivated") is not True,
            name=name,
            members=tuple(sorted(known.grouped.get(group, set()) - {""}, key=int)),
        )


def direct_events(channel: str, members: tuple[str, ...], known: Known) -> Iterator[Event]:
    """A direct conversation, which has no list of its own, and its members."""
    kind: ChannelType = "dm" if channel.startswith("dm:") and len(members) < 3 else "group_dm"
    yield ChannelEvent(workspace=known.workspace, id=channel, version=known.known_at, type=kind)
    for user in members:
        yield MembershipEvent(workspace=known.workspace, channel=channel, user=user, version=known.known_at)


def _required(row: Row, key: str) -> str:
    if found := id_of(row, key):
        return found
    raise RejectedError("no-id", f"a row has {key} {row.get(key)!r:.40}")
