"""`streammem import`: a chat export into a memory, in bounded memory, resumable."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streammem.cli import opening, shown
from streammem.cli.account import Account
from streammem.cli.opening import JsonOption
from streammem.cli.progress import Progress, duration
from streammem.cli.running import run
from streammem.core import positions
from streammem.errors import SettingsError, SourceError

if TYPE_CHECKING:
    from streammem.connectors import Report
    from streammem.memory import Memory
    from streammem.records import Event
    from streammem.settings import Settings


def _list_formats(wanted: bool) -> None:
    if not wanted:
        return
    from streammem.connectors import CONNECTORS

    shown.put_counts(
        "Formats",
        {name: connector.description for name, connector in CONNECTORS.items()} | {"auto": "look at PATH and choose"},
    )
    raise typer.Exit


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="slack-export, jsonl, or auto to look at PATH.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The export: a .zip, a folder or a file.")],
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="DIR", help="The directory of the memory, made when it is not there."),
    ] = None,
    to: Annotated[
        Literal["kafka"] | None,
        typer.Option("--to", help="Produce to the Kafka topics at STREAMMEM_KAFKA__BOOTSTRAP instead."),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar="W", help="The workspace to import into. [default: the source's]"),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", metavar="FILE", help="Write every record that was refused, and why, as JSON lines."),
    ] = None,
    as_json: JsonOption = False,
    list_formats: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--list-formats", callback=_list_formats, is_eager=True, help="Show the formats and exit."),
    ] = False,
) -> int:
    """Import a chat export. Run it again at any time: it resumes, and what is there already is not added twice.

    With --to kafka all of it is sent again; the memory that the workers keep is the same after it.

    What has been acknowledged on stderr is durable, whatever happens next. Records that cannot be used are counted
    by reason and shown with their place; the rest is kept.

    \b
    streammem import slack-export export.zip --memory team
    streammem import jsonl messages.jsonl --memory team --workspace acme
    streammem import slack-export export.zip --to kafka
    """  # noqa: D301 - click wants the backspace
    settings = opening.settings()
    source = Source(format_, path, workspace)
    account = Account(source.report, rejects)
    opening.one_of(memory, to is not None, "--to kafka")
    position = ""
    with account:
        if memory is None:
            position = run(_produce(source, account, settings))
        else:
            run(_import(source, account, memory, settings))
    if as_json:
        where = {"memory": str(memory)} if memory else {"to": "kafka", "position": position}
        shown.put_json({"source": str(path), "format": source.format, **where, **account.to_json()})
    else:
        _put_account(account, source, memory, position)
    account.check(path)
    return 0


class Source:
    """An export about to be read."""

    def __init__(self, format_: str, path: Path, workspace: str | None) -> None:
        from streammem.connectors import CONNECTORS, Report, recognise

        self.format = (recognise(path) if format_ == "auto" else format_) or "auto"
        if self.format not in CONNECTORS:
            known = "; ".join(f"{name}: {connector.description}" for name, connector in CONNECTORS.items())
            if format_ != "auto":
                raise SettingsError(f"there is no format {format_!r}: it can be {', '.join(CONNECTORS)} or auto")
            raise SourceError(f"{path}: {'no known format' if path.exists() else 'no such file or folder'} ({known})")
        self.path = path
        self.report: Report = Report()
        self._read = CONNECTORS[self.format].read
        self._workspace = workspace or ""

    def events(self) -> Iterator[Event]:
        """Draw the events; the first one raises SourceError when the source cannot be read at all."""
        from streammem.connectors import Given

        return self._read(self.path, self.report, Given(workspace=self._workspace))


async def _import(source: Source, account: Account, path: Path, settings: Settings) -> None:
    events = source.events()
    first = next(events, None)  # before a memory is made: a source without anything leaves none behind
    if first is None:
        return
    with Progress(opening.IMPORTING) as progress:
        async with opening.open_(path, settings, create=True, progress=progress) as memory:
            await load(memory, itertools.chain([first], events), account, progress)


async def _produce(source: Source, account: Account, settings: Settings) -> str:
    """Send everything to the input topics; return the position to wait for."""
    from streammem.wiring import stream

    exchange = stream.exchange(settings)
    position = ""
    try:
        with Progress({"read": "producing"}) as progress:
            async for done in exchange.produce(account.usable(account.count(source.events()))):
                account.accepted = done.count
                progress.acknowledge(done.count)
                progress("read", done.count - progress.done("read"))
                progress.expect("read", account.whole(done.count))
                position = positions.awaited_text(done.awaited)
    finally:
        await exchange.stop()
    return position


async def load(memory: Memory, events: Iterator[Event], account: Account, progress: Progress) -> None:
    """Load events with an account of them and time left; acknowledge batch by batch."""
    import asyncio

    before = await memory.backlog()
    async for done in memory.load(account.count(events), progress):
        account.add(done)
        progress.acknowledge(positions.between({}, done.position))
        progress("read", done.accepted + done.duplicates + len(done.refusals))
        progress.expect("read", account.whole(progress.done("read")))
        progress.expect("index", before["index"] + account.whole(account.accepted))
        await asyncio.sleep(0)  # Ctrl-C is noticed here
    for stage, left in (await memory.backlog()).items():
        progress.expect(stage, progress.done(stage) + left)
    await memory.settle(progress)


def _put_account(account: Account, source: Source, memory: Path | None, position: str) -> None:
    report = account.to_json()
    title = f"Imported {source.path} into {memory or 'Kafka'} in {duration(account.seconds)}"
    totals = {name: report[name] for name in ("read", "messages", "accepted", "duplicates", "messages_per_s")}
    shown.put_counts(title, totals)
    for name in ("rejected", "ignored", "skipped", "gaps"):
        if report[name]:
            shown.put_counts(name.capitalize(), report[name])
    for example in report["examples"]:
        sys.stdout.write(shown.line(f"  {example['reason']} at {example['origin'] or '?'}: {example['detail']}") + "\n")
    for note in report["notes"]:
        sys.stdout.write(shown.line(f"  note: {note}") + "\n")
    if account.accepted or account.duplicates:
        how = f"--memory {memory}" if memory else f'--via kafka --wait-for "{position}"'
        sys.stdout.write(f'Now ask it: streammem ask "..." {how}\n')
