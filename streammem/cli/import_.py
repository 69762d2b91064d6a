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
from streammem.cli.source import (
    ChannelOption,
    DomainOption,
    FormatArgument,
    ListOption,
    PathArgument,
    RejectsOption,
    Source,
    WorkspaceOption,
)
from streammem.core import positions

if TYPE_CHECKING:
    from streammem.memory import Memory
    from streammem.records import Event
    from streammem.settings import Settings


def import_(
    format_: FormatArgument,
    path: PathArgument,
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="DIR", help="The directory of the memory, made when it is not there."),
    ] = None,
    to: Annotated[
        Literal["kafka"] | None,
        typer.Option("--to", help="Produce to the Kafka topics at STREAMMEM_KAFKA__BOOTSTRAP instead."),
    ] = None,
    workspace: WorkspaceOption = None,
    channel: ChannelOption = None,
    domain: DomainOption = None,
    rejects: RejectsOption = None,
    as_json: JsonOption = False,
    list_formats: ListOption = False,  # noqa: ARG001 - its callback does the work
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
    source = Source(format_, path, workspace, channel, domain)
    source.spare(rejects)
    account = Account(source.report, rejects)
    opening.one_of(memory, to is not None, "--to kafka")
    position, waiting = "", 0
    with account:
        events = _begun(source.events())
        if memory is None:
            position = run(_produce(events, account, settings))
        elif events is not None:  # a source without anything leaves no memory behind
            waiting = run(_import(events, account, memory, settings))
    if as_json:
        where = {"memory": str(memory)} if memory else {"to": "kafka", "position": position}
        waits = {"to_word": waiting} if waiting else {}
        shown.put_json({"source": str(path), "format": source.format, **where, **account.to_json(), **waits})
    else:
        _put_account(account, source, memory, position)
        if waiting:
            _put_waiting(waiting, memory, settings)
    account.check(path, in_pieces=source.in_pieces)
    return 0


def _begun(events: Iterator[Event]) -> Iterator[Event] | None:
    """The events with the first one drawn; None when there are none.

    Reading may take long before its first event, and outside of an event loop Ctrl-C stops it at once.
    """
    first = next(events, None)
    return None if first is None else itertools.chain([first], events)


async def _import(events: Iterator[Event], account: Account, path: Path, settings: Settings) -> int:
    """Import; return how many sequences wait for the language model afterwards."""
    with Progress(opening.IMPORTING) as progress:
        async with opening.open_(path, settings, create=True, progress=progress) as memory:
            await load(memory, events, account, progress)
            return await memory.to_word() if settings.openai.model is not None else 0


async def _produce(events: Iterator[Event] | None, account: Account, settings: Settings) -> str:
    """Send everything to the input topics; return the position to wait for."""
    from streammem.wiring import stream

    exchange = stream.exchange(settings)
    position = ""
    try:
        with Progress({"read": "producing"}) as progress:
            async for done in exchange.produce(account.count(events or ())):
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
    account.put(f"Imported {source.path} into {memory or 'Kafka'} in {duration(account.seconds)}")
    if account.messages and (account.accepted or account.duplicates):
        how = f"--memory {memory}" if memory else f'--via kafka --wait-for "{position}"'
        sys.stdout.write(f'Now ask it: streammem ask "..." {how}\n')


def _put_waiting(waiting: int, memory: Path | None, settings: Settings) -> None:
    """What is left for the language model, and how it is told to begin: an import makes no calls."""
    which = f"{waiting:,} sequence{' has' if waiting == 1 else 's have'} summaries"
    sys.stdout.write(
        f"{which} due for {shown.line(settings.openai.model or '')}: `streammem summaries estimate --memory {memory}` "
        f"says what they take, `streammem summaries write --memory {memory}` has them written\n"
    )
