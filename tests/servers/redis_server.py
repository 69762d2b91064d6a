"""A real Redis for tests, alone or as a cluster of one node, on a free loopback port and in a folder of its own.

A server that STREAMMEM_TEST_REDIS names (a URL) is used as it is and never stopped; else the `redis-server` binary.
Where there is none, `Unavailable` is raised: skip at home, fail in CI. A server ends with the process that owns it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis

KEEPER = Path(__file__).with_name("keeper.py")
PATIENCE = 30.0
"""Seconds to wait for a server that starts on a busy machine."""


class Unavailable(Exception):  # noqa: N818 - as of every server
    """No Redis can be had here."""


class RedisServer:
    """A server of our own, which can be stopped, killed and started again on the same port and data."""

    def __init__(self, folder: Path, *arguments: str, cluster: bool = False, slots: bool = True) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise Unavailable("no redis-server: install it, or name a server in STREAMMEM_TEST_REDIS")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port(cluster=cluster)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder, self._pid_file = folder, folder / "redis.pid"
        clustered = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf") if cluster else ()
        place = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder))
        self._command = [binary, *place, "--save", "", *clustered, *arguments]
        self.start()
        if cluster and slots:
            self.say("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            self.wait_for("CLUSTER INFO", "cluster_state", "ok")

    def start(self) -> None:
        """Start, and return when it answers."""
        keeper = [sys.executable, "-S", str(KEEPER), str(os.getpid()), str(self._pid_file)]
        with (self._folder / "redis.log").open("ab") as log:
            self._keeper = subprocess.Popen([*keeper, *self._command], stdout=log, stderr=log)
        self._await(lambda client: client.ping())

    def say(self, *command: str | int) -> Any:
        """Run a command."""
        with redis.Redis.from_url(self.url) as client:
            return client.execute_command(*command)

    def wait_for(self, command: str, name: str, value: str) -> None:
        """Return when what a command says of `name` is that."""
        self._await(lambda client: client.execute_command(command).get(name) == value)

    def _await(self, ready) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._keeper.poll() is None:
            try:
                with redis.Redis.from_url(self.url, retry=None) as client:
                    if ready(client):
                        return
            except redis.AuthenticationError:
                return  # it answers
            except redis.RedisError:
                pass
            time.sleep(0.02)
        raise Unavailable(f"redis-server does not start: {(self._folder / 'redis.log').read_text()[-500:]}")

    def stop(self) -> None:
        """End it as an administrator does."""
        self._end(15)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(9)

    def _end(self, signal: int) -> None:
        if self._keeper.poll() is None:
            os.kill(int(self._pid_file.read_text()), signal)
            self._keeper.wait(PATIENCE)


class ClusterServers:
    """Three nodes that share the slots, and a fourth that takes the place of the second when that dies."""

    def __init__(self, folder: Path) -> None:
        quick = ("--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")
        self.nodes = [RedisServer(folder / str(n), *quick, cluster=True, slots=False) for n in range(4)]
        for epoch, node in enumerate(self.nodes, start=1):
            node.say("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node, (first, last) in zip(self.nodes, ((0, 5460), (5461, 10922), (10923, 16383)), strict=False):
            node.say("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            self.nodes[0].say("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in self.nodes:
            node.wait_for("CLUSTER INFO", "cluster_state", "ok")
            node.wait_for("CLUSTER INFO", "cluster_known_nodes", "4")
        self.nodes[3].say("CLUSTER", "REPLICATE", self.nodes[1].say("CLUSTER", "MYID"))
        self.nodes[3].wait_for("INFO", "master_link_status", "up")
        self.url = self.nodes[0].url

    def stop(self) -> None:
        """End them all."""
        for node in self.nodes:
            node.stop()


def forget(url: str, prefix: str) -> None:
    """Remove every key of a test, one by one: a cluster takes no others together."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{prefix}:*", count=1000):
            client.unlink(key)


def forget_scripts(url: str) -> None:
    """What a server does when it starts anew."""
    with redis.Redis.from_url(url) as client:
        client.execute_command("SCRIPT", "FLUSH")


def _free_port(*, cluster: bool) -> int:
    """A port that is free now. A cluster node needs the one 10,000 above it too."""
    for _ in range(100):
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if not cluster:
                return port
            try:
                bus.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port
    raise Unavailable("no free ports")
