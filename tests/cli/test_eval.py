from __future__ import annotations

import json
from pathlib import Path

import pytest

from streammem import settings
from streammem.cli import plots
from streammem.core import runs
from streammem.core.numbers import Retrieval
from streammem.core.runs import FULL, Run
from tests.cli.conftest import Cli

PNG = b"\x89PNG\r\n\x1a\n"


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


def test_a_memory_of_another_chat_is_left_as_it_is(cli: Cli, dataset: Path, team: Path) -> None:
    before = cli("stats", "--memory", team, "--json").json
    assert "another --memory" in cli("eval", dataset, "--memory", team).error
    assert cli("stats", "--memory", team, "--json").json == before


def test_raw_answers_are_written_for_whoever_wants_to_check(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    cli("eval", dataset, "--out", tmp_path / "raw.jsonl")
    written = [json.loads(line) for line in (tmp_path / "raw.jsonl").read_text().splitlines()]
    assert [(row["id"], row["variant"]) for row in written] == [("q1", "full"), ("q2", "full")]
    assert {"id", "text", "channel_name", "found_by"} <= written[0]["answer"]["evidence"][0].keys()
    assert written[0]["asked"]["text"] == written[0]["answer"]["question"] == "where is the fuse?"
    assert "a0" in [item["id"] for item in written[0]["answer"]["evidence"]]


def test_a_folder_without_questions_is_one_line(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    (dataset / "questions.jsonl").unlink()
    assert "no questions.jsonl" in cli("eval", dataset, "--memory", tmp_path / "m").error
    assert not (tmp_path / "m").exists()


def test_a_folder_that_is_not_there_is_one_line(cli: Cli, tmp_path: Path) -> None:
    assert "gone" in cli("eval", tmp_path / "gone").error


# ------------------------------------------------------------------------------------------- asked again and again


@pytest.fixture
def unstated(dataset: Path) -> Path:
    """The data set with a question that nobody ever answered."""
    with (dataset / "questions.jsonl").open("a") as file:
        file.write(json.dumps({"id": "q3", "ws": "a", "question": "who painted it?", "category": "none"}) + "\n")
    return dataset


def test_an_ablation_prints_stages_views_and_signals(cli: Cli, dataset: Path) -> None:
    ended = cli("eval", dataset, "--ablate")
    assert ended.status == 0
    told = ended.out.splitlines()
    for title in ("Stages", "Views", "Signals, each off by itself", "Recall@20 macro by stages and category"):
        assert any(line.strip() == title for line in told)
    for name in ("S1", "+ S2", "+ S3", "+ S4 (full)", "channel + artifact", "without leaf2tree"):
        assert any(line.startswith(f"{name} ") for line in told)


def test_an_ablation_as_json_has_every_variant(cli: Cli, dataset: Path) -> None:
    ablation = cli("eval", dataset, "--ablate", "--json").json["ablation"]
    expected = [variant.run.name for variant in runs.variants(Run(FULL, Retrieval(), 20, 3000))]
    assert [row["name"] for row in ablation["variants"]] == expected
    (first, *_) = ablation["variants"]
    assert first["changed"] == {"stages": 1}
    assert set(first["figures"]["by_category"]) == {"place", "who"}
    assert set(first["to_full"]) == {"mean", "low", "high"}


def test_raw_answers_name_their_variant_and_how_each_message_was_found(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    cli("eval", dataset, "--ablate", "--budget-sweep", "2,20", "--plot", tmp_path / "p.png", "--out", tmp_path / "raw")
    written = [json.loads(line) for line in (tmp_path / "raw").read_text().splitlines()]
    names = list(dict.fromkeys(row["variant"] for row in written))
    expected = [variant.run.name for variant in runs.variants(Run(FULL, Retrieval(), 20, 3000))]
    assert names == ["full", *expected, "2 messages"]
    (swept, _) = [row for row in written if row["variant"] == "2 messages"]
    assert (swept["asked"]["limit"], swept["asked"]["budget"], len(swept["answer"]["evidence"])) == (2, 300, 2)
    assert swept["answer"].keys() == {"evidence", "abstained", "confidence"}
    assert swept["answer"]["evidence"][0].keys() == {"id", "found_by"}
    assert swept["answer"]["evidence"][0]["found_by"][0]["stage"] == "S1"


def test_the_memory_is_made_once_for_all_variants(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    report = cli("eval", dataset, "--ablate", "--memory", tmp_path / "kept", "--json").json
    assert report["import"]["accepted"] == 10
    stood = cli("stats", "--memory", tmp_path / "kept", "--json").json
    cli("eval", dataset, "--ablate", "--memory", tmp_path / "kept")
    assert cli("stats", "--memory", tmp_path / "kept", "--json").json == stood


def test_a_sweep_prints_recall_and_precision_for_every_budget(cli: Cli, dataset: Path) -> None:
    ended = cli("eval", dataset, "--baselines", "--budget-sweep", "4,1,2", "--limit", "2", "--budget", "100")
    assert ended.status == 0
    lines = [line.split() for line in ended.out.splitlines()]
    start = lines.index(["Recall", "macro", "by", "budget"])
    assert lines[start + 1][:6] == ["messages", "tokens", "streammem", "bm25", "dense", "rrf"]
    assert [line[:2] for line in lines[start + 2 : start + 5]] == [["1", "50"], ["2", "100"], ["4", "200"]]
    assert ["Precision", "by", "budget"] in lines


def test_a_sweep_as_json_has_a_report_for_every_budget(cli: Cli, dataset: Path) -> None:
    swept = cli("eval", dataset, "--budget-sweep", "1,2", "--budget", "0", "--json").json["budgets"]
    assert [(point["limit"], point["budget"], point["report"]["k"]) for point in swept] == [(1, None, 1), (2, None, 2)]


@pytest.mark.parametrize("baselines", [[], ["--baselines"]])
def test_a_sweep_is_drawn(cli: Cli, dataset: Path, tmp_path: Path, baselines: list[str]) -> None:
    picture = tmp_path / "curves.png"
    assert cli("eval", dataset, "--budget-sweep", "1,2", "--plot", picture, *baselines).status == 0
    assert picture.read_bytes().startswith(PNG)


def test_a_sweep_is_drawn_beside_the_raw_answers(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    assert cli("eval", dataset, "--budget-sweep", "1,2", "--out", tmp_path / "raw.jsonl").status == 0
    assert (tmp_path / "raw.png").read_bytes().startswith(PNG)


def test_a_picture_without_matplotlib_names_the_extra_before_any_work(
    cli: Cli, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    ended = cli("eval", dataset, "--budget-sweep", "1", "--plot", tmp_path / "p.png", "--memory", tmp_path / "m")
    assert "streammem[plots]" in ended.error
    assert not (tmp_path / "m").exists()


def test_a_picture_that_nobody_asked_for_is_left_out_without_matplotlib(
    cli: Cli, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    ended = cli("eval", dataset, "--budget-sweep", "1", "--out", tmp_path / "raw.jsonl")
    assert ended.status == 0
    assert "no picture of the sweep: matplotlib is not installed" in ended.err
    assert not (tmp_path / "raw.png").exists()


@pytest.mark.parametrize("said", ["", "ten", "0,10", "10,201", "10,,20"])
def test_budgets_that_cannot_be_are_one_line(cli: Cli, dataset: Path, said: str) -> None:
    ended = cli("eval", dataset, "--budget-sweep", said)
    assert ended.status != 0
    assert "must be numbers of messages from 1 to 200" in ended.err


def test_a_plot_of_nothing_is_one_line(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    ended = cli("eval", dataset, "--plot", tmp_path / "p.png")
    assert ended.status != 0
    assert "--budget-sweep" in ended.err


def test_a_picture_is_named_as_what_it_is(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    ended = cli("eval", dataset, "--budget-sweep", "1", "--plot", tmp_path / "p.txt")
    assert ended.status != 0
    assert "FILE.png" in ended.err
    assert not (tmp_path / "p.txt").exists()


def test_a_picture_never_takes_the_place_of_the_answers(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    ended = cli("eval", dataset, "--budget-sweep", "1", "--out", tmp_path / "x.png")
    assert ended.status != 0
    assert "name it with --plot" in ended.err


def test_a_picture_that_cannot_be_written_is_one_line(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    ended = cli("eval", dataset, "--budget-sweep", "1", "--plot", tmp_path / "gone" / "p.png")
    assert "cannot write --plot" in ended.error


def test_a_calibration_names_the_setting_and_its_shares(
    cli: Cli, unstated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cli("eval", unstated, "--calibrate", "--false-alarm", "0.1", "--json").json["calibration"]
    assert found["wanted"] == 0.1
    assert found["measured"]["false_alarms"]["n"] == 2
    assert found["measured"]["abstained"]["never stated"]["n"] == 1
    monkeypatch.setenv(found["setting"], "0.625")
    assert settings.load().retrieval.floor == 0.625


def test_a_calibration_is_shown_to_people(cli: Cli, unstated: Path) -> None:
    ended = cli("eval", unstated, "--calibrate")
    assert ended.status == 0
    assert "Floor of confidence for 5.0 % of false alarms" in ended.out
    assert "never stated" in ended.out
    assert "STREAMMEM_RETRIEVAL__FLOOR=" in ended.out or "All confidences are alike" in ended.out


def test_a_calibration_without_evidence_is_one_line(cli: Cli, dataset: Path) -> None:
    rows("questions.jsonl", dataset, {"id": "q", "ws": "a", "question": "who painted it?"})
    assert "no question has evidence" in cli("eval", dataset, "--calibrate").error
