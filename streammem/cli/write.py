"""`streammem summaries write`: have the model word all that is due."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    paused calls, or the server stays away; what was written until then is kept.

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
    run(_write(memory, settings, done, batch=batch))
    done.put(settings, as_json=as_json)
    if done.stopped is None:
        return 0
    shown.say(f"error: {rungs.told_here(str(done.stopped), memory)}{_go_on(done.stopped)}")
    return FAILED


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


def _go_on(error: StreammemError) -> str:
    return "; what was written is kept, the same command goes on" if isinstance(error, TransientError) else ""


async def _write(memory: Path | None, settings: Settings, done: Written, *, batch: bool) -> None:
    """Word until nothing is due or something stops it; `done` hears of it."""
    from streammem.flows.outlook import DAYS

    with Progress(WRITING) as progress:
        async with reaching.ledger(memory, settings) as ledger, reaching.opened(memory, settings, progress) as opened:
            done.begin(progress, await ledger.spent(DAYS))
            try:
                await _word(opened, done, batch=batch)
            except StreammemError as error:
                done.stopped = error
            finally:
                done.end(await ledger.spent(DAYS))


async def _word(opened: Memory | StreamSummaries, done: Written, *, batch: bool) -> None:
    if batch:
        await opened.word_in_jobs(done.told, done.waiting)
    else:
        await opened.word(done.told, done.trouble)  # type: ignore[union-attr]
