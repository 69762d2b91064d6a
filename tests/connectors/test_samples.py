"""Every sample: its format is recognised, every record is accounted for, and every event is valid by its schema."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from streammem import schemas
from streammem.connectors import ALIASES, CONNECTORS, Given, Report, recognise
from streammem.connectors.connector import NOTHING
from streammem.core.events import encode
from streammem.records import Event
from tests.connectors.faults import FAULTS, named, written

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
FORMATS = {
    "discord": "discord-dce",
    "generic/messages.csv": "csv",
    "generic/messages.jsonl": "jsonl",
    "matrix": "matrix-element",
    "rocketchat": "rocketchat-mongo",
    "slack_events": "slack-events",
    "teams_graph/change_notification_rich.json": "teams-graph-notification",
    "teams_graph/change_notification_without_resource.json": "teams-graph-notification",
    "teams_graph/channel_delta_page.json": "teams-graph",
    "teams_graph/channel_list_replies.json": "teams-graph",
    "teams_graph/chat_messages.json": "teams-graph",
    "teams_tenant_export": "teams-tenant-export",
    "zulip": "zulip-export",
}
NUMBERS = sorted(path.name[:2] for path in FAULTS.glob("*.json"))


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((schemas.FOLDER / f"{name}.v1.json").read_text()))


def read(format_: str, path: Path, given: Given = NOTHING) -> tuple[list[Event], Report]:
    """Read a source and hold it to its account and to the schemas."""
    report = Report()
    events = list(CONNECTORS[ALIASES.get(format_, format_)].read(path, report, given))
    usable = report.accepted + report.duplicates + report.superseded
    assert report.read == usable + report.ignored.total() + report.rejected.total()
    for event in events:
        stated = json.loads(encode(event))
        validator(stated["event"]).validate(stated)
    return events, report


def test_there_is_a_format_for_every_sample() -> None:
    files = [path.relative_to(SAMPLES) for path in SAMPLES.rglob("*") if path.is_file()]
    assert [str(file) for file in files if not any(file.is_relative_to(name) for name in FORMATS)] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_sample_is_recognised_and_whole_and_valid(name: str) -> None:
    assert recognise(SAMPLES / name) == FORMATS[name]
    _, report = read(FORMATS[name], SAMPLES / name)
    assert report.read > 0
    assert report.rejected == {}


@pytest.mark.parametrize("name", FORMATS)
def test_a_sample_gives_the_same_events_again(name: str) -> None:
    assert read(FORMATS[name], SAMPLES / name)[0] == read(FORMATS[name], SAMPLES / name)[0]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_event_of_a_fault_is_valid(number: str, tmp_path: Path) -> None:
    fault = named(number)
    events, report = read(fault["format"], written(fault, tmp_path), Given(channel=fault.get("channel", "")))
    assert events or report.ignored


def test_every_other_name_of_a_format_is_that_of_a_format() -> None:
    assert set(ALIASES.values()) <= CONNECTORS.keys()
    assert not ALIASES.keys() & CONNECTORS.keys()
