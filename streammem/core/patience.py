"""How long to wait for a server that fails: backoff with jitter, and a circuit breaker."""

from __future__ import annotations

from streammem.core.numbers import Wording


def backoff(attempt: int, chance: float, numbers: Wording) -> float:
    """Seconds before the next attempt after the `attempt`-th (from 1) failed; `chance` in [0, 1) spreads them.

    Full jitter: any time up to the exponential bound, so that many callers do not come back together.
    """
    return chance * float(min(numbers.longest, numbers.backoff * 2 ** (attempt - 1)))


VAIN = 3
"""Trials of a server that fails again and again, after which nobody who waits for it waits on."""


class Breaker:
    """Keeps everybody from a server that fails again and again; then lets one try. Times in seconds, as told."""

    def __init__(self, numbers: Wording) -> None:
        self._numbers = numbers
        self._failures = 0
        self._cooling = numbers.cooling
        self._until: float | None = None
        self._trying = False
        self._vain = 0

    @property
    def open(self) -> bool:
        """Whether calls are kept back."""
        return self._until is not None

    def hopeless(self, now: float) -> bool:
        """Whether several trials were in vain and it is not yet time for another: who waits had better come again."""
        return self._until is not None and self._vain >= VAIN and now < self._until

    def wait(self, now: float) -> float:
        """Seconds to wait before a call; 0 for one that may go. After a pause one may go, and tells how it went."""
        if self._until is None:
            return 0.0
        if now < self._until:
            return self._until - now
        if self._trying:
            return self._numbers.cooling / 10
        self._trying = True
        return 0.0

    def failed(self, now: float) -> None:
        """A call failed."""
        self._failures += 1
        if self._trying:
            self._vain += 1
            self._cooling = min(2 * self._cooling, 20 * self._numbers.cooling)
        if self._trying or (self._until is None and self._failures >= self._numbers.trips):
            self._until = now + self._cooling
        self._trying = False

    def went_well(self) -> None:
        """The server answered, whatever it said."""
        self._failures, self._until, self._trying, self._vain = 0, None, False, 0
        self._cooling = self._numbers.cooling

    def given_up(self) -> None:
        """The call that was to tell how it went never ended."""
        self._trying = False
