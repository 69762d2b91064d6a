"""`streammem status`: how a memory that runs as a stream is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import opening, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import JsonOption
from streammem.cli.running import run
from streammem.core import positions

if TYPE_CHECKING:
    from streammem.settings import Settings
    from streammem.workers.status import ModelCalls, RoleStatus, Status


def status(
    roles: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only this role. May be given more than once.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Show each role's processes, lag and rates, how fresh the memory is, and what is wrong.

    Ends with status 1 when something is.

    `findable` is the time from a message's arrival in Kafka until it could be found, over the last minute. Dead letters
    are counted as `dead-letters list` shows them, without those that are done with; they do not make a memory
    unhealthy. Nor does a pause of model calls, or a day's budget that is spent; a model server that stays away does.
    `receive` gives no sign of life: its GET /health speaks for it.
    """
    import msgspec

    found = run(_status(opening.settings(), roles or []))
    if as_json:
        shown.put_json({"healthy": found.healthy, **msgspec.to_builtins(found)})
    else:
        _put(found)
    return 0 if found.healthy else FAILED


def _put(found: Status) -> None:
    for role in found.roles:
        shown.put_counts(role.role, _role(role))
    kept = {
        **found.stores,
        "due sequences": found.due,
        "dead letters": found.dead_letters,
        **{f"{name} at": positions.written(place) or "the start" for name, place in found.position.items()},
    }
    shown.put_counts("stores", kept)
    shown.put_counts("language model", _calls(found.model_calls))
    numbered = {str(number): said for number, said in enumerate(found.problems, 1)}
    shown.put_counts("healthy" if found.healthy else "not healthy", numbered)


def _role(role: RoleStatus) -> dict[str, str | int]:
    told: dict[str, str | int] = {
        "processes": role.processes,
        "behind": f"{role.behind:,} messages, {role.seconds:.1f} s",
        "rate": f"{role.rate:,.1f} a second",
        "handled": role.handled,
        "refused": role.refused,
    }
    if role.fresh is not None:
        told["findable"] = "p50 {:.2f} s, p95 {:.2f} s, longest {:.2f} s".format(*role.fresh)
    if role.waiting:
        told["waits for"] = role.waiting
    return told


def _calls(calls: ModelCalls) -> dict[str, str | int]:
    if calls.state == "no model":
        return {"calls": "no model is set: summaries quote messages"}
    limit = f" of {calls.tokens_limit:,}" if calls.tokens_limit is not None else ""
    most = f" of {calls.money_limit:g}" if calls.money_limit is not None else ""
    money = f"; {calls.money:,.4f}{most} {calls.currency}" if most or calls.money else ""
    return {
        "calls": calls.state,
        "sequences waiting": calls.waiting,
        "used today": f"{calls.tokens:,}{limit} tokens{money}",
    }


async def _status(settings: Settings, roles: list[str]) -> Status:
    from streammem.wiring.stream import open_streaming
    from streammem.workers.run import RECEIVE, ROLES
    from streammem.workers.status import standing

    if RECEIVE in roles:
        raise typer.BadParameter("`receive` gives no sign of life: ask its GET /health, which speaks for it")
    if unknown := [role for role in roles if role not in ROLES]:
        raise typer.BadParameter(f"there is no role {unknown[0]!r}: it can be {', '.join(ROLES)}")
    async with open_streaming(settings) as parts:
        return await standing(parts, roles or ROLES)
