"""Bytes of JSON to values, exactly and in bounded memory, forgiving one record at a time.

Numbers with a fraction come as the text they were written in: a Slack `ts` must never pass through a double.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from streammem.connectors.archive import Entry, chunks, lines
from streammem.connectors.report import Report
from streammem.errors import RejectedError

WHOLE = 8 << 20
"""Files up to this size are decoded in one go, larger ones record by record."""
RECORD_LIMIT = 32 << 20
"""Longest single record: a longer one is refused and ends its file."""

_MARK = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+(?:([\[\]{}])|(")|\Z)', re.DOTALL)
"""Up to the next bracket outside a string; group 2 is the quote of a string that does not end."""
_BLANK = b" \t\r\n,"
_decoder = msgspec.json.Decoder(float_hook=str)


class CutShortError(Exception):
    """The text ends inside a record."""


class NotAListError(Exception):
    """The top level of the text is something else than a list."""


def loads(raw: bytes) -> Any:
    """Decode one JSON value; what strict decoders refuse (BOM, NaN, lone surrogates, bad UTF-8) is mended.

    Raises ValueError when there is no way to read it. The result never holds a lone surrogate.
    """
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _loads_leniently(raw)


def _loads_leniently(raw: bytes) -> Any:
    text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    try:
        return _mended(json.loads(text, strict=False, parse_float=str, parse_constant=lambda _: None))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def numbered_lines(entry: Entry, origin: str, report: Report) -> Iterator[tuple[str, bytes]]:
    """The lines that are not blank with their place, counted from 1. A damaged file gives what stands before that."""
    number = 0
    try:
        for number, raw in enumerate(lines(entry, RECORD_LIMIT), 1):
            if raw.strip():
                yield f"{origin}#{number}", raw
    except EOFError as error:
        report.cut_short(str(error), f"{origin}#{number + 1}", origin)


def rows(entry: Entry, origin: str, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON list with their index. Whatever else stands there is rejected, the rest is kept.

    `null` and a file of blanks are empty lists.
    """
    yield from _objects(_values(entry), origin, report)


def listed(
    entry: Entry, key: str, origin: str, report: Report
) -> tuple[dict[str, Any], Iterator[tuple[int, dict[str, Any]]]]:
    """A JSON object with a long list in it: the object without the list, and the list's objects with their index.

    A file that is too large to be held or is damaged gives, of the object, what stands before the list. Raises
    RejectedError for a file without that list; whatever else stands in the list is rejected, the rest is kept.
    """
    pieces: Iterable[bytes] = chunks(entry)
    if entry.size <= WHOLE:
        collected = _Collected()
        whole = collected.all(pieces)
        if not collected.damage and (found := _decoded_object(whole)) is not None:
            if not isinstance(found.get(key), list):
                raise RejectedError("no-list", f"an object without a list {key!r}")
            return {name: value for name, value in found.items() if name != key}, _objects(found[key], origin, report)
        pieces = collected.again(whole)
    head, skipped, rest = _split(iter(pieces), key)
    values = map(_value, elements(rest, begins=skipped, alone=False))
    return _head(head), _objects(values, origin, report)


def _decoded_object(whole: bytes) -> dict[str, Any] | None:
    try:
        found = loads(whole)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _head(text: bytes) -> dict[str, Any]:
    return _decoded_object(text + b"null}") or {}


def _split(pieces: Iterator[bytes], key: str) -> tuple[bytes, int, Iterator[bytes]]:
    """The text of an object up to its list `key`, its length, and the rest from the list's bracket on."""
    text = b""
    while len(text) <= RECORD_LIMIT:
        try:
            text += next(pieces)
        except StopIteration:
            break
        except EOFError as error:
            raise RejectedError("truncated-file", str(error)) from None
        if (at := _list_in(text, key)) is not None:
            return text[:at], at, itertools.chain([text[at:]], pieces)
    raise RejectedError("no-list", f"an object without a list {key!r}")


def _list_in(text: bytes, key: str) -> int | None:
    """Where the list `key` of the outermost object begins."""
    opens = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*\Z')
    depth = at = 0
    while (mark := _MARK.match(text, at)) and mark.start(1) >= 0:
        sign, at = text[mark.start(1)], mark.end(1)
        if sign == 0x5B and depth == 1 and opens.search(text, max(0, at - 1000), at - 1):
            return at - 1
        depth += 1 if sign in b"[{" else -1
    return None


