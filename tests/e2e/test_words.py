"""`kill -9` of a process that lets a language model word a memory: the next one goes on, and pays for nothing twice.

A reply is kept in the cache, durably, as soon as it has arrived. What a kill can cost is therefore this and no more:
the calls that were in flight then, from the moment they were asked to the moment their reply was kept, at most
`in_flight` of them. They are asked again. Everything else that was paid for is never asked again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from streammem import open_memory
from streammem.backends.sqlite import SqliteStructure
from streammem.backends.sqlite_ledger import SqliteLedger
from streammem.core import prompts
from streammem.ports import WORDING
from streammem.records import NodeId, Paid, Wording
from streammem.settings import Settings
from streammem.wiring.embedded import LEDGER, STRUCTURE
from tests.e2e.words_process import PARTS, Task
from tests.embedding import HashingEmbedder
from tests.servers.model_script import Asked
from tests.stories import public, said

ROOT = Path(__file__).parents[2]
IN_FLIGHT = 4
DELAY = 0.2
STORY = [public(), *(said(str(n), f"DOC-1 kettle number {n}", user=("ana", "bo")[n % 2]) for n in range(40))]


def settings(url: str) -> dict[str, str]:
    """The settings as a process is given them. What a killed process held is free after a second."""
    return {
        "STREAMMEM_FOREST__K": "3",
        "STREAMMEM_SUMMARY__QUOTES": "1",
        "STREAMMEM_WORDING__IN_FLIGHT": str(IN_FLIGHT),
        "STREAMMEM_WORDING__PACK": "2",
        "STREAMMEM_WORDING__LEASE": "1",
        "STREAMMEM_OPENAI__MODEL": "m",
        "STREAMMEM_OPENAI__BASE_URL": url,
        "OPENBLAS_NUM_THREADS": "1",
    }


class Server:
    """A scripted model server as a process of its own, and what it was asked."""

    def __init__(self, folder: Path, delay: float) -> None:
        self._log = folder / "asked.jsonl"
        command = [sys.executable, "-m", "tests.servers.model_server"]
        options = ["--delay", str(delay), "--requests-log", str(self._log)]
        self._process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    @property
    def asked(self) -> list[Asked]:
        """What was answered, or not waited for any more, in order."""
        lines = self._log.read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=Asked) for line in lines[:-1]]

    @property
    def paid(self) -> Counter[str]:
        """How many good replies were sent in full, by node."""
        return Counter(node for one in self.asked if one.answered == "answer" for node in one.nodes)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class State(msgspec.Struct):
    """What wording comes to: the texts of nodes and the cache, without what was paid for them; what is left to do."""

    wordings: dict[NodeId, Wording]
    cache: dict[str, Paid]
    waiting: dict[str, int]
    claims: int

    @property
    def kept(self) -> set[str]:
        """The nodes whose texts are kept, as the server knows them."""
        return set(map(prompts.id_of, self.cache))


async def state(path: Path) -> State:
    """What a memory holds that nobody has open."""
    store, ledger = SqliteStructure(path / STRUCTURE), SqliteLedger(path / LEDGER)
    try:
        found = [item async for item in store.generated()]
        counts = await store.counts()
        return State(
            {w.node: msgspec.structs.replace(w, tokens=0) for _, w in found if isinstance(w, Wording)},
            {key: msgspec.structs.replace(text, beside=()) for key, text in found if isinstance(text, Paid)},
            {queue: counts[queue] for queue in WORDING if counts[queue]},
            len(await ledger.claimed()),
        )
    finally:
        ledger.close()
        store.close()


async def make(path: Path, url: str, *, word: bool = False) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings(url).items():
            patch.setenv(name, value)
        chosen = Settings()
    async with open_memory(path, chosen, embedder=lambda _: HashingEmbedder()) as memory:
        await memory.append(STORY)
        if word:
            await memory.word()


class Calm(msgspec.Struct):
    """A memory that is to be worded, how it ends when nothing happens to whoever words it, and what that takes."""

    memory: Path
    state: State
    paid: Counter[str]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    server = Server(folder, delay=0.0)
    asyncio.run(make(folder / "memory", server.url))
    shutil.copytree(folder / "memory", folder / "worded")
    asyncio.run(make(folder / "worded", server.url, word=True))
    server.end()
    return Calm(folder / "memory", asyncio.run(state(folder / "worded")), server.paid)


class Host:
    """Where the processes come from that word."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.e2e.words_process"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
        )

    def start(self, task: Task) -> int:
        """Begin to word; the id of the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task).decode() + "\n")
        self._process.stdin.flush()
        return self._number()

    def ended(self) -> int:
        """Wait until it has ended; its status."""
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    started = Host()
    yield started
    started.end()


class Room:
    """A memory, the server that words it, and the processes that let it, which die."""

    def __init__(self, folder: Path, calm: Calm, host: Host) -> None:
        self.path, self.calm, self._host = folder / "memory", calm, host
        shutil.copytree(calm.memory, self.path)
        self.server = Server(folder, DELAY)
        self._task = Task(str(self.path), settings(self.server.url))
        self._seen = 0
        self._repeatable: set[str] = set()

    def dies(self, effect: str, nth: int, *, after: bool = False) -> None:
        """Word until the process dies by itself."""
        self._host.start(msgspec.structs.replace(self._task, effect=effect, nth=nth, after=after))
        self._died()

    def killed(self, replies: int) -> None:
        """Word until so many more replies have been sent, then kill the process."""
        process, before = self._host.start(self._task), len(self.server.asked)
        while len(self.server.asked) < before + replies:
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
        self._died()

    def _died(self) -> None:
        """Whatever was asked is kept by now, unless it was in flight."""
        assert self._host.ended() == -signal.SIGKILL
        time.sleep(2 * DELAY)  # the server finds out that nobody waits
        kept = asyncio.run(state(self.path)).kept
        asked = self.server.asked[self._seen :]
        self._seen += len(asked)
        lost = [one for one in asked if not kept.issuperset(one.nodes)]
        assert len(lost) <= IN_FLIGHT, [one.answered for one in asked]
        self._repeatable |= {node for one in lost for node in one.nodes}

    def finish(self) -> None:
        """Word all that is left, and look at everything."""
        self._host.start(self._task)
        assert self._host.ended() == 0
        assert asyncio.run(state(self.path)) == self.calm.state
        paid = self.server.paid
        assert paid.keys() == self.calm.paid.keys()
        assert {node for node, times in paid.items() if times > 1} <= self._repeatable


@pytest.fixture
def room(tmp_path: Path, calm: Calm, host: Host) -> Iterator[Room]:
    made = Room(tmp_path, calm, host)
    yield made
    made.server.end()


def test_a_memory_that_nobody_disturbs_is_worded_whole_and_pays_for_each_node_once(calm: Calm) -> None:
    assert set(calm.paid.values()) == {1}
    assert calm.paid.keys() == calm.state.kept
    assert len(calm.state.wordings) > 60
    assert all(wording.text for wording in calm.state.wordings.values())
    assert (calm.state.waiting, calm.state.claims) == ({}, 0)


@pytest.mark.parametrize("effect", PARTS)
def test_a_process_killed_at_an_effect_loses_no_more_than_what_was_in_flight(room: Room, effect: str) -> None:
    room.dies(effect, 7)
    room.dies(effect, 6, after=True)
    room.finish()


def test_a_process_killed_from_outside_again_and_again_ends_with_everything_worded(room: Room) -> None:
    for replies in (0, 1, 4, 9):
        room.killed(replies)
    room.finish()
