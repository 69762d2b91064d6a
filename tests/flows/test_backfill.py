"""Wording by jobs of the Batch API, over real HTTP: as live, in fewer and cheaper calls, whatever becomes of a job."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streammem.core import prompts, spending
from streammem.errors import PausedError, SettingsError
from streammem.flows import telling, wording
from streammem.flows.backfill import Backfill
from streammem.flows.sheet import Worded
from tests.flows.test_wording import STORY, about, is_again, settled, talk
from tests.flows.wordings import HUNG, LEDGER, MODEL, STORE, Dead, Life, Scripted, WordedWorld, final, paid, worded
from tests.servers.model_script import Request, Script
from tests.servers.model_server import Answer, BatchPlan, Broken, ModelServer, Refuse, good
from tests.stories import edited, public

SHORT = [public(), *talk(7)]


class Handing:
    """A model that remembers what was handed in: jobs, by the nodes in them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.jobs: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def submit(self, name: str, prompts: Any) -> str:
        job: str = await self._model.submit(name, prompts)
        self.jobs.append(list(prompts))
        return job

    @property
    def times(self) -> Counter[str]:
        """How many times each node was handed in."""
        return Counter(node for job in self.jobs for node in job)


async def backfill(world: WordedWorld, told: Any = None, **others: Any) -> Worded:
    """Word what is due by jobs, as a new process does."""
    model, ledger = others.get("model", world.model), others.get("ledger", world.ledger)
    async with asyncio.timeout(HUNG):
        return await Backfill(world.pen(**others), model, ledger, world.terms, told=told).run()


@asynccontextmanager
async def by_jobs(script: Script = good, **options: Any) -> AsyncIterator[tuple[WordedWorld, ModelServer, Handing]]:
    """A world, its server, and what is handed in."""
    async with worded(script, **options) as (world, server):
        handing = Handing(world.model)
        world.model = handing
        yield world, server, handing


@pytest.fixture(scope="module")
def live() -> Any:
    """How the two stories end when they are worded live."""

    async def tell(story: list[Any], k: int) -> Any:
        world = WordedWorld(Scripted(), k=k)
        await world.tell(story)
        await world.word()
        return await final(world)

    return asyncio.run(tell(STORY, 3)), asyncio.run(tell(SHORT, 2))


async def test_jobs_word_level_by_level_to_the_same_end_as_live_calls(live: Any) -> None:
    heard: list[int] = []
    async with by_jobs(server={"batch": BatchPlan(polls=3)}) as (world, server, handing):
        await world.tell(STORY)
        done = await backfill(world, told=heard.append)
        await settled(world)
        assert await final(world) == live[0]
        assert server.calls == 0
        assert set(handing.times.values()) == {1}
        assert done.worded == len(world.wordings())
        place = {node: number for number, job in enumerate(handing.jobs) for node in job}
        known = world.wordings()
        for node, one in known.items():
            for child in (known[n] for n in (world.below(node) if node.level != 1 else ()) if n in known):
                if child.key != one.key:
                    assert place[prompts.id_of(child.key)] < place[prompts.id_of(one.key)]
        assert len(handing.jobs) <= 6
        assert max(heard) == len(handing.jobs[0])
        assert await world.ledger.jobs() == []
        assert await world.ledger.used() == spending.total(await world.ledger.spent())
        spent = await world.ledger.spent()
        assert sum(s.nodes for s in spent) == sum(s.calls for s in spent) == len(server.items)
        assert sum(s.tokens_in + s.tokens_out for s in spent) == sum(one.spent for one in server.items)
        assert (await backfill(world)).worded == 0
        assert len(handing.jobs) <= 6


async def test_a_job_holds_no_more_prompts_than_it_may() -> None:
    async with by_jobs() as (world, _, handing):
        world.tune(job=5)
        await world.tell(STORY)
        await backfill(world)
        await settled(world)
        assert max(map(len, handing.jobs)) == 5
        assert set(handing.times.values()) == {1}


