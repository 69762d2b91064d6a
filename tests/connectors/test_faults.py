"""Every fault of tests/data/faults gives its right result through the connector that an import would use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streammem.connectors import ALIASES, CONNECTORS, Given, Report
from streammem.connectors.connector import NOTHING
from streammem.core.events import TEXT_LIMIT
from streammem.records import Event, MessageEvent
from tests.connectors.faults import FAULTS, check, expected, hold, named

NUMBERS = sorted(path.name[:2] for path in FAULTS.glob("*.json"))


def test_all_faults_are_here() -> None:
    results = {path.stem for path in (FAULTS / "expected").glob("*.json")}
    assert results == {*NUMBERS, "18", "37"}
    assert len(results) == 25


@pytest.mark.parametrize("number", NUMBERS)
def test_a_fault_gives_its_right_result(number: str, tmp_path: Path) -> None:
    name = named(number)["format"]
    check(number, tmp_path, CONNECTORS[ALIASES.get(name, name)].read)


def test_a_zip_that_was_packed_by_hand_gives_its_right_result() -> None:
    report = Report()
    events = list(CONNECTORS["slack-export"].read(FAULTS / "18_zip_shapes.zip", report))
    hold(events, report, expected("18"))


# ------------------------------------------------------------------------------------------------- 37, too big to keep


@pytest.fixture(scope="session")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("big")
    subprocess.run([sys.executable, FAULTS / "37_big_inputs.py", folder], check=True)
    return folder


def messages(format_: str, path: Path, report: Report, given: Given = NOTHING) -> Iterator[MessageEvent]:
    events: Iterator[Event] = CONNECTORS[format_].read(path, report, given)
    return (event for event in events if isinstance(event, MessageEvent))


def test_a_message_of_more_than_a_mebibyte_is_cut_at_a_character_and_tells_its_size(big: Path) -> None:
    (message,) = messages("slack-history", big / "big_message.json", Report(), Given(channel="C1"))
    assert message.text == "\N{GRINNING FACE}" * TEXT_LIMIT
    assert (message.id, message.text_truncated, message.text_bytes) == ("1704190000.000100", True, 1_200_000)


def test_a_line_of_more_than_64_kib_is_one_message(big: Path) -> None:
    (message,) = messages("mattermost-bulk", big / "long_line.jsonl", Report())
    assert message.text_bytes == 70_000


def test_a_zip_bomb_is_refused_with_its_reason(big: Path) -> None:
    report = Report()
    assert list(messages("slack-export", big / "bomb.zip", report)) == []
    assert report.rejected == {"too-large": 1}


def test_twenty_thousand_files_are_read_one_at_a_time(big: Path) -> None:
    report = Report()
    assert sum(1 for _ in messages("slack-export", big / "many_files.zip", report)) == 20_000
    assert report.entries_done == report.entries_total == 20_002
