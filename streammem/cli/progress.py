"""How far a long command is, on stderr: bars on a terminal, else a line now and then that logs can keep."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from streammem.cli.running import heed_cancelling
from streammem.cli.shown import say

if TYPE_CHECKING:
    from rich.progress import TaskID

EVERY = 5.0
"""Seconds between lines when stderr is not a terminal."""


class Face(Protocol):
    """One way to show progress."""

    def begin(self) -> None: ...
    def show(self, stage: Stage) -> None: ...
    def acknowledge(self, position: int) -> None: ...
    def end(self) -> None: ...


class Stage:
    """One kind of work: how much is done and how much there is, as far as anybody knows."""

    def __init__(self, name: str, label: str, began: float) -> None:
        self.name = name
        self.label = label
        self.done = 0
        self.total: int | None = None
        self.began = began

    @property
    def rate(self) -> float:
        """How many a second, since this stage began."""
        return self.done / max(time.monotonic() - self.began, 1e-6)

    @property
    def left(self) -> float | None:
        """Seconds left, when that can be told: not before a fiftieth is done."""
        known = self.total and self.total >= self.done > self.total / 50
        return (self.total - self.done) / self.rate if self.total and known else None

    def __str__(self) -> str:
        of = f" of {self.total:,}" if self.total and self.total > self.done else ""
        left = f", about {duration(self.left)} left" if of and self.left is not None else ""
        return f"{self.label}: {self.done:,}{of}, {self.rate:,.0f}/s{left}"


class Progress:
    """Counts what is done by stage. Call it with (stage, how many more); `expect` says how many there will be."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._stages: dict[str, Stage] = {}
        self._acknowledged: int | None = None
        self._heard = time.monotonic()
        self._face: Face = _Bars() if sys.stderr.isatty() else _Lines()

    def __enter__(self) -> Self:
        self._face.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._face.end()

    def __call__(self, stage: str, more: int) -> None:
        """Also the moment when work that never waits notices Ctrl-C."""
        heed_cancelling()
        if stage in self._labels:
            self._stage(stage).done += more
            self._face.show(self._stage(stage))
        self._heard = time.monotonic()

    def expect(self, stage: str, total: int) -> None:
        """Say how many there will be; again when it is known better."""
        if stage in self._labels:
            self._stage(stage).total = total

    def acknowledge(self, position: int) -> None:
        """Say, when it has moved, that everything up to a position of the log is durable."""
        if position != self._acknowledged:
            self._acknowledged = position
            self._face.acknowledge(position)

    def done(self, stage: str) -> int:
        """How many are done."""
        return self._stage(stage).done if stage in self._labels else 0

    def _stage(self, name: str) -> Stage:
        if name not in self._stages:
            # What is told of for the first time has been under way since anything was told before.
            self._stages[name] = Stage(name, self._labels[name], self._heard)
        return self._stages[name]


class _Lines:
    """A line for each stage every few seconds."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def begin(self) -> None:
        pass

    def show(self, stage: Stage) -> None:
        if time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            say(str(stage))

    def acknowledge(self, position: int) -> None:
        say(f"acknowledged {position}")

    def end(self) -> None:
        pass


class _Bars:
    """A bar for each stage, gone when the work is done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Rich

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
        self._rich = Rich(*columns, console=Console(stderr=True, markup=False), transient=True)
        self._bars: dict[str, TaskID] = {}
        self._acknowledged: TaskID | None = None

    def begin(self) -> None:
        self._rich.start()

    def show(self, stage: Stage) -> None:
        if stage.name not in self._bars:
            self._bars[stage.name] = self._rich.add_task(stage.label, total=None, told="")
        told = str(stage).partition(": ")[2]
        self._rich.update(self._bars[stage.name], completed=stage.done, total=stage.total, told=told)

    def acknowledge(self, position: int) -> None:
        if self._acknowledged is None:
            self._acknowledged = self._rich.add_task("acknowledged", total=None, told="")
        self._rich.update(self._acknowledged, told=f"{position:,} events are durable")

    def end(self) -> None:
        self._rich.stop()


def duration(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
