"""`kill -9` during an import, at every named effect and at random moments: the same command resumes it, whole."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streammem import open_memory
from streammem.backends.sqlite import SqliteLog
from streammem.core import forest
from streammem.core.numbers import Forest
from streammem.records import Answer, NodeId, Summary
from streammem.settings import Settings
from tests.e2e.driver import PARTS, Outcome, Task
from tests.embedding import HashingEmbedder
from tests.flows.scripts import comparable
from tests.flows.worlds import shape

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "streammem" / "samples" / "harbourlight"
LAST_DAY = "2026-03-06"
"""The first days of the sample, with edits, replies, reactions and a private channel: forty imports take a minute."""

K = 4
SMALL = {"STREAMMEM_BATCH": "40", "STREAMMEM_POOL": "80", "STREAMMEM_FOREST__K": str(K), "OPENBLAS_NUM_THREADS": "1"}
QUESTION = "what does a release candidate have to get past before it is deployed?"


class State(msgspec.Struct):
    """All that a memory holds, as it must be alike after every import that ended."""

    log: set[str]
    points: dict[str, int]
    findable: set[str]
    summaries: dict[NodeId, Summary]
    due: int
    answer: Answer


async def read(path: Path) -> State:
    settings = Settings(forest=Forest(k=K))
    async with open_memory(path, settings, create=False, embedder=lambda _: HashingEmbedder()) as memory:
        parts: Any = memory._parts
        store, log = parts.structure, await parts.log.read({}, 100_000)
        (workspace,) = await store.workspaces()
        sequences = await store.sequences(workspace)
        nodes = {n for s in sequences for n in forest.skeleton(s)}
        for sequence, size in zip(sequences, await store.sizes(sequences), strict=True):
            nodes.update(NodeId(sequence, level, index) for level, index in forest.nodes_from(0, size, K))
        keys = [entry.key for entry in log]
        return State(
            log=set(keys),
            points=await parts.index.counts(),
            findable=await parts.index.known(keys),
            summaries=shape({s.node: s for s in await store.summaries(sorted(nodes)) if s is not None}),
            due=len(await store.due(100)),
            answer=comparable(await memory.query(QUESTION, everything=True)),  # last: it would catch up
        )


class Room:
    """A folder for imports, and the driver that runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "export"
        shutil.copytree(SAMPLE, self.source, ignore=lambda _, names: [n for n in names if LAST_DAY < n[:10] < "3"])
        self._driver = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **SMALL},
        )
        self.whole = self.imported("whole")
        assert self.whole.status == 0, self.complaints
        self.calls = self.whole.calls
        self.state = asyncio.run(read(folder / "whole"))
        self.checksum = self.verified("whole")

    def run(self, *arguments: object, **kill: Any) -> Outcome:
        """Run a command; what it said is in `said` and `complaints`."""
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        task = Task([str(a) for a in arguments], str(self.folder / "out"), **kill)
        self._driver.stdin.write(msgspec.json.encode(task).decode() + "\n")
        self._driver.stdin.flush()
        return msgspec.json.decode(self._driver.stdout.readline(), type=Outcome)

    def imported(self, name: str, **kill: Any) -> Outcome:
        return self.run("import", "slack-export", self.source, "--memory", self.folder / name, "--json", **kill)

    def verified(self, name: str) -> str:
        assert self.run("verify", "--memory", self.folder / name, "--json").status == 0, self.complaints
        return str(json.loads(self.said)["checksum"])

    @property
    def said(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def complaints(self) -> str:
        return (self.folder / "out.err").read_text()

    @property
    def acknowledged(self) -> int:
        """Up to where the command said that everything is durable."""
        said = [line for line in self.complaints.splitlines() if line.startswith("acknowledged ")]
        return int(said[-1].split()[1]) if said else 0

    def survives(self, name: str, **kill: Any) -> bool:
        """Kill an import, check what it promised, resume it, check everything. Whether it was killed at all."""
        path = self.folder / name
        killed = self.imported(name, **kill).signal == signal.SIGKILL
        promised = self.acknowledged
        if (path / "log.sqlite").exists():
            assert asyncio.run(positions(path / "log.sqlite")) >= promised
        else:
            assert promised == 0
        assert self.imported(name).status == 0, self.complaints
        again = json.loads(self.said)
        assert again["duplicates"] >= promised
        assert again["accepted"] + again["duplicates"] == len(self.state.log)
        assert asyncio.run(read(path)) == self.state
        assert self.verified(name) == self.checksum
        shutil.rmtree(path)
        return killed

    def close(self) -> None:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.close()
        self._driver.wait()
        self._driver.stdout.close()


async def positions(path: Path) -> int:
    """How many entries a log holds without a gap."""
    log = SqliteLog(path, create=False)
    entries = await log.read({}, 100_000)
    log.close()
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    return len(entries)


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """In memory where that can be had: a kill takes nothing that was written, so the disk need not be waited for."""
    fast = Path("/dev/shm")
    where = fast if os.access(fast, os.W_OK) and shutil.disk_usage(fast).free > 2**30 else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        made = Room(Path(folder))
        yield made
        made.close()


@pytest.mark.parametrize("effect", PARTS)
def test_an_import_killed_before_or_after_an_effect_resumes_and_loses_nothing(room: Room, effect: str) -> None:
    middle = (room.calls[effect] + 1) // 2
    assert room.survives("before", effect=effect, nth=middle)
    assert room.survives("after", effect=effect, nth=middle, after=True)


@pytest.mark.parametrize("part", range(5))
def test_an_import_killed_from_outside_at_a_random_moment_resumes_and_loses_nothing(room: Room, part: int) -> None:
    chance = random.Random(part)
    for n in range(2):
        room.survives(f"random-{n}", seconds=chance.uniform(0, room.whole.seconds))


def test_an_import_killed_again_and_again_ends(room: Room) -> None:
    moments = [("append", 1), ("advance", 2), ("upsert", 1), ("mark_due", 1), ("keep", 1), ("keep_nodes", 1)]
    for effect, nth in moments:
        assert room.imported("often", effect=effect, nth=nth, after=True).signal == signal.SIGKILL
    assert room.survives("often", effect="settle", nth=1)