async def test_jobs_cost_the_share_of_the_price_that_the_terms_say() -> None:
    async with by_jobs(price=(1.0, 4.0)) as (world, server, _):
        await world.tell(SHORT)
        await backfill(world)
        each = [(one.tokens * 1000 + (one.spent - one.tokens) * 4000) / 2 for one in server.items]
        assert sum(s.money for s in await world.ledger.spent()) == sum(each)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_effect_and_a_second_run_hand_in_nothing_twice(after: bool, live: Any) -> None:
    async with by_jobs(server={"batch": BatchPlan(polls=2)}) as (first, server, handing):
        place, ended = 0, False
        while not ended:
            place += 14 - after if place > 16 else 2
            handing.jobs.clear()
            world = WordedWorld(first.model, k=2)
            await world.tell(SHORT)
            life = Life(place, after=after)
            parts = {
                "store": life.of(world.store, STORE),
                "ledger": life.of(world.ledger, LEDGER),
                "model": life.of(world.model, MODEL),
            }
            try:
                await backfill(world, **parts)
                ended = True
            except Dead:
                world.now += world.terms.numbers.lease + 1
            await backfill(world)
            world.now += 61
            await backfill(world)
            assert await final(world) == live[1]
            assert set(handing.times.values()) == {1}
            assert await world.ledger.jobs() == []
            assert await world.queues() == {}
            assert server.calls == 0
        assert place > 60


@pytest.mark.parametrize("ends", ["failed", "expired", "cancelled"])
async def test_a_job_that_comes_to_nothing_is_tried_once_more_then_its_nodes_are_marked(ends: str) -> None:
    async with by_jobs(server={"batch": BatchPlan(ends=ends)}) as (world, server, handing):
        await world.tell(SHORT)
        done = await backfill(world)
        marked = [w for w in world.wordings().values() if w.fault]
        assert done.failed == len(marked) == len(world.wordings()) > 0
        assert set(handing.times.values()) == {2}
        assert all(("expired" if ends != "failed" else "failed") in w.fault for w in marked)
        assert (await world.ask("DOC-1 kettle")).headers
        server.batches.plan = BatchPlan()
        assert await wording.retry(world.store) == len(marked)
        await backfill(world)
        await settled(world)


@pytest.mark.parametrize("fate", ["expired", "missing"])
async def test_a_prompt_that_a_job_never_answers_is_tried_once_more_then_marked(fate: str) -> None:
    async with by_jobs() as (world, server, handing):
        await world.tell(SHORT)
        leaf = min((n, s) for n, s in world.summaries().items() if n.level == 1 and n.sequence.view == "channel")[1]
        key = f"{leaf.made_from}/channel/{world.writer}"
        server.batches.plan = BatchPlan(fates={prompts.id_of(key): fate})
        async with asyncio.timeout(20):
            await backfill(world)
        assert [n for n, w in world.wordings().items() if w.fault] == [leaf.node]
        assert handing.times[prompts.id_of(key)] == 2
        assert max(handing.times.values()) == 2
        assert sum(times == 2 for times in handing.times.values()) == 1


async def test_a_reply_that_fails_the_check_is_asked_for_once_more_with_what_was_wrong() -> None:
    def script(number: int, request: Request) -> Any:
        if not about(request, "kettle number 1"):
            return Answer()
        return Answer() if is_again(request) else Broken("rubbish")

    async with by_jobs(script) as (world, server, _):
        await world.tell(SHORT)
        await backfill(world)
        await settled(world)
        again = [one for one in server.items if is_again(one.request)]
        assert again
        assert all("rubbish" in one.request["messages"][0]["content"] for one in again)


async def test_what_the_model_refuses_in_a_job_is_marked_and_harms_nothing_else() -> None:
    async with by_jobs(lambda n, request: Refuse() if about(request, "kettle number 2") else Answer()) as (world, _, _):
        await world.tell(SHORT)
        await backfill(world)
        marked = {n for n, w in world.wordings().items() if w.fault}
        assert {n.level for n in marked} == {1}
        assert {n.level for n in set(world.unworded()) - marked} <= {0}  # an only child has nothing to pass on


