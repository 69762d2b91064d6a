from __future__ import annotations

from pathlib import Path

import pytest

from streammem.backends import models
from streammem.cli import app, opening
from streammem.cli import models as command
from streammem.cli.progress import Progress
from streammem.settings import EmbeddingSettings
from tests.cli.conftest import Cli

NAME = "minilm-l6-int8"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("STREAMMEM_EMBEDDING__CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_models_are_listed_with_where_they_would_be(cli: Cli, cache: Path) -> None:
    for arguments in (["models"], ["models", "list"]):
        ended = cli(*arguments)
        assert ended.status == 0
        assert NAME in ended.out
        assert "in use" in ended.out


def test_the_list_is_there_for_programs(cli: Cli, cache: Path) -> None:
    (row,) = cli("models", "list", "--json").json
    assert row["name"] == NAME
    assert row["here"] is False
    assert row["in_use"] is True
    assert row["dimensions"] == 384
    assert row["path"] == str(cache / NAME)


def test_a_model_of_fastembed_is_listed_as_the_one_in_use(
    cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMEM_EMBEDDING__MODEL", "BAAI/bge-small-en")
    assert cli("models").status == 0
    assert [row["name"] for row in cli("models", "list", "--json").json if row["in_use"]] == ["BAAI/bge-small-en"]


def test_the_path_of_a_model_that_is_not_here_says_how_to_fetch_it(cli: Cli, cache: Path) -> None:
    assert f"streammem models fetch {NAME}" in cli("models", "path").error


@pytest.mark.parametrize("what", ["fetch", "path"])
def test_an_unknown_model_is_one_line_that_names_the_known_ones(cli: Cli, cache: Path, what: str) -> None:
    said = cli("models", what, "gpt").error
    assert "'gpt'" in said
    assert NAME in said


def test_a_model_is_fetched_with_progress_and_its_folder_printed(
    cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def fetch(name: str, where: Path, progress: models.Progress) -> Path:
        progress(name, 50_000_000, 100_000_000)
        told.append(name)
        return where / name

    monkeypatch.setattr(models, "fetch", fetch)
    ended = cli("models", "fetch")
    assert ended.out == f"{cache / NAME}\n"
    assert told == [NAME]


def test_a_model_that_cannot_be_fetched_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STREAMMEM_EMBEDDING__CACHE", str(tmp_path / "file" / "cache"))
    assert "STREAMMEM_EMBEDDING__CACHE" in cli("models", "fetch").error


def test_what_embeds_fetches_the_model_by_itself_and_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    monkeypatch.setattr(models, "fetch", lambda name, where, progress: told.append((name, where)))
    with Progress(opening.FETCHING) as progress:
        command.ensure(EmbeddingSettings(cache=cache), progress)
    assert told == [(NAME, cache)]
    assert "fetching the embedding model minilm-l6-int8 (104 MB, once)" in capsys.readouterr().err


def test_a_folder_of_ones_own_is_never_fetched_into(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "fetch", lambda *_: pytest.fail("fetched"))
    with Progress(opening.FETCHING) as progress:
        command.ensure(EmbeddingSettings(cache=cache, path=cache), progress)


def test_no_memory_is_said_before_any_model_is_fetched(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "fetch", lambda *_: pytest.fail("fetched"))
    assert app.run(["ask", "why?", "--memory", str(tmp_path / "nowhere")]) == 1
    assert "no memory at" in capsys.readouterr().err
