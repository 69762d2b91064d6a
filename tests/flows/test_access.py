"""Promise 6: nothing in an answer comes from a message that its asker may not read.

The strongest form is non-interference: the answer is the one that a memory would give that was never told those
messages at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streammem import open_memory
from streammem.core.directory import Directory
from streammem.core.numbers import Forest, Retrieval
from streammem.errors import QueryError
from streammem.flows import answer as flow
from streammem.flows import sight
from streammem.ports import NodeSearch
from streammem.records import Answer, ChannelEvent, Event, MembershipEvent, MessageEvent, UserEvent, Version
from streammem.settings import Settings
from tests.embedding import HashingEmbedder
from tests.flows.worlds import World
from tests.stories import deleted, edited, private, public, said

ASKERS = (None, "ana", "bo", "cy")
USERS = ("ana", "bo", "cy")
CHANNELS = ("c", "d", "p", "q")
TEXTS = (
    "DOC-1 is drafted",
    "DOC-1 approved, see PR-2",
    "PR-2 merged for DOC-1",
    "PR-2 is blocked on DOC-1",
    "lunch at noon",
    "the launch is on friday",
    "the launch slipped, DOC-1 was sent back",
)
QUESTIONS = (
    "who approved DOC-1?",
    "what happened between Ana and DOC-1 after PR-2 was merged?",
    "when is the launch that Bo and Cy spoke of in #p-room?",
)

# --------------------------------------------------------------------------------------------- small worlds

people = [UserEvent(workspace="w", id=u, version="1", name=u.title()) for u in USERS]


def turned(channel: str, kind: str, version: int) -> ChannelEvent:
    return ChannelEvent(workspace="w", id=channel, name=f"{channel}-room", type=kind, version=str(version))  # type: ignore[arg-type]


def member(channel: str, user: str, version: int, *, present: bool = True) -> MembershipEvent:
    return MembershipEvent(workspace="w", channel=channel, user=user, version=str(version), present=present)


BEGIN: list[Event] = [
    *people,
    *(turned(c, "public", 1) for c in "cd"),
    *(turned(c, "private", 1) for c in "pq"),
    *(member("p", u, 1) for u in ("bo", "cy")),
    member("q", "cy", 1),
]

_said = st.tuples(
    st.just("say"),
    st.sampled_from("ccdppq"),
    st.sampled_from(USERS),
    st.sampled_from(TEXTS),
    st.sampled_from((None, None, 1, 2)),  # answers the one so many before
    st.sampled_from((None, None, *USERS)),
    st.integers(0, 4),  # minutes late
)
_more = st.one_of(
    st.tuples(st.just("edit"), st.integers(0, 20), st.sampled_from(TEXTS)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("turn"), st.sampled_from(CHANNELS), st.sampled_from(("public", "private", "unknown"))),
    st.tuples(st.just("member"), st.sampled_from(CHANNELS), st.sampled_from(USERS), st.booleans()),
    st.just(("settle",)),
)
scripts = st.lists(st.integers(0, 3).flatmap(lambda n: _said if n else _more), max_size=30)
"""What happens in a small workspace, in order. Most of it is messages; with `settle` between, summaries get old."""


def staged(script: list[Any]) -> list[list[Event]]:
    """The events of a script, in the pieces in which the memory settles."""
    stages: list[list[Event]] = [[*BEGIN]]
    told: list[MessageEvent] = []
    for minute, (step, *details) in enumerate(script, 10):
        if step == "settle":
            stages.append([])
        elif step == "turn":
            stages[-1].append(turned(details[0], details[1], minute))
        elif step == "member":
            stages[-1].append(member(details[0], details[1], minute, present=details[2]))
        elif step == "say":
            told.append(_saying(minute, told, *details))
            stages[-1].append(told[-1])
        elif told and step == "edit":
            stages[-1].append(edited(told[details[0] % len(told)], details[1], minute))
        elif told:
            stages[-1].append(deleted(told[details[0] % len(told)], minute))
    return stages


def _saying(
    minute: int, told: list[MessageEvent], channel: str, user: str, text: str, back: int | None, named: str | None,
    late: int,
) -> MessageEvent:  # fmt: skip
    here = [m for m in told if m.channel.id == channel]
    target = here[-back].id if back and back <= len(here) else None
    mentions = (named,) if named else ()
    return said(
        str(minute), f"{text} {minute}", user=user, channel=channel, reply_to=target, mentions=mentions,
        minute=minute - 1.5 * late,
    )  # fmt: skip


def readable(stages: list[list[Event]], asker: str | None) -> frozenset[str]:
    """The channels that an asker may read in the end, by the events alone."""
    kinds, members = dict.fromkeys(CHANNELS, ""), set()
    for event in (e for stage in stages for e in stage):
        if isinstance(event, ChannelEvent):
            kinds[event.id] = event.type
        elif isinstance(event, MembershipEvent) and event.present:
            members.add((event.channel, event.user))
        elif isinstance(event, MembershipEvent):
            members.discard((event.channel, event.user))
    return frozenset(c for c in CHANNELS if kinds[c] == "public" or (c, asker) in members)


def without_the_rest(stages: list[list[Event]], channels: frozenset[str]) -> list[list[Event]]:
    return [[e for e in stage if not isinstance(e, MessageEvent) or e.channel.id in channels] for stage in stages]


async def built(stages: list[list[Event]], k: int, numbers: Retrieval | None = None) -> World:
    world = World(k=k, numbers=numbers)
    for stage in stages:
        await world.tell(stage)
    return world


def comparable(answer: Answer) -> Answer:
    """All that an answer shows but how long it took, and how many channels were hidden."""
    return msgspec.structs.replace(answer, timings_ms={}, hidden_channels=0, position={})


async def interference(script: list[Any], k: int, numbers: Retrieval | None = None, **query: Any) -> None:
    """Compare every asker's answers with those of a memory that was never told what they may not read."""
    stages = staged(script)
    whole = await built(stages, k, numbers)
    parts: dict[frozenset[str], World] = {}
    for asker in ASKERS:
        channels = readable(stages, asker)
        if channels not in parts:
            parts[channels] = await built(without_the_rest(stages, channels), k, numbers)
        for question in QUESTIONS:
            answer = await whole.ask(question, asker=asker, **query)
            assert {e.channel for e in answer.evidence} <= channels
            assert comparable(answer) == comparable(await parts[channels].ask(question, asker=asker, **query))


NARROW = Retrieval(seeds=4, context_anchors=3, window=1, join_floor=0.0, anchors=3, expansion=4, paths=2, limit=7)
"""Small numbers make every cut-off bite: what is hidden must not take up a place anywhere."""


@settings(deadline=None, max_examples=40)
@given(scripts, st.sampled_from((2, 3, 16)), st.sampled_from((None, NARROW)))
def test_an_answer_is_the_same_as_if_hidden_messages_had_never_been_said(
    script: list[Any], k: int, numbers: Retrieval | None
) -> None:
    asyncio.run(interference(script, k, numbers))
