"""Every backend behind every port, so that one suite holds for all of them."""

import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streammem.backends.kafka import Connection, KafkaLog
from streammem.backends.kafka_topics import KafkaTopics
from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.backends.redis import RedisStructure
from streammem.backends.sqlite import SqliteLog, SqliteStructure
from streammem.core.topics import LOG, named
from tests.servers import redis_server

ROOT = Path(__file__).parents[2]

WRITES = {
    *("append", "erase"),
    *("forbid", "withdraw", "unlink", "strike", "unlearn", "uncache"),
    *("register", "enter", "link", "learn", "mark_due", "redact", "settle"),
    *("keep", "drop", "word", "unword", "cache", "advance", "clear", "sweep", "group", "ungroup"),
}


class Reopened:
    """A file that is closed and opened again after every write: nothing may live in the process alone.

    But what rests does: a mark that says how long is followed by no opening.
    """

    def __init__(self, backend: type[SqliteLog] | type[SqliteStructure], path: Path) -> None:
        self._open = lambda: backend(path)
        self._now: Any = backend(path)

    def __getattr__(self, name: str) -> Any:
        return self._written(name) if name in WRITES else getattr(self._now, name)

    def _written(self, name: str) -> Any:
        async def write(*arguments: Any, **options: Any) -> Any:
            outcome = await getattr(self._now, name)(*arguments, **options)
            if options.get("until") is None:
                self._now.close()
                self._now = self._open()
            return outcome

        return write


@pytest.fixture(params=["memory", "sqlite", "sqlite-reopened", "redis", "redis-cluster"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, redis_prefix: str) -> AsyncIterator[Any]:
    """A new structure store of each backend."""
    path = tmp_path / "structure.sqlite"
    if request.param == "memory":
        yield MemoryStructure()
    elif request.param.startswith("redis"):
        cluster = request.param == "redis-cluster"
        url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
        remote = await RedisStructure.open(url, redis_prefix, cluster=cluster)
        yield remote
        await remote.close()
        redis_server.forget(url, redis_prefix)
    else:
        file: Any = SqliteStructure(path) if request.param == "sqlite" else Reopened(SqliteStructure, path)
        yield file
        file.close()


KNOWING = ["memory", "sqlite", "sqlite-reopened"]
"""The logs that know their keys and have one partition."""


@contextmanager
def knowing(backend: str, path: Path) -> Iterator[Any]:
    if backend == "memory":
        yield MemoryLog()
        return
    opened: Any = SqliteLog(path) if backend == "sqlite" else Reopened(SqliteLog, path)
    yield opened
    opened.close()


@pytest.fixture(params=KNOWING)
def knowing_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A new log of each backend that stores a key once."""
    with knowing(request.param, tmp_path / "log.sqlite") as log:
        yield log


@pytest.fixture(params=[*KNOWING, "kafka"])
async def log(request: pytest.FixtureRequest, tmp_path: Path, kafka_prefix: str) -> AsyncIterator[Any]:
    """A new log of each backend. On Kafka it has three partitions and takes a repeated key again."""
    if request.param != "kafka":
        with knowing(request.param, tmp_path / "log.sqlite") as known:
            yield known
        return
    connection = Connection(bootstrap=request.getfixturevalue("kafka"))
    await KafkaTopics(connection, kafka_prefix).create(3, 1, [LOG])
    async with KafkaLog(connection, named(kafka_prefix, LOG)) as remote:
        yield remote


@pytest.fixture
def killed_after() -> Callable[[str, Path, float], list[str]]:
    """Runs a script until it has said something and some seconds more, then kills it; returns what it said."""

    def run(script: str, path: Path, seconds: float) -> list[str]:
        child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        said = first + child.stdout.read()
        child.stdout.close()
        child.wait()
        return said.split("\n")[:-1]

    return run
