"""`streammem verify`: the proof that a memory is what its log says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streammem.cli import opening, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.progress import Progress
from streammem.cli.running import run

if TYPE_CHECKING:
    from streammem.flows.verify import Verified
    from streammem.settings import Settings


def verify(memory: OptionalMemory = None, distributed: DistributedOption = False, as_json: JsonOption = False) -> int:
    """Rebuild from the log beside the stores and compare checksums of sequences, placements and bridges.

    Ends with status 1 when they differ. The same events give the same checksum, whatever order they came in.
    """
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    found = run(_verify_distributed(settings) if memory is None else _verify(memory, settings))
    if as_json:
        shown.put_json(
            {
                "checksum": found.checksum,
                "same": not found.different,
                "different": found.different,
                "entries": found.entries,
                "parts": found.stored,
                "rebuilt": found.rebuilt,
            }
        )
    else:
        marks = {
            name: f"{sum_}{'' if sum_ == found.rebuilt[name] else '  DIFFERENT'}" for name, sum_ in found.stored.items()
        }
        shown.put_counts("Checksums", {**marks, "whole": found.checksum, "log entries": found.entries})
        if not found.different:
            shown.put_counts("The stores are what the log says.", {})
    if found.different:
        which = "--distributed" if memory is None else f"--memory {memory}"
        shown.say(
            f"error: the stores differ from the log in {', '.join(found.different)}: "
            f"run `streammem rebuild {which}` to build them anew from the log"
        )
        return FAILED
    return 0


async def _verify_distributed(settings: Settings) -> Verified:
    from streammem.wiring.stream import open_streaming
    from streammem.workers import care

    with Progress({"replay": "replaying the log"}) as progress:
        async with open_streaming(settings) as parts:
            await parts.check()
            return await care.verified(parts, settings.worker.timeout, progress)


async def _verify(path: Path, settings: Settings) -> Verified:
    with Progress({"log": "catching up", "replay": "replaying the log"}) as progress:
        async with opening.open_(path, settings) as memory:
            return await memory.verify(progress)
