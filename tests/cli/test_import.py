from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import GENERAL, LEADS, Cli, slack_files, write_zip

MESSAGES = len(GENERAL) + len(LEADS)


def test_an_export_is_imported_and_accounted_for(cli: Cli, export: Path, tmp_path: Path) -> None:
    ended = cli("import", "slack-export", export, "--memory", tmp_path / "team", "--json")
    assert ended.status == 0
    account = ended.json
    assert account["messages"] == MESSAGES
    assert account["read"] >= MESSAGES
    assert account["accepted"] >= MESSAGES
    assert account["duplicates"] == 0
    assert account["rejected"] == account["ignored"] == account["gaps"] == {}
    assert account["seconds"] > 0
    assert set(account) >= {"read", "accepted", "duplicates", "rejected", "ignored", "gaps", "notes", "messages_per_s"}


def test_what_is_acknowledged_is_said_on_stderr(cli: Cli, export: Path, tmp_path: Path) -> None:
    ended = cli("import", "slack-export", export, "--memory", tmp_path / "team", "--json")
    assert f"acknowledged {ended.json['accepted']}\n" in ended.err


def test_a_second_run_adds_nothing(cli: Cli, export: Path, team: Path) -> None:
    checksum = cli("verify", "--memory", team, "--json").json["checksum"]
    again = cli("import", "slack-export", export, "--memory", team, "--json")
    assert again.status == 0
    assert again.json["accepted"] == 0
    assert again.json["duplicates"] > MESSAGES
    assert cli("verify", "--memory", team, "--json").json["checksum"] == checksum


def test_the_format_can_be_recognised(cli: Cli, export: Path, tmp_path: Path) -> None:
    ended = cli("import", "auto", export, "--memory", tmp_path / "team", "--json")
    assert ended.json["format"] == "slack-export"


def test_the_formats_are_listed(cli: Cli) -> None:
    ended = cli("import", "--list-formats")
    assert ended.status == 0
    assert [name for name in ("auto", "slack-export", "jsonl") if name not in ended.out] == []


def test_plain_rows_are_imported_into_the_workspace_named(cli: Cli, tmp_path: Path) -> None:
    rows = [{"id": "1", "channel": "c", "user": "ada", "ts": "2026-03-01T10:00:00Z", "text": "the fuse is in box 7"}]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = cli("import", "jsonl", source, "--memory", tmp_path / "m", "--workspace", "acme", "--json")
    assert ended.status == 0
    assert cli("stats", "--memory", tmp_path / "m", "--json").json["workspaces"] == ["acme"]


def test_people_read_a_report_with_what_to_do_next(cli: Cli, export: Path, tmp_path: Path) -> None:
    ended = cli("import", "slack-export", export, "--memory", tmp_path / "team")
    assert "accepted" in ended.out
    assert 'streammem ask "..." --memory' in ended.out


def test_what_cannot_be_used_is_counted_and_shown_with_its_place_and_the_rest_is_kept(cli: Cli, tmp_path: Path) -> None:
    bad = {"type": "message", "user": "U1", "ts": "1772442001.000000", "text": "psst", "is_ephemeral": True}
    source = write_zip(tmp_path / "acme.zip", slack_files(general=[*GENERAL, bad]))
    ended = cli("import", "slack-export", source, "--memory", tmp_path / "m", "--json")
    assert ended.status == 0
    refused = sum(ended.json["rejected"].values()) + sum(ended.json["ignored"].values())
    assert refused == 1
    assert ended.json["messages"] >= MESSAGES


def test_a_truncated_day_file_keeps_what_stands_before_the_damage(cli: Cli, tmp_path: Path) -> None:
    whole = json.dumps(GENERAL)
    source = write_zip(tmp_path / "acme.zip", slack_files(general=whole[: len(whole) - 40]))
    ended = cli("import", "slack-export", source, "--memory", tmp_path / "m", "--json")
    assert ended.status == 0
    assert ended.json["messages"] == MESSAGES - 1
    assert ended.json["rejected"] == {"truncated-file": 1}
    (example,) = ended.json["examples"]
    assert example["origin"] == "acme.zip!general/2026-03-02.json#3"


def test_a_zip_without_users_json_says_so_and_is_imported(cli: Cli, tmp_path: Path) -> None:
    source = write_zip(tmp_path / "acme.zip", slack_files(users=None))
    ended = cli("import", "slack-export", source, "--memory", tmp_path / "m")
    assert ended.status == 0
    assert "no users.json" in ended.out
    found = cli("ask", "the launch", "--memory", tmp_path / "m", "--json").json["evidence"]
    assert {item["user_name"] for item in found} <= {"U1", "U2", "U3"}


def test_all_refusals_can_be_written_to_a_file(cli: Cli, tmp_path: Path) -> None:
    rows = [{"id": str(i), "channel": "c", "user": "ada", "ts": "2026-03-01T10:00:00Z"} for i in range(20)]
    source = tmp_path / "rows.jsonl"
    good = {**rows[0], "text": "the fuse is in box 7"}
    source.write_text("".join(json.dumps(row) + "\n" for row in [good, *rows]))
    ended = cli("import", "jsonl", source, "--memory", tmp_path / "m", "--rejects", tmp_path / "no.jsonl", "--json")
    written = [json.loads(line) for line in (tmp_path / "no.jsonl").read_text().splitlines()]
    assert len(written) == sum(ended.json["rejected"].values()) == 20
    assert len(ended.json["examples"]) == 5
    assert written[0]["reason"]
    assert written[0]["origin"] == "rows.jsonl#2"


def test_nothing_imported_is_a_failure(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"id": "1"}\n')
    ended = cli("import", "jsonl", source, "--memory", tmp_path / "m")
    assert "nothing was imported" in ended.error
    assert "1 records read" in ended.error
    assert not (tmp_path / "m").exists()


def test_an_export_without_messages_is_a_failure_though_it_names_people(cli: Cli, tmp_path: Path) -> None:
    source = write_zip(tmp_path / "acme.zip", slack_files(general=None, leads=None))
    ended = cli("import", "slack-export", source, "--memory", tmp_path / "m")
    assert "no messages" in ended.error


@pytest.mark.parametrize("flag", ["--json", None])
def test_only_the_result_is_on_stdout(cli: Cli, export: Path, tmp_path: Path, flag: str | None) -> None:
    ended = cli("import", "slack-export", export, "--memory", tmp_path / "m", *([flag] if flag else []))
    assert "acknowledged" not in ended.out
