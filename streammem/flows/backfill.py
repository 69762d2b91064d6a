"""Wording by jobs of the Batch API: cheaper, within a day, for histories. Level by level, children before parents.

    1. go through what is due; what is not in the cache is gathered instead of asked for
    2. collect the jobs that have ended: check the replies, keep the texts, account for them
    3. hand in what is gathered and in no job yet, as far as the budget goes
    4. wait, and begin again; done when nothing is gathered and no job is left

A job is noted before it is handed in, under a name that the server is told, so that after a crash it is found there and
not handed in twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from uuid import uuid4

import msgspec

from streammem.core import prompts, replies, spending
from streammem.core.prompts import Part
from streammem.errors import PausedError, RejectedError, SettingsError
from streammem.flows.calling import Terms, paused_because
from streammem.flows.sheet import Pen, Said, Worded
from streammem.flows.telling import keep_paid
from streammem.flows.wording import drain
from streammem.ports import LanguageModel, Ledger, StructureStore
from streammem.records import Claim, Job, Limits, Paid, Prompt, Reply, Spent

CLAIM = 26 * 3600.0
"""Seconds that the texts of a job are held: longer than a job may take."""


class Backfill:
    """Words what is due by jobs. `told` hears of every round: how many prompts are with the server."""

    def __init__(
        self,
        pen: Pen,
        model: LanguageModel,
        ledger: Ledger,
        terms: Terms,
        *,
        told: Callable[[int], None] | None = None,
    ) -> None:
        self._desk = _Desk(pen.store)
        self._pen = msgspec.structs.replace(pen, tell=self._desk)
        self._model, self._ledger, self._terms, self._told = model, ledger, terms, told

    async def run(self) -> Worded:
        """Return when nothing is due any more. Raises PausedError when the budget is spent and no job is left."""
        total = Worded()
        while True:
            await asyncio.sleep(self._pen.rest)  # what was left behind in the last round is due again
            self._desk.keep({claim.key for job in await self._ledger.jobs() for claim in job.claims})
            total = msgspec.structs.replace(total, behind=0) + await drain(self._pen)
            collected = await self._collect()
            jobs = await self._ledger.jobs()
            paused = await self._hand_in(jobs)
            jobs = await self._ledger.jobs()
            if self._told:
                self._told(sum(len(job.claims) for job in jobs))
            if not jobs and paused is not None:
                raise paused
            if not jobs and not collected:
                return total
            if not collected:
                await asyncio.sleep(self._terms.numbers.poll)

    # ---- collecting
    async def _collect(self) -> int:
        """Take in the jobs that have ended; how many there were."""
        ended = 0
        for job in await self._ledger.jobs():
            known = job.id or await self._model.handed_in(job.name)
            if known and not job.id:
                job = msgspec.structs.replace(job, id=known)  # noqa: PLW2901 - the same job, with what is known now
                await self._ledger.keep_job(job)
            if known and not await self._model.ended(known):
                continue
            if known:
                await self._take_in(job, await self._model.replies(known))
            else:
                await self._put_back(job)
            ended += 1
        return ended

    async def _take_in(self, job: Job, found: dict[str, Reply | str]) -> None:
        """Check and keep what came of a job. What is no longer wanted was paid for all the same."""
        parts = {part.id: part for part in self._desk.gathered.values()}
        texts: dict[Part, str] = {}
        for id_ in (prompts.id_of(claim.key) for claim in job.claims):
            if id_ in parts:
                self._check(parts[id_], found.get(id_, "the job gave no reply"), texts)
        paid = {part.key: Paid(text, part.sources) for part, text in texts.items()}
        await keep_paid(paid, self._pen.store)
        await self._done_with(job, self._account(job, found, texts))
        await self._model.discard(job.id)

    async def _put_back(self, job: Job) -> None:
        """Nothing was asked: the server has no such job."""
        await self._done_with(job, [])

    async def _done_with(self, job: Job, spent: Many[Spent]) -> None:
        keys = [claim.key for claim in job.claims]
        await self._ledger.settle(job.tokens, job.money, spent)
        await self._ledger.release(keys, job.name)
        await self._ledger.drop_job(job.name)
        self._desk.drop(keys)

    def _check(self, part: Part, reply: Reply | str, texts: dict[Part, str]) -> None:
        if isinstance(reply, str) or reply.refused:
            self._desk.fail(part, reply if isinstance(reply, str) else reply.refused)
            return
        good, faults = replies.read(reply.text, [part], self._terms.numbers.length)
        if part.key in good:
            texts[part] = good[part.key]
        else:
            self._desk.fail(part, faults[part.key])

    def _account(self, job: Job, found: dict[str, Reply | str], texts: dict[Part, str]) -> list[Spent]:
        """What a job took, by view and level."""
        worded = {part.key for part in texts}
        return [self._spent(claim, found.get(prompts.id_of(claim.key)), claim.key in worded) for claim in job.claims]

    def _spent(self, claim: Claim, reply: Reply | str | None, worded: bool) -> Spent:
        answered = reply if isinstance(reply, Reply) else Reply("")
        money = spending.money(answered.tokens_in, answered.tokens_out, self._terms.price, self._terms.share)
        return Spent(
            view=claim.view,
            level=claim.level,
            calls=int(reply is not None),
            failed=int(isinstance(reply, str) or bool(answered.refused)),
            nodes=int(worded),
            tokens_in=answered.tokens_in,
            tokens_out=answered.tokens_out,
            money=money,
        )

    # ---- handing in
    async def _hand_in(self, jobs: Many[Job]) -> PausedError | None:
        """Hand in what is gathered and nobody has, in jobs. What stopped it, when the budget does not allow more."""
        handed = {claim.key for job in jobs for claim in job.claims}
        parts = [part for part in self._desk.gathered.values() if part.key not in handed]
        size = self._terms.numbers.job
        for start in range(0, len(parts), size):
            paused = await self._hand_in_one(parts[start : start + size])
            if paused is not None:
                return paused
        return None

    async def _hand_in_one(self, parts: Many[Part]) -> PausedError | None:
        name = uuid4().hex
        mine = await self._ledger.claim(_claims(parts), name, self._terms.numbers.lease)
        free = [part for part in parts if part.key in mine]
        asked, taken, paused = await self._affordable(free)
        await self._ledger.release(sorted(mine - {part.key for part in asked}), name)
        if asked:
            job = Job(name=name, claims=_claims(asked), tokens=taken[0], money=taken[1], at=time.time())
            await self._ledger.keep_job(job)
            await self._ledger.claim(job.claims, name, CLAIM)  # not before: nobody would give it back after a crash
            await self._submit(job, {part.id: self._prompt(part) for part in asked})
        return paused

    async def _submit(self, job: Job, wanted: Mapping[str, Prompt]) -> None:
        try:
            known = await self._model.submit(job.name, wanted)
        except (RejectedError, SettingsError):
            await self._put_back(job)  # others need not wait for what the server does not take
            raise
        await self._ledger.keep_job(msgspec.structs.replace(job, id=known))

    async def _affordable(self, parts: Many[Part]) -> tuple[Many[Part], tuple[int, int], PausedError | None]:
        """As many of the parts as the day's budget allows, about, and what was taken out of it for them."""
        limits = self._terms.limits
        budget = Limits(day_tokens=limits.day_tokens, day_money=limits.day_money)  # a job is no call of this minute
        paused = None
        while parts:
            costs = [self._most(part) for part in parts]
            tokens, money = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
            taken = await self._ledger.take(budget, tokens, money)
            if taken.granted:
                return parts, (tokens, money), paused
            paused = PausedError(paused_because(taken), taken.wait)
            parts = parts[: len(parts) // 2] if taken.why == "budget" else []
        return [], (0, 0), paused

    def _most(self, part: Part) -> tuple[int, int]:
        prompt = self._prompt(part)
        return spending.most(prompts.cost(prompt), prompt.room, self._terms.price, self._terms.share)

    def _prompt(self, part: Part) -> Prompt:
        return self._desk.prompt(part, self._terms.numbers.length)


def _claims(parts: Iterable[Part]) -> tuple[Claim, ...]:
    return tuple(Claim(part.key, part.view, part.level) for part in parts)


class _Desk:
    """Gathers the parts that are not in the cache, for the next job. One that failed twice is failed at."""

    def __init__(self, store: StructureStore) -> None:
        self._store = store
        self.gathered: dict[str, Part] = {}
        self._faults: dict[str, list[str]] = {}

    async def __call__(self, part: Part, company: str) -> Said | None:  # noqa: ARG002 - a job has every kind
        (paid,) = await self._store.cached([part.key])
        if paid is not None:
            return Said(paid.text)
        faults = self._faults.get(part.key, [])
        if len(faults) > 1:
            return Said("", fault=faults[-1])
        self.gathered[part.key] = part
        return None

    def keep(self, keys: set[str]) -> None:
        """Begin a round. What jobs hold stays: its sequence may be in the hands of others when they end."""
        self.gathered = {key: part for key, part in self.gathered.items() if key in keys}

    def drop(self, keys: Many[str]) -> None:
        """Let these be gathered anew, if they are still wanted."""
        for key in keys:
            self.gathered.pop(key, None)

    def fail(self, part: Part, fault: str) -> None:
        """Note what was wrong with a reply."""
        self._faults.setdefault(part.key, []).append(fault)

    def prompt(self, part: Part, length: int) -> Prompt:
        """What is asked, with what was wrong the first time."""
        faults = self._faults.get(part.key)
        return prompts.prompt([part], length, {part.id: faults[-1]} if faults else {})
