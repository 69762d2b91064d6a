from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def rows(name: str, folder: Path, *made: dict[str, object]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in made))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    said = ["the fuse is in box 7", "lunch?", "the lift is stuck again", "who has the key of the roof", "ben has it"]
    rows(
        "messages.jsonl",
        folder,
        *(
            {"id": f"{ws}{n}", "ws": ws, "channel": "c", "user": "ada", "ts": 1772442000 + n, "text": text}
            for ws in ("a", "b")
            for n, text in enumerate(said)
        ),
    )
    rows(
        "questions.jsonl",
        folder,
        {"id": "q1", "ws": "a", "question": "where is the fuse?", "category": "place", "evidence": ["a0"]},
        {
            "id": "q2",
            "ws": "b",
            "question": "who has the key of the roof?",
            "category": "who",
            "evidence": ["b3", "b4"],
        },
    )
    return folder


def test_recall_is_measured_by_category(cli: Cli, dataset: Path) -> None:
    ended = cli("eval", dataset, "--json")
    assert ended.status == 0
    report = ended.json
    assert report["k"] == 20
    assert report["questions"] == report["with_evidence"] == 2
    (ours,) = report["systems"]
    assert ours["name"] == "streammem"
    assert ours["overall"]["recall_macro"] == 1.0
    assert set(ours["by_category"]) == {"place", "who"}
    assert report["import"]["messages"] == 10


def test_baselines_are_measured_in_the_same_run(cli: Cli, dataset: Path) -> None:
    ended = cli("eval", dataset, "--baselines", "--limit", "2")
    assert ended.status == 0
    for name in ("streammem", "bm25", "dense", "rrf", "Recall@2 macro", "95 % interval"):
        assert name in ended.out


def test_merged_makes_one_workspace_of_all(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    ended = cli("eval", dataset, "--merged", "--memory", tmp_path / "kept", "--json")
    assert ended.status == 0
    assert cli("stats", "--memory", tmp_path / "kept", "--json").json["workspaces"] == ["set"]


def test_a_kept_memory_is_used_again(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    cli("eval", dataset, "--memory", tmp_path / "kept")
    again = cli("eval", dataset, "--memory", tmp_path / "kept", "--json")
    assert again.json["import"]["accepted"] == 0
    assert again.json["import"]["duplicates"] == 10


def test_raw_answers_are_written_for_whoever_wants_to_check(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    cli("eval", dataset, "--out", tmp_path / "raw.jsonl")
    written = [json.loads(line) for line in (tmp_path / "raw.jsonl").read_text().splitlines()]
    assert [row["id"] for row in written] == ["q1", "q2"]
    assert written[0]["asked"]["text"] == written[0]["answer"]["question"] == "where is the fuse?"
    assert "a0" in [item["id"] for item in written[0]["answer"]["evidence"]]


def test_a_folder_without_questions_is_one_line(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    (dataset / "questions.jsonl").unlink()
    assert "no questions.jsonl" in cli("eval", dataset, "--memory", tmp_path / "m").error
    assert not (tmp_path / "m").exists()


def test_a_folder_that_is_not_there_is_one_line(cli: Cli, tmp_path: Path) -> None:
    assert "gone" in cli("eval", tmp_path / "gone").error
