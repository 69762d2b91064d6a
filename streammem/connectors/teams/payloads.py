"""What Graph sends, one decoded JSON value at a time: pages of messages, lists of people and rooms, notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, as_list, count_of, row_of, text_of
from streammem.connectors.payload_files import PayloadFiles
from streammem.connectors.report import IgnoredError, Report
from streammem.connectors.teams import directory
from streammem.connectors.teams.known import Known
from streammem.connectors.teams.message import Setting, channel_in, events_of, id_of, learn_message
from streammem.connectors.teams.notification import learn_notification, read_notification
from streammem.connectors.teams.place import NOWHERE, Place, place_of
from streammem.connectors.teams.rows import is_graph, is_notification, kind_of, lowered
from streammem.errors import RejectedError
from streammem.records import Event

GRAPH = "Microsoft Graph pages of Teams: .json or .jsonl with chatMessage, channel, chat, user or member rows"
NOTIFICATIONS = "Microsoft Graph change notifications of Teams: .json or .jsonl with changeType and resource"


class Record(NamedTuple):
    """One record of a payload and where it stood: behind the payload's origin comes `at`."""

    at: str
    value: Any
    place: Place


class TeamsPayloads:
    """Reads pages and notifications alike; `source_format` is the name of the connector that was asked."""

    def __init__(self, given: Given, source_format: str = "teams-graph") -> None:
        self.known = Known()
        self._setting = Setting(self.known, given.workspace, given.channel, source_format)
        self._unended: set[str] = set()

    def learn(self, payload: Any) -> None:
        """Take note of what a payload tells about names and tenants. Never raises."""
        if isinstance(payload, dict) and text_of(payload, "@odata.nextLink"):
            self._unended.add(text_of(payload, "@odata.context"))
        for record in records_of(payload):
            if isinstance(record.value, dict):
                learn_row(record.value, self.known, record.place)

    def read(self, payload: Any, report: Report, origin: str) -> Iterator[Event]:
        """The events of a payload, every record in it counted. Never raises."""
        for record in records_of(payload):
            yield from read_row(record.value, self._setting, report, origin + record.at, record.place)
            note_missing_replies(record.value, report, origin + record.at)
        if isinstance(payload, dict) and not text_of(payload, "@odata.nextLink"):
            self._unended.discard(text_of(payload, "@odata.context"))

    def settle(self, report: Report) -> None:
        """When all has been learned and read: of which lists the last page is missing."""
        for listing in sorted(self._unended):
            report.gap("more-pages", listing.partition("#")[2] or listing)


def records_of(payload: Any) -> Iterator[Record]:
    """The records of a page or list, and of each message the replies that stand in it; else the payload itself."""
    if isinstance(payload, dict) and not {"id", "value"} & payload.keys() and {"Id", "Value"} & payload.keys():
        payload = lowered(payload)
    place = _place(payload) if isinstance(payload, dict) else NOWHERE
    inside = payload.get("value", payload) if isinstance(payload, dict) else payload
    if not isinstance(inside, list):
        yield from _with_replies(inside, "", place)
        return
    for index, value in enumerate(inside):
        yield from _with_replies(value, f"/{index}", place)


def _place(page: Row) -> Place:
    """Where a page came from. What it says was removed has nothing but an id, so its neighbours tell the channel."""
    place = place_of(page)
    listed = [row for row in as_list(page.get("value")) if isinstance(row, dict)]
    if place.channel or not any("@removed" in row for row in listed):
        return place
    channels = {channel for row in listed if (channel := channel_in(row))}
    return replace(place, channel=channels.pop(), thing="messages") if len(channels) == 1 else place


def _with_replies(value: Any, at: str, place: Place) -> Iterator[Record]:
    if isinstance(value, dict) and "Id" in value and "id" not in value:
        value = lowered(value)
    yield Record(at, value, place)
    if isinstance(value, dict) and (replies := as_list(value.get("replies"))):
        below = replace(place, channel=channel_in(value, place), root=id_of(value), message="")
        for index, reply in enumerate(replies):
            yield Record(f"{at}/{index}", reply, below)


def learn_row(row: Row, known: Known, place: Place) -> None:
    """Take note of what a row of any kind tells."""
    kind = kind_of(row, place)
    if kind == "notification":
        learn_notification(row, known)
    elif kind == "message":
        learn_message(row, known, place)
    else:
        directory.learn(kind, row, known, place)


def read_row(row: Any, setting: Setting, report: Report, origin: str, place: Place) -> Iterator[Event]:
    """The events of a row of any kind, counted."""
    if isinstance(row, dict) and kind_of(row, place) == "notification":
        yield from read_notification(row, setting, report, origin)
    else:
        yield from report.counted(partial(_events, row, setting, origin, place), origin)


def _events(row: Any, setting: Setting, origin: str, place: Place) -> Iterator[Event]:
    if not isinstance(row, dict):
        raise RejectedError("not-an-object", f"a record is {type(row).__name__}")
    kind = kind_of(row, place)
    if kind == "message":
        yield from events_of(row, setting, origin, place)
    elif kind in directory.KINDS:
        yield from directory.facts_of(kind, row, setting, place)
    elif error := row_of(row, "error"):
        raise RejectedError("error-page", text_of(error, "code", "message") or "an error without a code")
    else:
        raise IgnoredError("other-type")


def note_missing_replies(row: Any, report: Report, origin: str) -> None:
    """Replies that a message announces and its page does not hold."""
    if isinstance(row, dict) and "replies" in row:
        missing = count_of(row, "replies@odata.count") - len(as_list(row["replies"]))
        if missing > 0 or row.get("replies@odata.nextLink"):
            report.gap("missing-replies", origin, max(missing, 1))


@dataclass(frozen=True)
class _Pages(PayloadFiles):
    """Files of pages; when all are read, the report says which lists go on."""

    def read(self, path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
        payloads = TeamsPayloads(given)
        yield from PayloadFiles.read(replace(self, make=lambda _: payloads), path, report, given)
        payloads.settle(report)


graph = _Pages(GRAPH, TeamsPayloads, is_graph, ("value",))
notifications = PayloadFiles(
    NOTIFICATIONS, partial(TeamsPayloads, source_format="teams-graph-notification"), is_notification, ("value",)
)
