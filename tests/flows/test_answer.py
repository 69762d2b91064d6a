"""The answer as a whole: budgets, quotas, how things were found, and what an empty memory says."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem import open_memory
from streammem.core.events import micros
from streammem.core.numbers import Forest, Retrieval
from streammem.core.retrieval import assemble
from streammem.core.routing import channel_sequence
from streammem.errors import QueryError
from streammem.flows.answer import header_line
from streammem.records import Answer, ChannelEvent, Evidence, MembershipEvent
from streammem.settings import Settings
from tests.embedding import HashingEmbedder
from tests.flows.scripts import NARROW, QUESTIONS, TEXTS, built, comparable, people, scripts, staged
from tests.flows.worlds import World
from tests.stories import at, edited, public, said


async def rendered(answer: Answer, world: World) -> int:
    """The tokens of an answer as it is given to a model, counted anew."""
    directory = await world.directory("w")
    lines = []
    for e in answer.evidence:
        (known,) = await world.store.versions([e.uid])
        version = next(v for v in known if v.text == e.text)
        lines.append(assemble.line(version, directory.room(e.channel), directory.user_name(e.user)))
    return sum(HashingEmbedder().count_tokens([*lines, *map(header_line, answer.headers)]))


def header_tokens(answer: Answer) -> int:
    return sum(HashingEmbedder().count_tokens([header_line(h) for h in answer.headers]))


@settings(deadline=None, max_examples=40)
@given(
    scripts,
    st.sampled_from((2, 16)),
    st.sampled_from((None, NARROW)),
    st.integers(1, 30),
    st.integers(1, 400) | st.just(3000),
)
def test_limit_and_budget_are_never_exceeded_and_nothing_comes_twice(
    script: list[Any], k: int, numbers: Retrieval | None, limit: int, budget: int
) -> None:
    async def story() -> None:
        world = await built(staged(script), k, numbers)
        for question in QUESTIONS:
            answer = await world.ask(question, limit=limit, budget=budget, everything=True)
            assert len(answer.evidence) <= limit
            assert answer.tokens == await rendered(answer, world)
            assert answer.tokens <= budget
            assert header_tokens(answer) <= budget * world.numbers.header_share
            assert max(Counter(e.uid for e in answer.evidence).values(), default=1) == 1
            assert len(set(map(repr, answer.headers))) == len(answer.headers)
            for e in answer.evidence:
                assert e.found_by
                assert e.stage == e.found_by[0].stage
                assert all(way.stage in ("S1", "S2", "S3") and way.signal for way in e.found_by)
                assert sorted(way.stage for way in e.found_by) == [way.stage for way in e.found_by]
            again = await world.ask(question, limit=limit, budget=budget, everything=True)
            assert comparable(again) == comparable(answer)

    asyncio.run(story())


async def long_talk() -> World:
    """Sixty messages, half of them on one subject, in two channels."""
    script = [
        ("say", "cd"[i % 2], "ana", f"{TEXTS[i % len(TEXTS)]} {i}", (None, 1)[i % 3 == 0], None, 0) for i in range(60)
    ]
    return await built(staged(script), 4)


async def test_the_first_eight_of_twenty_places_are_the_anchors_the_others_what_context_and_structure_rank() -> None:
    answer = await (await long_talk()).ask("who approved DOC-1?")
    assert len(answer.evidence) == 20
    by_text = [way.rank for e in answer.evidence[:8] for way in e.found_by if way.stage == "S1"]
    assert by_text == list(range(1, 9))
    for e in answer.evidence[8:]:
        assert {way.stage for way in e.found_by} & {"S2", "S3"}


async def test_a_smaller_limit_is_shared_in_proportion() -> None:
    world = await long_talk()
    assert [len((await world.ask("who approved DOC-1?", limit=n)).evidence) for n in (1, 5, 10)] == [1, 5, 10]


async def test_what_does_not_fit_the_budget_is_passed_over_and_said() -> None:
    world = World()
    essay = "the launch " + "is discussed at great length " * 40
    await world.tell([public(), said("1", essay), said("2", "the launch is in May"), said("3", "the launch is on")])
    answer = await world.ask("the launch", budget=100)
    assert {e.id for e in answer.evidence} == {"2", "3"}
    assert answer.notes == ("1 messages did not fit the token budget of 100",)


async def test_headers_take_their_share_and_no_more() -> None:
    world = await long_talk()
    for share in (0.0, 0.1, 0.35):
        world.numbers = Retrieval(header_share=share)
        answer = await world.ask("who approved DOC-1?", limit=5)
        assert header_tokens(answer) <= 3000 * share
        assert bool(answer.headers) == (share > 0)


async def test_headers_go_before_no_message() -> None:
    world = await long_talk()
    without = await world.ask("who approved DOC-1?", budget=120)
    world.numbers = Retrieval(header_share=0.0)
    assert [e.uid for e in without.evidence] == [
        e.uid for e in (await world.ask("who approved DOC-1?", budget=120)).evidence
    ]


async def test_a_header_names_people_and_its_tree() -> None:
    world = World(k=2)
    await world.tell([*people, public(), *(said(str(i), f"the launch, part {i}", user="bo") for i in range(1, 6))])
    headers = (await world.ask("the launch, part 2")).headers
    assert {(h.view, h.label) for h in headers} == {("channel", "#c"), ("actor", "Bo")}
    assert all("Bo: the launch" in h.text and "<@" not in h.text for h in headers)


# -------------------------------------------------------------------------------------------------- the stages


def ways(answer: Answer, item: str) -> dict[str, str]:
    """Signal to path, of one message."""
    (e,) = [e for e in answer.evidence if e.id == item]
    return {way.signal: way.path for way in e.found_by}


async def test_a_reply_bridge_finds_the_target_in_another_place() -> None:
    """Nothing but the reply leads to the target: it shares no word with the question and nobody looks around."""
    numbers = Retrieval(seeds=3, context_anchors=0, window=0, bridge_messages=2, bridge_floor=-1.0)
    world = World(numbers=numbers)
    target = said("1", "xyzzy plugh", user="cy")
    noise = [said(str(i), f"weather report {i}", user="dee") for i in range(2, 40)]
    reply = said("50", "the budget was approved", user="bo", reply_to="1")
    await world.tell([public(), target, *noise, reply])
    answer = await world.ask("was the budget approved?")
    assert ways(answer, "1") == {"reply bridge": "from w/c/50"}


async def test_an_identifier_bridge_leads_into_another_channel() -> None:
    numbers = Retrieval(seeds=2, context_anchors=0, window=0, bridge_messages=2, bridge_floor=-1.0, artifacts=0)
    world = World(numbers=numbers)
    here = [said("1", "the budget is in DOC-7", user="bo")]
    there = [said("2", "qwerty DOC-7", user="cy", channel="d")]
    noise = [said(str(i), f"weather report {i}", user="dee") for i in range(3, 30)]
    await world.tell([public(), public("d"), *here, *there, *noise])
    answer = await world.ask("where is the budget?")
    assert ways(answer, "2") == {"identifier bridge DOC-7": "from w/c/1"}


async def test_summaries_open_leaves_that_the_search_alone_does_not_reach() -> None:
    numbers = Retrieval(seeds=2, context_anchors=1, voters=1, pool_cap=1, window=0)
    world = World(k=4, numbers=numbers)
    talk = [said(str(i), f"the harbour plan, section {i}") for i in range(1, 13)]
    await world.tell([public(), *talk])
    answer = await world.ask("the harbour plan")
    opened = [way.path for e in answer.evidence for way in e.found_by if way.signal == "summary"]
    assert all("#1." in path for path in opened)
    assert len(opened) > 6


async def test_a_message_without_words_holds_its_place_and_its_thread_and_is_never_evidence() -> None:
    world = World(k=2)
    talk = [
        said("1", ""),
        said("2", "the launch of DOC-7 is in May", reply_to="1", thread_id="1"),
        said("3", " ", reply_to="2", thread_id="1"),
        said("4", "the launch of DOC-7 is in June", reply_to="3", thread_id="1"),
        said("5", "", kind="call", participants=("ana", "bo")),
    ]
    await world.tell([public(), *talk])
    for question in ("the launch", "DOC-7", "what did Ana say after the launch in May?"):
        assert {e.id: e.reply_to for e in (await world.ask(question)).evidence} == {"2": "1", "4": "3"}
    assert await world.leaves(channel_sequence("w", "c")) == [f"w/c/{n}" for n in range(1, 6)]
    assert {uid for s in world.summaries().values() for uid in s.picks} == {"w/c/2", "w/c/4"}
    assert not any(part.endswith(": ") for s in world.summaries().values() for part in s.text.split(" · "))


async def test_of_a_message_edited_into_nothing_the_words_are_evidence_of_then_only() -> None:
    world = World()
    told = said("1", "the launch is in May")
    await world.tell([public(), told, said("2", "what of the launch?")])
    await world.tell([edited(told, "", 9)])
    assert [e.id for e in (await world.ask("the launch")).evidence] == ["2"]
    assert {uid for s in world.summaries().values() for uid in s.picks} == {"w/c/2"}
    assert "in May" not in str((await world.ask("the launch")).headers)
    then = await world.ask("the launch", as_of=micros(at(5)))
    assert {e.id: e.text for e in then.evidence}["1"] == "the launch is in May"


async def test_where_a_message_no_longer_stands_does_not_say_how_it_was_found() -> None:
    world = World()
    told = said("1", "the budget for DOC-9, drafted", mentions=("bo",))
    others = [
        said("2", "DOC-9 merged, the budget", user="cy", mentions=("bo",)),
        said("3", "the budget DOC-9 approved", user="cy"),
    ]
    now = msgspec.structs.replace(edited(told, "the budget, drafted", 60), mentions=())
    await world.tell([public(), told, *others, now])
    answer = await world.ask("the budget")
    assert {e.id for e in answer.evidence} == {"1", "2", "3"}
    paths = {e.id: e.found_by[0].path for e in answer.evidence}
    assert "bo" not in paths["1"]
    assert "DOC-9" not in paths["1"]


# --------------------------------------------------------------------------------------- filters, nothing, again


async def test_an_empty_memory_abstains() -> None:
    answer = await World().ask("is anybody there?")
    assert (answer.evidence, answer.headers, answer.tokens, answer.abstained) == ((), (), 0, True)


async def test_a_memory_without_anything_visible_abstains() -> None:
    world = World()
    await world.tell([said("1", "the launch is in May", channel="unheard-of")])
    answer = await world.ask("the launch")
    assert (answer.evidence, answer.headers, answer.abstained) == ((), (), True)


async def test_below_the_floor_it_says_so_and_shows_no_header() -> None:
    world = World(numbers=Retrieval())
    await world.tell([public(), said("1", "the launch is in May")])
    poor, good = await world.ask("xyzzy plugh"), await world.ask("Ana: the launch is in May")
    assert (poor.abstained, poor.headers, [e.id for e in poor.evidence]) == (True, (), ["1"])
    assert not good.abstained
    assert poor.confidence < Retrieval().floor <= good.confidence


@pytest.mark.parametrize("name", ["2", "w/c/2"])
async def test_an_excluded_message_is_not_found_by_any_way(name: str) -> None:
    world = World(numbers=Retrieval())
    talk = [
        said("1", "DOC-1 drafted"),
        said("2", "DOC-1 approved", reply_to="1"),
        said("3", "DOC-1 merged", reply_to="2"),
    ]
    await world.tell([public(), *talk])
    answer = await world.ask("was DOC-1 approved?", exclude=(name,))
    assert {e.id for e in answer.evidence} == {"1", "3"}


async def test_excluded_messages_take_up_no_place_in_the_search() -> None:
    world = World(numbers=Retrieval(seeds=3, context_anchors=1, window=0, paths=0))
    await world.tell([public(), *(said(str(i), "the launch is on") for i in range(1, 8))])
    answer = await world.ask("the launch", exclude=("1", "2", "3", "4"))
    assert {e.id for e in answer.evidence} == {"5", "6", "7"}


async def test_since_and_until_bound_the_time_of_messages_and_both_ends_count() -> None:
    world = World()
    await world.tell([public(), *(said(str(i), f"the launch, part {i}") for i in range(1, 8))])
    answer = await world.ask("the launch", since=micros(at(3)), until=micros(at(5)))
    assert {e.id for e in answer.evidence} == {"3", "4", "5"}
    assert {e.id for e in (await world.ask("the launch", until=micros(at(1)))).evidence} == {"1"}


async def test_channels_are_named_by_id_or_name_and_unknown_ones_are_an_error() -> None:
    world = World()
    room = public("d")
    await world.tell([public(), type(room)(workspace="w", id="d", name="Ops Room", type="public", version="2")])
    await world.tell([said("1", "the launch"), said("2", "the launch", channel="d")])
    for name in ("d", "Ops Room", "#ops room"):
        assert {e.channel for e in (await world.ask("the launch", channels=(name,))).evidence} == {"d"}
    with pytest.raises(QueryError, match="no channel 'elsewhere'"):
        await world.ask("the launch", channels=("elsewhere",))


async def test_evidence_is_verbatim_and_says_who_where_and_when() -> None:
    world = World()
    text = "DOC-1 is approved:\n  «naïve ☃» <@bo> & co."
    first = said("1", "is it?", user="bo")
    told = said("2", text, reply_to="1", permalink="https://chat.example/2")
    await world.tell([*people, public(), first, edited(told, text, 9)])
    (e,) = [e for e in (await world.ask("is DOC-1 approved?")).evidence if e.id == "2"]
    expected = {
        "uid": "w/c/2", "channel": "c", "channel_name": "c", "user": "ana", "user_name": "Ana", "ts": micros(at(2)),
        "text": text, "reply_to": "1", "permalink": "https://chat.example/2", "edited": True, "markers": ("approved",),
    }  # fmt: skip
    assert {name: getattr(e, name) for name in expected} == expected


async def test_the_same_question_has_the_same_answer_also_after_reopening(tmp_path: Path) -> None:
    script = [("say", "cd"[i % 2], "ana", TEXTS[i % len(TEXTS)], (None, 1)[i % 3 == 0], "bo", 0) for i in range(30)]
    small = Settings(forest=Forest(k=3), retrieval=Retrieval(floor=0.0))
    answers: dict[tuple[int, int], list[Answer]] = {}
    for opening in range(2):
        async with open_memory(tmp_path, small, embedder=lambda _: HashingEmbedder()) as memory:
            for stage in staged(script):
                await memory.append(stage)
            for time in range(2):
                answers[opening, time] = [comparable(await memory.query(q, asker="bo")) for q in QUESTIONS]
    first = answers.pop((0, 0))
    assert [again for again in answers.values() if again != first] == []
    assert all(answer.evidence and answer.headers for answer in first)
    found: list[Evidence] = [e for answer in first for e in answer.evidence]
    assert {way.stage for e in found for way in e.found_by} >= {"S1", "S2"}


@settings(deadline=None, max_examples=20)
@given(scripts, st.sampled_from((2, 16)), st.sampled_from((None, NARROW)), st.randoms(use_true_random=False))
def test_the_order_in_which_a_memory_was_told_changes_no_answer(
    script: list[Any], k: int, numbers: Retrieval | None, dice: random.Random
) -> None:
    async def story() -> None:
        told = [event for stage in staged(script) for event in stage]
        shuffled = list(told)
        dice.shuffle(shuffled)
        worlds = [await built([events], k, numbers) for events in (told, shuffled)]
        for question in QUESTIONS:
            one, other = [comparable(await world.ask(question, asker="ana")) for world in worlds]
            assert one == other

    asyncio.run(story())


async def test_a_direct_conversation_is_shown_by_who_is_in_it_and_not_as_a_channel() -> None:
    world = World()
    joined = [MembershipEvent(workspace="w", channel="d", user=user) for user in ("ana", "bo")]
    told = [said(str(n), f"the plan is {n}", channel="d") for n in range(9)]
    await world.tell([ChannelEvent(workspace="w", id="d", type="dm", version="1"), *joined, *told])
    answer = await world.ask("the plan", asker="ana")
    assert {(e.channel, e.channel_name, e.direct) for e in answer.evidence} == {("d", "Ana, bo", True)}
    assert {h.label for h in answer.headers if h.view == "channel"} == {"Ana, bo"}
    assert answer.tokens == await rendered(answer, world)
