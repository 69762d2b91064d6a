"""Names to who bears them: the tables in which a directory is looked up. Names are folded (core.directory.fold)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from streammem.core.scripts import UNSPACED, plain
from streammem.records import ChannelEvent, GroupEvent, UserEvent

Table = dict[str, frozenset[str]]
Person = Callable[[str], str]
Fold = Callable[[str], str]

_WORD = re.compile(r"[^\W\d_]+")


def _table(pairs: Iterable[tuple[str, str]]) -> Table:
    bearers: defaultdict[str, set[str]] = defaultdict(set)
    for name, one in pairs:
        bearers[name].add(one)
    return {name: frozenset(ids) for name, ids in bearers.items() if name}


def first_names(users: Iterable[UserEvent], person: Person, fold: Fold) -> Table:
    """First names alone, of people with several."""
    parts = ((user, fold(user.name or "").split(" ")) for user in users if user.kind != "bot")
    return _table((names[0], person(user.id)) for user, names in parts if len(names) > 1 and len(names[0]) > 1)


def titles(users: Iterable[UserEvent], person: Person, fold: Fold) -> Table:
    """Titles, and roles of several words, of people who are there."""
    present = [user for user in users if user.present and user.kind != "bot"]
    roles = ((fold(user.role or ""), person(user.id)) for user in present if " " in fold(user.role or ""))
    return _table([*((fold(user.title or ""), person(user.id)) for user in present), *roles])


def spelled(*tables: Mapping[str, frozenset[str]]) -> Table:
    """Names of letters alone: those in which a typo can be told from another name."""
    return _table(
        (n, one) for table in tables for n, ids in table.items() if n.replace(" ", "").isalpha() for one in ids
    )


def without_accents(*tables: Mapping[str, frozenset[str]]) -> Table:
    """Names as people type them who leave accents out, for those that have any."""
    return _table((plain(n), one) for table in tables for n, ids in table.items() if not n.isascii() for one in ids)


def unspaced(names: Mapping[str, frozenset[str]]) -> list[tuple[str, frozenset[str]]]:
    """Names in a script that sets no blanks between words, the longest first."""
    found = [(name, ids) for name, ids in names.items() if len(name) > 1 and UNSPACED.fullmatch(name)]
    return sorted(found, key=lambda pair: (-len(pair[0]), pair[0]))


def vocabulary(
    users: Iterable[UserEvent], channels: Iterable[ChannelEvent], groups: Iterable[GroupEvent], fold: Fold
) -> frozenset[str]:
    """The words that titles and the names of channels and groups are made of: none of them is a typo of a name."""
    texts = [
        *(text or "" for user in users for text in (user.title, user.role)),
        *(text or "" for channel in channels for text in (channel.name, channel.topic, *channel.aliases)),
        *(text or "" for group in groups for text in (group.name, *group.aliases)),
    ]
    return frozenset(fold(word) for text in texts for word in _WORD.findall(text))
