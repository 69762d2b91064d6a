from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sources import CHANNELS, USERS, Drawn, Files, content, drawn, zipped


@pytest.fixture
def slack(tmp_path: Path) -> Callable[..., Drawn]:
    """Read an export made of these files; users and one channel, #ops, are there unless said otherwise."""

    def read(files: Files, *, bare: bool = False, **options: Any) -> Drawn:
        whole = files if bare else {"users.json": USERS, "channels.json": CHANNELS, **files}
        return drawn("slack-export", zipped(tmp_path / "export.zip", whole), **options)

    return read


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Drawn]:
    """Read JSON lines: rows, or raw bytes as they are."""

    def read(*rows: Any, **options: Any) -> Drawn:
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b"".join(content(row) + b"\n" for row in rows))
        return drawn("jsonl", path, **options)

    return read