async def test_the_days_budget_caps_a_job_and_the_next_day_goes_on(live: Any) -> None:
    async with by_jobs() as (world, server, handing):
        world.limit(day_tokens=6000)
        await world.tell(STORY)
        days = 1
        while True:
            before = sum(one.spent for one in server.items)
            try:
                await backfill(world)
            except PausedError as error:
                wait = error.wait
            else:
                break
            assert 0 < sum(one.spent for one in server.items) - before <= 6000
            days += 1
            world.now += wait + 1
        assert days >= 2
        await settled(world)
        assert await final(world) == live[0]
        assert set(handing.times.values()) == {1}


async def test_a_person_who_pauses_keeps_jobs_from_being_handed_in() -> None:
    async with by_jobs() as (world, _, handing):
        await world.tell(SHORT)
        await world.ledger.pause("no")
        with pytest.raises(PausedError, match="no"):
            await backfill(world)
        assert handing.jobs == []
        await world.ledger.resume()
        await backfill(world)
        await settled(world)


async def test_live_workers_do_not_pay_for_what_a_job_holds(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.3)
    async with by_jobs(server={"batch": BatchPlan(seconds=0.4)}) as (world, server, handing):
        await world.tell(STORY)
        working = asyncio.ensure_future(backfill(world))
        async with asyncio.timeout(20):
            while not handing.jobs:
                await asyncio.sleep(0.01)
            while not working.done():
                await world.word()
                await asyncio.sleep(0.01)
        await working
        await world.word()
        await backfill(world)
        await settled(world)
        assert await final(world) == live[0]
        asked_for = handing.times + Counter(node for one in server.asked for node in one.nodes)
        assert max(asked_for.values()) == 1


async def test_what_a_job_brings_is_kept_while_a_live_worker_holds_the_sequence(live: Any) -> None:
    """The node is not gathered anew then; its text was paid for all the same."""
    async with by_jobs(server={"batch": BatchPlan(seconds=0.2)}) as (world, server, handing):
        await world.tell(STORY)
        working = asyncio.ensure_future(backfill(world))
        async with asyncio.timeout(20):
            while not handing.jobs:
                await asyncio.sleep(0.01)
            while len(handing.jobs) == 1 and not server.items:  # another is given all that rests
                for queue in ("words", "upper"):
                    await world.store.due(100, world.clock() + 1, 2.0, queue)
                await asyncio.sleep(0.002)
        await working
        world.now += 61
        await backfill(world)
        await settled(world)
        assert set(handing.times.values()) == {1}
        assert await final(world) == live[0]


async def test_a_server_without_jobs_is_said_and_holds_up_nobody() -> None:
    class Jobless(Scripted):
        async def submit(self, name: str, prompts: Any) -> str:
            raise SettingsError("no Batch API")

        async def handed_in(self, name: str) -> str | None:
            raise SettingsError("no Batch API")

    world = WordedWorld(Jobless())
    await world.tell(SHORT)
    for _ in range(2):
        with pytest.raises(SettingsError, match="no Batch API"):
            await backfill(world)
        world.now += 1
    assert await world.ledger.claimed() == []
    assert await world.ledger.used() == (0, 0)
    await world.word()
    await settled(world)


@pytest.mark.parametrize("seed", range(3))
async def test_an_edit_while_a_job_is_away_ends_as_if_it_had_come_before(seed: int) -> None:
    chance = random.Random(seed)
    change = edited(SHORT[chance.randint(1, 7)], "DOC-1 was a harbour", 500)
    calm = WordedWorld(Scripted(), k=2)
    await calm.tell([*SHORT, change])
    await calm.word()
    async with by_jobs(server={"batch": BatchPlan(seconds=0.1)}, k=2) as (world, _, handing):
        await world.tell(SHORT)
        working = asyncio.ensure_future(backfill(world))
        while not handing.jobs:
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() / 5)
        await world.tell([change])
        await working
        world.now += 61
        await backfill(world)
        await settled(world)
        assert (await final(world, cache=False))[:2] == (await final(calm, cache=False))[:2]
        assert set(handing.times.values()) == {1}
        assert (await paid(world.store)).keys() >= (await paid(calm.store)).keys()
