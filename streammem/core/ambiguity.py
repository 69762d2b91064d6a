"""A name that several bear: who is meant, by whom the asker has to do with, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from streammem.core.directory import Directory
from streammem.core.query_spec import QuerySpec, naming
from streammem.core.words_in_text import Named
from streammem.records import Ambiguity, Bearer

AHEAD, ENOUGH = 2, 3
"""A bearer is clearly meant who has at least so many times as much to do with the asker as the next, and so much."""


class Closeness(msgspec.Struct, frozen=True):
    """What an asker has to do with somebody: channels in which both speak, and the messages there of who says less.

    With a channel: the asker's own messages in it.
    """

    channels: int = 0
    messages: int = 0


def closeness_of(mine: Mapping[str, int], theirs: Mapping[str, int]) -> Closeness:
    """Of the messages of two people by channel."""
    shared = [min(count, theirs[channel]) for channel, count in mine.items() if count and theirs.get(channel)]
    return Closeness(len(shared), sum(shared))


def clearly_meant(close: Mapping[str, Closeness]) -> str | None:
    """The one candidate who is far ahead of all others; None while it is open.

    Who alone shares any channel with the asker is far ahead.
    """
    ranked = sorted(close, key=lambda one: (-close[one].messages, -close[one].channels, one))
    if len(ranked) < 2:
        return None
    first, *others = (close[one] for one in ranked)
    ahead = first.messages >= max(ENOUGH, AHEAD * others[0].messages)
    alone = first.channels > 0 and not any(other.channels for other in others)
    return ranked[0] if ahead or alone else None


def bearers(named: Named, directory: Directory) -> tuple[str, ...]:
    """All that a name may mean, each once: a channel under the id that it has now."""
    ids = map(directory.in_use, named.ids) if named.kind == "channel" else named.ids
    return tuple(dict.fromkeys(ids))


def settled(
    spec: QuerySpec, close: Mapping[str, Closeness], directory: Directory
) -> tuple[QuerySpec, tuple[Ambiguity, ...]]:
    """The specification with those names that can be decided, and what is to be told of all that several bear.

    `close` has the bearers' closeness to the asker by id; it is empty when nobody asks.
    """
    kept, told = list[Named](), dict[Ambiguity, None]()
    for named in spec.named:
        several = bearers(named, directory)
        meant = _meant(named, several, spec.asker, close) if len(several) > 1 else several
        if len(several) > 1:
            told[_told(named, several, meant, directory)] = None
        kept.append(msgspec.structs.replace(named, ids=tuple(i for i in named.ids if directory.in_use(i) in meant)))
    return (naming(spec, kept, directory), tuple(told)) if told else (spec, ())


def _meant(
    named: Named, several: tuple[str, ...], asker: str | None, close: Mapping[str, Closeness]
) -> tuple[str, ...]:
    """Who is meant, all of them while it is open. People call others by a name, not themselves."""
    others = tuple(one for one in several if named.kind != "user" or one != asker)
    one = others[0] if len(others) == 1 else clearly_meant({o: close.get(o, Closeness()) for o in others})
    return (one,) if one else others


def _told(named: Named, several: tuple[str, ...], meant: tuple[str, ...], directory: Directory) -> Ambiguity:
    return Ambiguity(
        name=named.words,
        kind=named.kind,
        candidates=tuple(_bearer(named.kind, one, directory) for one in several),
        meant=meant,
    )


def _bearer(kind: str, one: str, directory: Directory) -> Bearer:
    if kind == "user":
        return Bearer(id=one, name=directory.user_name(one), title=directory.user_title(one))
    return Bearer(id=one, name=directory.room(one) if kind == "channel" else one)
