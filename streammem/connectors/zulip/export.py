"""A Zulip export (folder or zip) to canonical events: realm.json first, then the messages, then their reactions."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streammem.connectors.archive import Archive, Entry, chunks, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, text_of
from streammem.connectors.report import Report
from streammem.connectors.zulip.directory import (
    GROUPS,
    LEARNED,
    USERS,
    Known,
    direct_events,
    group_events,
    id_of,
    stream_events,
    subscription_events,
    user_events,
)
from streammem.connectors.zulip.message import events_of
from streammem.connectors.zulip.tables import rows
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelEvent, Event, ReactionEvent

EXPECTED = "a Zulip export: a .tar.gz, .zip or folder with realm.json and messages-000001.json"

_MESSAGES = re.compile(r"messages-\d+\.json(?:\.partial)?")
_STATED = (*USERS, "zerver_stream", "zerver_subscription", *GROUPS)
_MESSAGE, _REACTION = "zerver_message", "zerver_reaction"


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of an export. The workspace is the given one, else the organisation's short name.

    Raises SourceError, at the first event, for a path that is no Zulip export.
    """
    with opened(path, report) as archive:
        files = _Files.of(archive, path, report)
        known = Known()
        for table, _, row in rows(files.realm, LEARNED, "", Report()):
            known.learn(table, row)
        known.workspace = given.workspace or known.workspace or path.stem
        yield from _Reader(files, known, archive, report).read()


def recognises(path: Path) -> bool:
    """Whether the path holds a Zulip export. Never raises."""
    try:
        with opened(path, Report()) as archive:
            files = _Files.of(archive, path, Report())
            # Other products have a realm.json too.
            return bool(files.messages) or b'"zerver_' in next(chunks(files.realm), b"")
    except (SourceError, EOFError):
        return False


@dataclass(frozen=True)
class _Files:
    realm: Entry
    messages: list[Entry]

    @classmethod
    def of(cls, archive: Archive, path: Path, report: Report) -> _Files:
        """Find the export in the archive: the folder of the shallowest realm.json. Uploads and avatars lie below it."""
        realms = [entry for entry in archive.entries if entry.parts[-1] == "realm.json" and not entry.swollen]
        if not realms:
            raise SourceError(f"{path}: no realm.json in it; expected {EXPECTED}")
        realm = min(realms, key=lambda entry: (len(entry.parts), entry.name))
        beside = [entry for entry in archive.entries if entry.parts[:-1] == realm.parts[:-1]]
        named = [entry for entry in beside if _MESSAGES.fullmatch(entry.parts[-1])]
        _, *messages = archive.taken([realm, *named], report, "not-a-table-file")
        return cls(realm, messages)


class _Reader:
    """Reads the files in turn. Remembers direct conversations, and where messages stand that were reacted to.

    Reactions are listed in realm.json or, in exports converted from another product, beside their messages.
    """

    def __init__(self, files: _Files, known: Known, archive: Archive, report: Report) -> None:
        self._files = files
        self._known = known
        self._archive = archive
        self._report = report
        self._introduced: set[str] = set()
        self._places: dict[str, str] = {}
        self._places_here: dict[str, str] = {}

    def read(self) -> Iterator[Event]:
        has_reactions = yield from self._directory()
        for entry in self._files.messages:
            yield from self._messages(entry)
            self._done(entry)
        if has_reactions:
            yield from self._reactions(self._files.realm)
        self._done(self._files.realm)

    def _done(self, entry: Entry) -> None:
        self._report.entries_done += 1
        self._report.bytes_done += entry.size

    def _messages(self, entry: Entry) -> Iterator[Event]:
        has_reactions = False
        self._places_here = {}
        for table, origin, row in self._rows(entry, (_MESSAGE, _REACTION), self._report):
            if table == _MESSAGE:
                yield from self._message(row, origin)
            has_reactions = has_reactions or table == _REACTION
        if has_reactions:
            yield from self._reactions(entry)

    def _reactions(self, entry: Entry) -> Iterator[Event]:
        # The rest of the file has been accounted for: what is damaged in it counts once.
        for _, origin, row in self._rows(entry, (_REACTION,), Report()):
            yield from self._report.counted(partial(self._reaction, row), origin)

    def _rows(self, entry: Entry, tables: tuple[str, ...], report: Report) -> Iterator[tuple[str, str, Row]]:
        return rows(entry, tables, self._archive.origin(entry), report)

    def _directory(self) -> Generator[Event, None, bool]:
        """The rows of realm.json but for the reactions, whose messages are not known yet; whether there are some."""
        states: dict[str, Callable[[Row, Known], Iterator[Event]]] = {
            "zerver_stream": stream_events,
            "zerver_subscription": subscription_events,
            **dict.fromkeys(GROUPS, group_events),
            **{table: partial(user_events, table) for table in USERS},
        }
        for table, place, row in self._rows(self._files.realm, (*_STATED, _REACTION), self._report):
            if table == _REACTION:
                self._places[id_of(row, "message", "message_id")] = ""
            else:
                yield from self._report.counted(partial(states[table], row, self._known), place)
        return bool(self._places)

    def _message(self, row: Row, origin: str) -> Iterator[Event]:
        events = self._report.counted(partial(self._stated, row, origin), origin)
        self._introduced.update(event.id for event in events if isinstance(event, ChannelEvent))
        yield from events

    def _stated(self, row: Row, origin: str) -> Iterator[Event]:
        messages = list(events_of(row, self._known, origin))
        name, channel = messages[0].id, messages[0].channel.id
        _, members = self._known.channel_of(id_of(row, "recipient", "recipient_id"), id_of(row, "sender", "sender_id"))
        if channel.startswith(("dm:", "group:")) and channel not in self._introduced:
            yield from direct_events(channel, members, self._known)
        self._places_here[name] = channel
        if name in self._places:
            self._places[name] = max(self._places[name], channel)
        yield from messages

    def _reaction(self, row: Row) -> Iterator[Event]:
        """A reaction. It has no time of its own and never needs one: who takes one back leaves no row."""
        message, user = id_of(row, "message", "message_id"), id_of(row, "user_profile", "user_profile_id")
        channel = self._places.get(message) or self._places_here.get(message)
        name = text_of(row, "emoji_name")
        if not (name and user and channel):
            missing = "emoji_name" if not name else "user" if not user else f"message {message!r:.40} in the export"
            raise RejectedError(
                "no-message" if name and user else "incomplete-reaction", f"a reaction has no {missing}"
            )
        yield ReactionEvent(
            workspace=self._known.workspace,
            channel=channel,
            message=message,
            name=name,
            user=user,
            version=self._known.known_at,
        )
