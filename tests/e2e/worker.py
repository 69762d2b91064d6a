"""`streammem worker` with a small embedder, which can be told to die at an effect or to have a planted fault.

    python -m tests.e2e.worker [--die EFFECT:N] [--fault NAME] [--nothing] [--model] [--words] [--window S] ROLE...

`--die mark_due:3` is SIGKILL right before the third call of that effect. The faults are those that the chaos test must
catch: if it passes with one of them, the test is worth nothing. `--nothing` acknowledges what `structure` is given and
does nothing else, `--model` takes the embedder of the settings: both for benchmarks. With `--words` the role
`summarize` does the half of its work that needs no vectors, which are in one process in these tests: it lets the
language model word nodes. `--window 5` is the length of the window of requests and tokens a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from streammem import settings as configuration
from streammem.backends.kafka import KafkaLog
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.backends.redis import RedisStructure
from streammem.cli import logs
from streammem.core.registers import order
from streammem.errors import StreammemError
from streammem.records import Version
from streammem.wiring import embedded, language
from streammem.wiring.stream import Streaming
from streammem.workers import duty, run, stages, wording
from streammem.workers.stages import Done
from tests.embedding import HashingEmbedder

PARTS: dict[str, type] = {
    "append": KafkaLog,
    **dict.fromkeys(("register", "enter", "link", "learn", "redact", "mark_due", "advance"), RedisStructure),
    **dict.fromkeys(("keep", "settle"), RedisStructure),
    **dict.fromkeys(("upsert", "replace", "lower", "flush", "keep_nodes"), EdgeIndex),
}
"""The effects of the roles by name, and the part that has them."""


def die_at(effect: str, nth: int) -> None:
    """Kill this process right before the nth call of an effect."""
    part, calls = PARTS[effect], iter(range(1, nth))
    whole = getattr(part, effect)

    async def call(self: Any, *arguments: Any) -> Any:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return await whole(self, *arguments)

    setattr(part, effect, call)


# ------------------------------------------------------------------------------------------------ planted faults


def acknowledge_first() -> None:
    """Records are acknowledged before their effects are in the stores."""
    whole = duty.Duty.do

    async def do(self: duty.Duty, records: Any) -> None:
        self.late = asyncio.create_task(_later(whole(self, records)))  # type: ignore[attr-defined]

    async def _later(work: Any) -> None:
        await asyncio.sleep(2.0)
        await work

    duty.Duty.do = do  # type: ignore[method-assign]


def last_write_wins() -> None:
    """The register keeps the version that came last instead of the greatest."""
    whole = RedisStructure.register

    async def register(self: RedisStructure, versions: Sequence[Version]) -> None:
        before = await self.versions([v.uid for v in versions])
        greatest = {v.uid: max(map(order, some), default=None) for v, some in zip(versions, before, strict=True)}
        for version in versions:
            known = greatest[version.uid]
            if known is None or order(version) > known:
                greatest[version.uid] = order(version)
                await whole(self, [version])

    RedisStructure.register = register  # type: ignore[method-assign]


def mark_only_what_is_new() -> None:
    """A redelivered message marks nothing due: a kill between its effects and its mark loses the mark."""
    register, mark_due = RedisStructure.register, RedisStructure.mark_due
    fresh = set[str]()

    async def noting(self: RedisStructure, versions: Sequence[Version]) -> None:
        before = await self.versions([v.uid for v in versions])
        fresh.update(v.uid for v, some in zip(versions, before, strict=True) if not some)
        await register(self, versions)

    async def marking(self: RedisStructure, marks: Any) -> None:
        await mark_due(self, [(sequence, leaf) for sequence, leaf in marks if leaf.uid in fresh])

    RedisStructure.register = noting  # type: ignore[method-assign]
    RedisStructure.mark_due = marking  # type: ignore[method-assign]


def words_only() -> None:
    """The role `summarize` does the half of its work that needs no vectors."""

    async def duty_of(pulse: duty.Pulse, parts: Streaming) -> None:
        await wording.word_for_ever(parts, pulse)

    async def not_here(self: Streaming) -> None:
        """Another process holds the vectors."""

    run._DUTIES["summarize"] = duty_of
    Streaming.index = not_here  # type: ignore[method-assign,assignment]


class Nothing:
    """A stage without any effect."""

    async def __call__(self, records: Any) -> Done:
        return Done(len(records))

    async def mend(self, acknowledged: Any = None) -> None:
        """Nothing can be forgotten."""


FAULTS = {fault.__name__: fault for fault in (acknowledge_first, last_write_wins, mark_only_what_is_new)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--nothing", action="store_true")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--window", type=float, default=language.MINUTE)
    parser.add_argument("roles", nargs="+")
    chosen = parser.parse_args()
    if chosen.die:
        effect, _, nth = chosen.die.partition(":")
        die_at(effect, int(nth))
    if chosen.fault:
        FAULTS[chosen.fault]()
    if chosen.nothing:
        stages.structuring = lambda *_: Nothing()  # type: ignore[assignment, return-value]
    if chosen.words:
        words_only()
    language.MINUTE = chosen.window
    settings = configuration.load()
    logs.configure(settings, at_least="info")
    try:
        embedder = embedded.fastembed if chosen.model else lambda _: HashingEmbedder()
        asyncio.run(run.run(chosen.roles, settings, embedder=embedder))
    except StreammemError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
