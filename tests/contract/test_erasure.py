"""What erasure relies on in a structure store: what leaves it leaves no trace, and marks stay for ever."""

import sqlite3
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streammem.backends.memory import MemoryStructure
from streammem.backends.sqlite import SqliteStructure
from streammem.core import routing
from streammem.core.erasure import user_mark
from streammem.core.events import uid
from streammem.ports import Span, Stand
from streammem.records import (
    Answering,
    AttributeEvent,
    ChannelEvent,
    Entry,
    GroupEvent,
    Leaf,
    MembershipEvent,
    NodeId,
    Paid,
    ReactionEvent,
    Redaction,
    Sequence,
    Summary,
    TieEvent,
    UserEvent,
    Version,
    Wording,
)
from tests.strategies import UIDS, WORKSPACE, facts, versions

GENERAL = Sequence("W", "channel", "C1")
ANN = Sequence("W", "actor", "U1", "authored", "C1")
DOC = Sequence("W", "artifact", "DOC-1")
A, B, C = Leaf(10, "W/C1/a"), Leaf(20, "W/C1/b"), Leaf(20, "W/C1/c")


def version(leaf: Leaf, text: str = "ok", number: str = "1") -> Version:
    id_ = leaf.uid[-1]
    return Version(
        leaf.uid,
        number,
        deleted=False,
        hash="h",
        workspace="W",
        channel="C1",
        id=id_,
        ts=leaf.ts,
        since=leaf.ts,
        user="U1",
        text=text,
    )


def reaction(message: str, user: str = "U1", name: str = "+1") -> ReactionEvent:
    return ReactionEvent(workspace="W", channel="C1", message=message, name=name, user=user)


def summary(text: str, index: int = 0) -> Summary:
    node = NodeId(GENERAL, 1, index)
    return Summary(node, text, A, B, 2, "d", ("C1",), (), 20, 0, is_root=True, vector=b"\x00\x01\xff", picks=(A.uid,))


def wording(text: str, index: int = 0) -> Wording:
    return Wording(NodeId(GENERAL, 1, index), f"key {index}", text, A, B, 2, "d", ("C1",), 20, 0, "m/1")


async def rows(store) -> list[tuple[str, bytes]]:
    return sorted([row async for row in store.everything()])


async def whole(store) -> dict[str, object]:
    """Everything in a store that tells whether a message was ever there."""
    workspaces = await store.workspaces()
    return {
        "rows": await rows(store),
        "workspaces": workspaces,
        "sequences": [await store.sequences(workspace) for workspace in workspaces],
        "counts": await store.counts(),
        "versions": [sorted(found, key=lambda v: v.key) for found in await store.versions(UIDS)],
        "placements": await store.placements(UIDS),
        "answers": await store.answers(UIDS),
    }


# ------------------------------------------------------------------------------------------------- without a trace


async def fill(store, said, learnt) -> None:
    await store.register(said)
    await store.enter(routing.entries_of(said))
    await store.link(routing.answerings_of(said))
    await store.learn(learnt)


async def erase(store, uids, cut: int) -> None:
    """As an erasure does, which may break off after so many steps."""
    placed = await store.placements(uids)
    known = [version for some in await store.versions(uids) for version in some]
    leaves = [(stand.sequence, one) for one, stands in zip(uids, placed, strict=True) for stand in stands]
    steps = [
        lambda: store.withdraw(leaves[::2]),
        lambda: store.withdraw(leaves),
        lambda: store.unlink([(target, v.uid) for v in known for target in routing.targets_of(v)]),
        lambda: store.strike(uids[::2]),
        lambda: store.strike(uids),
    ]
    for step in steps[:cut]:
        await step()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    said=st.lists(versions(), max_size=12),
    learnt=st.lists(facts(), max_size=6),
    doomed=st.lists(st.sampled_from(UIDS), min_size=1, max_size=8, unique=True),
    cut=st.integers(0, 5),
)
async def test_what_is_erased_was_never_there(store, said, learnt, doomed, cut):
    await store.clear()
    await fill(store, said, learnt)
    if cut % 2:
        await whole(store)
    for steps in (cut, 5, 5):
        await erase(store, doomed, steps)
    never = MemoryStructure()
    left = [f for f in learnt if not (isinstance(f, ReactionEvent) and uid(WORKSPACE, f.channel, f.message) in doomed)]
    await fill(never, [v for v in said if v.uid not in doomed], left)
    expected = await whole(never)
    assert await whole(store) == expected
    await fill(store, said, learnt)
    await fill(never, said, learnt)
    assert await whole(store) == await whole(never)


