"""Wording over real HTTP: whatever the server does, whoever works beside, wherever it is cut short."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streammem.backends.memory_ledger import MemoryLedger
from streammem.core import forest, prompts, routing, spending
from streammem.core.summaries import said_whole
from streammem.errors import ModelBusyError, PausedError, SettingsError
from streammem.flows import telling, wording
from streammem.flows.sheet import Said, Worded
from streammem.ports import RENEWALS, TOUCHED
from streammem.records import Event, Limits, NodeId, Sequence as Run
from tests.flows.wordings import LATER, LEDGER, STORE, Dead, Life, Scripted, WordedWorld, final, paid, worded
from tests.servers.model_script import Request, asked
from tests.servers.model_server import Answer, Broken, Cut, ModelServer, Refuse, Slow, Status, Wrong
from tests.stories import at, deleted, edited, private, public, said
from tests.strategies import WORKSPACE, histories

CHANNEL = routing.channel_sequence("w", "c")
DOC = routing.artifact_sequence("w", "DOC-1")


def talk(n: int = 14, first: int = 1, **rest: Any) -> list[Any]:
    """Messages of two people about one document, each with a word of its own."""
    return [
        said(str(i), f"DOC-1 kettle number {i}", **{"user": ("ana", "bo")[i % 2], **rest})
        for i in range(first, first + n)
    ]


STORY = [public(), *talk(14), *talk(3, 20, mentions=("ana",))]


def nodes_of(request: Request) -> tuple[str, ...]:
    """The nodes that a request asks for."""
    return asked(0, 0.0, request)[0].nodes


def data_of(request: Request) -> str:
    return str(request["messages"][-1]["content"])


def about(request: Request, text: str) -> bool:
    """Whether it asks for a node right above a message that says this."""
    return "Level: 1\n" in data_of(request) and f"{text}\n" in data_of(request)


def is_again(request: Request) -> bool:
    """Whether it says what was wrong with an earlier reply."""
    return "was refused" in request["messages"][0]["content"]


def once(behaviour: Any, when: Callable[[Request], bool] = lambda _: True) -> Any:
    """A script that does something the first time that a request is like this."""
    done: list[int] = []

    def script(number: int, request: Request) -> Any:
        if not done and when(request):
            done.append(number)
            return behaviour
        return Answer()

    return script


def paid_twice(server: ModelServer) -> list[str]:
    return [node for node, times in server.paid.items() if times > 1]


async def settled(world: WordedWorld) -> None:
    """Everything is worded, and nothing is due, claimed or taken out of the budget any more."""
    assert [w.fault for w in world.wordings().values() if w.fault] == []
    assert world.unworded() == []
    assert await world.queues() == {}
    assert await world.ledger.claimed() == []
    assert (await world.ledger.used())[0] == spending.total(await world.ledger.spent())[0]


# ------------------------------------------------------------------------------------------------- what is worded


async def test_every_node_whose_quotes_are_not_all_that_was_said_is_worded_and_asked_for_once() -> None:
    async with worded() as (world, server):
        await world.tell(STORY)
        done = await world.word()
        await settled(world)
        assert {(n.sequence.view, n.level) for n in world.wordings()} >= {
            *((view, level) for view in ("channel", "artifact") for level in (1, 2, 3)),
            *(("actor", level) for level in (1, 2, 0)),
        }
        assert done == Worded(worded=len(world.wordings()))
        assert set(server.paid.values()) == {1}
        assert server.paid.keys() == {prompts.id_of(key) for key in await paid(world.store)}
        spent = await world.ledger.spent()
        assert sum(s.nodes for s in spent) == len(server.paid)
        assert sum(s.calls for s in spent) == server.calls
        assert sum(s.tokens_in + s.tokens_out for s in spent) == sum(one.spent for one in server.asked)
        before = await final(world)
        assert await world.word() == Worded()
        await wording.mark_all(world.store)
        assert await world.word() == Worded()
        assert await final(world) == before
        assert server.calls == sum(s.calls for s in await world.ledger.spent())


async def test_children_are_answered_before_their_parents_are_asked_for_and_nothing_is_asked_for_in_vain() -> None:
    async with worded(server={"delay": 0.01}) as (world, server):
        world.tune(pack=2)
        await world.tell(STORY)
        await world.word()
        place = {node: one.number for one in server.asked for node in one.nodes}
        order = [one.at for one in server.asked]
        known = world.wordings()
        assert place.keys() == server.paid.keys()
        pairs = 0
        for node, one in known.items():
            me = place[prompts.id_of(one.key)]
            for child in (known[n] for n in (world.below(node) if node.level != 1 else []) if n in known):
                if child.key != one.key:  # an only child is passed on
                    pairs += 1
                    assert order[place[prompts.id_of(child.key)] - 1] + 0.01 <= order[me - 1]
        assert pairs > 20


async def test_a_parent_waits_for_nothing_but_its_children() -> None:
    def slow_leaf(number: int, request: Request) -> Any:
        mine = "View: channel" in data_of(request) and about(request, "kettle number 1")
        return Slow(600.0) if mine else Answer()

    async with worded(slow_leaf) as (world, server):
        world.tune(pack=1)
        await world.tell([public(), *talk(27)])
        working = asyncio.ensure_future(world.word())
        slow = {NodeId(CHANNEL, 1, 0), NodeId(CHANNEL, 2, 0), NodeId(CHANNEL, 3, 0)}
        async with asyncio.timeout(20):
            while set(world.unworded()) != slow:  # all that does not wait for the slow one is worded, up to its level
                await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert NodeId(CHANNEL, 2, 2) in world.wordings()


async def test_a_node_with_one_child_has_its_words_and_is_not_asked_for() -> None:
    async with worded() as (world, server):
        await world.tell([public(), *talk(6, user="ana")])
        await world.word()
        known = world.wordings()
        root, branch = NodeId(Run("w", "actor", "ana"), 0, 1), NodeId(Run("w", "actor", "ana", "authored"), 0, 0)
        top = NodeId(routing.actor_sequence("w", "ana", "authored", "c"), 2, 0)
        assert known[root].text == known[branch].text == known[top].text != ""
        assert known[root].key == known[top].key
        assert len(server.paid) == len({one.key for one in known.values()}) == len(known) - 2


async def test_small_nodes_of_one_company_share_a_call_and_those_of_two_audiences_never_do() -> None:
    secret = [said(f"5{i}", f"secret plan {i}", channel="leads", user="bo") for i in range(9)]
    async with worded() as (world, server):
        world.tune(linger=0.05)
        await world.tell([*STORY, *private("leads", "bo"), *secret])
        await world.word()
        await settled(world)
        asked_for = [data_of(one.request) for one in server.asked]
        assert server.calls < len(server.paid)
        assert max(len(one.nodes) for one in server.asked) == 4
        assert any("secret" in data for data in asked_for)
        assert [data for data in asked_for if "secret" in data and "kettle" in data] == []


# -------------------------------------------------------------------------------------------- whatever the server does

ALONE: tuple[Any, ...] = (
    Status(429, {"Retry-After": "0.02"}),
    Status(429, {"retry-after-ms": "5"}),
    Status(429),
    Status(500),
    Status(503, {"Retry-After": "0.01"}),
    Status(502, body="<html>Bad gateway</html>"),
    Cut(0),
    Cut(40),
    Slow(0.03),
)
"""What says nothing of the nodes that were asked for."""
WRONG: tuple[Any, ...] = (
    Broken(),
    Broken("no JSON at all"),
    Broken(""),
    Wrong(),
    Answer("see http://evil.example/x"),
    Answer(""),
    Answer(before="Sure! "),
)
"""What a node is asked for once more after."""


class Whims:
    """A server that does anything, but answers a node within a few tries and gets it wrong no more than once."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.away: Counter[tuple[str, ...]] = Counter()
        self.wronged: set[str] = set()
        self.did: Counter[str] = Counter()

    def __call__(self, number: int, request: Request) -> Any:
        chosen = self._chosen(nodes_of(request), self.chance.random())
        self.did[f"{type(chosen).__name__} {getattr(chosen, 'code', '')}"] += 1
        return chosen

    def _chosen(self, nodes: tuple[str, ...], number: float) -> Any:
        if number < 0.3 and self.away[nodes] < 3:
            self.away[nodes] += 1
            return self.chance.choice(ALONE)
        if number < 0.65 and self.wronged.isdisjoint(nodes):
            if len(nodes) > 1 and number < 0.5:
                self.wronged.add(nodes[-1])
                return self.chance.choice((Refuse(), Refuse("content_filter"), Answer({nodes[-1]: None})))
            self.wronged.update(nodes)
            return self.chance.choice(WRONG)
        return Answer()


