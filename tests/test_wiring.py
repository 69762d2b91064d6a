"""What a memory directory says when something is wrong with it, and how `rebuild` mends it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streammem import open_memory
from streammem.core.numbers import Forest
from streammem.errors import MemoryFormatError, MemoryHeldError, SettingsError
from streammem.settings import Settings
from streammem.wiring import embedded
from tests.embedding import HashingEmbedder
from tests.stories import public, said

QUICK = Settings(wait=0)


def opened(path: Path, settings: Settings = QUICK, **how: Any) -> Any:
    return open_memory(path, settings, embedder=lambda _: HashingEmbedder(), **how)


@pytest.fixture
async def memory(tmp_path: Path) -> Path:
    """A closed memory of a few messages."""
    path = tmp_path / "m"
    async with opened(path) as one:
        await one.append([public(), *(said(str(i), f"step {i} of DOC-1") for i in range(6))])
    return path


async def checksum(path: Path, **how: Any) -> str:
    async with opened(path, **how) as one:
        if how:
            await one.rebuild()
        verified = await one.verify()
        assert verified.different == []
        return verified.checksum


@pytest.mark.parametrize("harm", ["structure", "no card", "broken card", "no vectors"])
async def test_whatever_but_the_log_is_harmed_is_named_and_rebuilt(memory: Path, harm: str) -> None:
    before = await checksum(memory)
    if harm == "structure":
        (memory / "structure.sqlite").write_bytes(b"not a database at all" * 500)
    elif harm == "no card":
        (memory / "memory.json").unlink()
    elif harm == "broken card":
        (memory / "memory.json").write_text("{")
    else:
        shutil.rmtree(memory / "vectors")
    with pytest.raises(MemoryFormatError, match=r"run `streammem rebuild --memory"):
        async with opened(memory) as one:
            await one.query("step")
    assert await checksum(memory, rebuild=True) == before
    async with opened(memory) as one:
        assert len((await one.query("step 3 of DOC-1")).evidence) == 6


async def test_a_damaged_log_is_named_and_nothing_is_thrown_away(memory: Path) -> None:
    (memory / "log.sqlite").write_bytes(b"not a database at all" * 500)
    for rebuild in (False, True):
        with pytest.raises(MemoryFormatError, match="put back a copy of it"):
            async with opened(memory, rebuild=rebuild):
                pass
    assert (memory / "structure.sqlite").exists()


async def test_a_memory_is_bound_to_its_k_until_it_is_rebuilt(memory: Path) -> None:
    other = Settings(forest=Forest(k=3), wait=0)
    with pytest.raises(MemoryFormatError, match="has k=16, the settings say 3"):
        async with opened(memory, other):
            pass
    async with opened(memory, other, rebuild=True) as one:
        await one.rebuild()
    async with opened(memory, other) as one:
        assert (await one.verify()).different == []


async def test_a_second_opening_waits_and_then_names_the_holder(memory: Path) -> None:
    async with opened(memory):
        with pytest.raises(MemoryHeldError, match="in use by process"):
            async with opened(memory):
                pass


async def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 2**20))
    with pytest.raises(SettingsError, match="only 5 MB are free"):
        async with opened(tmp_path / "m"):
            pass
    assert list((tmp_path / "m").iterdir()) == []
