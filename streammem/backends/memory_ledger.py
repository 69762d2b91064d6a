"""What model calls of one process may take and have taken: what the ledgers of several processes are compared with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many

from streammem.core.spending import (
    Call,
    Standing,
    Window,
    day_named,
    day_number,
    decide,
    micros,
    together,
    total,
    windowed,
)
from streammem.ports import Ledger
from streammem.records import Claim, Job, Limits, Spent, Taken


class MemoryLedger(Ledger):
    """Forgets with its process. `clock` gives seconds since 1970, by which days begin and end.

    What is taken counts on the day on which it was taken, and what was spent of it too. `settle` finds that day by the
    figures that `take` was given: the newest call of these that is not settled. Where there is none, it gives back to
    today's account, which is never less than nothing. What is never settled counts until its day ends.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._claims: dict[str, tuple[int, str, Claim]] = {}
        self._calls: deque[Call] = deque()
        self._open: list[tuple[int, int, int]] = []
        self._taken: dict[int, tuple[int, int]] = {}
        self._spent: dict[tuple[int, str, int], Spent] = {}
        self._paused: str | None = None
        self._rest = 0
        self._writer = ""
        self._jobs: dict[str, Job] = {}

    def _now(self) -> int:
        return micros(self._clock())

    # ---- who is at what
    async def claim(self, claims: Many[Claim], holder: str, seconds: float) -> set[str]:
        now = self._now()
        mine = [claim for claim in claims if self._may_hold(claim.key, holder, now)]
        self._claims.update((claim.key, (now + micros(seconds), holder, claim)) for claim in mine)
        return {claim.key for claim in mine}

    def _may_hold(self, key: str, holder: str, now: int) -> bool:
        till, other, _ = self._claims.get(key, (0, holder, None))
        return other == holder or till <= now

    async def release(self, keys: Many[str], holder: str) -> None:
        for key in keys:
            if key in self._claims and self._claims[key][1] == holder:
                del self._claims[key]

    async def claimed(self) -> list[Claim]:
        now = self._now()
        self._claims = {key: held for key, held in self._claims.items() if held[0] > now}
        return [self._claims[key][2] for key in sorted(self._claims)]

    # ---- taking
    async def take(self, limits: Limits, tokens: int, money: int) -> Taken:
        now = self._now()
        answer = self._decided(limits, tokens, money, now)
        if answer.granted:
            if windowed(limits):
                self._calls.append(Call(now, tokens))
            self._open.append((day_number(now), tokens, money))
            self._add(day_number(now), tokens, money)
        return answer

    async def standing(self, limits: Limits) -> Taken:
        return self._decided(limits, 1, 0, self._now())

    def _decided(self, limits: Limits, tokens: int, money: int, now: int) -> Taken:
        window = self._window(limits, now) if windowed(limits) else Window()
        return decide(Standing(self._paused, self._rest, *self._used(now), window), limits, tokens, money, now)

    def _window(self, limits: Limits, now: int) -> Window:
        while self._calls and self._calls[0].at + micros(limits.window) <= now:
            self._calls.popleft()
        if self._calls and self._calls[-1].at > now:  # the clock was set back: nobody waits for its old time
            self._calls = deque(Call(min(call.at, now), call.tokens) for call in self._calls)
        return Window(len(self._calls), sum(call.tokens for call in self._calls), self._calls)

    def _add(self, day: int, tokens: int, money: int) -> None:
        before = self._taken.get(day, (0, 0))
        self._taken[day] = max(0, before[0] + tokens), max(0, before[1] + money)

    async def settle(self, tokens: int, money: int, spent: Many[Spent], *, call: bool = True) -> None:
        day = self._given_back(tokens, money)
        if not call:
            self._uncall(tokens)
        for one in spent:
            place = day, one.view, one.level
            before = self._spent.get(place, Spent(day=day_named(day), view=one.view, level=one.level))
            self._spent[place] = together(before, one)

    def _given_back(self, tokens: int, money: int) -> int:
        """The day on which this was taken."""
        days = [day for day, *taken in self._open if taken == [tokens, money]]
        day = max(days, default=day_number(self._now()))
        if days:
            self._open.remove((day, tokens, money))
        self._add(day, -tokens, -money)
        return day

    def _uncall(self, tokens: int) -> None:
        """Of equal calls the oldest goes: then those that stay in the window stay at least as long as the true ones."""
        found = next((call for call in self._calls if call.tokens == tokens), None)
        if found:
            self._calls.remove(found)

    async def used(self) -> tuple[int, int]:
        return self._used(self._now())

    def _used(self, now: int) -> tuple[int, int]:
        today = day_number(now)
        taken = self._taken.get(today, (0, 0))
        spent = total(one for (day, *_), one in self._spent.items() if day == today)
        return taken[0] + spent[0], taken[1] + spent[1]

    async def spent(self, days: int = 1) -> list[Spent]:
        first = day_number(self._now()) - days + 1
        return [self._spent[place] for place in sorted(self._spent) if place[0] >= first]

    # ---- stopping
    async def rest(self, seconds: float) -> None:
        self._rest = max(self._rest, self._now() + micros(seconds))

    async def pause(self, said: str) -> None:
        self._paused = said

    async def resume(self) -> None:
        self._paused, self._rest = None, 0

    # ---- notes
    async def writer(self, name: str) -> str:
        before, self._writer = self._writer, name
        return before

    async def keep_job(self, job: Job) -> None:
        self._jobs[job.name] = job

    async def drop_job(self, name: str) -> None:
        self._jobs.pop(name, None)

    async def jobs(self) -> list[Job]:
        return sorted(self._jobs.values(), key=lambda job: (job.at, job.name))
