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

import numpy as np

from streammem import open_memory
from streammem.flows.answer import answer as whole
from streammem.flows.sight import visible_to
from streammem.memory import Memory
from streammem.records import Query
from streammem.wiring import embedded
from tests.benchmarks import parts
from tests.benchmarks.parts import Clock, now, peak_mb, since

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
    queries = parts.queries(folder, options)
    before = _resident_mb()
    async with open_memory(options.memory, embedder=parts.embedder(options)) as memory:
        if not (await memory.stats()).messages:
            async for _ in memory.load(parts.events(folder, options.limit)):
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
