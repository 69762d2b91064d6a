"""JSON to canonical events: records that are canonical events already, and plain rows.

A source is one file (`.jsonl`, `.ndjson`, or `.json` with a list, packed with gzip or not) or a folder with
messages.jsonl and, where there are some, users.jsonl and channels.jsonl. Both kinds of record may be mixed; unknown
keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from streammem.connectors.archive import Entry, chunks, unpacked
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, as_row, text_of
from streammem.connectors.json_rows import first_sign, loads, numbered_lines, values
from streammem.connectors.jsonl_rows import SPEAKING_OF_AUDIENCE, Convert, Reader, is_canonical
from streammem.connectors.report import Report
from streammem.errors import SourceError
from streammem.records import Event

EXPECTED = "JSON lines: a .jsonl file (or .jsonl.gz, or a .json list), or a folder with messages.jsonl"

_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_LISTS = (".json", ".json.gz")
_PEEKED_LINES = 100
_OF_AUDIENCE = tuple(f'"{key}"'.encode() for key in SPEAKING_OF_AUDIENCE)


def read(path: Path, report: Report, given: Given = NOTHING, *, merged: str = "") -> Iterator[Event]:
    """The events of a file or folder, in the order of their lines: users, then channels, then messages.

    The given workspace stands in where rows name none (default: the first row's that names one, else the file's name),
    the given channel where messages name none.
    `merged` reads all workspaces as the one of that name, with a channel for each (the harder setting of `eval`).
    Raises SourceError, at the first event, for a path that holds no JSON lines.
    """
    files, workspace = _files(path), given.workspace
    report.entries_total += len(files.all)
    report.bytes_total += sum(file.stat().st_size for file in files.all)
    home = workspace or merged or _first_workspace(files.messages) or _stem(path)
    reader = Reader(
        home=home,
        merged=merged,
        report=report,
        has_channels=files.channels is not None,
        given_channel=given.channel,
    )
    if files.channels is None and not merged:
        _learn(files.messages, reader)
    for file, rows_to_events in (
        (files.users, reader.user),
        (files.channels, reader.channel),
        (files.messages, reader.message),
    ):
        if file is not None:
            yield from _events(file, reader, rows_to_events)
    if workspace and (others := sorted(reader.last.keys() - {workspace})) and not merged:
        report.notes.append(f"rows that name their own workspace stay in it: {', '.join(others[:5])}")


def recognises(path: Path) -> bool:
    """Whether the path looks like JSON lines. Never raises. A packed file must say so: `.gz` alone may be anything.

    A `.json` file may be anything as well: its first record must look like a message.
    """
    try:
        messages = _files(path).messages
        if messages.name.lower().endswith(_LISTS):
            return _looks(next((record for _, record in _records(messages, Report())), None))
        return messages.name.lower().endswith(_SUFFIXES)
    except SourceError:
        return False


def _looks(record: Any) -> bool:
    row = _row(record)
    return is_canonical(row) or ("id" in row and "text" in row and not {"channel", "ts"}.isdisjoint(row))


# ------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True)
class _Files:
    messages: Path
    users: Path | None = None
    channels: Path | None = None

    @property
    def all(self) -> list[Path]:
        return [file for file in (self.users, self.channels, self.messages) if file is not None]


def _files(path: Path) -> _Files:
    if path.is_dir():
        if messages := _named(path, "messages"):
            return _Files(messages, _named(path, "users"), _named(path, "channels"))
        raise SourceError(f"{path}: no messages.jsonl or messages.jsonl.gz in it; expected {EXPECTED}")
    if not path.is_file():
        raise SourceError(f"{path}: no such file or folder; expected {EXPECTED}")
    if not path.name.lower().endswith((*_SUFFIXES, *_LISTS, ".gz")):
        raise SourceError(f"{path}: not named like JSON lines; expected {EXPECTED}")
    return _Files(path)


def _named(folder: Path, stem: str) -> Path | None:
    return next((file for suffix in (*_SUFFIXES, *_LISTS) if (file := folder / f"{stem}{suffix}").is_file()), None)


def _stem(path: Path) -> str:
    if path.is_dir():
        return path.resolve().name or "workspace"
    name = path.name.removesuffix(".gz")
    return name.removesuffix(".jsonl").removesuffix(".ndjson").removesuffix(".json") or path.name


# ----------------------------------------------------------------------------------------------- the records


def _learn(file: Path, reader: Reader) -> None:
    """Show the reader all rows that may say who reads their channel, so that the order of rows changes nothing."""
    for _, record in _records(file, Report()):
        if not isinstance(record, bytes) or any(key in record for key in _OF_AUDIENCE):
            reader.learn(_row(record))


def _events(file: Path, reader: Reader, convert: Convert) -> Iterator[Event]:
    for origin, record in _records(file, reader.report):
        if isinstance(record, bytes):
            yield from reader.counted(record, origin, convert)
        else:
            yield from reader.counted_value(record, origin, convert)


def _records(path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    """The records of a file with their place: lines as they stand (bytes), or the decoded elements of a list.

    Many call lines of JSON `.json` too: what begins with an object is read as lines.
    """
    if not path.name.lower().endswith(_LISTS):
        yield from _lines(path, report)
        return
    entry = Entry(path.name, path.stat().st_size, lambda: path.open("rb"))
    sign = first_sign(unpacked(entry))
    if sign not in ("[", "{", ""):
        raise SourceError(f"{path}: neither a list nor lines of JSON; expected {EXPECTED}")
    if sign == "{":
        yield from _lines(path, report)
        return
    yield from ((f"{path.name}#{index}", value) for index, value in values(unpacked(entry), path.name, report))
    report.bytes_done += entry.size
    report.entries_done += 1


def _lines(path: Path, report: Report) -> Iterator[tuple[str, bytes]]:
    """The lines of a file with their place. A file damaged in the middle gives the lines before the damage."""
    before = report.bytes_done
    entry = Entry(path.name, path.stat().st_size, lambda: path.open("rb"))
    try:
        next(chunks(unpacked(entry)), b"")
    except EOFError as error:
        raise SourceError(f"{path}: cannot be read ({error.__cause__}); expected {EXPECTED}") from None
    with path.open("rb") as packed:
        for place, raw in numbered_lines(replace(entry, open=lambda: packed), path.name, report):
            yield place, raw
            report.bytes_done = before + packed.tell()
    report.bytes_done = before + entry.size
    report.entries_done += 1


def _first_workspace(path: Path) -> str:
    """The workspace of the first row that names one, for users and channels that do not."""
    records = (record for _, record in islice(_records(path, Report()), _PEEKED_LINES))
    named = (text_of(_row(record), "ws", "workspace", "tenant") for record in records)
    return next(filter(None, named), "")


def _row(record: Any) -> Row:
    try:
        return as_row(loads(record) if isinstance(record, bytes) else record)
    except ValueError:
        return {}
