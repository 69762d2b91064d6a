"""Which version of a message or fact wins, and which leaves are live (design §3).

A message is a grow-only set of versions; its register is the greatest of them. Nothing is ever overwritten, so
the order in which versions arrive cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from streammem.records import (
    FOREVER,
    AttributeEvent,
    ChannelEvent,
    DirectoryEvent,
    GroupEvent,
    MembershipEvent,
    ReactionEvent,
    TieEvent,
    Version,
)

Fact = DirectoryEvent | ReactionEvent


def number(token: str) -> str:
    """Write a version token so that string order is numeric order, for numbers of any length.

    >>> sorted(map(number, ["10", "9", "1.5", "1.50", "1"])) == [number(t) for t in ["1", "1.5", "1.50", "9", "10"]]
    True
    """
    whole, _, fraction = token.partition(".")
    whole = whole.lstrip("0")
    fraction = fraction.rstrip("0")
    return f"{len(whole):04d}{whole}" + (f".{fraction}" if fraction else "")


def order(version: Version) -> tuple[str, bool, str]:
    """The total order of a message's versions: number, then a delete before an upsert, then the content hash."""
    return (version.number, version.deleted, version.hash)


def winner(versions: Iterable[Version]) -> Version:
    """The version that stands now. Raises ValueError for no version at all."""
    return max(versions, key=order)


def timeline(versions: Iterable[Version]) -> list[tuple[Version, int, int]]:
    """Every version with the half-open span [from, until) in µs in which it was what people saw.

    `until` is the earliest `since` of any greater version, so it only ever falls as versions arrive (design §8).
    """
    spans: list[tuple[Version, int, int]] = []
    until = FOREVER
    for version in sorted(versions, key=order, reverse=True):
        spans.append((version, version.since, until))
        until = min(until, version.since)
    return spans[::-1]


def as_of(versions: Iterable[Version], moment: int | None) -> Version | None:
    """What the message said at `moment` (µs; None is now); None when it was not said yet or was deleted by then.

    A message that is deleted *now* never returns, for past moments too (design §9).
    """
    versions = tuple(versions)
    if len(versions) == 1:  # nearly always
        (only,) = versions
        return None if only.deleted or (moment is not None and moment < only.since) else only
    if not versions or (last := winner(versions)).deleted:
        return None
    if moment is None:
        return last
    return next((v for v, start, end in timeline(versions) if start <= moment < end and not v.deleted), None)


def fact_key(fact: Fact) -> tuple[str, ...]:
    """The register that a directory fact or a reaction belongs to."""
    if isinstance(fact, MembershipEvent):
        return ("membership", fact.workspace, fact.channel, fact.user)
    if isinstance(fact, ReactionEvent):
        return ("reaction", fact.workspace, fact.channel, fact.message, fact.name, fact.user)
    if isinstance(fact, AttributeEvent):
        return ("attribute", fact.workspace, fact.entity, fact.id, fact.attribute)
    if isinstance(fact, TieEvent):
        return ("tie", fact.workspace, fact.entity, fact.id, fact.same_as)
    kind = "channel" if isinstance(fact, ChannelEvent) else "group" if isinstance(fact, GroupEvent) else "user"
    return (kind, fact.workspace, fact.id)


def fact_order(fact: Fact, content_hash: str) -> tuple[str, bool, str]:
    """The total order of the facts in one register: version, then absence, then content hash (design §4).

    What a message says in passing has a version below 1 (core.events.hints): it stands before all that is stated,
    also at version 0.
    """
    hinted = "-" if fact.version.startswith("0.") else ""
    return (hinted + number(fact.version), not fact.present, content_hash)
