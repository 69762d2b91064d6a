"""The tables of a Zulip export: a file is an object with a list of rows for each table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from streammem.connectors.archive import Entry, chunks
from streammem.connectors.fields import Row, as_list
from streammem.connectors.json_rows import RECORD_LIMIT, WHOLE, loads, whole
from streammem.connectors.report import Report

_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([\[\]{}])|"', re.DOTALL)
"""A string, a bracket outside a string, or the quote of a string that goes on behind the end."""
_KEY = re.compile(rb'"(\w{1,80})"\s*:\s*\Z')


def rows(entry: Entry, tables: Collection[str], origin: str, report: Report) -> Iterator[tuple[str, str, Row]]:
    """The rows of some of the tables, each with its table and its place, in the order of the file.

    A file that is large or damaged is read row by row: what stands before the damage is kept.
    """
    counts = dict.fromkeys(tables, -1)
    for table, value in _values(entry, counts, origin, report):
        counts[table] += 1
        place = f"{origin}#{table}/{counts[table]}"
        if isinstance(value, dict):
            yield table, place, value
        elif isinstance(value, ValueError):
            report.reject("not-json", str(value), place)
        else:
            report.reject("not-an-object", f"a row is a {type(value).__name__}", place)


def _values(entry: Entry, tables: Collection[str], origin: str, report: Report) -> Iterator[tuple[str, Any]]:
    if entry.size <= WHOLE:
        try:
            found = whole(entry)
        except ValueError:
            pass
        else:
            if not isinstance(found, dict):
                report.reject("not-an-object", "expected an object with tables", origin)
                return
            for table in filter(tables.__contains__, found):
                yield from ((table, value) for value in as_list(found[table]))
            return
    yield from _streamed(entry, tables, origin, report)


def _streamed(entry: Entry, tables: Collection[str], origin: str, report: Report) -> Iterator[tuple[str, Any]]:
    cutter = _Cutter()
    try:
        for piece in chunks(entry):
            yield from ((table, _decoded(raw)) for table, raw in cutter.feed(piece) if table in tables)
        damage = f"cut inside the record that starts at byte {cutter.offset}" if cutter.is_open else ""
    except EOFError as error:
        damage = f"damaged after {cutter.offset} bytes: {error}"
    if damage:
        report.cut_short(damage, origin, origin)


def _decoded(raw: bytes) -> Any:
    try:
        return loads(raw)
    except ValueError as error:
        return error


class _Cutter:
    """Finds rows by their brackets: `{"table": [{row}, {row}], ...}`."""

    def __init__(self) -> None:
        self._text = b""
        self._dropped = 0
        self._at = 0
        self._start = 0
        self._open = bytearray()
        self._table = ""
        self._seen = False

    @property
    def is_open(self) -> bool:
        return bool(self._open) or not self._seen

    @property
    def offset(self) -> int:
        """Where the row begins that is being read."""
        return self._dropped + self._start

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        self._text += piece
        if len(self._text) > RECORD_LIMIT + len(piece):
            raise EOFError(f"a record is longer than {RECORD_LIMIT} bytes")
        while match := _SIGN.search(self._text, self._at):
            if match[0] == b'"':
                self._at = match.start()  # a string that goes on in the next piece is looked at again
                break
            self._at = match.end()
            if sign := match[1]:
                yield from self._opens(sign, match.start()) if sign in b"[{" else self._closes(sign)
        else:
            self._at = len(self._text)
        self._drop()

    def _opens(self, sign: bytes, start: int) -> Iterator[tuple[str, bytes]]:
        if len(self._open) == 1:
            key = _KEY.search(self._text, max(self._start, start - 200), start) if sign == b"[" else None
            self._table = key[1].decode() if key else ""
        if len(self._open) <= 2:
            self._start = start
        self._open += sign
        self._seen = True
        yield from ()

    def _closes(self, sign: bytes) -> Iterator[tuple[str, bytes]]:
        opening = b"[" if sign == b"]" else b"{"
        # A bracket that does not match belongs to a broken row, which must not swallow other tables.
        if (at := self._open.rfind(opening)) < 0 or (at == 0 and len(self._open) > 2):
            return
        del self._open[at:]
        if at == 2 and self._table:
            yield self._table, self._text[self._start : self._at]
        if at <= 2:
            self._start = self._at

    def _drop(self) -> None:
        # What stands between rows goes, but for a key whose list begins in the next piece.
        keep = self._start if len(self._open) > 2 else max(self._start, self._at - 200)
        self._text = self._text[keep:]
        self._dropped += keep
        self._at -= keep
        self._start = max(0, self._start - keep)
