"""`python -m tests.benchmarks.ask`: what a question costs beside a bare hybrid search of the same index.

STREAMMEM_BENCH names a folder with messages.jsonl(.gz) and questions.jsonl(.gz), say 120,000 messages of an
organisation. Each question is asked and, right beside it, embedded and searched for by meaning and words alone (20 of
each): ratios hold on a machine with other work, milliseconds do not. Figures only, nothing passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streammem import open_memory
from streammem.flows.sight import visible_to
from streammem.memory import Memory
from streammem.records import Query
from streammem.wiring import embedded
from tests.benchmarks.parts import Clock, _events, _queries, _toy, now, peak_mb, since

LIMIT = 20
"""Hits of each kind that the bare search asks for: as many as an answer has."""
WARM = 20
"""Questions put before anything is measured: the model is loaded, and pages that are read for the first time are not
those of a process that has answered for a while."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Without data it says so and all is well."""
    options = _options(arguments)
    folder = Path(os.environ.get("STREAMMEM_BENCH", "."))
    if not any((folder / name).is_file() for name in ("messages.jsonl", "messages.jsonl.gz")):
        sys.stdout.write("skipped: STREAMMEM_BENCH names no folder with messages.jsonl\n")
        return 0
    with nullcontext(options.memory) if options.memory else tempfile.TemporaryDirectory(prefix="bench-") as place:
        options.memory = Path(place)
        figures = asyncio.run(measured(folder, options))
    sys.stdout.write(json.dumps(figures, indent=1) + "\n" if options.json else told(figures))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ask", description=__doc__)
    parser.add_argument("--memory", type=Path, metavar="DIR", help="keep the memory here, or ask the one that is there")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N messages: for quick runs")
    parser.add_argument("--questions", type=int, default=100, metavar="N", help="so many, spread over the set (100)")
    parser.add_argument("--hashing", action="store_true", help="a toy embedder: to see that the command works")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args(arguments)


async def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every question asked and searched for, the one that goes first changing; the steps; memory for each message."""
    queries = _queries(folder, options)
    before = _resident_mb()
    async with open_memory(options.memory, embedder=_toy if options.hashing else embedded.fastembed) as memory:
        if not await memory._parts.log.end():
            async for _ in memory.load(_events(folder, options.limit)):
                pass
        await memory.settle()
        for query in queries[:WARM]:
            await memory.ask(query)
        asked: list[Clock] = []
        bare: list[Clock] = []
        steps: defaultdict[str, list[float]] = defaultdict(list)
        for place, query in enumerate(queries):
            if place % 2:
                bare.append(await _bare(query, memory))
            start = now()
            answer = await memory.ask(query)
            asked.append(since(start))
            for step, ms in answer.timings_ms.items():
                steps[step].append(ms)
            if not place % 2:
                bare.append(await _bare(query, memory))
        points = (await memory._parts.index.counts())["message points"]
        held = _resident_mb() - before
    return {
        "questions": len(queries),
        "messages": points,
        "ask": _spread(asked),
        "bare": _spread(bare),
        "ratio": _ratio(asked, bare),
        "steps": {step: [_ms(values, 50), _ms(values, 95)] for step, values in steps.items()},
        "kb_per_message": round(1024 * held / max(1, points), 1),
        "peak_mb": round(peak_mb()),
    }


async def _bare(query: Query, memory: Memory) -> Clock:
    """The question embedded and searched for, nothing else."""
    index, encode = memory._parts.index, memory._parts.embedder.encode
    workspace = query.workspace or (await memory._parts.structure.workspaces())[0]
    named = msgspec.structs.replace(query, workspace=workspace)
    visible = visible_to(named, await memory.directory(workspace))
    start = now()
    vector = (await asyncio.to_thread(encode, [query.text]))[0]
    await index.find_messages(vector, query.text, LIMIT, visible)
    return since(start)


# ----------------------------------------------------------------------------------------------- the figures


def _spread(times: list[Clock]) -> dict[str, list[float]]:
    """p50 and p95 in milliseconds, by the clock and by CPU."""
    return {
        name: [_ms([1000 * time[which] for time in times], q) for q in (50, 95)]
        for which, name in enumerate(("wall", "cpu"))
    }


def _ratio(asked: list[Clock], bare: list[Clock]) -> dict[str, float]:
    """The middle one of the ratios of each question to its own bare search."""
    return {
        name: round(float(np.median([a[which] / b[which] for a, b in zip(asked, bare, strict=True)])), 2)
        for which, name in enumerate(("wall", "cpu"))
    }


def _ms(values: list[float], q: int) -> float:
    return round(float(np.percentile(values, q)), 1)


def _resident_mb() -> float:
    """What this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def told(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{figures['questions']} questions to {figures['messages']:,} messages (p50, p95 in ms)"]
    for name in ("ask", "bare"):
        wall, cpu = figures[name]["wall"], figures[name]["cpu"]
        lines.append(f"  {name:8} {wall[0]:7.1f} {wall[1]:7.1f}   by CPU {cpu[0]:7.1f} {cpu[1]:7.1f}")
    whole = sum(p50 for step, (p50, _) in figures["steps"].items() if step != "total")
    for step, (p50, p95) in figures["steps"].items():
        share = f"  {100 * p50 / whole:3.0f} %" if step != "total" and whole else ""
        lines.append(f"    {step:6} {p50:7.1f} {p95:7.1f}{share}")
    ratio = figures["ratio"]
    lines.append(f"  ratio of a question to its bare search: {ratio['wall']} (target at most 2); by CPU {ratio['cpu']}")
    lines.append(f"  memory: {figures['kb_per_message']} KB a message (target 20), peak {figures['peak_mb']} MB")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
