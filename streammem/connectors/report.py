"""The account of an import: what became of every input record, and how far the reading is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from streammem.records import Refusal

EXAMPLES = 100
"""Gaps kept with their place; all of them are counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something the source itself says exists and did not hand over."""

    reason: str
    origin: str
    missing: int


@dataclass(slots=True)
class Report:
    """Filled by a connector while its events are drawn: read = accepted + ignored + rejected, at any pause.

    Only totals and `refusals` not yet taken are held, so an importer that calls `take_refusals` after each
    batch stays in bounded memory. `skipped` counts files, not records.
    """

    read: int = 0
    accepted: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    gap_examples: list[Gap] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_total: int = 0
    bytes_done: int = 0
    entries_total: int = 0
    entries_done: int = 0

    def accept(self) -> None:
        self.read += 1
        self.accepted += 1

    def ignore(self, reason: str) -> None:
        self.read += 1
        self.ignored[reason] += 1

    def reject(self, reason: str, detail: str, origin: str) -> None:
        self.read += 1
        self.rejected[reason] += 1
        self.refusals.append(Refusal(reason=reason, detail=detail[:200], origin=origin))

    def gap(self, reason: str, origin: str, missing: int = 1) -> None:
        self.gaps[reason] += missing
        if len(self.gap_examples) < EXAMPLES:
            self.gap_examples.append(Gap(reason, origin, missing))

    def take_refusals(self) -> list[Refusal]:
        """The refusals since the last call, for the dead-letter store."""
        taken, self.refusals = self.refusals, []
        return taken
