from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import GENERAL, Cli

SECRET = GENERAL[2]["text"]


def uid_of(cli: Cli, team: Path, text: str) -> str:
    found = cli("ask", text, "--memory", team, "--json", "--all").json["evidence"]
    return next(item["uid"] for item in found if item["text"] == text)


def held(team: Path, text: str) -> list[str]:
    """The files of a memory that hold these words as bytes."""
    return [path.name for path in team.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_message_is_forgotten_with_a_proof_and_no_file_holds_its_words(cli: Cli, team: Path) -> None:
    uid = uid_of(cli, team, SECRET)
    assert held(team, SECRET)
    done = cli("forget", "--message", uid, "--memory", team, "--yes", "--json")
    assert done.status == 0
    assert done.json["messages"] == [uid]
    assert done.json["clean"] is True
    assert held(team, SECRET) == []
    assert cli("verify", "--memory", team, "--json").json["same"] is True
    evidence = cli("ask", SECRET, "--memory", team, "--json", "--all").json["evidence"]
    assert SECRET not in {item["text"] for item in evidence}


def test_a_second_import_brings_nothing_back(cli: Cli, export: Path, team: Path) -> None:
    uid = uid_of(cli, team, SECRET)
    cli("forget", "--message", uid, "--memory", team, "--yes")
    checksum = cli("verify", "--memory", team, "--json").json["checksum"]
    again = cli("import", "slack-export", export, "--memory", team, "--json")
    assert (again.status, again.json["accepted"], again.json["forgotten"]) == (0, 0, 1)
    assert cli("verify", "--memory", team, "--json").json["checksum"] == checksum
    assert cli("forget", "--message", uid, "--memory", team, "--prove", "--json").json["clean"] is True


def test_a_person_is_forgotten_by_name(cli: Cli, team: Path) -> None:
    asked = cli("ask", SECRET, "--memory", team, "--json", "--all").json["evidence"]
    speaker = next(item for item in asked if item["text"] == SECRET)
    done = cli("forget", "--user", speaker["user_name"], "--memory", team, "--yes", "--json")
    assert done.status == 0
    assert done.json["users"] == [speaker["user"]]
    assert done.json["clean"] is True
    left = cli("ask", SECRET, "--memory", team, "--json", "--all").json["evidence"]
    assert speaker["user"] not in {item["user"] for item in left}
    assert cli("forget", "--user", speaker["user"], "--memory", team, "--prove", "--json").json["clean"] is True


def test_a_dry_run_changes_nothing(cli: Cli, team: Path) -> None:
    uid = uid_of(cli, team, SECRET)
    told = cli("forget", "--message", uid, "--memory", team, "--dry-run", "--json")
    assert (told.status, told.json["messages"], told.json["traces"]) == (0, [uid], None)
    assert uid_of(cli, team, SECRET) == uid


def test_a_proof_of_what_was_never_forgotten_fails(cli: Cli, team: Path) -> None:
    uid = uid_of(cli, team, SECRET)
    told = cli("forget", "--message", uid, "--memory", team, "--prove", "--json")
    assert told.status == 1
    assert told.json["traces"]["registers"] == 1


def test_without_a_terminal_only_yes_is_a_yes(cli: Cli, team: Path) -> None:
    said = cli("forget", "--message", uid_of(cli, team, SECRET), "--memory", team).error
    assert "--yes" in said
    assert held(team, SECRET)


@pytest.mark.parametrize(("option", "name"), [("--message", "1.000000"), ("--user", "nobody")])
def test_an_unknown_name_is_an_error(cli: Cli, team: Path, option: str, name: str) -> None:
    assert name in cli("forget", option, name, "--memory", team, "--yes").error


def test_nothing_named_is_an_error(cli: Cli, team: Path) -> None:
    assert "--message" in cli("forget", "--memory", team).error


def test_people_read_what_was_done(cli: Cli, team: Path) -> None:
    ended = cli("forget", "--message", uid_of(cli, team, SECRET), "--memory", team, "--yes")
    assert "1 messages" in ended.out
    assert "Traces left" in ended.out


def test_the_account_counts_what_stays_out(cli: Cli, team: Path, tmp_path: Path) -> None:
    uid = uid_of(cli, team, SECRET)
    cli("forget", "--message", uid, "--memory", team, "--yes")
    workspace, channel, message = uid.split("/")
    row = {"id": message, "channel": channel, "ws": workspace, "user": "U1", "ts": "2026-03-02T10:00:00Z", "text": "x"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    ended = cli("import", "jsonl", tmp_path / "rows.jsonl", "--memory", team, "--json")
    assert (ended.status, ended.json["forgotten"], ended.json["accepted"]) == (0, 1, 0)


def test_a_person_can_be_forgotten_again_by_the_ids_that_were_told(cli: Cli, team: Path) -> None:
    asked = cli("ask", SECRET, "--memory", team, "--json", "--all").json["evidence"]
    speaker = next(item for item in asked if item["text"] == SECRET)
    ended = cli("forget", "--user", speaker["user_name"], "--memory", team, "--yes")
    assert f"forgetting {speaker['user']} and" in ended.err
    assert "no user" in cli("forget", "--user", speaker["user_name"], "--memory", team, "--yes").error
    again = cli("forget", "--user", speaker["user"], "--memory", team, "--yes", "--json")
    assert (again.status, again.json["entries"], again.json["clean"]) == (0, 0, True)


def test_a_proof_says_what_to_do_about_traces(cli: Cli, team: Path) -> None:
    asked = cli("ask", SECRET, "--memory", team, "--json", "--all").json["evidence"]
    speaker = next(item for item in asked if item["text"] == SECRET)
    ended = cli("forget", "--user", speaker["user_name"], "--memory", team, "--prove")
    assert "Searched for" in ended.out
    assert f"--user {speaker['user']}" in ended.error


def test_a_message_that_never_came_is_seen_to_have_had_no_entry(cli: Cli, team: Path) -> None:
    workspace = uid_of(cli, team, SECRET).partition("/")[0]
    ended = cli("forget", "--message", f"{workspace}/C1/typo", "--memory", team, "--yes")
    assert ended.status == 0
    assert "entries of the log  0" in ended.out