@pytest.fixture(scope="module")
def calm() -> Any:
    """How STORY ends when nothing goes wrong."""

    async def tell() -> Any:
        world = WordedWorld(Scripted())
        await world.tell(STORY)
        await world.word()
        await settled(world)
        return await final(world)

    return asyncio.run(tell())


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_the_server_does_every_node_ends_worded_alike_and_none_is_paid_twice(
    seed: int, calm: Any
) -> None:
    whims = Whims(seed)
    async with worded(whims) as (world, server):
        world.tune(pack=(1, 3, 4)[seed % 3], in_flight=(2, 8)[seed % 2], attempts=8)
        await world.tell(STORY)
        await world.word()
        await settled(world)
        assert await final(world) == calm
        assert len(whims.did) > 2
        wrong = whims.wronged  # what was refused by the check was paid for, too
        assert set(paid_twice(server)) <= wrong
        assert max(server.paid.values()) <= 2
        assert server.most_at_once <= world.terms.numbers.in_flight


async def test_a_server_that_takes_too_long_is_asked_again() -> None:
    async with worded(once(Slow(30.0)), timeout=0.2) as (world, server):
        await world.tell([public(), *talk(6)])
        await world.word()
        await settled(world)
        assert [one.answered for one in server.asked].count("gone") <= 1  # it is still being slept over
        assert paid_twice(server) == []
        assert sum(s.failed for s in await world.ledger.spent()) == 1


