"""A Rocket.Chat dump (folder, zip or one file) to canonical events: users, rooms, subscriptions, then messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, row_of, text_of
from streammem.connectors.report import IgnoredError, Report
from streammem.connectors.rocketchat.directory import ROOM_TYPES, Known, member_of, room_of, user_of
from streammem.connectors.rocketchat.message import events_of
from streammem.connectors.rocketchat.mongo import documents, id_of
from streammem.errors import SourceError
from streammem.records import Event

EXPECTED = (
    "a Rocket.Chat dump: rocketchat_message.json(l) as mongoexport writes it, alone or in a folder or .zip with "
    "rocketchat_room, rocketchat_subscription and users"
)

_COLLECTION = re.compile(
    r"(?:.*\.)?(?:rocketchat_)?(user|room|subscription|message)s?\.(?:json|jsonl|ndjson)(?:\.gz)?", re.IGNORECASE
)
_BSON = re.compile(r"(?:.*\.)?rocketchat_messages?\.bson(?:\.gz)?", re.IGNORECASE)
_READ_IN_ORDER = ("user", "room", "subscription", "", "message")
_NOT_A_MESSAGE = frozenset({"open", "unread", "alert", "userMentions", "groupMentions"})
_PEEKED = 20


@dataclass(frozen=True)
class _File:
    """A file and the collection that it holds, which is empty for a file that holds whatever it holds."""

    entry: Entry
    collection: str


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of a dump. Raises SourceError, at the first event, for a path that is none.

    The workspace is the given one, else named after the path, for a dump does not name its server.
    """
    with opened(path, report, single=True) as archive:
        files = _files(archive, path, report)
        known = Known(given.workspace or path.resolve().name.partition(".")[0] or "rocketchat", given.channel)
        _learn(files, known)
        if not known.room_ids:
            report.notes.append("no rooms in the dump: all channels count as private until a directory says otherwise")
        for file in files:
            for origin, row in documents(file.entry, archive.origin(file.entry), report):
                yield from report.counted(partial(_events, row, file.collection, known, origin), origin)
            report.entries_done += 1
            report.bytes_done += file.entry.size


def recognises(path: Path) -> bool:
    """Whether the path holds messages of Rocket.Chat, or a binary dump, which `read` explains. Never raises."""
    try:
        with opened(path, Report(), single=True) as archive:
            if any(_BSON.fullmatch(entry.parts[-1]) for entry in archive.entries):
                return True
            files = [file for file in _files(archive, path, Report()) if file.collection in ("", "message")]
            rows = [row for file in files[:1] for _, row in islice(documents(file.entry, "", Report()), _PEEKED)]
    except (SourceError, EOFError):
        return False
    return bool(rows) and 2 * sum(map(_looks_like_a_message, rows)) > len(rows)


def _looks_like_a_message(row: Row) -> bool:
    person = row_of(row, "u") or ("u._id" in row and row)
    return bool(id_of(row.get("_id")) and id_of(row.get("rid")) and "ts" in row and person)


# ------------------------------------------------------------------------------------------------- the files


def _files(archive: Archive, path: Path, report: Report) -> list[_File]:
    """The files of the collections that mean something, in the order in which they are read."""
    named = [_File(entry, _collection(archive, entry)) for entry in archive.entries if _is_named(archive, entry)]
    if not any(file.collection in ("", "message") or archive.is_file for file in named):
        raise SourceError(_what_is_wrong(path, archive.entries))
    archive.taken([file.entry for file in named], report, "other-file")
    files = [file for file in named if not file.entry.swollen]
    return sorted(files, key=lambda file: (_READ_IN_ORDER.index(file.collection), file.entry.name))


def _is_named(archive: Archive, entry: Entry) -> bool:
    name = entry.name.lower().removesuffix(".gz")
    if archive.is_file:
        return name.endswith((".json", ".jsonl", ".ndjson"))
    return bool(_COLLECTION.fullmatch(entry.parts[-1])) and "__MACOSX" not in entry.parts


def _collection(archive: Archive, entry: Entry) -> str:
    match = _COLLECTION.fullmatch(entry.parts[-1])
    # A file alone may be called messages.json and hold everything: only the database's own name is believed.
    if match is None or (archive.is_file and "rocketchat_" not in entry.name.lower()):
        return ""
    return match[1].lower()


def _what_is_wrong(path: Path, entries: Iterable[Entry]) -> str:
    if packed := next((entry for entry in entries if _BSON.fullmatch(entry.parts[-1])), None):
        name = packed.parts[-1].removesuffix(".gz")
        wanted = name.removesuffix(".bson") + ".json"
        return f"{path}: {packed.name} is BSON, which is not read: make JSON of it with `bsondump {name} > {wanted}`"
    return f"{path}: no messages of Rocket.Chat in it; expected {EXPECTED}"


# ------------------------------------------------------------------------------------------------ the records


def _learn(files: list[_File], known: Known) -> None:
    for file in files:
        if file.collection in ("user", "room", ""):
            for _, row in documents(file.entry, "", Report()):
                _learn_row(row, file.collection or _shape(row), known)


def _learn_row(row: Row, collection: str, known: Known) -> None:
    if collection == "user":
        known.learn_user(row)
    elif collection == "room":
        known.learn_room(row)


def _shape(row: Row) -> str:
    """The collection that a document belongs to, by its fields."""
    if "rid" in row:
        is_subscription = not _NOT_A_MESSAGE.isdisjoint(row) and "msg" not in row
        return "subscription" if is_subscription else "message"
    if text_of(row, "t") in ROOM_TYPES and "msg" not in row:
        return "room"
    return "user" if text_of(row, "username") and "msg" not in row else "message"


_EVENTS: dict[str, Callable[[Row, Known], list[Event]]] = {"user": user_of, "room": room_of, "subscription": member_of}


def _events(row: Row, collection: str, known: Known, origin: str) -> list[Event]:
    stated = _EVENTS.get(collection or _shape(row))
    events = stated(row, known) if stated else [*events_of(row, known, origin)]
    if not events:
        raise IgnoredError("empty")
    return events
