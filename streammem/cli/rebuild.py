"""`streammem rebuild`: everything but the log, made anew."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from streammem.cli import models, opening, shown
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.progress import Progress, duration
from streammem.cli.running import run

if TYPE_CHECKING:
    from streammem.flows.summarize import Summarized
    from streammem.ports import Embedder
    from streammem.settings import Settings


def rebuild(memory: OptionalMemory = None, distributed: DistributedOption = False, as_json: JsonOption = False) -> int:
    """Drop everything but the log and build it again: after a change of model, of k or of the rules, or a fault.

    Nothing that was imported is needed again: the log holds all of it.
    """
    began = time.monotonic()
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    done = run(_rebuild_distributed(settings) if memory is None else _rebuild(memory, settings))
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        shown.put_json({"written": done.written, "current": done.current, "dropped": done.dropped, "seconds": seconds})
    else:
        shown.put_counts("Rebuilt", {"summaries written": done.written, "took": duration(seconds)})
    return 0


async def _rebuild_distributed(settings: Settings) -> Summarized:
    from streammem.wiring import embedded
    from streammem.wiring.stream import open_streaming
    from streammem.workers import care

    with Progress(opening.BUILDING) as progress:

        def embedder(chosen: Settings) -> Embedder:
            models.ensure(chosen.embedding, progress)
            return embedded.fastembed(chosen)

        async with open_streaming(settings, embedder=embedder) as parts:
            return await care.rebuilt(parts, progress)


async def _rebuild(path: Path, settings: Settings) -> Summarized:
    with Progress(opening.BUILDING) as progress:
        async with opening.open_(path, settings, rebuild=True, progress=progress) as memory:
            return await memory.rebuild(progress)