@pytest.mark.parametrize("how", ["refusal", "content_filter"])
async def test_a_node_that_is_refused_is_marked_with_the_reason_and_does_not_harm_those_asked_for_with_it(
    how: str,
) -> None:
    def refusing(number: int, request: Request) -> Any:
        return Refuse(how) if about(request, "kettle number 2") else Answer()

    async with worded(refusing) as (world, server):
        await world.tell([public(), *talk(9)])
        done = await world.word()
        marked = {node: w for node, w in world.wordings().items() if w.fault}
        assert {n.level for n in marked} == {1}
        assert {n.sequence.view for n in marked} == {"channel", "artifact", "actor"}
        assert all(w.fault.startswith("refused") and not w.text for w in marked.values())
        assert done.failed == len(marked)
        assert set(world.unworded()) == set(marked)
        assert paid_twice(server) == []
        again = server.calls
        await wording.mark_all(world.store)
        assert await world.word() == Worded()
        assert server.calls == again


async def test_what_fails_the_check_is_asked_for_once_more_with_what_was_wrong_then_quoted_with_a_mark() -> None:
    bad = Broken('{"summaries": "rubbish"}')

    def script(number: int, request: Request) -> Any:
        return bad if about(request, "kettle number 1") else Answer()

    async with worded(script) as (world, server):
        world.tune(pack=1)
        await world.tell([public(), *talk(9)])
        await world.word()
        (node,) = [n for n, w in world.wordings().items() if w.fault and n.sequence == CHANNEL]
        assert "rubbish" in world.wordings()[node].fault
        assert world.wordings()[node].tokens > 0
        mine = [one for one in server.asked if one.nodes == (prompts.id_of(world.wordings()[node].key),)]
        assert len(mine) == 2
        first, second = (one.request["messages"][0]["content"] for one in mine)
        assert "rubbish" not in first
        assert second.startswith(first)
        assert "rubbish" in second
        # it is found all along: by its quotes
        answer = await world.ask("DOC-1 kettle number 1")
        assert answer.evidence
        seen = {(h.view, h.tree, h.first): h for h in answer.headers}
        shown = seen["channel", "c", world.summaries()[node].first.ts]
        assert (shown.by, shown.text.startswith("Ana:")) == ("", True)
        # what is above it is made of its quotes
        above = NodeId(CHANNEL, 2, 0)
        assert world.wordings()[above].text
        # and somebody lets the model try again
        server.script = lambda number, request: Answer()
        assert await wording.retry(world.store) == len([n for n in world.unworded()])
        await world.word()
        await settled(world)
        calm = WordedWorld(Scripted())
        await calm.tell([public(), *talk(9)])
        await calm.word()
        assert (await final(world, cache=False))[:2] == (await final(calm, cache=False))[:2]


