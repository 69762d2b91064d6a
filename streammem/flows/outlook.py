"""How the wording of a memory stands, and what it would take to finish it: nothing is asked and nothing written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable
from collections.abc import Sequence as Many
from dataclasses import replace
from typing import Any, cast

import msgspec

from streammem.core import packing, prompts, spending
from streammem.core.directory import Directory
from streammem.core.numbers import Wording as Numbers
from streammem.core.prompts import Part
from streammem.flows.calling import Terms, paused_because
from streammem.flows.sheet import Pen, Said, Sheet
from streammem.flows.wording import Directories, everything
from streammem.ports import RENEWALS, REPLIES, WORDS, Ledger, StructureStore
from streammem.records import Claim, Due, Limits, NodeId, Paid, Sequence, Spent, Taken, Wording

_ABOVE_ALL = 99
"""Stands for the level of the skeleton, which is above all others, where levels are sorted."""

DAYS = 30
"""Days whose spending is told."""

TYPICAL = 0.6
"""What share of the room that a summary may take it usually takes: for estimates."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one view and level, by what they are (core.wording.STATES).

    Level 0 are the nodes above an actor's sequences. `calls`, `tokens_in`, `tokens_out` and `money` (billionths) are an
    estimate for those that are due, and those that are renewed when nothing is.
    """

    view: str
    level: int
    nodes: int = 0
    quoted: int = 0
    worded: int = 0
    due: int = 0
    later: int = 0
    shifted: int = 0
    failed: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    money: int = 0


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """How wording stands. `faults` says why the model failed, and at how many nodes.

    `standing` says whether calls are made now. `used` is what is gone of today's budget to calls that were made or are
    being made: tokens, and money in billionths. `spent` goes back DAYS days.
    """

    writer: str
    standing: Taken
    used: tuple[int, int]
    limits: Limits
    rungs: tuple[Rung, ...]
    in_flight: tuple[Claim, ...]
    spent: tuple[Spent, ...]
    jobs: int
    faults: dict[str, int] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What finishing takes, by an estimate: how long replies are is not known before.

    `today` is how many of the calls what is left of today's budget allows. `days` counts today; None: a day's budget
    does not allow a single call.
    """

    calls: int
    tokens_in: int
    tokens_out: int
    money: int
    today: int
    days: int | None


def plan(found: Outlook) -> Plan:
    """What wording all that is due takes, and how the day's budget divides it."""
    calls, tokens_in, tokens_out, money = (
        sum(getattr(rung, name) for rung in found.rungs) for name in ("calls", "tokens_in", "tokens_out", "money")
    )
    needs = (
        (tokens_in + tokens_out, found.used[0], found.limits.day_tokens),
        (money, found.used[1], found.limits.day_money),
    )
    parts = [_divided(calls, need, used, limit) for need, used, limit in needs if limit is not None and need]
    days = [days for _, days in parts]
    return Plan(
        calls=calls,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        money=money,
        today=min((today for today, _ in parts), default=calls),
        days=None if None in days else max((n for n in days if n is not None), default=min(1, calls)),
    )


