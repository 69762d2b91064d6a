"""What becomes of a batch in each role: the records that can be used are used, the others have a reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import events, positions
from streammem.core.identifiers import DEFAULT_RULES
from streammem.errors import RejectedError, TransientError
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.ports import LogReader
from streammem.records import DeadLetter, Event, Ingest, LogEntry, MessageEvent, Position, Received, Refusal
from streammem.workers import stages
from streammem.workers.stages import KIB, LogStage, dead_letter, freshness, indexing, ingesting, structuring
from tests.embedding import HashingEmbedder
from tests.stories import edited, public, said
from tests.strategies import histories, keyed

NOW = 1_772_442_000_000_000
"""When every record here came, in µs."""


def record(value: bytes | None, offset: int = 0, **rest: Any) -> Received:
    return Received(**{"topic": "chat.messages.v1", "partition": 0, "at": NOW, **rest}, offset=offset, value=value)


def changed(told: Event | None = None, /, **fields: Any) -> bytes:
    """A good event as JSON with some fields set otherwise; None takes one away."""
    row = msgspec.to_builtins(told or said("1", "hello"))
    row.update(fields)
    return msgspec.json.encode({name: value for name, value in row.items() if value is not None})


GOOD = changed()
DEEP = GOOD[:-1] + b',"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


async def taken(*values: bytes | None, log: Any = None, **rest: Any) -> tuple[list[Event], tuple[DeadLetter, ...]]:
    """What a batch leaves in the log, and what it refuses."""
    log = log or MemoryLog()
    done = await ingesting(log, MemoryStructure().forbidden)(
        [record(value, n, **rest) for n, value in enumerate(values)]
    )
    assert done.handled + len(done.refused) == len(values)
    return [entry.event for entry in await log.read({}, 1000)], done.refused


# ---------------------------------------------------------------------------------------------------------- ingest


REFUSED = {
    "bytes that are not JSON": (b"\x00\xffjunk", "not-json"),
    "JSON that breaks off": (GOOD[:40], "not-json"),
    "JSON nested too deeply": (DEEP, "not-json"),
    "a number": (b"17", "invalid-event"),
    "a list": (b"[]", "invalid-event"),
    "null": (b"null", "invalid-event"),
    "an object that is no event": (b"{}", "invalid-event"),
    "an unknown event": (changed(event="party"), "invalid-event"),
    "an event whose kind is a list": (changed(event=["message"]), "invalid-event"),
    "no workspace": (changed(workspace=None), "invalid-event"),
    "a null value": (None, "null-value"),
    "no bytes": (b"", "empty-value"),
    "blanks": (b" \n", "empty-value"),
    "no time": (changed(ts=None), "no-timestamp"),
    "a time before there were computers": (changed(ts="1815-12-10T00:00:00Z"), "time-out-of-range"),
    "an unknown schema version": (changed(schema_version="2.0"), "unknown-schema-version"),
    "an event too large for the log": (changed(permalink="x" * 1_000_000), "too-large"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_record_that_cannot_be_used_is_refused_with_a_stable_reason_and_the_rest_is_kept(name: str) -> None:
    value, reason = REFUSED[name]
    kept, refused = await taken(GOOD, value, changed(said("2", "world")))
    assert [event.id for event in kept if isinstance(event, MessageEvent)] == ["1", "2"]
    (letter,) = refused
    assert (letter.role, letter.reason, letter.topic, letter.partition) == ("ingest", reason, "chat.messages.v1", 0)
    assert (letter.offset, letter.size) == (1, None if value is None else len(value))
    assert len(msgspec.json.encode(letter)) < 8 * KIB


ACCEPTED = {
    "as it is": (GOOD, "hello"),
    "after a byte order mark": (b"\xef\xbb\xbf" + GOOD, "hello"),
    "with NaN in an unknown field": (GOOD[:-1] + b',"score":NaN}', "hello"),
    "with half of a surrogate pair": (GOOD.replace(b"hello", rb"a\ud83db"), "a\N{REPLACEMENT CHARACTER}b"),
    "with bytes that are no UTF-8": (GOOD.replace(b"hello", b"a\xffb"), "a\N{REPLACEMENT CHARACTER}b"),
    "in the words of the schema proposal": (changed(event=None, workspace=None, tenant="w"), "hello"),
    "with an unknown type of channel": (changed(channel={"id": "c", "type": "huddle"}), "hello"),
    "with neither text nor attachments": (changed(text=" "), ""),
    "of a later minor version": (changed(schema_version="1.7", mood="good"), "hello"),
    "with a huge number in an unknown field": (GOOD[:-1] + b',"more":1' + b"0" * 5000 + b"}", "hello"),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_record_that_says_enough_is_used(name: str) -> None:
    value, text = ACCEPTED[name]
    kept, refused = await taken(value)
    assert refused == ()
    (event,) = kept
    assert isinstance(event, MessageEvent)
    assert (event.workspace, event.channel.id, event.text) == ("w", "c", text)


async def test_two_mebibytes_of_text_are_cut_with_a_mark_and_kept() -> None:
    (event,), refused = await taken(changed(text="é" * 2**20))
    assert refused == ()
    assert isinstance(event, MessageEvent)
    assert (event.text, event.text_truncated, event.text_bytes) == ("é" * events.TEXT_LIMIT, True, 2**21)


@pytest.mark.parametrize("key", [None, b"", b"w:c", b"of somebody else", b"\xff\x00"])
async def test_the_key_of_an_input_record_does_not_matter(key: bytes | None) -> None:
    kept, refused = await taken(GOOD, key=key)
    assert (len(kept), refused) == (1, ())


async def test_what_is_kept_says_where_and_when_it_came() -> None:
    log = MemoryLog()
    await ingesting(log, MemoryStructure().forbidden)(
        [record(GOOD, 17, partition=3), record(changed(said("2", "b")), 18, partition=3)]
    )
    marks = [entry.event.ingest for entry in await log.read({}, 10)]
    assert [m.origin for m in marks if m] == ["chat.messages.v1/3@17", "chat.messages.v1/3@18"]
    assert {events.micros(m.received_at) for m in marks if m and m.received_at} == {NOW}


async def test_an_origin_that_an_exporter_states_stands_and_a_time_that_it_states_does_not() -> None:
    stated = msgspec.structs.replace(
        said("1", "a"), ingest=Ingest(origin="export.zip#7", received_at=events.moment(7), retry=2)
    )
    (event,), _ = await taken(events.encode(stated))
    assert event.ingest == Ingest(origin="export.zip#7", received_at=events.moment(NOW), retry=2)


@pytest.mark.parametrize("at", [-1000, 0, 10**19])
async def test_a_record_of_an_impossible_time_is_used(at: int) -> None:
    kept, refused = await taken(GOOD, at=at)
    assert (len(kept), refused) == (1, ())


class Narrow(MemoryLog):
    """A log that refuses what has `narrow` in its key, as Kafka refuses what is too large: the whole append."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    async def append(self, events: Sequence[tuple[str, Event]]) -> Any:
        self.tries += 1
        if any("narrow" in key for key, _ in events):
            raise RejectedError("too-large", "more than the log takes")
        return await super().append(events)


