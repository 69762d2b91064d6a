"""What others import, and what may import what."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import streammem

ROOT = Path(__file__).parents[1]
CLIENTS = (
    *("qdrant_edge", "fastembed", "onnxruntime", "numpy", "pydantic", "typer", "rich", "sqlite3", "tokenizers"),
    *("aiokafka", "faust", "redis", "qdrant_client"),
)


def test_the_public_names_are_these() -> None:
    assert streammem.__all__ == [
        "Answer",
        "ChannelRef",
        "Evidence",
        "Memory",
        "MessageEvent",
        "Sender",
        "StreamMemory",
        "connect",
        "open_memory",
    ]
    assert [name for name in streammem.__all__ if getattr(streammem, name, None) is None] == []


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = streammem.nonsense


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_client_library() -> None:
    assert loaded_by("import streammem").isdisjoint(CLIENTS)


def test_importing_the_records_loads_no_client_library() -> None:
    assert loaded_by("from streammem import MessageEvent, Answer").isdisjoint(CLIENTS)


def test_importing_the_memory_loads_no_model_and_no_server() -> None:
    absent = {"fastembed", "onnxruntime", "typer", "rich", "aiokafka", "faust", "redis", "qdrant_client"}
    assert loaded_by("from streammem import open_memory, connect").isdisjoint(absent)


async def test_a_url_given_for_a_directory_is_told_where_it_belongs() -> None:
    with pytest.raises(streammem.memory.SettingsError, match=r"streammem\.connect"):
        async with streammem.open_memory("kafka://127.0.0.1:9092"):
            pass


def test_every_module_can_be_imported_alone() -> None:
    """In turn, each with no other loaded: a circle of imports would show."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("core", "flows")
        for path in (ROOT / "streammem" / room).rglob("*.py")
        if path.name != "__init__.py"
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {sorted(modules)!r}:\n"
        "    for known in [m for m in sys.modules if m.split('.')[0] == 'streammem']: del sys.modules[known]\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_imports_point_one_way() -> None:
    if find_spec("importlinter") is None:
        if os.environ.get("CI"):
            pytest.fail("import-linter is not installed: CI needs the dev extra")
        pytest.skip("import-linter is not installed: pip install 'streammem[dev]'")
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept" in done.stdout.lower()
