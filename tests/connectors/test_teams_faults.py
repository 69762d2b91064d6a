"""Faults seen in real payloads of Teams, with the right result beside each (tests/data/faults)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streammem.connectors import Given, Report
from streammem.connectors.teams import payloads
from tests.connectors.faults import check, expected, hold, named, state_of, written


@pytest.mark.parametrize("number", ["21", "24"])
def test_a_known_fault_gives_the_expected_result(number: str, tmp_path: Path) -> None:
    check(number, tmp_path, payloads.graph.read)


def test_a_stale_page_that_deletes_once_more_is_a_duplicate(tmp_path: Path) -> None:
    report = Report()
    events = list(payloads.graph.read(written(named("23"), tmp_path), report, Given()))
    assert (report.duplicates, report.superseded) == (1, 2)
    hold(events, report, expected("23") | {"ignored": 1})


def test_a_notification_without_content_is_fetched_and_never_wipes_a_text(tmp_path: Path) -> None:
    events, report = check("26", tmp_path, payloads.notifications.read)
    assert report.gaps == {"pending-fetch": 1, "undated-deletion": 1, "missed-notifications": 1}
    assert [gap.origin for gap in report.gap_examples if gap.reason == "pending-fetch"] == [
        "19:abc@thread.tacv2/1704189600009?reply_to=1704189600000"
    ]
    assert {m.op for m in state_of(events).values()} == {"delete"}
    assert {m.workspace for m in state_of(events).values()} == {"t"}


@pytest.mark.parametrize("number", ["21", "23", "24", "26"])
def test_only_the_connector_of_a_fault_recognises_it(number: str, tmp_path: Path) -> None:
    path, kind = written(named(number), tmp_path), named(number)["format"]
    assert payloads.graph.recognises(path) is (kind == "teams-graph")
    assert payloads.notifications.recognises(path) is (kind == "teams-graph-notification")
