"""The messages that stand in public channels, by what the grouping into artifacts asks of them (EGCForest §3.1.1)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from streammem.core.identifiers import Rules
from streammem.core.naming import Book, Near, names_of
from streammem.core.numbers import Grouping
from streammem.core.phrases import phrases
from streammem.records import Version


class _Haunt(msgspec.Struct):
    """When, by whom and where an identifier is said."""

    times: list[int]
    users: frozenset[str]
    channels: frozenset[str]


class Said:
    """The messages of a grouping by what is asked of them."""

    def __init__(self, workspace: str, said: Iterable[Version], rules: Rules, numbers: Grouping) -> None:
        self.workspace, self.rules, self.numbers = workspace, rules, numbers
        self.messages = sorted(said, key=lambda v: (v.ts, v.uid))
        self.by_uid = {v.uid: v for v in self.messages}
        self.carriers = [v for v in self.messages if v.identifiers]
        self.carried: defaultdict[str, list[Version]] = defaultdict(list)
        for version in self.carriers:
            for identifier in version.identifiers:
                self.carried[identifier].append(version)
        self._haunts: dict[str, _Haunt] = {}
        self.spans = {v.uid: rules.spans(v.text) for v in self.carriers}
        self.book = Book(
            names_of((v.ts, v.uid, p) for v in self.carriers for p in phrases(v.text, self.spans[v.uid], rules)),
            rules,
            numbers,
        )

    def near(self, version: Version) -> Near:
        """How near identifiers are to a message (naming.Near): said before it, of late, by or to its author, there."""

        def nearness(identifier: str) -> int:
            haunt = self._haunt(identifier)
            place = bisect_right(haunt.times, version.ts)
            if not place or version.ts - haunt.times[place - 1] > self.numbers.fresh * 86_400e6:
                return 0
            return 1 + (version.user in haunt.users) + (version.channel in haunt.channels)

        return nearness

    def _haunt(self, identifier: str) -> _Haunt:
        known = self._haunts.get(identifier)
        if known is None:
            said = self.carried[identifier]
            users = frozenset(u for v in said for u in (v.user, *v.mentions) if u)
            known = _Haunt([v.ts for v in said], users, frozenset(v.channel for v in said))
            self._haunts[identifier] = known
        return known

    def source(self, uid: str) -> tuple[str, str]:
        return uid, self.by_uid[uid].hash

    def sources(self, *uids: str) -> tuple[tuple[str, str], ...]:
        return tuple(map(self.source, dict.fromkeys(uids)))
