"""Promise 6: nothing in an answer comes from a message that its asker may not read.

The strongest form is non-interference: the answer is the one that a memory would give that was never told those
messages at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem import open_memory
from streammem.backends import memory_vectors
from streammem.backends.memory_vectors import MemoryIndex
from streammem.core import summaries
from streammem.core.directory import Directory
from streammem.core.events import micros
from streammem.core.numbers import Forest, Retrieval
from streammem.errors import QueryError
from streammem.flows import answer as flow
from streammem.flows import bearers, belonging, sight
from streammem.ports import Span
from streammem.records import Answer, ChannelEvent, ChannelRef, Event, MembershipEvent, MessageEvent, UserEvent
from streammem.settings import Settings
from tests.embedding import HashingEmbedder
from tests.flows import grouped
from tests.flows.scripts import (
    ASKERS,
    BEGIN,
    CHANNELS,
    GUEST,
    NARROW,
    QUESTIONS,
    SPEAKERS,
    TEXTS,
    built,
    comparable,
    member,
    people,
    scripts,
    staged,
    turned,
)
from tests.flows.worlds import World
from tests.stories import at, public, said


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
    return frozenset(c for c in CHANNELS if (kinds[c] == "public" and asker != GUEST) or (c, asker) in members)


def without_the_rest(stages: list[list[Event]], channels: frozenset[str]) -> list[list[Event]]:
    return [[e for e in stage if not isinstance(e, MessageEvent) or e.channel.id in channels] for stage in stages]


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


@settings(deadline=None, max_examples=30)
@given(scripts, st.sampled_from((2, 3, 16)), st.sampled_from((None, NARROW)), st.none() | st.integers(10, 40))
def test_an_answer_is_the_same_as_if_hidden_messages_had_never_been_said(
    script: list[Any], k: int, numbers: Retrieval | None, minute: int | None
) -> None:
    as_of = None if minute is None else micros(at(minute))
    asyncio.run(interference(script, k, numbers, as_of=as_of))


def crowd(hidden: int) -> list[Any]:
    """A story in which much is said in secret about the same things, between what is said in the open."""
    script: list[Any] = []
    for i, text in enumerate(TEXTS * 3):
        in_secret = ("lee-2", "lee-2", "ana")[i % 3]
        script += [("say", "p", in_secret, TEXTS[(i + n) % len(TEXTS)], None, "ana", 0) for n in range(hidden)]
        script += [("say", "cd"[i % 2], SPEAKERS[i % 5], text, (None, 1)[i % 2], None, 0)]
    return script


@pytest.mark.parametrize("k", [2, 16])
async def test_many_hidden_messages_about_the_same_things_change_no_answer(k: int) -> None:
    await interference(crowd(6), k)
    await interference(crowd(6), k, NARROW)


# ------------------------------------------------------------------------------- the property catches faults


def sees_everything(patch: pytest.MonkeyPatch) -> None:
    """Messages are not checked when they are looked at."""
    patch.setattr(sight.Sight, "_reads", lambda self, uid: True)
    patch.setattr(sight.Sight, "_may", lambda self, version: True)


def shows_everything(patch: pytest.MonkeyPatch) -> None:
    """Summaries are shown whatever they were made from, and found by everybody."""
    shown = sight.visible_to

    def visible_to(query: Any, directory: Directory) -> Any:
        return msgspec.structs.replace(shown(query, directory), audiences=None)

    patch.setattr(summaries, "shows", lambda summary, visible, moment: True)
    patch.setattr(flow, "visible_to", visible_to)


def pools_everything(patch: pytest.MonkeyPatch) -> None:
    """Private messages are summarised with the public ones."""
    patch.setattr(summaries, "read_by_everyone", lambda sequence: False)


def groups_everything(patch: pytest.MonkeyPatch) -> None:
    """Private leaves are not summarised, but counted where nodes begin and end."""
    patch.setattr(summaries, "grouped", lambda sequence, leaves, is_public: list(leaves))


def counts_everything(patch: pytest.MonkeyPatch) -> None:
    """Windows are cut by rank, hidden leaves and all."""

    async def near(self: Any, places: Any, before: int, after: int) -> Any:
        spans = [Span(s, max(0, rank - before), rank + after) for s, rank in places]
        windows = await self._desk.store.leaves(spans)
        await self.see(leaf.uid for leaves in windows for leaf in leaves)
        await self._see_targets(leaf.uid for leaves in windows for leaf in leaves)
        return [self._live(s, leaves) for (s, _), leaves in zip(places, windows, strict=True)]

    patch.setattr(sight.Sight, "near", near)


def weighs_words_everywhere(patch: pytest.MonkeyPatch) -> None:
    """How rare a word is is counted over all messages."""
    find = MemoryIndex.find_messages

    async def find_messages(self: Any, vector: Any, lexical: str, limit: int, visible: Any) -> Any:
        dense, _ = await find(self, vector, lexical, limit, visible)
        rows = list(self._rows.values())
        seen = [row for row in rows if memory_vectors._stands(row, visible)]
        terms = self._bm25.embed_query(memory_vectors.words(lexical)).indices
        return dense, memory_vectors._best(memory_vectors._lexical(seen, rows, terms), limit)

    patch.setattr(MemoryIndex, "find_messages", find_messages)


def leads_anywhere(patch: pytest.MonkeyPatch) -> None:
    """How rare the words of a joining message are is counted over all messages."""

    async def find_words(self: Any, texts: Any, limit: int, visible: Any) -> Any:
        rows = list(self._rows.values())
        seen = [row for row in rows if memory_vectors._stands(row, visible)]
        terms = [self._bm25.embed_query(memory_vectors.words(text)).indices for text in texts]
        return [memory_vectors._best(memory_vectors._lexical(seen, rows, some), limit) for some in terms]

    patch.setattr(MemoryIndex, "find_words", find_words)


def counts_who_is_close_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Whom a name means is told by messages in any channel."""
    messages = bearers._messages

    async def everywhere(person: str, seen: Any, desk: Any) -> Any:
        with patch.context() as meanwhile:
            meanwhile.setattr(seen, "_wanted", msgspec.structs.replace(seen._wanted, channels=None))
            return await messages(person, seen, desk)

    patch.setattr(bearers, "_messages", everywhere)


