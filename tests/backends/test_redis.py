"""What only a server can do to a store: many writers at once, restarts, refusals, other people's keys."""

import asyncio
import importlib
import random
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from redis.cluster import key_slot

from streammem.backends import redis_connection
from streammem.backends.memory import MemoryStructure
from streammem.backends.redis import RedisStructure, framed
from streammem.backends.redis_beats import RedisBeats
from streammem.backends.redis_keys import home, place, sequence_of, uid_start
from streammem.core.events import content_hash, key
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.routing import targets_of
from streammem.errors import MemoryFormatError, MissingExtraError, SettingsError, TransientError
from streammem.flows.structure import grow
from streammem.ports import OPEN, QUEUES, SUMMARIES, WORDS, Span
from streammem.records import (
    Answering,
    Beat,
    Entry,
    Event,
    GroupEvent,
    Leaf,
    LogEntry,
    MessageEvent,
    NodeId,
    Paid,
    ReactionEvent,
    Sequence,
    Summary,
    UserEvent,
    Wording,
)
from tests.servers import redis_server
from tests.stories import deleted, edited, private, public, said

GENERAL = Sequence("W", "channel", "C1")
ANN = Sequence("W", "actor", "U1", "authored", "C1")
A, B = Leaf(10, "W/C1/a"), Leaf(20, "W/C1/b")


