"""A question about a past moment is answered with what stood then, and with nothing that was deleted since."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.core.events import micros
from streammem.core.numbers import Retrieval
from streammem.records import Answer, Event, MessageEvent
from tests.flows.grouped import GroupedWorld
from tests.flows.scripts import NARROW, QUESTIONS, TEXTS, built, comparable, scripts, staged
from tests.flows.worlds import World
from tests.stories import at, deleted, edited, public, said


def when(minute: float) -> int:
    return micros(at(minute))


def texts(answer: Answer) -> list[str]:
    return [e.text for e in answer.evidence]


async def test_only_the_version_of_that_day_is_shown() -> None:
    world = World()
    told = said("1", "the launch is in May")
    await world.tell(
        [public(), edited(told, "the launch is in July", 50), told, edited(told, "the launch is in June", 9)]
    )
    seen = {
        minute: texts(await world.ask("when is the launch?", as_of=when(minute))) for minute in (0, 1, 8.9, 9, 49, 50)
    }
    assert seen == {
        0: [],
        1: ["the launch is in May"],
        8.9: ["the launch is in May"],
        9: ["the launch is in June"],
        49: ["the launch is in June"],
        50: ["the launch is in July"],
    }
    assert texts(await world.ask("when is the launch?")) == ["the launch is in July"]


async def test_what_was_not_said_yet_is_absent_also_from_neighbours_bridges_and_headers() -> None:
    world = World(k=2)
    before = [said("1", "DOC-1 is drafted, who reads it?"), said("2", "the fuse is in box seven")]
    after = [
        said("3", "DOC-1 approved", user="bo", reply_to="1"),  # a neighbour, a reply and an identifier bridge
        said("4", "so DOC-1 is merged", user="cy", channel="d"),
        said("5", "the fuse burned", reply_to="2"),
    ]
    await world.tell([public(), public("d"), *before, *after])
    for question in ("DOC-1 is drafted, who reads it?", "where is the fuse?", "who approved DOC-1?"):
        answer = await world.ask(question, as_of=when(2.5))
        assert {e.uid for e in answer.evidence} <= {"w/c/1", "w/c/2"}
        assert answer.evidence
        assert all(header.last <= when(2.5) for header in answer.headers)
        assert not [h for h in answer.headers if "approved" in h.text or "burned" in h.text or "merged" in h.text]
        assert {e.uid for e in (await world.ask(question)).evidence} == {
            f"w/{c}/{m}" for c, m in zip("cccdc", "12345", strict=True)
        }


async def test_an_edit_that_was_still_to_come_does_not_say_where_a_message_stood() -> None:
    world = World()
    told = [said(str(i), f"the budget, part {i}") for i in range(1, 5)]
    secret = edited(told[0], "the budget for DOC-9, approved and merged", 60)
    await world.tell([public(), *told, secret, said("70", "DOC-9 drafted"), said("71", "DOC-9 merged, the budget")])
    for answer in (
        await world.ask("the budget", as_of=when(30)),
        await world.ask("the budget of DOC-9", as_of=when(30)),
    ):
        assert texts(answer) == [m.text for m in sorted(told, key=lambda m: texts(answer).index(m.text))]
        assert not [way for e in answer.evidence for way in e.found_by if "DOC-9" in way.path]


async def test_what_was_deleted_never_returns() -> None:
    world = World()
    told = [said("1", "the launch is in May"), said("2", "the launch, said Bo, is off")]
    await world.tell([public(), *told, deleted(told[1], 60)])
    for as_of in (None, when(2), when(59), when(61)):
        answer = await world.ask("is the launch off?", as_of=as_of)
        assert texts(answer) == ["the launch is in May"]
        assert "off" not in " ".join(h.text for h in answer.headers)


async def test_headers_are_shown_only_if_all_their_leaves_were_said_and_last_edited_by_then() -> None:
    world = World(k=2)
    told = [said(str(i), f"the launch, part {i}") for i in range(1, 5)]
    await world.tell([public(), *told, edited(told[1], "the launch, part 2, with a new date", 60)])
    spans = {
        minute: {(h.level, h.first, h.last) for h in (await world.ask("launch", as_of=when(minute))).headers}
        for minute in (2.5, 30, 60)
    }
    assert spans[2.5] == set()
    assert {(level, first) for level, first, _ in spans[30]} == {(1, when(3))}
    assert when(1) in {first for _, first, _ in spans[60]}


async def test_a_question_as_of_now_is_answered_like_one_without_a_moment_but_for_recency() -> None:
    world = await built(staged([("say", "cd"[i % 2], "ana", text, None, None, 0) for i, text in enumerate(TEXTS)]), 2)
    for question in QUESTIONS:
        now, then = await world.ask(question), await world.ask(question, as_of=when(10_000))
        assert {e.uid for e in now.evidence} == {e.uid for e in then.evidence}


def standing(stages: list[list[Event]], moment: int) -> dict[str, str]:
    """What each message said at a moment, by the events alone; without those that are deleted in the end."""
    told: dict[str, dict[int, tuple[int, str | None]]] = {}
    for event in (e for stage in stages for e in stage if isinstance(e, MessageEvent)):
        since = micros(event.deleted_at or event.edited_at or event.ts or at(0))
        text = None if event.op == "delete" else event.text
        told.setdefault(f"w/{event.channel.id}/{event.id}", {})[int(event.version)] = (since, text)
    seen: dict[str, str] = {}
    for uid, versions in told.items():
        by_then = [version for version, (since, _) in versions.items() if since <= moment]
        if versions[max(versions)][1] is not None and by_then and (text := versions[max(by_then)][1]) is not None:
            seen[uid] = text
    return seen


@settings(deadline=None, max_examples=40)
@given(scripts, st.sampled_from((2, 16)), st.sampled_from((None, NARROW)), st.integers(8, 42))
def test_an_answer_holds_only_what_stood_at_the_moment(
    script: list[Any], k: int, numbers: Retrieval | None, minute: int
) -> None:
    async def story() -> None:
        stages = staged(script)
        world = await built(stages, k, numbers)
        seen = standing(stages, when(minute))
        for question in QUESTIONS:
            answer = await world.ask(question, as_of=when(minute), everything=True)
            assert {e.uid: e.text for e in answer.evidence}.items() <= seen.items()
            assert all(e.ts <= when(minute) for e in answer.evidence)
            for header in answer.headers:
                assert header.last <= when(minute)
                quoted = [quote.partition(": ")[2] for quote in header.text.split(" · ")]
                assert set(quoted) <= set(seen.values())
            if numbers is None:
                assert len(answer.evidence) == min(20, len(seen))

    asyncio.run(story())


ALONE = Retrieval(node=0.0, paths=0, views=("channel", "actor"))
"""Without what summaries give: the node above a message is summarised as it is now."""
COMPLETED = Retrieval(node=0.0, paths=0, weight_root=0.0, weight_collapsed=0.0)


def by_then(stages: list[list[Event]], moment: int) -> list[list[Event]]:
    """The events without what was said and edited later. What has been deleted since never returns."""
    messages = [event for stage in stages for event in stage if isinstance(event, MessageEvent)]
    in_the_end = {(m.channel.id, m.id): m for m in sorted(messages, key=lambda m: (int(m.version), m.op == "delete"))}

    def known(event: Event) -> bool:
        if not isinstance(event, MessageEvent):
            return True
        if event.op == "delete" and event is in_the_end[event.channel.id, event.id]:
            return True
        return micros(event.deleted_at or event.edited_at or event.ts or at(0)) <= moment

    return [[event for event in stage if known(event)] for stage in stages]


def shown(answer: Answer) -> Any:
    """What an answer shows but for the trees that S1 names, which are those of summaries as they are now."""
    return [
        (e.uid, e.text, [msgspec.structs.replace(way, path="") if way.stage == "S1" else way for way in e.found_by])
        for e in comparable(answer).evidence
    ]


async def differences(script: list[Any], minute: int, numbers: Retrieval, kind: type[World]) -> None:
    stages = staged(script)
    worlds = [kind(k=64, numbers=numbers), kind(k=64, numbers=numbers)]
    for world, told in zip(worlds, (stages, by_then(stages, when(minute))), strict=True):
        for stage in told:
            await world.tell(stage)
    for question in QUESTIONS:
        now, then = [await world.ask(question, as_of=when(minute), everything=True) for world in worlds]
        assert shown(now) == shown(then)


@settings(deadline=None, max_examples=40)
@given(scripts, st.integers(8, 42), st.sampled_from((ALONE, COMPLETED)))
def test_what_is_said_or_edited_afterwards_changes_nothing_that_is_found_as_of_a_moment(
    script: list[Any], minute: int, numbers: Retrieval
) -> None:
    asyncio.run(differences(script, minute, numbers, World))


AFTERWARDS = [("say", "cd"[i % 2], "ana", text, (None, 1)[i % 2], None, 0) for i, text in enumerate(TEXTS * 2)]


async def test_much_that_is_said_afterwards_changes_nothing_that_is_found_as_of_a_moment() -> None:
    for numbers in (ALONE, COMPLETED):
        await differences(AFTERWARDS, 10 + len(TEXTS), numbers, World)


async def test_what_is_said_every_day_from_now_on_was_no_commonplace_before() -> None:
    await differences(AFTERWARDS, 10 + len(TEXTS), COMPLETED, GroupedWorld)
