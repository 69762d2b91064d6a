"""Lets a language model word memories in forks of this process, so that one start serves many, and kills them.

Reads a Task as a JSON line and forks. Writes the id of the fork as a JSON line, and another with its end when it has
ended: an exit status, or minus the signal that ended it. The kill is SIGKILL: nothing of the fork runs afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from streammem import open_memory
from streammem.backends.openai import OpenAIModel
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.backends.sqlite import SqliteStructure
from streammem.backends.sqlite_ledger import SqliteLedger
from tests.embedding import HashingEmbedder

PARTS: dict[str, type] = {
    "claim": SqliteLedger,
    "take": SqliteLedger,
    "say": OpenAIModel,
    "cache": SqliteStructure,
    "release": SqliteLedger,
    "word": SqliteStructure,
}
"""The effects of wording a node, in order, and the part that has them."""

READY = (EdgeIndex,)
"""What a memory imports when it is opened is imported before the forks."""


class Task(msgspec.Struct):
    """A memory to be worded, with these settings. It dies right before (or behind) the nth call of an effect."""

    memory: str
    environment: dict[str, str]
    effect: str = ""
    nth: int = 0
    after: bool = False


def die_at(task: Task) -> None:
    """Put a kill around an effect."""
    part, calls = PARTS[task.effect], iter(range(1, task.nth))
    whole = getattr(part, task.effect)

    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        last = next(calls, None) is None
        if last and not task.after:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = await whole(self, *arguments, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    setattr(part, task.effect, call)


async def word(path: Path) -> None:
    async with open_memory(path, create=False, embedder=lambda _: HashingEmbedder()) as memory:
        await memory.word()


def fork(task: Task) -> int:
    """Word in a fork; its id."""
    child = os.fork()
    if not child:
        try:
            os.environ.update(task.environment)
            if task.effect:
                die_at(task)
            asyncio.run(word(Path(task.memory)))
            os._exit(0)
        finally:
            os._exit(99)
    return child


def main() -> None:
    for line in sys.stdin:
        child = fork(msgspec.json.decode(line, type=Task))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