def values(entry: Entry, origin: str, report: Report) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON list, whatever they are, with their index; what cannot be read is rejected."""
    yield from _readable(_values(entry), origin, report)


def whole(entry: Entry) -> Any:
    """The JSON value that a small file holds. Raises ValueError when it is damaged or too large to be held."""
    text = bytearray()
    try:
        for piece in chunks(entry):
            text += piece
            if len(text) > RECORD_LIMIT:
                raise ValueError("too large to be read in one go")
    except EOFError as error:
        raise ValueError(str(error)) from error
    return loads(bytes(text))


def first_sign(entry: Entry) -> str:
    """The first character of a JSON file: what kind of value it holds."""
    try:
        start = next(iter(chunks(entry)), b"")
    except EOFError:
        return ""
    return start.removeprefix(codecs.BOM_UTF8).lstrip()[:1].decode("ascii", "replace")


def _objects(found: Iterable[Any], origin: str, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    for index, value in _readable(found, origin, report):
        if isinstance(value, dict):
            yield index, value
        else:
            report.reject("not-an-object", f"a record is {type(value).__name__}", f"{origin}#{index}")


def _readable(found: Iterable[Any], origin: str, report: Report) -> Iterator[tuple[int, Any]]:
    """The decoded values; what could not be decoded is rejected by its place, damage included."""
    index = -1
    try:
        for index, value in enumerate(found):
            if isinstance(value, ValueError):
                report.reject("not-json", str(value), f"{origin}#{index}")
            else:
                yield index, value
    except NotAListError:
        report.reject("not-a-list", "expected a JSON list of records", origin)
    except CutShortError as error:
        report.cut_short(str(error), f"{origin}#{index + 1}", origin)


def _values(entry: Entry) -> Iterator[Any]:
    """Decoded records; a ValueError stands for one that could not be read."""
    pieces: Iterable[bytes] = chunks(entry)
    if entry.size <= WHOLE:
        collected = _Collected()
        whole = collected.all(pieces)
        decoded = _decoded_list(whole) if not collected.damage else None
        if decoded is not None:
            yield from decoded
            return
        pieces = collected.again(whole)
    for element in elements(pieces):
        yield _value(element)


class _Collected:
    """A small file read whole, which remembers where it broke off."""

    def __init__(self) -> None:
        self.damage: EOFError | None = None

    def all(self, pieces: Iterable[bytes]) -> bytes:
        whole = bytearray()
        try:
            for piece in pieces:
                whole += piece
        except EOFError as error:
            self.damage = error
        return bytes(whole)

    def again(self, whole: bytes) -> Iterator[bytes]:
        yield whole
        if self.damage:
            raise self.damage


def _decoded_list(whole: bytes) -> list[Any] | None:
    if not whole.removeprefix(codecs.BOM_UTF8).strip():
        return []
    try:
        decoded = _decoder.decode(whole.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if decoded is None:
        return []
    if not isinstance(decoded, list):
        raise NotAListError
    return decoded


def _value(element: bytes) -> Any:
    try:
        return loads(element)
    except ValueError as error:
        return error


def elements(pieces: Iterable[bytes], begins: int = 0, *, alone: bool = True) -> Iterator[bytes]:
    """Cut a JSON list into the bytes of its elements without decoding them.

    `begins` is the offset of the first piece in its file. Behind a list that does not stand `alone` comes more.
    Raises CutShortError after the last whole element when the text ends too early, NotAListError for no list.
    """
    cutter = _Cutter(begins, alone=alone)
    try:
        for piece in pieces:
            yield from cutter.feed(piece)
            if cutter.done:
                return
    except EOFError as error:
        raise CutShortError(f"damaged after {cutter.offset} bytes: {error}") from error
    yield from cutter.finish()


class _Cutter:
    """Finds where elements begin and end by their brackets, minding strings."""

    def __init__(self, begins: int, *, alone: bool) -> None:
        self.offset = begins  # bytes given away or dropped so far
        self.done = False
        self._alone = alone
        self._text = b""
        self._at = 0
        self._start = 0
        self._open: list[int] = []
        self._inside = {0x5B: 0, 0x7B: 0}  # what is open within the list, by kind
        self._seen_list = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._text = self._text[self._start :] + piece
        self.offset += self._start
        self._at -= self._start
        self._start = 0
        if len(self._text) > RECORD_LIMIT + len(piece):
            raise CutShortError(f"a record is longer than {RECORD_LIMIT} bytes")
        yield from self._scan()

    def _scan(self) -> Iterator[bytes]:
        while not self.done and (mark := _MARK.match(self._text, self._at)):
            start, end = mark.span(1)
            if start < 0:
                # An open string goes on in the next piece and is scanned again from its quote.
                self._at = len(self._text) if mark.start(2) < 0 else mark.start(2)
                return
            sign = self._text[start]
            if sign in b"[{":
                yield from self._opens(sign, start)
            else:
                yield from self._closes(sign, start, end)
            self._at = end

    def _opens(self, sign: int, start: int) -> Iterator[bytes]:
        if not self._open:
            if self._seen_list:
                yield from self._between(start)
            self._demand_list(sign)
            self._start = start + 1
        elif len(self._open) == 1:
            yield from self._between(start)
            self._start = start
        self._inside[sign] += bool(self._open)
        self._open.append(sign)

    def _demand_list(self, sign: int) -> None:
        if sign != 0x5B and not self._seen_list:
            raise NotAListError
        self._seen_list = True

    def _closes(self, sign: int, start: int, end: int) -> Iterator[bytes]:
        opening = 0x5B if sign == 0x5D else 0x7B
        if len(self._open) == 1 and sign == 0x5D:
            yield from self._between(start)
            self._open.clear()
            self._start = end
            self.done = not self._alone
            return
        # A bracket that does not match belongs to a broken record, which must not swallow its neighbours.
        if not self._inside[opening]:
            return
        closed = 0
        while closed != opening:
            closed = self._open.pop()
            self._inside[closed] -= 1
        if len(self._open) == 1:
            yield self._text[self._start : end]
            self._start = end

    def _between(self, end: int) -> Iterator[bytes]:
        """What stands between two elements and is no comma: a bare string, number or garbage."""
        for word in self._text[self._start : end].strip(_BLANK).split(b","):
            if word.strip():
                yield word.strip()

    def finish(self) -> Iterator[bytes]:
        if self._open:
            raise CutShortError(f"cut inside the record that starts at byte {self.offset + self._start}")
        rest = self._text[self._start :].removeprefix(codecs.BOM_UTF8).strip()
        if not self._seen_list and rest not in (b"", b"null"):
            raise NotAListError
        if self._seen_list:
            yield from self._between(len(self._text))
