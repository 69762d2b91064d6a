"""Runs streammem commands in forks of this process, so that one start serves many, and kills them where it is told.

Reads a Task as a JSON line, runs it, writes an Outcome as a JSON line. The kill is SIGKILL: nothing of the command
runs afterwards, no handler, no close, no commit.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from streammem import cli, connectors, memory
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.backends.sqlite import SqliteLog, SqliteStructure
from streammem.cli import app, opening
from tests.embedding import HashingEmbedder

PARTS = {
    "append": SqliteLog,
    **dict.fromkeys(("register", "enter", "link", "learn", "redact", "mark_due", "advance"), SqliteStructure),
    **dict.fromkeys(("upsert", "lower", "flush", "keep_nodes"), EdgeIndex),
    **dict.fromkeys(("keep", "settle"), SqliteStructure),
}
"""The effects of an import by name, and the part that has them."""


class Task(msgspec.Struct, omit_defaults=True):
    """A command; what it says goes to `out`. It is killed before (or after) the nth call of an effect, or by time."""

    arguments: list[str]
    out: str
    effect: str = ""
    nth: int = 0
    after: bool = False
    seconds: float | None = None


class Outcome(msgspec.Struct):
    """How a command ended: its status, or the signal that ended it; how often each effect was called, if it ended."""

    status: int
    signal: int
    seconds: float
    calls: dict[str, int] = {}


def watch(task: Task) -> Counter[str]:
    """Put a counter around every effect, with a kill in the one that the task names."""
    calls: Counter[str] = Counter()
    for name, part in PARTS.items():
        setattr(part, name, _watched(name, getattr(part, name), calls, task))
    return calls


def _watched(name: str, effect: Any, calls: Counter[str], task: Task) -> Any:
    async def call(*arguments: Any) -> Any:
        calls[name] += 1
        here = name == task.effect and calls[name] == task.nth
        if here and not task.after:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = await effect(*arguments)
        if here and task.after:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    return call


def command(task: Task) -> None:
    """The forked process: never returns."""
    said = os.open(task.out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    complained = os.open(f"{task.out}.err", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(complained, 2)
    sys.argv = ["streammem", *task.arguments]
    calls = watch(task)
    status = cli.main() or 0
    sys.stdout.flush()
    sys.stderr.flush()
    Path(f"{task.out}.calls").write_bytes(msgspec.json.encode(dict(calls)))
    os._exit(status)


def run(task: Task) -> Outcome:
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            command(task)
        finally:
            os._exit(99)
    if task.seconds is not None:
        time.sleep(task.seconds)
        os.kill(child, signal.SIGKILL)  # it is not reaped yet, so the id is still its own
    _, ended = os.waitpid(child, 0)
    calls = Path(f"{task.out}.calls")
    known = msgspec.json.decode(calls.read_bytes()) if os.WIFEXITED(ended) and calls.exists() else {}
    status = os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else -1
    return Outcome(status, os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else 0, time.monotonic() - began, known)


def open_small(path: Path, chosen: Any, *, create: bool = False, rebuild: bool = False, progress: Any = None) -> Any:
    """An opening that needs no model."""
    return memory.open_memory(path, chosen, create=create, rebuild=rebuild, embedder=lambda _: HashingEmbedder())


READY = (app, connectors)
"""What commands import when they run is imported before the forks."""


def main() -> None:
    opening.open_ = open_small
    opening.settings()
    for line in sys.stdin:
        sys.stdout.write(msgspec.json.encode(run(msgspec.json.decode(line, type=Task))).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
