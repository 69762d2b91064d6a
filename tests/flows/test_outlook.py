"""The outlook: what every node is, and what wording the rest will take, without asking or writing anything."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streammem.core import prompts
from streammem.flows import wording
from streammem.flows.outlook import Outlook, nobody, outlook
from streammem.records import Claim, Limits, Paid
from tests.flows.test_backfill import backfill
from tests.flows.test_wording import STORY, about, data_of, plain
from tests.flows.wordings import LEDGER, STORE, Life, Scripted, WordedWorld, final, worded
from tests.servers.model_server import Answer, Broken
from tests.stories import at, deleted, public, said


async def look(world: WordedWorld, **options: Any) -> Outlook:
    """The outlook. Nothing may be written for it."""
    before, queues, cache = await final(world), await world.queues(), len(world.store._texts)
    life = Life()
    pen = world.pen(store=life.of(world.store, STORE))
    seen = await outlook(pen, life.of(world.ledger, LEDGER), world.terms, **options)
    assert life.done == 0
    assert (await final(world), await world.queues(), len(world.store._texts)) == (before, queues, cache)
    return seen


def states(seen: Outlook) -> Counter[str]:
    """How many nodes are what."""
    names = ("quoted", "worded", "due", "later", "shifted", "failed")
    return Counter({name: n for name in names if (n := sum(getattr(r, name) for r in seen.rungs))})


def check(seen: Outlook, world: WordedWorld) -> None:
    """The states of a view and level add up to its nodes, and those to the summaries that there are."""
    counted = Counter((n.sequence.view, n.level) for n in world.summaries())
    assert {(r.view, r.level): r.nodes for r in seen.rungs} == counted
    for r in seen.rungs:
        assert r.nodes == r.quoted + r.worded + r.due + r.later + r.shifted + r.failed


async def test_the_states_of_each_view_and_level_add_up_to_the_nodes_before_and_after() -> None:
    async with worded() as (world, server):
        await world.tell(STORY)
        before = await look(world)
        check(before, world)
        assert server.calls == 0
        assert before.writer == "m/1"
        await world.word()
        after = await look(world)
        check(after, world)
        known = world.wordings()
        rest = len(world.summaries()) - len(known)
        assert states(after) == +Counter(worded=len(known), quoted=rest)
        assert states(before) == +Counter(due=len(known), quoted=rest)
        assert [(r.calls, r.tokens_in, r.money) for r in after.rungs if r.calls] == []
        levels = [r.level for r in before.rungs if r.view == "actor"]
        assert levels == [1, 2, 0]  # the nodes above an actor's sequences come last


@pytest.mark.parametrize("story", ["plain", "late", "deleted", "cached"])
async def test_the_estimate_says_how_many_calls_a_run_then_makes(story: str) -> None:
    world = WordedWorld(Scripted(), k=4)
    world.tune(pack=1)
    told = plain(61)
    await world.tell([public(), *told, *STORY[1:]])
    if story != "plain":
        await world.word()
        assert (await look(world)).rungs[0].calls == 0
    if story == "late":
        await world.tell([said("999", "come late", minute=20.5), said("998", "come late too", minute=40.5)])
    if story == "deleted":
        await world.tell([deleted(told[9], 900)])
    if story == "cached":
        await wording.mark_all(world.store)
        await world.store.unword(list(world.wordings()))
    seen = await look(world)
    check(seen, world)
    model: Any = world.model
    asked_before = len(model.prompts)
    await world.word()
    made = Counter(
        (p.data.split("View: ")[1].split()[0], int(p.data.split("Level: ")[1].split()[0]))
        for p in model.prompts[asked_before:]
    )
    estimated = Counter({(r.view, r.level): r.calls for r in seen.rungs if r.calls})
    # the nodes above an actor's sequences may be asked for once before what is shifted is renewed, and once after
    assert estimated == made if story != "late" else all(made[place] >= n for place, n in estimated.items())
    assert (sum(made.values()) == 0) is (story == "cached")


async def test_an_estimate_with_several_nodes_in_a_call_is_near_what_a_run_makes() -> None:
    async with worded(price=(1.0, 2.0)) as (world, server):
        world.tune(linger=0.05)
        await world.tell([public(), *plain(81), *STORY[1:]])
        seen = await look(world)
        await world.word()
        calls = sum(r.calls for r in seen.rungs if r.level == 1)
        made = sum("Level: 1\n" in data_of(one.request) for one in server.asked)
        assert calls <= made <= 2 * calls  # a run does not wait long for company
        tokens = sum(r.tokens_in + r.tokens_out for r in seen.rungs)
        assert sum(one.spent for one in server.asked) <= tokens
        money = sum(r.tokens_in * 1000 + r.tokens_out * 2000 for r in seen.rungs)
        assert sum(r.money for r in seen.rungs) == money


async def test_an_estimate_for_jobs_counts_each_node_and_the_lower_price() -> None:
    async with worded(price=(1.0, 2.0)) as (world, server):
        await world.tell(STORY)
        seen = await look(world, batch=True)
        await backfill(world)
        assert sum(r.calls for r in seen.rungs) == len(server.items)
        assert sum(r.money for r in seen.rungs) == sum(r.tokens_in * 500 + r.tokens_out * 1000 for r in seen.rungs)


async def test_what_is_open_shifted_or_failed_is_said() -> None:
    def script(number: int, request: Any) -> Any:
        return Broken() if about(request, "gasket number 2") else Answer()

    async with worded(script, k=4) as (world, _):
        world.tune(renew="touched", pack=1)
        await world.tell([public(), *plain(40)])
        await world.word()
        seen = await look(world)
        check(seen, world)
        assert states(seen)["failed"] == 2  # in the channel, and of its actor
        await world.tell([said("999", "gasket come late", minute=20.5)])
        await world.word()
        seen = await look(world)
        check(seen, world)
        assert states(seen)["shifted"] >= 8


async def test_what_is_worded_when_it_has_been_quiet_is_said() -> None:
    world = WordedWorld(Scripted(), k=4)
    await world.tell([public(), *plain(40)])
    await world.word()
    await world.tell(plain(2, 41))
    world.now = at(42).timestamp()
    await world.word()
    seen = await look(world)
    check(seen, world)
    assert states(seen)["later"] >= 2
    assert states(seen)["due"] == 0


async def test_it_tells_of_calls_budget_pause_and_jobs_as_they_stand() -> None:
    async with worded() as (world, _):
        world.limit(day_tokens=100_000)
        await world.tell(STORY)
        await world.word()
        await world.ledger.claim([Claim("k", "channel", 1)], "somebody", 60)
        await world.ledger.pause("too dear")
        seen = await look(world)
        assert (seen.standing.why, seen.standing.said) == ("paused", "too dear")
        assert seen.in_flight == (Claim("k", "channel", 1),)
        assert seen.used[0] == sum(s.tokens_in + s.tokens_out for s in seen.spent) > 0
        assert seen.limits == Limits(day_tokens=100_000)
        assert seen.jobs == 0
        await world.ledger.resume()
        world.limit(day_tokens=seen.used[0] + 20)  # less than any call takes
        assert (await look(world)).standing.why == "budget"


async def test_nobody_is_asked() -> None:
    part = prompts.Part("k", "channel", "", 1, 0, 0, (), ())
    assert await nobody(part, "") is None
    assert Paid("", ()).text == ""
