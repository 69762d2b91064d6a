"""What a budget relies on: no process takes what another has taken, and nothing is forgotten, neither at the border of
a window, nor at midnight, nor when a process ends."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from streammem.backends import redis_ledger, sqlite_ledger
from streammem.backends.memory_ledger import MemoryLedger
from streammem.backends.redis import RedisStructure
from streammem.backends.redis_ledger import RedisLedger
from streammem.backends.sqlite_ledger import SqliteLedger
from streammem.core.spending import ASK_AGAIN, COUNTED, DAY, SECOND, day_of
from streammem.errors import MemoryFormatError, SettingsError, TransientError
from streammem.records import Claim, Job, Limits, Spent, Taken
from tests.servers import redis_server

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
GRANTED = Taken(granted=True)
FREE = Limits()
A, B, C = (Claim(key, "channel", level) for level, key in enumerate(("a", "b ☃", "c/%{x}")))


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds


class RedisClock(Clock):
    """The same in Redis, for ledgers that look at it instead of the clock of the server."""

    def __init__(self, url: str, key: str) -> None:
        self._client, self._key = redis.Redis.from_url(url), key
        super().__init__()
        self.go_on(0)

    def go_on(self, seconds: float) -> None:
        super().go_on(seconds)
        self._client.set(self._key, f"{self.now * SECOND:.0f}")

    def close(self) -> None:
        self._client.close()


class Reopening(SqliteLedger):
    """Closes its file after every step: nothing may live in the process alone."""

    async def _do(self, *arguments: Any) -> Any:
        try:
            return await super()._do(*arguments)
        finally:
            self.close()


class Setting:
    """Opens ledgers of one memory, as other processes would. All have one clock."""

    def __init__(self, open_one: Callable[[], Any], clock: Clock) -> None:
        self.open, self.clock = open_one, clock


KINDS = ["memory", "sqlite", "sqlite-reopened", "redis", "redis-cluster"]


@pytest.fixture(params=KINDS)
async def setting(request: pytest.FixtureRequest, tmp_path: Path, redis_prefix: str) -> AsyncIterator[Setting]:
    """Nothing taken yet, on each backend."""
    kind, clock = request.param, Clock()
    if kind == "memory":
        one = MemoryLedger(clock)
        yield Setting(lambda: one, clock)
    elif kind.startswith("sqlite"):
        opened: list[Any] = []
        backend = SqliteLedger if kind == "sqlite" else Reopening
        yield Setting(lambda: opened.append(backend(tmp_path / "ledger.sqlite", clock)) or opened[-1], clock)
        for ledger in opened:
            ledger.close()
    else:
        cluster = kind == "redis-cluster"
        url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
        async for found in on_redis(url, redis_prefix, cluster=cluster):
            yield found


async def on_redis(url: str, prefix: str, *, cluster: bool) -> AsyncIterator[Setting]:
    class Clocked(RedisLedger):
        clock = f"local now = tonumber(redis.call('GET', '{prefix}:{{{prefix}}}clock'))"

    with closing(RedisClock(url, f"{prefix}:{{{prefix}}}clock")) as clock:
        opened: list[RedisLedger] = []
        yield Setting(lambda: opened.append(Clocked(url, prefix, cluster=cluster)) or opened[-1], clock)
        for ledger in opened:
            await ledger.close()
    redis_server.forget(url, prefix)
    redis_server.forget(url, f"{prefix}/ledger")


@pytest.fixture
def ledger(setting: Setting) -> Any:
    return setting.open()


@pytest.fixture
def other(setting: Setting, ledger: Any) -> Any:
    """The same ledger, as another process sees it."""
    return setting.open()


@pytest.fixture
def clock(setting: Setting) -> Clock:
    return setting.clock


def spent(view: str = "channel", level: int = 1, **counts: int) -> Spent:
    return Spent(view=view, level=level, **counts)


def refused(why: str, wait: float, said: str = "") -> Taken:
    return Taken(granted=False, why=why, wait=pytest.approx(wait, abs=1e-6), said=said)


# ------------------------------------------------------------------------------------------------- who is at what


async def test_a_text_is_held_by_one(ledger, other):
    assert await ledger.claim([A, B], "me", 60) == {A.key, B.key}
    assert await other.claim([B, C], "you", 60) == {C.key}
    assert await other.claimed() == [A, B, C]


async def test_what_is_given_back_may_be_held_by_others(ledger, other):
    await ledger.claim([A, B, C], "me", 60)
    await other.release([A.key, "unknown"], "you")
    assert await other.claim([A], "you", 60) == set()
    await ledger.release([A.key, B.key], "me")
    assert await ledger.claimed() == [C]
    assert await other.claim([A, B, C], "you", 60) == {A.key, B.key}


async def test_a_claim_ends_by_the_clock_of_the_ledger_and_not_before(ledger, other, clock):
    await ledger.claim([A], "me", 10)
    await ledger.claim([B], "me", 60)
    clock.go_on(9.999)
    assert await other.claim([A], "you", 60) == set()
    clock.go_on(0.001)
    assert await other.claimed() == [B]
    assert await other.claim([A, B], "you", 60) == {A.key}


async def test_who_asks_again_holds_on(ledger, other, clock):
    await ledger.claim([A], "me", 10)
    clock.go_on(9)
    assert await ledger.claim([A], "me", 10) == {A.key}
    clock.go_on(9)
    assert await other.claim([A], "you", 10) == set()


async def test_who_comes_too_late_gives_back_nothing_of_others(ledger, other, clock):
    await ledger.claim([A], "me", 10)
    clock.go_on(10)
    await other.claim([A], "you", 10)
    assert await ledger.claim([A], "me", 10) == set()
    await ledger.release([A.key], "me")
    assert await ledger.claimed() == [A]


async def test_a_claim_says_what_its_last_holder_said(ledger):
    await ledger.claim([A], "me", 10)
    again = Claim(A.key, "actor ☃", 7)
    await ledger.claim([again], "me", 10)
    assert await ledger.claimed() == [again]


async def test_many_claims_at_once(ledger, other):
    many = [Claim(f"k{n:04}", "artifact", n) for n in range(1203)]
    assert await ledger.claim(many[::2], "me", 60) == {claim.key for claim in many[::2]}
    assert await other.claim(many, "you", 60) == {claim.key for claim in many[1::2]}
    assert await ledger.claimed() == many
    await ledger.release([claim.key for claim in many], "me")
    assert await other.claimed() == many[1::2]
    assert await other.claim([], "you", 60) == set()
    await other.release([], "you")


async def test_of_many_who_want_one_text_one_gets_it(ledger, other):
    got = await asyncio.gather(*((ledger, other)[n % 2].claim([A, B], f"h{n}", 60) for n in range(20)))
    assert sorted(map(len, got)) == [0] * 19 + [2]


# --------------------------------------------------------------------------------------------------------- limits


async def granted(ledger: Any, clock: Clock, limits: Limits, tokens: int) -> float:
    """When a call was granted to somebody who waits as told."""
    for _ in range(50):
        answer = await ledger.take(limits, tokens, 0)
        if answer.granted:
            return clock.now
        assert answer.why == "limit"
        assert 0 < answer.wait <= limits.window
        clock.go_on(answer.wait)
    raise AssertionError("the wait does not end")


async def busy_life(take: Callable[[int], Awaitable[float]], clock: Clock) -> list[tuple[float, int]]:
    """What is granted to somebody with many wishes, some of them at the end of a minute and some beyond the limit."""
    rng = random.Random(5)
    calls = []
    clock.go_on(57)
    for _ in range(60):
        clock.go_on(rng.choice((0, 0, 0, 0.000001, 1, 2.5, 59, 60)))
        tokens = rng.choice((0, 1, 10, 10, 20, 39, 40, 75))
        calls.append((await take(tokens), tokens))
    return calls


def exceeded(calls: list[tuple[float, int]], limits: Limits) -> list[float]:
    """Where a stretch of time begins that holds more than the limits, although it holds more than one call."""
    whole = [(round(at * SECOND), tokens) for at, tokens in calls]
    found = []
    for start, _ in whole:
        held = [tokens for at, tokens in whole if 0 <= at - start < limits.window * SECOND]
        if len(held) > 1 and (len(held) > limits.requests or sum(held) > limits.tokens):
            found.append(start)
    return found


BUSY = Limits(requests=4, tokens=40, window=60)


async def test_no_stretch_of_time_holds_more_than_the_limits(ledger, other, clock):
    turn = iter([ledger, other] * 30)
    calls = await busy_life(lambda tokens: granted(next(turn), clock, BUSY, tokens), clock)
    assert exceeded(calls, BUSY) == []


async def test_a_ledger_that_forgets_at_the_border_of_a_minute_is_caught():
    class Forgetful(MemoryLedger):
        def _window(self, limits, now):
            minute = now // (60 * SECOND)
            self._calls = type(self._calls)(call for call in self._calls if call.at // (60 * SECOND) == minute)
            return super()._window(limits, now)

    clock = Clock()
    forgetful = Forgetful(clock)
    assert exceeded(await busy_life(lambda tokens: granted(forgetful, clock, BUSY, tokens), clock), BUSY)


async def test_the_wait_is_exact(ledger, other, clock):
    limits = Limits(requests=3, tokens=100, window=60)
    for tokens, pause in ((50, 10), (20, 10), (30, 0)):
        assert await ledger.take(limits, tokens, 0) == GRANTED
        clock.go_on(pause)
    assert await other.take(limits, 10, 0) == refused("limit", 40)  # the first has to go
    assert await other.take(limits, 60, 0) == refused("limit", 50)  # and the second
    assert await other.take(limits, 71, 0) == refused("limit", 60)
    clock.go_on(39.999999)
    assert await other.take(limits, 10, 0) == refused("limit", 0.000001)
    clock.go_on(0.000001)
    assert await other.take(limits, 10, 0) == GRANTED


async def test_calls_before_a_full_hour_still_count_after_it(ledger, other, clock):
    clock.go_on(-0.5)
    assert [(await ledger.take(Limits(requests=2), 1, 0)).granted for _ in range(2)] == [True, True]
    clock.go_on(0.6)
    assert await other.take(Limits(requests=2), 1, 0) == refused("limit", 59.4)


async def test_a_wish_beyond_the_whole_limit_goes_alone(ledger, other, clock):
    limits = Limits(tokens=100)
    assert await ledger.take(limits, 1, 0) == GRANTED
    assert await other.take(limits, 500, 0) == refused("limit", 60)
    clock.go_on(60)
    assert await other.take(limits, 500, 0) == GRANTED
    assert await ledger.take(limits, 0, 0) == refused("limit", 60)
    clock.go_on(60)
    assert await ledger.take(limits, 500, 0) == GRANTED


async def test_a_wish_finds_its_moment_behind_hundreds_of_calls(ledger, clock):
    limits = Limits(requests=1000, tokens=250)
    for _ in range(250):
        assert (await ledger.take(limits, 1, 0)).granted
        clock.go_on(0.125)
    assert await ledger.take(limits, 230, 0) == refused("limit", 60 - 250 / 8 + 229 / 8)
    assert await ledger.take(limits, 20, 0) == refused("limit", 60 - 250 / 8 + 19 / 8)


async def test_what_is_refused_takes_nothing(ledger, other):
    limits = Limits(requests=5, tokens=100, day_tokens=150)
    await ledger.take(limits, 60, 7)
    for _ in range(9):
        assert (await other.take(limits, 60, 7)).why == "limit"
        assert (await other.take(limits, 91, 7)).why == "budget"
    assert await other.used() == (60, 7)
    assert await other.take(limits, 40, 0) == GRANTED


async def test_tokens_stay_in_the_window_as_they_were_taken(ledger, other):
    limits = Limits(tokens=100)
    await ledger.take(limits, 100, 0)
    await ledger.settle(100, 0, [spent(calls=1, tokens_in=3)])
    assert await other.take(limits, 1, 0) == refused("limit", 60)


async def test_a_call_that_was_not_made_leaves_the_window(ledger, other, clock):
    limits = Limits(requests=3, tokens=100)
    for tokens in (30, 30, 40):
        await ledger.take(limits, tokens, 0)
        clock.go_on(1)
    await other.settle(30, 0, [], call=False)
    assert await ledger.take(limits, 31, 0) == refused("limit", 58)  # the later of the two that are alike has stayed
    assert await ledger.take(limits, 30, 0) == GRANTED
    await other.settle(99, 0, [], call=False)  # never taken
    assert await ledger.take(limits, 0, 0) == refused("limit", 58)


async def test_what_is_taken_from_the_budget_alone_is_in_no_window(ledger, other):
    assert await ledger.take(Limits(day_tokens=1000), 900, 0) == GRANTED
    assert await other.take(Limits(requests=1, tokens=10, day_tokens=1000), 10, 0) == GRANTED
    assert await other.used() == (910, 0)


async def test_a_clock_that_is_set_back_keeps_nobody_waiting_for_its_old_time(ledger, other, clock):
    limits = Limits(requests=2, tokens=9)
    await ledger.take(limits, 4, 0)
    clock.go_on(1)
    await ledger.take(limits, 5, 0)
    clock.go_on(-3600)
    assert await other.take(limits, 1, 0) == refused("limit", 60)
    clock.go_on(59)
    assert await other.take(limits, 1, 0) == refused("limit", 1)
    clock.go_on(1)
    assert await other.take(limits, 9, 0) == GRANTED


async def test_of_many_at_once_as_many_are_granted_as_the_limit_allows(ledger, other):
    limits = Limits(requests=10)
    answers = await asyncio.gather(*((ledger, other)[n % 2].take(limits, n, 0) for n in range(40)))
    assert [answer.granted for answer in answers].count(True) == 10
    assert {answer.why for answer in answers if not answer.granted} == {"limit"}


# --------------------------------------------------------------------------------------------------------- budget


async def test_a_budget_is_used_up_to_the_last_token_and_no_further(ledger, other):
    limits = Limits(day_tokens=1000, day_money=10**12)
    answers = await asyncio.gather(*((ledger, other)[n % 2].take(limits, 7, 3) for n in range(200)))
    assert [answer.granted for answer in answers].count(True) == 142
    assert await other.used() == (994, 426)
    assert await other.take(limits, 6, 0) == GRANTED
    assert await ledger.take(limits, 1, 0) == refused("budget", 43_200)


async def test_money_is_kept_to_the_billionth(ledger, other):
    dear = 9_000_000_000_000_001
    limits = Limits(day_money=dear)
    assert await ledger.take(limits, 1, dear - 1) == GRANTED
    assert await other.take(limits, 1, 2) == refused("budget", 43_200)
    assert await other.take(limits, 1, 1) == GRANTED
    assert await other.used() == (2, dear)
    await ledger.settle(1, dear - 1, [spent(money=dear - 2)])
    assert (await ledger.used(), (await other.spent())[0].money) == ((1, dear - 1), dear - 2)


async def test_what_is_really_spent_takes_the_place_of_what_was_taken(ledger, other):
    limits = Limits(day_tokens=100)
    for _ in range(2):
        await ledger.take(limits, 50, 500)
    await other.settle(50, 500, [spent(calls=1, tokens_in=10, tokens_out=5, money=100)])
    assert await ledger.used() == (65, 600)
    assert await ledger.take(limits, 36, 0) == refused("budget", 43_200)
    assert await ledger.take(limits, 35, 0) == GRANTED


async def test_a_call_that_took_more_than_it_might_counts_in_full(ledger):
    limits = Limits(day_tokens=100)
    await ledger.take(limits, 50, 0)
    await ledger.settle(50, 0, [spent(calls=1, tokens_in=120)])
    assert await ledger.used() == (120, 0)
    assert (await ledger.take(limits, 1, 0)).why == "budget"


async def test_what_was_never_taken_gives_back_no_more_than_is_taken(ledger):
    await ledger.settle(50, 500, [spent(calls=1, tokens_in=10, money=100)])
    assert await ledger.used() == (10, 100)
    await ledger.take(FREE, 20, 200)
    await ledger.settle(15, 300, [])  # a part of it
    assert await ledger.used() == (15, 100)


async def test_a_new_day_has_a_new_budget(ledger, other, clock):
    limits = Limits(day_tokens=100)
    await ledger.take(limits, 100, 0)
    clock.go_on(43_199.5)
    assert await other.take(limits, 100, 0) == refused("budget", 0.5)
    clock.go_on(0.5)
    assert await other.used() == (0, 0)
    assert await other.take(limits, 100, 0) == GRANTED


async def test_what_was_taken_before_midnight_is_settled_on_its_day(ledger, other, clock):
    limits = Limits(day_tokens=100, day_money=1000)
    await ledger.take(limits, 90, 900)
    clock.go_on(43_200)
    await other.take(limits, 80, 800)
    await ledger.settle(90, 900, [spent(calls=1, tokens_in=70, money=700)])
    assert await other.used() == (80, 800)
    assert await other.take(limits, 21, 0) == refused("budget", 86_400)
    assert await other.spent() == []
    assert [(one.day, one.tokens_in) for one in await other.spent(2)] == [("2026-11-30", 70)]


async def test_what_is_never_settled_counts_until_its_day_ends(ledger, other, clock):
    await ledger.take(FREE, 90, 900)  # whoever took it died
    for _ in range(3):
        assert await other.used() == (90, 900)
        clock.go_on(86_400)
        await other.take(FREE, 90, 900)
        await other.settle(90, 900, [])
        assert await other.used() == (0, 0)
        await other.take(FREE, 90, 900)


async def test_what_was_spent_adds_up_by_day_view_and_level(ledger, other, clock):
    every = dict(zip(COUNTED, range(1, 7), strict=True))
    await ledger.settle(0, 0, [spent("channel", 2, **every), spent("a view of ☃", 10, calls=1)])
    clock.go_on(86_400)
    await other.settle(0, 0, [spent("channel", 2, **every), spent("channel", 2, **every), spent("actor", 1, nodes=3)])
    await ledger.settle(0, 0, [spent("channel", 10, failed=1), Spent(day="2001-01-01", view="channel", level=1)])
    today = [
        Spent(day="2026-12-01", view="actor", level=1, nodes=3),
        Spent(day="2026-12-01", view="channel", level=1),
        Spent(day="2026-12-01", view="channel", level=2, **{name: 2 * count for name, count in every.items()}),
        Spent(day="2026-12-01", view="channel", level=10, failed=1),
    ]
    before = [
        Spent(day="2026-11-30", view="a view of ☃", level=10, calls=1),
        Spent(day="2026-11-30", view="channel", level=2, **every),
    ]
    assert await other.spent() == today
    assert await ledger.spent(2) == await ledger.spent(400) == [*before, *today]
    clock.go_on(86_400)
    assert await other.spent() == []
    assert await other.spent(2) == today


# ------------------------------------------------------------------------------------------------------- stopping


async def test_nobody_is_granted_a_call_while_the_server_wants_rest(ledger, other, clock):
    await ledger.rest(30)
    await ledger.rest(10)
    assert await other.take(FREE, 1, 0) == refused("rest", 30)
    await other.rest(40)
    clock.go_on(39.999)
    assert await ledger.take(FREE, 1, 0) == refused("rest", 0.001)
    clock.go_on(0.001)
    assert await ledger.take(FREE, 1, 0) == GRANTED


async def test_a_pause_lasts_until_somebody_ends_it(ledger, other, clock):
    await ledger.pause("too dear ☃")
    clock.go_on(10**6)
    assert await other.take(FREE, 1, 0) == refused("paused", ASK_AGAIN, "too dear ☃")
    await other.pause("")
    assert await ledger.take(FREE, 1, 0) == refused("paused", ASK_AGAIN)
    await ledger.resume()
    assert await other.take(FREE, 1, 0) == GRANTED


async def test_calls_are_granted_again_also_while_the_server_wanted_rest(ledger, other):
    await ledger.rest(1000)
    await ledger.pause("wait")
    await other.resume()
    assert await ledger.take(FREE, 1, 0) == GRANTED
    await other.rest(5)
    assert await ledger.take(FREE, 1, 0) == refused("rest", 5)


async def test_of_several_reasons_the_first_is_told(ledger, other):
    limits = Limits(requests=1, day_tokens=10)
    await ledger.take(limits, 5, 0)
    await ledger.rest(7)
    await ledger.pause("by hand")
    assert await other.take(limits, 9, 0) == refused("paused", ASK_AGAIN, "by hand")
    await ledger.resume()
    await ledger.rest(7)
    assert await other.take(limits, 9, 0) == refused("rest", 7)
    await ledger.resume()
    assert await other.take(limits, 9, 0) == refused("budget", 43_200)
    assert await other.take(limits, 5, 0) == refused("limit", 60)


async def test_who_asks_how_things_stand_takes_nothing(ledger, other):
    limits = Limits(requests=1, tokens=10, day_tokens=10, day_money=5)
    for _ in range(12):
        assert await ledger.standing(limits) == GRANTED
    assert await other.used() == (0, 0)
    assert await other.take(limits, 5, 5) == GRANTED
    assert await ledger.standing(limits) == refused("limit", 60)
    assert await ledger.standing(Limits(day_tokens=5)) == refused("budget", 43_200)
    assert await ledger.standing(Limits(day_money=5)) == GRANTED
    await other.rest(9)
    assert await ledger.standing(limits) == refused("rest", 9)
    await other.pause("p")
    assert await ledger.standing(limits) == refused("paused", ASK_AGAIN, "p")


# ---------------------------------------------------------------------------------------------------------- notes


async def test_whoever_writes_is_told_who_wrote_before(ledger, other):
    assert await ledger.writer("gpt-x/1") == ""
    assert await other.writer("gpt-x/1") == "gpt-x/1"
    assert await ledger.writer("gpt-y ☃") == "gpt-x/1"
    assert await other.writer("") == "gpt-y ☃"


async def test_jobs_are_kept_until_they_are_done_with_oldest_first(ledger, other):
    young, old, twin = (
        Job(name=name, claims=(A, B), tokens=10**9, money=10**15, at=at)
        for name, at in (("n1", 20.25), ("n3 ☃", 10.5), ("n2", 20.25))
    )
    for job in (twin, young, old):
        await ledger.keep_job(job)
    handed_in = Job(name="n1", claims=(A,), tokens=1, money=2, at=20.25, id="batch_1")
    await other.keep_job(handed_in)
    assert await other.jobs() == [old, handed_in, twin]
    await other.drop_job("n3 ☃")
    await other.drop_job("unknown")
    assert await ledger.jobs() == [handed_in, twin]


async def test_a_new_ledger_says_nothing(ledger):
    assert (await ledger.claimed(), await ledger.jobs(), await ledger.spent(9)) == ([], [], [])
    assert (await ledger.used(), await ledger.standing(Limits(requests=1))) == ((0, 0), GRANTED)
    await ledger.resume()
    await ledger.release(["a"], "me")
    await ledger.drop_job("a")


# ------------------------------------------------------------------------------------------- as the model has it


LIMITS = (
    FREE,
    Limits(requests=4, window=10),
    Limits(requests=6, tokens=30, window=10, day_tokens=400),
    Limits(tokens=20, window=10, day_money=500),
)


def step(rng: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Something that somebody does to a ledger."""
    amounts = rng.choice(((5, 50), (5, 50), (12, 0), (0, 7), (31, 120)))
    keys = rng.sample([A, B, C], rng.randrange(4))
    row = spent(rng.choice(("actor", "channel")), rng.randrange(3), calls=1, tokens_in=rng.randrange(9), money=3)
    steps: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "take": ((rng.choice(LIMITS), *amounts), {}),
        "settle": ((*amounts, [row] * rng.randrange(3)), {"call": rng.random() < 0.8}),
        "standing": ((rng.choice(LIMITS),), {}),
        "claim": ((keys, rng.choice("xyz"), rng.choice((5, 20))), {}),
        "release": (([claim.key for claim in keys], rng.choice("xyz")), {}),
        "claimed": ((), {}),
        "rest": ((rng.choice((1, 4)),), {}),
        "pause": (("said",), {}),
        "resume": ((), {}),
        "used": ((), {}),
        "spent": ((rng.randrange(1, 4),), {}),
    }
    weights = [12, 8, 2, 3, 2, 1, 1, 0.4, 2, 2, 1]
    [name] = rng.choices(list(steps), weights)
    return name, *steps[name]


