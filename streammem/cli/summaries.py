"""`streammem summaries`: how what a language model writes stands, and the brake."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import estimate, opening, reaching, rungs, shown, write
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.progress import Progress
from streammem.cli.running import run
from streammem.errors import MemoryHeldError

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook
    from streammem.ports import Ledger
    from streammem.settings import Settings

app = typer.Typer(
    help="""The summaries of nodes that a language model words: how they stand, what they cost, a brake.

    Without a command: show. Until a model is set (STREAMMEM_OPENAI__MODEL) summaries quote messages, which costs
    nothing.""",
    invoke_without_command=True,
    rich_markup_mode=None,
)

UNSET = "no language model is set, so summaries quote messages: set STREAMMEM_OPENAI__MODEL, and __BASE_URL and __KEY"


@app.callback()
def _root(
    context: typer.Context,
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    as_json: JsonOption = False,
) -> int:
    if context.invoked_subcommand is None:
        return show(memory, distributed, as_json)
    given = {"memory": memory, "distributed": distributed or None, "as_json": as_json or None}
    passed_on = {name: value for name, value in given.items() if value is not None}
    context.default_map = {context.invoked_subcommand: passed_on}  # what stands after the command goes before it
    return 0


# -------------------------------------------------------------------------------------------------------- show


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
    async with reaching.ledger(memory, settings) as ledger:
        await ledger.used()


async def _look(memory: Path | None, settings: Settings) -> tuple[Outlook, str]:
    """How it stands; without the nodes, and why, where another process holds the memory."""
    from streammem.flows.outlook import account
    from streammem.wiring.language import writer_of

    writer = writer_of(settings)
    try:
        return await reaching.outlook(memory, settings.model_copy(update={"wait": min(settings.wait, 0.5)})), ""
    except MemoryHeldError as error:
        async with reaching.ledger(memory, settings) as ledger:
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
            "faults": found.faults,
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
    rungs.put_faults(found.faults)


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
    async with reaching.ledger(memory, settings) as ledger:
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
    with Progress(reaching.LOOKING) as progress:
        async with reaching.opened(memory, settings, progress) as opened:
            return await opened.retry()


# ---------------------------------------------------------------------------------------------- estimate, write

app.command("estimate")(estimate.estimate)
app.command("write")(write.write)