async def test_what_the_log_itself_refuses_is_given_up_alone() -> None:
    log = Narrow()
    told = [changed(said("narrow" if n in (3, 40) else str(n), "hi", minute=n, channel=f"c{n}")) for n in range(64)]
    kept, refused = await taken(*told[:10], b"junk", *told[10:], log=log)
    assert len(kept) == 62
    assert [(letter.reason, letter.offset) for letter in refused] == [
        ("not-json", 10),
        ("too-large", 3),
        ("too-large", 41),
    ]
    assert log.tries < 40


async def test_a_log_that_is_away_is_no_refusal() -> None:
    class Away(MemoryLog):
        async def append(self, events: Any) -> Any:
            raise TransientError("away")

    with pytest.raises(TransientError):
        await ingesting(Away(), MemoryStructure().forbidden)([record(GOOD)])


async def test_a_batch_given_again_adds_nothing() -> None:
    log = MemoryLog()
    batch = [record(GOOD, 0), record(changed(said("2", "b")), 1), record(GOOD, 2)]
    for _ in range(2):
        assert (await ingesting(log, MemoryStructure().forbidden)(batch)).handled == 3
    assert len(await log.read({}, 10)) == 2


@settings(max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
            lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=4), of, max_size=3),
            max_leaves=8,
        ).map(lambda value: msgspec.json.encode({**msgspec.to_builtins(said("1", "a")), "ts": value, "text": value})),
        st.tuples(
            st.sampled_from(list(MessageEvent.__struct_fields__)), st.none() | st.integers() | st.text(max_size=3)
        ).map(lambda pair: msgspec.json.encode({**msgspec.to_builtins(said("1", "a")), pair[0]: pair[1]})),
    )
)
def test_any_value_is_used_or_refused(value: bytes) -> None:
    kept, refused = asyncio.run(taken(value, GOOD))
    assert len(kept) >= 1
    assert len(refused) <= 1


