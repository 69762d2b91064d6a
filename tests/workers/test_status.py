"""What `status` says, as a function of what the servers and the signs of life said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.records import Beat, Limits
from streammem.settings import BudgetSettings, Settings, load
from streammem.wiring.stream import ledger, open_streaming
from streammem.workers.run import ROLES
from streammem.workers.status import LATE, ModelCalls, RoleStatus, Status, calls_of, model_calls, problems, role_status

WELL = {"kafka": "ok", "redis": "ok", "vectors": "ok"}


def beat(role: str = "index", process: str = "a:1", **rest: Any) -> Beat:
    return Beat(role=role, process=process, at=10.0, started=1.0, **rest)


def running(**rest: Any) -> list[RoleStatus]:
    return [RoleStatus(role=role, processes=1, **rest) for role in ROLES]


def test_the_processes_of_a_role_are_added_up_and_those_of_others_are_not() -> None:
    beats = [
        beat(handled=3, refused=1, rate=0.5, fresh=(0.1, 0.2, 0.9)),
        beat(process="b:2", handled=4, rate=1.25, fresh=(0.3, 0.4, 0.5)),
        beat(process="c:3"),
        beat("query", handled=1000),
    ]
    found = role_status("index", (7, 1.26), beats)
    assert found == RoleStatus(
        role="index", processes=3, behind=7, seconds=1.3, rate=1.75, handled=7, refused=1, fresh=(0.3, 0.4, 0.9)
    )


def test_a_role_of_which_nobody_says_anything_has_no_process() -> None:
    assert role_status("index", (0, 0.0), [beat("query")]) == RoleStatus(role="index")


def test_what_is_waited_for_is_told_once() -> None:
    beats = [beat(process=str(n), waiting=reason) for n, reason in enumerate(["Redis", "", "Kafka", "Redis"])]
    assert role_status("index", (0, 0.0), beats).waiting == "Kafka; Redis"


def test_nothing_is_wrong_when_all_is_well() -> None:
    assert problems(running(), WELL) == []


def test_a_role_without_a_process_is_a_problem_with_its_mend() -> None:
    absent = RoleStatus(role="structure")
    assert problems([absent, *running()], WELL) == ["no process works as structure: start `streammem worker structure`"]


def test_while_redis_is_away_nobody_is_said_to_be_missing() -> None:
    found = problems([RoleStatus(role=role) for role in ROLES], {**WELL, "redis": "cannot reach Redis at h:1"})
    assert found == ["redis: cannot reach Redis at h:1"]


@pytest.mark.parametrize("store", WELL)
def test_a_store_that_is_away_is_a_problem_with_what_it_said(store: str) -> None:
    assert problems(running(), {**WELL, store: "is away"}) == [f"{store}: is away"]


def test_missing_topics_are_a_problem_with_their_mend() -> None:
    assert problems(running(), WELL, ["a", "b"]) == ["topics are missing: a, b: run `streammem topics create`"]


def test_a_role_that_waits_or_is_late_is_a_problem() -> None:
    waits = RoleStatus(role="index", processes=1, waiting="Qdrant is away")
    late = RoleStatus(role="ingest", processes=1, behind=9000, seconds=LATE + 1)
    in_time = RoleStatus(role="structure", processes=1, behind=9000, seconds=LATE)
    found = problems([waits, late, in_time], WELL)
    assert found == ["index waits: Qdrant is away", "ingest is 9000 messages and 61 s behind: start more of them"]


beats = st.builds(
    beat,
    role=st.sampled_from(ROLES),
    process=st.text(max_size=3),
    handled=st.integers(0, 99),
    waiting=st.sampled_from(("", "Redis")),
    fresh=st.none() | st.tuples(*[st.floats(0, 9)] * 3),
)


@given(st.lists(beats, max_size=8))
def test_every_beat_is_counted_in_exactly_one_role(said: list[Beat]) -> None:
    found = [role_status(role, (0, 0.0), said) for role in ROLES]
    assert sum(role.processes for role in found) == len(said)
    assert sum(role.handled for role in found) == sum(each.handled for each in said)
    assert all((role.fresh is None) == all(b.fresh is None for b in said if b.role == role.role) for role in found)


def test_healthy_is_that_there_is_no_problem() -> None:
    assert Status(problems=(), roles=(), stores=WELL).healthy
    assert not Status(problems=("x",), roles=(), stores=WELL).healthy


def test_what_is_used_of_the_budget_is_told_in_the_currency() -> None:
    settings = Settings(budget=BudgetSettings(tokens=None, money=2.5, currency="EUR"))
    found = model_calls("made", 7, (1200, 1_250_000_000), settings)
    assert found == ModelCalls(
        state="made", waiting=7, tokens=1200, money=1.25, tokens_limit=None, money_limit=2.5, currency="EUR"
    )


@pytest.mark.parametrize("state", ["model calls are paused (audit): run `streammem summaries resume`", "no model"])
def test_calls_that_somebody_or_the_budget_keeps_back_make_no_memory_unhealthy(state: str) -> None:
    status = Status(
        problems=tuple(problems(running(), WELL)), roles=(), stores=WELL, model_calls=ModelCalls(state=state)
    )
    assert status.healthy


def test_a_model_server_that_stays_away_does() -> None:
    waits = RoleStatus(role="summarize", processes=1, waiting="http://h:1 is away (ConnectError)")
    assert problems([waits], WELL) == ["summarize waits: http://h:1 is away (ConnectError)"]


async def _calls_of(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> ModelCalls:
    for name, value in {"REDIS__URL": redis_url, "REDIS__PREFIX": prefix, **more}.items():
        monkeypatch.setenv(f"STREAMMEM_{name}", value)
    async with open_streaming(load()) as parts:
        return await calls_of(parts, 3)


def test_status_tells_whether_calls_are_made_and_why_not(
    redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> list[ModelCalls]:
        found = [await _calls_of(redis_url, redis_prefix, monkeypatch)]
        model = {"OPENAI__MODEL": "m", "OPENAI__KEY": "k", "BUDGET__TOKENS": "9000"}
        found.append(await _calls_of(redis_url, redis_prefix, monkeypatch, **model))
        shared = ledger(load())
        await shared.take(Limits(), 8_900, 0)
        found.append(await _calls_of(redis_url, redis_prefix, monkeypatch))
        await shared.pause("audit")
        found.append(await _calls_of(redis_url, redis_prefix, monkeypatch))
        await shared.close()
        found.append(await _calls_of(redis_url, redis_prefix, monkeypatch, BUDGET__MONEY="1"))
        return found

    unset, made, spent, paused, unpriced = asyncio.run(work())
    assert (unset.state, unset.waiting) == ("no model", 3)
    assert (made.state, made.tokens, made.tokens_limit, made.waiting) == ("made", 0, 9000, 3)
    assert "budget of model calls is spent" in spent.state  # what is left is less than the smallest call takes
    assert spent.tokens == 8_900
    assert paused.state == "model calls are paused (audit): run `streammem summaries resume`"
    assert "STREAMMEM_BUDGET__PRICES" in unpriced.state
