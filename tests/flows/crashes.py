"""A store that fails in the middle of things."""

from __future__ import annotations

from typing import Any

from streammem.backends.memory import MemoryStructure

EFFECTS = (
    *("forbid", "withdraw", "unlink", "strike", "unlearn", "uncache", "ungroup"),
    *("register", "enter", "link", "learn", "redact", "mark_due", "advance"),
)


class Crashes(MemoryStructure):
    """Fails at the nth effect, before or after doing it."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.left, self.after = at, after
        for name in EFFECTS:
            setattr(self, name, self._failing(getattr(self, name)))

    def _failing(self, effect: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise InterruptedError
            outcome = await effect(*arguments)
            if self.left == 0:
                raise InterruptedError
            return outcome

        return call