# ----------------------------------------------------------------------------------------------------- dead letters


async def test_a_dead_letter_keeps_the_first_kib_and_the_size() -> None:
    whole = bytes(range(256)) * 40
    letter = dead_letter("ingest", record(whole, 7, key=b"k" * 5000), Refusal(reason="r", detail="d" * 5000))
    assert (letter.value, letter.size, letter.key) == (whole[:KIB], len(whole), b"k" * KIB)
    assert len(letter.detail) == KIB
    assert abs(letter.at / 1e6 - time.time()) < 60
    assert msgspec.json.decode(msgspec.json.encode(letter), type=DeadLetter) == letter


async def test_the_headers_of_a_dead_letter_are_text_whatever_they_were() -> None:
    headers = (("a", b"1"), ("b", b"\xff"), ("c", None), ("a", b"2"))
    letter = dead_letter("ingest", record(b"x", headers=headers), Refusal(reason="r"))
    assert letter.headers == {"a": "2", "b": "\N{REPLACEMENT CHARACTER}", "c": ""}


async def test_a_dead_letter_fits_into_its_topic_however_many_headers_there_were() -> None:
    headers = tuple((f"{n}" * 300, b"\x00" * 3000) for n in range(3000))
    letter = dead_letter("ingest", record(b"\x00" * 10**6, headers=headers), Refusal(reason="r", detail="\x00" * 9999))
    assert len(msgspec.json.encode(letter)) < 500_000


# ------------------------------------------------------------------------------------------------ structure and index


class Partitioned(LogReader):
    """A log of several partitions with holes: what Kafka's is. Counts what is read."""

    def __init__(self, *partitions: Iterable[Event | bytes | None]) -> None:
        self._records = [
            [self._record(number, offset, each) for offset, each in enumerate(of)]
            for number, of in enumerate(partitions)
        ]
        self.given = 0

    def _record(self, partition: int, offset: int, each: Event | bytes | None) -> Received:
        key, value = (b"k", each)
        if each is not None and not isinstance(each, bytes):
            ((name, event),) = keyed([each])
            key, value = name.encode(), events.encode(event)
        return record(value, offset, partition=partition, topic="memory.log.v1", key=key)  # type: ignore[arg-type]

    def records(self, partition: int, start: int = 0, stop: int | None = None) -> list[Received]:
        return self._records[partition][start:stop]

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        entries = [
            LogEntry(position=r.offset + 1, partition=n, key=(r.key or b"").decode(), event=events.decode(r.value))
            for n, of in enumerate(self._records)
            for r in of[after.get(n, 0) :]
            if r.value is not None and r.value.startswith(b"{")
        ][:limit]
        self.given += len(entries)
        return entries

    async def end(self) -> Position:
        return {n: len(of) for n, of in enumerate(self._records) if of}


def structure_of(log: Partitioned, store: MemoryStructure) -> LogStage:
    return structuring(log, store, DEFAULT_RULES)


def talk(*numbers: int, channel: str = "c") -> list[Event]:
    return [said(str(n), f"number {n} of DOC-{n}", channel=channel) for n in numbers]


async def messages(store: MemoryStructure) -> int:
    return (await store.counts())["messages"]


