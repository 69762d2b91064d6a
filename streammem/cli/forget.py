"""`streammem forget`: messages and people out of a memory for good, and the proof."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from streammem.cli import opening, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory, WorkspaceOption
from streammem.cli.progress import Progress
from streammem.cli.running import run
from streammem.errors import SettingsError

if TYPE_CHECKING:
    from streammem.flows.forgetting import Forgotten, Traces
    from streammem.settings import Settings

FORGETTING = opening.BUILDING | {"replay": "searching the log"}

Agree = Callable[["Forgotten"], bool]


def forget(
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message", metavar="ID", help="A message, by its id, permalink or workspace/channel/id. May be repeated."
        ),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="U", help="A person, by id or name, with all that it said. May be repeated."),
    ] = None,
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    workspace: WorkspaceOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be forgotten.")] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="Only search for traces of what --message or --user name; after a person is forgotten name its id: "
            "the name is gone.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Forget messages, or people and all that they said, for good. It cannot be taken back.

    Afterwards everything is searched for traces; any that is found ends this with status 1. What was forgotten never
    comes back: a later import of the same export leaves it out. In a stream the input topics drop it when their time
    is over: the proof says when. Messages of others that mention a forgotten person are theirs, and stay.
    Cut short, it can be done again by the ids that it tells; a name may be forgotten by then.

    \b
    streammem forget --message 1704190000.000100 --memory team
    streammem forget --user "Ada Quill" --memory team --dry-run
    streammem forget --user U0ADA --distributed --yes --json
    """  # noqa: D301 - click wants the backspace
    if not (message or user):
        raise typer.BadParameter("name what to forget: --message ID or --user U")
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    named = (workspace or "", message or [], user or [])

    def agree(wanted: Forgotten) -> bool:
        agreed = not (dry_run or prove) and _agreed(wanted, sure=yes)
        if agreed:
            shown.say(f"forgetting {_summed_up(wanted)}")
        return agreed

    work = (
        _forget_distributed(named, agree, prove, settings)
        if memory is None
        else _forget(named, agree, prove, memory, settings)
    )
    wanted, traces = run(work)
    if as_json:
        shown.put_json(_told(wanted, traces))
    else:
        _put(wanted, traces, prove=prove)
    return FAILED if traces is not None and traces.total else 0


def _agreed(wanted: Forgotten, *, sure: bool) -> bool:
    """Ask on a terminal; elsewhere only --yes is a yes."""
    if sure:
        return True
    if not sys.stdin.isatty():
        raise SettingsError(f"this would forget {_summed_up(wanted)} for good: say --yes to do it, --dry-run to look")
    return typer.confirm(f"Forget {_summed_up(wanted)} for good?", err=True)


def _summed_up(wanted: Forgotten) -> str:
    people = f"{', '.join(map(shown.line, wanted.users))} and " if wanted.users else ""
    count = len(wanted.messages)
    return f"{people}{count} message{'' if count == 1 else 's'}"


def _told(wanted: Forgotten, traces: Traces | None) -> dict[str, object]:
    return {
        "workspace": wanted.workspace,
        "users": list(wanted.users),
        "messages": list(wanted.messages),
        "entries": wanted.entries,
        "traces": msgspec.to_builtins(traces),
        "clean": None if traces is None else not traces.total,
    }


def _put(wanted: Forgotten, traces: Traces | None, *, prove: bool) -> None:
    what = {"what": _summed_up(wanted)}
    if traces is None:
        shown.put_counts("To forget", what)
        return
    shown.put_counts("Searched for", what) if prove else shown.put_counts(
        "Forgotten", {**what, "entries of the log": wanted.entries}
    )
    found = {
        name: count
        for name, count in msgspec.to_builtins(traces).items()
        if name not in ("mentions", "copies", "topics", "unsearched")
    }
    shown.put_counts(
        "Traces left", {name: f"not searched: {traces.unsearched}" if n is None else n for name, n in found.items()}
    )
    if traces.mentions:
        shown.put_counts("Messages of others that mention them", {"mentions": traces.mentions})
    if traces.copies:
        passed_on = {str(number): f"--message {uid}" for number, uid in enumerate(traces.copies, 1)}
        shown.put_counts("Messages of others that pass it on (name them to forget them too)", passed_on)
    if traces.topics:
        shown.put_counts("Waiting for the end of their topic's time", traces.topics)
    if traces.total:
        named = [f"--user {shown.line(user)}" for user in wanted.users] or ["the same --message"]
        shown.say(f"error: traces are left: forget it (again), with {' '.join(named)}")


Named = tuple[str, list[str], list[str]]
Done = tuple["Forgotten", "Traces | None"]


async def _forget(named: Named, agree: Agree, prove: bool, path: Path, settings: Settings) -> Done:
    with Progress(FORGETTING) as progress:
        async with opening.open_(path, settings, progress=progress) as memory:
            wanted = await memory.meant(*named)
            if prove:
                return wanted, await memory.traces(wanted, progress)
            if not agree(wanted):
                return wanted, None
            wanted = await memory.forget(wanted, progress)
            return wanted, await memory.traces(wanted, progress)


async def _forget_distributed(named: Named, agree: Agree, prove: bool, settings: Settings) -> Done:
    from streammem.wiring.stream import open_streaming
    from streammem.workers import forgetting

    with Progress(FORGETTING) as progress:
        async with open_streaming(settings) as parts:
            await parts.check()
            wanted = await forgetting.meant(parts, *named, progress)
            if prove:
                return wanted, await forgetting.traces(parts, wanted, progress)
            if not agree(wanted):
                return wanted, None
            wanted = await forgetting.forgotten(parts, wanted, progress)
            return wanted, await forgetting.traces(parts, wanted, progress)
