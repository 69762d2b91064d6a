"""Evidence to a reply in words, by a language model: optional, and nobody waits for it but who asked for it.

1. an answer that found nothing is refused at no cost
2. the call, within the limits and the budget (flows.calling)
3. the check of the reply; what fails it is asked for once more with what was wrong, then marked as not supported

Whatever goes wrong, the evidence stands: a note says why there is no reply. A reply is stored nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Many
from math import inf

import msgspec

from streammem.core import answering
from streammem.core.answering import Checked, Question
from streammem.core.directory import Directory
from streammem.core.events import moment
from streammem.core.numbers import Answering as Numbers
from streammem.errors import RejectedError, StreammemError, TransientError
from streammem.flows.calling import Calls, Purpose, ended
from streammem.ports import REPLIES, LanguageModel
from streammem.records import Answer, Evidence, Generated

PURPOSE = Purpose(REPLIES, 1)
"""What the ledger adds up replies under."""


class Replier:
    """Writes replies. One serves many tasks of a process. `directory` gives the directory of a workspace."""

    def __init__(
        self,
        calls: Calls,
        model: LanguageModel,
        numbers: Numbers,
        directory: Callable[[str], Awaitable[Directory]],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._calls, self._model, self._numbers, self._directory = calls, model, numbers, directory
        self._clock, self._now = clock, now
        self._places = asyncio.Semaphore(numbers.in_flight)
        self._running: set[asyncio.Task[Generated]] = set()

    async def __call__(self, answer: Answer, seconds: float = inf) -> Answer:
        """The answer with a reply, or with a note that says why there is none."""
        if answer.abstained or not answer.evidence:
            return msgspec.structs.replace(answer, reply=answering.UNASKED)
        if len(self._running) >= self._numbers.in_flight + self._numbers.waiting:
            return unwritten(answer, f"{len(self._running)} others are waiting for one: ask again later")
        began, seconds = self._clock(), min(seconds, self._numbers.seconds)
        try:
            reply = await self._within(seconds, answer)
        except StreammemError as error:
            return unwritten(answer, str(error))
        if reply is None:
            return unwritten(answer, f"{self._model.name} gave none in {seconds:.3g} s")
        timings = {**answer.timings_ms, "reply": round((self._clock() - began) * 1000, 2)}
        return msgspec.structs.replace(answer, reply=reply, timings_ms=timings)

    async def close(self, seconds: float = 0.0) -> None:
        """Wait so long for the calls that are under way, so that they are accounted for, and give up the rest."""
        self._calls.close()
        await ended(self._running, seconds)
        await self._model.close()

    async def _within(self, seconds: float, answer: Answer) -> Generated | None:
        """The reply, None when the time is up. A call that is under way then goes on until it is accounted for."""
        task = asyncio.create_task(self._write(answer, self._clock() + seconds))
        self._running.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait((task,), timeout=seconds)
        return task.result() if done else None

    def _ended(self, task: asyncio.Task[Generated]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

    async def _write(self, answer: Answer, until: float) -> Generated:
        """Ask, and ask once more when the reply does not pass the check, with what was wrong with it."""
        question = await self._question(answer)
        async with self._places:
            checked, paid = await self._ask(question, answer.evidence, (), until)
            if checked.faults:
                try:
                    checked, more = await self._ask(question, answer.evidence, checked.faults, until)
                    paid += more
                except (TransientError, RejectedError):
                    pass  # the first reply stands, with what is wrong with it
        return answering.generated(checked, self._model.name, paid)

    async def _question(self, answer: Answer) -> Question:
        by = ""
        if answer.asker is not None:
            by = (await self._directory(answer.evidence[0].workspace)).user_name(answer.asker)
        return Question(answer.question, by, moment(int(self._now() * 1e6) if answer.as_of is None else answer.as_of))

    async def _ask(
        self, question: Question, evidence: Many[Evidence], faults: Many[str], until: float
    ) -> tuple[Checked, int]:
        """A reply, checked, and the tokens that it took."""
        length = self._numbers.length
        prompt = answering.prompt(question, evidence, length, faults)
        reply, taken = await self._calls.call(prompt, PURPOSE, until)
        spent = self._calls.spent(prompt, reply, PURPOSE)
        await self._calls.settle(taken, spent)
        return answering.read(reply.text, question, evidence, length), spent.tokens_in + spent.tokens_out


class Mute:
    """Stands in for who writes replies where nobody can be asked: a note says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def __call__(self, answer: Answer, *_: float) -> Answer:
        """The answer with a note that says why there is no reply."""
        return unwritten(answer, self._reason)

    async def close(self, *_: float) -> None:
        """There is nothing to give up."""


def unwritten(answer: Answer, reason: str) -> Answer:
    """The answer with a note that says why there is no reply."""
    return msgspec.structs.replace(answer, notes=(*answer.notes, f"no reply was written: {reason}"))