async def test_a_batch_of_the_log_is_applied_and_its_end_recorded() -> None:
    log, store = Partitioned(talk(0, 1, 2), talk(3, channel="d")), MemoryStructure()
    done = await structure_of(log, store)([*log.records(0), *log.records(1)])
    assert (done.handled, done.refused, await messages(store)) == (4, (), 4)
    assert await store.applied(STRUCTURED) == {0: 3, 1: 1}


async def test_what_says_nothing_moves_the_position_all_the_same() -> None:
    log, store = Partitioned([*talk(0), None, b"junk", None], [None]), MemoryStructure()
    done = await structure_of(log, store)([*log.records(0), *log.records(1)])
    assert (done.handled, [letter.reason for letter in done.refused]) == (1, ["not-a-log-entry"])
    assert await store.applied(STRUCTURED) == {0: 4, 1: 1}


@pytest.mark.parametrize("value", [b"junk", DEEP, b"\xff", b"{}", b""])
async def test_what_is_no_entry_is_given_up_with_its_place(value: bytes) -> None:
    log, store = Partitioned([b"later"]), MemoryStructure()
    junk = record(value, 0, topic="memory.log.v1", key=b"k")
    (letter,) = (await structure_of(log, store)([junk])).refused
    assert (letter.role, letter.reason, letter.topic) == ("structure", "not-a-log-entry", "memory.log.v1")


async def test_an_entry_without_a_key_is_none() -> None:
    store = MemoryStructure()
    nameless = record(GOOD, 0, topic="memory.log.v1", key=None)
    done = await structure_of(Partitioned([]), store)([nameless])
    assert ([letter.reason for letter in done.refused], await messages(store)) == (["not-a-log-entry"], 0)


async def test_what_the_store_has_forgotten_is_read_from_the_log_before_the_next_batch() -> None:
    log, store = Partitioned(talk(*range(10)), talk(20, 21, channel="d")), MemoryStructure()
    await structure_of(log, store)(log.records(0, 4))  # what came before was applied and then forgotten
    assert await messages(store) == 10
    assert await store.applied(STRUCTURED) == {0: 10}
    assert await store.applied(STRUCTURED) == {0: 10}
    assert log.given <= 10


async def test_gaps_are_filled_in_the_partitions_of_the_batch_only() -> None:
    log, store = Partitioned(talk(*range(5)), talk(20, 21, channel="d"), talk(30, channel="e")), MemoryStructure()
    await structure_of(log, store)([*log.records(0, 3), *log.records(1, 1)])
    assert await store.applied(STRUCTURED) == {0: 5, 1: 2}
    assert await messages(store) == 7


async def test_what_is_forgotten_between_two_batches_is_done_again_by_the_next() -> None:
    log, store = Partitioned(talk(*range(10))), MemoryStructure()
    stage = structure_of(log, store)
    await stage(log.records(0, 0, 5))
    await store.clear()
    await stage(log.records(0, 5, 7))
    assert (await messages(store), await store.applied(STRUCTURED)) == (7, {0: 7})


async def test_what_is_forgotten_when_nothing_arrives_any_more_is_mended() -> None:
    log, store = Partitioned([*talk(*range(5)), None, b"junk"], talk(20, channel="d")), MemoryStructure()
    stage = structure_of(log, store)
    await stage([*log.records(0), *log.records(1)])
    await store.clear()
    await stage.mend()
    assert await messages(store) == 6
    assert await store.applied(STRUCTURED) == {
        0: 7,
        1: 1,
    }  # behind what says nothing too, or it would be mended for ever
    given_ = log.given
    await stage.mend()
    assert log.given == given_


async def test_a_new_process_mends_nothing() -> None:
    log, store = Partitioned(talk(*range(5))), MemoryStructure()
    await structure_of(log, store).mend()
    assert (await messages(store), log.given) == (0, 0)


async def test_what_other_processes_acknowledged_and_the_store_has_forgotten_is_mended_too() -> None:
    log, store = Partitioned(talk(*range(5)), talk(20, channel="d")), MemoryStructure()
    await structure_of(log, store).mend({0: 4, 1: 1})
    assert (await messages(store), await store.applied(STRUCTURED)) == (5, {0: 4, 1: 1})


