"""Real servers for all tests: one of each for a session, shared by its processes."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest
import structlog
from hypothesis import settings

from tests.servers import kafka_server, redis_server

MEMORY = Path("/dev/shm")

settings.register_profile("untimed", deadline=None)  # a machine with other work is slow, which is no fault
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Folders of tests lie in memory where that can be had.

    What a test kills are processes, which takes nothing that was written: no disk need be waited for.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Processes of `-n auto`: more than cores, for tests wait for servers and processes more than they reckon."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: what remains for the end is short, and whoever is ready takes it over."""
    items.sort(key=lambda item: "/e2e/" not in item.nodeid)


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """A command sets up logs for its process: the next test must not find them."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def session_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder that all processes of this session share, and the process that outlives the others."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent, os.getppid()) if hasattr(request.config, "workerinput") else (base, os.getpid())


def missing(reason: object) -> NoReturn:
    """A server that cannot be had means skip at home and fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(str(reason), pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka(session_folder: tuple[Path, int]) -> Iterator[str]:
    """The bootstrap of the Kafka broker of this session."""
    folder, owner = session_folder
    with ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(kafka_server.shared(folder / "kafka", owner))
        except kafka_server.Unavailable as error:
            missing(error)
        yield bootstrap


@pytest.fixture
def kafka_prefix() -> str:
    """Before the names of a test's topics and groups, so that tests do not meet on the broker."""
    return f"t{uuid4().hex[:10]}."


@pytest.fixture(scope="session")
def _restartable_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_server.KafkaServer]:
    try:
        server = kafka_server.serve(tmp_path_factory.mktemp("own") / "kafka", restartable=True)
    except kafka_server.Unavailable as error:
        missing(error)
    yield server
    server.end()


@pytest.fixture
def own_kafka(_restartable_kafka: kafka_server.KafkaServer) -> kafka_server.KafkaServer:
    """A broker that no other test uses meanwhile, to be stopped, killed and started again; it runs."""
    _restartable_kafka.start()
    return _restartable_kafka


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Redis of this process: the one that STREAMMEM_TEST_REDIS names, or one of our own."""
    named = os.environ.get("STREAMMEM_TEST_REDIS")
    if named:
        yield named
        return
    yield from _running(tmp_path_factory.mktemp("redis"), cluster=False)


@pytest.fixture(scope="session")
def redis_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis Cluster of one node: it refuses a step that touches two hash slots."""
    yield from _running(tmp_path_factory.mktemp("redis-cluster"), cluster=True)


def _running(folder: Path, *, cluster: bool) -> Iterator[str]:
    server = _started(redis_server.RedisServer, folder, cluster=cluster)
    yield server.url
    server.stop()


def _started(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return kind(*arguments, **options)
    except redis_server.Unavailable as error:
        missing(error)


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., redis_server.RedisServer]]:
    """Starts a Redis of the test's own, with these arguments, which is ended with the test."""
    servers: list[redis_server.RedisServer] = []

    def start(*arguments: str, cluster: bool = False) -> redis_server.RedisServer:
        folder = tmp_path / f"redis-{len(servers)}"
        servers.append(_started(redis_server.RedisServer, folder, *arguments, cluster=cluster))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def own_redis(start_redis: Callable[..., redis_server.RedisServer]) -> redis_server.RedisServer:
    """A Redis of the test's own that keeps what it is told, to be stopped, killed and started again."""
    return start_redis("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def redis_nodes(tmp_path: Path) -> Iterator[redis_server.ClusterServers]:
    """A Redis Cluster of the test's own, whose second node may be killed."""
    servers = _started(redis_server.ClusterServers, tmp_path / "nodes")
    yield servers
    servers.stop()


@pytest.fixture
def redis_prefix() -> str:
    """Before the names of a test's keys, so that tests do not meet."""
    return f"t{uuid4().hex[:10]}"