def groups_for_guests(patch: pytest.MonkeyPatch) -> None:
    """Whoever reads not all public channels is steered by what was made from them all."""
    patch.setattr(flow, "desk_for", lambda visible, desk: desk)


def groups_what_is_private(patch: pytest.MonkeyPatch) -> None:
    """Identifiers are grouped and commonplaces counted over private channels, too."""
    said_in_public = grouped.said_in_public

    async def said_anywhere(workspace: str, store: Any) -> Any:
        with patch.context() as meanwhile:
            meanwhile.setattr(Directory, "is_public", lambda self, channel: True)
            return await said_in_public(workspace, store)

    patch.setattr(grouped, "said_in_public", said_anywhere)


def completes_by_rank(patch: pytest.MonkeyPatch) -> None:
    """The members of an artifact are cut where its sequence has so many leaves, and only then looked at."""
    members = belonging._members

    async def cut(artifacts: Any, found: Any, visible: Any, desk: Any) -> Any:
        with patch.context() as meanwhile:
            counts_everything(meanwhile)
            return await members(artifacts, found, visible, desk)

    patch.setattr(belonging, "_members", cut)


FAULTS = [
    sees_everything,
    shows_everything,
    pools_everything,
    groups_everything,
    counts_everything,
    completes_by_rank,
    weighs_words_everywhere,
    leads_anywhere,
    counts_who_is_close_everywhere,
    groups_for_guests,
    groups_what_is_private,
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_leak_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        await interference(crowd(6), 2, NARROW)


# ------------------------------------------------------------------------------------------ who sees what


def channels_of(answer: Answer) -> set[str]:
    return {e.channel for e in answer.evidence}


async def told(channels: str = "cdpqz") -> World:
    """Something about DOC-1 in each channel."""
    world = World()
    talk = [said(str(i), f"DOC-1 said in {c}", user="bo", channel=c) for i, c in enumerate("cdpqz", 1) if c in channels]
    await world.tell([*BEGIN, *talk])
    return world


@pytest.mark.parametrize(
    ("asker", "channels"), [(None, "cd"), ("ana", "cd"), ("bo", "cdp"), ("cy", "cdpq"), ("Cy", "cdpq")]
)
async def test_an_asker_sees_public_channels_and_their_own(asker: str | None, channels: str) -> None:
    answer = await (await told()).ask("DOC-1", asker=asker)
    assert channels_of(answer) == set(channels)
    assert answer.hidden_channels == len("cdpq") - len(channels)


async def test_a_channel_that_nobody_described_is_private_also_to_those_who_spoke_in_it() -> None:
    world = await told()
    for asker in ASKERS:
        assert "z" not in channels_of(await world.ask("DOC-1", asker=asker))
    await world.tell([member("z", "cy", 1)])
    assert "z" in channels_of(await world.ask("DOC-1", asker="cy"))


@pytest.mark.parametrize("kind", ["private", "dm", "group_dm", "thread", "unknown"])
async def test_only_a_channel_that_is_said_to_be_public_is_public(kind: str) -> None:
    world = await told()
    await world.tell([turned("c", kind, 5)])
    assert channels_of(await world.ask("DOC-1")) == {"d"}


async def test_a_channel_that_is_no_more_is_not_public() -> None:
    world = await told()
    await world.tell([ChannelEvent(workspace="w", id="c", type="public", version="5", present=False)])
    assert channels_of(await world.ask("DOC-1")) == {"d"}


async def test_what_a_message_says_of_its_channel_in_passing_never_overrides_the_directory() -> None:
    world = World()
    stated = ChannelEvent(workspace="w", id="leads", type="private")  # at version 0
    passing = msgspec.structs.replace(
        said("1", "DOC-1 in secret", channel="leads"), channel=ChannelRef(id="leads", name="leads", type="public")
    )
    await world.tell([stated, passing])
    assert (await world.ask("DOC-1")).evidence == ()
    await world.tell([public("leads")])
    assert len((await world.ask("DOC-1")).evidence) == 1


async def test_an_asker_that_nobody_knows_is_an_error() -> None:
    world = await told()
    for unknown in ("nobody", "an", "ana bo", "*"):
        with pytest.raises(QueryError):
            await world.ask("DOC-1", asker=unknown)


async def test_a_name_that_two_people_bear_is_an_error() -> None:
    world = await told()
    await world.tell([UserEvent(workspace="w", id="cy2", name="Cy", version="1")])
    with pytest.raises(QueryError, match="2 users"):
        await world.ask("DOC-1", asker="Cy")
    assert channels_of(await world.ask("DOC-1", asker="cy")) == set(CHANNELS)


async def test_everything_sees_everything_and_only_when_said() -> None:
    world = await told()
    answer = await world.ask("DOC-1", everything=True)
    assert channels_of(answer) == {*CHANNELS, "z"}
    assert answer.hidden_channels == 0


async def test_naming_a_channel_gives_no_right_to_it_and_does_not_confirm_that_it_exists() -> None:
    world = await told()
    assert channels_of(await world.ask("DOC-1", asker="bo", channels=("p",))) == {"p"}
    for asker, name in (("bo", "q"), (None, "p"), ("bo", "never-heard-of")):
        with pytest.raises(QueryError, match=f"no channel '{name}' that you can read"):
            await world.ask("DOC-1", asker=asker, channels=(name,))


async def test_visible_means_visible_now_also_for_questions_about_the_past() -> None:
    world = await told()
    then = micros(at(20))
    await world.tell([member("p", "ana", 30), turned("d", "private", 30)])
    assert channels_of(await world.ask("DOC-1", asker="ana", as_of=then)) == {"c", "p"}
    assert channels_of(await world.ask("DOC-1", as_of=then)) == {"c"}


async def test_a_member_who_left_no_longer_sees_anything_of_the_channel() -> None:
    world, part = await told(), await told("cd")
    assert "p" in channels_of(await world.ask("DOC-1", asker="bo"))
    await world.tell([member("p", "bo", 5, present=False)])
    after = await world.ask("DOC-1", asker="bo")
    assert channels_of(after) == {"c", "d"}
    assert comparable(after) == comparable(await part.ask("DOC-1", asker="bo"))
    assert channels_of(await world.ask("DOC-1", asker="bo", as_of=micros(at(4)))) == {"c", "d"}


async def test_nothing_hidden_is_named_in_how_an_item_was_found_in_headers_or_in_notes() -> None:
    world = await built(staged(crowd(3)), 2)
    for question in QUESTIONS:
        shown = msgspec.json.encode(comparable(await world.ask(question, asker="ana"))).decode()
        for hidden in ("w/p/", "channel:p", "/p#", '"p"', '"q"'):
            assert hidden not in shown.replace(json.dumps(question), "")


async def test_the_name_of_a_hidden_channel_does_not_steer_the_search() -> None:
    names = (ChannelRef(id="p", name="p-room"), ChannelRef(id="p", name="other"))
    answers = []
    for name in names:
        world = World(numbers=NARROW)
        secret = msgspec.structs.replace(said("3", "DOC-1 in secret", user="cy", channel="p"), channel=name)
        talk = [said(str(i), f"DOC-1 number {i}", user=u, channel="c") for i, u in ((4, "ana"), (5, "bo"), (6, "bo"))]
        await world.tell([*people, public("c"), *talk, secret])
        answers.append(comparable(await world.ask("what did Bo say of it in #p-room?")))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("askers", "channels"), [((None, "ana"), "cd"), ((GUEST,), "d")])
async def test_an_open_memory_keeps_the_same_promise(
    askers: tuple[str | None, ...], channels: str, tmp_path: Path
) -> None:
    stages = staged(crowd(4)[:60])
    small = Settings(forest=Forest(k=3), retrieval=NARROW, grouping=grouped.GROUPING, wait=0)
    answers: dict[str, list[Answer]] = {}
    for name, told in (("whole", stages), ("part", without_the_rest(stages, frozenset(channels)))):
        async with open_memory(tmp_path / name, small, embedder=lambda _: HashingEmbedder()) as memory:
            for stage in told:
                await memory.append(stage)
            await memory.settle()
            answers[name] = [comparable(await memory.query(q, asker=a)) for q in QUESTIONS for a in askers]
    assert answers["whole"] == answers["part"]
    assert all(answer.evidence for answer in answers["whole"])
