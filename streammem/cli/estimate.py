"""`streammem summaries estimate`: what wording all that is due takes, before anything is asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from streammem.cli import opening, reaching, rungs, shown
from streammem.cli.opening import DistributedOption, JsonOption, OptionalMemory
from streammem.cli.reaching import BatchOption
from streammem.cli.running import run

if TYPE_CHECKING:
    from streammem.flows.outlook import Outlook
    from streammem.settings import Settings


def estimate(
    memory: OptionalMemory = None,
    distributed: DistributedOption = False,
    batch: BatchOption = False,
    as_json: JsonOption = False,
) -> int:
    """Tell what wording all that is due takes: calls, tokens, money, days. Nothing is asked of the model.

    It is about that much: how long a reply is, and that it passes the check at once, can only be assumed. Shifted nodes
    are counted where they are renewed with the others. Jobs of the Batch API (--batch) ask for each node by itself.
    """
    opening.one_of(memory, distributed, "--distributed")
    settings = opening.settings()
    found = run(reaching.asked(memory, settings, batch=batch))
    (_put_estimate_json if as_json else _put_estimate)(found, settings, batch=batch)
    return 0


def _put_estimate_json(found: Outlook, settings: Settings, *, batch: bool) -> None:
    from streammem.flows.outlook import plan

    rows, planned = rungs.estimates(found), plan(found)
    shown.put_json(
        {
            "model": settings.openai.model,
            "batch": batch,
            "priced": rungs.priced(settings),
            "rows": [rungs.in_currency(row) for row in rows],
            "total": rungs.in_currency(rungs.total(rows)),
            "budget": rungs.budget(found, settings),
            "calls": planned.calls,
            "calls_today": planned.today,
            "days": planned.days,
        }
    )


def _put_estimate(found: Outlook, settings: Settings, *, batch: bool) -> None:
    from streammem.flows.outlook import plan, why_not

    rows, planned = rungs.estimates(found), plan(found)
    if not rows:
        sys.stdout.write("Nothing is due: no call is needed.\n")
        return
    rungs.put_table(rows, settings)
    cost = rungs.money(planned.money, settings.budget.currency) if rungs.priced(settings) else rungs.no_price(settings)
    told = {
        "calls": f"about {planned.calls:,}{', in jobs' if batch else ''}",
        "tokens": f"about {planned.tokens_in:,} in and {planned.tokens_out:,} out (replies are estimated)",
        "cost": f"about {cost}" if rungs.priced(settings) else cost,
        "today's budget": rungs.used(found, settings),
        "takes": rungs.days(planned),
    }
    if why := why_not(found.standing):
        told["now"] = why
    shown.put_counts("To finish", told)