@pytest.mark.parametrize("seed", range(4))
async def test_every_ledger_says_what_the_model_says(setting, seed):
    rng = random.Random(seed)
    model, ledgers = MemoryLedger(setting.clock), [setting.open(), setting.open()]
    for number in range(250):
        setting.clock.go_on(rng.choice((0, 0, 0.25, 1, 3, 10, 10, 9000) if number % 3 == 0 else (0, 0.5, 1)))
        name, arguments, more = step(rng)
        said = await getattr(rng.choice(ledgers), name)(*arguments, **more)
        assert said == await getattr(model, name)(*arguments, **more), (number, name, arguments, more)
    assert await ledgers[0].spent(99) == await model.spent(99)
    assert await ledgers[1].used() == await model.used()


# --------------------------------------------------------------------------------------------------------- SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def at_path(path: Path) -> Any:
    with closing(SqliteLedger(path, Clock())) as ledger:
        yield ledger


TAKING = f"""
import asyncio, sys
from streammem.backends.sqlite_ledger import SqliteLedger
from streammem.records import Claim, Limits, Spent

async def main():
    ledger = SqliteLedger(sys.argv[1], clock=lambda: {NOON})
    limits = Limits(requests=50, day_tokens=1000)
    answers = await asyncio.gather(*(ledger.take(limits, 3, 0) for _ in range(40)))
    taken = sum(answer.granted for answer in answers)
    for _ in range(taken):
        await ledger.settle(3, 0, [Spent(view="channel", level=1, calls=1, tokens_in=2)])
    held = await ledger.claim([Claim(str(n), "channel", 1) for n in range(30)], sys.argv[2], 60)
    print(taken, len(held))

asyncio.run(main())
"""


