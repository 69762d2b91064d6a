"""What of a message goes into the vector index, and in which words (design §8)."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from streammem.core.registers import timeline
from streammem.records import MessageEvent, Version


def searchable(version: Version) -> bool:
    """Whether a version is something a person said: joins, renames and deletions are leaves but not found by search."""
    return not version.deleted and version.kind in ("message", "call") and bool(version.text.strip())


class Names(Protocol):
    """What people and channels are called (core.directory.Directory)."""

    def user_name(self, user: str) -> str: ...
    def channel_name(self, channel: str) -> str: ...


def dense_text(event: MessageEvent, version: Version, names: Names) -> str:
    """The words that are embedded: the speaker's name and the text."""
    return f"{event.sender.name or names.user_name(version.user)}: {version.text}"


def lexical_text(event: MessageEvent, version: Version, names: Names) -> str:
    """The words that are searched lexically: speaker, channel and the date in several spellings before the text."""
    speaker = event.sender.name or names.user_name(version.user)
    channel = event.channel.name or names.channel_name(version.channel)
    return f"{speaker} #{channel} {spelled(event.ts)}: {version.text}"


def spelled(day: datetime | None) -> str:
    """A date as people write it, in several ways."""
    return f"{day:%Y-%m-%d} {day.day:02d} {day.day} {day:%B} {day:%b}" if day else ""


def untils(versions: tuple[Version, ...]) -> dict[str, int]:
    """The `until` (µs) of every version of a message, by Version.key."""
    return {version.key: until for version, _, until in timeline(versions)}
