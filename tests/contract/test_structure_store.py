"""What the flows rely on in a structure store: writes that commute and repeat, ranks, marks, offsets."""

import asyncio
import itertools
import random
import sqlite3
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends import sqlite
from streammem.backends.memory import MemoryStructure
from streammem.backends.sqlite import SqliteStructure
from streammem.core.registers import winner
from streammem.errors import MemoryFormatError, MemoryHeldError, TransientError
from streammem.ports import CHANGED, OPEN, QUEUES, SUMMARIES, TOUCHED, WORDS, Span, Stand
from streammem.records import (
    Answering,
    ChannelEvent,
    Due,
    Entry,
    Ingest,
    Leaf,
    MembershipEvent,
    NodeId,
    Paid,
    ReactionEvent,
    Redaction,
    Sequence,
    Summary,
    UserEvent,
    Version,
    Wording,
)

GENERAL = Sequence("W", "channel", "C1")
ANN = Sequence("W", "actor", "U1", "authored", "C1")
DOC = Sequence("W", "artifact", "DOC-1")
A, B, C = Leaf(10, "W/C1/a"), Leaf(20, "W/C1/b"), Leaf(20, "W/C1/c")


def version(number: str = "1", *, deleted: bool = False, digest: str = "h", text: str = "ok") -> Version:
    return Version("W/C1/a", number, deleted, digest, "W", "C1", "a", 10, 10, "U1", text, mentions=("U2",))


def user(number: str, name: str | None = None, *, present: bool = True) -> UserEvent:
    return UserEvent(workspace="W", id="U1", version=number, name=name, present=present)


def reaction(name: str, number: str = "1", *, present: bool = True) -> ReactionEvent:
    return ReactionEvent(
        workspace="W", channel="C1", message="a", name=name, user="U1", version=number, present=present
    )


def summary(node: NodeId, text: str = "said little", serial: int = 0) -> Summary:
    vector, is_root = b"\x00\x01\xff" * 4, node.index == 0
    return Summary(node, text, A, B, 2, "d" * 32, ("C1",), ("merged",), 20, serial, is_root, vector, (A.uid,))


def wording(node: NodeId, text: str = "They agreed.", serial: int = 0, key: str = "d/channel/m/1") -> Wording:
    return Wording(node, key, text, A, B, 2, "d" * 32, ("C1",), 20, serial, "m/1", tokens=40)


async def rows(store) -> list[tuple[str, bytes]]:
    return sorted([row async for row in store.everything()])


# ------------------------------------------------------------------------------------------------------- registers


async def test_an_unknown_message_has_no_versions_placements_or_answers(store):
    assert await store.versions(["nobody"]) == [()]
    assert await store.placements(["nobody"]) == [()]
    assert await store.answers(["nobody"]) == [()]


async def test_versions_gather_and_the_greatest_wins(store):
    await store.register([version("2", text="new")])
    await store.register([version("1", text="old")])
    (known,) = await store.versions(["W/C1/a"])
    assert set(known) == {version("1", text="old"), version("2", text="new")}
    assert winner(known).text == "new"


async def test_a_version_registered_twice_stands_once(store):
    await store.register([version(), version()])
    await store.register([version()])
    assert await store.versions(["W/C1/a"]) == [(version(),)]


async def test_versions_that_tie_in_number_all_stand(store):
    tied = [version(digest="a"), version(digest="b"), version(deleted=True, digest="a")]
    await store.register(tied)
    (known,) = await store.versions(["W/C1/a"])
    assert set(known) == set(tied)
    assert winner(known).deleted


async def test_answers_stand_in_the_order_of_what_was_asked(store):
    other = msgspec.structs.replace(version(), uid="W/C1/b", id="b")
    await store.register([version(), other])
    assert await store.versions(["W/C1/b", "nobody", "W/C1/a"]) == [(other,), (), (version(),)]


# ------------------------------------------------------------------------------------------------------- sequences


async def test_leaves_stand_in_the_order_of_time_and_id_however_they_came(store):
    await store.enter([Entry(GENERAL, C), Entry(GENERAL, A)])
    await store.enter([Entry(GENERAL, B)])
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(A, B, C)]


async def test_a_leaf_entered_twice_stands_once(store):
    await store.enter([Entry(GENERAL, A), Entry(GENERAL, A)])
    await store.enter([Entry(GENERAL, A)])
    assert await store.sizes([GENERAL]) == [1]
    assert await store.placements([A.uid]) == [(Stand(GENERAL, 0, 1),)]


@pytest.mark.parametrize("looked_at_between", [False, True])
async def test_of_two_leaves_of_a_message_the_earlier_stays(store, looked_at_between):
    early, late = Leaf(5, B.uid), Leaf(30, B.uid)
    for leaf in (B, late, early, B):
        await store.enter([Entry(GENERAL, leaf), Entry(GENERAL, A)])
        if looked_at_between:
            await store.ranks([(GENERAL, A)])
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(early, A)]
    assert await store.placements([B.uid]) == [(Stand(GENERAL, 0, 2),)]


async def test_a_message_stands_in_many_sequences_sorted(store):
    await store.enter([Entry(GENERAL, A), Entry(DOC, A), Entry(ANN, A), Entry(DOC, Leaf(1, "W/C2/z"))])
    assert await store.placements([A.uid]) == [(Stand(ANN, 0, 1), Stand(DOC, 1, 2), Stand(GENERAL, 0, 1))]


async def test_spans_out_of_range_are_cut(store):
    await store.enter([Entry(GENERAL, leaf) for leaf in (A, B, C)])
    spans = [Span(GENERAL, -5, 2), Span(GENERAL, 1, 99), Span(GENERAL, 2, 1), Span(GENERAL, 7, 9), Span(DOC, 0, 5)]
    assert await store.leaves(spans) == [(A, B), (B, C), (), (), ()]
    assert await store.leaves([Span(GENERAL, -3, -1)]) == [()]


