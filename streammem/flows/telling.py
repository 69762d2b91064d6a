"""Parts to texts by a language model: nothing is paid twice, no limit exceeded, and every reply is checked.

1. the cache: what was paid for is there
2. company: small parts are asked for together
3. a claim: nobody else is asking for the same
4. the call, within the limits and the budget (flows.calling)
5. the check of the reply; what fails it is asked for once more with what was wrong
6. the cache again, and what was erased meanwhile leaves it
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from uuid import uuid4

import msgspec

from streammem.core import packing, prompts, replies
from streammem.core.numbers import Wording as Numbers
from streammem.core.prompts import Part
from streammem.errors import RejectedError
from streammem.flows.calling import Calls, Purpose, Terms, ended
from streammem.flows.erasing import unsay
from streammem.flows.sheet import Said
from streammem.ports import LanguageModel, Ledger, StructureStore
from streammem.records import Claim, Paid, Prompt

LOOK = 0.2
"""Seconds between two looks at what somebody else is writing."""

PATIENCE = 10.0
"""Seconds that this is waited for. A job of the Batch API may take a day."""


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
        self._ledger, self._store, self._numbers = ledger, store, terms.numbers
        self._calls = Calls(model, ledger, terms, trouble=trouble, chance=chance, clock=clock)
        self._holder = holder or uuid4().hex
        self._places = asyncio.Semaphore(terms.numbers.in_flight)
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
        self._calls.close()
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
        purpose = Purpose(parts[0].view, parts[0].level)
        async with self._places:
            reply, taken = await self._calls.call(prompt, purpose)
            texts, faults = replies.read(reply.text, parts, self._numbers.length)
            try:
                await self._keep(parts, texts)  # before another call begins: a kill costs no more than the places
            except BaseException:
                self._calls.give_up()  # it gives nothing back, and nobody may wait for that
                raise
        spent = self._calls.spent(prompt, reply, purpose, nodes=len(texts))
        await self._calls.settle(taken, spent)
        share = (spent.tokens_in + spent.tokens_out) // len(parts)
        return {p.key: Said(texts.get(p.key, ""), share, faults.get(p.key, "")) for p in parts}

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
        await ended(self._running, seconds)

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
