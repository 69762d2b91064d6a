"""`streammem rebuild`: everything but the log, made anew."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption, MemoryOption
from streammem.cli.progress import Progress, duration
from streammem.cli.running import run

if TYPE_CHECKING:
    from streammem.flows.summarize import Summarized
    from streammem.settings import Settings


def rebuild(memory: MemoryOption, as_json: JsonOption = False) -> int:
    """Drop everything but the log and build it again: after a change of model, of k or of the rules, or a fault.

    Nothing that was imported is needed again: the log holds all of it.
    """
    began = time.monotonic()
    done = run(_rebuild(memory, opening.settings()))
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        shown.put_json({"written": done.written, "current": done.current, "dropped": done.dropped, "seconds": seconds})
    else:
        shown.put_counts("Rebuilt", {"summaries written": done.written, "took": duration(seconds)})
    return 0


async def _rebuild(path: Path, settings: Settings) -> Summarized:
    with Progress(opening.BUILDING) as progress:
        async with opening.open_(path, settings, rebuild=True, progress=progress) as memory:
            return await memory.rebuild(progress)
