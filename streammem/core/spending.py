"""What model calls cost, and when the next one may be made: arithmetic of prices, days and limits.

Moments are integer microseconds here, as clocks of servers tell them: all backends agree to the last one, and who waits
as long as told is not told to wait once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

import msgspec

from streammem.records import Limits, Spent, Taken

Price = tuple[float, float]
"""For a million tokens in and a million out, in the currency."""

SECOND = 1_000_000
DAY = 86_400 * SECOND

ASK_AGAIN = 5.0
"""Seconds after which to ask again whether a person has ended a pause."""

COUNTED = ("calls", "failed", "nodes", "tokens_in", "tokens_out", "money")
"""The fields of Spent that add up."""

_EPOCH = date(1970, 1, 1).toordinal()


# ------------------------------------------------------------------------------------------------ prices and days


def money(tokens_in: int, tokens_out: int, price: Price, share: float = 1.0) -> int:
    """What tokens cost in billionths, rounded up. Prices and the share of them that is paid are meant as written."""
    per_token = _per_token(price, share)
    return ceil(tokens_in * per_token[0] + tokens_out * per_token[1])


@lru_cache(maxsize=64)
def _per_token(price: Price, share: float) -> tuple[Fraction, Fraction]:
    """In billionths: each is a thousandth of the price of a million."""
    into, out = (_exact(part) * _exact(share) * 1000 for part in price)
    return into, out


def billionths(amount: float) -> int:
    """An amount of money, meant as written, in billionths."""
    return ceil(_exact(amount) * 1_000_000_000)


def _exact(written: float) -> Fraction:
    """0.15 is 15/100, not the binary number that is nearest to it."""
    return Fraction(str(written))


def most(prompt: int, room: int, price: Price | None, share: float = 1.0) -> tuple[int, int]:
    """The most tokens and money that a call can need whose prompt has so many tokens and whose reply has that room."""
    return prompt + room, money(prompt, room, price, share) if price else 0


def micros(seconds: float) -> int:
    """Seconds as microseconds."""
    return round(seconds * SECOND)


def day_number(moment: int) -> int:
    """Days since 1970 (UTC)."""
    return moment // DAY


def day_named(number: int) -> str:
    """2026-11-30."""
    return date.fromordinal(_EPOCH + number).isoformat()


def day_of(seconds: float) -> str:
    """The date in UTC."""
    return day_named(int(seconds // 86_400))


def until_midnight(seconds: float) -> float:
    """Seconds until the next day begins in UTC."""
    return 86_400 - seconds % 86_400


# -------------------------------------------------------------------------------------------------------- limits


class Call(NamedTuple):
    """A call that was granted: when (µs), and the tokens that it may take."""

    at: int
    tokens: int


class Window(NamedTuple):
    """The calls of the last Limits.window seconds: how many, their tokens together, and each of them, oldest first."""

    calls: int = 0
    tokens: int = 0
    oldest: Iterable[Call] = ()


def windowed(limits: Limits) -> bool:
    """Whether calls under these limits count in the window. Those of a budget alone (batch jobs) do not."""
    return limits.requests is not None or limits.tokens is not None


def free_at(window: Window, limits: Limits, tokens: int) -> int:
    """The first moment (µs) at which a call of so many tokens fits, if no other comes before; 0 if it fits now.

    A call leaves the window exactly Limits.window seconds after it was granted, so no such stretch of time, wherever it
    begins, ever holds more than the limits. An empty window takes any call: one that is larger than the limit goes
    alone, for there is no better time for it.
    """
    calls, taken, moment = window.calls, window.tokens, 0
    oldest = iter(window.oldest)
    while not _fits(calls, taken, limits, tokens):
        leaving = next(oldest)
        calls, taken, moment = calls - 1, taken - leaving.tokens, leaving.at + micros(limits.window)
    return moment


def _fits(calls: int, taken: int, limits: Limits, tokens: int) -> bool:
    return not calls or (calls + 1 <= _bound(limits.requests) and taken + tokens <= _bound(limits.tokens))


def _bound(limit: int | None) -> float:
    return inf if limit is None else limit


class Standing(NamedTuple):
    """What a decision rests on: what was said when pausing, the end of a rest (µs), what is used of today's budget."""

    paused: str | None = None
    rest: int = 0
    tokens: int = 0
    money: int = 0
    window: Window = Window()


def decide(standing: Standing, limits: Limits, tokens: int, money: int, now: int) -> Taken:
    """Whether a call may be made that takes at most so much. Of several reasons against it the first is told."""
    if standing.paused is not None:
        return Taken(granted=False, why="paused", wait=ASK_AGAIN, said=standing.paused)
    if standing.rest > now:
        return _later("rest", standing.rest, now)
    if standing.tokens + tokens > _bound(limits.day_tokens) or standing.money + money > _bound(limits.day_money):
        return _later("budget", (day_number(now) + 1) * DAY, now)
    free = free_at(standing.window, limits, tokens) if windowed(limits) else 0
    return _later("limit", free, now) if free > now else Taken(granted=True)


def _later(why: str, moment: int, now: int) -> Taken:
    return Taken(granted=False, why=why, wait=(moment - now) / SECOND)


# ---------------------------------------------------------------------------------------------------------- spent


def together(one: Spent, other: Spent) -> Spent:
    """What two accounts of the same day, view and level come to."""
    return msgspec.structs.replace(one, **{name: getattr(one, name) + getattr(other, name) for name in COUNTED})


def total(spent: Iterable[Spent]) -> tuple[int, int]:
    """Tokens, in and out, and money."""
    pairs = [(one.tokens_in + one.tokens_out, one.money) for one in spent]
    return sum(tokens for tokens, _ in pairs), sum(money for _, money in pairs)
