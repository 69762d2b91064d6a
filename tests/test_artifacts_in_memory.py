"""Artifacts in an open memory: grouped when it settles, kept when it is closed, forgotten with what is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streammem import memory as module
from streammem import open_memory
from streammem.core.artifacts import named_in
from streammem.core.events import uid
from streammem.records import Artifacts
from streammem.settings import Settings
from tests.embedding import HashingEmbedder
from tests.stories import public, said

QUICK = Settings(wait=0)
STORY = [
    public("c"),
    said("1", "drafted DOC-42 - payout ledger rollout plan"),
    said("2", "merged the payout ledger rollout plan", user="bo"),
    said("3", "thanks!", reply_to="2"),
]


def opened(path: Path) -> Any:
    return open_memory(path, QUICK, embedder=lambda _: HashingEmbedder())


async def grouping(memory: Any) -> Artifacts:
    return await memory._parts.structure.grouping("w") or Artifacts("")


async def test_what_is_appended_is_grouped_and_stays_so(tmp_path):
    async with opened(tmp_path / "m") as memory:
        await memory.append(STORY)
        made = await grouping(memory)
        assert [j.why for j in made.joined] == ["named", "answer"]
    async with opened(tmp_path / "m") as memory:
        assert await grouping(memory) == made
        assert (await memory.verify()).groupings == 1


async def test_messages_that_come_one_by_one_are_grouped_together_and_not_waited_for(tmp_path, monkeypatch):
    calls = []
    group_due = module.grouping.group_due

    async def counted(grouper):
        calls.append(1)
        return await group_due(grouper)

    monkeypatch.setattr(module.grouping, "group_due", counted)
    monkeypatch.setattr(module.grouping, "SHARE", 1e9)
    async with opened(tmp_path / "m") as memory:
        for message in STORY:
            await memory.append([message])
        assert len(calls) == 1
        assert (await grouping(memory)).joined == ()
        await memory.settle()
        assert len((await grouping(memory)).joined) == 2


async def test_what_was_not_grouped_yet_is_when_its_rest_is_over_though_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(module.grouping, "SHARE", 5)
    async with opened(tmp_path / "m") as memory:
        for message in STORY:
            await memory.append([message])
        async with asyncio.timeout(20):
            while len((await grouping(memory)).joined) != 2:
                await asyncio.sleep(0.01)


async def test_what_was_not_grouped_when_a_memory_was_closed_is_when_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(module.grouping, "SHARE", 1e9)
    async with opened(tmp_path / "m") as memory:
        for message in STORY:
            await memory.append([message])
    async with opened(tmp_path / "m") as memory:
        await memory.query("who merged it?", workspace="w")
        assert len((await grouping(memory)).joined) == 2


async def test_an_append_waits_only_so_long_for_a_grouping(tmp_path, monkeypatch):
    never = asyncio.Event()

    async def slow(_):
        await never.wait()

    monkeypatch.setattr(module.grouping, "group_due", slow)
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    async with opened(tmp_path / "m") as memory:
        for message in STORY:
            await memory.append([message])


async def test_what_goes_wrong_meanwhile_is_told_to_who_appends_next(tmp_path, monkeypatch):
    async def broken(_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(module.grouping, "group_due", broken)
    async with opened(tmp_path / "m") as memory:
        await memory.append(STORY[:1])
        with pytest.raises(RuntimeError, match="a fault"):
            await memory.append(STORY[1:])


async def test_nothing_of_what_is_forgotten_is_left_in_the_grouping(tmp_path):
    async with opened(tmp_path / "m") as memory:
        await memory.append(STORY)
        wanted = await memory.meant("w", [uid("w", "c", "1")], [])
        await memory.forget(wanted)
        assert uid("w", "c", "1") not in named_in(await grouping(memory))
        assert (await grouping(memory)).joined == ()
        assert (await memory.traces(wanted)).total == 0


async def test_a_rebuild_makes_the_same_grouping(tmp_path):
    async with opened(tmp_path / "m") as memory:
        await memory.append(STORY)
        made = await grouping(memory)
        await memory.rebuild()
        assert await grouping(memory) == made


async def test_stats_tell_of_artifacts(tmp_path):
    async with opened(tmp_path / "m") as memory:
        await memory.append(STORY)
        counted = await memory.stats()
        assert counted.artifacts["joined_by_alias"] == 1
        assert counted.aliases == ("DOC-42: payout ledger rollout plan",)
