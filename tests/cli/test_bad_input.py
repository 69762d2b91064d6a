"""Every bad input of a first try: one clear line, a status that is not zero, and nothing lost."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, write_zip


def test_an_empty_zip(cli: Cli, tmp_path: Path) -> None:
    source = write_zip(tmp_path / "empty.zip", {})
    said = cli("import", "slack-export", source, "--memory", tmp_path / "m").error
    assert "empty.zip" in said
    assert not (tmp_path / "m").exists()


def test_a_zip_that_is_no_export(cli: Cli, tmp_path: Path) -> None:
    source = write_zip(tmp_path / "photos.zip", {"cat.txt": "cat"})
    assert "channels.json" in cli("import", "slack-export", source, "--memory", tmp_path / "m").error


def test_a_file_that_is_no_zip(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "broken.zip"
    source.write_bytes(b"PK\x03\x04 and then nothing")
    assert "broken.zip" in cli("import", "slack-export", source, "--memory", tmp_path / "m").error


@pytest.mark.parametrize("format_", ["slack-export", "jsonl", "auto"])
def test_a_path_that_does_not_exist(cli: Cli, tmp_path: Path, format_: str) -> None:
    said = cli("import", format_, tmp_path / "gone.zip", "--memory", tmp_path / "m").error
    assert "gone.zip" in said
    assert not (tmp_path / "m").exists()


def test_a_format_that_does_not_exist(cli: Cli, export: Path, tmp_path: Path) -> None:
    said = cli("import", "whatsapp", export, "--memory", tmp_path / "m").error
    assert "'whatsapp'" in said
    assert "it can be" in said
    assert "slack-export" in said


def test_a_path_that_no_format_knows(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "no known format" in cli("import", "auto", tmp_path / "notes.txt", "--memory", tmp_path / "m").error


def test_a_memory_that_is_a_file(cli: Cli, export: Path, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("hello")
    assert "is a file" in cli("import", "slack-export", export, "--memory", tmp_path / "m").error
    assert (tmp_path / "m").read_text() == "hello"


def test_a_memory_among_other_files(cli: Cli, export: Path, tmp_path: Path) -> None:
    assert "other files" in cli("import", "slack-export", export, "--memory", tmp_path).error


def test_a_memory_under_a_file(cli: Cli, export: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (
        "cannot make the memory directory"
        in cli("import", "slack-export", export, "--memory", tmp_path / "file/m").error
    )


@pytest.mark.skipif(not Path("/proc/1").exists(), reason="needs a file system that nobody can write to")
def test_a_directory_that_nobody_can_write_to(cli: Cli, export: Path) -> None:
    assert "/proc" in cli("import", "slack-export", export, "--memory", "/proc/m").error


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_is_not_ours_to_write(cli: Cli, export: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir(mode=0o500)
    assert "cannot write" in cli("import", "slack-export", export, "--memory", tmp_path / "m").error


def test_a_memory_of_another_version(cli: Cli, export: Path, team: Path) -> None:
    card = json.loads((team / "memory.json").read_text())
    (team / "memory.json").write_text(json.dumps({**card, "format": 99}))
    for command in (["ask", "why?"], ["import", "slack-export", export], ["stats"], ["verify"], ["rebuild"]):
        assert "has format 99" in cli(*command, "--memory", team).error


def test_a_memory_indexed_with_another_model(cli: Cli, team: Path) -> None:
    card = json.loads((team / "memory.json").read_text())
    (team / "memory.json").write_text(json.dumps({**card, "model": "other"}))
    said = cli("ask", "the launch", "--memory", team).error
    assert "was indexed with other" in said
    assert "streammem rebuild" in said
    assert cli("rebuild", "--memory", team).status == 0
    assert cli("ask", "the launch", "--memory", team).status == 0


def test_a_memory_whose_card_is_damaged(cli: Cli, team: Path) -> None:
    (team / "memory.json").write_text("{")
    assert "memory.json" in cli("ask", "why?", "--memory", team).error


def test_a_memory_that_another_process_holds(
    cli: Cli, export: Path, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMEM_WAIT", "0.2")
    with (team / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for command in (["ask", "why?"], ["import", "slack-export", export], ["stats"], ["verify"], ["rebuild"]):
            assert "is in use by process" in cli(*command, "--memory", team).error
    assert cli("ask", "the launch", "--memory", team).status == 0


def test_a_message_without_text_or_time_is_refused_and_its_neighbours_are_kept(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"id": "1", "channel": "c", "user": "ada", "ts": "2026-03-01T10:00:00Z", "text": "the fuse is in box 7"},
        {"id": "2", "channel": "c", "user": "ada", "ts": "2026-03-01T10:01:00Z"},
        {"id": "3", "channel": "c", "user": "ada", "ts": "yesterday", "text": "hello"},
        {"id": "4", "channel": "c", "user": "bob", "ts": "2026-03-01T10:02:00Z", "text": "thanks"},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"id": "5", "chan')
    ended = cli("import", "jsonl", source, "--memory", tmp_path / "m", "--json")
    assert ended.status == 0
    assert ended.json["messages"] == 2
    assert sum(ended.json["rejected"].values()) == 3
    assert {example["origin"] for example in ended.json["examples"]} == {f"rows.jsonl#{n}" for n in (2, 3, 5)}


def test_a_place_for_refusals_that_cannot_be_written(cli: Cli, export: Path, tmp_path: Path) -> None:
    said = cli("import", "slack-export", export, "--memory", tmp_path / "m", "--rejects", tmp_path / "no/where").error
    assert "--rejects" in said
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("command", ["import", "convert"])
@pytest.mark.parametrize("where", ["rows/messages.jsonl", "rows/no.jsonl", "link.jsonl"])
def test_refusals_are_never_written_over_the_export_or_into_it(
    cli: Cli, tmp_path: Path, command: str, where: str
) -> None:
    row = {"id": "1", "channel": "c", "user": "ada", "ts": "2026-03-01T10:00:00Z", "text": "hello"}
    source = tmp_path / "rows"
    source.mkdir()
    (source / "messages.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "link.jsonl").hardlink_to(source / "messages.jsonl")
    before = (source / "messages.jsonl").read_bytes()
    path = source / "messages.jsonl" if where == "link.jsonl" else source
    memory = ("--memory", tmp_path / "m") if command == "import" else ()
    assert "--rejects" in cli(command, "jsonl", path, *memory, "--rejects", tmp_path / where).error
    assert [file.name for file in source.iterdir()] == ["messages.jsonl"]
    assert (source / "messages.jsonl").read_bytes() == before


def test_a_disk_without_room_for_refusals(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "1"}\n')
    said = cli("convert", "jsonl", tmp_path / "rows.jsonl", "--rejects", "/dev/full").error
    assert "--rejects /dev/full" in said
    assert "No space left" in said


def test_an_export_of_which_no_format_can_be_seen_is_refused_with_the_cause(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cut.zip").write_bytes(write_zip(tmp_path / "a.zip", {"a.json": []}).read_bytes()[:30])
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08")
    os.mkfifo(tmp_path / "pipe")
    for name, cause in (("cut.zip", "readable zip"), ("cut.tar.gz", "readable tar"), ("pipe", "neither a file")):
        said = cli("convert", "auto", tmp_path / name).error
        assert name in said
        assert cause in said
