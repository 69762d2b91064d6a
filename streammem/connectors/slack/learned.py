"""What payloads tell about names, types, workspaces and changed ids. Learning commutes: the newest statement stands."""

from __future__ import annotations

from collections import Counter, defaultdict

from streammem.connectors.facts import version_of
from streammem.connectors.fields import row_of, text_of
from streammem.connectors.slack.directory import (
    bot_id_of,
    bot_of,
    channel_of,
    given_name,
    group_of,
    stated_type,
    user_of,
)
from streammem.connectors.slack.groups import Groups
from streammem.connectors.slack.items import Item, channel_named
from streammem.connectors.slack.message import exact_ts
from streammem.connectors.slack.text import Names, unescape
from streammem.core.registers import number
from streammem.records import ChannelType, SenderKind

SPOKEN_TYPES: dict[str, ChannelType] = {
    "channel": "public",
    "group": "private",
    "im": "dm",
    "app_home": "dm",
    "mpim": "group_dm",
}
"""`channel_type` of an event, in the words of the records."""
Mark = tuple[str, str]


class Learned:
    """Bounded by the directory: nothing is kept of messages but the workspaces and types of their channels."""

    def __init__(self) -> None:
        self.names = Names({}, {}, {})
        self.kinds: dict[str, SenderKind] = {}
        self.types: dict[str, ChannelType] = {}
        self.listed: set[str] = set()
        self.has_users = False
        self._marks: dict[tuple[str, str], Mark] = {}
        self._changes: dict[str, Mark] = {}
        self._current: dict[str, str] = {}
        self._olds: defaultdict[str, list[str]] | None = None
        self._teams: dict[str, str] = {}
        self._former: defaultdict[str, set[str]] = defaultdict(set)
        self._homes: Counter[tuple[str, str]] = Counter()
        self.groups = Groups()

    def note(self, item: Item, *, in_list: bool) -> None:
        """Take note of a record. `in_list`: it is one of all people, not one of those that changed."""
        if item.team:
            self._homes["event", item.team] += 1
            if channel := item.channel:
                self._teams[channel] = min(item.team, self._teams.get(channel, item.team))
        elif team := text_of(item.row, "team_id", "context_team_id", "team"):
            self._homes["speaker" if item.kind == "message" else "row", team] += 1
        if item.kind == "message":
            self._note_message(item)
        elif item.kind == "user":
            self._note_user(item, in_list=in_list)
        elif item.kind == "channel":
            self._note_channel(item)
        elif item.kind in ("channel_rename", "group_rename"):
            self._name("channel", channel_named(item.row), item.when, text_of(row_of(item.row, "channel"), "name"))
        elif item.kind == "channel_id_changed":
            self._note_change(item)
        else:
            self._note_bot_or_group(item)

    # ------------------------------------------------------------------------------------------- what is noted

    def _note_message(self, item: Item) -> None:
        row = item.row
        spoken = SPOKEN_TYPES.get(text_of(row, "channel_type"))
        if spoken and self._is_newest("type", item.channel, exact_ts(row.get("ts")), spoken):
            self.types[item.channel] = spoken
        if row.get("subtype") in ("channel_name", "group_name"):
            self._name("channel", item.channel, exact_ts(row.get("ts")), text_of(row, "name"))
            if old := given_name(text_of(row, "old_name")):
                self._former[item.channel].add(old)

    def _note_user(self, item: Item, *, in_list: bool) -> None:
        self.has_users |= in_list
        if (user := user_of(item.row, "-", item.when)) is not None:
            if self._is_newest("kind", user.id, user.version, user.kind):
                self.kinds[user.id] = user.kind
            for name in (user.id, bot_id_of(item.row)):
                self._name("user", name, user.version, user.name or "")

    def _note_channel(self, item: Item) -> None:
        kind = stated_type(item.row)
        if (channel := channel_of(item.row, kind or "unknown", "-", item.when)) is not None:
            self._name("channel", channel.id, channel.version, channel.name or "")
            if kind:
                self.listed.add(channel.id)

    def _note_bot_or_group(self, item: Item) -> None:
        if item.kind == "bot" and (bot := bot_of(item.row, "-", item.when)) is not None:
            self.kinds[bot.id] = "bot"
            self._name("user", bot.id, bot.version, bot.name or "")
        elif item.kind == "group" and (group := group_of(item.row, "-", item.when)) is not None:
            self._name("group", group.id, group.version, group.name or "")
            self.groups.note(group)
        elif item.kind == "subteam_members_changed":
            self.groups.note_change(item.row)

    def _note_change(self, item: Item) -> None:
        old, new = text_of(item.row, "old_channel_id"), text_of(item.row, "new_channel_id")
        if old and new and old != new:
            mark = (number(version_of(item.when)), new)
            self._changes[old] = max(mark, self._changes.get(old, mark))
            self._current.clear()
            self._olds = None

    def _name(self, kind: str, name: str, version: str, value: str) -> None:
        if name and value and self._is_newest(f"{kind}-name", name, version, unescape(value)):
            names = {"user": self.names.users, "channel": self.names.channels, "group": self.names.groups}[kind]
            names[name] = unescape(value)  # type: ignore[index]

    def _is_newest(self, fact: str, name: str, version: str, value: str) -> bool:
        mark = (number(version or "0"), value)
        if mark < self._marks.get((fact, name), mark):
            return False
        self._marks[fact, name] = mark
        return True

    # -------------------------------------------------------------------------------------------- what is told

    def current(self, channel: str) -> str:
        """The id of a channel that is in use, after any number of changes; one that came back counts as the last."""
        if channel not in self._changes:
            return channel
        if channel not in self._current:
            self._follow(channel)
        return self._current[channel]

    def _follow(self, channel: str) -> None:
        """Work out where a channel, and all that it passes, ends."""
        passed: dict[str, int] = {}
        while channel in self._changes and channel not in passed and channel not in self._current:
            passed[channel] = len(passed)
            channel = self._changes[channel][1]
        end = self._current.get(channel, channel)
        if channel in passed:
            end = max(self._changes[each] for each in [*passed][passed[channel] :])[1]
        self._current.update(dict.fromkeys(passed, end))

    def workspace(self, channel: str, team: str) -> str:
        """The workspace of a channel, empty when nobody names one: the same whichever installation delivered it."""
        return min((self._teams[each] for each in self._ids(channel) if each in self._teams), default="") or team

    def former_names(self, channel: str) -> list[str]:
        """The names that a channel had before Slack said that it was renamed."""
        return sorted(name for each in self._ids(channel) for name in self._former.get(each, ()))

    def _ids(self, channel: str) -> list[str]:
        """All ids that a channel has had, the one in use first."""
        if self._olds is None:
            self._olds = defaultdict(list)
            for old in self._changes:
                self._olds[self.current(old)].append(old)
        return [channel, *(old for old in self._olds.get(channel, ()) if old != channel)]

    def home(self, *, by_speakers: bool) -> str:
        """The workspace of pages, which name none: that of most events, else of most rows of lists.

        That of most speakers is a last resort: they may be guests.
        """
        for source in ("event", "row", "speaker") if by_speakers else ("event", "row"):
            counts = {team: count for (kind, team), count in self._homes.items() if kind == source}
            if counts:
                return min(counts, key=lambda team: (-counts[team], team))
        return ""
