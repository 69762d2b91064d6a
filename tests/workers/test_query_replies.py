"""Replies of a language model in the role that answers: nobody else waits for them, and the evidence goes back."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streammem.backends.memory import MemoryStructure
from streammem.core.topics import ANSWERS
from streammem.errors import QueryError
from streammem.flows.replying import Mute, Replier
from streammem.records import Answer, Generated, Query, Sentence
from streammem.settings import KafkaSettings, Settings, WorkerSettings
from streammem.workers.duty import Pulse
from streammem.workers.query import HEAD, Clerk, fitting
from tests.flows.replies import found, replying, wrote
from tests.servers.model_server import Slow, Status
from tests.workers.test_query import Exchange, asked, serve

SAID = ("the launch is on 20 March", "the launch moves to 27 March")
GOOD = wrote(("The launch moves to 27 March.", [2]))
WANTED = Query(text="when?", answer=True)


async def evidence(query: Query) -> Answer:
    return found(*SAID, question=query.text)


def clerk(
    replier: Replier | Mute | Any = None, ask: Any = evidence, exchange: Any = None, max_bytes: int = 2**20, **rest: Any
) -> Clerk:
    worker = WorkerSettings(**{"timeout": 5.0, "patience": 0.01, **rest})
    parts: Any = SimpleNamespace(
        settings=Settings(worker=worker, kafka=KafkaSettings(max_bytes=max_bytes)),
        exchange=exchange or Exchange(),
        structure=MemoryStructure(),
    )
    counter: Any = SimpleNamespace(ask=ask)
    return Clerk(parts, counter, Pulse("query"), *(() if replier is None else (replier,)))


async def test_a_question_that_asks_for_a_reply_gets_one_and_one_that_does_not_costs_nothing() -> None:
    async with replying(lambda *_: GOOD) as (replier, server, _):
        desk = clerk(replier)
        plain = await desk.answer(asked())
        assert (plain.reply, plain.notes, server.calls) == (None, (), 0)
        answer = await desk.answer(asked(WANTED))
        assert answer.reply is not None
        assert (answer.reply.supported, answer.reply.text) == (True, "The launch moves to 27 March.")
        assert answer.evidence == plain.evidence


async def test_without_a_model_the_evidence_comes_with_a_note() -> None:
    answer = await clerk().answer(asked(WANTED))
    assert (answer.reply, answer.error, len(answer.evidence)) == (None, None, 2)
    assert answer.notes == ("no reply was written: no language model answers here",)


async def test_a_question_that_failed_asks_no_model() -> None:
    async def no(query: Query) -> Answer:
        raise QueryError("nobody is called so")

    async with replying(lambda *_: GOOD) as (replier, server, _):
        answer = await clerk(replier, no).answer(asked(WANTED))
        assert (answer.error, answer.reply, server.calls) == ("nobody is called so", None, 0)


@pytest.mark.parametrize("behaviour", [Status(500), Slow(60.0, GOOD)])
async def test_a_model_that_fails_or_is_too_slow_costs_no_evidence_and_no_more_time_than_a_question_has(
    behaviour: Any,
) -> None:
    async with replying(lambda *_: behaviour) as (replier, _, _):
        began = time.monotonic()
        answer = await clerk(replier, timeout=1.0).answer(asked(WANTED))
        assert time.monotonic() - began < 30.0
        assert (answer.error, answer.reply, len(answer.evidence)) == (None, None, 2)
        assert answer.notes[-1].startswith("no reply was written: ")


async def test_the_time_of_a_reply_counts_from_when_the_question_was_put() -> None:
    given: list[float] = []

    async def replier(answer: Answer, seconds: float) -> Answer:
        given.append(seconds)
        return answer

    await clerk(replier, timeout=100.0).answer(asked(WANTED, age=70.0))
    assert 20.0 < given[0] < 30.0
    await clerk(replier, timeout=100.0).answer(asked(WANTED, age=99.9))
    assert given[1] == 0.0


async def test_a_fault_in_writing_a_reply_is_told_without_what_it_said_and_stops_nothing() -> None:
    async def broken(answer: Answer, seconds: float) -> Answer:
        raise ValueError("secret " + answer.question)

    answer = await clerk(broken).answer(asked(WANTED))
    assert answer.notes == ("no reply was written: it failed: ValueError (the worker's log says more)",)
    assert len(answer.evidence) == 2


async def test_replies_that_are_being_written_keep_no_other_question_waiting() -> None:
    """There are two places: with both of them taken by slow replies nothing would be read from Kafka any more."""
    exchange = Exchange()
    async with replying(lambda *_: Slow(0.5, GOOD), in_flight=8) as (replier, _, _):
        desk = clerk(replier, exchange=exchange, queries=2)
        async with asyncio.timeout(30):
            serving = asyncio.create_task(serve(desk, *(asked(WANTED, offset=n) for n in range(4)), asked(offset=9)))
            while not exchange.answers:
                await asyncio.sleep(0.005)
            assert exchange.answers[0][1].reply is None  # the last question is answered first
            assert not desk._room.locked()
            done = await serving
        assert done == dict.fromkeys((0, 1, 2, 3, 9), True)
        assert [answer.reply is not None for _, answer in exchange.answers] == [False, True, True, True, True]
        assert desk._room._value == 2


async def test_a_reply_that_is_cut_off_is_not_acknowledged_and_leaves_its_place_once() -> None:
    async with replying(lambda *_: Slow(60.0, GOOD)) as (replier, server, _):
        desk = clerk(replier, queries=2)
        pending = {0: False}
        await desk._room.acquire()
        desk._tasks.add(asyncio.create_task(desk._work(asked(WANTED), pending)))
        async with asyncio.timeout(10):
            while not server.calls:
                await asyncio.sleep(0.005)
            await desk._end()
        assert pending == {0: False}
        assert desk._room._value == 2


async def test_a_reply_cites_only_what_fits_into_the_record_with_it() -> None:
    """The model is shown what will be sent, so that nothing it cites is cut off behind it."""

    async def long(query: Query) -> Answer:
        return found(*[f"{n} {'x' * 9000}" for n in range(30)])

    async with replying(lambda _, request: wrote(("It is so.", [1]))) as (replier, server, _):
        exchange = Exchange(room=100_000)
        desk = clerk(replier, long, exchange, max_bytes=100_000)
        assert await serve(desk, asked(WANTED)) == {0: True}
        ((_, answer),) = exchange.answers
        assert answer.reply is not None
        assert 0 < len(answer.evidence) < 30
        lines = str(server.asked[0].request["messages"][1]["content"]).split("\n")
        assert len(lines) - 3 == len(answer.evidence)
        assert len(msgspec.json.encode(answer)) <= min(100_000, ANSWERS.max_bytes) - HEAD


def test_a_reply_that_does_not_fit_goes_before_any_evidence() -> None:
    sentence = Sentence(text="y" * 5000, cites=("w/c/1",))
    reply = Generated(
        text="y" * 5000, sentences=(sentence,), supported=True, refused=False, model="m", tokens=1, note=""
    )
    whole = found("x" * 1000, "z" * 1000, reply=reply)
    cut = fitting(whole, 6000)
    assert (cut.reply, cut.evidence) == (None, whole.evidence)
    assert cut.notes == ("no reply was written: it does not fit into a Kafka record",)
    assert fitting(whole, 60_000) == whole
