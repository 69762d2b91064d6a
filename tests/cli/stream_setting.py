"""A memory as a stream for tests of commands: its settings, and workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammem.cli import models
from streammem.wiring import embedded, stream
from tests.embedding import HashingEmbedder

ROOT = Path(__file__).parents[2]


def settings_of(bootstrap: str, prefix: str, redis_url: str, vectors: Path, **more: str) -> dict[str, str]:
    """The environment of one small memory."""
    named = {
        "KAFKA__BOOTSTRAP": bootstrap,
        "KAFKA__PREFIX": prefix,
        "KAFKA__PARTITIONS": "2",
        "REDIS__URL": redis_url,
        "REDIS__PREFIX": prefix.rstrip("."),
        "VECTORS__PATH": str(vectors),
        "WORKER__PATIENCE": "0.5",
        "WORKER__TIMEOUT": "15",
        "WAIT": "0.2",
        **more,
    }
    return {f"STREAMMEM_{name}": value for name, value in named.items()}


def needs_no_model(monkeypatch: Any) -> None:
    """Commands of this process embed without a model."""
    monkeypatch.setattr(stream, "fastembed", lambda _: HashingEmbedder())
    monkeypatch.setattr(embedded, "fastembed", lambda _: HashingEmbedder())
    monkeypatch.setattr(models, "ensure", lambda *_: None)


@dataclass
class Worker:
    """`streammem worker` in a process of its own; what it logs is collected."""

    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()
        self.process.wait()
        with self._said:
            self._said.notify_all()

    def says(self, text: str, times: int = 1, seconds: float = 60.0) -> None:
        """Return when it has said this so often."""

        def heard() -> bool:
            return sum(text in line for line in self.lines) >= times

        with self._said:
            assert self._said.wait_for(lambda: heard() or self.process.poll() is not None, seconds), "".join(self.lines)
            self._said.wait_for(heard, 1.0)
            assert heard(), "".join(self.lines)

    def end(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Send a signal and return the status it ends with."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended(seconds)

    def ended(self, seconds: float = 60.0) -> int:
        """The status it ends with by itself."""
        try:
            status = self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
            self._reading.join(5)
            assert self.process.stderr is not None
            self.process.stderr.close()
        return status


def start(settings: dict[str, str], *roles: str) -> Worker:
    """Type `streammem worker ROLE...`."""
    return Worker(
        subprocess.Popen(
            [sys.executable, "-m", "tests.workers.driver", "worker", *roles],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **settings},
        )
    )
