from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streammem.cli import forget
from streammem.flows.forgetting import Forgotten, Traces
from tests.cli.conftest import CHANNELS, GENERAL, USERS, Cli, slack_files, write_zip

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


def test_no_file_holds_the_name_of_a_forgotten_person_not_even_as_that_of_a_conversation(
    cli: Cli, tmp_path: Path
) -> None:
    eve = {"id": "U9", "name": "evestone", "real_name": "Eve Stone", "profile": {}}
    files = slack_files(users=[*USERS, eve], channels=[{**CHANNELS[0], "members": ["U1", "U2", "U3", "U9"]}])
    files["dms.json"] = [{"id": "D1", "created": 1767225600, "members": ["U3", "U9"]}]
    files["mpims.json"] = [{"id": "G7", "name": "mpdm-ada--evestone--mira-1", "members": ["U1", "U3", "U9"]}]
    files["D1/2026-03-02.json"] = [{"type": "message", "user": "U3", "ts": "1772450000.000100", "text": "a secret"}]
    files["mpdm-ada--evestone--mira-1/2026-03-02.json"] = [
        {"type": "message", "user": "U1", "ts": "1772450001.000100", "text": "a plan"},
        {"type": "message", "user": "U9", "ts": "1772450002.000100", "text": "a reply"},
    ]
    team = tmp_path / "team"
    assert cli("import", "slack-export", write_zip(tmp_path / "dms.zip", files), "--memory", team).status == 0
    shown = cli("ask", "a secret", "--memory", team, "--all").out
    assert "Ada Wills  Ada Wills, Eve Stone  2026" in shown
    assert held(team, "Eve Stone")
    assert held(team, "evestone")
    assert cli("forget", "--user", "Eve Stone", "--memory", team, "--yes", "--json").json["clean"] is True
    assert held(team, "Eve Stone") == held(team, "evestone") == []
    named = {e["channel"]: e["channel_name"] for e in evidence(cli, team, "a secret") + evidence(cli, team, "a plan")}
    assert (named["D1"], named["G7"]) == ("Ada Wills", "Ada Wills, Mira Okafor")
    assert cli("verify", "--memory", team, "--json").json["same"] is True


def evidence(cli: Cli, team: Path, question: str) -> list[dict[str, Any]]:
    return list(cli("ask", question, "--memory", team, "--json", "--all").json["evidence"])


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
    assert "1 message\n" in ended.out
    assert "Traces left" in ended.out


def test_vectors_that_were_not_searched_are_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    none = dict.fromkeys(("log", "registers", "sequences", "answers", "directory", "summaries", "cached"), 0)
    traces = Traces(**none, vectors=None, unsearched="somebody holds them")
    forget._put(Forgotten("w", ("w/c/1",), ()), traces, prove=True)
    assert "  vectors    not searched: somebody holds them\n" in capsys.readouterr().out


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


def test_the_id_of_a_message_names_its_workspace_where_a_memory_has_several(cli: Cli, tmp_path: Path) -> None:
    row = {"channel": "C1", "user": "U1", "ts": "2026-03-02T10:00:00Z", "text": "x", "id": "7"}
    lines = [json.dumps({**row, "ws": workspace}) for workspace in ("one", "two")]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    cli("import", "jsonl", tmp_path / "rows.jsonl", "--memory", tmp_path / "team")
    named = ("--memory", tmp_path / "team", "--dry-run", "--json")
    told = cli("forget", "--message", "two/C1/7", *named)
    assert (told.json["workspace"], told.json["messages"]) == ("two", ["two/C1/7"])
    for unclear in (("--message", "7"), ("--message", "two/C1/7", "--message", "one/C1/7")):
        assert "several workspaces, name one of them: one, two" in cli("forget", *unclear, *named).error
