from __future__ import annotations

import subprocess
import sys

import pytest

import streammem
from streammem.cli import app

COMMANDS = [
    "demo",
    "import",
    "ask",
    "stats",
    "verify",
    "rebuild",
    "summaries",
    "models",
    "eval",
    "topics",
    "worker",
    "status",
    "dead-letters",
]
HEAVY = [
    "numpy",
    "qdrant_edge",
    "fastembed",
    "openai",
    "onnxruntime",
    "pydantic",
    "structlog",
    "sortedcontainers",
    "tokenizers",
    "faust",
    "aiokafka",
    "redis",
    "qdrant_client",
]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(arguments) == 0
    said = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n  {name} " not in said] == []
    assert "streammem import slack-export export.zip --memory team" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: streammem {command}")
    assert all(line.strip() != "TEXT" for line in said.splitlines())


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"streammem {streammem.__version__}\n"


def test_help_loads_no_client_library() -> None:
    code = (
        "import sys; from streammem.cli import app; app.run(['--help']); "
        f"print('loaded:', [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded: []\n")


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streammem.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("streammem ")
