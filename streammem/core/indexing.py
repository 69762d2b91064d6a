"""What of a message goes into the vector index, and in which words (design §8)."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from streammem.core.events import moment
from streammem.core.registers import timeline
from streammem.records import MessageEvent, Naming, Version


def searchable(version: Version) -> bool:
    """Whether a version is something a person said: joins, renames, deletions and blanks are leaves, never found."""
    return not version.deleted and version.kind in ("message", "call") and bool(version.text.strip())


class Names(Protocol):
    """What people and channels are called (core.directory.Directory)."""

    def user_name(self, user: str) -> str: ...
    def channel_name(self, channel: str) -> str: ...


def naming_of(event: MessageEvent, version: Version, names: Names) -> Naming:
    """The names in the words of a message: its own where it states them, else the directory's, which may change."""
    own = {"user": event.sender.name, "channel": event.channel.name}
    return Naming(
        speaker=own["user"] or names.user_name(version.user),
        room=own["channel"] or names.channel_name(version.channel),
        follows=tuple(entity for entity, name in own.items() if not name),
    )


def renamed(naming: Naming, version: Version, names: Names) -> Naming:
    """The same after the directory has changed."""
    return msgspec.structs.replace(
        naming,
        speaker=names.user_name(version.user) if "user" in naming.follows else naming.speaker,
        room=names.channel_name(version.channel) if "channel" in naming.follows else naming.room,
    )


def dense_text(version: Version, naming: Naming) -> str:
    """The words that are embedded: the speaker's name and the text."""
    return f"{naming.speaker}: {_words(version)}"


def lexical_text(version: Version, naming: Naming) -> str:
    """The words that are searched lexically: speaker, channel and the date in several spellings before the text."""
    return f"{naming.speaker} #{naming.room} {spelled(moment(version.ts))}: {_words(version)}"


def _words(version: Version) -> str:
    return f"{version.text}\n{version.attached}" if version.attached else version.text


def spelled(day: datetime) -> str:
    """A date as people write it, in several ways."""
    return f"{day:%Y-%m-%d} {day.day:02d} {day.day} {day:%B} {day:%b}"


def untils(versions: tuple[Version, ...]) -> dict[str, int]:
    """The `until` (µs) of every version of a message, by Version.key."""
    return {version.key: until for version, _, until in timeline(versions)}
