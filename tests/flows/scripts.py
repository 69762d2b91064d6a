"""What happens in a small workspace, as Hypothesis tells it: channels that open and close, edits, late messages."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from streammem.core.numbers import Retrieval
from streammem.records import Answer, ChannelEvent, Event, MembershipEvent, MessageEvent, UserEvent
from tests.flows.grouped import GroupedWorld
from tests.stories import deleted, edited, said

GUEST = "eve"
ASKERS = (None, "ana", "bo", "cy", GUEST)
USERS = ("ana", "bo", "cy")
SPEAKERS = (*USERS, "lee-1", "lee-2")
"""Whom `Lee` means depends on what they have to do with whoever asks."""
CHANNELS = ("c", "d", "p", "q")
TEXTS = (
    "DOC-1 is drafted",
    "DOC-1 approved, see PR-2",
    "PR-2 merged for DOC-1",
    "PR-2 is blocked on DOC-1",
    "lunch at noon",
    "the launch is on friday",
    "the launch slipped, DOC-1 was sent back",
    "PR-2 implements DOC-1",
    "DOC-1 - harbour crane rollout plan, drafted",
    "read the harbour crane rollout plan: it waits for Ana",
    "Bo hands the conveyor belt over to Cy",
    "the conveyor belt hums in hall nine",
    "hands off the conveyor",
    "thanks!",
    "shall we ship it?",
)
QUESTIONS = (
    "who approved DOC-1?",
    "what did Bo hand over to Cy, and is the harbour crane rollout plan done?",
    "what happened between Ana and DOC-1 after PR-2 was merged?",
    "when is the launch that Bo and Cy spoke of in #p-room?",
    "what did Lee say of pr 2?",
)

people = [UserEvent(workspace="w", id=u, version="1", name=u.title()) for u in USERS]
namesakes = [
    UserEvent(workspace="w", id=u, version="1", name=f"Lee {n}")
    for u, n in zip(SPEAKERS[3:], ("Stone", "Reed"), strict=True)
]
guest = UserEvent(workspace="w", id=GUEST, version="1", name=GUEST.title(), kind="external")
"""Somebody from elsewhere, who reads no channel but those it is in."""


def turned(channel: str, kind: str, version: int) -> ChannelEvent:
    return ChannelEvent(workspace="w", id=channel, name=f"{channel}-room", type=kind, version=str(version))  # type: ignore[arg-type]


def member(channel: str, user: str, version: int, *, present: bool = True) -> MembershipEvent:
    return MembershipEvent(workspace="w", channel=channel, user=user, version=str(version), present=present)


BEGIN: list[Event] = [
    *people,
    *namesakes,
    guest,
    member("d", GUEST, 1),
    *(turned(c, "public", 1) for c in "cd"),
    *(turned(c, "private", 1) for c in "pq"),
    *(member("p", u, 1) for u in ("bo", "cy")),
    member("q", "cy", 1),
]

_said = st.tuples(
    st.just("say"),
    st.sampled_from("ccdppq"),
    st.sampled_from(SPEAKERS),
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
            told.append(_saying(minute, told, details))
            stages[-1].append(told[-1])
        elif told and step == "edit":
            stages[-1].append(edited(told[details[0] % len(told)], f"{details[1]} edited {minute}", minute))
        elif told:
            stages[-1].append(deleted(told[details[0] % len(told)], minute))
    return stages


def _saying(minute: int, told: list[MessageEvent], details: Any) -> MessageEvent:
    channel, user, text, back, named, late = details
    here = [m for m in told if m.channel.id == channel]
    target = here[-back].id if back and back <= len(here) else None
    mentions = (named,) if named else ()
    when = minute - 1.5 * late
    return said(
        str(minute), f"{text} {minute}", user=user, channel=channel, reply_to=target, mentions=mentions, minute=when
    )


NARROW = Retrieval(
    seeds=4,
    context_anchors=3,
    voters=2,
    pool_cap=2,
    window=1,
    anchors=3,
    expansion=4,
    paths=2,
    limit=7,
    about_anchors=3,
    artifacts=2,
    joins=1,
    bridge_anchors=3,
    bridge_floor=0.0,
)
"""Small numbers make every cut-off bite: what is hidden must not take up a place anywhere."""


async def built(stages: list[list[Event]], k: int, numbers: Retrieval | None = None) -> GroupedWorld:
    world = GroupedWorld(k=k, numbers=numbers)
    for stage in stages:
        await world.tell(stage)
    return world


def comparable(answer: Answer) -> Answer:
    """All that an answer shows but how long it took, and how many channels were hidden."""
    return msgspec.structs.replace(answer, timings_ms={}, hidden_channels=0, position={})
