"""What people and programs see of the summaries by a language model: tables by view and level, budget, what is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Many
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammem.cli import shown

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook, Plan
    from streammem.settings import Settings

STATES = ("nodes", "quoted", "worded", "due", "later", "shifted", "failed")
ESTIMATE = ("due", "shifted", "calls", "tokens_in", "tokens_out", "money")
TITLES = {
    "quoted": "whole",
    "in_flight": "in flight",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "tokens_today": "tokens today",
    "tokens_30_days": "in 30 days",
    "money": "cost",
    "money_today": "cost today",
    "money_30_days": "in 30 days",
}
"""What people read over the columns whose names are others."""

WIDE = 400
"""Figures are better wrapped by the terminal than cut."""

FAULTS = 5
"""Reasons that are told."""

Row = dict[str, Any]


def place(memory: Path | None) -> str:
    """How the memory is named on the command line."""
    return f"--memory {memory}" if memory is not None else "--distributed"


def told_here(line: str, memory: Path | None) -> str:
    """A line about model calls whose command says which memory is meant."""
    return line.replace("`streammem summaries resume`", f"`streammem summaries resume {place(memory)}`")


# --------------------------------------------------------------------------------------------------------- numbers


def rows(found: Outlook, today: str) -> list[Row]:
    """By view and level: nodes, what is in flight, tokens and money (billionths) of today (2026-11-30) and of 30 days.

    What calls were made for may be there no more.
    """
    flying = Counter((claim.view, claim.level) for claim in found.in_flight)
    by_days = {"_today": _spent(found, today), "_30_days": _spent(found, None)}
    known = {(rung.view, rung.level): rung for rung in found.rungs}
    others = {*flying, *by_days["_30_days"]} - known.keys()
    return [
        {
            "view": view,
            "level": level,
            **{name: getattr(known.get((view, level)), name, 0) for name in STATES},
            "in_flight": flying[view, level],
            **{f"tokens{days}": spent.get((view, level), (0, 0))[0] for days, spent in by_days.items()},
            **{f"money{days}": spent.get((view, level), (0, 0))[1] for days, spent in by_days.items()},
        }
        for view, level in [*known, *sorted(others)]
    ]


def _spent(found: Outlook, day: str | None) -> dict[tuple[str, int], tuple[int, int]]:
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for one in found.spent:
        if day in (None, one.day):
            tokens, money = sums.get((one.view, one.level), (0, 0))
            sums[one.view, one.level] = (tokens + one.tokens_in + one.tokens_out, money + one.money)
    return sums


def estimates(found: Outlook) -> list[Row]:
    """By view and level: what wording those that are due takes."""
    return [
        {"view": rung.view, "level": rung.level, **{name: getattr(rung, name) for name in ESTIMATE}}
        for rung in found.rungs
        if rung.due or rung.calls
    ]


def total(rows_: Many[Row]) -> Row:
    """The sums of all columns but view and level."""
    names = [name for name in (rows_[0] if rows_ else {}) if name not in ("view", "level")]
    return {name: sum(row[name] for row in rows_) for name in names}


def amount(billionths: int) -> float:
    """Money in the currency."""
    return round(billionths / 1_000_000_000, 9)


def in_currency(row: Row) -> Row:
    """The same row for programs."""
    return {name: amount(value) if name.startswith("money") else value for name, value in row.items()}


def budget(found: Outlook, settings: Settings) -> Row:
    """What is used of today's budget. A limit of null is none."""
    return {
        "tokens": {"used": found.used[0], "limit": found.limits.day_tokens},
        "money": {"used": amount(found.used[1]), "limit": settings.budget.money},
        "currency": settings.budget.currency,
    }


# ------------------------------------------------------------------------------------------------------- for people


def money(billionths: int, currency: str) -> str:
    """An amount for people."""
    value = amount(billionths)
    return f"{value:,.2f} {currency}" if value >= 1 or not value else f"{value:.4f} {currency}"


def priced(settings: Settings) -> bool:
    """Whether it is known what the model costs."""
    return settings.openai.model in settings.budget.prices


def no_price(settings: Settings) -> str:
    """How to set a price."""
    example = f"""STREAMMEM_BUDGET__PRICES='{{"{settings.openai.model}": [0.15, 0.6]}}'"""
    return f"not known, for no price is set: {example} (a million tokens in, out)"


def put_table(rows_: Many[Row], settings: Settings) -> None:
    """Print rows and their sums; columns of money only where there is any."""
    from rich.table import Table
    from rich.text import Text

    sums = total(rows_)
    names = [n for n in sums if not n.startswith("money") or priced(settings) or sums[n]]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("view", "level", *(TITLES.get(name, name) for name in names)):
        table.add_column(Text(title), justify="left" if title == "view" else "right", no_wrap=True)
    for row in [*rows_, {"view": "all", "level": "", **sums}]:
        cells = [row["view"], _level(row["level"]), *(_cell(name, row[name]) for name in names)]
        table.add_row(*map(Text, cells))
    shown.console(width=WIDE).print(table)


def put_faults(faults: Mapping[str, int]) -> None:
    """Print why the model failed, and at how many nodes: the most frequent reasons."""
    from rich.text import Text

    if not faults:
        return
    first = sorted(faults.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [(many(count, "node"), fault) for fault, count in first[:FAULTS]]
    if rest := first[FAULTS:]:
        lines.append((many(sum(count for _, count in rest), "node"), f"for {many(len(rest), 'other reason')}"))
    width = max(len(nodes) for nodes, _ in lines)
    out = shown.console()
    out.print(Text("The model failed at", style="bold"), soft_wrap=True)
    for nodes, fault in lines:
        out.print(Text(f"  {nodes:>{width}}  {shown.line(fault)}"), soft_wrap=True)


def _level(level: int | str) -> str:
    return "top" if level == 0 else str(level)


def _cell(name: str, value: int) -> str:
    if name.startswith("money"):
        return money(value, "").strip() if value else "-"
    return f"{value:,}" if value else "-"


def used(found: Outlook, settings: Settings) -> str:
    """What is used of today's budget."""
    tokens, spent = found.used
    limit, most = found.limits.day_tokens, settings.budget.money
    told = f"{tokens:,} of {limit:,} tokens" if limit is not None else f"{tokens:,} tokens, no limit"
    currency = settings.budget.currency
    if most is not None:
        return f"{told}; {amount(spent):,.4f} of {most:g} {currency}"
    return f"{told}; {money(spent, currency)}" if priced(settings) else told


def days(plan: Plan) -> str:
    """How the budget divides what there is to do."""
    if not plan.calls:
        return "no call is needed"
    if plan.days is None:
        return "a day's budget does not allow a single call: raise it"
    if plan.days == 1:
        return "today's budget allows all of it"
    return f"today's allows {many(plan.today, 'call')}; all of it takes {plan.days:,} days"


def many(count: int, what: str) -> str:
    """A count with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
