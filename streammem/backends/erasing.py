"""What a store looks for when it erases: facts that name a user, texts that name a message (design §4).

Paid texts are kept as JSON. What memories made before hold in their place is not theirs, and searched as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from streammem.core.erasure import user_mark, without
from streammem.ports import Fact
from streammem.records import Paid

_paid = msgspec.json.Decoder(Paid)


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


def written(paid: Paid) -> str:
    """A paid text as it is kept."""
    return msgspec.json.encode(paid).decode()


def paid(kept: str | bytes | None) -> Paid | None:
    """The paid text that is kept here, if it is one."""
    try:
        return None if kept is None else _paid.decode(kept)
    except msgspec.DecodeError:
        return None


def searched(kept: str) -> Paid:
    """A paid text, or the whole of what is kept where none can be read."""
    return paid(kept) or Paid(kept, ())


def message_of(uid: str) -> tuple[str, ...]:
    """Workspace, channel and message of a uid (core.events.uid). Text that is none gives other than three parts."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in uid.split("/"))
