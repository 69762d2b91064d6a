"""Signs of life within one process: what the backend for several processes is compared with."""

from __future__ import annotations

import time

from streammem.ports import Beats
from streammem.records import Beat


class MemoryBeats(Beats):
    """Forgets by the monotonic clock of the process."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[float, Beat]] = {}

    async def beat(self, beat: Beat, seconds: float) -> None:
        self._said[beat.role, beat.process] = time.monotonic() + seconds, beat

    async def beats(self) -> list[Beat]:
        now = time.monotonic()
        self._said = {name: said for name, said in self._said.items() if said[0] > now}
        return [self._said[name][1] for name in sorted(self._said)]
