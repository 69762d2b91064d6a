"""Records of Kafka topics to canonical events: the same for a dump of a topic and for a worker that reads it.

Each record is read by itself, with nothing learned from others, so that any process gives the same events in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from streammem.connectors.by_record import as_deleted, dated, deleting, deletion_of, naming, with_time
from streammem.connectors.connector import NOTHING, Given, Payloads
from streammem.connectors.fields import Row, text_of
from streammem.connectors.jsonl_rows import canonical
from streammem.connectors.kafka_dump import is_batch, is_record, record_of, rows_in
from streammem.connectors.payload_files import PayloadFiles
from streammem.connectors.report import IgnoredError, Report
from streammem.connectors.slack.payloads import SlackPayloads
from streammem.connectors.teams.payloads import TeamsPayloads
from streammem.connectors.wrappers import Found, Payload, Tombstone, product_in, unwrapped
from streammem.errors import RejectedError
from streammem.records import Event, Received

EXPECTED = "records of a Kafka topic, one on a line: what `kcat -J` prints, or with key, headers, value, topic, offset"

PRODUCTS: Mapping[str, Callable[[Given], Payloads]] = MappingProxyType({"slack": SlackPayloads, "teams": TeamsPayloads})

_EVENTS = frozenset({"message", "reaction", "user", "channel", "membership", "group", "attribute", "tie", "erasure"})
_OPS = frozenset({"upsert", "delete"})
_TEAMS = frozenset({"messageType", "chatId", "channelIdentity", "changeType", "resourceData", "lifecycleEvent"})
_LISTS = {"users": "members", "channels": "channels"}
"""Streams of Airbyte's Slack source, of single entries of the lists of Slack's API."""
_SLACK = frozenset({"ts", "channel", "channel_id", "team_id", "messages", "members", "channels", "event", "event_ts"})


class RecordReader:
    """Reads records, whatever product's payloads are in them and whatever is wrapped around those."""

    def __init__(self, given: Given = NOTHING) -> None:
        self._given = given

    def read(self, record: Received, report: Report, origin: str) -> Iterator[Event]:
        """The events of a record. Never raises: each thing in it is counted in `report`."""
        found = unwrapped(record)
        if len(found) == 1:
            yield from self._events(found[0], record, report, origin)
        else:
            for index, part in enumerate(found):
                yield from self._events(part, record, report, f"{origin}/{index}", index)

    def _events(
        self, part: Found, record: Received, report: Report, origin: str, index: int | None = None
    ) -> Iterable[Event]:
        if isinstance(part, IgnoredError):
            report.ignore(part.reason)
            return ()
        if isinstance(part, RejectedError):
            report.reject(part.reason, part.detail, origin)
            return ()
        if isinstance(part, Tombstone):
            workspace = self._given.workspace or part.workspace
            return report.counted(lambda: [deletion_of(part, workspace, record, origin)], origin)
        if is_canonical(part.value):
            return report.counted(lambda: _canonical(part, record, origin), origin)
        return self._of_product(part, record, report, origin, index)

    def _of_product(
        self, part: Payload, record: Received, report: Report, origin: str, index: int | None
    ) -> Iterable[Event]:
        product = product_of(part, record.topic)
        if product not in PRODUCTS:
            report.reject("unknown-payload", "neither of Slack nor of Teams by its topic, wrappers or looks", origin)
            return ()
        workspace = self._given.workspace or part.workspace or _workspace_in_row(part.value, product)
        payloads = PRODUCTS[product](replace(self._given, workspace=workspace))
        if product == "slack" and part.stream in _LISTS and "id" in part.value:
            part = replace(part, value={_LISTS[part.stream]: [part.value]})
        payloads.learn(part.value)
        if part.deleted:
            return _apart(payloads, as_deleted(part, product), deleting(part, record), report, origin)
        if row := with_time(part, product, record):
            return _apart(payloads, row, naming(record, index), report, origin)
        return (dated(event, part, record) for event in payloads.read(part.value, report, origin))


def is_canonical(row: Row) -> bool:
    """Whether an object is a canonical event, in today's words or in the schema proposal's."""
    words = (row.get("event"), row.get("op"))
    return (isinstance(words[0], str) and words[0] in _EVENTS) or (isinstance(words[1], str) and words[1] in _OPS)


def _canonical(part: Payload, record: Received, origin: str) -> list[Event]:
    events = canonical(part.value, origin)
    return deleting(part, record)(events) if part.deleted else [dated(event, part, record) for event in events]


def product_of(part: Payload, topic: str) -> str:
    """Whose payload it is: by the topic, else by what is wrapped around it, else by its looks."""
    return product_in(topic) or part.product or _looks(part.value)


def _looks(row: Row) -> str:
    keys = row.keys()
    listed = row.get("value")
    inner = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    if not _TEAMS.isdisjoint(keys) or not _TEAMS.isdisjoint(inner) or any("odata" in key for key in keys):
        return "teams"
    return "slack" if not _SLACK.isdisjoint(keys) or "envelope_id" in keys else ""


def _workspace_in_row(row: Row, product: str) -> str:
    """The workspace that a row of a table names beside a message of Slack's; events have it in their own wrapper."""
    return text_of(row, "team_id") if product == "slack" and "event" not in row else ""


def _apart(
    payloads: Payloads,
    value: Any,
    change: Callable[[Iterable[Event]], list[Event]],
    report: Report,
    origin: str,
) -> list[Event]:
    """Read one message apart, and count it as what it is changed to."""
    apart = Report()
    events = change(payloads.read(value, apart, origin))
    if apart.refusals:
        report.reject(apart.refusals[0].reason, apart.refusals[0].detail, origin)
        return []
    if not events:
        report.ignore(next(iter(apart.ignored), "empty"))
        return []
    return report.counted(lambda: events, origin)


class DumpedRecords:
    """Payloads of a dump: each is a record, or the value of one."""

    def __init__(self, given: Given = NOTHING) -> None:
        self._reader = RecordReader(given)

    def learn(self, payload: Any) -> None:
        """Nothing: each record is read by itself."""

    def read(self, payload: Any, report: Report, origin: str) -> Iterator[Event]:
        """The events of a record."""
        for at, row in rows_in(payload):
            try:
                record = record_of(row)
            except RejectedError as error:
                report.reject(error.reason, error.detail, origin + at)
            else:
                yield from self._reader.read(record, report, origin + at)


files = PayloadFiles(EXPECTED, DumpedRecords, lambda payload: is_record(payload) or is_batch(payload))
read, recognises = files.read, files.recognises
