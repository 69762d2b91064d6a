"""Calls to a language model: no limit and no budget is exceeded, and a server that is away is not worn down.

1. the breaker, the limits and the budget: what a call may need at most is taken out first
2. the call, again and again while the server is away or busy
3. the account: what it really took stands in the place of what was taken
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

import msgspec

from streammem.core import prompts, spending
from streammem.core.numbers import Wording as Numbers
from streammem.core.patience import Breaker, backoff
from streammem.errors import ModelBusyError, PausedError, RejectedError, SettingsError
from streammem.ports import LanguageModel, Ledger
from streammem.records import Limits, Prompt, Reply, Spent, Taken

ASK_AGAIN = 1.0
"""Seconds after which to ask again whether a call may be made, however long the wait: a person may have ended it."""

LIMITED = 20
"""Times as many attempts as others have for a call that a server puts off until it has room: it will answer."""


class Terms(msgspec.Struct, frozen=True):
    """On what terms a model is asked: numbers, limits, the price of a million tokens in and out.

    `share` of the price is paid in jobs of the Batch API.
    """

    numbers: Numbers
    limits: Limits
    price: tuple[float, float] = (0.0, 0.0)
    share: float = 0.5


class Purpose(NamedTuple):
    """What a call is made for, as the ledger adds it up: the view and level of nodes, or something of its own."""

    view: str
    level: int


class Taking(NamedTuple):
    """What was taken out of the budget for a call: tokens, and money in billionths."""

    tokens: int
    money: int


def _unheard(line: str) -> None:
    """Nobody listens."""


class Calls:
    """Makes the calls of one process. One serves many tasks.

    `trouble` is called with one line when calls are kept back, and with "" when they go again. Raises PausedError,
    ModelBusyError when the server stays away, SettingsError when it refuses the key or the model.
    """

    def __init__(
        self,
        model: LanguageModel,
        ledger: Ledger,
        terms: Terms,
        *,
        trouble: Callable[[str], None] | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._ledger, self._terms = model, ledger, terms
        self._numbers = terms.numbers
        self._trouble, self._chance, self._clock = trouble or _unheard, chance, clock
        self.breaker = Breaker(terms.numbers)
        self._turn = asyncio.Lock()
        self._under_way = 0  # calls that budget was taken for and that are not settled
        self._settled = asyncio.Event()
        self._away = ""
        self._answers = 0
        self._wrong: tuple[float, SettingsError | None] = (0.0, None)
        self._closing = False

    async def call(self, prompt: Prompt, purpose: Purpose, until: float = inf) -> tuple[Reply, Taking]:
        """A reply of the model, and what was taken out of the budget for it: `settle` it, or `give_up` on it.

        `until`, by the clock: no call begins after that, and nothing is waited for that comes later (ModelBusyError).
        Where the server answers others and never this, it will not answer this: RejectedError.
        """
        before = self._answers
        for attempt in itertools.count(1):
            taken = await self._admitted(prompt, until)
            try:
                reply = await self._model.say(prompt)
            except ModelBusyError as error:
                others = self._answers > before
                await self._put_off(error, attempt, prompt, taken, purpose, until=until, others=others)
            except (RejectedError, SettingsError) as error:
                self.breaker.went_well()
                await self.settle(taken, self.spent(prompt, Reply(""), purpose, failed=1, charged=False))
                if isinstance(error, SettingsError):
                    self._wrong = (self._clock() + self._numbers.cooling, error)
                raise
            except BaseException:
                self.breaker.given_up()
                self.give_up()  # what was taken stays taken: nobody knows what it will cost
                raise
            else:
                self._answers += 1
                self.breaker.went_well()
                self._trouble("")
                if reply.refused:
                    await self.settle(taken, self.spent(prompt, reply, purpose, failed=1))
                    raise RejectedError("refused", reply.refused)
                return reply, taken
        raise AssertionError

    async def settle(self, taken: Taking, spent: Spent) -> None:
        """Account for a call that has ended."""
        try:
            await self._ledger.settle(*taken, [spent])
        finally:
            self.give_up()

    def give_up(self) -> None:
        """A call has ended that gives nothing back."""
        self._under_way -= 1
        self._settled.set()

    def spent(
        self, prompt: Prompt, reply: Reply, purpose: Purpose, *, nodes: int = 0, failed: int = 0, charged: bool = True
    ) -> Spent:
        """What a call took, by what the server says, else by our own count."""
        tokens_in = reply.tokens_in or (prompts.cost(prompt) if charged and (reply.text or failed) else 0)
        tokens_out = reply.tokens_out or prompts.tokens(reply.text)
        return Spent(
            view=purpose.view,
            level=purpose.level,
            calls=1,
            failed=failed,
            nodes=nodes,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            money=spending.money(tokens_in, tokens_out, self._terms.price),
        )

    def close(self) -> None:
        """Let no call begin any more."""
        self._closing = True
        self._settled.set()

    # ---- whether a call may be made
    async def _admitted(self, prompt: Prompt, until: float) -> Taking:
        """Wait until a call may be made; the tokens and the money that were taken for it.

        One after the other: a large call would wait for ever while small ones fill the limits.
        """
        async with self._turn:
            return await self._take(most(prompt, self._terms), until)

    async def _take(self, needed: Taking, until: float) -> Taking:
        while True:
            self._look(until)
            if wait := self.breaker.wait(self._clock()):
                self._worth(wait, until, self._away)
                await asyncio.sleep(min(wait, 1.0))
                continue
            try:
                taken = await self._ledger.take(self._terms.limits, *needed)
            except BaseException:
                self.breaker.given_up()
                raise
            if taken.granted:
                self._under_way += 1
                return needed
            self.breaker.given_up()
            await self._wait_for(taken, needed.tokens, until)

    def _look(self, until: float) -> None:
        """Raise why no call is worth trying: it is over, the settings are wrong, or the server stays away."""
        if self._closing:
            raise PausedError("no more calls are made: it was stopped", 0.0)
        wrong_until, wrong = self._wrong
        if wrong is not None and self._clock() < wrong_until:
            raise wrong
        if self.breaker.hopeless(self._clock()):
            raise ModelBusyError(self._away)
        self._worth(0.0, until, self._away or "the time is up")

    def _worth(self, seconds: float, until: float, why: str) -> None:
        """Raise why not, where it is not worth waiting so long."""
        if self._clock() + seconds >= until:
            raise ModelBusyError(why)

    async def _wait_for(self, taken: Taken, tokens: int, until: float) -> None:
        """Wait until it is worth asking again. Raises PausedError or ModelBusyError where that is not soon."""
        if taken.why == "budget" and self._under_way:  # what these do not need comes back
            self._settled.clear()
            await self._settled.wait()
        elif taken.why == "budget" and tokens > (self._terms.limits.day_tokens or tokens):
            raise SettingsError(
                f"STREAMMEM_BUDGET__TOKENS={self._terms.limits.day_tokens} is less than a call may need ({tokens}):"
                " raise it"
            )
        elif taken.why in ("paused", "budget"):
            raise PausedError(paused_because(taken), taken.wait)
        elif taken.wait > max(self._numbers.longest, self._terms.limits.window):
            raise ModelBusyError(f"the model server wants no calls for {taken.wait:.0f} s: {self._away}")
        else:
            kept_back = f"{self._away or 'limits'}: calls go on in {taken.wait:.0f} s"
            self._worth(taken.wait, until, kept_back)
            self._trouble(kept_back if taken.wait > 1 else "")
            await asyncio.sleep(min(taken.wait, ASK_AGAIN) * (1 + self._chance() / 10))

    # ---- a call that failed
    async def _put_off(
        self,
        error: ModelBusyError,
        attempt: int,
        prompt: Prompt,
        taken: Taking,
        purpose: Purpose,
        *,
        until: float,
        others: bool,
    ) -> None:
        """Account for a call that failed and wait for the next attempt. Raises the error after the last one."""
        self.breaker.failed(self._clock())
        self._away = str(error)
        self._trouble(self._away)
        await self.settle(taken, self.spent(prompt, Reply(""), purpose, failed=1, charged=error.charged))
        if error.after is not None:
            await self._ledger.rest(error.after)
        limited = error.after is not None  # it will answer, only not now
        if attempt >= self._numbers.attempts * (LIMITED if limited else 1):
            raise RejectedError("unanswered", str(error)) if others and not limited else error
        if error.after is None:
            wait = backoff(attempt, self._chance(), self._numbers)
            self._worth(wait, until, str(error))
            await asyncio.sleep(wait)


def most(prompt: Prompt, terms: Terms) -> Taking:
    """The most tokens and money that a call can need."""
    return Taking(*spending.most(prompts.cost(prompt), prompt.room, terms.price))


def paused_because(taken: Taken) -> str:
    """Why no call is made, in one line."""
    if taken.why == "paused":
        return f"model calls are paused{f' ({taken.said})' if taken.said else ''}: run `streammem summaries resume`"
    hours = taken.wait / 3600
    return f"today's budget of model calls is spent: they go on in {hours:.1f} hours, at 00:00 UTC"


async def ended(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Wait so long for these to end by themselves, and give up the rest."""
    running = tuple(tasks)
    if running:
        await asyncio.wait(running, timeout=seconds)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
