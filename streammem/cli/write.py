"""`streammem summaries write`: have the model word all that is due."""

from __future__ import annotations

import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, reaching, rungs, shown
from streammem.cli.endings import FAILED, STOPPED
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.progress import Progress
from streammem.cli.reaching import BatchOption
from streammem.cli.running import run
from streammem.cli.written import Written
from streammem.errors import StreammemError, TransientError

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook
    from streammem.memory import Memory
    from streammem.settings import Settings
    from streammem.workers.summaries import StreamSummaries

MANY = 100
"""Calls from which on a person is asked first, also where they cost nothing."""

GO_ON = "what was written is kept, the same command goes on"
WRITING = opening.BUILDING | {"look": "looking at sequences", "word": "wording nodes", "fault": "the model failed at"}


def write(
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    batch: BatchOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Have the model word all that is due, within the budget. Stopped at any time, it goes on where it was.

    On a terminal it asks first, with the estimate, when that costs money or takes more than 100 calls. Elsewhere, as in
    a script, it does not ask: the day's budget is the bound. Ends with status 1 when the budget is spent, somebody has
    paused calls, the server stays away, or the model failed at all it was asked for; what was written until then is
    kept.

    In a memory of a stream `streammem worker summarize` writes all the time; with --batch this command has a backlog
    written by jobs of the Batch API beside it.
    """
    opening.one_of(memory, distributed, "--distributed")
    if memory is None and not batch:
        raise typer.BadParameter("here `streammem worker summarize` writes, all the time; --batch hands in jobs")
    settings = opening.settings()
    run(_check_model(settings))
    found = run(reaching.asked(memory, settings, batch=batch))
    if not _agreed(found, settings, sure=yes):
        shown.say("nothing was asked of the model")
        return FAILED
    done = Written(found, settings)
    _run(_write(memory, settings, done, batch=batch), done)
    done.put(settings, as_json=as_json)
    return _status(done, memory)


def _run(work: Coroutine[Any, Any, None], done: Written) -> None:
    """Run to the end, or until a person or a service manager stops it."""
    from asyncio import CancelledError

    try:
        run(work)
    except (KeyboardInterrupt, CancelledError):
        if not done.begun:
            raise KeyboardInterrupt from None
        done.interrupted = True


def _status(done: Written, memory: Path | None) -> int:
    """Say why not all of it was written; return the exit status."""
    if done.interrupted:
        shown.say(f"stopped: {GO_ON}")
        sys.stdout.flush()
        raise SystemExit(STOPPED)  # as a status it would be told of in the words of an import
    if (error := done.stopped) is not None:
        more = f"; {GO_ON}" if isinstance(error, TransientError) else ""
        shown.say(f"error: {rungs.told_here(str(error), memory)}{more}")
        return FAILED
    if done.failed and not done.worded:
        again = f"`streammem summaries retry {rungs.place(memory)}` lets it try again"
        shown.say(f"error: nothing was worded, the model failed at {rungs.many(done.failed, 'node')}: {again}")
        return FAILED
    return 0


async def _check_model(settings: Settings) -> None:
    """Raise what is wrong with the settings of the model, or that its client is not installed."""
    from streammem.wiring.language import language_model

    await language_model(settings).close()


def _agreed(found: Outlook, settings: Settings, *, sure: bool) -> bool:
    """Ask on a terminal before it costs money or takes long, unless no call would be made anyway."""
    from streammem.flows.outlook import plan

    planned = plan(found)
    stopped = found.standing.why in ("paused", "budget")
    if sure or stopped or not (planned.money or planned.calls > MANY) or not sys.stdin.isatty():
        return True
    cost = f", about {rungs.money(planned.money, settings.budget.currency)}" if planned.money else ""
    tokens = f"{planned.tokens_in:,} tokens in and {planned.tokens_out:,} out"
    shown.say(f"about {rungs.many(planned.calls, 'call')}, {tokens}{cost}; {rungs.days(planned)}")
    return typer.confirm("Go on?", err=True)


async def _write(memory: Path | None, settings: Settings, done: Written, *, batch: bool) -> None:
    """Word until nothing is due or something stops it; `done` hears of it."""
    from streammem.flows.outlook import DAYS

    with Progress(WRITING) as progress, _ended_by_sigterm():
        async with reaching.ledger(memory, settings) as ledger, reaching.opened(memory, settings, progress) as opened:
            done.begin(progress, await ledger.spent(DAYS))
            try:
                await _word(opened, done, batch=batch)
            except StreammemError as error:
                done.stopped = error
            finally:
                done.end(await ledger.spent(DAYS))
            if done.failed:
                done.faults = (await opened.outlook(lambda more: progress("look", more))).faults


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM cancel this task, as Ctrl-C does."""
    from asyncio import current_task, get_running_loop

    loop, task = get_running_loop(), current_task()
    if task is None or current_thread() is not main_thread():
        yield
        return
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _word(opened: Memory | StreamSummaries, done: Written, *, batch: bool) -> None:
    if batch:
        await opened.word_in_jobs(done.told, done.waiting)
    else:
        await opened.word(done.told, done.trouble)  # type: ignore[union-attr]
