"""`streammem summaries`: what a language model has written and is to write, what it costs, and the brake."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, rungs, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.progress import EVERY, Progress
from streammem.cli.running import run
from streammem.errors import MemoryHeldError, SettingsError, StreammemError, TransientError

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook
    from streammem.flows.sheet import Worded
    from streammem.memory import Memory
    from streammem.ports import Ledger
    from streammem.records import Spent
    from streammem.settings import Settings
    from streammem.workers.summaries import StreamSummaries

app = typer.Typer(
    help="""The summaries of nodes that a language model words: how they stand, what they cost, a brake.

    Without a command: show. Until a model is set (STREAMMEM_OPENAI__MODEL) summaries quote messages, which costs
    nothing.""",
    invoke_without_command=True,
    rich_markup_mode=None,
)

BatchOption = Annotated[
    bool, typer.Option("--batch", help="By jobs of the Batch API: cheaper, each within a day.", show_default=False)
]
MANY = 100
"""Calls from which on a person is asked first, also where they cost nothing."""

LOOKING = opening.BUILDING | {"look": "looking at sequences"}
WRITING = opening.BUILDING | {"look": "looking at sequences", "word": "wording nodes", "fault": "the model failed at"}
UNSET = "no language model is set, so summaries quote messages: set STREAMMEM_OPENAI__MODEL, and __BASE_URL and __KEY"


# ----------------------------------------------------------------------------------------------------- opening


@asynccontextmanager
async def _opened(
    memory: Path | None, settings: Settings, progress: Progress | None = None
) -> AsyncIterator[Memory | StreamSummaries]:
    """The memory, caught up with its log; or what stands for it where workers keep it."""
    if memory is None:
        from streammem.wiring.stream import open_streaming
        from streammem.workers.summaries import StreamSummaries

        async with open_streaming(settings) as parts:
            await parts.structure.check()
            yield StreamSummaries(parts)
        return
    async with opening.open_(memory, settings, progress=progress) as opened:
        await opened.settle(progress)
        yield opened


@asynccontextmanager
async def _ledger(memory: Path | None, settings: Settings) -> AsyncIterator[Ledger]:
    """What calls may take and have taken. Nobody who holds the memory is in the way."""
    from streammem.wiring import embedded, stream

    if memory is None:
        shared = stream.ledger(settings)
        try:
            yield shared
        finally:
            await shared.close()
        return
    if not any((memory / name).exists() for name in (embedded.CARD, embedded.LOG)):
        raise SettingsError(f"no memory at {memory}: make one with `streammem import FORMAT PATH --memory {memory}`")
    own = embedded.ledger_of(memory)
    try:
        yield own
    finally:
        own.close()


async def _outlook(memory: Path | None, settings: Settings, *, batch: bool = False) -> Outlook:
    with Progress(LOOKING) as progress:
        async with _opened(memory, settings, progress) as opened:
            return await opened.outlook(lambda more: progress("look", more), batch=batch)


# -------------------------------------------------------------------------------------------------------- show


@app.callback()
def _root(
    context: typer.Context,
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    as_json: JsonOption = False,
) -> int:
    if context.invoked_subcommand is None:
        return show(memory, distributed, as_json)
    if memory is not None or distributed or as_json:
        raise typer.BadParameter(f"options stand after the command: streammem summaries {context.invoked_subcommand} …")
    return 0


@app.command("show")
def show(memory: OptionalMemory = None, distributed: DistributedOption = False, as_json: JsonOption = False) -> int:
    """Show nodes by view and level, whether calls are made, and what they cost today and in 30 days.

    \b
    whole    the quotes of a summary are all that was said: a model could add nothing
    worded   the model's words stand
    due      to be worded now
    later    open nodes, worded when they are quiet or have grown
    shifted  their leaves are grouped otherwise now: renewed when nothing is due, and true until then
    failed   the model failed at them: quotes stand until `retry`
    top      the level above all of an actor's channels
    """  # noqa: D301 - click wants the backspace
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    if settings.openai.model is None:
        run(_there(memory, settings))
        _put_unset(as_json=as_json)
        return 0
    found, held = run(_look(memory, settings))
    if as_json:
        _put_json(found, held, settings)
    else:
        _put(found, held, memory, settings)
    return 0


async def _there(memory: Path | None, settings: Settings) -> None:
    """Raise what is wrong with the place of the memory."""
    async with _ledger(memory, settings) as ledger:
        await ledger.used()


async def _look(memory: Path | None, settings: Settings) -> tuple[Outlook, str]:
    """How it stands; without the nodes, and why, where another process holds the memory."""
    from streammem.flows.outlook import account
    from streammem.wiring.language import writer_of

    writer = writer_of(settings)
    try:
        return await _outlook(memory, settings.model_copy(update={"wait": min(settings.wait, 0.5)})), ""
    except MemoryHeldError as error:
        async with _ledger(memory, settings) as ledger:
            return await account(writer.name, ledger, writer.terms), str(error).partition(":")[0]


def _put_unset(*, as_json: bool) -> None:
    if as_json:
        shown.put_json({"model": None, "said": UNSET})
    else:
        sys.stdout.write(f"{UNSET}\n")


def _put_json(found: Outlook, held: str, settings: Settings) -> None:
    rows = rungs.rows(found, _today())
    shown.put_json(
        {
            "model": settings.openai.model,
            "writer": found.writer,
            "calls": {
                "made": found.standing.granted,
                "why": found.standing.why,
                "said": found.standing.said,
                "wait": round(found.standing.wait, 1),
            },
            "jobs": found.jobs,
            "in_flight": len(found.in_flight),
            "budget": rungs.budget(found, settings),
            "rows": [rungs.in_currency(row) for row in rows],
            "total": rungs.in_currency(rungs.total(rows)),
            "held": held or None,
        }
    )


def _put(found: Outlook, held: str, memory: Path | None, settings: Settings) -> None:
    rows = rungs.rows(found, _today())
    if rows and not held:
        rungs.put_table(rows, settings)
    due = f"not counted: {held}" if held else _due(rungs.total(rows), memory)
    told: dict[str, Any] = {"due": due, "writer": found.writer, "calls": _calls(found, memory)}
    if found.in_flight:
        told["in flight"] = len(found.in_flight)
    if found.jobs:
        told["jobs"] = f"{rungs.many(found.jobs, 'job')} of the Batch API at the server"
    shown.put_counts("Language model", {**told, "today's budget": rungs.used(found, settings)})


def _due(total: dict[str, Any], memory: Path | None) -> str:
    due, failed = total.get("due", 0), total.get("failed", 0)
    told = (
        f"{rungs.many(due, 'node')}: `streammem summaries estimate {rungs.place(memory)}` says what they take"
        if due
        else "nothing is due"
    )
    again = f"; {failed:,} failed: `streammem summaries retry {rungs.place(memory)}` lets the model try again"
    return told + (again if failed else "")


def _calls(found: Outlook, memory: Path | None) -> str:
    from streammem.flows.outlook import why_not

    if why := why_not(found.standing):
        return rungs.told_here(why, memory)
    if memory is None:
        return "are made by `streammem worker summarize`"
    return f"may be made: `streammem summaries write {rungs.place(memory)}` makes them"


def _today() -> str:
    from streammem.core.spending import day_of

    return day_of(time.time())


# ------------------------------------------------------------------------------------------- pause, resume, retry


@app.command("pause")
def pause(
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Told to whoever asks why.")] = "",
    as_json: JsonOption = False,
) -> int:
    """Make no call from now on, in no process, until `resume`. Answers that are under way are still kept."""
    opening.one_of(memory, distributed, "--distributed")
    said = shown.line(because)
    run(_brake(memory, opening.settings(), lambda ledger: ledger.pause(said)))
    if as_json:
        shown.put_json({"paused": True, "because": said})
    else:
        sys.stdout.write(f"Model calls are paused: `streammem summaries resume {rungs.place(memory)}` ends it.\n")
    return 0


@app.command("resume")
def resume(memory: OptionalMemory = None, distributed: DistributedOption = False, as_json: JsonOption = False) -> int:
    """Let calls be made again, also while the server wanted to be left alone."""
    opening.one_of(memory, distributed, "--distributed")
    run(_brake(memory, opening.settings(), lambda ledger: ledger.resume()))
    if as_json:
        shown.put_json({"paused": False})
    else:
        sys.stdout.write("Model calls are no longer paused.\n")
    return 0


async def _brake(memory: Path | None, settings: Settings, do: Callable[[Ledger], Any]) -> None:
    async with _ledger(memory, settings) as ledger:
        await do(ledger)


@app.command("retry")
def retry(memory: OptionalMemory = None, distributed: DistributedOption = False, as_json: JsonOption = False) -> int:
    """Let the model try again where it failed: those nodes are due once more."""
    opening.one_of(memory, distributed, "--distributed")
    count = run(_retry(memory, opening.settings()))
    if as_json:
        shown.put_json({"retried": count})
        return 0
    who = "`streammem worker summarize`" if memory is None else f"`streammem summaries write {rungs.place(memory)}`"
    sys.stdout.write(f"{rungs.many(count, 'node')} to be tried again{f', by {who}' if count else ''}.\n")
    return 0


async def _retry(memory: Path | None, settings: Settings) -> int:
    with Progress(LOOKING) as progress:
        async with _opened(memory, settings, progress) as opened:
            return await opened.retry()


# ---------------------------------------------------------------------------------------------------- estimate


@app.command("estimate")
def estimate(
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    batch: BatchOption = False,
    as_json: JsonOption = False,
) -> int:
    """Tell what wording all that is due takes: calls, tokens, money, days. Nothing is asked of the model.

    It is about that much: how long a reply is, and that it passes the check at once, can only be assumed. Shifted nodes
    are counted where they are renewed with the others. Jobs of the Batch API (--batch) ask for each node by itself.
    """
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    found = run(_asked(memory, settings, batch=batch))
    (_put_estimate_json if as_json else _put_estimate)(found, settings, batch=batch)
    return 0


async def _asked(memory: Path | None, settings: Settings, *, batch: bool) -> Outlook:
    from streammem.wiring.language import writer_of

    writer_of(settings)  # what is wrong with it is told before the memory is opened
    return await _outlook(memory, settings, batch=batch)


def _put_estimate_json(found: Outlook, settings: Settings, *, batch: bool) -> None:
    from streammem.flows.outlook import plan

    rows, planned = rungs.estimates(found), plan(found)
    shown.put_json(
        {
            "model": settings.openai.model,
            "batch": batch,
            "priced": rungs.priced(settings),
            "rows": [rungs.in_currency(row) for row in rows],
            "total": rungs.in_currency(rungs.total(rows)),
            "budget": rungs.budget(found, settings),
            "calls": planned.calls,
            "calls_today": planned.today,
            "days": planned.days,
        }
    )


def _put_estimate(found: Outlook, settings: Settings, *, batch: bool) -> None:
    from streammem.flows.outlook import plan, why_not

    rows, planned = rungs.estimates(found), plan(found)
    if not rows:
        sys.stdout.write("Nothing is due: no call is needed.\n")
        return
    rungs.put_table(rows, settings)
    cost = rungs.money(planned.money, settings.budget.currency) if rungs.priced(settings) else rungs.no_price(settings)
    told = {
        "calls": f"about {planned.calls:,}{', in jobs' if batch else ''}",
        "tokens": f"about {planned.tokens_in:,} in and {planned.tokens_out:,} out (replies are estimated)",
        "cost": f"about {cost}" if rungs.priced(settings) else cost,
        "today's budget": rungs.used(found, settings),
        "takes": rungs.days(planned),
    }
    if why := why_not(found.standing):
        told["now"] = why
    shown.put_counts("To finish", told)


# ------------------------------------------------------------------------------------------------------- write


@app.command("write")
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
    found = run(_asked(memory, settings, batch=batch))
    if not _agreed(found, settings, sure=yes):
        shown.say("nothing was asked of the model")
        return FAILED
    done = _Done(found, settings)
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


async def _write(memory: Path | None, settings: Settings, done: _Done, *, batch: bool) -> None:
    """Word until nothing is due or something stops it; `done` hears of it."""
    from streammem.flows.outlook import DAYS

    with Progress(WRITING) as progress:
        async with _ledger(memory, settings) as ledger, _opened(memory, settings, progress) as opened:
            done.begin(progress, await ledger.spent(DAYS))
            try:
                await _word(opened, done, batch=batch)
            except StreammemError as error:
                done.stopped = error
            finally:
                done.end(await ledger.spent(DAYS))


async def _word(opened: Memory | StreamSummaries, done: _Done, *, batch: bool) -> None:
    if batch:
        await opened.word_in_jobs(done.told, done.waiting)
    else:
        await opened.word(done.told, done.trouble)  # type: ignore[union-attr]


class _Done:
    """What was done, told while it is done and at the end. Spending is that of all processes meanwhile."""

    def __init__(self, found: Outlook, settings: Settings) -> None:
        renewed = settings.wording.renew == "idle"
        self._expected = sum(rung.due + (rung.shifted if renewed else 0) for rung in found.rungs)
        self._later = sum(rung.later for rung in found.rungs)
        self.worded = self.failed = 0
        self.stopped: StreammemError | None = None
        self._counted: dict[str, int] = {}
        self._said, self._at = "", -EVERY

    def begin(self, progress: Progress, spent: list[Spent]) -> None:
        """Hear what was spent before."""
        self._progress = progress
        self._before = spent
        progress.expect("word", self._expected)

    def end(self, spent: list[Spent]) -> None:
        """Hear what is spent by now."""
        days = {one.day for one in spent}  # the oldest may have gone by
        before = _sums([one for one in self._before if one.day in days])
        self._counted = {name: count - before[name] for name, count in _sums(spent).items()}

    def told(self, more: Worded) -> None:
        """Hear of nodes."""
        self.worded += more.worded
        self.failed += more.failed
        if more.worded or more.failed:
            self._progress("word", more.worded + more.failed)
        if more.failed:
            self._progress("fault", more.failed)

    def trouble(self, line: str) -> None:
        """Hear why calls are kept back; many calls say the same."""
        now = time.monotonic()
        if line != self._said and (line or self._said) and now - self._at >= (0 if not line else EVERY):
            shown.say(f"kept back: {line}" if line else "calls go again")
            self._said, self._at = line, now

    def waiting(self, texts: int) -> None:
        """Hear how much is with the server."""
        if str(texts) != self._said:
            self._said = str(texts)
            shown.say(f"{rungs.many(texts, 'text')} with the server, in jobs")

    def put(self, settings: Settings, *, as_json: bool) -> None:
        """Tell what was done."""
        counted = self._counted
        if as_json:
            stopped = str(self.stopped) if self.stopped is not None else None
            done = {"worded": self.worded, "failed": self.failed, "later": self._later, **rungs.in_currency(counted)}
            shown.put_json({**done, "currency": settings.budget.currency, "stopped": stopped})
            return
        lines: dict[str, Any] = {"nodes worded": self.worded}
        if self.failed:
            lines["nodes that the model failed at"] = self.failed
        if self._later:
            lines["nodes that wait until they are quiet or have grown"] = self._later
        failed = f", {counted['failed_calls']:,} of them failed" if counted["failed_calls"] else ""
        lines["calls"] = f"{counted['calls']:,}{failed}"
        lines["tokens"] = f"{counted['tokens_in']:,} in, {counted['tokens_out']:,} out"
        if rungs.priced(settings):
            lines["cost"] = rungs.money(counted["money"], settings.budget.currency)
        shown.put_counts("Written" if self.stopped is None else "Written until it was stopped", lines)


def _sums(spent: list[Spent]) -> dict[str, int]:
    names = {"calls": "calls", "failed_calls": "failed", "tokens_in": "tokens_in", "tokens_out": "tokens_out"}
    return {name: sum(getattr(one, field) for one in spent) for name, field in {**names, "money": "money"}.items()}
