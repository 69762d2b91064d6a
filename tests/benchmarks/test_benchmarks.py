"""The benchmark command works: what it measures is for people to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(
    *options: str, folder: Path | None = None, module: str = "tests.benchmarks"
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "STREAMMEM_BENCH"}
    if folder is not None:
        environment["STREAMMEM_BENCH"] = environment["TMPDIR"] = str(folder)
    command = [sys.executable, "-m", module, *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["tests.benchmarks", "tests.benchmarks.ask", "tests.benchmarks.stream"])
def test_without_data_it_says_so_and_all_is_well(module: str, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "absent"):
        done = run(folder=folder, module=module)
        assert (done.returncode, done.stdout.count("\n")) == (0, 1)
        assert "STREAMMEM_BENCH" in done.stdout


def small(folder: Path) -> None:
    messages = [
        {"id": f"m{i}", "channel": f"c{i % 2}", "user": f"u{i % 3}", "ts": f"2026-03-02T10:{i:02d}:00Z", "text": text}
        for i, text in enumerate(f"DOC-{i % 5} is {('drafted', 'approved')[i % 2]} by now" for i in range(50))
    ]
    (folder / "messages.jsonl").write_text("".join(json.dumps(m) + "\n" for m in messages))
    (folder / "questions.jsonl").write_text(json.dumps({"id": "q1", "question": "who approved DOC-3?"}) + "\n")


def test_it_measures_every_part(tmp_path: Path) -> None:
    small(tmp_path)
    done = run("--hashing", "--json", "--limit", "40", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["structure"]["messages"] == figures["import"]["texts"] == 40
    assert figures["import"]["tokens_per_second"] > 0
    assert {"log.sqlite", "structure.sqlite", "vectors"} <= figures["import"]["disk_mb"].keys()
    assert {"embed", "search", "S1", "S4", "total"} <= figures["ask"]["steps"].keys()
    assert figures["ask"]["questions"] == 1


def test_it_measures_questions_beside_bare_searches(tmp_path: Path) -> None:
    small(tmp_path)
    options = ("--hashing", "--json", "--memory", str(tmp_path / "m"))
    for _ in ("made", "there"):
        done = run(*options, folder=tmp_path, module="tests.benchmarks.ask")
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert (figures["messages"], figures["questions"]) == (50, 1)
        assert figures["ratio"].keys() == figures["ask"].keys() == figures["bare"].keys() == {"wall", "cpu"}
        assert {"embed", "search", "S1", "S4", "total"} <= figures["steps"].keys()


def test_it_measures_the_wording_of_nodes(tmp_path: Path) -> None:
    tiny = ("--nodes", "40", "--messages", "70", "--questions", "3", "--in-flight", "8", "--delay", "0.001")
    done = run("--json", *tiny, folder=tmp_path, module="tests.benchmarks.words")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    alone, together = figures["rate"]["alone"], figures["rate"]["together"]
    assert (alone["failed"], together["failed"]) == (0, 0)
    assert alone["nodes"] == together["nodes"] >= alone["calls"] > together["calls"] > 0
    assert figures["rate"]["client"]["calls"] == figures["rate"]["aiohttp"]["calls"] == alone["calls"]
    assert (figures["again"]["imported again"], figures["again"]["rebuilt"]) == (0, 0)
    late = figures["late"]
    for event in ("late, open node", "late, in the middle", "deleted, in the middle"):
        levels = {name: calls for name, calls in late[event]["before"].items() if name.startswith("channel")}
        assert levels == {"channel 1": 1, "channel 2": 1}  # one call a level
    assert late["late, in the middle"]["renewal"]
    assert len(figures["append"]["question"]["ratio"]) == 2
