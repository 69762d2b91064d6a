from __future__ import annotations

import asyncio

import pytest

from streammem.cli import progress
from streammem.cli.progress import Progress, Stage, duration
from streammem.cli.running import run


def test_lines_tell_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with Progress({"index": "embedding"}) as told:
        told.expect("index", 1000)
        now = 110.0
        told("index", 100)
        told("unheard of", 5)
    assert capsys.readouterr().err == "embedding: 100 of 1,000, 10/s, about 2 min left\n"


def test_work_that_is_told_of_at_its_end_has_a_sane_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with Progress({"log": "placing", "index": "embedding"}) as told:
        now = 110.0
        told("log", 500)
        now = 130.0
        told("index", 100)
    assert capsys.readouterr().err == "placing: 500, 50/s\nembedding: 100, 5/s\n"


def test_lines_come_only_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress({"index": "embedding"}) as told:
        for _ in range(1000):
            told("index", 1)
    assert capsys.readouterr().err == ""


def test_what_is_acknowledged_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress({}) as told:
        for position in (500, 500, 1000):
            told.acknowledge(position)
    assert capsys.readouterr().err == "acknowledged 500\nacknowledged 1000\n"


def test_nothing_is_said_of_what_nobody_knows() -> None:
    stage = Stage("index", "embedding", 0.0)
    assert stage.left is None
    stage.total = 0
    assert stage.left is None


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")])
def test_lengths_of_time_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_work_that_never_waits_notices_that_it_is_cancelled() -> None:
    async def compute() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        Progress({})("index", 1)
        raise AssertionError("went on")

    with pytest.raises(asyncio.CancelledError):
        run(compute())


def test_bars_show_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress({"index": "embedding"}) as told:
        told.expect("index", 10)
        told("index", 5)
        told.acknowledge(5)
    assert "acknowledged 5\n" not in capsys.readouterr().err
