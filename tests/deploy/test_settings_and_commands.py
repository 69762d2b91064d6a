"""What the files say of the program is true of it."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path

import msgspec
import pytest
import typer
from pydantic import BaseModel

from streammem import settings
from streammem.cli import app
from tests.deploy import files

COMMAND = typer.main.get_command(app.app)
RUN = [service["command"] for service in files.own_services().values() if "command" in service] + [
    container["args"] for pod in files.pods().values() for container in pod["containers"]
]
TYPED = [shlex.split(command) for command in files.typed_commands()]
STREAM = "worker" in COMMAND.commands
"""Whether the commands of the stream form are there."""


def names(model: type) -> set[str]:
    if issubclass(model, BaseModel):
        return set(model.model_fields)
    if dataclasses.is_dataclass(model):
        return {field.name for field in dataclasses.fields(model)}
    return {field.name for field in msgspec.structs.fields(model)}


def variables() -> set[str]:
    """Every variable that can be set."""
    found = set()
    for name, field in settings.Settings.model_fields.items():
        group = field.annotation
        plain = not isinstance(group, type) or group in {str, int, float, bool}
        found |= {f"STREAMMEM_{name}"} if plain else {f"STREAMMEM_{name}__{part}" for part in names(group)}
    return {name.upper() for name in found}


def test_every_variable_that_the_files_name_is_a_setting() -> None:
    named = {
        (path.relative_to(files.ROOT).as_posix(), name)
        for path, text in files.texts()
        for name in re.findall(r"\bSTREAMMEM_[A-Z_]*[A-Z]\b", text)
    }
    assert named
    assert [(path, name) for path, name in sorted(named) if name not in variables()] == []


@pytest.mark.parametrize("path", ["compose.env", "kubernetes/settings.env"])
def test_the_settings_in_the_files_are_taken(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STREAMMEM_")]:
        monkeypatch.delenv(name)
    values = files.environment(files.DEPLOY / path)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    read = settings.load()
    assert read.kafka.bootstrap == values["STREAMMEM_KAFKA__BOOTSTRAP"]
    assert read.vectors.url == values["STREAMMEM_VECTORS__URL"]


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_every_command_that_is_run_can_be_parsed(words: list[str]) -> None:
    if not STREAM and words[0] not in COMMAND.commands:
        pytest.skip("not built yet")
    parse(words)


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_every_command_that_is_to_be_typed_can_be_parsed(words: list[str], tmp_path: Path) -> None:
    if not STREAM and (words[0] not in COMMAND.commands or "kafka" in words):
        pytest.skip("not built yet")
    (tmp_path / "export.zip").touch()
    parse([word.replace("/export.zip", str(tmp_path / "export.zip")) for word in words])


@pytest.mark.parametrize("words", [["wrok"], ["models", "fecth"], ["verify", "--nothing"]], ids=" ".join)
def test_another_command_would_be_refused(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"wrok|fecth|--nothing"):
        parse(words)


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without doing it."""
    command, rest = COMMAND, words
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(" ".join(words), list(rest))