async def test_a_rank_counts_the_smaller_leaves_also_for_a_leaf_that_is_not_there(store):
    await store.enter([Entry(GENERAL, leaf) for leaf in (A, B, C)])
    asked = [A, C, Leaf(0, ""), Leaf(20, "W/C1/bb"), Leaf(99, "z")]
    assert await store.ranks([(GENERAL, leaf) for leaf in asked]) == [0, 2, 0, 2, 3]
    assert await store.ranks([(DOC, A)]) == [0]


async def test_an_unknown_sequence_has_no_leaves(store):
    assert await store.sizes([DOC, GENERAL]) == [0, 0]


async def test_sequences_are_listed_by_workspace_view_and_tree(store):
    mentioned = Sequence("W", "actor", "U1", "mentioned", "C1")
    others = [Sequence("W", "actor", "U10", "authored", "C1"), Sequence("V", "channel", "C1")]
    listed = [DOC, GENERAL, mentioned, ANN, *others]
    await store.enter([Entry(sequence, A) for sequence in listed])
    assert await store.sequences("W") == [ANN, mentioned, others[0], DOC, GENERAL]
    assert await store.sequences("W", "actor") == [ANN, mentioned, others[0]]
    assert await store.sequences("W", "actor", "U1") == [ANN, mentioned]
    assert await store.sequences("W", tree="U1") == [ANN, mentioned]
    assert await store.sequences("W", "channel", "U1") == []
    assert await store.sequences("W2") == []


async def test_a_mark_alone_makes_no_sequence(store):
    await store.mark_due([(GENERAL, A)])
    await store.redact([(GENERAL, A)])
    assert await store.sequences("W") == []
    assert await store.workspaces() == []


async def test_workspaces_have_a_leaf_or_a_fact(store):
    await store.enter([Entry(Sequence("B", "channel", "C"), A)])
    await store.learn([UserEvent(workspace="A", id="U1"), reaction("+1")])
    await store.register([msgspec.structs.replace(version(), workspace="Z", uid="Z/C1/a")])
    assert await store.workspaces() == ["A", "B", "W"]


async def test_two_workspaces_share_nothing(store):
    here, there = Sequence("A", "channel", "C"), Sequence("B", "channel", "C")
    await store.enter([Entry(here, Leaf(1, "A/C/1")), Entry(there, Leaf(1, "B/C/1"))])
    await store.learn([UserEvent(workspace="A", id="U1", name="Ann"), UserEvent(workspace="B", id="U1", name="Bob")])
    assert await store.leaves([Span(here, 0, 9)]) == [(Leaf(1, "A/C/1"),)]
    assert [fact.name for fact in await store.facts("B")] == ["Bob"]


# --------------------------------------------------------------------------------------------------------- answers


async def test_answers_are_leaves_in_order_once_for_each_message(store):
    await store.link([Answering("W/C1/root", C), Answering("W/C1/root", A), Answering("W/C1/root", A)])
    await store.link([Answering("W/C1/root", Leaf(5, C.uid)), Answering("W/C1/root", Leaf(50, A.uid))])
    assert await store.answers(["W/C1/root", A.uid]) == [(Leaf(5, C.uid), A), ()]


# ----------------------------------------------------------------------------------------------------------- facts


async def test_the_fact_with_the_greatest_version_stands_compared_as_a_number(store):
    assert await store.learn([user("9", "old")]) == [user("9", "old")]
    assert await store.learn([user("10", "new"), user("2", "older")]) == [user("10", "new")]
    assert await store.facts("W") == [user("10", "new")]


async def test_absence_wins_a_tie_and_then_the_content(store):
    gone = user("1", present=False)
    assert await store.learn([gone]) == [gone]
    assert await store.learn([user("1", "Ann"), user("1.0", "Zoe")]) == []
    one = MembershipEvent(workspace="W", channel="C", user="U")
    assert await store.learn([one, msgspec.structs.replace(one, present=False)]) == [
        msgspec.structs.replace(one, present=False)
    ]


@pytest.mark.parametrize("order", [0, 1])
async def test_equal_versions_with_other_content_end_the_same_in_any_order(store, order):
    tied = [user("1", "Ann"), user("1", "Zoe")]
    await store.learn(tied[::-1] if order else tied)
    other = MemoryStructure()
    await other.learn(tied)
    assert await store.facts("W") == await other.facts("W")


async def test_a_fact_learnt_again_is_no_news_however_it_came(store):
    await store.learn([user("1", "Ann")])
    again = msgspec.structs.replace(user("1", "Ann"), ingest=Ingest(origin="elsewhere"))
    before = await store.facts_generation("W")
    assert await store.learn([again]) == []
    assert await store.facts_generation("W") == before
    assert await store.facts("W") == [user("1", "Ann")]


async def test_how_a_fact_came_leaves_no_trace_in_checksums(store):
    await store.learn([msgspec.structs.replace(user("1", "Ann"), ingest=Ingest(origin="here"))])
    assert await rows(store) == [("fact", msgspec.json.encode(user("1", "Ann")))]


async def test_the_generation_of_facts_grows_with_what_they_say_and_with_nothing_else(store):
    seen = [await store.facts_generation("W")]
    for news in (user("1", "Ann"), user("2", "Anna"), ChannelEvent(workspace="W", id="C1"), user("3", present=False)):
        await store.learn([news])
        seen.append(await store.facts_generation("W"))
    assert seen == sorted(set(seen))
    await store.learn([user("4", present=False), reaction("+1"), UserEvent(workspace="V", id="U1", version="9")])
    await store.enter([Entry(GENERAL, A)])
    assert await store.facts_generation("W") == seen[-1]
    assert await store.facts("W") == [ChannelEvent(workspace="W", id="C1"), user("4", present=False)]


