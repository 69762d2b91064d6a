from __future__ import annotations

import json
from pathlib import Path

from streammem.core.events import decode
from streammem.records import MessageEvent
from tests.cli.conftest import GENERAL, LEADS, Cli


def test_events_are_on_stdout_and_the_report_on_stderr(cli: Cli, export: Path) -> None:
    ended = cli("convert", "slack-export", export)
    assert ended.status == 0
    events = [decode(line) for line in ended.out.splitlines()]
    assert sum(isinstance(event, MessageEvent) for event in events) == len(GENERAL) + len(LEADS)
    assert "Converted" in ended.err


def test_the_report_can_be_json(cli: Cli, export: Path) -> None:
    ended = cli("convert", "auto", export, "--json")
    told = json.loads(ended.err[ended.err.index("{\n") :])
    assert told["format"] == "slack-export"
    assert told["records"]["accepted"] == told["read"]


def test_what_was_converted_can_be_imported_and_is_the_same_memory(
    cli: Cli, export: Path, team: Path, tmp_path: Path
) -> None:
    (tmp_path / "events.jsonl").write_text(cli("convert", "slack-export", export).out)
    assert cli("import", "jsonl", tmp_path / "events.jsonl", "--memory", tmp_path / "again").status == 0
    checksums = [cli("verify", "--memory", m, "--json").json["checksum"] for m in (team, tmp_path / "again")]
    assert checksums[0] == checksums[1]


def test_a_source_without_messages_is_a_failure(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "1"}\n')
    ended = cli("convert", "jsonl", tmp_path / "rows.jsonl")
    assert ended.status != 0
    assert ended.out == ""
    assert "1 records read" in ended.err


def test_all_records_are_accounted_for(cli: Cli, tmp_path: Path) -> None:
    row = {"id": "1", "channel": "c", "user": "ada", "ts": "2026-03-01T10:00:00Z", "text": "hello"}
    rows = [row, row, {**row, "id": "2", "text": " "}, {"id": "3"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    ended = cli("convert", "jsonl", tmp_path / "rows.jsonl", "--json")
    told = json.loads(ended.err[ended.err.index("{\n") :])
    assert told["records"] == {"accepted": 2, "duplicate": 1, "superseded": 0, "ignored": 0, "rejected": 1}
    assert told["read"] == 4