@pytest.fixture(params=[False, True], ids=["alone", "cluster"])
async def opened(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[Any]:
    """Opens stores on the same keys, as other processes would: the class may be another one."""
    url = request.getfixturevalue("redis_cluster_url" if request.param else "redis_url")
    stores: list[RedisStructure] = []

    async def open_one(kind: type[RedisStructure] = RedisStructure) -> RedisStructure:
        stores.append(await kind.open(url, redis_prefix, cluster=request.param))
        return stores[-1]

    open_one.url, open_one.prefix = url, redis_prefix
    yield open_one
    for store in stores:
        await store.close()
    redis_server.forget(url, redis_prefix)


@pytest.fixture
def client(opened: Any) -> Iterator[redis.Redis]:
    """A look behind the store."""
    with redis.Redis.from_url(opened.url) as connected:
        yield connected


def summary(node: NodeId) -> Summary:
    return Summary(node, "said little", A, B, 2, "d", ("C1",), (), 20, 0, is_root=True, vector=b"v")


def wording(node: NodeId, text: str = "They agreed.", serial: int = 0) -> Wording:
    return Wording(node, f"key of {text}", text, A, B, 2, "d", ("C1",), 20, serial, "m/1")


async def rows(store: Any) -> list[tuple[str, bytes]]:
    return sorted([row async for row in store.everything()])


# ------------------------------------------------------------------------------------------------ many at once


def history(seed: int) -> list[LogEntry]:
    """A workspace in which everything happens to everything: edits, deletions, threads, late root messages."""
    chance = random.Random(seed)
    texts = ("ok", "DOC-1 is up", "see DOC-1 and PR #2", "DOC-22 approved", "v1.2 released")
    events: list[Event] = [public(), *private("p", "ana", version="2"), public("p")]
    for number in range(150):
        reply = {"reply_to": str(chance.randrange(40))} if chance.random() < 0.5 else {}
        message = said(
            str(chance.randrange(40)),
            chance.choice(texts),
            user=chance.choice(("ana", "bob")),
            channel=chance.choice("cp"),
            mentions=chance.choice(((), ("bob",), ("cy", "ana"))),
            minute=chance.randrange(50),
            **reply,
        )
        events.append(message)
        if number % 5 == 0:
            events.append(edited(message, chance.choice(texts), 50 + chance.randrange(3)))
        if number % 9 == 0:
            events.append(deleted(message, 50 + chance.randrange(3)))
        if number % 7 == 0:
            where = {"workspace": "w", "channel": "c", "message": message.id}
            events.append(ReactionEvent(**where, name="+1", version=str(number % 3), present=chance.random() < 0.7))
    return [LogEntry(position=n, key=key(e, content_hash(e)), event=e) for n, e in enumerate(events, start=1)]


async def grown_by_many(stores: list[RedisStructure], entries: list[LogEntry]) -> None:
    """Every store takes in everything, in an order of its own, some of it twice, several batches at a time."""
    chance = random.Random(5)

    async def work(store: RedisStructure) -> None:
        mine = [*entries, *entries[::3]]
        chance.shuffle(mine)
        batches = [mine[i : i + 17] for i in range(0, len(mine), 17)]
        for several in (batches[i : i + 4] for i in range(0, len(batches), 4)):
            await asyncio.gather(*(grow(batch, store, DEFAULT_RULES) for batch in several))

    await asyncio.gather(*map(work, stores))


async def grown_in_memory(entries: list[LogEntry]) -> list[tuple[str, bytes]]:
    model = MemoryStructure()
    await grow(entries, model, DEFAULT_RULES)
    return await rows(model)


class LastWins(RedisStructure):
    """A planted fault: of the versions of a message the one that came last is kept."""

    async def register(self, versions):
        for version in versions:
            tag, id_ = home(version.uid)
            await self._redis.run([("HSET", self._key(tag, "v"), id_, framed(version))])
        await self._redis.run(self._list_channels({home(version.uid).tag for version in versions}))


class LateLeaves(RedisStructure):
    """A planted fault: of two leaves of a message the one that came last stays."""

    async def enter(self, entries):
        await super().enter(entries)
        for entry in entries:
            where = place(entry.sequence)
            zset = self._key(where.tag, "s", where.rest)
            await self._redis.run([("ZADD", zset, entry.leaf.ts, entry.leaf.uid)])


async def test_writers_of_the_same_events_in_other_orders_leave_the_same_memory(opened):
    entries = history(1)
    stores = [await opened() for _ in range(3)]
    await grown_by_many(stores, entries)
    assert await rows(stores[0]) == await grown_in_memory(entries)
    model = MemoryStructure()
    await grow(entries, model, DEFAULT_RULES)
    counted, expected = await stores[1].counts(), await model.counts()
    del counted["redactions"], expected["redactions"]  # what is redacted depends on the order
    assert counted == expected


@pytest.mark.parametrize("fault", [LastWins, LateLeaves])
async def test_the_comparison_sees_a_planted_fault(opened, fault):
    entries = history(1)
    await grown_by_many([await opened(fault) for _ in range(2)], entries)
    assert await rows(await opened()) != await grown_in_memory(entries)


class Meanwhile(RedisStructure):
    """Whenever it has looked which sequences are without leaves, or workspaces empty, somebody else does something."""

    others: tuple = ()

    async def _without_leaves(self, sequences):
        found = await super()._without_leaves(sequences)
        await self.something()
        return found

    async def _has_any(self, workspace):
        found = await super()._has_any(workspace)
        await self.something()
        return found

    async def something(self):
        if self.others:
            first, *self.others = self.others
            await first()


class LooksOnce(Meanwhile):
    """A planted fault: what was unlisted is not looked at again."""

    async def _relist(self, sequences):
        emptied = await self._without_leaves(sequences)
        await self._redis.run([("ZREM", self._key(s.workspace, "i"), place(s).listed) for s in emptied])
        await self._leave({s.workspace for s in emptied})


async def entered_while_the_last_leaves(opened, kind: type[Meanwhile], waits: int) -> list[Any]:
    """The workspaces and sequences listed after a leaf entered where the last one was leaving, after some looks."""
    erasing, growing = await opened(kind), await opened()
    await growing.enter([Entry(GENERAL, A), Entry(ANN, A)])

    async def nothing() -> None:
        pass

    erasing.others = [*[nothing] * waits, lambda: growing.enter([Entry(GENERAL, B)])]
    await erasing.withdraw([(GENERAL, A.uid), (ANN, A.uid)])
    assert not erasing.others
    return [await growing.workspaces(), await growing.sequences("W")]


@pytest.mark.parametrize("waits", range(4))
async def test_a_leaf_that_enters_while_the_last_one_is_withdrawn_is_listed(opened, waits):
    assert await entered_while_the_last_leaves(opened, Meanwhile, waits) == [["W"], [GENERAL]]


async def test_looking_once_would_lose_a_leaf_that_enters_meanwhile(opened):
    assert await entered_while_the_last_leaves(opened, LooksOnce, 0) == [[], []]


@pytest.mark.parametrize("waits", range(2))
async def test_a_fact_that_is_learnt_while_its_workspace_is_left_is_listed(opened, waits):
    erasing, growing = await opened(Meanwhile), await opened()
    await growing.learn([UserEvent(workspace="W", id="U1")])

    async def nothing() -> None:
        pass

    erasing.others = [*[nothing] * waits, lambda: growing.learn([UserEvent(workspace="W", id="U2")])]
    await erasing.unlearn("W", "U1")
    assert await growing.workspaces() == ["W"]


async def test_what_an_erasure_that_broke_off_left_unlisted_is_listed_when_it_is_repeated(opened, client):
    store = await opened()
    await store.enter([Entry(GENERAL, A), Entry(GENERAL, B)])
    client.zrem(f"{opened.prefix}:{{W}}i", place(GENERAL).listed)
    client.srem(f"{opened.prefix}:workspaces", "W")
    await store.withdraw([(GENERAL, A.uid)])
    assert await store.sequences("W") == [GENERAL]
    assert await store.workspaces() == ["W"]


async def test_a_group_that_is_learnt_without_its_member_while_that_is_forgotten_stays(opened):
    erasing, growing = await opened(), await opened()
    group = GroupEvent(workspace="W", id="G", version="1", members=("U1", "U2"))
    left = GroupEvent(workspace="W", id="G", version="2", members=("U2",))
    await growing.learn([group])
    run = erasing._redis.run

    async def late(commands):
        erasing._redis.run = run
        found = await run(commands)
        await growing.learn([left])
        return found

    erasing._redis.run = late
    await erasing.unlearn("W", "U1")
    assert await growing.facts("W") == [left]


async def test_many_that_enter_and_withdraw_at_once_leave_no_leaf_unlisted(opened):
    stores = [await opened() for _ in range(4)]
    chance = random.Random(11)
    sequences = [Sequence("W", "artifact", f"DOC-{n}") for n in range(6)]
    uids = [f"W/C1/{n}" for n in range(8)]

    async def live(store: RedisStructure, mine: list[str]) -> None:
        for _ in range(40):
            some = [(chance.choice(sequences), chance.choice(mine)) for _ in range(3)]
            if chance.random() < 0.5:
                await store.enter([Entry(sequence, Leaf(1, uid)) for sequence, uid in some])
            else:
                await store.withdraw(some)

    await asyncio.gather(*(live(store, uids[2 * n : 2 * n + 2]) for n, store in enumerate(stores)))
    sizes = await stores[0].sizes(sequences)
    standing = [sequence for sequence, size in zip(sequences, sizes, strict=True) if size]
    assert await stores[0].sequences("W") == standing
    assert (await stores[0].counts())["leaves"] == sum(sizes)
    await stores[0].strike(uids)
    assert await rows(stores[0]) == []
    assert await stores[0].workspaces() == []


async def test_marks_of_a_batch_are_looked_up_in_one_round_trip(opened):
    store = await opened()
    asked, run = [], store._redis._sent

    async def counted(commands):
        asked.append(len(commands))
        return await run(commands)

    await store.forbidden(["W/C1/a"])  # now the server knows the script
    store._redis._sent = counted
    await store.forbidden([f"W/C1/{n}" for n in range(1500)])
    assert len(asked) == 1


async def test_erasure_leaves_no_key_behind(opened, client):
    store = await opened()
    events = history(6)
    await grow(events, store, DEFAULT_RULES)
    said = {e.event.id for e in events if isinstance(e.event, MessageEvent)}
    uids = [f"w/{channel}/{id_}" for id_ in said for channel in "cp"]
    known = [version for some in await store.versions(uids) for version in some]
    await store.unlink([(target, v.uid) for v in known for target in targets_of(v)])
    await store.strike(uids)
    left = {key.rpartition(b"}")[2][:1] for key in client.scan_iter(f"{opened.prefix}:*{{w/*")}
    assert left <= {b"n", b"x"}, "counts, and redactions, which hold uids"
    assert await store.sequences("w") == []


@pytest.mark.parametrize("queue", [SUMMARIES, WORDS])
async def test_two_that_look_for_work_at_once_never_get_the_same(opened, queue):
    first, second = await opened(), await opened()
    marked = [Sequence("W", "channel", f"C{n}") for n in range(60)]
    await first.mark_due([(sequence, A) for sequence in marked], queue)
    taken = await asyncio.gather(*(store.due(3, 100, 10, queue) for _ in range(10) for store in (first, second)))
    assert sorted(mark.sequence for few in taken for mark in few) == sorted(marked)


async def test_rests_that_end_all_at_once_are_each_given_once(opened):
    store = await opened()
    resting = [Sequence("W", "channel", f"C{n}") for n in range(2500)]
    await store.mark_due([(sequence, A) for sequence in resting], OPEN, 150)
    assert await store.due(9, 149, 10, OPEN) == []
    given = []
    while taken := await store.due(700, 150, 1000, OPEN):
        given += [mark.sequence for mark in taken]
    assert sorted(given) == sorted(resting)


async def test_a_sequence_that_is_free_rests_when_a_mark_says_so_and_is_in_one_place(opened, client):
    store = await opened()
    await store.mark_due([(GENERAL, A), (ANN, A)], OPEN)
    await store.mark_due([(GENERAL, B)], OPEN, 150)
    where = [client.zrange(f"{opened.prefix}:{{open}}{part}", 0, -1) for part in ("free", "held")]
    assert where == [[place(ANN).name.encode()], [place(GENERAL).name.encode()]]


async def test_a_sequence_that_is_marked_while_it_is_held_stays_held(opened):
    store = await opened()
    await store.mark_due([(GENERAL, B)])
    (taken,) = await store.due(1, 100, 10)
    await store.mark_due([(GENERAL, A)])
    assert await store.due(9, 105) == []
    (later,) = await store.due(9, 110)
    assert later.earliest == A
    assert later.generation > taken.generation


async def test_of_many_that_settle_the_same_one_clears_it(opened):
    stores = [await opened() for _ in range(4)]
    await stores[0].mark_due([(GENERAL, A), (ANN, A)])
    read = await stores[0].due(9)
    gone = await asyncio.gather(*(store.settle(read) for store in stores))
    assert sorted(map(len, gone)) == [0, 2, 2, 2]


# ----------------------------------------------------------------------------------------------- wordings and texts

NODES = [NodeId(GENERAL, 1, n) for n in range(8)]


class LooksThenWrites(RedisStructure):
    """A planted fault: what was redacted between the look and the write is not seen."""

    async def word(self, wordings):
        marks = await self.redactions([w.node.sequence for w in wordings])
        stand = [max((m.serial for m in some), default=0) == w.serial for some, w in zip(marks, wordings, strict=True)]
        for wording, stands in zip(wordings, stand, strict=True):
            tag = place(wording.node.sequence).tag
            field = f"{place(wording.node.sequence).rest}|{wording.node.level}/{wording.node.index}"
            raw = msgspec.msgpack.encode(wording)
            await self._redis.run([("HSET", self._key(tag, "w"), field, raw)] if stands else [])
        return stand


async def left_by_writers(opened: Any, kind: type[RedisStructure]) -> tuple[int, int]:
    """How many wordings stood that were read before a redaction, once it and its unwording were done; and all that did.

    One redacts and takes wordings away, again and again; others read and word, each for several nodes, all the while.
    """
    redacting, writers = await opened(), [await opened(kind) for _ in range(4)]
    await redacting.keep([summary(node) for node in NODES])
    stood, old, done = 0, 0, asyncio.Event()

    async def write(store: RedisStructure) -> None:
        while not done.is_set():
            [[mark]] = await store.redactions([GENERAL])
            await asyncio.gather(*(store.word([wording(node, serial=mark.serial)]) for node in NODES))

    async def redact() -> None:
        nonlocal stood, old
        for serial in range(2, 150):
            await redacting.redact([(GENERAL, A)])
            await redacting.unword(NODES)
            await asyncio.sleep(0.001)
            known = [w.serial for w in await redacting.wordings(NODES) if w]
            stood, old = stood + len(known), old + sum(k < serial for k in known)
        done.set()

    await redacting.redact([(GENERAL, A)])
    await asyncio.gather(redact(), *map(write, writers))
    return old, stood


async def test_whoever_words_while_others_redact_leaves_nothing_that_was_read_before(opened):
    old, stood = await left_by_writers(opened, RedisStructure)
    assert (old, stood > 0) == (0, True)


async def test_looking_before_writing_would_leave_what_was_read_before(opened):
    old, _ = await left_by_writers(opened, LooksThenWrites)
    assert old > 0


async def test_a_wording_lists_its_node_again_when_the_index_was_lost(opened, client):
    store = await opened()
    await store.keep([summary(NODES[0])])
    client.unlink(f"{opened.prefix}:summarised")
    await store.word([wording(NODES[0])])
    assert sorted([key async for key, _ in store.generated()]) == ["", "key of They agreed."]
    counts = await store.counts()
    assert (counts["summaries"], counts["wordings"]) == (1, 1)


def shelf(prefix: str, key: str) -> str:
    return f"{prefix}:{{{zlib.crc32(key.encode()) % 64}}}texts"


async def test_former_texts_count_as_absent_are_searched_as_they_are_and_go_with_their_messages(opened, client):
    store = await opened()
    former = {name: f'{{"text":"<@U1>: as said","picks":["W/C1/{name}"]}}' for name in "ab"} | {"broken": '"'}
    for name, text in former.items():
        client.hset(shelf(opened.prefix, name), name, text)
    await store.cache({"above": Paid("said", ("a",))})
    assert await store.cached(["a", "broken", "above"]) == [None, None, Paid("said", ("a",))]
    found = dict([row async for row in store.generated()])
    assert found == {"above": Paid("said", ("a",))} | {name: Paid(text, ()) for name, text in former.items()}
    await store.uncache(["W/C1/a"])
    assert {name async for name, _ in store.generated()} == {"b", "broken"}


@pytest.mark.parametrize("room", range(4))
async def test_texts_that_were_taken_out_in_part_are_found_again(opened, room):
    store = await opened()
    texts = {"0": ("W/C1/m1",), "1": ("0",), "2": ("1", "W/C1/m2"), "3": ("2",)}
    await store.cache({key: Paid("text", sources) for key, sources in texts.items()})
    run, left = store._redis.run, room

    async def cut_short(commands):
        nonlocal left
        if any(command[0] == "HDEL" for command in commands):
            left -= 1
            if left < 0:
                raise InterruptedError
        return await run(commands)

    store._redis.run = cut_short
    with pytest.raises(InterruptedError):
        await store.uncache(["W/C1/m1"])
    store._redis.run = run
    assert (await store.counts())["cached_texts"] == 4 - room
    await store.uncache(["W/C1/m1"])
    assert (await store.counts())["cached_texts"] == 0


async def test_a_wording_takes_one_round_trip_after_its_index(opened):
    store = await opened()
    await store.keep([summary(node) for node in NODES])
    await store.word([wording(NODES[0])])  # now the server knows the script
    asked, run = [], store._redis._sent

    async def counted(commands):
        asked.append([command[0] for command in commands])
        return await run(commands)

    store._redis._sent = counted
    assert await store.word([wording(node, "anew") for node in NODES]) == [True] * len(NODES)
    assert asked == [["SADD"], ["EVALSHA"]]


# -------------------------------------------------------------------------------------------- odd names, much of all

parts = st.text(st.sampled_from("ab/{}% \n|é\U0001f4a9"), max_size=4)
some_sequences = st.builds(Sequence, parts, st.sampled_from(("channel", "actor", "artifact")), parts, parts, parts)


@given(st.lists(some_sequences, min_size=2, max_size=2, unique=True))
@example([Sequence("a", "channel", "b"), Sequence("a", "channel", "b", "", "b")])
@example([Sequence("a", "actor", "b/c"), Sequence("a", "actor", "b", "c")])
@example([Sequence("a", "channel", "b%7D"), Sequence("a", "channel", "b}")])
def test_two_sequences_never_share_a_place_and_every_name_can_be_read(both):
    first, second = map(place, both)
    assert (first.tag, first.rest) != (second.tag, second.rest)
    assert first.name != second.name
    assert [sequence_of(where.name) for where in (first, second)] == both


@given(st.lists(parts | st.text(), min_size=2, max_size=2, unique=True))
@example(["a", "/a"])
@example(["a%7D/b", "a}/b"])
def test_two_messages_never_share_a_home(both):
    assert home(both[0]) != home(both[1])
    assert [uid_start(tag) + id_ for tag, id_ in map(home, both)] == both


@given(some_sequences, parts)
def test_what_one_step_touches_lies_in_one_slot(sequence, id_):
    store = RedisStructure("redis://127.0.0.1:1")
    where, (tag, name) = place(sequence), home(f"{sequence.workspace}/{id_}/x")
    assert len({key_slot(store._key(where.tag, kind, where.rest).encode()) for kind in "sxuw"}) == 1
    assert len({key_slot(store._key(tag, kind, name).encode()) for kind in "vpanrRT"}) == 1
    assert [len({key_slot(key.encode()) for key in store._queue(queue)}) for queue in QUEUES] == [1] * len(QUEUES)


async def test_names_of_any_characters_come_back_as_they_are(opened, client):
    store, model = await opened(), MemoryStructure()
    odd = ("{", "}", "{}", "}{a}", "a/b", "%7B", "%", " ", "é\U0001f4a9", "*", "[a]", "\n", "a}g", "")
    sequences = [Sequence(f"W{w}", view, w, b, b) for w in odd for view in ("actor", "channel") for b in ("", "}", "/")]
    leaves = [Leaf(n, f"W/{name}/{name}") for n, name in enumerate(odd)]
    nodes = [NodeId(sequence, 1, n) for n, sequence in enumerate(sequences)]
    for one in (store, model):
        await one.enter([Entry(sequence, leaf) for sequence in sequences for leaf in leaves[::3]])
        await one.link([Answering(leaf.uid, leaves[0]) for leaf in leaves])
        await one.learn([UserEvent(workspace=f"W{w}", id=f"U{w}", name=w) for w in odd])
        await one.learn([ReactionEvent(workspace=f"W{w}", channel=f"C{w}", message=f"M{w}", name="{x}") for w in odd])
        await one.mark_due([(sequence, leaves[3]) for sequence in sequences])
        await one.mark_due([(sequence, leaves[3]) for sequence in sequences], OPEN, 7)
        await one.redact([(sequence, leaves[-1]) for sequence in sequences])
        await one.keep([summary(node) for node in nodes])
        assert all(await one.word([wording(node, serial=1) for node in nodes]))
        await one.cache({name: Paid(name, (name, "W/C1/a")) for name in odd})
        await one.forbid([name for name in odd if name])
    assert await rows(store) == await rows(model)
    assert await store.counts() == await model.counts()
    uids = [leaf.uid for leaf in leaves]
    for ask in (
        lambda s: s.placements(uids),
        lambda s: s.answers(uids),
        lambda s: s.redactions(sequences),
        lambda s: s.wordings(nodes),
        lambda s: s.cached(odd),
        lambda s: s.leaves([Span(sequence, 0, 99) for sequence in sequences]),
        lambda s: s.reactions("W{}", "C{}", "M{}"),
        lambda s: s.sequences("W{}", "actor", "{}"),
        lambda s: s.sequences("W%", "actor"),
        lambda s: s.workspaces(),
    ):
        assert await ask(store) == await ask(model)
    assert [mark.sequence for mark in await store.due(999)] == [mark.sequence for mark in await model.due(999)]
    for one in (store, model):
        await one.unlink([(uid, leaves[0].uid) for uid in uids[::3]])
        await one.withdraw([(sequence, uids[3]) for sequence in sequences[::2]])
        await one.strike(["W%7B%7D/C{}/M{}", *(f"W{w}/C{w}/M{w}" for w in odd if "/" not in w and "%" not in w)])
        await one.unlearn("W}", "U}")
        await one.uncache([odd[0]])
        await one.unword(nodes[::2])
        await one.drop(nodes[::3])
    assert [await store.cached(odd), await store.wordings(nodes)] == [
        await model.cached(odd),
        await model.wordings(nodes),
    ]
    assert await rows(store) == await rows(model)
    assert await store.counts() == await model.counts()
    assert await store.workspaces() == await model.workspaces()
    for one in (store, model):
        await one.strike(uids[::2])
    assert await rows(store) == await rows(model)
    assert await store.counts() == await model.counts()
    for one in (store, model):
        await one.clear()
    assert await store.counts() == await model.counts()
    assert not [key for key in client.scan_iter(f"{opened.prefix}:*") if b"}r" in key or b"}a" in key]


async def test_more_than_one_step_or_page_takes_is_done_whole(opened, monkeypatch):
    monkeypatch.setattr("streammem.backends.redis.PAGE", 7)
    monkeypatch.setattr(redis_connection, "PIECE", 20)
    store, model = await opened(), MemoryStructure()
    many = [Sequence("W", "artifact", f"DOC-{n}") for n in range(1200)]
    uids = [f"W/C1/{n}" for n in range(1300)]
    entries = [Entry(GENERAL, Leaf(n % 50, uid)) for n, uid in enumerate(uids)]
    entries += [Entry(sequence, Leaf(n, uids[n])) for n, sequence in enumerate(many)]
    for one in (store, model):
        await one.enter(entries)
        await one.link([Answering(uids[n % 3], Leaf(n, uid)) for n, uid in enumerate(uids)])
        await one.mark_due([(sequence, A) for sequence in many])
    assert await rows(store) == await rows(model)
    assert await store.placements(uids) == await model.placements(uids)
    assert await store.sequences("W") == await model.sequences("W")
    asked = [(GENERAL, Leaf(n % 51, uid + "x")) for n, uid in enumerate(uids)]
    assert await store.ranks(asked) == await model.ranks(asked)
    due = await store.due(9999, 1, 1)
    assert [mark.sequence for mark in due] == many
    assert await store.settle(due) == []
    assert (await store.counts())["due"] == 0


# ------------------------------------------------------------------------------------------------ what Redis forgets


async def test_scripts_that_the_server_forgot_are_told_again_and_nothing_is_done_twice(opened, client):
    store = await opened()
    await store.redact([(GENERAL, A)])
    client.execute_command("SCRIPT", "FLUSH")
    await store.redact([(GENERAL, A), (ANN, A)])
    client.execute_command("SCRIPT", "FLUSH")
    await store.enter([Entry(GENERAL, A), Entry(ANN, A)])
    found = await store.redactions([GENERAL, ANN])
    assert [[mark.serial for mark in marks] for marks in found] == [[2], [1]]
    assert await store.sizes([GENERAL, ANN]) == [1, 1]


async def test_indexes_that_were_lost_come_back_with_what_is_said_again(opened, client):
    store = await opened()
    entries = history(2)[:60]
    await grow(entries, store, DEFAULT_RULES)
    expected = await rows(store)
    for name in ("workspaces", "channels", "{w}i"):
        assert client.unlink(f"{opened.prefix}:{name}") == 1
    assert await rows(store) == []
    await grow(entries, store, DEFAULT_RULES)
    assert await rows(store) == expected


async def test_generations_go_on_although_the_last_one_was_lost(opened, client):
    store = await opened()
    await store.mark_due([(GENERAL, A)])
    await store.learn([UserEvent(workspace="W", id="U1")])
    (old,) = await store.due(9)
    before = await store.facts_generation("W")
    for name in ("{due}clock", "{due}marks", "{due}free", "{W}g", "{W}f"):
        assert client.unlink(f"{opened.prefix}:{name}") == 1
    await store.mark_due([(GENERAL, A)])
    await store.learn([UserEvent(workspace="W", id="U1")])
    assert (await store.due(9))[0].generation > old.generation
    assert await store.facts_generation("W") > before


@pytest.mark.parametrize("lost", [("marks",), ("free",), ("held",), ("free", "held")])
async def test_marks_of_which_a_part_was_lost_are_due_when_they_are_made_again(opened, client, lost):
    store = await opened()
    marks = [(GENERAL, A), (ANN, A)]
    await store.mark_due(marks)
    await store.due(1, 100, 5)
    for name in lost:
        client.unlink(f"{opened.prefix}:{{due}}{name}")
    await store.due(9, 100)
    await store.mark_due(marks)
    due = await store.due(9, 105, 5)
    assert sorted(mark.sequence for mark in due) == [ANN, GENERAL]
    assert await store.settle(due) == []
    assert await store.due(9, 200) == []


async def test_a_clear_leaves_other_memories_cards_and_signs_of_life_alone(opened, client):
    store = await opened()
    other = RedisStructure(opened.url, opened.prefix + ".b", cluster=store._redis._cluster)
    beats = RedisBeats(opened.url, opened.prefix, cluster=store._redis._cluster)
    sign = Beat(role="index", process="p", at=1, started=1)
    for one in (store, other):
        await one.enter([Entry(GENERAL, A)])
    await beats.beat(sign, 60)
    await store.describe(b"card")
    expected = await rows(other)
    await store.clear()
    assert await rows(store) == []
    assert await rows(other) == expected
    assert await beats.beats() == [sign]
    assert await store.describe(b"another") == b"card"
    for one in (other, beats):
        await one.close()
    redis_server.forget(opened.url, opened.prefix + ".b")


# ------------------------------------------------------------------------------------------------ cards and formats


async def test_the_first_card_stands_until_it_is_replaced(opened):
    first, second = await opened(), await opened()
    cards = await asyncio.gather(first.describe(b"a\xff"), second.describe(b"b"))
    assert len(set(cards)) == 1
    await second.redescribe(b"c")
    assert await first.describe(b"d") == b"c"


async def test_what_another_version_wrote_is_refused_until_it_is_cleared(opened, client):
    await (await opened()).enter([Entry(GENERAL, A)])
    client.set(f"{opened.prefix}:format", 2)
    with pytest.raises(MemoryFormatError, match=rf"'{opened.prefix}'.*has format 2.*reads 1.*`streammem rebuild`"):
        await opened()
    old = RedisStructure(opened.url, opened.prefix)
    await old.clear()
    await old.close()
    assert await rows(await opened()) == []


# ------------------------------------------------------------------------------------------- servers that do not serve


async def test_a_server_that_is_away_is_named_and_a_new_one_goes_on_where_it_was(own_redis, redis_prefix):
    store = await RedisStructure.open(own_redis.url, redis_prefix)
    entries = history(3)
    await grow(entries[:100], store, DEFAULT_RULES)
    own_redis.kill()
    for call in (store.counts(), store.enter([Entry(GENERAL, A)]), store.clear(), anext(store.everything())):
        with pytest.raises(TransientError, match=rf"cannot reach Redis at 127\.0\.0\.1:{own_redis.port}"):
            await call
    with pytest.raises(TransientError, match=f"{own_redis.port}"):
        await RedisStructure.open(own_redis.url, redis_prefix)
    own_redis.start()
    assert await rows(store) == await grown_in_memory(entries[:100])
    assert await store.applied("structure") == {0: 100}
    await grow(entries[100:], store, DEFAULT_RULES)
    assert await rows(store) == await grown_in_memory(entries)
    await store.close()


async def test_a_cluster_that_is_away_is_named(start_redis):
    server = start_redis(cluster=True)
    store = await RedisStructure.open(server.url, "p", cluster=True)
    await store.enter([Entry(GENERAL, A)])
    server.stop()
    with pytest.raises(TransientError, match=rf"cannot reach Redis at 127\.0\.0\.1:{server.port}"):
        await store.enter([Entry(GENERAL, A), Entry(ANN, B)])
    with pytest.raises(TransientError, match=f"{server.port}"):
        await RedisStructure.open(server.url, "p", cluster=True)
    await store.close()


async def test_when_another_node_takes_over_a_worker_that_tries_again_goes_on(redis_nodes):
    store = await RedisStructure.open(redis_nodes.url, "p", cluster=True)
    entries = history(4)
    await grow(entries[:120], store, DEFAULT_RULES)
    assert await rows(store) == await grown_in_memory(entries[:120])
    redis_nodes.nodes[1].say("WAIT", 1, 5000)
    redis_nodes.nodes[1].kill()
    refused = 0
    while True:
        try:
            await grow(entries, store, DEFAULT_RULES)
            break
        except TransientError:
            refused += 1
            await asyncio.sleep(0.2)
    assert 0 < refused < 100
    assert await rows(store) == await grown_in_memory(entries)
    await store.clear()
    assert await rows(store) == []
    await store.close()


async def test_a_server_that_takes_no_writes_now_may_take_them_later(own_redis, redis_prefix):
    store = await RedisStructure.open(own_redis.url, redis_prefix)
    for refuse, allow in (
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ):
        own_redis.say(*refuse)
        for call in (store.enter([Entry(GENERAL, A)]), store.redescribe(b"c"), store.mark_due([(GENERAL, A)])):
            with pytest.raises(TransientError, match="cannot reach Redis"):
                await call
        own_redis.say(*allow)
        await store.enter([Entry(GENERAL, A)])
    await store.close()


async def test_a_server_that_does_not_answer_in_time_is_away(own_redis, redis_prefix, monkeypatch):
    monkeypatch.setattr(redis_connection, "WAIT", 0.1)
    store = await RedisStructure.open(own_redis.url, redis_prefix)
    own_redis.say("CLIENT", "PAUSE", 60_000, "ALL")
    with pytest.raises(TransientError, match="cannot reach Redis"):
        await store.sizes([GENERAL])
    own_redis.kill()
    await store.close()


async def test_a_wrong_set_up_is_named_without_the_password(start_redis):
    server = start_redis("--requirepass", "right-word")
    at = f"127.0.0.1:{server.port}"
    for url, mend in (
        (f"redis://:wrong-word@{at}/0", "check the user, password"),
        (f"redis://ann:wrong-word@{at}/0", "check the user, password"),
        (f"redis://{at}/0", "check the user, password"),
        (f"redis://:right-word@{at}/99", "number of the database"),
    ):
        with pytest.raises(SettingsError, match=rf"{server.port}.*{mend}") as refused:
            await RedisStructure.open(url, "p")
        assert "-word" not in str(refused.value)
    with pytest.raises(SettingsError, match="do not set `cluster`"):
        await RedisStructure.open(f"redis://:right-word@{at}/0", "p", cluster=True)
    store = await RedisStructure.open(f"redis://:right-word@{at}/0", "p")
    await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://u:wrong-word@localhost",
        "redis://u:wrong-word@localhost:nine/0",
        "redis://u:wrong-word/x@localhost",
        "nothing",
    ],
)
async def test_a_url_that_is_none_is_refused_without_the_password(url):
    with pytest.raises(SettingsError, match="Redis URL") as refused:
        RedisStructure(url)
    assert "wrong-word" not in str(refused.value)


async def test_a_cluster_that_is_taken_for_one_server_is_named(redis_nodes):
    slot = key_slot(b"p:format")
    elsewhere = redis_nodes.nodes[0 if slot > 5460 else 1]
    with pytest.raises(SettingsError, match="it is a cluster, set `cluster`"):
        await RedisStructure.open(elsewhere.url, "p")


def test_without_the_extra_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    for name in ("redis_connection", "redis_keys", "redis_scripts", "redis", "redis_beats"):
        monkeypatch.delitem(sys.modules, f"streammem.backends.{name}")
    for name in ("redis", "redis_beats"):
        with pytest.raises(MissingExtraError, match=r"pip install 'streammem\[stream\]'"):
            importlib.import_module(f"streammem.backends.{name}")


@pytest.mark.parametrize("prefix", ["", "a:b", "a{b}", "a*", "a b"])
async def test_a_prefix_that_could_meet_another_is_refused(prefix):
    with pytest.raises(SettingsError, match="prefix"):
        RedisStructure("redis://127.0.0.1:1", prefix)
