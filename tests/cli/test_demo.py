"""The demo as a newcomer runs it: with the real model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

KINDS = ["workflow", "person", "artifact", "cross-channel"]


def demo(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streammem.cli", "demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.model
def test_the_demo_answers_four_questions_with_what_was_said() -> None:
    shown: Any = json.loads(demo("--json").stdout)
    assert [question["kind"] for question in shown["questions"]] == KINDS
    assert shown["import"]["messages"] >= 300
    assert shown["import"]["rejected"] == {}
    for question in shown["questions"]:
        assert question["evidence"]
        assert not question["abstained"]
        assert all(item["found_by"] for item in question["evidence"])
    assert len({item["channel"] for item in shown["questions"][3]["evidence"]}) > 1


def test_the_demo_shows_people_what_was_said_how_it_was_found_and_what_to_do_next(cli: Cli) -> None:
    ended = cli("demo")
    assert ended.status == 0
    for kind in KINDS:
        assert kind in ended.out
    assert "noor asks: I'm down to press deploy" in ended.out
    assert " S1 " in ended.out
    assert "streammem import slack-export YOUR-EXPORT.zip --memory team" in ended.out.splitlines()[-2]


def test_a_kept_demo_can_be_asked_again(cli: Cli, tmp_path: Path) -> None:
    ended = cli("demo", "--memory", tmp_path / "kept")
    assert f"--memory {tmp_path / 'kept'}" in ended.out
    assert cli("ask", "who is on call?", "--memory", tmp_path / "kept", "--as", "noor").status == 0
    assert cli("verify", "--memory", tmp_path / "kept").status == 0
    assert cli("demo", "--memory", tmp_path / "kept", "--json").json["import"]["accepted"] == 0
