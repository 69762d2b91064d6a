"""The role that answers: every question gets an answer, and none is acknowledged before it has one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core.events import TEXT_LIMIT
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Forest, Retrieval
from streammem.errors import QueryError, RejectedError, SettingsError, TransientError
from streammem.flows.asking import Counter
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.records import Answer, Awaited, DeadLetter, Evidence, Header, Query, Received
from streammem.settings import KafkaSettings, Settings, WorkerSettings
from streammem.workers.duty import Pulse
from streammem.workers.query import ECHO, HEAD, Clerk, committable, fitting, refusal_of
from tests.embedding import HashingEmbedder
from tests.flows.worlds import World
from tests.stories import private, public, said

KIB = 1024


def evidence(n: int, text: str) -> Evidence:
    return Evidence(
        uid=f"w/c/{n}",
        id=str(n),
        workspace="w",
        channel="c",
        channel_name="c",
        user="u",
        user_name="U",
        ts=n,
        text=text,
    )


def answered(question: str = "q", *texts: str, headers: int = 0) -> Answer:
    navigation = tuple(
        Header(view="channel", tree="c", label="c", level=1, text="h" * 100, first=0, last=1) for _ in range(headers)
    )
    found = tuple(evidence(n, text) for n, text in enumerate(texts))
    whole = refusal_of(question, "")
    return msgspec.structs.replace(whole, error=None, abstained=not found, evidence=found, headers=navigation)


class Exchange:
    """What is sent to Kafka. `room` is the largest record in bytes; `away` so many sends fail first."""

    def __init__(self, room: int = 2**20, away: int = 0) -> None:
        self.answers: list[tuple[bytes | None, Answer]] = []
        self.letters: list[DeadLetter] = []
        self.room, self.away = room, away

    async def reply(self, key: bytes | None, headers: Any, answer: Answer) -> None:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise TransientError("Kafka is away")
        if len(msgspec.json.encode(answer)) + 2 * len(key or b"") > self.room:
            raise RejectedError("too-large", "the topic takes no record of this size")
        self.answers.append((key, answer))

    async def bury(self, letters: list[DeadLetter]) -> None:
        self.letters.extend(letters)


Ask = Callable[[Query], Awaitable[Answer]]


def clerk(ask: Ask, exchange: Exchange | None = None, store: Any = None, **rest: Any) -> Clerk:
    """A clerk over memory; `rest` are settings of the worker."""
    worker = WorkerSettings(**{"timeout": 5.0, "patience": 0.01, **rest})
    parts: Any = SimpleNamespace(
        settings=Settings(worker=worker, kafka=KafkaSettings()),
        exchange=exchange or Exchange(),
        structure=store or MemoryStructure(),
        topics=SimpleNamespace(committed=_committed),
        log=SimpleNamespace(end=_end),
    )
    counter: Any = SimpleNamespace(ask=ask)
    return Clerk(parts, counter, Pulse("query"))


async def _committed(group: str) -> dict[str, dict[int, int]]:
    return {"messages": {0: 5}}


async def _end() -> dict[int, int]:
    return {0: 7}


def asked(value: Any = None, offset: int = 0, *, age: float = 0.0, **rest: Any) -> Received:
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value or Query(text="who?"))
    at = int((time.time() - age) * 1e6)
    return Received(
        **{"topic": "memory.queries.v1", "partition": 0, "at": at, "key": b"k", **rest}, offset=offset, value=raw
    )


async def yes(query: Query) -> Answer:
    return answered(query.text, "evidence")


# --------------------------------------------------------------------------------------------------------- answering


async def test_a_question_is_answered() -> None:
    answer = await clerk(yes).answer(asked())
    assert (answer.question, answer.error, len(answer.evidence)) == ("who?", None, 1)


JUNK = {
    "no bytes": b"",
    "no JSON": b"\xff\x00",
    "no object": b"[1]",
    "no text": b"{}",
    "an empty text": b'{"text":" "}',
    "a number as text": b'{"text":7}',
    "a limit in words": b'{"text":"q","limit":"many"}',
    "a position in words": b'{"text":"q","wait_for":{"log":"0:1"}}',
    "nested too deeply": b'{"text":"q","more":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "bytes that are no UTF-8": b'{"text":"\xff\xfe"}',
}


@pytest.mark.parametrize("name", JUNK)
async def test_what_is_no_question_is_buried_and_answered_so(name: str) -> None:
    exchange = Exchange()
    answer = await clerk(yes, exchange).answer(asked(JUNK[name]))
    assert answer.error is not None
    assert answer.error.startswith("this is no question: ")
    assert (answer.evidence, answer.abstained) == ((), True)
    assert [(letter.role, letter.reason) for letter in exchange.letters] == [("query", "no-question")]


async def test_a_null_value_is_no_question() -> None:
    record = Received(topic="memory.queries.v1", partition=0, offset=0, at=int(time.time() * 1e6))
    answer = await clerk(yes).answer(record)
    assert "no question" in str(answer.error)


async def test_a_question_that_cannot_be_answered_as_asked_says_why_in_short() -> None:
    async def no(query: Query) -> Answer:
        raise QueryError(f"there is nobody called {query.asker!r}")

    answer = await clerk(no).answer(asked(Query(text="t" * 5000, asker="\x00" * 100_000)))
    assert str(answer.error).startswith("there is nobody called")
    assert len(msgspec.json.encode(answer)) < 20 * KIB
    assert len(answer.question) == ECHO


async def test_a_fault_is_told_without_what_it_said_and_stops_nothing() -> None:
    async def fault(query: Query) -> Answer:
        raise ValueError("secret " + query.text)

    answer = await clerk(fault).answer(asked(Query(text="the merger")))
    assert answer.error == "the question failed: ValueError (the worker's log says more)"


async def test_a_wrong_set_up_is_told_in_its_own_words() -> None:
    async def wrong(query: Query) -> Answer:
        raise SettingsError("the collection is of another model: run `streammem rebuild --distributed`")

    answer = await clerk(wrong).answer(asked())
    assert answer.error is not None
    assert "another model" in answer.error


async def test_a_server_that_is_away_for_a_moment_is_waited_for() -> None:
    tries = 0

    async def late(query: Query) -> Answer:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise TransientError("Qdrant at h:1 is away")
        return await yes(query)

    desk = clerk(late)
    assert (await desk.answer(asked())).error is None
    assert desk.pulse.waiting == ""


async def test_a_server_that_stays_away_is_named_in_the_answer_in_time() -> None:
    async def away(query: Query) -> Answer:
        raise TransientError("Qdrant at h:1 is away")

    answer = await clerk(away, timeout=0.3).answer(asked())
    assert answer.error == ("not answered within 0.3 s (Qdrant at h:1 is away): ask again, or start more query workers")


async def test_after_a_question_that_was_answered_nothing_is_waited_for() -> None:
    faults = [TransientError("Qdrant is away")] * 50

    async def sometimes(query: Query) -> Answer:
        if query.text == "first":
            raise faults.pop()
        return await yes(query)

    desk = clerk(sometimes, timeout=0.3)
    await desk.answer(asked(Query(text="first")))
    assert desk.pulse.waiting == "Qdrant is away"
    await desk.answer(asked(Query(text="second")))
    assert desk.pulse.waiting == ""


async def test_a_question_that_is_too_old_is_not_worked_on() -> None:
    async def never(query: Query) -> Answer:
        raise AssertionError

    answer = await clerk(never).answer(asked(age=3600))
    assert "3600 s old" in str(answer.error)


async def test_the_time_left_counts_from_when_the_question_was_put() -> None:
    async def slow(query: Query) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    answer = await asyncio.wait_for(clerk(slow, timeout=3600.0).answer(asked(age=3599.9)), 60)
    assert "not answered within 3600 s" in str(answer.error)


async def test_a_question_from_the_future_has_no_more_time_than_others() -> None:
    async def slow(query: Query) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    answer = await asyncio.wait_for(clerk(slow, timeout=0.2).answer(asked(age=-3600)), 60)
    assert "not answered within 0.2 s" in str(answer.error)


# ------------------------------------------------------------------------------------------------------------ waiting


async def test_a_question_waits_for_what_it_names() -> None:
    store = MemoryStructure()
    desk = clerk(yes, store=store)
    work = asyncio.create_task(desk.answer(asked(Query(text="q", wait_for=Awaited(inputs={"messages": {0: 5}})))))
    for name in (STRUCTURED, INDEXED):
        await asyncio.sleep(0.1)
        assert not work.done()
        await store.advance(name, {0: 7})
    assert (await work).error is None


@pytest.mark.parametrize(
    "awaited",
    [Awaited(log={0: 10**17}), Awaited(inputs={"messages": {0: 6}}), Awaited(log={99: 1}), Awaited(log={-1: 1})],
)
async def test_what_never_comes_is_told_when_the_time_is_up(awaited: Awaited) -> None:
    store = MemoryStructure()
    for name in (STRUCTURED, INDEXED):
        await store.advance(name, {0: 7})
    answer = await clerk(yes, store=store, timeout=0.3).answer(asked(Query(text="q", wait_for=awaited)))
    assert answer.error == "what was to be waited for is not findable after 0.3 s: ask again later"


async def test_an_input_topic_that_there_is_not_is_told_at_once() -> None:
    answer = await clerk(yes, timeout=3600.0).answer(asked(Query(text="q", wait_for=Awaited(inputs={"chat": {0: 1}}))))
    assert answer.error == "there is no input topic 'chat' to wait for: it can be directory or messages"


# -------------------------------------------------------------------------------------------------- what is too large


async def counter() -> Counter:
    world = World()
    await world.place([public(), *private("leads", "ana"), said("1", "the launch is in May")])
    return Counter(world.store, MemoryIndex(64), HashingEmbedder(), DEFAULT_RULES, forest=Forest(), numbers=Retrieval())


async def test_a_question_longer_than_a_message_may_be_is_refused_in_few_words() -> None:
    desk = clerk((await counter()).ask)
    answer = await desk.answer(asked(Query(text="launch " * (TEXT_LIMIT // 7 + 1))))
    assert f"at most {TEXT_LIMIT} are read" in str(answer.error)
    assert len(answer.question) == ECHO
    short = await desk.answer(asked(Query(text="launch " * (TEXT_LIMIT // 7))))
    assert short.error is None


async def test_an_unknown_workspace_asker_or_channel_is_told() -> None:
    ask = (await counter()).ask
    for query in (Query(text="q", workspace="x"), Query(text="q", asker="nobody"), Query(text="q", channels=("x",))):
        assert (await clerk(ask).answer(asked(query))).error is not None


@settings(max_examples=60)
@given(st.lists(st.text(max_size=3000), max_size=8), st.integers(0, 30), st.integers(2000, 20_000))
def test_an_answer_is_cut_to_fit_best_evidence_first(texts: list[str], headers: int, room: int) -> None:
    whole = answered("q", *texts, headers=headers)
    found = fitting(whole, room)
    assert len(msgspec.json.encode(found)) <= room + HEAD // 4
    if len(msgspec.json.encode(whole)) <= room:
        assert found == whole
        return
    assert found.headers == ()
    assert found.evidence == whole.evidence[: len(found.evidence)]
    assert found.notes[-1].startswith(f"{len(texts) - len(found.evidence)} messages and the headers are left out")
    assert found.abstained == (not found.evidence)


async def serve(desk: Clerk, *records: Received) -> dict[int, bool]:
    """What the loop does with these records of one partition; what is pending then."""
    pending: dict[int, bool] = {}
    for record in records:
        pending[record.offset] = False
        await desk._room.acquire()
        task = asyncio.create_task(desk._work(record, pending))
        desk._tasks.add(task)
        task.add_done_callback(desk._done)
    while desk._tasks:
        await asyncio.sleep(0.001)
    return pending


async def test_twenty_of_the_longest_messages_come_as_an_answer_that_fits_and_says_so() -> None:
    async def long(query: Query) -> Answer:
        return answered(query.text, *["\N{PILE OF POO}" * (64 * KIB)] * 20)

    exchange = Exchange(room=2**20)
    assert await serve(clerk(long, exchange), asked()) == {0: True}
    ((_, answer),) = exchange.answers
    assert 0 < len(answer.evidence) < 20
    assert answer.error is None
    assert "left out" in answer.notes[-1]


async def test_an_answer_that_the_topic_does_not_take_becomes_one_that_says_so() -> None:
    async def long(query: Query) -> Answer:
        return answered(query.text, "x" * 100_000)

    exchange = Exchange(room=10_000)
    assert await serve(clerk(long, exchange), asked()) == {0: True}
    ((_, answer),) = exchange.answers
    assert answer.error == "the answer is larger than the topic of answers takes: ask for less"


async def test_a_question_to_which_no_answer_fits_is_buried_and_blocks_nobody() -> None:
    exchange = Exchange()
    done = await serve(clerk(yes, exchange), asked(key=b"k" * 600_000), asked(offset=1))
    assert done == {0: True, 1: True}
    assert [letter.reason for letter in exchange.letters] == ["no-answer-fits"]
    assert len(exchange.answers) == 1


# ------------------------------------------------------------------------------------------------- acknowledgements


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 1000), st.sets(st.integers(0, 29)))
def test_what_may_be_committed_is_right_behind_the_answered_questions_that_no_unanswered_one_precedes(
    marks: list[bool], start: int, holes: set[int]
) -> None:
    pending = {start + n: mark for n, mark in enumerate(marks) if n not in holes}
    found = committable(pending)
    unanswered = [offset for offset, mark in pending.items() if not mark]
    first = min(unanswered, default=None)
    before = [offset for offset in pending if first is None or offset < first]
    assert found == (max(before) + 1 if before else None)
    assert found is None or all(pending[offset] for offset in pending if offset < found)


class Consumer:
    """The place up to which a group has committed, and what it owns."""

    def __init__(self, *owned: int) -> None:
        self.owned, self.committed = set(owned), dict.fromkeys(owned, 0)

    def assignment(self) -> set[int]:
        return self.owned

    async def commit(self, offsets: dict[int, int]) -> None:
        await asyncio.sleep(0)
        self.committed.update(offsets)


steps = st.lists(
    st.tuples(st.sampled_from(("take", "answer", "answer", "commit")), st.integers(0, 1), st.integers(0, 5)),
    max_size=60,
)


@given(steps)
def test_nothing_behind_an_unanswered_question_is_ever_committed(steps_: list[tuple[str, int, int]]) -> None:
    async def story() -> None:
        desk, consumer = clerk(yes), Consumer(0, 1)
        taken: dict[int, int] = {0: 0, 1: 0}
        answers: dict[int, set[int]] = {0: set(), 1: set()}
        parts: Any = desk._pending
        for step, part, which in steps_:
            if step == "take":
                parts.setdefault(part, {})[taken[part]] = False
                taken[part] += 1
            elif step == "answer":
                waiting = [offset for offset, done in parts.get(part, {}).items() if not done]
                if waiting:
                    offset = waiting[which % len(waiting)]
                    parts[part][offset] = True
                    answers[part].add(offset)
            else:
                await desk.commit(consumer)
            for each, place in consumer.committed.items():
                assert answers[each] >= set(range(place))
        for part, each in parts.items():
            for offset in each:
                parts[part][offset] = True
        await desk.commit(consumer)
        assert consumer.committed == taken
        assert not any(parts.values())

    asyncio.run(story())


async def test_a_partition_that_another_process_has_taken_over_is_not_committed() -> None:
    desk, consumer = clerk(yes), Consumer(0)
    parts: Any = desk._pending
    parts[0], parts[1] = {5: True}, {9: True}
    await desk.commit(consumer)
    assert consumer.committed == {0: 6}


async def test_the_answer_comes_before_its_question_is_acknowledged_and_again_while_kafka_is_away() -> None:
    exchange = Exchange(away=3)
    assert await serve(clerk(yes, exchange), asked(), asked(offset=1)) == {0: True, 1: True}
    assert len(exchange.answers) == 2


async def test_a_fault_that_no_answer_can_tell_ends_the_worker_with_the_question_not_acknowledged() -> None:
    class Forbidden(Exchange):
        async def reply(self, key: Any, headers: Any, answer: Answer) -> None:
            raise SettingsError("Kafka does not allow producing to memory.answers.v1")

    desk = clerk(yes, Forbidden())
    assert await serve(desk, asked()) == {0: False}
    assert [type(fault) for fault in desk._faults] == [SettingsError]


async def test_questions_that_are_cut_off_are_not_acknowledged_and_leave_room_for_others() -> None:
    async def slow(query: Query) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    desk = clerk(slow, queries=2)
    pending: dict[int, bool] = {}
    for offset in range(2):
        pending[offset] = False
        await desk._room.acquire()
        desk._tasks.add(asyncio.create_task(desk._work(asked(offset=offset), pending)))
    await asyncio.sleep(0.01)
    await desk._end()
    assert pending == {0: False, 1: False}
    async with asyncio.timeout(5):
        for _ in range(2):
            await desk._room.acquire()
    assert desk._faults == []