async def test_what_was_right_in_a_reply_is_kept_when_the_rest_is_refused_at_the_second_try() -> None:
    """The good half of a pack is paid for: only the other half is asked for again."""

    def script(number: int, request: Request) -> Any:
        nodes = nodes_of(request)
        if is_again(request):
            return Refuse()
        return Answer(dict.fromkeys(nodes[1:])) if len(nodes) > 2 else Answer()

    async with worded(script) as (world, server):
        world.tune(linger=0.05)
        await world.tell([public(), *talk(14)])
        await world.word()
        assert any(len(one.nodes) > 2 for one in server.asked)
        assert any(one.answered == "refuse" for one in server.asked)
        assert paid_twice(server) == []
        await settled(world)


async def test_a_server_that_stays_away_is_an_error_and_all_is_worded_when_it_is_back() -> None:
    async with worded(lambda number, request: Status(503)) as (world, server):
        world.tune(attempts=2)
        await world.tell(STORY)
        before = await world.ask("DOC-1 kettle")
        with pytest.raises(ModelBusyError):
            await world.word()
        assert await world.ledger.claimed() == []
        assert (await world.ask("DOC-1 kettle")) .headers == before.headers
        server.script = lambda number, request: Answer()
        world.now += 10
        await world.word()
        await settled(world)


async def test_the_breaker_keeps_calls_back_and_lets_one_try() -> None:
    heard: list[str] = []
    async with worded(lambda number, request: Status(500)) as (world, server):
        world.tune(trips=3, cooling=0.3, in_flight=6, attempts=100, backoff=0.001, longest=0.001, pack=1)
        await world.tell(STORY)
        pen = msgspec.structs.replace(world.pen(), tell=world.teller(trouble=heard.append))
        working = asyncio.ensure_future(wording.word(pen))
        await asyncio.sleep(0.25)
        assert 3 <= server.calls <= 3 + 6  # those that were on their way
        asked_then = server.calls
        server.script = lambda number, request: Answer()
        await working
        await settled(world)
        first, second = server.asked[asked_then : asked_then + 2]
        assert first.answered == "answer"
        assert second.at >= first.at
        assert heard[0] != ""
        assert heard[-1] == ""


async def test_a_wrong_key_stops_all_and_says_which_setting_to_mend() -> None:
    async with worded(server={"key": "another"}) as (world, server):
        await world.tell(STORY)
        with pytest.raises(SettingsError, match="STREAMMEM_OPENAI__KEY"):
            await world.word()
        assert await world.ledger.claimed() == []
        assert (await world.ledger.used())[0] == spending.total(await world.ledger.spent())[0]
        server.key = None
        world.now += 10
        await world.word()
        await settled(world)


# --------------------------------------------------------------------------------------------------------- limits


async def test_requests_tokens_and_calls_in_flight_never_exceed_the_limits() -> None:
    async with worded(server={"delay": 0.02}) as (world, server):
        world.limit(requests=12, tokens=11_000, window=1.0)
        world.tune(in_flight=5, pack=2)
        await world.tell(STORY)
        both = await asyncio.gather(world.word(), world.word())  # two processes, one ledger
        await settled(world)
        assert sum(done.worded for done in both) == len(world.wordings())
        assert server.most_at_once <= 2 * 5
        # what arrives is a little later than what was granted: hence a little less than the window
        assert 2 <= server.in_any_window(0.6) <= 12
        assert server.tokens_in_any_window(0.6) <= 11_000
        assert server.asked[-1].at - server.asked[0].at > 1.0
        assert paid_twice(server) == []


async def test_a_server_that_wants_rest_is_left_alone_by_everybody_until_a_person_says_otherwise() -> None:
    async with worded(once(Status(429, {"Retry-After": "3600"}))) as (world, server):
        world.tune(trips=100)
        await world.tell(STORY)
        working = [asyncio.ensure_future(world.word()) for _ in range(2)]
        async with asyncio.timeout(10):
            while (await world.ledger.standing(Limits())).why != "rest":
                await asyncio.sleep(0.01)
        calls = server.calls
        await asyncio.sleep(0.1)
        assert server.calls == calls
        await world.ledger.resume()
        async with asyncio.timeout(20):
            await asyncio.gather(*working)
        await settled(world)
        assert paid_twice(server) == []