async def test_mending_goes_no_further_than_this_process_came() -> None:
    log, store = Partitioned(talk(*range(9))), MemoryStructure()
    stage = structure_of(log, store)
    await stage(log.records(0, 0, 4))
    await store.clear()
    await stage.mend()
    assert (await messages(store), await store.applied(STRUCTURED)) == (4, {0: 4})


@settings(deadline=None, max_examples=40)
@given(histories(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_batches_in_any_cut_with_repeats_and_a_store_that_forgets_give_the_same_memory(
    history: list[Event], partitions: int, chance: Any
) -> None:
    async def story() -> None:
        log = Partitioned(*[history[n::partitions] for n in range(partitions)])
        store, wanted = MemoryStructure(), MemoryStructure()
        stage = structure_of(log, store)
        todo = [log.records(n) for n in range(partitions)]
        while any(todo):
            n = chance.choice([n for n, left in enumerate(todo) if left])
            size = chance.randint(1, 4)
            batch, todo[n] = todo[n][:size], todo[n][size:]
            for _ in range(chance.randint(1, 2)):
                await stage(batch)
            if chance.random() < 0.2:
                await store.clear()
            if chance.random() < 0.2:
                await stage.mend()
        await stage.mend()
        for n in range(partitions):
            await structure_of(log, wanted)(log.records(n))
        assert sorted([row async for row in store.everything()]) == sorted([row async for row in wanted.everything()])
        assert await store.applied(STRUCTURED) == await log.end()

    asyncio.run(story())


async def test_the_index_waits_until_the_structure_has_come_so_far() -> None:
    log, store, vectors = Partitioned(talk(0, 1, 2)), MemoryStructure(), MemoryIndex(64)
    stage = indexing(log, store, vectors, HashingEmbedder(), DEFAULT_RULES)
    work = asyncio.create_task(stage(log.records(0)))
    await structure_of(log, store)(log.records(0, 0, 2))
    await asyncio.sleep(5 * stages.LOOK)
    assert (work.done(), (await vectors.counts())["message points"]) == (False, 0)
    await structure_of(log, store)(log.records(0, 2))
    assert (await work).handled == 3
    assert (await store.applied(INDEXED), (await vectors.counts())["message points"]) == ({0: 3}, 3)


async def test_the_index_does_not_wait_for_a_batch_that_says_nothing() -> None:
    log, store = Partitioned([None, None]), MemoryStructure()
    stage = indexing(log, store, MemoryIndex(64), HashingEmbedder(), DEFAULT_RULES)
    await asyncio.wait_for(stage(log.records(0)), 5)
    assert await store.applied(INDEXED) == {0: 2}


async def test_a_cancelled_batch_leaves_the_stage_ready_for_the_next() -> None:
    log, store, vectors = Partitioned(talk(0, 1)), MemoryStructure(), MemoryIndex(64)
    stage = indexing(log, store, vectors, HashingEmbedder(), DEFAULT_RULES)
    work = asyncio.create_task(stage(log.records(0)))
    await asyncio.sleep(3 * stages.LOOK)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await structure_of(log, store)(log.records(0))
    assert (await asyncio.wait_for(stage(log.records(0)), 5)).handled == 2


# --------------------------------------------------------------------------------------------------------- positions


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=20))
def test_a_batch_lies_between_before_and_reached(places: list[tuple[int, int]]) -> None:
    batch = [record(None, offset, partition=partition) for partition, offset in places]
    before, reached = stages.before(batch), stages.reached(batch)
    assert before.keys() == reached.keys() == {partition for partition, _ in places}
    for partition, offset in places:
        assert before[partition] <= offset < reached[partition]
    assert positions.covers(reached, before)


async def test_freshness_is_the_time_from_arrival_of_messages_alone() -> None:
    came = Ingest(received_at=events.moment(NOW))
    told: list[Event] = [
        msgspec.structs.replace(said("1", "a"), ingest=came),
        msgspec.structs.replace(public(), ingest=came),
        said("2", "b"),
        msgspec.structs.replace(edited(said("1", "a"), "c", 3), ingest=Ingest(origin="import")),
    ]
    entries = [LogEntry(position=n, key="k", event=event) for n, event in enumerate(told, 1)]
    assert freshness(entries, NOW / 1e6 + 2.5) == (2.5,)