async def test_what_is_unknown_is_erased_without_a_fault(store):
    await store.enter([Entry(GENERAL, A)])
    await store.learn([reaction("a"), UserEvent(workspace="W", id="U2")])
    before = await whole(store), await store.facts_generation("W")
    for _ in range(2):
        await store.withdraw([(DOC, A.uid), (GENERAL, B.uid), (Sequence("V", "channel", "C"), "V/C/x")])
        await store.unlink([("W/C1/root", A.uid), ("", "")])
        await store.strike([B.uid, "nobody", "", "a/b/c/d", "W"])
        await store.unlearn("W", "U9")
        await store.unlearn("V", "U2")
        await store.uncache([A.uid])
        for nothing in (store.withdraw, store.unlink, store.strike, store.uncache, store.forbid):
            await nothing([])
    assert (await whole(store), await store.facts_generation("W")) == before
    assert await store.workspaces() == ["W"]


# ------------------------------------------------------------------------------------------- sequences and answers


async def test_a_withdrawn_message_stands_where_else_it_stood(store):
    await store.enter([Entry(s, leaf) for s in (GENERAL, ANN, DOC) for leaf in (A, B)])
    await store.withdraw([(GENERAL, A.uid), (DOC, A.uid)])
    assert await store.placements([A.uid, B.uid]) == [
        (Stand(ANN, 0, 2),),
        (Stand(ANN, 1, 2), Stand(DOC, 0, 1), Stand(GENERAL, 0, 1)),
    ]
    assert await store.leaves([Span(s, 0, 9) for s in (GENERAL, ANN, DOC)]) == [(B,), (A, B), (B,)]
    assert await store.ranks([(GENERAL, B)]) == [0]
    assert (await store.counts())["leaves"] == 4


async def test_a_sequence_without_leaves_is_no_more_until_one_enters(store):
    await store.enter([Entry(s, A) for s in (GENERAL, ANN, DOC)])
    await store.withdraw([(GENERAL, A.uid), (ANN, A.uid)])
    assert await store.sequences("W") == [DOC]
    assert await store.sizes([GENERAL, ANN, DOC]) == [0, 0, 1]
    counts = await store.counts()
    assert (counts["sequences"], counts["channel_trees"], counts["actor_trees"], counts["leaves"]) == (1, 0, 0, 1)
    await store.enter([Entry(GENERAL, C)])
    assert await store.sequences("W") == [DOC, GENERAL]
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(C,)]


async def test_a_message_that_was_withdrawn_may_enter_with_a_later_time(store):
    await store.enter([Entry(GENERAL, A), Entry(GENERAL, B)])
    await store.withdraw([(GENERAL, A.uid)])
    late = Leaf(30, A.uid)
    await store.enter([Entry(GENERAL, late)])
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(B, late)]


async def test_a_workspace_is_named_as_long_as_it_has_a_leaf_a_fact_or_a_reaction(store):
    await store.enter([Entry(GENERAL, A)])
    await store.learn([reaction("a"), UserEvent(workspace="W", id="U1"), UserEvent(workspace="W2", id="U1")])
    for forget in (
        lambda: store.withdraw([(GENERAL, A.uid)]),
        lambda: store.unlearn("W", "nobody"),
        lambda: store.strike([A.uid]),
    ):
        await forget()
        assert await store.workspaces() == ["W", "W2"]
    await store.unlearn("W", "U1")
    assert await store.workspaces() == ["W2"]
    await store.learn([reaction("a")])
    assert await store.workspaces() == ["W", "W2"]
    await store.strike([A.uid])
    assert await store.workspaces() == ["W2"]


