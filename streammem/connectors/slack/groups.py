"""User groups whose members are told in two ways: all of them, or who came and who went."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, text_of, texts_of
from streammem.core.registers import number
from streammem.records import GroupEvent

_HINTS = "1"


class Groups:
    """Whole states and changes of user groups, by version."""

    def __init__(self) -> None:
        self._states: defaultdict[str, dict[str, GroupEvent]] = defaultdict(dict)
        self._changes: defaultdict[str, dict[tuple[str, tuple[str, ...], tuple[str, ...]], None]] = defaultdict(dict)

    def note(self, group: GroupEvent) -> None:
        version = number(group.version)
        if version >= number(_HINTS):
            known = self._states[group.id].setdefault(version, group)
            self._states[group.id][version] = max(known, group, key=lambda state: (state.members, state.aliases))

    def note_change(self, row: Row) -> None:
        if group := text_of(row, "subteam_id"):
            version = number(version_of(row.get("date_update")))
            self._changes[group][version, texts_of(row, "added_users"), texts_of(row, "removed_users")] = None

    def after(self, row: Row, workspace: str) -> GroupEvent | None:
        """The state of a group after a change; None when no whole state before it is known."""
        group, stated = text_of(row, "subteam_id"), version_of(row.get("date_update"))
        states = self._states.get(group, {})
        base = max((version for version in states if version <= number(stated)), default="")
        if not base:
            return None
        members = dict.fromkeys(states[base].members)
        for version, added, removed in sorted(self._changes.get(group, ())):
            if base < version <= number(stated):
                members.update(dict.fromkeys(added))
                members = {user: None for user in members if user not in removed}
        return msgspec.structs.replace(states[base], workspace=workspace, version=stated, members=tuple(members))
