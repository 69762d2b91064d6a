"""Gitter's export of a room, the list of messages that its API gave, to canonical events.

A message does not say in which room it was written: the channel is the given one, else the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from streammem.connectors.archive import Archive, Entry, opened, unpacked
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, count_of, row_of, rows_of, text_of, texts_of, words_of
from streammem.connectors.json_rows import rows
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.report import IgnoredError, Report
from streammem.core.events import micros
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelRef, Event, Ingest, Link, Mention, MessageEvent, Sender, UserEvent

EXPECTED = "a Gitter export: a .json list of a room's messages, or a folder or .zip of such files"

_PEEKED = 20


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of a room, or of a folder or zip with a file for each. Raises SourceError, at the first event."""
    with opened(path, report, single=True) as archive:
        files = _files(archive, path, report)
        if not given.channel:
            report.notes.append("the export does not name its rooms: channels are named after files")
        report.notes.append("the export does not say who may read its rooms: they count as private")
        for entry in files:
            room = _Room(given.workspace or "gitter", given.channel or _stem(entry))
            origin = archive.origin(entry)
            for index, row in rows(unpacked(entry), origin, report):
                place = f"{origin}#{index}"
                yield from report.counted(partial(room.events_of, row, place), place)
            report.entries_done += 1
            report.bytes_done += entry.size


def recognises(path: Path) -> bool:
    """Whether most of the first records look like messages of Gitter. Never raises."""
    try:
        with opened(path, Report(), single=True) as archive:
            first = unpacked(_files(archive, path, Report())[0])
            peeked = [row for (_, row), _ in zip(rows(first, "", Report()), range(_PEEKED), strict=False)]
    except (SourceError, IndexError, EOFError):
        return False
    return bool(peeked) and 2 * sum("fromUser" in row and "sent" in row for row in peeked) > len(peeked)


def _files(archive: Archive, path: Path, report: Report) -> list[Entry]:
    named = [entry for entry in archive.entries if entry.name.lower().endswith((".json", ".json.gz"))]
    named = [entry for entry in named if "__MACOSX" not in entry.parts and not entry.parts[-1].startswith(".")]
    if not named:
        raise SourceError(f"{path}: no .json file; expected {EXPECTED}")
    return archive.taken(named, report, "not-json")


def _stem(entry: Entry) -> str:
    return entry.parts[-1].removesuffix(".gz").rpartition(".")[0] or entry.name


@dataclass
class _Room:
    """One room being read. People are introduced before their first message, and again when they changed."""

    workspace: str
    channel: str
    _introduced: set[UserEvent] = field(default_factory=set)

    def events_of(self, row: Row, origin: str) -> Iterator[Event]:
        message = text_of(row, "id")
        if not message:
            raise RejectedError("no-id", "a message has no 'id'")
        ts, text = time_of(row.get("sent")), words_of(row, "text")
        if not text.strip():
            raise IgnoredError("empty")  # Gitter deletes a message by emptying it, and hands it out no more
        edited = time_of(row["editedAt"]) if text_of(row, "editedAt") else None
        author = row_of(row, "fromUser")
        if (user := self._user(author)) and user not in self._introduced:
            self._introduced.add(user)
            yield user
        parent = text_of(row, "parentId")
        yield MessageEvent(
            source="gitter",
            source_format="gitter",
            workspace=self.workspace,
            channel=ChannelRef(id=self.channel, name=self.channel),
            id=message,
            version=str(micros(edited) // 1000) if edited else "0",
            ts=ts,
            edited_at=edited,
            sender=Sender(id=text_of(author, "id", "username") or None, kind="user" if author else "unknown"),
            reply_to=parent or None,
            thread_id=parent or None,
            text=text,
            mentions=tuple(dict.fromkeys(_mentions(row))),
            links=tuple(
                Link(url=url) for url in dict.fromkeys(text_of(link, "url") for link in rows_of(row, "urls")) if url
            ),
            ingest=Ingest(origin=origin),
        )

    def _user(self, author: Row) -> UserEvent | None:
        """The author; `v` counts the changes of an account."""
        user, name, username = text_of(author, "id"), text_of(author, "displayName"), text_of(author, "username")
        if not user or not (name or username):
            return None
        return UserEvent(
            workspace=self.workspace,
            id=user,
            version=version_of(str(count_of(author, "v"))),
            name=name or username,
            aliases=(username,) if name and username and username != name else (),
        )


def _mentions(row: Row) -> Iterator[Mention]:
    """People by id, or by screen name where they have no account here; a group names its people, or everybody."""
    for named in rows_of(row, "mentions"):
        name, users = text_of(named, "screenName"), texts_of(named, "userIds")
        if named.get("group") is True:
            yield from (Mention(id=user) for user in users) if users else _everybody(name)
        elif user := text_of(named, "userId") or name:
            yield Mention(id=user, label=name or None)


def _everybody(name: str) -> Iterator[Mention]:
    if name:
        yield Mention(type="special", id=name)
