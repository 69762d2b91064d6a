"""Bytes of a CSV file to rows of cells, with the number of the line that each begins on.

A row that cannot be read never swallows the rows behind it: reading goes on with the very next line.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from streammem.connectors.archive import Entry, lines
from streammem.connectors.json_rows import RECORD_LIMIT

DELIMITERS = (",", ";", "\t", "|")

_STATED_DELIMITER = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""How Excel says in a first line what separates cells."""
_PARTS = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass
class Text:
    """The lines of a file as text: UTF-8, UTF-16 where it says so, Windows-1252 line by line where it is neither.

    NUL, which no text holds, is dropped: it comes from fields of a fixed width and from UTF-16 that does not say so.
    """

    entry: Entry
    mended: int = 0

    def lines(self) -> Iterator[str]:
        """Ends with EOFError where the file is damaged."""
        for index, decoded in enumerate(self._decoded()):
            line = decoded.replace("\0", "")
            yield from _PARTS.findall(line.removeprefix("\ufeff") if index == 0 else line)

    def _decoded(self) -> Iterator[str]:
        for raw in lines(self.entry, RECORD_LIMIT):
            try:
                yield raw.decode()
            except UnicodeDecodeError:
                self.mended += 1
                yield raw.decode("cp1252", "replace")


@dataclass(frozen=True)
class Table:
    """A header and the rows below it. A row that cannot be read comes as the words that say why."""

    header: list[str]
    rows: Iterator[tuple[int, list[str] | str]]


def table(text: Iterable[str], known: frozenset[str]) -> Table:
    """Find the header, the first line that is not blank, and how cells are separated: so that most columns are known.

    `known` are names of columns as `folded` gives them.
    """
    csv.field_size_limit(max(RECORD_LIMIT, csv.field_size_limit()))
    feed = _Feed(iter(text))
    first = feed.first()
    stated = _STATED_DELIMITER.fullmatch(first.strip("\r\n"))
    if stated:
        first = feed.first()
    delimiter = stated[1] if stated else max(DELIMITERS, key=lambda sign: _fit(first, sign, known))
    found = _records(feed, delimiter)
    header = next((cells for _, cells in found if isinstance(cells, list)), [])
    return Table([cell.strip() for cell in header], found)


def folded(name: str) -> str:
    """The form in which names of columns are compared: letters and digits only, no case."""
    return "".join(filter(str.isalnum, name.casefold()))


def _fit(line: str, delimiter: str, known: frozenset[str]) -> tuple[int, int]:
    cells = next(csv.reader([line], delimiter=delimiter), [])
    return sum(folded(cell) in known for cell in cells), len(cells)


@dataclass
class _Feed:
    """Lines for the parser, numbered from 1. Remembers those of the current row, to give them once more."""

    source: Iterator[str]
    pulled: list[tuple[int, str]] = field(default_factory=list)
    _again: deque[tuple[int, str]] = field(default_factory=deque)
    _number: int = 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if not self._again:
            self._again.append((self._number + 1, next(self.source)))
            self._number += 1
        self.pulled.append(self._again.popleft())
        return self.pulled[-1][1]

    def first(self) -> str:
        """The next line that is not blank, which stays to be read; empty at the end."""
        line = next((line for line in self if line.strip()), "")
        last = self.pulled[-1:] if line else []
        self.pulled = []
        if last and not _STATED_DELIMITER.fullmatch(line.strip("\r\n")):
            self._again.extendleft(last)
        return line

    def rewind(self) -> None:
        """Give all lines of the current row but the first once more."""
        self._again.extendleft(reversed(self.pulled[1:]))
        self.pulled = []


def _records(feed: _Feed, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.pulled = []
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            number, line = feed.pulled[0]
            yield number, _leniently(line, delimiter) or str(error)
            feed.rewind()
            reader = csv.reader(feed, delimiter=delimiter, strict=True)
        else:
            if any(map(str.strip, cells)):
                yield feed.pulled[0][0], cells


def _leniently(line: str, delimiter: str) -> list[str]:
    """A line with a quote out of place, if it holds whole cells all the same."""
    bare = line.rstrip("\r\n")
    try:
        cells = next(csv.reader([bare], delimiter=delimiter), [])
    except csv.Error:
        return []
    return cells if bare.count('"') % 2 == 0 else []
