"""What is known of people, groups and channels, applied when reading: names, types, membership, who may see what.

Directory facts never re-route a message (design §3). An unknown channel is private; an unknown name is a stub.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import msgspec

from streammem.core import name_tables
from streammem.core.registers import number
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    DirectoryEvent,
    GroupEvent,
    MembershipEvent,
    TieEvent,
    UserEvent,
)

_SPACE = re.compile(r"[\s_]+")
_MACHINE_ID = re.compile(r"(?<![\w@#])([@#])([A-Z](?=[A-Z]*[0-9])[A-Z0-9]{6,})\b")
_MOST_NAMED = 6
_CHANNEL_TYPES = frozenset({"public", "private", "dm", "group_dm", "thread"})

DIRECT = frozenset({"dm", "group_dm"})
"""The types of channels that are called by who is in them, unless people gave them a name."""


def fold(name: str) -> str:
    """The form in which names are compared: no case, no leading @ or #, single spaces."""
    bare = name.strip().lstrip("@#").casefold()
    return bare if bare.isalnum() else _SPACE.sub(" ", bare)


class Directory:
    """The directory of one workspace: an immutable reading of its facts.

    Names resolve to every entity that bears them; deciding among several is the caller's. Ids that are tied are one
    person, or one channel: whatever is known of one of them holds for all.
    """

    def __init__(self, facts: Iterable[DirectoryEvent] = ()) -> None:
        self.users: dict[str, UserEvent] = {}
        self.channels: dict[str, ChannelEvent] = {}
        self.groups: dict[str, GroupEvent] = {}
        self._members: dict[str, set[str]] = defaultdict(set)
        self._present: dict[str, set[str]] = defaultdict(set)
        self._rooms: dict[str, str] = {}
        joined: list[MembershipEvent] = []
        changes: list[AttributeEvent] = []
        same: list[tuple[str, str]] = []
        formers: list[TieEvent] = []
        for fact in facts:
            if isinstance(fact, MembershipEvent):
                joined.append(fact)
            elif isinstance(fact, ChannelEvent):
                self.channels[fact.id] = fact
            elif isinstance(fact, UserEvent):
                self.users[fact.id] = fact
                same.extend((fact.id, other) for other in fact.same_as)
            elif isinstance(fact, GroupEvent):
                self.groups[fact.id] = fact
            elif isinstance(fact, AttributeEvent):
                changes.append(fact)
            elif fact.present:
                same.extend([(fact.id, fact.same_as)] if fact.entity == "user" else [])
                formers.extend([fact] if fact.entity == "channel" else [])
        self._apply(changes)
        self._persons = _united(same)
        self._ids: dict[str, tuple[str, ...]] = {}
        for one, person in sorted(self._persons.items()):
            self._ids[person] = (*self._ids.get(person, ()), one)
        self._in_use = _followed(formers)
        self._formers: defaultdict[str, list[str]] = defaultdict(list)
        for former, used in sorted(self._in_use.items()):
            self._formers[used].append(former)
        self._join(joined)

    def _join(self, joined: Iterable[MembershipEvent]) -> None:
        """Of what is said of a member under several ids of a channel the newest counts; to be out wins a tie."""
        newest: dict[tuple[str, str], MembershipEvent] = {}
        for fact in joined:
            place = (fact.user, self.in_use(fact.channel))
            known = newest.setdefault(place, fact)
            if known is not fact and (number(fact.version), not fact.present) > (
                number(known.version),
                not known.present,
            ):
                newest[place] = fact
        for user, channel in (place for place, fact in newest.items() if fact.present):
            self._members[user].add(channel)
            self._present[channel].add(user)

    def _apply(self, changes: Iterable[AttributeEvent]) -> None:
        """Let single attributes stand over older full states."""
        for change in changes:
            if change.entity == "user" and change.attribute in ("name", "title"):
                user = self.users.get(change.id) or UserEvent(workspace=change.workspace, id=change.id)
                if _newer(change.version, user.version):
                    self.users[change.id] = msgspec.structs.replace(user, **{change.attribute: change.value})
            elif change.entity == "channel" and change.attribute != "title":
                channel = self.channels.get(change.id) or ChannelEvent(workspace=change.workspace, id=change.id)
                if _newer(change.version, channel.version):
                    self.channels[change.id] = _changed(channel, change)

    # ------------------------------------------------------------------------------------------------ identity

    def person(self, user: str) -> str:
        """The one id that stands for all ids of a person; the id itself for nearly everybody."""
        return self._persons.get(user, user)

    def ids_of(self, user: str) -> tuple[str, ...]:
        """All ids of a person."""
        if user not in self._persons:  # nearly everybody
            return (user,)
        return self._ids[self.person(user)]

    def in_use(self, channel: str) -> str:
        """The id that a channel has now."""
        return self._in_use.get(channel, channel)

    def ids_of_channel(self, channel: str) -> tuple[str, ...]:
        """All ids that a channel has had, the one in use first."""
        used = self.in_use(channel)
        return (used, *self._formers.get(used, ()))

    @property
    def has_former_channels(self) -> bool:
        """Whether any channel has changed its id."""
        return bool(self._in_use)

    @property
    def has_ties(self) -> bool:
        """Whether anybody has several ids."""
        return bool(self._persons)

    # ------------------------------------------------------------------------------------------------ audience

    def is_public(self, channel: str) -> bool:
        """Whether the whole workspace may read the channel now."""
        known = self.channels.get(self.in_use(channel))
        return known is not None and known.present and known.type == "public"

    def is_guest(self, asker: str | None) -> bool:
        """Whether somebody from outside asks: guests read what they are members of, public or not."""
        known = [self.users[one].kind for one in self.ids_of(asker) if one in self.users] if asker else []
        return "external" in known and "user" not in known

    def visible(self, channel: str, asker: str | None) -> bool:
        """Whether `asker` may read the channel now (design §5, Audience). Fail closed."""
        if self.is_public(channel) and not self.is_guest(asker):
            return True
        used = self.in_use(channel)
        return asker is not None and any(used in self._members.get(user, ()) for user in self.ids_of(asker))

    def private_channels_of(self, asker: str | None) -> frozenset[str]:
        """The channels that `asker` reads by membership, not because everybody may."""
        guest = self.is_guest(asker)
        return frozenset(c for c in self._channels_of(asker or "") if guest or not self.is_public(c))

    def _channels_of(self, asker: str) -> set[str]:
        """The channels that a person is a member of under any of its ids, under all their ids."""
        joined = {channel for user in self.ids_of(asker) for channel in self._members.get(user, ())}
        return {other for channel in joined for other in self.ids_of_channel(channel)} if self._in_use else joined

    @cached_property
    def public_channels(self) -> frozenset[str]:
        """The channels that everybody in the workspace may read now."""
        return frozenset(c for c in (*self.channels, *self._in_use) if self.is_public(c))

    # --------------------------------------------------------------------------------------------------- names

    def user_name(self, user: str) -> str:
        """What people call the user; the id for a stub."""
        return next((known.name for known in self._known(user) if known.name), user)

    def user_title(self, user: str) -> str:
        """Title or role of the user, empty when the directory has none."""
        return next(filter(None, (known.title or known.role or "" for known in self._known(user))), "")

    def user_zone(self, user: str) -> str:
        """The time zone of the user as the source names it, empty when the directory has none."""
        return next((known.timezone for known in self._known(user) if known.timezone), "")

    def manager_of(self, user: str) -> str:
        """Whom the user reports to; empty when the directory does not know."""
        return next((self.person(known.manager) for known in self._known(user) if known.manager), "")

    def team_of(self, user: str) -> frozenset[str]:
        """Whom the user reports to, who reports to the same person, who reports to the user: nobody when unknown."""
        one, manager = self.person(user), self.manager_of(user)
        around = {manager} - {""}
        below = (other for above in (one, manager) for other in self._reports.get(above, ()))
        return frozenset({*around, *below} - {one})

    @cached_property
    def _reports(self) -> dict[str, set[str]]:
        """The people who report to each person."""
        reports: defaultdict[str, set[str]] = defaultdict(set)
        for user in self.users.values():
            if user.manager and user.present:
                reports[self.person(user.manager)].add(self.person(user.id))
        return dict(reports)

    def _known(self, user: str) -> Iterator[UserEvent]:
        """What is known of a person, under the id asked for first."""
        return (self.users[one] for one in (user, *self.ids_of(user)) if one in self.users)

    def channel_name(self, channel: str) -> str:
        """What people call the channel, a direct one without a name by who is in it; the id when nobody said."""
        used = self.in_use(channel)
        names = (known.name for one in (used, channel) if (known := self.channels.get(one)) and known.name)
        return next(names, "") or (self._members_named(used) if self.is_direct(used) else "") or used

    def room(self, channel: str) -> str:
        """The name of the channel as it is written before what is said there: a direct one is no `#channel`."""
        name = self.channel_name(channel)
        return name if self.is_direct(channel) else f"#{name}"

    def is_direct(self, channel: str) -> bool:
        """Whether the channel is a conversation of a few, not a place that people enter."""
        types = (self.channels[one].type for one in self.ids_of_channel(channel) if one in self.channels)
        return next((stated for stated in types if stated != "unknown"), "unknown") in DIRECT

    def direct_of(self, user: str) -> frozenset[str]:
        """The direct conversations that a person is in, under all their ids."""
        return frozenset(channel for channel in self._channels_of(user) if self.is_direct(channel))

    @property
    def direct_channels(self) -> frozenset[str]:
        """All direct conversations, under all their ids."""
        return frozenset(other for c in self.channels if self.is_direct(c) for other in self.ids_of_channel(c))

    def _members_named(self, used: str) -> str:
        """The people of a channel in a row. Remembered: it is asked for with every message."""
        if used not in self._rooms:
            names = sorted(map(self.user_name, {self.person(user) for user in self._present.get(used, ())}))
            more = ["…"] if len(names) > _MOST_NAMED else []
            self._rooms[used] = ", ".join(names[:_MOST_NAMED] + more)
        return self._rooms[used]

    def group_name(self, group: str) -> str:
        """The handle of a user group; the id when nobody said."""
        known = self.groups.get(group)
        return (known.name if known else None) or group

    def worded(self, text: str) -> str:
        """A text with the names of whom it mentions by an id that only machines read (Slack's events name nobody)."""
        return _MACHINE_ID.sub(self._name_in_text, text) if "@" in text or "#" in text else text

    def _name_in_text(self, match: re.Match[str]) -> str:
        sign, name = match[1], match[2]
        if sign == "#":
            return self.room(name) if self.in_use(name) in self.channels else match[0]
        return sign + (self.user_name(name) if name in self.users else self.group_name(name))

    @cached_property
    def user_names(self) -> dict[str, frozenset[str]]:
        """Folded name, alias or id to the persons that bear it."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        for user in self.users.values():
            for name in (user.id, user.name or "", *user.aliases):
                if name:
                    names[fold(name)].add(self.person(user.id))
        return {name: frozenset(ids) for name, ids in names.items()}

    @cached_property
    def first_names(self) -> name_tables.Table:
        """Folded first names alone to the persons that bear them."""
        return name_tables.first_names(self.users.values(), self.person, fold)

    @cached_property
    def titles(self) -> name_tables.Table:
        """Folded titles to the persons that have them now."""
        return name_tables.titles(self.users.values(), self.person, fold)

    @cached_property
    def title_beginnings(self) -> frozenset[str]:
        """The first words of titles."""
        return frozenset(title.split(" ", 1)[0] for title in self.titles)

    @cached_property
    def plain_names(self) -> name_tables.Table:
        """Folded names without their accents, of those that have some, to the persons that bear them."""
        return name_tables.without_accents(self.user_names, self.first_names)

    @cached_property
    def spelled_names(self) -> name_tables.Table:
        """Folded names of letters alone, whole or first, to the persons that bear them."""
        return name_tables.spelled(self.user_names, self.first_names)

    @cached_property
    def unspaced_names(self) -> list[tuple[str, frozenset[str]]]:
        """Names in scripts without blanks, the longest first, with the persons that bear them."""
        return name_tables.unspaced(self.user_names)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Folded words of titles and of the names of groups and of channels that everybody knows of."""
        known = [channel for channel in self.channels.values() if self.is_public(channel.id)]
        return name_tables.vocabulary(self.users.values(), known, self.groups.values(), fold)

    @cached_property
    def channel_names(self) -> dict[str, frozenset[str]]:
        """Folded name, alias or id to the channels that bear it or bore it."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        for channel in self.channels.values():
            for name in (channel.id, channel.name or "", *channel.aliases):
                if name:
                    names[fold(name)].add(self.in_use(channel.id))
            # The name of one person alone is that person's.
            if self.is_direct(channel.id) and ", " in (people := self.channel_name(channel.id)):
                names[fold(people)].add(self.in_use(channel.id))
        for former, used in self._in_use.items():
            names[fold(former)].add(used)
        return {name: frozenset(ids) for name, ids in names.items()}


def _newer(change: str, state: str) -> bool:
    """Whether an attribute stands over a full state: what a message says in passing (below 1) stands under all."""
    return state.startswith("0.") or number(change) > number(state)


def _changed(channel: ChannelEvent, change: AttributeEvent) -> ChannelEvent:
    if change.attribute == "type":
        return msgspec.structs.replace(channel, type=change.value if change.value in _CHANNEL_TYPES else "unknown")
    return msgspec.structs.replace(channel, **{change.attribute: change.value})


def _united(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The least id of each connected set of ids, by id."""
    least: dict[str, str] = {}

    def find(one: str) -> str:
        while (other := least.setdefault(one, one)) != one:
            one = other
        return one

    for a, b in pairs:
        first, second = sorted((find(a), find(b)))
        least[second] = first
    return {one: find(one) for one in list(least)}


def _followed(formers: Iterable[TieEvent]) -> dict[str, str]:
    """The id in use of each former one. Of several that follow an id the newest counts; a circle counts for nothing."""
    newest: dict[str, TieEvent] = {}
    for tie in formers:
        known = newest.get(tie.same_as)
        if known is None or (number(tie.version), tie.id) > (number(known.version), known.id):
            newest[tie.same_as] = tie
    return {former: used for former in newest if (used := _end(former, newest)) != former}


def _end(channel: str, newest: Mapping[str, TieEvent]) -> str:
    seen = {channel}
    at = channel
    while at in newest:
        at = newest[at].id
        if at in seen:
            return channel
        seen.add(at)
    return at