def _divided(calls: int, need: int, used: int, limit: int) -> tuple[int, int | None]:
    """The calls that are left for today, and the days that all of them take with it."""
    left = max(0, limit - used)
    days = 1 + -(-max(0, need - left) // limit) if limit * calls >= need else None
    return min(calls, left * calls // need), days


def why_not(taken: Taken) -> str:
    """Why no call is made at this moment, in one line; "" when they are made."""
    if taken.granted:
        return ""
    if taken.why in ("paused", "budget"):
        return paused_because(taken)
    who = "the server wants no calls now" if taken.why == "rest" else "the limits of a minute are reached"
    return f"{who}: they go on in {taken.wait:.0f} s"


async def nobody(part: Part, company: str) -> Said | None:  # noqa: ARG001 - asks nobody
    """Stands where a pen needs somebody to ask and nobody will be asked."""
    return None


async def outlook(
    pen: Pen, ledger: Ledger, terms: Terms, progress: Callable[[int], None] | None = None, *, batch: bool = False
) -> Outlook:
    """How the wording of a memory stands. Reads every node once. With `batch` the estimate is for the Batch API."""
    rungs = tuple(await ladder(pen, terms, progress, batch=batch))
    found = await account(pen.writer, ledger, terms, rungs)
    failed = any(rung.failed for rung in rungs)
    return msgspec.structs.replace(found, faults=await faults(pen.store)) if failed else found


async def faults(store: StructureStore) -> dict[str, int]:
    """Why the model failed, and at how many nodes, most of them first."""
    found = Counter([w.fault async for _, w in store.generated() if isinstance(w, Wording) and w.fault])
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


async def account(writer: str, ledger: Ledger, terms: Terms, rungs: tuple[Rung, ...] = ()) -> Outlook:
    """What the ledger says, beside what the nodes are."""
    return Outlook(
        writer=writer,
        standing=await standing(ledger, terms),
        used=await ledger.used(),
        limits=terms.limits,
        rungs=rungs,
        in_flight=tuple(await ledger.claimed()),
        spent=tuple(await ledger.spent(DAYS)),
        jobs=len(await ledger.jobs()),
    )


async def standing(ledger: Ledger, terms: Terms) -> Taken:
    """Whether calls are made now. Where the day's budget has less left than a usual call takes, it is spent."""
    tokens, money = usual(await ledger.spent(1), terms)
    limits = msgspec.structs.replace(
        terms.limits,
        day_tokens=_less(terms.limits.day_tokens, tokens - 1),  # one token is asked for
        day_money=_less(terms.limits.day_money, money),
    )
    return await ledger.standing(limits)


def _less(limit: int | None, kept: int) -> int | None:
    return None if limit is None else max(0, limit - kept)


def usual(spent: Iterable[Spent], terms: Terms) -> tuple[int, int]:
    """The most tokens and money that a call may need which asks as much as those of `spent` did on average.

    None was made: one about a node with next to nothing in it.
    """
    part = Part("", "channel", "", 1, 0, 0, (), ())
    prompt = prompts.prompt([part], terms.numbers.length)
    asked = [(one.calls - one.failed, one.tokens_in) for one in spent if one.view != REPLIES]
    calls, tokens = sum(c for c, _ in asked), sum(t for _, t in asked)
    return spending.most(max(prompts.cost(prompt), tokens // max(1, calls)), prompt.room, terms.price)


async def ladder(
    pen: Pen, terms: Terms, progress: Callable[[int], None] | None = None, *, batch: bool = False
) -> list[Rung]:
    """Every node by view and level, and what wording those that are due would take."""
    guess = _Guess(pen.store, terms, batch=batch)
    sketch = _Sketch(pen.store, guess.keys)
    pen = msgspec.structs.replace(pen, store=cast("StructureStore", sketch), tell=guess, told=None)
    states: Counter[tuple[str, int, str]] = Counter()
    directories = Directories(pen.store)
    for workspace in await pen.store.workspaces():
        directory = await directories.of(workspace)
        for due in await everything(workspace, pen.store):
            states.update(await _states(due, pen, directory))
            sketch.done_with(due.sequence)
            if progress:
                progress(1)
    return _rungs(states, guess.estimates())


async def _states(due: Due, pen: Pen, directory: Directory) -> Counter[tuple[str, int, str]]:
    """What the nodes of a sequence are. What is renewed when nothing else is due is asked for, too."""
    sheet = Sheet(due, WORDS, pen, directory)
    await sheet.fill()
    if sheet.shifted is not None and pen.numbers.renew == "idle":
        await Sheet(Due(due.sequence, 0, sheet.shifted), RENEWALS, pen, directory).fill()
    return sheet.states


def _rungs(states: Counter[tuple[str, int, str]], estimates: dict[tuple[str, int], dict[str, int]]) -> list[Rung]:
    rungs: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for (view, level, state), count in states.items():
        rungs[view, level][state] = count
        rungs[view, level]["nodes"] = rungs[view, level].get("nodes", 0) + count
    upwards = sorted(rungs, key=lambda place: (place[0], place[1] or _ABOVE_ALL))
    return [Rung(view=v, level=n, **rungs[v, n], **estimates.get((v, n), {})) for v, n in upwards]


class _Sketch:
    """A store as it would be with everything worded: what a sheet writes stays here, and the store is only read."""

    def __init__(self, store: StructureStore, keys: Container[str]) -> None:
        self._store, self._keys = store, keys
        self._made: defaultdict[str, dict[NodeId, Wording]] = defaultdict(dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def word(self, wordings: Many[Wording]) -> list[bool]:
        """Remember wordings instead of writing them: the only thing that a sheet writes."""
        for wording in wordings:
            self._made[wording.node.sequence.view][wording.node] = wording
        return [True] * len(wordings)

    async def cached(self, keys: Many[str]) -> list[Paid | None]:
        """Texts as they are in the cache or would be."""
        found = await self._store.cached(keys)
        return [Paid("", ()) if key in self._keys else paid for key, paid in zip(keys, found, strict=True)]

    async def wordings(self, nodes: Many[NodeId]) -> list[Wording | None]:
        """Wordings as they stand or would stand."""
        found = await self._store.wordings(nodes)
        made = (self._made[node.sequence.view].get(node) for node in nodes)
        return [mine or standing for mine, standing in zip(made, found, strict=True)]

    def done_with(self, sequence: Sequence) -> None:
        """Forget what nobody will read: only the nodes above an actor's sequences are made from what these have."""
        if sequence.view != "actor":
            self._made.pop(sequence.view, None)


class _Guess:
    """Stands in for the model: counts what would be asked, and answers with as many words as it usually has."""

    def __init__(self, store: StructureStore, terms: Terms, *, batch: bool) -> None:
        self._store, self._terms = store, terms
        self._numbers: Numbers = replace(terms.numbers, pack=1) if batch else terms.numbers  # a job asks for each alone
        self._share = terms.share if batch else 1.0
        self._asked: dict[tuple[str, int, str], list[Part]] = defaultdict(list)
        self.keys: set[str] = set()
        self._words = "word " * round(TYPICAL * terms.numbers.length)

    async def __call__(self, part: Part, company: str) -> Said:
        (paid,) = await self._store.cached([part.key])
        if paid is not None:
            return Said(paid.text)
        if part.key not in self.keys:
            self.keys.add(part.key)
            self._asked[part.view, part.level, company].append(part)
        return Said(self._words)

    def estimates(self) -> dict[tuple[str, int], dict[str, int]]:
        """Calls, tokens and money by view and level."""
        sums: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for (view, level, _), parts in self._asked.items():
            for group in packing.groups(parts, self._numbers):
                sums[view, level].update(self._call(group))
        return {place: dict(counted) for place, counted in sums.items()}

    def _call(self, parts: Many[Part]) -> dict[str, int]:
        prompt = prompts.prompt(parts, self._terms.numbers.length)
        tokens_in, tokens_out = prompts.cost(prompt), round(TYPICAL * prompt.room)
        return {
            "calls": 1,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "money": spending.money(tokens_in, tokens_out, self._terms.price, self._share),
        }
