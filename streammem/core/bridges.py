"""Sparse links between different messages: replies and shared identifiers (EGCForest §3.1.2, design §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many

from streammem.records import Bridge, Leaf, Version


def replies(version: Version, answers: Iterable[Version]) -> list[Bridge]:
    """The reply bridges at a message, both ways: to what it replies to, and to those that reply to it.

    `answers` are the standing versions of the messages known to answer it. A dangling target is kept.
    """
    out = [Bridge(kind="reply", source=version.uid, target=version.reply_to)] if version.reply_to else []
    out.extend(
        Bridge(kind="reply", source=version.uid, target=other.uid)
        for other in answers
        if other.reply_to == version.uid and not other.deleted
    )
    return out


def nearest(leaf: Leaf, others: Iterable[Leaf], fan_out: int) -> list[Leaf]:
    """The `fan_out` leaves nearest in time to `leaf`, ties by (ts, uid); the leaf itself is left out."""
    rest = (other for other in others if other.uid != leaf.uid)
    return sorted(rest, key=lambda other: (abs(other.ts - leaf.ts), other))[:fan_out]


def identifiers(version: Version, carriers: Mapping[str, Many[Leaf]], fan_out: int) -> list[Bridge]:
    """The identifier bridges at a message: to the nearest messages that carry the same identifier.

    `carriers` maps each identifier of the version to the leaves that may be reached (visible to the asker).
    """
    leaf = Leaf(version.ts, version.uid)
    return [
        Bridge(kind="identifier", source=version.uid, target=other.uid, label=identifier)
        for identifier in version.identifiers
        for other in nearest(leaf, carriers.get(identifier, ()), fan_out)
    ]
