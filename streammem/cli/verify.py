"""`streammem verify`: the proof that a memory is what its log says, and its summaries what its messages say."""

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

    Also looks at every summary in use: none may cover a message that is deleted, erased, edited since or not visible
    any more. Ends with status 1 when the stores differ or a summary does. The same events give the same checksum,
    whatever order they came in.
    """
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    found = run(_verify_distributed(settings) if memory is None else _verify(memory, settings))
    if as_json:
        shown.put_json(_json(found))
    else:
        _put(found)
    if found.sound:
        return 0
    _say_faults(found, "--distributed" if memory is None else f"--memory {memory}")
    return FAILED


def _json(found: Verified) -> dict[str, object]:
    return {
        "checksum": found.checksum,
        "same": not found.different,
        "different": found.different,
        "entries": found.entries,
        "parts": found.stored,
        "rebuilt": found.rebuilt,
        "summaries": found.summaries,
        "wordings": found.wordings,
        "groupings": found.groupings,
        "regrouped": list(found.regrouped),
        "stale": list(found.stale),
        "stale_count": found.stale_count,
    }


def _put(found: Verified) -> None:
    marks = {
        name: f"{sum_}{'' if sum_ == found.rebuilt[name] else '  DIFFERENT'}" for name, sum_ in found.stored.items()
    }
    shown.put_counts("Checksums", {**marks, "whole": found.checksum, "log entries": found.entries})
    looked_at = {"summaries": found.summaries, "worded by a model": found.wordings, "stale": found.stale_count}
    shown.put_counts("Summaries in use", looked_at)
    grouped = {"groupings": found.groupings, "different": len(found.regrouped)}
    shown.put_counts("Artifacts of workspaces, grouped again", grouped)
    if not found.different:
        shown.put_counts("The stores are what the log says.", {})
    if not found.stale_count:
        shown.put_counts("No summary covers what is not said any more.", {})


def _say_faults(found: Verified, which: str) -> None:
    """What is wrong, a line each, and the mend last."""
    for fault in found.stale:
        shown.say(f"stale: {fault}")
    if more := found.stale_count - len(found.stale):
        shown.say(f"stale: {more} more")
    wrong = [f"the stores differ from the log in {', '.join(found.different)}"] if found.different else []
    wrong += [f"summaries cover what is not said any more ({found.stale_count})"] if found.stale_count else []
    wrong += [f"artifacts come out otherwise in {', '.join(found.regrouped)}"] if found.regrouped else []
    kept = " (texts that were paid for are kept)" if found.stale_count else ""
    mend = f"run `streammem rebuild {which}` to build them anew from the log{kept}"
    shown.say(f"error: {' and '.join(wrong)}: {mend}")


async def _verify_distributed(settings: Settings) -> Verified:
    from streammem.wiring.stream import open_streaming
    from streammem.workers import care

    with Progress({"replay": "replaying the log", "summaries": "looking at summaries"}) as progress:
        async with open_streaming(settings) as parts:
            await parts.check()
            return await care.verified(parts, settings.worker.timeout, progress)


async def _verify(path: Path, settings: Settings) -> Verified:
    stages = {"log": "catching up", "replay": "replaying the log", "summaries": "looking at summaries"}
    with Progress(stages) as progress:
        async with opening.open_(path, settings) as memory:
            return await memory.verify(progress)
