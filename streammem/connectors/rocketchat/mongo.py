"""What mongoexport and bsondump write: documents in extended JSON, a line each, in one list, or spread over lines."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from streammem.connectors.archive import Entry, chunks, lines, unpacked
from streammem.connectors.fields import Row
from streammem.connectors.json_rows import (
    RECORD_LIMIT,
    CutShortError,
    elements,
    first_sign,
    loads,
    numbered_lines,
    rows,
)
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.report import Report
from streammem.core.events import micros, moment
from streammem.errors import RejectedError

Place = tuple[str, Row]

_NUMBERS = ("$numberLong", "$numberInt", "$numberDouble", "$numberDecimal")


def id_of(value: Any) -> str:
    """An id: text, an ObjectId, or a number; empty when it is none."""
    if isinstance(value, dict):
        value = value.get("$oid")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def moment_of(value: Any) -> datetime | None:
    """A date in any of the forms that Mongo's tools have given it; None when it is none.

    >>> moment_of({"$date": {"$numberLong": "1704189720000"}}) == moment_of({"$date": "2024-01-02T10:02:00Z"})
    True
    """
    stated = value.get("$date") if isinstance(value, dict) else value
    if isinstance(stated, dict):
        stated = next((stated[key] for key in _NUMBERS if key in stated), None)
    if stated is None or isinstance(stated, bool | list | dict):
        return None
    try:
        return moment(int(stated) * 1000) if isinstance(value, dict) and _is_whole(stated) else time_of(stated)
    except (RejectedError, OverflowError):
        return None


def _is_whole(stated: Any) -> bool:
    text = str(stated).removeprefix("-")
    return text.isascii() and text.isdecimal() and len(text) < 18


def milliseconds(*values: Any) -> str:
    """The latest of some dates as a version, empty when there is none."""
    found = (micros(when) // 1000 for value in values if (when := moment_of(value)) is not None)
    latest = max(found, default=-1)
    return str(latest) if latest >= 0 else ""


def documents(entry: Entry, origin: str, report: Report) -> Iterator[Place]:
    """The documents of a file with their place. What cannot be read is rejected, the rest is kept.

    mongoexport calls lines `.json`, so what a file of that name holds is told by how it begins.
    """
    plain = unpacked(entry)
    if not plain.name.lower().endswith(".json"):
        yield from _objects(numbered_lines(entry, origin, report), report)
    elif first_sign(plain) == "[":
        yield from ((f"{origin}#{index}", row) for index, row in rows(plain, origin, report))
    elif _first_line(plain) == b"{":
        yield from _objects(_spread(plain, origin, report), report)
    else:
        yield from _objects(numbered_lines(entry, origin, report), report)


def _first_line(plain: Entry) -> bytes:
    try:
        found = (raw.removeprefix(codecs.BOM_UTF8).strip() for raw in lines(plain, RECORD_LIMIT))
        return next(filter(None, found), b"")
    except EOFError:
        return b""


def _spread(plain: Entry, origin: str, report: Report) -> Iterator[tuple[str, bytes]]:
    """Documents one after the other, read as the list that they would be in brackets."""
    number = 0
    whole = itertools.chain([b"["], chunks(plain), [b"]"])
    try:
        for number, raw in enumerate(elements(whole), 1):
            if raw != codecs.BOM_UTF8:
                yield f"{origin}#{number}", raw
    except CutShortError as error:
        report.cut_short(str(error), f"{origin}#{number + 1}", origin)


def _objects(found: Iterator[tuple[str, bytes]], report: Report) -> Iterator[Place]:
    for place, raw in found:
        try:
            document = loads(raw)
        except ValueError as error:
            report.reject("not-json", str(error), place)
            continue
        if isinstance(document, dict):
            yield place, document
        else:
            report.reject("not-an-object", f"a record is {type(document).__name__}", place)
