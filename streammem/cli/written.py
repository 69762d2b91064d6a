"""What `streammem summaries write` has done, told while it is done and at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from streammem.cli import rungs, shown
from streammem.cli.progress import EVERY, Progress

if TYPE_CHECKING:
    from streammem.errors import StreammemError
    from streammem.flows.outlook import Outlook
    from streammem.flows.sheet import Worded
    from streammem.records import Spent
    from streammem.settings import Settings


class Written:
    """What was done, told while it is done and at the end. Spending is that of all processes meanwhile."""

    def __init__(self, found: Outlook, settings: Settings) -> None:
        renewed = settings.wording.renew == "idle"
        self._expected = sum(rung.due + (rung.shifted if renewed else 0) for rung in found.rungs)
        self._later = sum(rung.later for rung in found.rungs)
        self.worded = self.failed = 0
        self.stopped: StreammemError | None = None
        self.begun = self.interrupted = False
        self.faults: dict[str, int] = {}
        self._counted = _sums([])
        self._said, self._at = "", -EVERY

    def begin(self, progress: Progress, spent: list[Spent]) -> None:
        """Hear what was spent before."""
        self.begun = True
        self._progress = progress
        self._before = spent
        progress.expect("word", self._expected)

    def end(self, spent: list[Spent]) -> None:
        """Hear what is spent by now."""
        days = {one.day for one in spent}  # the oldest may have gone by
        before = _sums([one for one in self._before if one.day in days])
        self._counted = {name: count - before[name] for name, count in _sums(spent).items()}

    def told(self, more: Worded) -> None:
        """Hear of nodes."""
        self.worded += more.worded
        self.failed += more.failed
        if more.worded or more.failed:
            # A node is worded anew when what is below it is: it was expected once.
            left = max(0, self._expected - self._progress.done("word"))
            self._progress("word", min(left, more.worded + more.failed))
        if more.failed:
            self._progress("fault", more.failed)

    def trouble(self, line: str) -> None:
        """Hear why calls are kept back; many calls say the same."""
        now = time.monotonic()
        if line != self._said and (line or self._said) and now - self._at >= (0 if not line else EVERY):
            shown.say(f"kept back: {line}" if line else "calls go again")
            self._said, self._at = line, now

    def waiting(self, texts: int) -> None:
        """Hear how much is with the server."""
        if str(texts) != self._said:
            self._said = str(texts)
            shown.say(f"{rungs.many(texts, 'text')} with the server, in jobs")

    def put(self, settings: Settings, *, as_json: bool) -> None:
        """Tell what was done."""
        counted = self._counted
        if as_json:
            done = {"worded": self.worded, "failed": self.failed, "later": self._later, **rungs.in_currency(counted)}
            told = {"currency": settings.budget.currency, "stopped": self._why, "faults": self.faults}
            shown.put_json({**done, **told})
            return
        lines: dict[str, Any] = {"nodes worded": self.worded}
        if self.failed:
            lines["nodes that the model failed at"] = self.failed
        if self._later:
            lines["nodes that wait until they are quiet or have grown"] = self._later
        failed = f", {counted['failed_calls']:,} of them failed" if counted["failed_calls"] else ""
        lines["calls"] = f"{counted['calls']:,}{failed}"
        lines["tokens"] = f"{counted['tokens_in']:,} in, {counted['tokens_out']:,} out"
        if rungs.priced(settings):
            lines["cost"] = rungs.money(counted["money"], settings.budget.currency)
        shown.put_counts("Written" if self._why is None else "Written until it was stopped", lines)
        rungs.put_faults(self.faults)

    @property
    def _why(self) -> str | None:
        """Why it was stopped."""
        if self.interrupted:
            return "by Ctrl-C or SIGTERM"
        return str(self.stopped) if self.stopped is not None else None


def _sums(spent: list[Spent]) -> dict[str, int]:
    names = {"calls": "calls", "failed_calls": "failed", "tokens_in": "tokens_in", "tokens_out": "tokens_out"}
    return {name: sum(getattr(one, field) for one in spent) for name, field in {**names, "money": "money"}.items()}
