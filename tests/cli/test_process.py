"""What only a process of its own can show: signals, pipes and a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

SLOW = """
import sys, time
from streammem import open_memory
from streammem.cli import app, opening
import streammem.cli
from tests.embedding import HashingEmbedder

class Slow(HashingEmbedder):
    def encode(self, texts):
        if {seconds}:
            print("encoding", file=sys.stderr, flush=True)
            time.sleep({seconds})
        return super().encode(texts)

def open_(path, chosen, *, create=False, rebuild=False, progress=None):
    return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=lambda _: Slow())

opening.open_ = open_
sys.exit(streammem.cli.main())
"""


def start(*arguments: object, seconds: float = 0, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=seconds), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
        cwd=Path(__file__).parents[2],
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """1,000 messages."""
    source = tmp_path / "rows.jsonl"
    with source.open("w") as out:
        for n in range(1000):
            row = {
                "id": str(n),
                "channel": f"c{n % 5}",
                "user": f"u{n % 9}",
                "text": f"message {n} of DOC-{n % 50:03d}",
            }
            out.write(json.dumps({**row, "ts": 1772442000 + n}) + "\n")
    return source


def wait_for(process: subprocess.Popen[str], start: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(start):
            return line.strip()
    raise AssertionError(f"no line {start!r}")


def test_ctrl_c_says_that_it_can_be_resumed_and_waits_for_nothing(rows: Path, tmp_path: Path) -> None:
    process = start("import", "jsonl", rows, "--memory", tmp_path / "m", seconds=30)
    wait_for(process, "encoding")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("stopped: ")
    assert "Traceback" not in err


def test_a_killed_import_keeps_what_it_acknowledged_and_resumes(rows: Path, tmp_path: Path, cli: Cli) -> None:
    process = start("import", "jsonl", rows, "--memory", tmp_path / "m", STREAMMEM_BATCH="50", STREAMMEM_POOL="100")
    said = ""
    for _ in range(3):
        said = wait_for(process, "acknowledged ")
    process.kill()
    process.communicate()
    acknowledged = int(said.split()[1])
    again = cli("import", "jsonl", rows, "--memory", tmp_path / "m", "--json")
    assert again.status == 0
    assert again.json["duplicates"] >= acknowledged
    assert again.json["accepted"] + again.json["duplicates"] == 1000
    assert cli("verify", "--memory", tmp_path / "m").status == 0


def test_a_reader_that_goes_away_is_met_with_silence(team: Path) -> None:
    with start("ask", "the launch", "--memory", team, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_logs_are_json_when_nobody_watches(team: Path) -> None:
    code = (
        "import structlog; from streammem.cli import opening; opening.settings(); "
        "structlog.get_logger().warning('slow', ms=3); structlog.get_logger().info('quiet')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["event"] == "slow"
    assert done.stdout == ""
