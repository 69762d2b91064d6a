from __future__ import annotations

import pytest

from streammem.cli import app, endings
from streammem.errors import QueryError, TransientError


def test_an_expected_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert endings.ending(QueryError("no user 'x'\nin this\x1b[2J memory")) == 1
    assert capsys.readouterr().err == "error: no user 'x' in this[2J memory\n"


def test_a_server_that_is_away_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert endings.ending(TransientError("the index is away")) == 1
    assert capsys.readouterr().err == "error: the index is away\n"


def test_an_unexpected_error_names_its_type_and_the_way_to_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert endings.ending(ZeroDivisionError("division by zero")) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ZeroDivisionError: division by zero (")
    assert "STREAMMEM_LOG_LEVEL=debug" in said
    assert said.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMMEM_LOG_LEVEL", "debug")
    endings.ending(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError: division by zero\nerror: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], "serve"),
        (["ask"], "QUESTION"),
        (["ask", "why?"], "--memory"),
        (["ask", "why?", "--memory", "m", "--limit", "0"], "--limit"),
        (["ask", "why?", "--memory", "m", "--colour"], "--colour"),
        (["import", "jsonl"], "PATH"),
    ],
)
def test_misuse_is_one_line_that_names_the_fault(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_wrong_setting_is_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMMEM_FOREST__K", "one")
    assert app.run(["stats", "--memory", "nowhere"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: STREAMMEM_FOREST__K is wrong")
    assert err.count("\n") == 1