async def test_who_answered_is_unlinked_and_the_others_stay(store):
    await store.link([Answering("W/C1/root", A), Answering("W/C1/root", B), Answering(B.uid, A)])
    await store.unlink([("W/C1/root", A.uid), (B.uid, A.uid)])
    assert await store.answers(["W/C1/root", B.uid]) == [(B,), ()]
    assert (await store.counts())["answers"] == 1
    await store.link([Answering(B.uid, A)])
    assert await store.answers([B.uid]) == [(A,)]


async def test_what_is_struck_leaves_its_sequences_too_and_keeps_marks_and_redactions(store):
    await store.register([version(A), version(A, "edited", "2"), version(B)])
    await store.enter([Entry(GENERAL, A), Entry(GENERAL, B), Entry(DOC, A)])
    await store.learn([reaction("a"), reaction("a", "U2"), reaction("b")])
    await store.mark_due([(DOC, A)])
    await store.redact([(DOC, A)])
    await store.strike([A.uid])
    assert await store.versions([A.uid, B.uid]) == [(), (version(B),)]
    assert await store.leaves([Span(GENERAL, 0, 9)]) == [(B,)]
    assert await store.sequences("W") == [GENERAL]
    assert await store.reactions("W", "C1", "a") == []
    assert await store.reactions("W", "C1", "b") == [reaction("b")]
    assert [mark.earliest for mark in await store.due(9)] == [A]
    assert await store.redactions([DOC]) == [(Redaction(A, 1),)]
    counts = await store.counts()
    assert {name: counts[name] for name in ("messages", "versions", "leaves", "reactions")} == {
        "messages": 1,
        "versions": 1,
        "leaves": 1,
        "reactions": 1,
    }


# --------------------------------------------------------------------------------------------------------- a user


async def test_every_fact_that_names_a_user_is_forgotten(store):
    group = GroupEvent(workspace="W", id="G", members=("U2", "U1"))
    of_user = [
        UserEvent(workspace="W", id="U1", name="Ann"),
        AttributeEvent(workspace="W", entity="user", id="U1", attribute="title", value="Lead"),
        MembershipEvent(workspace="W", channel="C1", user="U1"),
        TieEvent(workspace="W", entity="user", id="U1", same_as="U7"),
        TieEvent(workspace="W", entity="user", id="U8", same_as="U1"),
        group,
        reaction("a"),
        reaction("b", name="eyes"),
    ]
    others = [
        UserEvent(workspace="W", id="U2"),
        UserEvent(workspace="V", id="U1"),
        ChannelEvent(workspace="W", id="U1"),
        AttributeEvent(workspace="W", entity="channel", id="U1", attribute="name", value="U1"),
        TieEvent(workspace="W", entity="channel", id="U1", same_as="C"),
        GroupEvent(workspace="W", id="U1", members=("U2",)),
        MembershipEvent(workspace="W", channel="U1", user="U2"),
        reaction("a", "U2"),
        reaction("a", ""),
    ]
    without = msgspec.structs.replace(group, members=("U2",))
    managed = UserEvent(workspace="W", id="U3", manager="U1", same_as=("U1", "U4"), version="7")
    never = MemoryStructure()
    await never.learn([*others, without, msgspec.structs.replace(managed, manager=None, same_as=("U4",))])
    await store.learn([*of_user, *others, managed])
    before = await store.facts_generation("W"), await store.facts_generation("V")
    for _ in range(2):
        await store.unlearn("W", "U1")
        assert await rows(store) == await rows(never)
        assert await store.counts() == await never.counts()
    assert await store.facts_generation("W") > before[0]
    assert await store.facts_generation("V") == before[1]
    assert await store.learn([msgspec.structs.replace(without, version="1")])


