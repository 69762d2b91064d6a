"""Parts to texts by a language model: nothing is paid twice, no limit exceeded, and every reply is checked.

1. the cache: what was paid for is there
2. company: small parts are asked for together
3. a claim: nobody else is asking for the same
4. the breaker, the limits and the budget
5. the call, again and again while the server is away or busy
6. the check of the reply; what fails it is asked for once more with what was wrong
7. the cache again, and what was erased meanwhile leaves it
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from uuid import uuid4

import msgspec

from streammem.core import packing, prompts, replies, spending
from streammem.core.numbers import Wording as Numbers
from streammem.core.patience import Breaker, backoff
from streammem.core.prompts import Part
from streammem.errors import ModelBusyError, PausedError, RejectedError, SettingsError
from streammem.flows.erasing import unsay
from streammem.flows.sheet import Said
from streammem.ports import LanguageModel, Ledger, StructureStore
from streammem.records import Claim, Limits, Paid, Prompt, Reply, Spent, Taken

LOOK = 0.2
"""Seconds between two looks at what somebody else is writing."""

ASK_AGAIN = 1.0
"""Seconds after which to ask again whether a call may be made, however long the wait: a person may have ended it."""

LIMITED = 20
"""Times as many attempts as others have for a call that a server puts off until it has room: it will answer."""

PATIENCE = 10.0
"""Seconds that this is waited for. A job of the Batch API may take a day."""


def _unheard(line: str) -> None:
    """Nobody listens."""


class Terms(msgspec.Struct, frozen=True):
    """On what terms a model is asked: numbers, limits, the price of a million tokens in and out.

    `share` of the price is paid in jobs of the Batch API.
    """

    numbers: Numbers
    limits: Limits
    price: tuple[float, float] = (0.0, 0.0)
    share: float = 0.5


class Teller:
    """Gives texts of parts. One serves many tasks of a process.

    `trouble` is called with one line when calls are kept back, and with "" when they go again. `holder` names who holds
    the texts that are being written, where it is always the same and never more than one at a time. Raises PausedError,
    ModelBusyError when the server stays away, SettingsError when it refuses the key or the model.
    """

    def __init__(
        self,
        model: LanguageModel,
        ledger: Ledger,
        store: StructureStore,
        terms: Terms,
        *,
        trouble: Callable[[str], None] | None = None,
        holder: str = "",
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._ledger, self._store, self._terms = model, ledger, store, terms
        self._numbers = terms.numbers
        self._trouble, self._chance, self._clock = trouble or _unheard, chance, clock
        self._holder = holder or uuid4().hex
        self._breaker = Breaker(terms.numbers)
        self._places = asyncio.Semaphore(terms.numbers.in_flight)
        self._turn = asyncio.Lock()
        self._under_way = 0  # calls that budget was taken for and that are not settled
        self._settled = asyncio.Event()
        self._away = ""
        self._answers = 0
        self._wrong: tuple[float, SettingsError | None] = (0.0, None)
        self._closing = False
        self._asked: dict[str, asyncio.Future[Said | None]] = {}
        self._company = Company(self._answer, terms.numbers)

    async def __call__(self, part: Part, company: str) -> Said | None:
        """The text of a part, from the cache if it is there. None if somebody else takes long to have it written."""
        (paid,) = await self._store.cached([part.key])
        if paid is not None:
            return Said(paid.text)
        if part.key not in self._asked:  # two nodes may be made from the same
            self._asked[part.key] = asyncio.ensure_future(self._company.join(part, company))
            self._asked[part.key].add_done_callback(lambda asked: self._ended(part.key, asked))
        return await asyncio.shield(self._asked[part.key])

    async def close(self, seconds: float = 0.0) -> None:
        """Wait so long for the replies that are under way, as they are paid for, and give up the rest."""
        self._closing = True
        self._settled.set()
        await self._company.close(seconds)

    def _ended(self, key: str, asked: asyncio.Future[Said | None]) -> None:
        self._asked.pop(key, None)
        if not asked.cancelled():
            asked.exception()  # nobody may be waiting for it any more

    # ---- who asks
    async def _answer(self, parts: Many[Part]) -> dict[str, Said | None]:
        """The texts of parts that are asked for together. What others are asking for is waited for."""
        texts: dict[str, Said | None] = {}
        patience = PATIENCE
        while left := [part for part in parts if part.key not in texts]:
            async with self._claimed(left) as mine:
                texts |= await self._paid(left)
                if asked := [part for part in left if part.key in mine and part.key not in texts]:
                    texts |= await self._ask(asked)
            if len(mine) < len(left):
                patience -= LOOK
                texts |= {part.key: None for part in parts if part.key not in texts} if patience < 0 else {}
                await asyncio.sleep(LOOK)
        return texts

    @asynccontextmanager
    async def _claimed(self, parts: Many[Part]) -> AsyncIterator[set[str]]:
        """Hold texts, as many of them as nobody else does, however long it takes."""
        claims = [Claim(part.key, part.view, part.level) for part in parts]
        mine = await self._ledger.claim(claims, self._holder, self._numbers.lease)

        async def extend() -> None:
            while True:
                await asyncio.sleep(self._numbers.lease / 3)
                await self._ledger.claim([c for c in claims if c.key in mine], self._holder, self._numbers.lease)

        extending = asyncio.create_task(extend())
        try:
            yield mine
        finally:
            extending.cancel()
            await asyncio.gather(extending, return_exceptions=True)
            await self._ledger.release(sorted(mine), self._holder)

    async def _paid(self, parts: Many[Part]) -> dict[str, Said]:
        found = await self._store.cached([part.key for part in parts])
        return {part.key: Said(paid.text) for part, paid in zip(parts, found, strict=True) if paid is not None}

    async def _ask(self, parts: Many[Part]) -> dict[str, Said]:
        """Ask for parts together; what the model will not answer together is asked for one by one."""
        try:
            return await self._twice(parts)
        except RejectedError as error:
            if len(parts) == 1:
                return {parts[0].key: Said("", fault=str(error))}
        texts = await self._paid(parts)  # what was right in the first reply
        for part in parts:
            texts |= {} if part.key in texts else await self._ask([part])
        return texts

    async def _twice(self, parts: Many[Part]) -> dict[str, Said]:
        """Ask, and ask once more for what did not pass the check, with what was wrong with it."""
        length = self._numbers.length
        said = await self._say(prompts.prompt(parts, length), parts)
        if faulty := [part for part in parts if said[part.key].fault]:
            faults = {part.id: said[part.key].fault for part in faulty}
            again = await self._say(prompts.prompt(faulty, length, faults), faulty)
            said |= {key: msgspec.structs.replace(s, tokens=s.tokens + said[key].tokens) for key, s in again.items()}
        return said

    # ---- one reply
    async def _say(self, prompt: Prompt, parts: Many[Part]) -> dict[str, Said]:
        """One reply, checked, accounted for and kept. Parts that did not pass have a fault."""
        async with self._places:
            reply, taken = await self._called(prompt, parts)
            texts, faults = replies.read(reply.text, parts, self._numbers.length)
            try:
                await self._keep(parts, texts)  # before another call begins: a kill costs no more than the places
            except BaseException:
                self._end_call()  # it gives nothing back, and nobody may wait for that
                raise
        spent = _spent(prompt, reply, parts, self._terms, nodes=len(texts))
        await self._settle(taken, spent)
        share = (spent.tokens_in + spent.tokens_out) // len(parts)
        return {p.key: Said(texts.get(p.key, ""), share, faults.get(p.key, "")) for p in parts}

    async def _called(self, prompt: Prompt, parts: Many[Part]) -> tuple[Reply, tuple[int, int]]:
        """A reply of the model, and what was taken out of the budget for it.

        Where the server answers others and never this, it will not answer this: RejectedError.
        """
        before = self._answers
        for attempt in itertools.count(1):
            taken = await self._admitted(prompt)
            try:
                reply = await self._model.say(prompt)
            except ModelBusyError as error:
                await self._put_off(error, attempt, prompt, taken, parts, others=self._answers > before)
            except (RejectedError, SettingsError) as error:
                self._breaker.went_well()
                await self._settle(taken, _spent(prompt, Reply(""), parts, self._terms, failed=1, charged=False))
                if isinstance(error, SettingsError):
                    self._wrong = (self._clock() + self._numbers.cooling, error)
                raise
            except BaseException:
                self._breaker.given_up()
                self._end_call()  # what was taken stays taken: nobody knows what it will cost
                raise
            else:
                self._answers += 1
                self._breaker.went_well()
                self._trouble("")
                if reply.refused:
                    await self._settle(taken, _spent(prompt, reply, parts, self._terms, failed=1))
                    raise RejectedError("refused", reply.refused)
                return reply, taken
        raise AssertionError

    async def _admitted(self, prompt: Prompt) -> tuple[int, int]:
        """Wait until a call may be made; the tokens and the money that were taken for it.

        One after the other: a large call would wait for ever while small ones fill the limits.
        """
        async with self._turn:
            return await self._take(*most(prompt, self._terms))

    async def _take(self, tokens: int, money: int) -> tuple[int, int]:
        while True:
            self._look()
            if wait := self._breaker.wait(self._clock()):
                await asyncio.sleep(min(wait, 1.0))
                continue
            try:
                taken = await self._ledger.take(self._terms.limits, tokens, money)
            except BaseException:
                self._breaker.given_up()
                raise
            if taken.granted:
                self._under_way += 1
                return tokens, money
            self._breaker.given_up()
            await self._wait_for(taken, tokens)

    def _look(self) -> None:
        """Raise why no call is worth trying: it is over, the settings are wrong, or the server stays away."""
        if self._closing:
            raise PausedError("no more calls are made: it was stopped", 0.0)
        until, wrong = self._wrong
        if wrong is not None and self._clock() < until:
            raise wrong
        if self._breaker.hopeless(self._clock()):
            raise ModelBusyError(self._away)

    async def _wait_for(self, taken: Taken, tokens: int) -> None:
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
            self._trouble(f"{self._away or 'limits'}: calls go on in {taken.wait:.0f} s" if taken.wait > 1 else "")
            await asyncio.sleep(min(taken.wait, ASK_AGAIN) * (1 + self._chance() / 10))

    async def _settle(self, taken: tuple[int, int], spent: Spent) -> None:
        try:
            await self._ledger.settle(*taken, [spent])
        finally:
            self._end_call()

    def _end_call(self) -> None:
        self._under_way -= 1
        self._settled.set()

    async def _put_off(
        self,
        error: ModelBusyError,
        attempt: int,
        prompt: Prompt,
        taken: tuple[int, int],
        parts: Many[Part],
        *,
        others: bool,
    ) -> None:
        """Account for a call that failed and wait for the next attempt. Raises the error after the last one."""
        self._breaker.failed(self._clock())
        self._away = str(error)
        self._trouble(self._away)
        await self._settle(taken, _spent(prompt, Reply(""), parts, self._terms, failed=1, charged=error.charged))
        if error.after is not None:
            await self._ledger.rest(error.after)
        limited = error.after is not None  # it will answer, only not now
        if attempt >= self._numbers.attempts * (LIMITED if limited else 1):
            raise RejectedError("unanswered", str(error)) if others and not limited else error
        if error.after is None:
            await asyncio.sleep(backoff(attempt, self._chance(), self._numbers))

    async def _keep(self, parts: Many[Part], texts: dict[str, str]) -> None:
        """Keep what was paid for; but not what was made from something that was erased meanwhile."""
        together = frozenset(source for part in parts for source in part.sources)
        paid = {
            part.key: Paid(texts[part.key], part.sources, tuple(sorted(together.difference(part.sources))))
            for part in parts
            if part.key in texts
        }
        await keep_paid(paid, self._store)


async def keep_paid(paid: Mapping[str, Paid], store: StructureStore) -> None:
    """Keep texts, but for those that were made from what has been erased.

    It is looked at before and after: the eraser may look in between.
    """
    gone = await _erased({source for text in paid.values() for source in (*text.sources, *text.beside)}, store)
    kept = {key: text for key, text in paid.items() if gone.isdisjoint((*text.sources, *text.beside))}
    if kept:
        await store.cache(kept)
        if gone := await _erased({source for text in kept.values() for source in (*text.sources, *text.beside)}, store):
            await unsay(sorted(gone), store)


async def _erased(sources: set[str], store: StructureStore) -> set[str]:
    """Which of these are no more: messages that were forgotten, texts that have left the cache."""
    texts = sorted(source for source in sources if is_key(source))
    gone = await store.forbidden(sources.difference(texts))
    return gone | {key for key, paid in zip(texts, await store.cached(texts), strict=True) if paid is None}


def is_key(source: str) -> bool:
    """Whether a source is the key of a paid text; else it is the uid of a message, which has two slashes."""
    return source.count("/") > 2


def most(prompt: Prompt, terms: Terms) -> tuple[int, int]:
    """The most tokens and money that a call can need."""
    return spending.most(prompts.cost(prompt), prompt.room, terms.price)


def paused_because(taken: Taken) -> str:
    """Why no call is made, in one line."""
    if taken.why == "paused":
        return f"model calls are paused{f' ({taken.said})' if taken.said else ''}: run `streammem summaries resume`"
    hours = taken.wait / 3600
    return f"today's budget of model calls is spent: they go on in {hours:.1f} hours, at 00:00 UTC"


def _spent(
    prompt: Prompt,
    reply: Reply,
    parts: Many[Part],
    terms: Terms,
    *,
    nodes: int = 0,
    failed: int = 0,
    charged: bool = True,
) -> Spent:
    """What a call took, by what the server says, else by our own count."""
    tokens_in = reply.tokens_in or (prompts.cost(prompt) if charged and (reply.text or failed) else 0)
    tokens_out = reply.tokens_out or prompts.tokens(reply.text)
    return Spent(
        view=parts[0].view,
        level=parts[0].level,
        calls=1,
        failed=failed,
        nodes=nodes,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        money=spending.money(tokens_in, tokens_out, terms.price),
    )


Group = list[tuple[Part, asyncio.Future[Said | None]]]
"""Parts that are asked for together, and where each text is waited for."""


class Company:
    """Lets small parts wait a moment for others, so that they are asked for together and pay the instructions once."""

    def __init__(self, answer: Callable[[Many[Part]], Awaitable[dict[str, Said | None]]], numbers: Numbers) -> None:
        self._answer, self._numbers = answer, numbers
        self._waiting: dict[str, Group] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def join(self, part: Part, company: str) -> Said | None:
        """The text of a part, asked for alone or with others of the same company."""
        future: asyncio.Future[Said | None] = asyncio.get_running_loop().create_future()
        if packing.alone(part, self._numbers):
            self._send([(part, future)])
        else:
            self._wait_with_others(part, future, company)
        return await future

    def _wait_with_others(self, part: Part, future: asyncio.Future[Said | None], company: str) -> None:
        waiting = self._waiting.get(company)
        if waiting is not None and not packing.fits(part, [other for other, _ in waiting], self._numbers):
            self._leave(company, waiting)
            waiting = None
        if waiting is None:
            waiting = self._waiting[company] = []
            asyncio.get_running_loop().call_later(self._numbers.linger, self._leave, company, waiting)
        waiting.append((part, future))
        if len(waiting) == self._numbers.pack:
            self._leave(company, waiting)

    async def close(self, seconds: float) -> None:
        """Wait so long for those who are being asked for; let the rest go."""
        for group in self._waiting.values():
            _give_up(group)
        self._waiting.clear()
        running = set(self._running)
        if running:
            await asyncio.wait(running, timeout=seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _leave(self, company: str, those: Group) -> None:
        """Ask for those who wait, if they still do."""
        if self._waiting.get(company) is those:
            del self._waiting[company]
            self._send(those)

    def _send(self, group: Group) -> None:
        task = asyncio.create_task(self._ask(group))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _ask(self, group: Group) -> None:
        try:
            texts = await self._answer([part for part, _ in group])
        except Exception as error:  # noqa: BLE001 - it is raised where the texts are waited for
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        except asyncio.CancelledError:
            _give_up(group)
            raise
        else:
            for part, future in group:
                if not future.done():
                    future.set_result(texts[part.key])


def _give_up(group: Group) -> None:
    """Let nobody wait for these any more."""
    for _, future in group:
        future.cancel()
