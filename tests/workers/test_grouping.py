"""The part of `summarize` that groups artifacts: it takes up what comes, again and again, and waits for no one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Grouping
from streammem.errors import TransientError
from streammem.settings import Settings
from streammem.workers import duty
from streammem.workers.duty import Pulse
from streammem.workers.grouping import group_for_ever
from tests.flows.worlds import World
from tests.stories import public, said

QUICK = Settings(grouping=Grouping(every=0.01))


def parts(world: World) -> SimpleNamespace:
    async def index():
        return world.index

    return SimpleNamespace(settings=QUICK, structure=world.store, index=index, rules=DEFAULT_RULES)


async def joined(world: World, count: int) -> None:
    async with asyncio.timeout(20):
        while (found := await world.store.grouping("w")) is None or len(found.joined) != count:
            await asyncio.sleep(0.01)


PLAN = said("1", "drafted DOC-42 - payout ledger rollout plan")


@pytest.fixture
def world() -> World:
    return World()


async def test_it_groups_what_was_there_and_what_comes(world):
    await world.place([public("c"), PLAN, said("2", "merged the payout ledger rollout plan")])
    work = asyncio.create_task(group_for_ever(parts(world), Pulse("summarize")))
    await joined(world, 1)
    await world.place([said("3", "the payout ledger rollout plan is out")])
    await joined(world, 2)
    work.cancel()


async def test_it_waits_while_the_store_is_away(world, monkeypatch):
    monkeypatch.setattr(duty, "pause", lambda *_: 0.0)
    await world.place([public("c"), PLAN, said("2", "merged the payout ledger rollout plan")])
    faults, told = [TransientError("away"), TransientError("away")], []
    facts = world.store.facts

    async def failing(workspace):
        if faults:
            raise faults.pop()
        return await facts(workspace)

    world.store.facts = failing
    pulse = Pulse("summarize")
    pulse.wait = told.append
    # What failed is held for its lease, as by a process that has died.
    quick = parts(world)
    quick.settings = QUICK.model_copy(update={"worker": QUICK.worker.model_copy(update={"lease": 0.01})})
    work = asyncio.create_task(group_for_ever(quick, pulse))
    await joined(world, 1)
    work.cancel()
    assert "away" in told
