"""Forgetting where workers follow the log: what is waited for, and what is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streammem.errors import TransientError
from streammem.flows.forgetting import Forgotten, traces
from streammem.settings import Settings
from streammem.wiring.embedded import hold
from streammem.wiring.stream import INDEX, open_streaming
from streammem.workers import forgetting
from tests.flows.worlds import World
from tests.stories import public, said

TOLD = [public(), said("1", "the code is 4711"), said("2", "hello", user="bo")]


def parts_of(world: World, seconds: float) -> Any:
    return SimpleNamespace(log=world.log, structure=world.store, settings=Settings(worker={"timeout": seconds / 4}))


async def test_talk_that_goes_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.tell(TOLD)

    async def busy() -> dict[str, int]:
        return {"due": 1}

    async def work() -> None:
        while True:
            await world.catch_up()
            await world.summarize()
            await asyncio.sleep(0)

    monkeypatch.setattr(world.store, "counts", busy)
    working = asyncio.create_task(work())
    done = await forgetting.forgotten(parts_of(world, 20.0), Forgotten("w", ("w/c/1",), ()))
    working.cancel()
    assert done.entries == 1
    assert (await traces(done, world.log, world.store, world.index)).total == 0


async def test_what_has_not_followed_is_told() -> None:
    world = World()
    await world.tell(TOLD)
    with pytest.raises(TransientError, match="structure has not followed"):
        await forgetting.forgotten(parts_of(world, 0.1), Forgotten("w", ("w/c/1",), ()))
    await world.catch_up()
    with pytest.raises(TransientError, match="summarize has not followed"):
        await forgetting.forgotten(parts_of(world, 0.1), Forgotten("w", ("w/c/1",), ()))


async def test_vectors_that_another_process_holds_are_not_waited_for_and_those_elsewhere_are_not_made(
    tmp_path: Path,
) -> None:
    async with open_streaming(Settings(vectors={"path": tmp_path / "vectors"}, wait=60.0)) as parts:
        assert "no vectors are at" in (await forgetting._vectors(parts))[1]
        assert not (tmp_path / "vectors").exists()
        (tmp_path / "vectors" / INDEX).mkdir(parents=True)
        held = hold(tmp_path / "vectors", 0.0)
        assert await forgetting._vectors(parts) == (None, forgetting.HELD)
        held.close()
