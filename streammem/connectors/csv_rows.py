"""CSV to canonical events: a row for each message, in whatever columns, order and dialect it was written.

A source is one file (`.csv`, `.tsv`, packed with gzip or not) or a folder or zip with messages.csv and, where there are
some, users.csv and channels.csv. The columns mean what the keys of plain JSON rows mean (jsonl_rows).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.csv_table import Table, Text, folded, table
from streammem.connectors.json_rows import loads
from streammem.connectors.jsonl_rows import SPEAKING_OF_AUDIENCE, Convert, Reader, time_of
from streammem.connectors.report import Report
from streammem.core.events import micros
from streammem.errors import RejectedError, SourceError
from streammem.records import Event

EXPECTED = "CSV of messages with a header (columns text, ts, channel, and user, id, reply_to … where there are any)"

_NAME = re.compile(r"(?:.*[._-])?(user|channel|message)s?\.[ct]sv(?:\.gz)?", re.IGNORECASE)
_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_APART = re.compile(r"[,;|\s]+")

_Columns = dict[str, tuple[str, ...]]

_MESSAGES: _Columns = {
    "id": ("id", "messageid", "msgid", "eventid", "uuid", "guid"),
    "channel": (
        *("channelid", "channel", "roomid", "room", "rid", "conversationid", "conversation", "chatid", "chat"),
        *("streamid", "stream", "channelname", "roomname", "conversationname", "chatname"),
    ),
    "channel_name": ("channelname", "roomname", "conversationname", "chatname"),
    "user_id": ("userid", "authorid", "senderid", "fromid"),
    "user": (
        *("user", "author", "sender", "from", "nick", "nickname", "handle", "speaker", "username"),
        *("displayname", "name", "realname", "fullname", "authorname", "sendername"),
    ),
    "name": ("displayname", "realname", "fullname", "authorname", "sendername", "name", "username"),
    "ts": (
        *("ts", "timestamp", "time", "datetime", "date", "createdat", "created", "createat", "creationtime"),
        *("sentat", "sent", "postedat", "messagetime", "messagedate"),
    ),
    "text": ("text", "message", "body", "content", "msg", "messagetext", "messagebody", "contents"),
    "reply_to": ("replyto", "replytoid", "inreplyto", "parentid", "parent", "replyid"),
    "thread": ("thread", "threadid", "threadts", "rootid", "root"),
    "mentions": ("mentions", "mentioned"),
    "edited_at": ("editedat", "edited", "lasteditedat", "editat", "edittime"),
    "version": ("version",),
    "kind": ("kind", "messagetype", "type"),
    "channel_type": ("channeltype", "visibility"),
    "type": ("type",),
    "private": ("private", "isprivate"),
    "role": ("role",),
    "ws": ("ws", "workspace", "tenant", "team", "server", "guild"),
}
_USERS: _Columns = {
    "id": ("id", "userid", "user"),
    "name": ("displayname", "name", "realname", "fullname", "username"),
    "aliases": ("aliases", "alias", "nicknames"),
    "title": ("title", "jobtitle"),
    "role": ("role",),
    "manager": ("manager", "managerid"),
    "tz": ("tz", "timezone"),
    "updated": ("updated", "updatedat", "version"),
    "ws": _MESSAGES["ws"],
}
_CHANNELS: _Columns = {
    "id": ("id", "channelid", "channel", "roomid", "room"),
    "name": ("name", "channelname", "displayname", "roomname"),
    "type": ("type", "channeltype", "visibility"),
    "private": ("private", "isprivate"),
    "aliases": ("aliases", "alias", "formernames"),
    "members": ("members", "memberids", "users", "userids"),
    "updated": ("updated", "updatedat", "version"),
    "ws": _MESSAGES["ws"],
}
_LISTS = frozenset({"mentions", "aliases", "members"})


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of a table, in the order of its rows: users, then channels, then messages.

    Raises SourceError, at the first event, for a path without a table and for one that lacks a column.
    """
    with opened(path, report, single=True) as archive:
        files = _files(archive, path, report)
        reader = Reader(
            home=given.workspace or _stem(path),
            merged="",
            report=report,
            has_channels=any(file.holds == "channel" for file in files),
            given_channel=given.channel,
            source_format="csv",
        )
        for file in files:
            _learn(file, reader)
        for file in files:
            yield from _events(file, path, archive.origin(file.entry), reader)
            report.entries_done += 1
            report.bytes_done += file.entry.size


def recognises(path: Path) -> bool:
    """Whether the path holds a table with columns for text and time. Never raises."""
    try:
        with opened(path, Report(), single=True) as archive:
            messages = _files(archive, path, Report())[-1]
            header = _table(messages, Text(messages.entry)).header
    except (SourceError, EOFError):
        return False
    return {"text", "ts"} <= _placed(header, _MESSAGES).keys()


# ------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True)
class _File:
    entry: Entry
    holds: str

    @property
    def columns(self) -> _Columns:
        return {"user": _USERS, "channel": _CHANNELS}.get(self.holds, _MESSAGES)