async def test_the_generation_of_facts_stands_still_when_only_a_reaction_goes(store):
    await store.learn([UserEvent(workspace="W", id="U2"), reaction("a")])
    before = await store.facts_generation("W")
    await store.unlearn("W", "U1")
    assert await store.facts_generation("W") == before
    assert await store.reactions("W", "C1", "a") == []


# ----------------------------------------------------------------------------------------------------------- marks


async def test_marks_of_erasure_are_kept_for_ever(store):
    marks = ["W/C1/a", user_mark("W", "U1"), "W/C1/\N{SNOWMAN}{}"]
    await store.forbid(marks)
    await store.forbid(marks[:1])
    for _ in range(2):
        assert await store.forbidden([*marks, *marks, "W/C1/b", ""]) == set(marks)
        assert await store.forbidden(iter(["W/C1/b"])) == set()
        assert await store.forbidden([]) == set()
        assert await rows(store) == sorted(("erasure", mark.encode()) for mark in marks)
        assert await store.workspaces() == []
        await store.clear()


async def test_many_marks_are_looked_up_at_once(store):
    marks = [f"W/C1/{number}" for number in range(3000)]
    await store.forbid(marks[::2])
    assert await store.forbidden(marks) == set(marks[::2])
    assert len(await rows(store)) == 1500


# ----------------------------------------------------------------------------------------------- what was generated


def paid(*sources: str, text: str = "as said") -> Paid:
    return Paid(text, sources)


async def left(store, texts: dict[str, Paid]) -> set[str]:
    """Which of these are still in the cache, and as they were."""
    known = dict(zip(texts, await store.cached(list(texts)), strict=True))
    assert all(known[key] in (None, text) for key, text in texts.items())
    assert (await store.counts())["cached_texts"] == len(texts) - list(known.values()).count(None)
    return {key for key, text in known.items() if text is not None}


async def test_cached_texts_go_when_they_were_made_from_one_of_the_messages(store):
    odd = 'W/C1/"\N{SNOWMAN}\\'
    texts = {
        "a": paid("W/C1/m1"),
        "b": paid("W/C1/m10", "W/C1/m2"),
        "c": paid("W/C1/m3", odd),
        "d": paid(text='"'),
        "e": paid(text='m1 W/C1/m1 "W/C1/m1" and more'),
        "f": paid("x", "W/C1/m4"),
        "g": paid("1"),
    }
    await store.cache(texts)
    await store.uncache(["W/C1/m1", "W/C1/m4", odd, "m10", "C1/m2"])
    assert await left(store, texts) == {"b", "d", "e", "g"}


async def test_with_a_text_go_those_made_from_it_and_from_those_and_no_other(store):
    keys = [f"{digit * 32}/channel/gpt/x-1/v1" for digit in "abcdef"]
    low, beside, middle, top, other, apart = keys
    texts = {
        top: paid(middle, other),
        low: paid("W/C1/m1", "W/C1/m2"),
        middle: paid(beside, low),
        beside: paid("W/C1/m3"),
        other: paid("W/C1/m4"),
        apart: paid(beside, f"{low}0", low[:-1], low[1:], text=f'"{low}" {middle}'),
        'odd"\\ \N{SNOWMAN}': paid(top),
        "above it": paid('odd"\\ \N{SNOWMAN}'),
        "itself": paid("itself", "its twin"),
        "its twin": paid("itself", "W/C1/m3"),
    }
    await store.cache(texts)
    await store.uncache(["W/C1/m9", low[:32]])
    assert await left(store, texts) == set(texts)
    await store.uncache(["W/C1/m1"])
    assert await left(store, texts) == {beside, other, apart, "itself", "its twin"}
    await store.uncache(["W/C1/m3"])
    assert await left(store, texts) == {other}


async def test_a_long_chain_and_many_texts_fall_together(store):
    chain = {f"k{n}": paid(f"k{n - 1}" if n else "W/C1/m1") for n in range(12)}
    many = {f"t{n}": paid(f"W/C1/x{n}", "k0" if n % 2 else "k") for n in range(2600)}
    await store.cache(chain | many)
    await store.uncache(["W/C1/m1"])
    assert await left(store, chain | many) == {f"t{n}" for n in range(0, 2600, 2)}


