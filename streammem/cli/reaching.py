"""How the commands about summaries reach what they are about: the memory, its ledger, how its wording stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import opening
from streammem.cli.progress import Progress
from streammem.errors import SettingsError

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook
    from streammem.memory import Memory
    from streammem.ports import Ledger
    from streammem.settings import Settings
    from streammem.workers.summaries import StreamSummaries

BatchOption = Annotated[
    bool, typer.Option("--batch", help="By jobs of the Batch API: cheaper, each within a day.", show_default=False)
]
LOOKING = opening.BUILDING | {"look": "looking at sequences"}


@asynccontextmanager
async def opened(
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
    async with opening.open_(memory, settings, progress=progress) as embedded:
        await embedded.settle(progress)
        yield embedded


@asynccontextmanager
async def ledger(memory: Path | None, settings: Settings) -> AsyncIterator[Ledger]:
    """What calls may take and have taken. Nobody who holds the memory is in the way."""
    if memory is None:
        from streammem.wiring import stream  # an installation without servers has no clients for them

        shared = stream.ledger(settings)
        try:
            yield shared
        finally:
            await shared.close()
        return
    from streammem.wiring import embedded

    if not any((memory / name).exists() for name in (embedded.CARD, embedded.LOG)):
        raise SettingsError(f"no memory at {memory}: make one with `streammem import FORMAT PATH --memory {memory}`")
    own = embedded.ledger_of(memory)
    try:
        yield own
    finally:
        own.close()


async def outlook(memory: Path | None, settings: Settings, *, batch: bool = False) -> Outlook:
    """How wording stands, with progress for the reading of every node."""
    with Progress(LOOKING) as progress:
        async with opened(memory, settings, progress) as reached:
            return await reached.outlook(lambda more: progress("look", more), batch=batch)


async def asked(memory: Path | None, settings: Settings, *, batch: bool) -> Outlook:
    """The same before something is asked of the model, or would be."""
    from streammem.wiring.language import writer_of

    writer_of(settings)  # what is wrong with it is told before the memory is opened
    return await outlook(memory, settings, batch=batch)
