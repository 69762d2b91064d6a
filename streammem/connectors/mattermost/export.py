"""A Mattermost bulk export (a .jsonl file, or the zip or folder it lies in) to canonical events.

All lines are read twice: names, teams and members first, so that the order of lines changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, as_list, row_of, text_of
from streammem.connectors.json_rows import RECORD_LIMIT, loads, numbered_lines
from streammem.connectors.mattermost.directory import (
    Known,
    bot_events,
    channel_events,
    direct_events,
    direct_of,
    members_of,
    user_events,
)
from streammem.connectors.mattermost.post import Place, id_of, post_events
from streammem.connectors.report import IgnoredError, Report
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelEvent, ChannelRef, Event

EXPECTED = "a Mattermost bulk export: a .jsonl file, or a .zip or folder with one (import.jsonl) and data/"

_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_DIRECTORY: dict[str, Callable[[Row, Known, str], Iterator[Event]]] = {
    "user": user_events,
    "bot": bot_events,
    "channel": channel_events,
    "direct_channel": direct_events,
}
_POSTS = frozenset({"post", "direct_post"})
_KINDS = frozenset({*_DIRECTORY, *_POSTS, "version", "team", "emoji", "role", "scheme"})
_PEEKED = 5


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of an export, in the order of its lines.

    The workspace is the server's: the given one, else the only team's, else the file's name. Raises SourceError, at
    the first event, for a path that holds no bulk export.
    """
    with opened(path, report, single=True) as archive:
        files = _files(archive, path, report)
        known = Known()
        for entry in files:
            for _, raw in numbered_lines(entry, "", Report()):
                known.learn(_quietly(raw))
        teams = list(known.open_teams)
        reader = _Reader(known, given.workspace or (teams[0] if len(teams) == 1 else path.stem), report)
        for entry in files:
            for origin, raw in numbered_lines(entry, archive.origin(entry), report):
                yield from reader.line(raw, origin)
            report.entries_done += 1
            report.bytes_done += entry.size


def recognises(path: Path) -> bool:
    """Whether the path holds a bulk export. Never raises."""
    try:
        with opened(path, Report(), single=True) as archive:
            _files(archive, path, Report())
    except SourceError:
        return False
    return True


class _Reader:
    """Turns lines into events. Remembers which direct conversations were introduced."""

    def __init__(self, known: Known, workspace: str, report: Report) -> None:
        self._known = known
        self._workspace = workspace
        self._report = report
        self._introduced = set(known.declared)

    def line(self, raw: bytes, origin: str) -> Iterator[Event]:
        """The events of a line. A post and each of its replies are records of their own."""
        held: list[Row] = []
        events = self._report.counted(lambda: self._stated(raw, origin, held), origin)
        self._introduced.update(event.id for event in events if isinstance(event, ChannelEvent))
        yield from events
        for post in held:
            yield from self._replies(post, origin)

    def _stated(self, raw: bytes, origin: str, posts: list[Row]) -> Iterator[Event]:
        row = _decoded(raw)
        kind = text_of(row, "type")
        if kind == "version":
            raise IgnoredError("format-version")
        if not kind:
            raise RejectedError("no-type", "a line has no type")
        inner = row_of(row, kind)
        if kind in _POSTS:
            posts.append(inner)
            yield from self._post(inner, origin)
        elif kind in _DIRECTORY:
            yield from _DIRECTORY[kind](inner, self._known, self._workspace)
        elif kind != "team":  # who may read a team's channels is said with each of them
            raise IgnoredError("other-type")

    def _post(self, row: Row, origin: str) -> Iterator[Event]:
        place = self._place(row)
        events = list(post_events(row, place, "", origin))
        if not place.team and place.channel.id not in self._introduced:
            yield from direct_events(row, self._known, self._workspace)
        yield from events

    def _place(self, row: Row) -> Place:
        team, channel = text_of(row, "team"), text_of(row, "channel")
        if team and channel:
            name = f"{team}/{channel}"
            stated = name in self._known.names.channels
            ref = ChannelRef(id=name) if stated else ChannelRef(id=name, name=channel, type="unknown")
            return Place(self._workspace, ref, team, self._known)
        return Place(self._workspace, ChannelRef(id=direct_of(members_of(row))[0]), "", self._known)

    def _replies(self, post: Row, origin: str) -> Iterator[Event]:
        """Replies stand even where their root does not: it is then a message that nobody has seen."""
        for index, reply in enumerate(as_list(post.get("replies"))):
            stated = partial(self._reply, reply, post, f"{origin}/{index}")
            yield from self._report.counted(stated, f"{origin}/{index}")

    def _reply(self, reply: Any, post: Row, origin: str) -> Iterator[Event]:
        if not isinstance(reply, dict):
            raise RejectedError("not-an-object", f"a reply is a {type(reply).__name__}")
        place = self._place(post)
        yield from post_events(reply, place, id_of(post, place.channel.id), origin)


# ------------------------------------------------------------------------------------------------- the files


def _files(archive: Archive, path: Path, report: Report) -> list[Entry]:
    """The files of lines at the top of the export: what lies below, in data/, was attached to posts."""
    named = [entry for entry in archive.entries if archive.is_file or entry.name.lower().endswith(_LINES)]
    found = [entry for entry in named if not entry.swollen and _looks(entry)]
    top = min((len(entry.parts) for entry in found), default=0)
    files = [entry for entry in found if len(entry.parts) == top]
    if not files:
        raise SourceError(f"{path}: no lines of a bulk export in it; expected {EXPECTED}")
    swollen = [entry for entry in named if entry.swollen and len(entry.parts) == top]
    return archive.taken([*files, *swollen], report, "not-a-bulk-file")


def _looks(entry: Entry) -> bool:
    """Whether one of the first lines is of a bulk export: it names its type, and holds an object of that name."""
    rows = (_quietly(raw) for _, raw in islice(numbered_lines(entry, "", Report()), _PEEKED))
    return any(map(_is_line, rows))


def _is_line(row: Any) -> bool:
    kind = row.get("type") if isinstance(row, dict) else None
    return isinstance(kind, str) and kind in _KINDS and isinstance(row.get(kind), int if kind == "version" else dict)


def _decoded(raw: bytes) -> Row:
    if len(raw) >= RECORD_LIMIT:
        raise RejectedError("line-too-long", f"a line is longer than {RECORD_LIMIT} bytes")
    try:
        row = loads(raw)
    except ValueError as error:
        raise RejectedError("not-json", str(error)) from None
    if not isinstance(row, dict):
        raise RejectedError("not-an-object", f"a line is a {type(row).__name__}")
    return row


def _quietly(raw: bytes) -> Any:
    try:
        return loads(raw)
    except ValueError:
        return None
