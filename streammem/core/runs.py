"""The ways in which all questions of a data set are asked: as set, with something left out, with other budgets."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any, Literal

import msgspec

from streammem.core.numbers import Retrieval

FULL = "full"
"""The name of the run as everything is set."""

UNLIMITED = 10**9
"""A token budget that nothing reaches."""

SIGNALS: dict[str, tuple[str, ...]] = {
    "leaf2tree": ("weight_leaf2tree",),
    "root": ("weight_root",),
    "collapsed": ("weight_collapsed",),
    "votes": ("vote_channel", "vote_thread"),
    "node above": ("node",),
    "context": ("pull_channel", "pull_thread", "pull_reply", "pull_question", "pull_answered"),
    "utterances": ("pull_utterance",),
    "artifacts": ("about",),
    "joins": ("joins",),
    "bridges": ("bridge_messages",),
    "habits": ("habit", "habit_any", "habit_thread"),
    "recency": ("recency",),
}
"""The weights that are 0 when a signal is off: the three of §3.2.1 (routing), then what this project adds to them."""

_STAGES = ("S1", "+ S2", "+ S3")
"""Names of the runs with fewer stages; all four are the full one (EGCForest, Table 2)."""


class Run(msgspec.Struct, frozen=True):
    """One way to ask: the numbers of the retrieval, the most messages and tokens of an answer."""

    name: str
    numbers: Retrieval
    limit: int
    budget: int

    @property
    def terms(self) -> tuple[Retrieval, int, int]:
        """What answers depend on: two runs with the same terms find the same."""
        return self.numbers, self.limit, self.budget


class Variant(msgspec.Struct, frozen=True):
    """A run with something left out. `kind` is the table that it belongs to."""

    kind: Literal["stages", "views", "signals"]
    run: Run


def variants(full: Run) -> list[Variant]:
    """Fewer stages, fewer views, each signal off. What the full run has not got itself cannot be left out."""
    made = [*_fewer_stages(full), *_fewer_views(full), *_signals_off(full)]
    return [variant for variant in made if variant.run.numbers != full.numbers]


def _fewer_stages(full: Run) -> Iterator[Variant]:
    for stages, name in enumerate(_STAGES[: full.numbers.stages - 1], 1):
        yield Variant("stages", _changed(full, name, stages=stages))


def _fewer_views(full: Run) -> Iterator[Variant]:
    views = full.numbers.views
    for size in range(1, len(views)):
        for some in combinations(views, size):
            yield Variant("views", _changed(full, " + ".join(some), views=some))


def _signals_off(full: Run) -> Iterator[Variant]:
    for signal, weights in SIGNALS.items():
        yield Variant("signals", _changed(full, f"without {signal}", **dict.fromkeys(weights, 0.0)))


def _changed(full: Run, name: str, **numbers: Any) -> Run:
    return msgspec.structs.replace(full, name=name, numbers=replace(full.numbers, **numbers))


def differing(run: Run, full: Run) -> dict[str, Any]:
    """The numbers that a run has otherwise."""
    standing = asdict(full.numbers)
    return {name: value for name, value in asdict(run.numbers).items() if value != standing[name]}


def budgets(full: Run, limits: Many[int]) -> list[Run]:
    """The same with other limits of messages; the token budget grows in proportion (EGCForest, Figure 4)."""
    return [
        msgspec.structs.replace(full, name=f"{limit} messages", limit=limit, budget=_in_proportion(full, limit))
        for limit in limits
    ]


def _in_proportion(full: Run, limit: int) -> int:
    return UNLIMITED if full.budget >= UNLIMITED else full.budget * limit // full.limit


def without_floor(full: Run) -> Run:
    """The same with every question answered that can be, so that all confidences are seen."""
    return _changed(full, "floor 0", floor=0.0)
