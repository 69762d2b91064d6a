"""Files of payloads as a product sends them (pages of its API, events, notifications) to canonical events.

A source is a file, a folder or a zip of files: `.json` (a payload, a list of payloads, or lines of them) and `.jsonl`,
`.ndjson` (a payload on each line), packed with gzip or not. All of it is read twice: names first, so that the order of
files and pages changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from streammem.connectors.archive import Archive, Entry, opened, unpacked
from streammem.connectors.connector import NOTHING, Given, Payloads
from streammem.connectors.json_rows import first_sign, listed, loads, numbered_lines, values, whole
from streammem.connectors.report import Report
from streammem.errors import RejectedError, SourceError
from streammem.records import Event

_LINES = (".jsonl", ".ndjson")
_FILES = (".json", *_LINES)
_PEEKED_FILES = 10
_PEEKED = 20


@dataclass(frozen=True)
class PayloadFiles:
    """Reads files of one kind of payload.

    `make` makes a reader of payloads, `looks` tells a payload of this kind, `lists` names the lists in a page that hold
    its records: a page that is too large or cut short is read record by record. `lessons` is how often the payloads are
    shown to a reader that learns from what it has learned.
    """

    expected: str
    make: Callable[[Given], Payloads]
    looks: Callable[[Any], bool]
    lists: tuple[str, ...] = ()
    lessons: int = 1

    def read(self, path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
        """The events of all files. Raises SourceError, at the first event, when there are none to read."""
        with opened(path, report, single=True) as archive:
            files = self._files(archive, path, report)
            payloads = self.make(given)
            for entry in files * self.lessons:
                for _, payload in self._payloads(entry, "", Report()):
                    payloads.learn(payload)
            for entry in files:
                for origin, payload in self._payloads(entry, archive.origin(entry), report):
                    yield from payloads.read(payload, report, origin)
                report.entries_done += 1
                report.bytes_done += entry.size

    def recognises(self, path: Path) -> bool:
        """Whether most of the first payloads of one of the first files look like this kind. Never raises."""
        try:
            with opened(path, Report(), single=True) as archive:
                return any(map(self._seems, self._files(archive, path, Report())[:_PEEKED_FILES]))
        except (SourceError, EOFError):
            return False

    def _seems(self, entry: Entry) -> bool:
        peeked = [payload for _, payload in islice(self._payloads(entry, "", Report()), _PEEKED)]
        return 2 * sum(map(self.looks, peeked)) > len(peeked)

    def _files(self, archive: Archive, path: Path, report: Report) -> list[Entry]:
        named = [entry for entry in archive.entries if _kind(entry)]
        if not named:
            raise SourceError(f"{path}: no .json or .jsonl file; expected {self.expected}")
        return archive.taken(named, report, "not-json")

    def _payloads(self, entry: Entry, origin: str, report: Report) -> Iterator[tuple[str, Any]]:
        if _kind(entry) in _LINES:
            yield from _of_lines(entry, origin, report)
            return
        plain = unpacked(entry)
        if first_sign(plain) != "{":
            yield from ((f"{origin}#{index}", value) for index, value in values(plain, origin, report))
            return
        try:
            payload = whole(plain)
        except ValueError:
            in_parts = _of_lines if _is_lines(plain) else self._in_pieces
            yield from in_parts(plain, origin, report)
        else:
            yield origin, payload

    def _in_pieces(self, entry: Entry, origin: str, report: Report) -> Iterator[tuple[str, Any]]:
        for key in self.lists:
            try:
                head, found = listed(entry, key, origin, report)
            except RejectedError:
                continue
            yield from ((f"{origin}#{index}", {**head, key: [row]}) for index, row in found)
            return
        report.reject("not-json", "neither a JSON list nor a page with a list of records", origin)


def _kind(entry: Entry) -> str:
    name = entry.name.lower().removesuffix(".gz")
    if "__macosx" in name or entry.parts[-1].startswith("."):
        return ""
    return next((suffix for suffix in _FILES if name.endswith(suffix)), "")


def _is_lines(entry: Entry) -> bool:
    """Whether the first line is a payload: many call lines of JSON `.json` too."""
    _, first = next(numbered_lines(entry, "", Report()), ("", b""))
    try:
        return isinstance(loads(first), dict)
    except ValueError:
        return False


def _of_lines(entry: Entry, origin: str, report: Report) -> Iterator[tuple[str, Any]]:
    for place, raw in numbered_lines(entry, origin, report):
        try:
            yield place, loads(raw)
        except ValueError as error:
            report.reject("not-json", str(error), place)