def _files(archive: Archive, path: Path, report: Report) -> list[_File]:
    """The tables, in the order in which they are read."""
    found = [file for entry in archive.entries if (file := _file(entry, alone=archive.is_file))]
    if not any(file.holds == "message" for file in found):
        raise SourceError(f"{path}: no table of messages; expected {EXPECTED}")
    archive.taken([file.entry for file in found], report, "not-a-table")
    files = [file for file in found if not file.entry.swollen]
    return sorted(files, key=lambda file: (("user", "channel", "message").index(file.holds), file.entry.name))


def _file(entry: Entry, *, alone: bool) -> _File | None:
    if alone:
        return _File(entry, "message") if entry.name.lower().endswith(_SUFFIXES) else None
    match = _NAME.fullmatch(entry.parts[-1])
    return _File(entry, match[1].lower()) if match and "__MACOSX" not in entry.parts else None


def _stem(path: Path) -> str:
    return path.resolve().name.partition(".")[0] or "workspace"


def _table(file: _File, text: Text) -> Table:
    return table(text.lines(), frozenset(name for names in file.columns.values() for name in names))


# -------------------------------------------------------------------------------------------------- the rows


def _events(file: _File, path: Path, origin: str, reader: Reader) -> Iterator[Event]:
    text, report = Text(file.entry), reader.report
    number = 0
    try:
        found = _table(file, text)
        placed = _placed(found.header, file.columns)
        _demand(placed, found.header, file, path, reader)
        if file.holds == "message" and "id" not in placed:
            report.notes.append(f"{origin}: no column of ids: they are made of channel, user, time and text")
        convert = _convert(file, reader)
        for number, cells in found.rows:
            row = partial(_row, cells, placed, len(found.header))
            yield from report.counted(
                partial(_stated, row, convert, reader, f"{origin}#{number}"), f"{origin}#{number}"
            )
    except EOFError as error:
        report.cut_short(str(error), f"{origin}#{number + 1}", origin)
    if text.mended:
        report.notes.append(f"{origin}: {text.mended} lines are not UTF-8 and were read as Windows-1252")


def _learn(file: _File, reader: Reader) -> None:
    """Show the reader all rows that may say who reads their channel, so that the order of rows changes nothing."""
    try:
        found = _table(file, Text(file.entry))
        placed = _placed(found.header, file.columns)
        if file.holds != "message" or reader.has_channels or placed.keys().isdisjoint(SPEAKING_OF_AUDIENCE):
            return
        for _, cells in found.rows:
            with suppress(RejectedError):
                reader.learn(_row(cells, placed, len(found.header)))
    except EOFError:
        return  # what is lost is told when the rows are read


def _placed(header: list[str], columns: _Columns) -> dict[str, int]:
    """Where each key of a row stands: under the first of its names that the header has."""
    places = {folded(name): index for index, name in reversed([*enumerate(header)])}
    return {
        key: next(places[name] for name in names if name in places)
        for key, names in columns.items()
        if not places.keys().isdisjoint(names)
    }


def _demand(placed: dict[str, int], header: list[str], file: _File, path: Path, reader: Reader) -> None:
    wanted = ["text", "ts", "channel"] if file.holds == "message" else ["id"]
    if reader.given_channel and "channel" in wanted:
        wanted.remove("channel")
    if missing := [name for name in wanted if name not in placed]:
        found = ", ".join(name[:40] for name in header[:20]) or "none"
        unless = " (or a given channel)" if "channel" in missing else ""
        raise SourceError(
            f"{path}: no column for {', '.join(missing)}{unless}; found: {found}; wanted: {', '.join(wanted)}"
        )


def _convert(file: _File, reader: Reader) -> Convert:
    return {"user": reader.user, "channel": reader.channel}.get(file.holds, reader.message)


def _stated(row: Callable[[], dict[str, Any]], convert: Convert, reader: Reader, origin: str) -> list[Event]:
    stated = row()
    if convert == reader.message and "id" not in stated:
        stated["id"] = _made_id(stated, reader.given_channel)
    return reader.stated(convert(stated, origin))


def _row(cells: list[str] | str, placed: dict[str, int], width: int) -> dict[str, Any]:
    if isinstance(cells, str):
        raise RejectedError("bad-row", cells)
    if any(cell.strip() for cell in cells[width:]):
        raise RejectedError("bad-row", f"{len(cells)} cells under {width} columns")
    found = {key: cells[place] for key, place in placed.items() if place < len(cells)}
    return {key: _value(key, cell) for key, cell in found.items() if cell.strip() or key in ("text", "ts")}


def _value(key: str, cell: str) -> Any:
    if key in _LISTS:
        return _list(cell.strip())
    if key in ("type", "kind"):
        return cell.strip().lower()
    return cell if key == "text" else cell.strip()


def _list(cell: str) -> list[Any]:
    """A list as JSON, or names with something between them."""
    if cell.startswith("["):
        try:
            found = loads(cell.encode("utf-8", "replace"))
        except ValueError:
            found = None
        if isinstance(found, list):
            return found
    return [name.removeprefix("@") for name in _APART.split(cell) if name.strip("@")]


def _made_id(row: dict[str, Any], channel: str) -> str:
    """An id that the same row always has: of channel, user, time and text."""
    try:
        when: Any = micros(time_of(row.get("ts")))
    except RejectedError:
        when = row.get("ts")
    who = row.get("user_id") or row.get("user")
    said = json.dumps([row.get("channel") or channel, who, when, row.get("text")])
    return f"syn:{blake2b(said.encode(), digest_size=12).hexdigest()}"
