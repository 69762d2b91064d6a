"""A role at work: every batch is tried until its effects are in the stores, and only then acknowledged (design §11).

The class of an error decides: transient is tried again after a pause, a record that cannot be used goes to the
dead-letter topic, anything else ends the worker with the batch not acknowledged.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Many
from typing import TypeVar
from uuid import uuid4

import structlog

from streammem.errors import SettingsError, TransientError
from streammem.records import Beat, DeadLetter, Received
from streammem.workers.stages import Done, Stage

T = TypeVar("T")

PROCESS = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
"""Names this process among all that ever ran."""

BEAT = 2.0
"""Seconds between two signs of life."""
SILENCE = 15.0
"""Seconds after the last sign of life at which a process counts as gone."""
WINDOW = 60.0
"""Seconds that rates and freshness look back."""
SAMPLES = 20_000

log = structlog.get_logger()


def pause(attempt: int, longest: float, chance: float) -> float:
    """Seconds to wait before a try: 0.1 s doubling up to `longest`, of which `chance` (0 to 1) takes up to half."""
    return float(min(longest, 0.1 * 2 ** min(attempt, 30))) * (1 - chance / 2)


async def persist(work: Callable[[], Awaitable[T]], longest: float, told: Callable[[str], None] = lambda _: None) -> T:
    """Do it until no server is away. `told` hears of each failure, and of "" when it is over."""
    attempt = 0
    while True:
        try:
            result = await work()
        except TransientError as error:
            told(str(error))
            await asyncio.sleep(pause(attempt, longest, random.random()))  # noqa: S311 - spreads processes out
            attempt += 1
        else:
            if attempt:
                told("")
            return result


class Pulse:
    """How a role of this process is doing, counted as it works."""

    def __init__(self, role: str, clock: Callable[[], float] = time.time) -> None:
        self.role, self._clock = role, clock
        self.waiting = ""
        self._started = clock()
        self._handled = self._refused = 0
        self._counts: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self._fresh: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def wait(self, reason: str) -> None:
        """Something is away; "" when it is back. Told once each, not at every try."""
        if reason and not self.waiting:
            log.warning("waits", role=self.role, because=reason)
        elif self.waiting and not reason:
            log.info("goes on", role=self.role)
        self.waiting = reason

    def count(self, done: Done) -> None:
        """A batch is done."""
        now = self._clock()
        self._handled += done.handled
        self._refused += len(done.refused)
        self._counts.append((now, done.handled))
        self._fresh.extend((now, seconds) for seconds in done.fresh)

    def beat(self) -> Beat:
        """A sign of life."""
        now = self._clock()
        for window in (self._counts, self._fresh):
            while window and window[0][0] < now - WINDOW:
                window.popleft()
        span = max(1.0, min(WINDOW, now - self._started))
        return Beat(
            role=self.role,
            process=PROCESS,
            at=now,
            started=self._started,
            handled=self._handled,
            refused=self._refused,
            rate=round(sum(count for _, count in self._counts) / span, 2),
            waiting=self.waiting,
            fresh=percentiles([seconds for _, seconds in self._fresh]),
        )


def percentiles(values: list[float]) -> tuple[float, float, float] | None:
    """p50, p95 and the greatest of these, by nearest rank; None of none."""
    if not values:
        return None
    ranked = sorted(values)
    at = [ranked[math.ceil(share * len(ranked)) - 1] for share in (0.5, 0.95)]
    return round(at[0], 3), round(at[1], 3), round(ranked[-1], 3)


class BurstError(SettingsError):
    """So many records in a row cannot be used that the topic is not what it should be."""


class Duty:
    """Works off batches of one role. `failed` ends the worker; a batch that failed is never acknowledged."""

    def __init__(
        self,
        stage: Stage,
        bury: Callable[[Many[DeadLetter]], Awaitable[None]],
        pulse: Pulse,
        *,
        burst: int,
        longest: float,
    ) -> None:
        self._stage, self._bury, self.pulse = stage, bury, pulse
        self._burst, self._longest = burst, longest
        self._in_a_row = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failed.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be too late to hear

    async def do(self, records: Many[Received]) -> None:
        """Return when these records may be acknowledged; after a failure, never."""
        try:
            done = await persist(lambda: self._stage(records), self._longest, self.pulse.wait)
            self._heed(done)
            await persist(lambda: self._bury(done.refused), self._longest, self.pulse.wait)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch must not be acknowledged
            await self.fail(error)
        else:
            self.pulse.count(done)

    def _heed(self, done: Done) -> None:
        """Count records given up in a row; raise BurstError for too many."""
        for letter in done.refused:
            log.warning(
                "refused", reason=letter.reason, topic=letter.topic, partition=letter.partition, offset=letter.offset
            )
        self._in_a_row = 0 if done.handled else self._in_a_row + len(done.refused)
        if self._in_a_row >= self._burst:
            last = done.refused[-1]
            raise BurstError(
                f"{self._in_a_row} records in a row cannot be used, the last one ({last.reason}) at {last.topic} "
                f"{last.partition}:{last.offset}: stopped, so that a topic is not emptied into the dead letters "
                "(STREAMMEM_WORKER__BURST sets how many may be)"
            )

    async def fail(self, error: Exception) -> None:
        """End the worker with this error. Does not return."""
        if not self.failed.done():
            self.failed.set_exception(error)
        await asyncio.Event().wait()
