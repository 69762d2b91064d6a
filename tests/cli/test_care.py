from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from streammem.backends.sqlite import SqliteStructure
from streammem.records import Summary
from tests.cli.conftest import GENERAL, Cli, slack_files, write_zip


def test_stats_count_what_is_there(cli: Cli, team: Path) -> None:
    counted = cli("stats", "--memory", team, "--json").json
    assert counted["structure"]["messages"] == 5
    assert counted["forests"]["channel"] == 2
    assert counted["bytes"] > 0
    assert "messages" in cli("stats", "--memory", team).out


def test_a_memory_that_is_what_its_log_says_verifies(cli: Cli, team: Path) -> None:
    found = cli("verify", "--memory", team, "--json")
    assert found.status == 0
    assert found.json["same"] is True
    assert found.json["different"] == []
    assert set(found.json["parts"]) == {"registers", "sequences", "answers", "directory", "placements", "bridges"}
    assert found.json["parts"] == found.json["rebuilt"]
    assert found.json["entries"] > 5
    assert found.json["summaries"] > 3
    assert found.json["wordings"] == 0
    assert (found.json["stale"], found.json["stale_count"]) == ([], 0)
    said = cli("verify", "--memory", team).out
    assert found.json["checksum"] in said
    assert "No summary covers what is not said any more" in said


def test_the_checksum_does_not_depend_on_the_order_of_the_events(cli: Cli, team: Path, tmp_path: Path) -> None:
    source = write_zip(tmp_path / "turned.zip", slack_files(general=GENERAL[::-1]))
    cli("import", "slack-export", source, "--memory", tmp_path / "other", "--workspace", "acme")
    one, other = (cli("verify", "--memory", path, "--json").json["checksum"] for path in (team, tmp_path / "other"))
    assert one == other


def test_a_store_that_differs_from_the_log_fails_and_names_the_part_and_the_mend(cli: Cli, team: Path) -> None:
    with sqlite3.connect(team / "structure.sqlite") as db:
        db.execute("DELETE FROM entry WHERE ts = (SELECT min(ts) FROM entry)")
    db.close()
    found = cli("verify", "--memory", team, "--json")
    assert found.status == 1
    assert "sequences" in found.json["different"]
    assert "sequences" in found.error
    assert "streammem rebuild --memory" in found.error
    assert cli("rebuild", "--memory", team).status == 0
    assert cli("verify", "--memory", team).status == 0


def test_a_summary_of_what_is_not_said_any_more_fails_and_is_named_with_the_mend(cli: Cli, team: Path) -> None:
    store = SqliteStructure(team / "structure.sqlite")

    async def plant() -> int:
        found = [said async for _, said in store.generated() if isinstance(said, Summary)]
        await store.keep([msgspec.structs.replace(s, text="what nobody said\x1b[2J") for s in found])
        return len(found)

    planted = asyncio.run(plant())
    store.close()
    found = cli("verify", "--memory", team, "--json")
    assert found.status == 1
    assert (found.json["same"], found.json["stale_count"]) == (True, planted)
    assert len(found.json["stale"]) == min(planted, 20)
    assert "channel:C1, level 1, node 0 of workspace acme: its quotes are not what is said now" in found.json["stale"]
    assert f"summaries cover what is not said any more ({planted})" in found.error
    assert "streammem rebuild --memory" in found.error
    assert "paid for are kept" in found.error
    said = cli("verify", "--memory", team)
    assert "stale: channel:C1, level 1, node 0 of workspace acme: " in said.err
    assert "No summary covers" not in said.out
    assert cli("rebuild", "--memory", team).status == 0
    assert cli("verify", "--memory", team).status == 0


def test_a_rebuilt_memory_answers_as_before(cli: Cli, team: Path) -> None:
    def ask() -> list[str]:
        return [item["id"] for item in cli("ask", "the launch", "--memory", team, "--json").json["evidence"]]

    before = ask()
    done = cli("rebuild", "--memory", team, "--json")
    assert done.status == 0
    assert done.json["written"] > 0
    assert ask() == before


def test_another_k_is_refused_until_the_memory_is_rebuilt(
    cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMEM_FOREST__K", "4")
    assert "streammem rebuild --memory" in cli("ask", "the launch", "--memory", team).error
    assert cli("rebuild", "--memory", team).status == 0
    assert cli("ask", "the launch", "--memory", team).status == 0


def test_care_of_no_memory_is_one_line(cli: Cli, tmp_path: Path) -> None:
    for command in ("stats", "verify", "rebuild"):
        assert "no memory at" in cli(command, "--memory", tmp_path / "nowhere").error
        assert not (tmp_path / "nowhere").exists()
