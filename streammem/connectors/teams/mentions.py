"""Whom a Teams message mentions: its list of mentions, and how each reads in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streammem.connectors.fields import Row, row_of, rows_of, text_of
from streammem.connectors.teams.identity import identity_of
from streammem.records import Mention

Kind = Literal["user", "group", "channel", "special"]

_MRI = re.compile(r"(?:8:)?(?:orgid|gid):([0-9a-fA-F-]{36})|28:([0-9a-fA-F-]{36})")
"""Older clients wrote a person's or bot's address where Graph has an index."""
_SIGNS = "@#"


@dataclass(frozen=True)
class Names:
    """What ids are called."""

    users: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Named:
    kind: Kind
    id: str
    label: str


class Mentions:
    """The mentions of one message by the id that their `<at>` elements carry."""

    def __init__(self, row: Row, names: Names) -> None:
        self._names = names
        listed = ((_index(mention), _named(mention)) for mention in rows_of(row, "mentions"))
        self._named = {at: named for at, named in reversed([*listed]) if named is not None}
        self._labels: dict[str, str] = {}

    def key(self, at: str) -> tuple[str, str] | None:
        """Whom an `<at>` element mentions: type and id."""
        named = self._find(at)
        return (named.kind, named.id) if named else None

    def shown(self, at: str, label: str) -> str:
        """The mention as it reads: the name that is known, else the label it was written under, else the id."""
        named, label = self._find(at), label.strip().lstrip(_SIGNS)
        if named is None:
            return f"@{label}" if label else ""
        self._labels.setdefault(at, label)
        names = {"user": self._names.users, "channel": self._names.channels}.get(named.kind, {})
        sign = "#" if named.kind == "channel" else "@"
        return sign + (names.get(named.id) or label or named.label or named.id)

    def of(self, shown: Iterable[str]) -> tuple[Mention, ...]:
        """Everybody mentioned, each once: in the order of the text, then who is listed and stands nowhere in it."""
        found: dict[tuple[str, str], Mention] = {}
        for at in (*shown, *sorted(self._named, key=lambda at: (len(at), at))):
            if named := self._find(at):
                label = self._labels.get(at) or named.label
                found.setdefault((named.kind, named.id), Mention(type=named.kind, id=named.id, label=label or None))
        return tuple(found.values())

    def _find(self, at: str) -> _Named | None:
        if at in self._named:
            return self._named[at]
        address = _MRI.fullmatch(at)
        return _Named("user", address[1] or address[2], "") if address else None


def _index(mention: Row) -> str:
    value = mention.get("id")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text_of(mention, "id")


def _named(mention: Row) -> _Named | None:
    """Who or what is mentioned; None where there is no id to name it by."""
    mentioned, label = row_of(mention, "mentioned"), text_of(mention, "mentionText").strip().lstrip(_SIGNS)
    for key, kind in (("tag", "group"), ("conversation", _kind_of_conversation(row_of(mentioned, "conversation")))):
        row = row_of(mentioned, key)
        if named := text_of(row, "id"):
            return _Named(kind, named, label or text_of(row, "displayName"))  # type: ignore[arg-type]
    found = identity_of(mentioned)
    return _Named("user", found.id, label or found.name) if found and found.id else None


def _kind_of_conversation(row: Row) -> Kind:
    """A channel is named; a team or a chat is everybody in it."""
    kind = text_of(row, "conversationIdentityType").casefold()
    if kind in ("team", "chat"):
        return "special"
    named = text_of(row, "id")
    return "channel" if kind == "channel" or named.endswith(("@thread.tacv2", "@thread.skype")) else "special"
