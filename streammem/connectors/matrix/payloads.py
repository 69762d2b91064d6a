"""Payloads of Matrix, and files of them: an export, a page of a room's past, an answer of sync, a single event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streammem.connectors.connector import Given
from streammem.connectors.fields import Row, as_list, as_row, row_of, text_of
from streammem.connectors.matrix.known import Known
from streammem.connectors.matrix.message import Reading
from streammem.connectors.payload_files import PayloadFiles
from streammem.connectors.report import Report
from streammem.records import Event

EXPECTED = "Matrix events: an export of Element (JSON), pages of /messages, or a list or lines of events"

LISTS = ("messages", "chunk", "events")
"""Where Element, pages of a room's past and transactions of an application service keep events."""


class MatrixPayloads:
    """Reads payloads. It knows the originals of all edits when all payloads were shown to it twice."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._known = Known(given.workspace)

    def learn(self, payload: Any) -> None:
        for _, event, room in self._events(payload):
            if isinstance(event, dict) and room:
                self._known.learn(event, room)

    def read(self, payload: Any, report: Report, origin: str) -> Iterator[Event]:
        name = text_of(as_row(payload), "room_name")
        for place, event, room in self._events(payload):
            where = f"{origin}/{place}" if place else origin
            yield from report.counted(Reading(self._known, event, room, name, where).events, where)

    def _events(self, payload: Any) -> Iterator[tuple[str, Any, str]]:
        """The events in a payload with their place and room."""
        row = as_row(payload)
        if not _is_page(row):
            yield "", payload, text_of(row, "room_id") or self._given.channel
            return
        around = text_of(row, "room_id") or self._given.channel
        listed = [event for key in (*LISTS, "state") for event in as_list(row.get(key))]
        found = [(event, text_of(as_row(event), "room_id") or around) for event in listed]
        for index, (event, room) in enumerate((*found, *_synced(row))):
            yield str(index), event, room


def _is_page(row: Row) -> bool:
    return any(isinstance(row.get(key), list) for key in LISTS) or isinstance(row.get("rooms"), dict)


def _synced(row: Row) -> Iterator[tuple[Any, str]]:
    """The events in an answer of sync, which stand under their room."""
    joined = row_of(row_of(row, "rooms"), "join")
    for room in joined:
        for part in ("state", "timeline"):
            yield from ((event, room) for event in as_list(row_of(row_of(joined, room), part).get("events")))


def looks(payload: Any) -> bool:
    """Whether a payload is an event of Matrix or a page that begins with one."""
    row = as_row(payload)
    if _is_page(row):
        first = next((event for key in LISTS for event in as_list(row.get(key))), None)
        return looks(first) if first is not None else "room_name" in row
    return all(text_of(row, key) for key in ("type", "event_id", "sender")) and "content" in row


# An edit may stand before or behind its original.
_FILES = PayloadFiles(expected=EXPECTED, make=MatrixPayloads, looks=looks, lists=LISTS, lessons=2)
read = _FILES.read
recognises = _FILES.recognises
