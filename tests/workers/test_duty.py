"""How a role goes through its batches: nothing is acknowledged before its effects, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.errors import MemoryFormatError, RejectedError, SettingsError, TransientError
from streammem.records import DeadLetter, Received
from streammem.workers import duty as module
from streammem.workers.duty import WINDOW, BurstError, Duty, Pulse, pause, percentiles, persist
from streammem.workers.stages import Done


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(module, "pause", lambda *_: 0.0)


def batch(size: int = 1, start: int = 0) -> list[Received]:
    return [Received(topic="t", partition=0, offset=start + n, at=0, value=b"x") for n in range(size)]


def letter(n: int = 0) -> DeadLetter:
    return DeadLetter(role="ingest", reason="not-json", topic="t", partition=0, offset=n, at=0)


Effect = Callable[[], None]


class Told:
    """A duty whose effects are listed as they are done; each of `faults` is raised once, in turn, before an effect."""

    def __init__(self, *faults: Exception, refused: int = 0, handled: int = 1, burst: int = 100) -> None:
        self.events: list[str] = []
        self._faults = list(faults)
        self._done = Done(handled, tuple(letter(n) for n in range(refused)))
        self.duty = Duty(self._stage, self._bury, Pulse("ingest"), burst=burst, longest=1.0)

    def _fail(self) -> None:
        if self._faults:
            self.events.append("fault")
            raise self._faults.pop(0)

    async def _stage(self, records: Sequence[Received]) -> Done:
        self._fail()
        self.events.append("effect")
        return self._done

    async def _bury(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            self._fail()
            self.events.append(f"bury {len(letters)}")

    async def take(self, size: int = 1) -> bool:
        """What the Faust loop does with a batch. Whether it came to the acknowledgement."""
        work = asyncio.ensure_future(self._taken(size))
        await asyncio.wait([work, self.duty.failed], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.sleep(0.01)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return False
        return True

    async def _taken(self, size: int) -> None:
        await self.duty.do(batch(size))
        self.events.append("acknowledged")


async def test_the_effects_come_first_then_the_dead_letters_then_the_acknowledgement() -> None:
    told = Told(refused=2)
    assert await told.take(3)
    assert told.events == ["effect", "bury 2", "acknowledged"]


async def test_while_a_server_is_away_the_batch_is_tried_again_and_not_acknowledged() -> None:
    told = Told(*[TransientError("away")] * 3)
    assert await told.take()
    assert told.events == ["fault"] * 3 + ["effect", "acknowledged"]
    assert not told.duty.failed.done()


async def test_a_dead_letter_that_cannot_be_sent_is_sent_again_without_the_effects_again() -> None:
    class Late(Told):
        async def _stage(self, records: Sequence[Received]) -> Done:
            self.events.append("effect")
            return self._done

    told = Late(TransientError("away"), TransientError("away"), refused=1)
    assert await told.take()
    assert told.events == ["effect", "fault", "fault", "bury 1", "acknowledged"]


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("bug"),
        SettingsError("wrong"),
        MemoryFormatError("old"),
        RejectedError("too-large"),
        OSError(28, "full"),
    ],
)
async def test_a_fault_ends_the_duty_with_the_batch_not_acknowledged(fault: Exception) -> None:
    told = Told(fault)
    assert not await told.take()
    assert told.events == ["fault"]
    with pytest.raises(type(fault)):
        told.duty.failed.result()


async def test_a_fault_while_burying_does_not_acknowledge_either() -> None:
    class Broken(Told):
        async def _stage(self, records: Sequence[Received]) -> Done:
            return self._done

    told = Broken(ValueError("bug"), refused=1)
    assert not await told.take()
    assert told.events == ["fault"]


async def test_after_a_fault_no_other_batch_is_acknowledged_by_it_and_the_first_fault_is_told() -> None:
    told = Told(ValueError("first"), ValueError("second"))
    assert not await told.take()
    assert not await told.take()
    with pytest.raises(ValueError, match="first"):
        told.duty.failed.result()


async def test_a_batch_that_is_cancelled_in_the_middle_is_not_acknowledged_and_is_no_failure() -> None:
    entered = asyncio.Event()

    async def stage(records: Sequence[Received]) -> Done:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    duty = Duty(stage, Told()._bury, Pulse("index"), burst=1, longest=1.0)
    work = asyncio.create_task(duty.do(batch()))
    await entered.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not duty.failed.done()
    assert duty.pulse.beat().handled == 0


async def ends_as_it_should(take: Callable[[Told], Awaitable[None]]) -> bool:
    """The check that a loop must pass: whatever fails, the acknowledgement is the last thing that happens."""
    for faults in ([], [TransientError("away")], [ValueError("bug")]):
        told = Told(*faults)
        work = asyncio.ensure_future(take(told))
        await asyncio.wait([work], timeout=0.05)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if "acknowledged" in told.events and told.events[-2:] != ["effect", "acknowledged"]:
            return False
        if told.events[-1:] == ["fault"] and "acknowledged" in told.events:
            return False
    return True


async def test_an_acknowledgement_before_the_effect_would_be_noticed() -> None:
    async def too_early(told: Told) -> None:
        told.events.append("acknowledged")
        await told.duty.do(batch())

    assert not await ends_as_it_should(too_early)
    assert await ends_as_it_should(lambda told: told._taken(1))


# ------------------------------------------------------------------------------------------------------------ bursts


async def test_a_burst_of_refused_records_stops_the_worker_before_they_are_buried() -> None:
    told = Told(refused=4, handled=0, burst=10)
    assert [await told.take(4), await told.take(4), await told.take(4)] == [True, True, False]
    assert told.events == ["effect", "bury 4", "acknowledged"] * 2 + ["effect"]
    with pytest.raises(BurstError, match=r"12 records in a row .*not-json.* at t 0:3: .*STREAMMEM_WORKER__BURST"):
        told.duty.failed.result()


async def test_a_record_that_can_be_used_ends_a_row_of_refused_ones() -> None:
    told = Told(refused=9, handled=0, burst=10)
    assert await told.take(9)
    told._done = Done(1, ())
    assert await told.take(1)
    told._done = Done(0, tuple(letter(n) for n in range(9)))
    assert await told.take(9)
    assert not told.duty.failed.done()


async def test_batches_that_say_nothing_are_no_burst() -> None:
    told = Told(refused=0, handled=0, burst=1)
    assert all([await told.take(5) for _ in range(5)])


# ------------------------------------------------------------------------------------------------------------ pauses


@given(st.integers(0, 10**6), st.floats(0.01, 3600), st.floats(0, 1))
def test_a_pause_lies_between_half_of_the_doubled_tenth_and_the_whole(
    attempt: int, longest: float, chance: float
) -> None:
    whole = min(longest, 0.1 * 2.0 ** min(attempt, 100))
    assert whole / 2 - 1e-9 <= pause(attempt, longest, chance) <= whole + 1e-9


@given(st.integers(0, 100), st.floats(0.01, 3600), st.floats(0, 1))
def test_pauses_grow(attempt: int, longest: float, chance: float) -> None:
    assert pause(attempt, longest, chance) <= pause(attempt + 1, longest, chance) + 1e-9


async def test_whoever_waits_says_for_what_until_it_is_back() -> None:
    faults: list[Any] = [TransientError("one is away"), TransientError("another is away")]
    said: list[str] = []

    async def work() -> str:
        if faults:
            raise faults.pop(0)
        return "done"

    assert await persist(work, 1.0, said.append) == "done"
    assert said == ["one is away", "another is away", ""]
    said.clear()
    assert await persist(work, 1.0, said.append) == "done"
    assert said == []


async def test_only_a_server_that_is_away_is_waited_for() -> None:
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise SettingsError("wrong")

    with pytest.raises(SettingsError):
        await persist(work, 1.0)
    assert tries == 1


# ------------------------------------------------------------------------------------------------------------- pulse


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_percentiles_are_values_that_so_many_do_not_exceed(values: list[float]) -> None:
    found = percentiles(values)
    assert found is not None
    rounded = sorted(round(value, 3) for value in values)
    for share, value in zip((0.5, 0.95, 1.0), found, strict=True):
        assert value in rounded
        assert sum(v <= value for v in rounded) >= share * len(values) - 1e-9
        assert sum(v < value for v in rounded) < share * len(values) + 1e-9
    assert list(found) == sorted(found)


def test_nothing_has_no_percentiles() -> None:
    assert percentiles([]) is None


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentiles([1.0, 2.0]) == (1.0, 2.0, 2.0)
    assert percentiles([float(n) for n in range(1, 101)]) == (50.0, 95.0, 100.0)
    assert percentiles([0.25]) == (0.25, 0.25, 0.25)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_beat_counts_since_the_start_and_tells_rates_and_freshness_of_the_last_minute() -> None:
    clock = Clock()
    pulse = Pulse("index", clock)
    pulse.count(Done(100, (letter(),), (9.0,)))
    clock.now += WINDOW + 1
    pulse.count(Done(30, (), (0.5, 1.5)))
    clock.now += 1
    beat = pulse.beat()
    assert (beat.role, beat.handled, beat.refused, beat.started, beat.at) == ("index", 130, 1, 1000.0, clock.now)
    assert (beat.rate, beat.fresh) == (0.5, (0.5, 1.5, 1.5))
    clock.now += 2 * WINDOW
    assert (pulse.beat().rate, pulse.beat().fresh, pulse.beat().handled) == (0.0, None, 130)


def test_a_young_process_has_the_rate_of_its_own_time() -> None:
    clock = Clock()
    pulse = Pulse("index", clock)
    pulse.count(Done(10))
    assert pulse.beat().rate == 10.0
    clock.now += 4
    assert pulse.beat().rate == 2.5


def test_a_beat_says_what_is_waited_for() -> None:
    pulse = Pulse("index")
    pulse.wait("Redis is away")
    assert pulse.beat().waiting == "Redis is away"
    pulse.wait("")
    assert pulse.beat().waiting == ""


def test_all_roles_of_one_process_have_its_name() -> None:
    assert Pulse("index").beat().process == Pulse("query").beat().process == module.PROCESS
