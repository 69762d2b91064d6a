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


TIE = {"event": "tie", "workspace": "acme", "entity": "user", "id": "U1", "same_as": "aad-1", "version": "1"}


def test_a_piece_with_people_only_is_imported_and_says_what_it_was(cli: Cli, team: Path, tmp_path: Path) -> None:
    (tmp_path / "ties.jsonl").write_text(json.dumps(TIE) + "\n")
    ended = cli("import", "jsonl", tmp_path / "ties.jsonl", "--memory", team)
    assert ended.status == 0
    assert "new events" in ended.out
    assert "Now ask it" not in ended.out
    (tmp_path / "broken.jsonl").write_text(json.dumps({**TIE, "id": ""}) + "\n" + json.dumps(TIE) + "\n")
    assert "1 invalid-event" in cli("import", "jsonl", tmp_path / "broken.jsonl", "--memory", team).error


def test_channels_that_nobody_is_known_to_read_are_told_of(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {
            "event": "message",
            "workspace": "w",
            "channel": {"id": c},
            "id": "1",
            "ts": "2026-03-01T10:00:00Z",
            "text": "x",
        }
        for c in ("open", "closed", "members")
    ]
    rows[0]["channel"] = {"id": "open", "type": "public"}
    rows.append({"event": "membership", "workspace": "w", "channel": "members", "user": "U1"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = cli("import", "jsonl", tmp_path / "rows.jsonl", "--memory", tmp_path / "m", "--json").json["notes"]
    assert [note.partition(";")[0] for note in notes] == [
        "channels not known here as public or to have members: 1 (closed)"
    ]


def test_a_folder_of_graph_pages_is_not_taken_for_a_slack_export(cli: Cli, tmp_path: Path) -> None:
    message = {
        "id": "1704189600000",
        "messageType": "message",
        "createdDateTime": "2024-01-02T10:00:00Z",
        "from": {"user": {"id": "aad-ada", "displayName": "Ada"}},
        "body": {"contentType": "text", "content": "hello"},
        "channelIdentity": {"teamId": "t", "channelId": "19:abc@thread.tacv2"},
    }
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "channels.json").write_text(
        json.dumps({"value": [{"id": "19:abc@thread.tacv2", "displayName": "General"}]})
    )
    (pages / "messages.json").write_text(json.dumps({"value": [message]}))
    assert cli("import", "auto", pages, "--memory", tmp_path / "m", "--json").json["format"] == "teams-graph"
