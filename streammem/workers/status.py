"""How a memory that runs as a stream is doing: what is behind, what is away, what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from collections.abc import Sequence as Many
from typing import Any

import msgspec

from streammem.core import spending
from streammem.core.topics import READS, TOPICS, group_of
from streammem.errors import SettingsError, StreammemError
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.outlook import standing as standing_of
from streammem.flows.outlook import why_not
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.ports import WORDING
from streammem.records import Beat, Position
from streammem.settings import Settings
from streammem.wiring.language import writer_of
from streammem.wiring.stream import Streaming
from streammem.workers.run import ROLES

LATE = 60.0
"""Seconds behind from which a role counts as unhealthy."""
OPTIONAL = frozenset({"connect"})
"""Roles that are told of only where they run, or should: no raw payloads, no `connect`."""


class RoleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One role over all its processes. `behind` in messages and `seconds`; `rate` in messages a second.

    `fresh` is the time from produce to findable in the last minute: p50, p95 and the longest, in seconds.
    """

    role: str
    processes: int = 0
    behind: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    handled: int = 0
    refused: int = 0
    waiting: str = ""
    fresh: tuple[float, float, float] | None = None


class ModelCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of the language model that words summaries. A pause and a spent budget are told, and are no fault.

    `state`: "no model", "made", or why they are not. `waiting` are sequences in all queues of nodes to be worded. The
    rest is today's budget: what is used of it, and its limits (None: none), money in the currency.
    """

    state: str = "no model"
    waiting: int = 0
    tokens: int = 0
    tokens_limit: int | None = None
    money: float = 0.0
    money_limit: float | None = None
    currency: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. `stores` says "ok" or what is wrong; `problems` are sentences for people, none when healthy.

    `dead_letters` are those that are not done with. They wait for a person and make no memory unhealthy.
    """

    problems: tuple[str, ...]
    roles: tuple[RoleStatus, ...]
    stores: dict[str, str]
    due: int = 0
    dead_letters: int = 0
    model_calls: ModelCalls = ModelCalls()
    position: dict[str, Position] = {}

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


async def standing(parts: Streaming, roles: Many[str] = ROLES) -> Status:
    """Ask every server and add up what the processes say. Never raises for a server that is away: it says so."""
    outcomes = await asyncio.gather(_kafka(parts, roles), _redis(parts), _vectors(parts))
    (topics, kafka), (store, redis), vectors = outcomes
    stores = {"kafka": kafka, "redis": redis, "vectors": vectors}
    beats: list[Beat] = store.get("beats", [])
    lags = topics.get("lags", {})
    every = (role_status(role, lags.get(role, (0, 0.0)), beats) for role in roles)
    by_role = tuple(role for role in every if roles != ROLES or not _idle(role))
    calls: ModelCalls = store.get("calls", ModelCalls(state="unknown"))
    return Status(
        problems=tuple(problems(by_role, stores, topics.get("missing", ()))),
        roles=by_role,
        stores=stores,
        due=store.get("due", 0),
        dead_letters=topics.get("dead_letters", 0),
        model_calls=calls,
        position={"log": topics.get("end", {}), **store.get("applied", {})},
    )


def _idle(role: RoleStatus) -> bool:
    """Whether this is a role that not every memory has, with nothing to do for it."""
    return role.role in OPTIONAL and not role.processes and not role.behind


def role_status(role: str, lag: tuple[int, float], beats: Iterable[Beat]) -> RoleStatus:
    """Add up the signs of life of a role's processes. Of freshness the worst is told."""
    own = [beat for beat in beats if beat.role == role]
    fresh = [beat.fresh for beat in own if beat.fresh is not None]
    return RoleStatus(
        role=role,
        processes=len(own),
        behind=lag[0],
        seconds=round(lag[1], 1),
        rate=round(sum(beat.rate for beat in own), 2),
        handled=sum(beat.handled for beat in own),
        refused=sum(beat.refused for beat in own),
        waiting="; ".join(sorted({beat.waiting for beat in own if beat.waiting})),
        fresh=(max(f[0] for f in fresh), max(f[1] for f in fresh), max(f[2] for f in fresh)) if fresh else None,
    )


