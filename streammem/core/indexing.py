"""What of a message goes into the vector index, and in which words (design §8)."""

from __future__ import annotations

from streammem.core.registers import timeline
from streammem.records import MessageEvent, Version


def searchable(version: Version) -> bool:
    """Whether a version is something a person said: joins, renames and deletions are leaves but not found by search."""
    return not version.deleted and version.kind in ("message", "call") and bool(version.text.strip())


def dense_text(event: MessageEvent, version: Version) -> str:
    """The words that are embedded: the speaker's name and the text.

    A function of the event alone, so that vectors do not depend on when the directory was learned.
    """
    return f"{event.sender.name or version.user}: {version.text}"


def lexical_text(event: MessageEvent, version: Version) -> str:
    """The words that are searched lexically: speaker, channel and date stand before the text."""
    when = event.ts
    date = f"{when:%Y-%m-%d} {when.day} {when:%B}" if when else ""
    return f"{event.sender.name or version.user} #{event.channel.name or version.channel} {date}: {version.text}"


def untils(versions: tuple[Version, ...]) -> dict[str, int]:
    """The `until` (µs) of every version of a message, by Version.key."""
    return {version.key: until for version, _, until in timeline(versions)}
