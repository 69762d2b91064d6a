"""What a store looks for when it erases: facts that name a user, texts that quote a message (design §4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from streammem.core.erasure import user_mark, without
from streammem.ports import Fact


def without_user(workspace: str, user: str) -> Callable[[Fact], Fact | None]:
    """What is left of a fact when this user is forgotten: all, nothing, or what it says of others."""
    mark = user_mark(workspace, user)
    return lambda fact: without(fact, (mark,))  # type: ignore[return-value]


def quoting(uids: Iterable[str]) -> Callable[[str], bool]:
    """Whether a JSON text has one of these uids as a string of its own."""
    written = {msgspec.json.encode(uid).decode()[1:-1] for uid in uids}
    odd = {name for name in written if '"' in name}
    plain = written - odd

    def quotes(text: str) -> bool:
        return not plain.isdisjoint(text.split('"')[1:-1]) or any(f'"{name}"' in text for name in odd)

    return quotes


def message_of(uid: str) -> tuple[str, ...]:
    """Workspace, channel and message of a uid (core.events.uid). Text that is none gives other than three parts."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in uid.split("/"))
