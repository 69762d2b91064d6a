"""`streammem stats`: what a memory holds, counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption, MemoryOption
from streammem.cli.running import run
from streammem.core import positions

if TYPE_CHECKING:
    from streammem.flows.stats import Stats
    from streammem.settings import Settings


def stats(memory: MemoryOption, as_json: JsonOption = False) -> int:
    """Count what a memory holds: messages, forests, vectors, summaries and how stale they are."""
    import msgspec

    counted = run(_stats(memory, opening.settings()))
    size = sum(file.stat().st_blocks * 512 for file in memory.rglob("*") if file.is_file())  # vectors are sparse files
    if as_json:
        shown.put_json({**msgspec.to_builtins(counted), "bytes": size})
        return 0
    workspaces = ", ".join(counted.workspaces) or "none yet"
    shown.put_counts("Memory", {"path": memory, "bytes": size, "workspaces": workspaces})
    for part in ("structure", "forests", "artifacts", "summaries", "vectors"):
        shown.put_counts(part.capitalize(), getattr(counted, part))
    for title, lines in (("One artifact, for example", counted.merged), ("Aliases, for example", counted.aliases)):
        if lines:
            shown.put_counts(title, {str(number): shown.line(line) for number, line in enumerate(lines, 1)})
    shown.put_counts("Applied", {name: positions.written(place) for name, place in counted.applied.items()})
    return 0


async def _stats(path: Path, settings: Settings) -> Stats:
    async with opening.open_(path, settings) as memory:
        return await memory.stats()