def problems(roles: Iterable[RoleStatus], stores: dict[str, str], missing: Iterable[str] = ()) -> list[str]:
    """What is wrong, with the mend."""
    found = [f"{name}: {said}" for name, said in stores.items() if said != "ok"]
    if absent := list(missing):
        found.append(f"topics are missing: {', '.join(absent)}: run `streammem topics create`")
    for role in roles:
        if not role.processes and stores.get("redis") == "ok":
            found.append(f"no process works as {role.role}: start `streammem worker {role.role}`")
        if role.waiting:
            found.append(f"{role.role} waits: {role.waiting}")
        if role.seconds > LATE:
            found.append(f"{role.role} is {role.behind} messages and {role.seconds:.0f} s behind: start more of them")
    return found


async def _kafka(parts: Streaming, roles: Many[str]) -> tuple[dict[str, Any], str]:
    async def asked() -> dict[str, Any]:
        described = {topic.topic.short: topic for topic in await parts.topics.describe(TOPICS)}
        prefix = parts.settings.kafka.prefix
        found: dict[str, Any] = {
            "missing": [topic.name for topic in described.values() if not topic.exists],
            "end": described["log"].end,
        }
        if not found["missing"]:
            found["dead_letters"] = len([name async for name, _ in parts.exchange.letters()])
            groups = {group_of(prefix, role): READS[role] for role in roles if role in READS}
            lags = await parts.topics.lags(groups)
            found["lags"] = {
                role: (
                    sum(lag.behind for lag in lags if lag.group == group_of(prefix, role)),
                    max((lag.seconds for lag in lags if lag.group == group_of(prefix, role)), default=0.0),
                )
                for role in roles
            }
        return found

    return await _told(asked(), {})


async def _redis(parts: Streaming) -> tuple[dict[str, Any], str]:
    async def asked() -> dict[str, Any]:
        await parts.structure.check()
        applied = {name: await parts.structure.applied(name) for name in (STRUCTURED, INDEXED)}
        if any(applied.values()):
            await parts.check()  # an empty memory would be given the card of whoever looks first
        counts = await parts.structure.counts()
        calls = await calls_of(parts, sum(counts[queue] for queue in WORDING))
        return {"beats": await parts.beats.beats(), "due": counts["due"], "calls": calls, "applied": applied}

    return await _told(asked(), {})


async def calls_of(parts: Streaming, waiting: int) -> ModelCalls:
    """Ask the ledger whether calls are made now. `waiting` are the sequences with nodes to be worded."""
    settings = parts.settings
    if settings.openai.model is None:
        return ModelCalls(waiting=waiting)
    try:
        terms = writer_of(settings).terms
    except SettingsError as error:
        return ModelCalls(state=str(error), waiting=waiting)
    state = why_not(await standing_of(parts.ledger, terms)) or "made"
    return model_calls(state, waiting, await parts.ledger.used(), settings)


def model_calls(state: str, waiting: int, used: tuple[int, int], settings: Settings) -> ModelCalls:
    """Put together what is known of model calls; `used` are tokens and billionths."""
    budget = settings.budget
    return ModelCalls(
        state=state,
        waiting=waiting,
        tokens=used[0],
        tokens_limit=budget.tokens,
        money=used[1] / spending.billionths(1),
        money_limit=budget.money,
        currency=budget.currency,
    )


async def _vectors(parts: Streaming) -> str:
    if parts.settings.vectors.url is None:
        return "ok"  # inside the process of `index`: its signs of life speak for it
    return (await _told(parts.ping_vectors(), None))[1]


async def _told(work: Awaitable[Any], otherwise: Any) -> tuple[Any, str]:
    try:
        return await work, "ok"
    except StreammemError as error:
        return otherwise, str(error)
