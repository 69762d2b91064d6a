"""Faults seen in real sources of Slack's payloads, with the right result beside each (tests/data/faults)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streammem.connectors import Given, Report
from streammem.connectors.slack import export, payloads
from streammem.core.registers import number
from streammem.records import AttributeEvent, ChannelEvent, MessageEvent, ReactionEvent, TieEvent
from tests.connectors.faults import FAULTS, check, expected, hold, named

READERS = {"slack-export": export.read, "slack-events": payloads.events.read, "slack-history": payloads.history.read}
NUMBERS = sorted(path.name[:2] for path in FAULTS.glob("*.json") if named(path.name[:2]).get("format", "") in READERS)


def reader_of(fault: str):
    return READERS[named(fault)["format"]]


@pytest.mark.parametrize("fault", NUMBERS)
def test_a_known_fault_gives_the_expected_result(fault: str, tmp_path: Path) -> None:
    check(fault, tmp_path, reader_of(fault))


def test_the_export_is_found_in_a_zip_made_by_hand() -> None:
    report = Report()
    events = list(export.read(next(FAULTS.glob("18_*")), report))
    hold(events, report, expected("18"))
    assert report.skipped == {"not-a-day-file": 3, "system-file": 2, "unsafe-path": 1}
    (refusal,) = report.refusals
    assert refusal.reason == "truncated-file"
    assert refusal.origin.endswith("一般-日本/2024-01-04.json#0")


def test_reactions_keep_their_count_when_only_some_givers_are_listed(tmp_path: Path) -> None:
    events, _ = check("04", tmp_path, export.read)
    reactions = [event for event in events if isinstance(event, ReactionEvent)]
    assert [(r.user, r.count, r.name) for r in reactions] == [
        ("U0GONE2", 1, "wave"),
        ("U0ADA", 1, "wave"),
        ("", 7, "wave"),
    ]
    assert {r.version for r in reactions} == {"1704190000.000200"}


def test_a_reply_whose_root_is_absent_is_a_gap(tmp_path: Path) -> None:
    _, report = check("05", tmp_path, export.read)
    assert report.gaps == {"missing-root": 1}


def test_the_second_delete_of_a_message_is_superseded(tmp_path: Path) -> None:
    _, report = check("09", tmp_path, payloads.events.read)
    assert (report.accepted, report.superseded, report.duplicates) == (2, 2, 0)


def test_a_redelivery_and_a_mention_of_an_app_are_duplicates(tmp_path: Path) -> None:
    _, report = check("10", tmp_path, payloads.events.read)
    assert (report.accepted, report.duplicates) == (2, 3)


def test_who_was_in_a_huddle_is_told(tmp_path: Path) -> None:
    events, _ = check("17", tmp_path, export.read)
    calls = [event for event in events if isinstance(event, MessageEvent) and event.kind == "call"]
    assert [call.participants for call in calls] == [("U0ADA", "U0BRAM")]


def test_a_rename_leaves_the_old_name_as_an_alias_of_the_newest_channel_fact(tmp_path: Path) -> None:
    events, _ = check("17", tmp_path, export.read)
    channels = [event for event in events if isinstance(event, ChannelEvent)]
    newest = max(channels, key=lambda channel: number(channel.version))
    assert (newest.name, newest.aliases, newest.type) == ("ops", ("operations",), "public")


def test_all_events_of_a_channel_stand_under_its_newest_id(tmp_path: Path) -> None:
    events, _ = check("19", tmp_path, payloads.events.read)
    assert {event.channel.id for event in events if isinstance(event, MessageEvent)} == {"C0009"}
    (tie,) = (event for event in events if isinstance(event, TieEvent))
    (rename,) = (event for event in events if isinstance(event, AttributeEvent))
    assert (tie.id, tie.same_as) == ("C0009", "G0001")
    assert (rename.id, rename.value, rename.version) == ("C0009", "ops-new", "1704190001.000000")


def test_pages_are_of_the_channel_that_was_given(tmp_path: Path) -> None:
    folder = tmp_path / "C0777"
    folder.mkdir()
    (folder / "page-2.json").write_text('{"ok": true, "messages": [{"user": "U1", "text": "hi", "ts": "1.5"}]}')
    given, by_name, unknown = (
        list(payloads.history.read(path, Report(), Given(channel=channel)))
        for path, channel in ((tmp_path, "C1"), (tmp_path, ""), (folder, ""))
    )
    assert [event.channel.id for event in (*given, *by_name) if isinstance(event, MessageEvent)] == ["C1", "C0777"]
    assert [event.channel.id for event in unknown if isinstance(event, MessageEvent)] == ["C0777"]
