from __future__ import annotations

import asyncio
import json
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streammem import open_memory
from streammem.cli import app, opening
from streammem.connectors import Report
from streammem.connectors.slack import export as slack_export
from tests.embedding import HashingEmbedder


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a failure. Lines about progress may stand before it; nothing else may."""
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, self.err
        assert lines[-1] == errors[0], self.err
        assert "Traceback" not in self.err
        assert self.status != 0
        return errors[0].removeprefix("error: ")


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Types a command, with an embedder that needs no model."""

    def open_small(
        path: Path, chosen: Any, *, create: bool = False, rebuild: bool = False, progress: Any = None
    ) -> Any:
        return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=lambda _: HashingEmbedder())

    monkeypatch.setattr(opening, "open_", open_small)

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        status = app.run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return run


USERS = [
    {"id": "U1", "name": "mira", "real_name": "Mira Okafor", "profile": {"title": "Head of product"}},
    {"id": "U2", "name": "jonas", "real_name": "Jonas Lind", "profile": {}},
    {"id": "U3", "name": "ada", "real_name": "Ada Wills", "profile": {}},
]
CHANNELS = [{"id": "C1", "name": "general", "created": 1767225600, "members": ["U1", "U2", "U3"]}]
GROUPS = [{"id": "G1", "name": "leads", "created": 1767225600, "members": ["U1"]}]
GENERAL = [
    {"type": "message", "user": "U1", "ts": "1772442000.000100", "text": "DOC-042 is drafted, please review it <@U2>"},
    {"type": "message", "user": "U2", "ts": "1772445600.000200", "text": "DOC-042 approved, the launch is on 20 March"},
    {"type": "message", "user": "U3", "ts": "1772532000.000300", "text": "the coffee machine is broken again"},
    {
        "type": "message",
        "user": "U2",
        "ts": "1774000000.000400",
        "text": "the launch moves to 27 March, payments broke",
    },
]
LEADS = [{"type": "message", "user": "U1", "ts": "1772449200.000500", "text": "the budget of the launch is 40k"}]


def slack_files(**replaced: Any) -> dict[str, Any]:
    """The files of a small Slack export; None takes one away. Keys: users, channels, groups, general, leads."""
    parts = {"users": USERS, "channels": CHANNELS, "groups": GROUPS, "general": GENERAL, "leads": LEADS, **replaced}
    days = {"general": "general/2026-03-02.json", "leads": "leads/2026-03-02.json"}
    return {days.get(name, f"{name}.json"): content for name, content in parts.items() if content is not None}


def write_zip(path: Path, files: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, (str, bytes)) else json.dumps(content))
    return path


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_zip(tmp_path / "acme.zip", slack_files())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of the small export, made once."""
    folder = tmp_path_factory.mktemp("built")
    source = write_zip(folder / "acme.zip", slack_files())

    async def build() -> None:
        async with open_memory(folder / "team", embedder=lambda _: HashingEmbedder()) as memory:
            await memory.append(slack_export.read(source, Report()))

    asyncio.run(build())
    return folder / "team"


@pytest.fixture
def team(tmp_path: Path, built: Path) -> Path:
    """A memory of the small export, to ask and to break."""
    subprocess.run(["cp", "-R", built, tmp_path / "team"], check=True)  # unlike shutil, it keeps sparse files sparse
    return tmp_path / "team"