async def test_what_was_generated_can_be_searched(store):
    await store.keep([summary("one"), summary("two", 1), summary("three", 2)])
    await store.word([wording("eins"), wording("zwei", 1), wording("drei", 2)])
    await store.drop([NodeId(GENERAL, 1, 1)])
    texts = {"k": paid("W/C1/a"), "l": paid(text="\N{SNOWMAN}")}
    await store.cache(texts)
    found = [
        (key, msgspec.structs.replace(said, vector=b"") if isinstance(said, Summary) else said)
        async for key, said in store.generated()
    ]
    bare = [msgspec.structs.replace(one, vector=b"") for one in (summary("one"), summary("three", 2))]
    expected = [*(("", one) for one in bare), ("key 0", wording("eins")), ("key 2", wording("drei", 2)), *texts.items()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


FORMER = '{"text":"<@U1>: as said","picks":["W/C1/a"]}'
"""What the cache held before texts were paid for."""


async def test_former_texts_count_as_absent_are_searched_as_they_are_and_go_with_their_messages(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    for key, text in (("former", FORMER), ("broken", '"'), ("other", FORMER.replace("W/C1/a", "W/C1/b"))):
        store._texts[key] = text
    await store.cache({"above": paid("former")})
    assert await store.cached(["former", "broken", "above"]) == [None, None, paid("former")]
    found = dict([row async for row in store.generated()])
    assert (found["former"], found["broken"], found["above"]) == (Paid(FORMER, ()), Paid('"', ()), paid("former"))
    await store.uncache(["W/C1/a"])
    assert {key async for key, _ in store.generated()} == {"broken", "other"}
    store.close()


class CutShort(dict[str, str]):
    """Takes out so many texts and no more."""

    room = 0

    def __delitem__(self, key: str) -> None:
        if not self.room:
            raise InterruptedError
        self.room -= 1
        super().__delitem__(key)


@pytest.mark.parametrize("room", range(5))
async def test_texts_that_were_taken_out_in_part_are_found_again(room):
    store, texts = MemoryStructure(), CutShort()
    store._texts = texts
    await store.cache({"0": paid("W/C1/m1"), "1": paid("0"), "2": paid("1"), "3": paid("2", "0")})
    texts.room = room
    with suppress(InterruptedError):
        await store.uncache(["W/C1/m1"])
    assert len(texts) == 4 - room
    texts.room = 9
    await store.uncache(["W/C1/m1"])
    assert not texts


async def test_erasing_while_checksums_are_read_is_no_fault(store):
    await store.register([version(A), version(B)])
    await store.enter([Entry(s, leaf) for s in (GENERAL, DOC) for leaf in (A, B)])
    await store.link([Answering(A.uid, B)])
    await store.learn([reaction("a"), UserEvent(workspace="W", id="U1")])
    async for _ in store.everything():
        await store.strike([A.uid])
        await store.unlink([(A.uid, B.uid)])
        await store.unlearn("W", "U1")
    assert sorted(name for name, _ in await rows(store)) == ["entry", "entry", "version"]


# ----------------------------------------------------------------------------------------------------------- files

SECRET = "a secret that nobody said"


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


async def secretly(store: SqliteStructure, count: int) -> list[str]:
    """Many messages among others, in no order, all of which hold the secret, and everything that quotes them."""
    leaves = [Leaf(n, f"W/C1/{n * 7919 % count}") for n in range(count)]
    for start in range(0, count, 100):
        said = [version(leaf, f"{SECRET} {leaf.uid}. " * (leaf.ts % 40)) for leaf in leaves[start : start + 100]]
        await store.register(said)
        await store.enter([Entry(GENERAL, leaf) for leaf in leaves[start : start + 100]])
        await store.learn([UserEvent(workspace="W", id=f"U{start}", name=f"{SECRET} {start}")])
        await store.keep([summary(f"{SECRET} {start}", start)])
        await store.keep([summary(f"renewed: {SECRET}", start)])
        await store.word([wording(f"put otherwise: {SECRET} {start}", start)])
        await store.cache({f"k{start}": paid(leaves[start].uid, text=SECRET)})
        await store.cache({f"above k{start}": paid(f"k{start}", text=SECRET)})
        await store.advance("structure", {0: start + 1})
    return [leaf.uid for leaf in leaves]


async def test_no_byte_of_what_was_erased_stays_in_the_files(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    uids = await secretly(store, 3000)
    await store.register([version(A, "what stays")])
    store.flush()
    assert SECRET.encode() in bytes_of(tmp_path)
    await store.strike(uids)
    for start in range(0, 3000, 100):
        await store.unlearn("W", f"U{start}")
    await store.uncache(uids)
    await store.drop([NodeId(GENERAL, 1, start) for start in range(0, 3000, 100)])
    store.write_anew()
    assert SECRET.encode() not in bytes_of(tmp_path)
    assert b"what stays" in bytes_of(tmp_path)
    store.close()
    assert SECRET.encode() not in bytes_of(tmp_path)
    store = SqliteStructure(tmp_path / "s")
    assert await store.versions([A.uid]) == [(version(A, "what stays"),)]
    assert await store.workspaces() == []
    assert await store.applied("structure") == {0: 2901}
    store.close()


async def test_what_was_erased_of_many_leaves_no_byte_of_it_among_the_rest(tmp_path):
    store = SqliteStructure(tmp_path / "s")
    uids = await secretly(store, 3000)
    await store.strike(uids[::3])
    store.write_anew()
    gone = [f"{SECRET} {name}. ".encode() for name in uids[::3]]
    held = bytes_of(tmp_path)
    assert not [text for text in gone if text in held]
    assert f"{SECRET} {uids[1]}. ".encode() in held
    store.close()


@pytest.mark.parametrize("verb", ["strike", "forbid"])
async def test_a_file_from_before_erasure_takes_marks(tmp_path, verb):
    store = SqliteStructure(tmp_path / "s")
    await store.enter([Entry(GENERAL, A)])
    store.close()
    with sqlite3.connect(tmp_path / "s") as db:
        db.execute("DROP TABLE erasure")
    db.close()
    store = SqliteStructure(tmp_path / "s")
    await getattr(store, verb)([A.uid])
    store.close()
    store = SqliteStructure(tmp_path / "s")
    assert await store.forbidden([A.uid]) == ({A.uid} if verb == "forbid" else set())
    assert await store.sizes([GENERAL]) == [int(verb == "forbid")]
    store.close()


async def test_a_sweep_forgets_the_names_of_trees_without_leaves_and_no_other(store):
    await store.enter([Entry(GENERAL, A), Entry(ANN, A), Entry(DOC, A), Entry(GENERAL, B)])
    await store.redact([(GENERAL, A), (DOC, A), (ANN, A)])
    await store.withdraw([(DOC, A.uid), (ANN, A.uid), (GENERAL, A.uid)])
    await store.sweep()
    kept, gone, ann = await store.redactions([GENERAL, DOC, ANN])
    assert (kept, gone, ann) == ((Redaction(A, 1),), (), ())
    assert (await store.counts())["redactions"] == 1
    await store.enter([Entry(DOC, B)])
    await store.redact([(DOC, B)])
    assert await store.redactions([DOC]) == [(Redaction(B, 1),)]


async def test_numbers_of_swept_sequences_do_not_come_again(tmp_path):
    store = SqliteStructure(tmp_path / "structure.sqlite")
    await store.enter([Entry(GENERAL, A), Entry(DOC, A)])
    await store.withdraw([(DOC, A.uid)])
    await store.sweep()
    store.write_anew()
    await store.enter([Entry(ANN, A)])
    store.close()
    again = SqliteStructure(tmp_path / "structure.sqlite", create=False)
    assert await again.sequences("W") == sorted([GENERAL, ANN])
    assert b"DOC-1" not in (tmp_path / "structure.sqlite").read_bytes()
    again.close()