def together(script: str, *arguments: str) -> tuple[list[int], list[str]]:
    """How three processes ended that began at the same time, and what they said."""
    command = [sys.executable, "-c", script, *arguments]
    running = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True, cwd=ROOT) for n in range(3)]
    said = [child.communicate()[0] for child in running]
    return [child.returncode for child in running], said


async def test_processes_that_start_together_share_the_limits_of_a_new_file(path, at_path):
    ends, lines = together(TAKING, str(path))
    assert ends == [0, 0, 0]
    said = [list(map(int, line.split())) for line in lines]
    assert sum(taken for taken, _ in said) == 50
    assert sorted(held for _, held in said) == [0, 0, 30]
    assert await at_path.used() == (100, 0)
    assert [one.calls for one in await at_path.spent()] == [50]


PAUSING = f"""
import asyncio, os, signal, sys
from streammem.backends.sqlite_ledger import SqliteLedger
from streammem.records import Limits

async def main():
    ledger = SqliteLedger(sys.argv[1], clock=lambda: {NOON})
    await ledger.take(Limits(requests=1), 5, 6)
    await ledger.pause("by hand")  # two of three are not granted the call
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_a_killed_process_did_stands(path, at_path):
    ends, _ = together(PAUSING, str(path))
    assert ends == [-signal.SIGKILL] * 3
    assert await at_path.take(FREE, 1, 0) == refused("paused", ASK_AGAIN, "by hand")
    await at_path.resume()
    assert await at_path.take(Limits(requests=1), 1, 0) == refused("limit", 60)
    assert await at_path.used() == (5, 6)


async def test_a_ledger_that_was_never_written_has_no_file(path, at_path):
    await test_a_new_ledger_says_nothing(at_path)
    assert list(path.parent.iterdir()) == []
    await at_path.take(FREE, 1, 0)
    assert path.exists()


async def test_who_was_open_before_the_file_was_sees_what_another_writes(path, at_path):
    assert await at_path.used() == (0, 0)
    with closing(SqliteLedger(path, Clock())) as other:
        await other.take(FREE, 4, 5)
        assert await at_path.used() == (4, 5)


async def test_a_ledger_may_be_closed_twice_and_asked_again(path, at_path):
    await at_path.take(FREE, 4, 5)
    at_path.close()
    at_path.close()
    assert await at_path.used() == (4, 5)


def test_a_ledger_serves_one_loop_after_the_other(path, at_path):
    async def take() -> list[Taken]:
        return await asyncio.gather(*(at_path.take(FREE, 1, 0) for _ in range(5)))

    assert [asyncio.run(take()) for _ in range(3)] == [[GRANTED] * 5] * 3
    assert asyncio.run(at_path.used()) == (15, 0)


async def test_who_gives_up_before_it_is_his_turn_takes_nothing(at_path):
    waiting = asyncio.create_task(at_path.take(FREE, 4, 5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await at_path.used() == (0, 0)


async def test_a_file_that_another_process_holds_too_long_is_a_passing_fault(path, at_path, monkeypatch):
    monkeypatch.setattr(sqlite_ledger, "PATIENCE", 50)
    await at_path.take(FREE, 1, 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(*(at_path.take(FREE, 1, 2) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [TransientError] * 3
        assert await at_path.used() == (1, 2)  # reading needs nobody's leave
    assert await at_path.take(FREE, 1, 2) == GRANTED
    assert await at_path.used() == (2, 4)


@pytest.mark.parametrize("damage", [b"no database at all, but long enough to be looked at " * 9, None, 9])
async def test_a_file_that_cannot_be_read_is_said_so(path, damage):
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("CREATE TABLE t (a)")
            file.execute(f"PRAGMA application_id = {sqlite_ledger._LEDGER if damage else 7}")
            file.execute(f"PRAGMA user_version = {damage or 1}")
    with closing(SqliteLedger(path)) as ledger, pytest.raises(MemoryFormatError, match=r"ledger\.sqlite"):
        await ledger.used()


async def test_a_damaged_job_is_said_so_and_harms_nobody_else(path, at_path):
    await at_path.keep_job(Job(name="n", claims=(), tokens=1, money=1, at=1.0))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE job SET content = x'00'")
    results = await asyncio.gather(at_path.jobs(), at_path.take(FREE, 1, 1), return_exceptions=True)
    assert isinstance(results[0], MemoryFormatError)
    assert results[1] == GRANTED


async def test_a_file_that_cannot_be_made_is_a_fault_of_the_settings(tmp_path):
    with closing(SqliteLedger(tmp_path / "absent" / "ledger.sqlite")) as ledger, pytest.raises(SettingsError):
        await ledger.take(FREE, 1, 1)


# ---------------------------------------------------------------------------------------------------------- Redis


@pytest.fixture
async def on_server(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisLedger]:
    """A ledger with the clock of the server."""
    ledger = RedisLedger(redis_url, redis_prefix)
    yield ledger
    await ledger.close()
    await ledger.close()
    for start in (redis_prefix, f"{redis_prefix}/ledger"):
        redis_server.forget(redis_url, start)


async def test_redis_goes_by_the_clock_of_the_server(on_server, redis_url):
    def now() -> float:
        with redis.Redis.from_url(redis_url) as client:
            seconds, micros = client.time()
        return seconds + micros / SECOND

    first = day_of(now())
    await on_server.settle(0, 0, [spent(calls=1)])
    [row] = await on_server.spent(2)
    assert row.day in (first, day_of(now()))
    before = now()
    await on_server.rest(1000)
    answer = await on_server.take(FREE, 1, 1)
    after = now()
    assert before + 1000 <= before + answer.wait + (after - before)
    assert 1000 - (after - before) - 0.001 <= answer.wait <= 1000
    await on_server.resume()
    assert 0 < (await on_server.take(Limits(day_tokens=1), 2, 0)).wait <= DAY / SECOND


async def test_redis_lets_claims_and_calls_go_in_time(on_server):
    limits = Limits(requests=1, window=0.1)
    assert await on_server.claim([A], "me", 0.1) == {A.key}
    assert await on_server.take(limits, 1, 0) == GRANTED
    refusal = await on_server.take(Limits(requests=1, window=1000), 1, 0)
    assert (refusal.why, 999 < refusal.wait <= 1000) == ("limit", True)
    await asyncio.sleep(0.15)
    assert await on_server.take(limits, 1, 0) == GRANTED
    assert await on_server.claim([A], "you", 60) == {A.key}


@pytest.mark.parametrize("cluster", [False, True])
async def test_what_was_paid_survives_the_clearing_of_the_structure(request, redis_prefix, cluster):
    url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
    async for setting in on_redis(url, redis_prefix, cluster=cluster):
        ledger = setting.open()
        job = Job(name="n", claims=(A,), tokens=1, money=1, at=1.0)
        await ledger.settle(0, 0, [spent(calls=1, tokens_in=5)])
        await ledger.keep_job(job)
        await ledger.pause("by hand")
        await ledger.writer("w")
        store = await RedisStructure.open(url, redis_prefix, cluster=cluster)
        await store.clear()
        await store.close()
        setting.clock.go_on(0)  # the clock of this test is not the ledger's to keep
        assert [one.tokens_in for one in await ledger.spent()] == [5]
        assert await ledger.jobs() == [job]
        assert (await ledger.standing(FREE)).said == "by hand"
        assert await ledger.writer("w") == "w"


async def test_no_key_begins_as_those_of_a_structure_of_any_prefix_do(on_server, redis_url, redis_prefix):
    await on_server.take(Limits(requests=1), 1, 1)
    await on_server.settle(1, 1, [spent(calls=1)])
    await on_server.pause("p")
    await on_server.claim([A], "me", 60)
    await on_server.writer("w")
    with redis.Redis.from_url(redis_url) as client:
        keys = [key.decode() for key in client.scan_iter(f"*{redis_prefix}*")]
    assert len(keys) > 5
    assert {key[: key.index(":")] for key in keys} == {f"{redis_prefix}/ledger"}  # no prefix has a slash
    assert {key[key.index("{") : key.index("}")] for key in keys} == {f"{{{redis_prefix}"}


async def test_a_step_whose_reply_was_lost_is_not_done_twice(on_server, monkeypatch):
    sent_once = on_server._redis.run

    async def sent_twice(commands):
        await sent_once(commands)
        return await sent_once(commands)

    monkeypatch.setattr(on_server._redis, "run", sent_twice)
    await on_server.settle(0, 0, [spent(calls=1, tokens_in=5)])
    assert await on_server.writer("w") == ""
    monkeypatch.undo()
    assert [one.tokens_in for one in await on_server.spent(2)] == [5]
    assert await on_server.writer("w") == "w"


async def test_a_ledger_in_redis_outlives_its_server(own_redis, redis_prefix):
    ledger = RedisLedger(own_redis.url, redis_prefix)
    await ledger.take(FREE, 5, 6)
    await ledger.pause("by hand")
    own_redis.kill()
    with pytest.raises(TransientError):
        await ledger.take(FREE, 1, 0)
    own_redis.start()
    assert (await ledger.take(FREE, 1, 0)).said == "by hand"
    assert (await ledger._run(("HLEN", *ledger._keys("open")))) == 1
    await ledger.close()


async def test_a_damaged_job_in_redis_is_said_so(on_server):
    await on_server._run(("HSET", *on_server._keys("jobs"), "n", b"\x00"))
    with pytest.raises(MemoryFormatError):
        await on_server.jobs()


def test_a_prefix_must_be_one(redis_url):
    with pytest.raises(SettingsError):
        RedisLedger(redis_url, "a/b")
    assert redis_ledger.CLOCK in RedisLedger(redis_url)._take.text