async def test_the_generation_of_facts_never_repeats_even_after_a_rebuild(store):
    await store.learn([user("1", "Ann"), user("2", "Anna")])
    before = await store.facts_generation("W")
    await store.clear()
    emptied = await store.facts_generation("W")
    await store.learn([user("1", "Ann")])
    assert before < emptied < await store.facts_generation("W")


async def test_reactions_stand_on_their_message_sorted_and_apart_from_the_directory(store):
    await store.learn([reaction("eyes"), reaction("+1"), reaction("eyes", "2", present=False)])
    assert await store.reactions("W", "C1", "a") == [reaction("+1"), reaction("eyes", "2", present=False)]
    assert await store.reactions("W", "C1", "b") == []
    assert await store.facts("W") == []


# ------------------------------------------------------------------------------------------------------- due marks


async def test_a_mark_keeps_the_least_leaf_and_a_new_generation(store):
    await store.mark_due([(GENERAL, B)])
    (first,) = await store.due(9)
    await store.mark_due([(GENERAL, C), (GENERAL, A)])
    (second,) = await store.due(9)
    assert (first.earliest, second.earliest) == (B, A)
    assert second.generation > first.generation


async def test_the_oldest_mark_comes_first_although_it_is_marked_again(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    await store.mark_due([(DOC, A), (GENERAL, A)])
    assert [mark.sequence for mark in await store.due(9)] == [GENERAL, ANN, DOC]
    assert [mark.sequence for mark in await store.due(2)] == [GENERAL, ANN]
    assert await store.due(0) == []


async def test_settling_clears_a_mark_only_at_its_generation(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    read = await store.due(9)
    await store.mark_due([(GENERAL, C)])
    await store.settle(read)
    (left,) = await store.due(9)
    assert (left.sequence, left.earliest) == (GENERAL, B)
    await store.settle([left])
    assert await store.due(9) == []


async def test_a_settled_sequence_marked_again_starts_anew_and_never_repeats_a_generation(store):
    await store.mark_due([(GENERAL, A), (ANN, A)])
    old = (await store.due(9))[0]
    await store.settle([old])
    await store.mark_due([(GENERAL, B)])
    assert [mark.sequence for mark in await store.due(9)] == [ANN, GENERAL]
    new = (await store.due(9))[1]
    assert new.earliest == B
    assert new.generation > old.generation
    await store.settle([old])
    assert new in await store.due(9)


@pytest.mark.parametrize("queue", [SUMMARIES, WORDS])
async def test_a_mark_read_before_a_rebuild_settles_nothing_after_it(store, queue):
    await store.mark_due([(GENERAL, A)], queue)
    old = await store.due(9, queue=queue)
    await store.clear()
    assert await store.due(9, queue=queue) == []
    await store.mark_due([(GENERAL, A)], queue)
    await store.settle(old, queue)
    assert len(await store.due(9, queue=queue)) == 1


async def test_settling_what_was_never_marked_is_no_fault(store):
    await store.settle([Due(DOC, 1, A)])
    await store.settle([])
    assert await store.due(9) == []


# ---------------------------------------------------------------------------------------------------------- leases


def named(due: list[Due]) -> list[Sequence]:
    return [mark.sequence for mark in due]


async def test_what_one_took_nobody_else_is_given_until_the_lease_is_over(store):
    await store.mark_due([(GENERAL, A), (ANN, A), (DOC, A)])
    assert named(await store.due(2, 100, 10)) == [GENERAL, ANN]
    assert named(await store.due(9, 100, 10)) == [DOC]
    assert await store.due(9, 109.5, 10) == []
    assert named(await store.due(9, 110, 10)) == [GENERAL, ANN, DOC]


async def test_a_look_without_a_lease_takes_nothing(store):
    await store.mark_due([(GENERAL, A), (ANN, A)])
    assert named(await store.due(9, 100)) == [GENERAL, ANN]
    assert named(await store.due(1, 100, 10)) == [GENERAL]
    assert named(await store.due(9, 101)) == [ANN]
    assert named(await store.due(9, 110)) == [GENERAL, ANN]
    assert named(await store.due(1, 110)) == [GENERAL]


async def test_a_settled_sequence_is_held_by_nobody_when_it_is_marked_again(store):
    await store.mark_due([(GENERAL, B)])
    taken = await store.due(9, 100, 60)
    assert await store.settle(taken) == []
    await store.mark_due([(GENERAL, A)])
    assert named(await store.due(9, 101)) == [GENERAL]


async def test_a_mark_newer_than_what_is_settled_stays_and_is_held_by_nobody(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    taken = await store.due(9, 100, 60)
    await store.mark_due([(GENERAL, A)])
    assert await store.settle(taken) == []
    (left,) = await store.due(9, 101)
    assert (left.sequence, left.earliest) == (GENERAL, A)


async def test_who_settles_second_is_told(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    first = await store.due(9, 100, 5)
    second = await store.due(9, 105, 5)
    assert second == first
    assert await store.settle(second[:1]) == []
    assert await store.settle(first) == [first[0]]
    assert await store.settle(second) == second


async def test_what_rests_is_given_to_nobody_until_then_unless_it_is_marked_meanwhile(store):
    await store.mark_due([(GENERAL, B), (ANN, B), (DOC, B)])
    read = await store.due(2, 100)
    await store.mark_due([(ANN, A)])
    await store.hold([*read, Due(Sequence("W", "channel", "C9"), 1, A)], 200)
    assert named(await store.due(9, 199)) == [ANN, DOC]
    assert named(await store.due(9, 200)) == [GENERAL, ANN, DOC]


async def test_a_mark_that_comes_while_its_sequence_is_held_is_free_when_the_holder_lets_it_rest(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    read = await store.due(9, 100, 60)
    await store.mark_due([(ANN, A)])
    await store.hold(read, 102)
    assert named(await store.due(9, 101)) == [ANN]
    assert named(await store.due(9, 102)) == [GENERAL, ANN]


async def test_resting_may_be_longer_or_shorter_than_the_lease(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    (one, other) = await store.due(9, 100, 10)
    await store.hold([one], 102)
    await store.hold([other], 120)
    assert named(await store.due(9, 103)) == [GENERAL]
    assert named(await store.due(9, 115)) == [GENERAL]
    assert named(await store.due(9, 120)) == [GENERAL, ANN]


async def test_what_rests_is_due_from_where_it_was_said_to_be(store):
    await store.mark_due([(GENERAL, B), (GENERAL, A)], "open")
    (one,) = await store.due(10, 100, 60, "open")
    assert one.earliest == A
    await store.hold([msgspec.structs.replace(one, earliest=C)], 120, "open")
    assert await store.due(10, 110, 60, "open") == []
    (again,) = await store.due(10, 120, 60, "open")
    assert (again.earliest, again.generation) == (C, one.generation)
    await store.mark_due([(GENERAL, B)], "open")
    await store.hold([msgspec.structs.replace(again, earliest=A)], 200, "open")  # a newer mark stands, and is let go
    (newest,) = await store.due(10, 130, 60, "open")
    assert newest.earliest == B


async def test_the_oldest_mark_comes_first_although_it_was_held(store):
    await store.mark_due([(GENERAL, A)])
    await store.mark_due([(ANN, A)])
    await store.due(1, 100, 5)
    assert named(await store.due(1, 106, 5)) == [GENERAL]
    assert named(await store.due(2, 112, 5)) == [GENERAL, ANN]


async def test_a_rebuild_lets_go_of_what_is_held(store):
    await store.mark_due([(GENERAL, A)])
    await store.due(9, 100, 60)
    await store.clear()
    await store.mark_due([(GENERAL, A)])
    assert named(await store.due(9, 101)) == [GENERAL]


# ---------------------------------------------------------------------------------------------------------- queues


async def test_a_sequence_waits_in_each_queue_on_its_own(store):
    await store.mark_due([(GENERAL, B), (ANN, B)])
    await store.mark_due([(DOC, A), (GENERAL, A)], queue=WORDS)
    assert [(mark.sequence, mark.earliest) for mark in await store.due(9)] == [(GENERAL, B), (ANN, B)]
    words = await store.due(9, queue=WORDS)
    assert [(mark.sequence, mark.earliest) for mark in words] == [(DOC, A), (GENERAL, A)]
    assert await store.due(9, queue=OPEN) == []
    assert await store.settle(words, queue=WORDS) == []
    assert await store.settle(words, queue=WORDS) == words
    assert (named(await store.due(9)), await store.due(9, queue=WORDS)) == ([GENERAL, ANN], [])


async def test_counts_say_how_many_sequences_are_in_each_queue(store):
    for number, queue in enumerate(QUEUES):
        await store.mark_due([(Sequence("W", "channel", f"C{n}"), A) for n in range(number)], queue)
    counts = await store.counts()
    assert [counts[queue] for queue in QUEUES] == list(range(len(QUEUES)))
    await store.clear()
    assert not any((await store.counts()).values())
    assert [await store.due(9, queue=queue) for queue in QUEUES] == [[]] * len(QUEUES)


async def test_what_is_held_in_one_queue_is_free_in_another(store):
    for queue in (SUMMARIES, CHANGED):
        await store.mark_due([(GENERAL, A)], queue=queue)
    assert named(await store.due(9, 100, 10, CHANGED)) == [GENERAL]
    assert await store.due(9, 105, 10, CHANGED) == []
    (free,) = await store.due(9, 105)
    await store.hold([free], 200)
    assert await store.due(9, 150) == []
    assert named(await store.due(9, 150, queue=CHANGED)) == [GENERAL]


@pytest.mark.parametrize("queue", [SUMMARIES, TOUCHED])
async def test_a_newer_mark_of_a_queue_is_settled_by_nobody_and_rests_no_more(store, queue):
    await store.mark_due([(GENERAL, B), (ANN, B)], queue)
    taken = await store.due(9, 100, 60, queue)
    await store.mark_due([(GENERAL, A)], queue)
    assert await store.settle(taken[:1], queue) == []
    assert [mark.earliest for mark in await store.due(1, 101, 0.0, queue)] == [A]
    await store.hold(taken, 300, queue)
    assert GENERAL in named(await store.due(9, 150, 0.0, queue))


@pytest.mark.parametrize("queue", [SUMMARIES, OPEN])
async def test_a_mark_may_say_until_when_it_rests(store, queue):
    await store.mark_due([(ANN, A)], queue=queue)
    await store.mark_due([(GENERAL, B), (DOC, B)], queue=queue, until=160.5)
    assert named(await store.due(9, 160, queue=queue)) == [ANN]
    assert (await store.counts())[queue] == 3
    assert named(await store.due(9, 160.5, queue=queue)) == [ANN, GENERAL, DOC]


async def test_a_rest_is_put_off_or_shortened_by_the_next_mark_that_says_one(store):
    await store.mark_due([(GENERAL, B), (ANN, B)], queue=OPEN, until=110)
    await store.mark_due([(GENERAL, A)], queue=OPEN, until=200)
    await store.mark_due([(ANN, A)], queue=OPEN, until=105)
    assert named(await store.due(9, 104, queue=OPEN)) == []
    assert named(await store.due(9, 105, queue=OPEN)) == [ANN]
    assert named(await store.due(9, 199, queue=OPEN)) == [ANN]
    assert [mark.earliest for mark in await store.due(9, 200, queue=OPEN)] == [A, A]


async def test_a_mark_with_a_rest_takes_the_sequence_from_whoever_holds_it(store):
    await store.mark_due([(GENERAL, B)], queue=OPEN)
    taken = await store.due(9, 100, 500, OPEN)
    await store.mark_due([(GENERAL, B)], queue=OPEN, until=150)
    assert await store.due(9, 149, queue=OPEN) == []
    (again,) = await store.due(9, 150, queue=OPEN)
    assert again.generation > taken[0].generation


async def test_what_is_given_when_its_rest_is_over_is_held_as_anything_else(store):
    await store.mark_due([(GENERAL, B)], queue=OPEN, until=150)
    (taken,) = await store.due(9, 150, 10, OPEN)
    assert await store.due(9, 159, 10, OPEN) == []
    assert await store.settle([taken], queue=OPEN) == []
    assert await store.due(9, 500, queue=OPEN) == []


async def test_a_mark_read_in_one_queue_settles_nothing_in_another(store):
    await store.mark_due([(GENERAL, A)], queue=WORDS)
    await store.mark_due([(GENERAL, A)], queue=CHANGED)
    read = await store.due(9, queue=WORDS)
    await store.settle(read, queue=CHANGED)
    await store.settle(read)
    assert named(await store.due(9, queue=WORDS)) == named(await store.due(9, queue=CHANGED)) == [GENERAL]


# ------------------------------------------------------------------------------------------ redactions, summaries


async def test_redactions_are_numbered_by_sequence_and_the_newest_stands_for_each_leaf(store):
    await store.redact([(GENERAL, B), (GENERAL, A), (ANN, A)])
    await store.redact([(GENERAL, B)])
    await store.redact([(GENERAL, A)])
    assert await store.redactions([GENERAL, ANN, DOC]) == [
        (Redaction(A, 4), Redaction(B, 3)),
        (Redaction(A, 1),),
        (),
    ]


async def test_summaries_are_kept_replaced_and_dropped_by_node(store):
    nodes = [NodeId(GENERAL, 1, 0), NodeId(GENERAL, 1, 1), NodeId(GENERAL, 2, 0), NodeId(Sequence("W", "x", "U"), 0, 1)]
    await store.keep([summary(node) for node in nodes])
    await store.keep([summary(nodes[0], "said more", 3)])
    await store.drop([nodes[1], NodeId(DOC, 1, 0)])
    await store.drop([nodes[1]])
    expected = [summary(nodes[0], "said more", 3), None, summary(nodes[2]), summary(nodes[3]), None]
    assert await store.summaries([*nodes, NodeId(DOC, 1, 0)]) == expected
    assert (await store.counts())["summaries"] == 3


async def test_a_dropped_summary_can_be_kept_again(store):
    node = NodeId(GENERAL, 1, 0)
    await store.keep([summary(node)])
    await store.settle([])
    await store.drop([node])
    assert await store.summaries([node]) == [None]
    await store.keep([summary(node, "anew")])
    assert await store.summaries([node]) == [summary(node, "anew")]


async def test_paid_texts_are_kept_across_a_rebuild(store):
    texts = {"d/channel/m/1": Paid('text ☃ "quoted"', ("W/C1/a", "é")), "k2": Paid("", ())}
    await store.cache(texts)
    await store.clear()
    assert await store.cached(["d/channel/m/1", "k3", "k2"]) == [texts["d/channel/m/1"], None, texts["k2"]]
    assert (await store.counts())["cached_texts"] == 2


async def test_a_text_cached_again_replaces_the_one_before(store):
    await store.cache({"k": Paid("one", ("W/C1/a",))})
    await store.cache({"k": Paid("two", ("W/C1/b",)), "l": Paid("three", ())})
    assert await store.cached(["k", "l"]) == [Paid("two", ("W/C1/b",)), Paid("three", ())]


# -------------------------------------------------------------------------------------------------------- wordings

NODES = [NodeId(GENERAL, 1, 0), NodeId(GENERAL, 1, 1), NodeId(ANN, 1, 0), NodeId(DOC, 2, 0)]


async def test_wordings_are_kept_replaced_and_forgotten_by_node(store):
    await store.keep([summary(node) for node in NODES])
    assert await store.word([wording(node) for node in NODES]) == [True] * 4
    anew = wording(NODES[0], "They agreed ☃.", key="e/channel/m/1")
    assert await store.word([anew]) == [True]
    await store.unword([NODES[1], NodeId(DOC, 9, 9)])
    await store.unword([NODES[1]])
    await store.unword([])
    asked = [NODES[3], NODES[1], NODES[0], NodeId(DOC, 9, 9)]
    assert await store.wordings(asked) == [wording(NODES[3]), None, anew, None]
    counts = await store.counts()
    assert (counts["summaries"], counts["wordings"]) == (4, 3)


async def test_a_wording_with_a_fault_is_kept_as_it_is(store):
    failed = msgspec.structs.replace(wording(NODES[0], ""), fault="refused", tokens=0)
    await store.keep([summary(NODES[0])])
    assert await store.word([failed]) == [True]
    assert await store.wordings(NODES[:1]) == [failed]


async def test_summaries_kept_anew_leave_their_wordings(store):
    await store.keep([summary(NODES[0])])
    await store.word([wording(NODES[0])])
    await store.keep([summary(NODES[0], "said more", 3)])
    assert await store.wordings(NODES[:1]) == [wording(NODES[0])]


async def test_a_node_without_a_summary_is_not_worded(store):
    await store.keep([summary(node) for node in NODES[:2]])
    await store.drop([NODES[0]])
    assert await store.word([wording(node) for node in NODES]) == [False, True, False, False]
    assert await store.wordings(NODES) == [None, wording(NODES[1]), None, None]


async def test_a_dropped_node_has_no_wording_and_finds_none_when_it_comes_again(store):
    await store.keep([summary(node) for node in NODES])
    await store.word([wording(node) for node in NODES])
    await store.drop(NODES[:2])
    await store.keep([summary(NODES[0])])
    assert await store.wordings(NODES) == [None, None, wording(NODES[2]), wording(NODES[3])]
    counts = await store.counts()
    assert (counts["summaries"], counts["wordings"]) == (3, 2)


async def test_what_was_read_before_a_deletion_is_not_written_after_it(store):
    await store.keep([summary(node) for node in NODES])
    await store.redact([(GENERAL, B), (GENERAL, A)])
    old, now, later = ([wording(NODES[0], serial=serial)] for serial in (0, 2, 3))
    assert await store.word([wording(NODES[0], serial=1), *old, wording(NODES[2])]) == [False, False, True]
    assert await store.word(now) == [True]
    assert await store.word(later) == [False]
    await store.redact([(GENERAL, B)])
    assert await store.word(now) == [False]
    assert await store.word([wording(NODES[1], serial=3), wording(NODES[0], "anew", 3)]) == [True, True]
    assert [w.serial for w in await store.wordings(NODES[:3]) if w] == [3, 3, 0]


async def test_a_rebuild_forgets_wordings_and_keeps_what_was_paid(store):
    await store.keep([summary(NODES[0])])
    await store.word([wording(NODES[0])])
    await store.cache({"d/channel/m/1": Paid("They agreed.", (A.uid,))})
    await store.clear()
    assert await store.wordings(NODES[:1]) == [None]
    assert await store.cached(["d/channel/m/1"]) == [Paid("They agreed.", (A.uid,))]
    await store.keep([summary(NODES[0])])
    assert await store.wordings(NODES[:1]) == [None]
    assert {name for name, number in (await store.counts()).items() if number} == {"summaries", "cached_texts"}


async def test_many_nodes_are_worded_at_once(store):
    many = [NodeId(s, level, n) for s in (GENERAL, ANN, DOC) for level in (1, 2) for n in range(300)]
    await store.keep([summary(node) for node in many[::2]])
    assert await store.word([wording(node, f"{node.index}") for node in many]) == [True, False] * (len(many) // 2)
    found = await store.wordings(many)
    assert [w.text if w else None for w in found] == [None if n % 2 else str(m.index) for n, m in enumerate(many)]
    assert (await store.counts())["wordings"] == len(many) // 2


# ------------------------------------------------------------------------------------------- offsets and the whole


async def test_offsets_are_kept_by_name_and_never_go_back(store):
    assert await store.applied("structure") == {}
    await store.advance("structure", {0: 7})
    await store.advance("index", {0: 3})
    await store.advance("structure", {0: 5})
    assert (await store.applied("structure"), await store.applied("index")) == ({0: 7}, {0: 3})


async def test_in_each_partition_the_greater_position_stands(store):
    await store.advance("structure", {0: 7, 11: 3})
    await store.advance("structure", {0: 5, 11: 4, 2: 2**53 - 1})
    await store.advance("structure", {})
    assert await store.applied("structure") == {0: 7, 2: 2**53 - 1, 11: 4}
    assert await store.applied("struct") == {}


async def fill(store) -> None:
    await store.register([version("1"), version("2", text="new")])
    await store.enter([Entry(GENERAL, A), Entry(GENERAL, B), Entry(ANN, A), Entry(DOC, A)])
    await store.link([Answering("W/C1/root", B)])
    await store.learn([user("1", "Ann"), reaction("+1")])
    await store.mark_due([(GENERAL, A)])
    await store.redact([(GENERAL, A)])
    await store.keep([summary(NodeId(GENERAL, 1, 0))])
    (known,) = await store.redactions([GENERAL])
    await store.word([wording(NodeId(GENERAL, 1, 0), serial=known[0].serial)])
    await store.mark_due([(GENERAL, A)], queue=WORDS)
    await store.advance("structure", {0: 9})


async def test_a_rebuild_starts_from_nothing(store):
    await fill(store)
    await store.clear()
    assert await rows(store) == []
    assert not any((await store.counts()).values())
    assert await store.versions([A.uid]) == [()]
    assert await store.placements([A.uid]) == [()]
    assert await store.redactions([GENERAL]) == [()]
    assert await store.summaries([NodeId(GENERAL, 1, 0)]) == [None]
    assert await store.wordings([NodeId(GENERAL, 1, 0)]) == [None]
    assert await store.applied("structure") == {}
    await fill(store)
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(A, B)]
    assert await store.applied("structure") == {0: 9}


async def test_counts_name_everything(store):
    await fill(store)
    assert await store.counts() == {
        "messages": 1,
        "versions": 2,
        "leaves": 4,
        "sequences": 3,
        "channel_trees": 1,
        "actor_trees": 1,
        "artifact_sequences": 1,
        "answers": 1,
        "facts": 1,
        "reactions": 1,
        **dict.fromkeys(QUEUES, 0),
        "due": 1,
        "words": 1,
        "redactions": 1,
        "summaries": 1,
        "wordings": 1,
        "cached_texts": 0,
        "groupings": 0,
    }


async def test_checksums_see_registers_sequences_answers_and_facts_only(store):
    await fill(store)
    before = await rows(store)
    assert sorted(name for name, _ in before) == ["answering", *["entry"] * 4, *["fact"] * 2, *["version"] * 2]
    await store.mark_due([(GENERAL, B)])
    await store.redact([(GENERAL, B)])
    await store.drop([NodeId(GENERAL, 1, 0)])
    await store.mark_due([(GENERAL, B)], queue=WORDS)
    await store.cache({"k": Paid("t", ())})
    await store.advance("index", {0: 4})
    assert await rows(store) == before


async def test_checksums_are_those_of_the_model(store):
    model = MemoryStructure()
    await fill(model)
    await fill(store)
    assert await rows(store) == await rows(model)


async def test_writing_while_checksums_are_read_is_no_fault(store):
    await fill(store)
    async for _ in store.everything():
        await fill(store)
        await store.enter([Entry(Sequence("W", "channel", str(time.monotonic_ns())), A)])


async def test_every_order_of_writes_ends_the_same(store):
    writes = [
        lambda s: s.register([version("1")]),
        lambda s: s.register([version("1", deleted=True), version("1", digest="z")]),
        lambda s: s.enter([Entry(GENERAL, B), Entry(ANN, Leaf(11, A.uid))]),
        lambda s: s.enter([Entry(GENERAL, Leaf(1, B.uid)), Entry(ANN, A)]),
        lambda s: s.link([Answering("W/C1/root", B), Answering("W/C1/root", Leaf(3, B.uid))]),
        lambda s: s.learn([user("1", "Ann"), reaction("+1")]),
        lambda s: s.learn([user("1", "Zoe"), reaction("+1", present=False)]),
    ]
    model = MemoryStructure()
    for write in writes:
        await write(model)
    expected = await rows(model)
    for order in random.Random(7).sample(list(itertools.permutations(writes)), 12):
        await store.clear()
        for write in (*order, order[0]):
            await write(store)
        assert await rows(store) == expected


@settings(max_examples=60, deadline=None)
@given(
    entered=st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abcdefgh")), max_size=40),
    asked=st.lists(st.tuples(st.integers(-3, 14), st.integers(-3, 14)), min_size=1, max_size=6),
)
def test_ranks_and_windows_are_those_of_a_plain_sorted_list(entered, asked):
    async def compare() -> None:
        store, earliest = MemoryStructure(), dict[str, int]()
        for ts, uid in entered:
            await store.enter([Entry(GENERAL, Leaf(ts, uid))])
            earliest[uid] = min(ts, earliest.get(uid, ts))
            plain = sorted(Leaf(ts, uid) for uid, ts in earliest.items())
            assert await store.ranks([(GENERAL, Leaf(ts, uid))]) == [sum(leaf < Leaf(ts, uid) for leaf in plain)]
            assert await store.placements([uid]) == [
                (Stand(GENERAL, plain.index(Leaf(earliest[uid], uid)), len(plain)),)
            ]
        plain = sorted(Leaf(ts, uid) for uid, ts in earliest.items())
        spans = [Span(GENERAL, start, stop) for start, stop in asked]
        assert await store.leaves(spans) == [tuple(plain[max(a, 0) : max(b, 0)]) for a, b in asked]

    asyncio.run(compare())


# ------------------------------------------------------------------------------------------------ the file and kills


async def test_a_store_is_held_by_one_process(tmp_path):
    held = SqliteStructure(tmp_path / "s")
    with pytest.raises(MemoryHeldError, match="open in another process"):
        SqliteStructure(tmp_path / "s")
    held.close()
    SqliteStructure(tmp_path / "s").close()


async def test_what_no_offset_covers_may_be_lost_but_only_as_a_whole(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await fill(store)
    covered = await rows(store)
    await store.enter([Entry(GENERAL, C)])
    store._file.close()
    store = SqliteStructure(tmp_path / "s")
    assert await rows(store) == covered
    assert await store.applied("structure") == {0: 9}
    store.close()


async def test_queues_wordings_and_paid_texts_are_there_when_the_file_is_opened_again(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await fill(store)
    await store.mark_due([(ANN, B), (GENERAL, A)], queue=OPEN, until=500)
    await store.mark_due([(DOC, A)], queue=OPEN)
    await store.cache({"k": Paid("paid", (A.uid,))})
    waiting = [await store.due(9, 1000, queue=queue) for queue in QUEUES]
    store.close()
    store = SqliteStructure(tmp_path / "s")
    assert [await store.due(9, 1000, queue=queue) for queue in QUEUES] == waiting
    assert named(await store.due(9, 1, queue=OPEN)) == [ANN, GENERAL, DOC], "nobody holds what is opened"
    assert await store.wordings([NodeId(GENERAL, 1, 0)]) == [wording(NodeId(GENERAL, 1, 0), serial=1)]
    assert await store.cached(["k"]) == [Paid("paid", (A.uid,))]
    assert await store.settle(waiting[QUEUES.index(OPEN)], queue=OPEN) == []
    await store.unword([NodeId(GENERAL, 1, 0)])
    store.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.due(9, queue=OPEN) == []
    assert (await store.wordings([NodeId(GENERAL, 1, 0)]), (await store.counts())["words"]) == ([None], 1)
    store.close()


async def test_a_paid_text_is_on_the_disk_when_cache_returns(tmp_path):
    store, said = SqliteStructure(tmp_path / "s"), list[str]()
    store._file._db.set_trace_callback(said.append)
    await store.enter([Entry(GENERAL, A)])
    await store.cache({"k": Paid("paid", ())})
    store._file._db.set_trace_callback(None)
    told = [line for line in said if line.startswith(("PRAGMA", "COMMIT"))]
    assert told == ["PRAGMA synchronous = FULL", "COMMIT", "PRAGMA synchronous = NORMAL"]
    store._file.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.cached(["k"]) == [Paid("paid", ())]
    store.close()


async def test_a_file_from_before_wordings_opens_and_takes_them(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await store.enter([Entry(GENERAL, A)])
    await store.mark_due([(GENERAL, A)])
    await store.keep([summary(NodeId(GENERAL, 1, 0))])
    store.close()
    with sqlite3.connect(tmp_path / "s") as db:
        db.execute("DROP TABLE wording")
        db.execute("DROP TABLE queued")
        former = ("x/extractive", '{"text":"as said","picks":["W/C1/a"]}')
        db.execute("INSERT INTO text VALUES (?, ?)", former)
    db.close()
    store = SqliteStructure(tmp_path / "s")
    assert named(await store.due(9)) == [GENERAL]
    assert await store.cached([former[0]]) == [None]
    await store.word([wording(NodeId(GENERAL, 1, 0))])
    await store.mark_due([(ANN, A)], queue=WORDS)
    store.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.wordings([NodeId(GENERAL, 1, 0)]) == [wording(NodeId(GENERAL, 1, 0))]
    assert named(await store.due(9, queue=WORDS)) == [ANN]
    assert [said async for key, said in store.generated() if key == former[0]] == [Paid(former[1], ())]
    store.close()


async def test_a_sequence_that_only_waits_or_is_only_worded_keeps_its_number(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await store.keep([summary(NODES[2])])
    await store.word([wording(NODES[2])])
    await store.mark_due([(DOC, A)], queue=WORDS)
    store.write_anew()
    store.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.wordings([NODES[2]]) == [wording(NODES[2])]
    assert named(await store.due(9, queue=WORDS)) == [DOC]
    store.close()


async def test_many_pending_rows_are_committed_without_an_offset(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "PENDING", 10)
    store = SqliteStructure(tmp_path / "s")
    await store.enter([Entry(GENERAL, Leaf(n, f"W/C1/{n}")) for n in range(25)])
    store._file.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.sizes([GENERAL]) == [20]
    store.close()


async def test_a_commit_that_fails_keeps_everything_for_the_next(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await store.advance("structure", {0: 1})
    await store.enter([Entry(GENERAL, Leaf(n, f"W/C1/{n}")) for n in range(5000)])
    pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
    store._file._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(TransientError, match="full"):
        await store.advance("structure", {0: 2})
    store._file._db.execute("PRAGMA max_page_count = 1000000")
    await store.advance("structure", {0: 2})
    store._file.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.sizes([GENERAL]) == [5000]
    assert await store.applied("structure") == {0: 2}
    store.close()


async def test_a_damaged_file_is_named(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    await store.enter([Entry(GENERAL, Leaf(n, f"W/C1/{n}")) for n in range(5000)])
    store.close()
    whole = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    with pytest.raises(MemoryFormatError, match="is damaged"):
        SqliteStructure(tmp_path / "s")


async def test_a_file_with_a_row_that_cannot_be_read_is_named(tmp_path):
    SqliteStructure(tmp_path / "s").close()
    db = sqlite3.connect(tmp_path / "s")
    db.execute("INSERT INTO fact VALUES (x'01', x'c1')")
    db.commit()
    db.close()
    with pytest.raises(MemoryFormatError, match="cannot be read"):
        SqliteStructure(tmp_path / "s")


GROWER = """
import asyncio, sys
from streammem.backends.sqlite import SqliteStructure
from streammem.records import Entry, Leaf, Sequence, Version

async def main():
    store, n, sequence = SqliteStructure(sys.argv[1]), 0, Sequence("W", "channel", "C")
    while True:
        uids = [f"W/C/{n + i}" for i in range(5)]
        await store.register([Version(uid, "1", False, "h", "W", "C", uid, 1, 1, "U", "x" * 99) for uid in uids])
        await store.enter([Entry(sequence, Leaf(n, uid)) for uid in uids])
        await store.mark_due([(sequence, Leaf(n, uids[0]))])
        n += len(uids)
        await store.advance("structure", {0: n})
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("seconds", [0.0, 0.019, 0.083])
async def test_after_a_kill_the_effects_up_to_the_offset_are_there(killed_after, tmp_path, seconds):
    acknowledged = [int(line) for line in killed_after(GROWER, tmp_path / "s", seconds)]
    store = SqliteStructure(tmp_path / "s", create=False)
    applied = (await store.applied("structure"))[0]
    assert applied >= acknowledged[-1]
    assert await store.sizes([Sequence("W", "channel", "C")]) == [applied]
    assert all(await store.versions([f"W/C/{n}" for n in range(applied)]))
    assert (await store.counts())["versions"] == applied
    assert [mark.earliest for mark in await store.due(9)] == [Leaf(0, "W/C/0")]
    store.close()


async def test_texts_are_named_by_what_they_were_made_from_and_none_before_that(store):
    low, high, other = "aa/channel/m/1", "bb/channel/m/1", "cc/channel/m/1"
    await store.cache(
        {
            high: Paid("both", (low,)),
            low: Paid("one", ("W/C1/a", "W/C1/b")),
            other: Paid("other", ("W/C1/c",), ("W/C1/a",)),
        }
    )
    found = await store.texts_of(["W/C1/a"])
    assert (sorted(found[:2]), found[2:]) == ([low, other], [high])
    assert await store.texts_of([low]) == [high]
    assert await store.texts_of(["W/C1/z"]) == []
