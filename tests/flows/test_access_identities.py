"""Promise 6 among people with several ids, guests, channels that change their id, and messages that are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.core.directory import Directory
from streammem.core.events import channel_of, micros, uid
from streammem.core.numbers import Retrieval
from streammem.flows import forgetting
from streammem.flows.forgetting import Forgotten
from streammem.records import (
    ChannelEvent,
    ChannelRef,
    ErasureEvent,
    Event,
    MembershipEvent,
    MessageEvent,
    TieEvent,
    UserEvent,
)
from tests.flows.scripts import (
    ASKERS,
    BEGIN,
    CHANNELS,
    NARROW,
    QUESTIONS,
    USERS,
    comparable,
    member,
    scripts,
    staged,
    turned,
)
from tests.flows.worlds import World
from tests.stories import at, private, public, said

_changes = st.one_of(
    st.tuples(st.just("tie"), st.sampled_from(USERS), st.sampled_from(USERS), st.booleans()),
    st.tuples(st.just("guest"), st.sampled_from(USERS), st.booleans()),
    st.tuples(st.just("move"), st.sampled_from(CHANNELS), st.sampled_from(("public", "private", ""))),
    st.tuples(st.just("leave"), st.sampled_from("pq"), st.sampled_from(USERS)),
    st.tuples(st.just("forget"), st.integers(0, 20)),
)
changes = st.lists(st.tuples(st.integers(0, 30), _changes), max_size=6)
"""Changes of who is who, and after how many stages of the script each comes."""


def moved(channel: str) -> str:
    """The id that a channel has after a move."""
    return f"{channel}2"


def told(script: list[Any], later: list[tuple[int, Any]]) -> list[list[Event]]:
    """The events of a script with changes of identity in between; from a move on, things happen under the new id."""
    events: list[Event] = [e for stage in staged(script) for e in stage]
    stages: list[list[Event]] = [events[: len(BEGIN)]]
    renamed: set[str] = set()
    said_so_far: list[str] = []
    now = 1
    for place, event in enumerate([*events[len(BEGIN) :], *BEGIN[:1]]):
        for number, (_, (step, *details)) in enumerate(one for one in later if one[0] == place):
            stages.append(_change(step, details, f"{now}.{500 + number}", renamed, said_so_far))
        now = max(now, int(event.id if isinstance(event, MessageEvent) and event.op == "upsert" else 1))
        current = _under_new_ids(event, renamed)
        if isinstance(current, MessageEvent):
            said_so_far.append(uid("w", current.channel.id, current.id))
        stages[-1].append(current)
    return stages


def _change(step: str, details: Any, version: str, renamed: set[str], known: list[str]) -> list[Event]:
    if step == "tie":
        one, other, present = details
        return [TieEvent(workspace="w", entity="user", id=one, same_as=other, version=version, present=present)]
    if step == "guest":
        user, outside = details
        kind = "external" if outside else "user"
        return [UserEvent(workspace="w", id=user, name=user.title(), kind=kind, version=version)]  # type: ignore[arg-type]
    if step == "leave":
        left = member(details[0], details[1], 1, present=False)
        return [_under_new_ids(msgspec.structs.replace(left, version=version), renamed)]
    if step == "move":
        channel, kind = details
        renamed.add(channel)
        stated = [msgspec.structs.replace(turned(moved(channel), kind, 1), version=version)] if kind else []
        return [TieEvent(workspace="w", entity="channel", id=moved(channel), same_as=channel, version=version), *stated]
    if not known:
        return []
    channel, _, id_ = known[details[0] % len(known)].partition("/")[2].partition("/")
    base = channel[0]
    return [ErasureEvent(workspace="w", entity="message", channel=c, id=id_) for c in (base, moved(base))]


def _under_new_ids(event: Event, renamed: set[str]) -> Event:
    if isinstance(event, ChannelEvent) and event.id in renamed:
        return msgspec.structs.replace(event, id=moved(event.id))
    if isinstance(event, MembershipEvent) and event.channel in renamed:
        return msgspec.structs.replace(event, channel=moved(event.channel))
    if isinstance(event, MessageEvent) and event.channel.id in renamed:
        return msgspec.structs.replace(event, channel=ChannelRef(id=moved(event.channel.id)))
    return event


def readable(stages: list[list[Event]], asker: str | None) -> frozenset[str]:
    """The channels, by their first ids, that an asker may read in the end, by the events alone."""
    events = [e for stage in stages for e in stage]
    kinds = {
        e.id: (float(e.version), e.type)
        for e in sorted((e for e in events if isinstance(e, ChannelEvent)), key=lambda e: float(e.version))
    }
    used = {e.same_as: e.id for e in events if isinstance(e, TieEvent) and e.entity == "channel"}
    ties = {
        (e.id, e.same_as): e.present
        for e in sorted(
            (e for e in events if isinstance(e, TieEvent) and e.entity == "user"),
            key=lambda e: (float(e.version), not e.present),
        )
    }
    ids = {asker}
    for _ in USERS:
        ids |= {b for (a, b), present in ties.items() if present and a in ids}
        ids |= {a for (a, b), present in ties.items() if present and b in ids}
    outside = {
        e.id: e.kind for e in sorted((e for e in events if isinstance(e, UserEvent)), key=lambda e: float(e.version))
    }
    guest = asker is not None and all(outside[one] == "external" for one in ids if one)
    members = {
        (e.channel[0], e.user): e.present
        for e in sorted(
            (e for e in events if isinstance(e, MembershipEvent)), key=lambda e: (float(e.version), not e.present)
        )
    }
    return frozenset(
        c
        for c in CHANNELS
        if any(members.get((c, one or "")) for one in ids)
        or (not guest and kinds.get(used.get(c, c), (0, ""))[1] == "public")
    )


def without_the_rest(stages: list[list[Event]], channels: frozenset[str]) -> list[list[Event]]:
    return [[e for e in s if not isinstance(e, MessageEvent) or e.channel.id[0] in channels] for s in stages]


async def built(stages: list[list[Event]], k: int, numbers: Retrieval | None) -> World:
    world = World(k=k, numbers=numbers)
    for stage in stages:
        erased = [e for e in stage if isinstance(e, ErasureEvent)]
        if erased:
            wanted = Forgotten("w", tuple(uid("w", e.channel, e.id) for e in erased), ())
            await forgetting.forget(wanted, world.log, world.log, world.store)
        await world.tell([e for e in stage if not isinstance(e, ErasureEvent)])
    return world


async def interference(stages: list[list[Event]], k: int, numbers: Retrieval | None, **query: Any) -> None:
    whole = await built(stages, k, numbers)
    gone = {uid("w", e.channel, e.id) for stage in stages for e in stage if isinstance(e, ErasureEvent)}
    parts: dict[frozenset[str], World] = {}
    for asker in ASKERS:
        channels = readable(stages, asker)
        if channels not in parts:
            parts[channels] = await built(without_the_rest(stages, channels), k, numbers)
        for question in QUESTIONS:
            answer = await whole.ask(question, asker=asker, **query)
            assert {channel_of(e.uid)[0] for e in answer.evidence} <= channels
            assert gone.isdisjoint(e.uid for e in answer.evidence)
            assert comparable(answer) == comparable(await parts[channels].ask(question, asker=asker, **query))


@settings(deadline=None, max_examples=30)
@given(scripts, changes, st.sampled_from((2, 3, 16)), st.sampled_from((None, NARROW)), st.none() | st.integers(10, 40))
def test_ties_guests_moves_and_erasures_show_nobody_more_than_they_may_read(
    script: list[Any], later: list[Any], k: int, numbers: Retrieval | None, minute: int | None
) -> None:
    as_of = None if minute is None else micros(at(minute))
    asyncio.run(interference(told(script, later), k, numbers, as_of=as_of))


async def test_who_left_a_channel_under_its_new_id_reads_it_no_more() -> None:
    world = World()
    tie = TieEvent(workspace="w", entity="channel", id="p2", same_as="p", version="5")
    old = [*private("p", "ana", "bo"), said("1", "DOC-1 in secret", channel="p", user="bo")]
    new = [*private("p2", "bo", version="5"), tie, said("2", "DOC-1 again", channel="p2", user="bo")]
    await world.tell([public(), *old, *new, said("3", "hello")])
    assert len((await world.ask("DOC-1", asker="ana")).evidence) == 3
    await world.tell([member("p2", "ana", 6, present=False)])
    assert [e.text for e in (await world.ask("DOC-1", asker="ana")).evidence] == ["hello"]
    assert len((await world.ask("DOC-1", asker="bo")).evidence) == 3


@pytest.mark.parametrize("turned_round", [False, True])
def test_to_be_out_of_a_channel_wins_a_tie_between_its_ids(turned_round: bool) -> None:
    tie = TieEvent(workspace="w", entity="channel", id="p2", same_as="p", version="5")
    facts: list[Any] = [tie, member("p", "ana", 3), member("p2", "ana", 3, present=False)]
    directory = Directory(facts[::-1] if turned_round else facts)
    assert not directory.visible("p", "ana")
    assert not directory.visible("p2", "ana")
