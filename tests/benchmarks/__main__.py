"""`python -m tests.benchmarks`: how fast streammem is on one set of messages. Figures only, nothing passes or fails.

STREAMMEM_BENCH names a folder with messages.jsonl(.gz) and, for `ask`, questions.jsonl(.gz), or one above
lean_dev. Every part runs in a
process of its own, so that opening is cold and peak memory is its own. CPU seconds stand beside wall seconds: on a
machine with other work only the first mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

PARTS = ("structure", "import", "ask")


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Without data it says so and all is well."""
    options = _options(arguments)
    folder = _data(os.environ.get("STREAMMEM_BENCH", ""))
    if folder is None:
        sys.stdout.write("skipped: STREAMMEM_BENCH names no folder with messages.jsonl\n")
        return 0
    if options.inside:
        from tests.benchmarks import parts  # noqa: PLC0415 - its imports are part of what `ask` measures

        sys.stdout.write(json.dumps(parts.run(options.inside, folder, options)) + "\n")
        return 0
    load = os.getloadavg()[0]
    with nullcontext(options.memory) if options.memory else tempfile.TemporaryDirectory(prefix="bench-") as place:
        figures = _measure(options, Path(place))
    figures["machine"] = {"cores": os.cpu_count(), "load_before": round(load, 2), "load_after": _load()}
    sys.stdout.write(json.dumps(figures, indent=1) + "\n" if options.json else _told(figures))
    return 0


def _data(named: str) -> Path | None:
    """The folder with the messages: the one that is named, or lean_dev in it."""
    for folder in (Path(named), Path(named) / "lean_dev") if named else ():
        if any((folder / name).is_file() for name in ("messages.jsonl", "messages.jsonl.gz")):
            return folder
    return None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N messages: for quick runs")
    parser.add_argument("--questions", type=int, metavar="N", help="only N questions, spread over the set")
    parser.add_argument("--memory", type=Path, metavar="DIR", help="keep the memory here; `--part ask` asks one there")
    parser.add_argument("--hashing", action="store_true", help="a toy embedder: to see that the command works")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace, memory: Path) -> dict[str, Any]:
    wanted = PARTS if options.part == "all" else (options.part,)
    if wanted == ("ask",) and not (memory / "memory.json").exists():
        wanted = ("import", "ask")
    return {part: _apart(part, options, memory) for part in wanted}


def _apart(part: str, options: argparse.Namespace, memory: Path) -> Any:
    """The figures of one part, from a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks", "--inside", part, "--memory", str(memory)]
    for name in ("limit", "questions"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    if options.hashing:
        command.append("--hashing")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _load() -> float:
    return round(os.getloadavg()[0], 2)


# ------------------------------------------------------------------------------------------------- for people

_LINES = {
    "structure": (
        ("messages", "{messages:,} of them, {events:,} events"),
        ("log alone", "{log[per_second]:,.0f} messages/s; by CPU {log[per_cpu_second]:,.0f}"),
        (
            "log and forests",
            "{whole[per_second]:,.0f} messages/s (target 2,000); by CPU {whole[per_cpu_second]:,.0f}",
        ),
    ),
    "import": (
        ("whole import", "{whole[seconds]:.1f} s, {whole[cpu]:.1f} s of CPU"),
        (
            "embedding alone",
            "{alone[seconds]:.1f} s, {alone[cpu]:.1f} s of CPU: {batches} batches, {tokens_per_second:,.0f} tokens/s",
        ),
        ("ratio", "{ratio:.2f} (target at most 1.3); by CPU {cpu_ratio:.2f}"),
        (
            "by stage",
            "structure {stages[structure]:.1f} s, index {stages[index]:.1f}, summaries {stages[summaries]:.1f}",
        ),
        ("peak memory", "{peak_mb:,.0f} MB (target 1,500)"),
        ("on disk", "{disk_mb}"),
    ),
    "ask": (
        ("importing streammem", "{importing[seconds]:.2f} s, {importing[cpu]:.2f} s of CPU"),
        ("opening", "{opening[seconds]:.2f} s, {opening[cpu]:.2f} s of CPU (target 2, with the line above)"),
        ("first answer", "{first[seconds]:.2f} s more, {first[cpu]:.2f} s of CPU: the model is loaded"),
        ("questions", "{questions}"),
        ("p50, p95", "{wall[0]:.1f}, {wall[1]:.1f} ms (targets 80, 150); by CPU {cpu[0]:.1f}, {cpu[1]:.1f}"),
        ("by step", "{steps}"),
        ("peak memory", "{peak_mb:,.0f} MB (target 1,500)"),
    ),
}


def _told(figures: dict[str, Any]) -> str:
    told = []
    for part, lines in _LINES.items():
        if part in figures:
            told.append(f"{part}\n")
            told += [f"  {name:20} {line.format_map(_flat(figures[part]))}\n" for name, line in lines]
    machine = figures["machine"]
    told.append(f"{machine['cores']} cores, load {machine['load_before']} before and {machine['load_after']} after\n")
    return "".join(told)


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures with tables as one line."""
    told = dict(figures)
    if "steps" in told:
        told["steps"] = ", ".join(f"{name} {p50}/{p95}" for name, (p50, p95) in told["steps"].items())
    if "disk_mb" in told:
        told["disk_mb"] = ", ".join(f"{name} {size} MB" for name, size in told["disk_mb"].items())
    return told


if __name__ == "__main__":
    sys.exit(main())
