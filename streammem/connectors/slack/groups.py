"""User groups whose members are told in two ways: all of them, or who came and who went."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter

import msgspec

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, text_of, texts_of
from streammem.core.registers import number
from streammem.records import GroupEvent

_HINTS = "1"
_Change = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Version, who came, who went."""


@dataclass
class _Walk:
    """The members of a group on the way from one whole state (`base`) through its changes, `at` being the next."""

    base: str
    until: str
    at: int
    members: dict[str, None]


class Groups:
    """Whole states and changes of user groups, by version."""

    def __init__(self) -> None:
        self._states: defaultdict[str, dict[str, GroupEvent]] = defaultdict(dict)
        self._changes: defaultdict[str, dict[_Change, None]] = defaultdict(dict)
        self._sorted: dict[str, tuple[list[str], list[_Change]]] = {}
        self._walks: dict[str, _Walk] = {}

    def note(self, group: GroupEvent) -> None:
        version = number(group.version)
        if version >= number(_HINTS):
            known = self._states[group.id].setdefault(version, group)
            self._states[group.id][version] = max(known, group, key=lambda state: (state.members, state.aliases))
            self._forget(group.id)

    def note_change(self, row: Row) -> None:
        if group := text_of(row, "subteam_id"):
            version = number(version_of(row.get("date_update")))
            self._changes[group][version, texts_of(row, "added_users"), texts_of(row, "removed_users")] = None
            self._forget(group)

    def _forget(self, group: str) -> None:
        self._sorted.pop(group, None)
        self._walks.pop(group, None)

    def after(self, row: Row, workspace: str) -> GroupEvent | None:
        """The state of a group after a change; None when no whole state before it is known."""
        group, stated = text_of(row, "subteam_id"), version_of(row.get("date_update"))
        if group not in self._sorted:
            self._sorted[group] = sorted(self._states.get(group, ())), sorted(self._changes.get(group, ()))
        states, changes = self._sorted[group]
        before = bisect_right(states, number(stated))
        if not before:
            return None
        base = self._states[group][states[before - 1]]
        members = tuple(self._walked(base, number(stated), changes))
        return msgspec.structs.replace(base, workspace=workspace, version=stated, members=members)

    def _walked(self, base: GroupEvent, stated: str, changes: list[_Change]) -> dict[str, None]:
        """Members after all changes up to a version. Changes mostly come in order: then each is looked at once."""
        begin, walk = number(base.version), self._walks.get(base.id)
        if walk is None or walk.base != begin or walk.until > stated:
            first = bisect_right(changes, begin, key=itemgetter(0))
            walk = self._walks[base.id] = _Walk(begin, stated, first, dict.fromkeys(base.members))
        for _, added, removed in changes[walk.at : bisect_right(changes, stated, walk.at, key=itemgetter(0))]:
            walk.members.update(dict.fromkeys(added))
            for user in removed:
                walk.members.pop(user, None)
            walk.at += 1
        walk.until = stated
        return walk.members
