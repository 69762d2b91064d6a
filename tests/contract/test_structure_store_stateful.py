"""Each durable store, the model and plain dictionaries, step by step through the same random life, kills included."""

import asyncio
import copy
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streammem.backends.memory import MemoryStructure
from streammem.backends.redis import RedisStructure
from streammem.backends.sqlite import SqliteStructure
from streammem.core import routing
from streammem.ports import OPEN, SUMMARIES, Span
from streammem.records import Answering, Due, Entry, Leaf, NodeId, Paid, Sequence, Summary, Wording
from tests.servers import redis_server
from tests.strategies import CHANNELS, MESSAGES, UIDS, USERS, WORKSPACE, facts, versions

SEQUENCES = (
    *(Sequence(WORKSPACE, "channel", channel) for channel in CHANNELS),
    *(Sequence(WORKSPACE, "actor", "U1", branch, "C1") for branch in ("authored", "mentioned")),
    Sequence(WORKSPACE, "artifact", "DOC-1"),
    Sequence("V", "channel", "C1"),
)
NODES = tuple(NodeId(sequence, 1, index) for sequence in SEQUENCES[:4] for index in range(2))
WAITING = (SUMMARIES, OPEN)

MEMORY = Path("/dev/shm")
"""Only processes die here: files need not outlive the power."""

sequences = st.sampled_from(SEQUENCES)
leaves = st.builds(Leaf, st.integers(0, 6), st.sampled_from(UIDS[:8]))
entries = st.lists(st.builds(Entry, sequences, leaves), max_size=6)
answerings = st.lists(st.builds(Answering, st.sampled_from(UIDS[:4]), leaves), max_size=4)
marks = st.lists(st.tuples(sequences, leaves), max_size=4)
nodes = st.lists(st.sampled_from(NODES), max_size=3)
words = st.sampled_from(("a", "b", "c"))
uids = st.lists(st.sampled_from(UIDS[:8]), max_size=4)
queues = st.sampled_from(WAITING)
paid = st.builds(Paid, words, st.lists(st.sampled_from(("a", "b", "c", *UIDS[:3])), max_size=2).map(tuple))


async def reading(store: Any, now: float) -> dict[str, Any]:
    """Everything that can be read of a store, over all the names that these tests use.

    All but its counts: counting commits what is pending, and a kill should find something to lose.
    """
    known = [s for w in (WORKSPACE, "V") for s in await store.sequences(w)]
    return {
        "versions": [frozenset(found) for found in await store.versions(UIDS)],
        "placements": await store.placements(UIDS),
        "leaves": await store.leaves([Span(s, 0, 99) for s in (*SEQUENCES, *known)]),
        "ranks": await store.ranks([(s, Leaf(3, UIDS[3])) for s in SEQUENCES]),
        "sizes": await store.sizes(SEQUENCES),
        "answers": await store.answers(UIDS),
        "sequences": known,
        "actors": await store.sequences(WORKSPACE, "actor"),
        "tree": await store.sequences(WORKSPACE, "actor", "U1"),
        "workspaces": await store.workspaces(),
        "facts": await store.facts(WORKSPACE),
        "facts_generation": await store.facts_generation(WORKSPACE),
        "reactions": [await store.reactions(WORKSPACE, c, m) for c in CHANNELS for m in MESSAGES],
        "due": {queue: await store.due(99, 1e9, 0.0, queue) for queue in WAITING},
        "free": {queue: await store.due(99, now, 0.0, queue) for queue in WAITING},
        "redactions": await store.redactions(SEQUENCES),
        "summaries": await store.summaries(NODES),
        "wordings": await store.wordings(NODES),
        "cached": await store.cached(["a", "b", "c"]),
        "forbidden": await store.forbidden(UIDS),
        "applied": [await store.applied(name) for name in ("a", "b", "c")],
        "rows": sorted([row async for row in store.everything()]),
    }


async def words_of(store: Any) -> list[tuple[str, str, str]]:
    """What was generated."""
    return sorted([(key, type(said).__name__, said.text) async for key, said in store.generated()])


class Plain:
    """What entering, linking, registering, marking and wording mean, in dictionaries and no cleverness."""

    def __init__(self, texts: dict[str, Paid] | None = None) -> None:
        self.runs: defaultdict[Sequence, dict[str, int]] = defaultdict(dict)
        self.answers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.versions: defaultdict[str, set[Any]] = defaultdict(set)
        self.due: dict[str, dict[Sequence, Leaf]] = {queue: {} for queue in WAITING}
        self.serials = Counter[Sequence]()
        self.summaries: set[NodeId] = set()
        self.wordings: dict[NodeId, Wording] = {}
        self.texts = texts or {}

    @staticmethod
    def add(run: dict[str, int], leaf: Leaf) -> None:
        run[leaf.uid] = min(leaf.ts, run.get(leaf.uid, leaf.ts))

    def mark(self, marks: list[tuple[Sequence, Leaf]], queue: str) -> None:
        due = self.due[queue]
        for sequence, leaf in marks:
            due[sequence] = min(leaf, due.get(sequence, leaf))

    def word(self, wording: Wording) -> bool:
        node = wording.node
        if node not in self.summaries or wording.serial != self.serials[node.sequence]:
            return False
        self.wordings[node] = wording
        return True

    def drop(self, nodes: list[NodeId]) -> None:
        self.summaries.difference_update(nodes)
        self.unword(nodes)

    def unword(self, nodes: list[NodeId]) -> None:
        self.wordings = {node: wording for node, wording in self.wordings.items() if node not in nodes}

    def uncache(self, names: set[str]) -> None:
        gone = {key for key, text in self.texts.items() if not names.isdisjoint(text.sources)}
        self.texts = {key: text for key, text in self.texts.items() if key not in gone}
        if gone:
            self.uncache(gone)

    def check(self, read: dict[str, Any]) -> None:
        runs = [self.runs.get(s, {}) for s in (*SEQUENCES, *read["sequences"])]
        assert read["sequences"] == [s for w in (WORKSPACE, "V") for s in self.standing(w)]
        assert read["leaves"] == [self.ordered(run) for run in runs]
        assert read["answers"] == [self.ordered(self.answers.get(uid, {})) for uid in UIDS]
        assert read["versions"] == [frozenset(self.versions.get(uid, ())) for uid in UIDS]
        for queue, due in read["due"].items():
            assert [(mark.sequence, mark.earliest) for mark in due] == list(self.due[queue].items())
        assert [summary is not None for summary in read["summaries"]] == [node in self.summaries for node in NODES]
        assert read["wordings"] == [self.wordings.get(node) for node in NODES]
        assert read["cached"] == [self.texts.get(key) for key in ("a", "b", "c")]
        for uid, stands in zip(UIDS, read["placements"], strict=True):
            expected = sorted((s, run) for s, run in self.runs.items() if uid in run)
            assert [(p.sequence, p.rank, p.size) for p in stands] == [
                (s, [leaf.uid for leaf in self.ordered(run)].index(uid), len(run)) for s, run in expected
            ]

    def standing(self, workspace: str) -> list[Sequence]:
        return sorted(sequence for sequence, run in self.runs.items() if run and sequence.workspace == workspace)

    @staticmethod
    def ordered(run: dict[str, int]) -> tuple[Leaf, ...]:
        return tuple(sorted(Leaf(ts, uid) for uid, ts in run.items()))


class Numbers:
    """Generations of one queue as the places that they have among all of it: another store counts in its own way."""

    def __init__(self) -> None:
        self.known: list[int] = []

    def place(self, number: int) -> int:
        """Numbers never come again, so that a new one is greater than all before."""
        if number not in self.known:
            assert number > max(self.known, default=-1)
            self.known.append(number)
        return self.known.index(number)

    def of(self, due: list[Due], free: list[Due]) -> list[list[Due]]:
        for mark in sorted(due, key=lambda mark: mark.generation):
            self.place(mark.generation)
        return [[self.placed(mark) for mark in some] for some in (due, free)]

    def placed(self, mark: Due) -> Due:
        return msgspec.structs.replace(mark, generation=self.place(mark.generation))


class Life(RuleBasedStateMachine):
    """A store, one in memory, and plain dictionaries, told the same things."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store: Any = None
        self.model = MemoryStructure()
        self.plain = Plain()
        self.position = 0
        self.now = 0.0
        self.marks = {name: {queue: Numbers() for queue in WAITING} for name in ("model", "store")}
        self.facts = {"model": Numbers(), "store": Numbers()}
        self.begin()
        self.settled()

    def begin(self) -> None:
        """Open `store`."""
        raise NotImplementedError

    def each(self, verb: str, *arguments: Any) -> list[Any]:
        return [self.runner.run(getattr(store, verb)(*arguments)) for store in (self.model, self.store)]

    def both(self, verb: str, *arguments: Any) -> None:
        outcomes = self.each(verb, *arguments)
        assert outcomes[0] == outcomes[1]

    def settled(self) -> None:
        """All of this stands now, whatever happens."""

    @rule(given=st.lists(versions(), max_size=4))
    def register(self, given):
        self.both("register", given)
        for version in given:
            self.plain.versions[version.uid].add(version)

    @rule(given=entries)
    def enter(self, given):
        self.both("enter", given)
        for entry in given:
            self.plain.add(self.plain.runs[entry.sequence], entry.leaf)

    @rule(given=st.lists(versions(), max_size=3))
    def enter_as_routed(self, given):
        self.enter(routing.entries_of(given))
        self.link(routing.answerings_of(given))

    @rule(given=answerings)
    def link(self, given):
        self.both("link", given)
        for answering in given:
            self.plain.add(self.plain.answers[answering.target], answering.leaf)

    @rule(given=st.lists(facts(), max_size=4))
    def learn(self, given):
        self.both("learn", given)

    @rule(given=marks, queue=queues, seconds=st.none() | st.integers(-1, 4))
    def mark_due(self, given, queue, seconds=None):
        self.both("mark_due", given, queue, None if seconds is None else self.now + seconds)
        self.plain.mark(given, queue)

    @rule(given=marks)
    def redact(self, given):
        self.both("redact", given)
        self.plain.serials.update(sequence for sequence, _ in given)

    @rule(given=st.lists(st.tuples(sequences, st.sampled_from(UIDS[:8])), max_size=5))
    def withdraw(self, given):
        self.both("withdraw", given)
        for sequence, uid in given:
            self.plain.runs[sequence].pop(uid, None)

    @rule(given=st.lists(st.tuples(st.sampled_from(UIDS[:4]), st.sampled_from(UIDS[:8])), max_size=5))
    def unlink(self, given):
        self.both("unlink", given)
        for target, uid in given:
            self.plain.answers[target].pop(uid, None)

    @rule(given=uids)
    def strike(self, given):
        self.both("strike", given)
        for uid in given:
            self.plain.versions.pop(uid, None)
            for run in self.plain.runs.values():
                run.pop(uid, None)

    @rule(workspace=st.sampled_from((WORKSPACE, "V")), user=st.sampled_from(USERS))
    def unlearn(self, workspace, user):
        self.both("unlearn", workspace, user)

    @rule(given=uids)
    def forbid(self, given):
        self.both("forbid", given)
        if given:
            self.settled()

    @rule(given=uids)
    def uncache(self, given):
        self.both("uncache", given)
        self.plain.uncache(set(given))
        self.settled()

    @rule(limit=st.integers(0, 3), lease=st.sampled_from((0, 2, 5)), marked=marks, ended=st.booleans(), queue=queues)
    def settle(self, limit, lease, marked, ended, queue):
        """Some are taken, some of them marked again meanwhile, and some are settled twice."""
        taken = self.each("due", limit, self.now, lease, queue)
        assert [mark.sequence for mark in taken[0]] == [mark.sequence for mark in taken[1]]
        self.mark_due(marked, queue)
        if not ended:
            return
        for _ in range(2):
            gone = [self.runner.run(s.settle(d, queue)) for s, d in zip((self.model, self.store), taken, strict=True)]
            assert [mark.sequence for mark in gone[0]] == [mark.sequence for mark in gone[1]]
        for mark in taken[0]:
            if mark.sequence not in dict(marked):
                del self.plain.due[queue][mark.sequence]
        self.settled()

    @rule(limit=st.integers(1, 3), marked=marks, seconds=st.integers(0, 4), queue=queues)
    def hold(self, limit, marked, seconds, queue):
        taken = self.each("due", limit, self.now, 0.0, queue)
        self.mark_due(marked, queue)
        for store, due in zip((self.model, self.store), taken, strict=True):
            self.runner.run(store.hold(due, self.now + seconds, queue))

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds):
        self.now += seconds

    @rule(given=nodes, text=words)
    def keep(self, given, text):
        first, last = Leaf(1, UIDS[0]), Leaf(2, UIDS[1])
        self.both(
            "keep", [Summary(n, text, first, last, 2, text, (), (), 2, 0, is_root=False, vector=b"") for n in given]
        )

        self.plain.summaries.update(given)

    @rule(given=nodes)
    def drop(self, given):
        self.both("drop", given)
        self.plain.drop(given)

    @rule(given=nodes, text=words, late=st.booleans())
    def word(self, given, text, late):
        """In time or too late."""
        first, last, serials = Leaf(1, UIDS[0]), Leaf(2, UIDS[1]), self.plain.serials
        wordings = [
            Wording(n, text, text, first, last, 2, text, (), 2, serials[n.sequence] - late, "m/1") for n in given
        ]
        assert self.each("word", wordings) == [[self.plain.word(wording) for wording in wordings]] * 2

    @rule(given=nodes)
    def unword(self, given):
        self.both("unword", given)
        self.plain.unword(given)

    @rule(given=st.dictionaries(words, paid, max_size=2))
    def cache(self, given):
        self.both("cache", given)
        self.plain.texts |= given
        self.settled()

    @rule(name=words, partition=st.integers(0, 2), step=st.integers(-1, 3))
    def advance(self, name, partition, step):
        self.position = max(0, self.position + step)
        self.both("advance", name, {partition: self.position})
        self.settled()

    @rule()
    def count(self):
        self.both("counts")
        generated = [self.runner.run(words_of(store)) for store in (self.model, self.store)]
        assert generated[0] == generated[1]
        self.settled()

    @precondition(lambda self: self.plain.runs)
    @rule()
    def clear(self):
        self.both("clear")
        self.plain = Plain(self.plain.texts)
        self.settled()

    @invariant()
    def all_tell_the_same(self):
        reads = {
            name: self.runner.run(reading(store, self.now))
            for name, store in (("model", self.model), ("store", self.store))
        }
        self.plain.check(reads["model"])
        for name, read in reads.items():
            for queue, numbers in self.marks[name].items():
                read["due"][queue], read["free"][queue] = numbers.of(read["due"][queue], read["free"][queue])
            reads[name]["facts_generation"] = self.facts[name].place(read["facts_generation"])
        assert reads["store"] == reads["model"]


class FileLife(Life):
    """On file, where a kill takes what was not committed."""

    store: SqliteStructure

    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.open()

    def open(self) -> None:
        self.store = SqliteStructure(self.directory / "s")
        self.model._held.clear()  # what a process holds is free when it ends

    def teardown(self) -> None:
        self.store.close()
        self.runner.close()
        shutil.rmtree(self.directory)

    def settled(self) -> None:
        self.standing = copy.deepcopy((self.model, self.plain, self.marks, self.facts))

    @rule()
    def reopen(self):
        self.store.close()
        self.open()
        self.settled()

    @rule()
    def kill(self):
        """What the process held is gone; the file was never told to close."""
        self.store._file.close()
        self.model, self.plain, self.marks, self.facts = copy.deepcopy(self.standing)
        self.open()


class RedisLife(Life):
    """In Redis, which keeps everything, whoever says it, and may forget scripts."""

    url: str
    cluster: bool
    store: RedisStructure

    def begin(self) -> None:
        self.prefix = f"t{uuid4().hex[:10]}"
        self.store = self.runner.run(RedisStructure.open(self.url, self.prefix, cluster=self.cluster))

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        redis_server.forget(self.url, self.prefix)

    @rule()
    def reopen(self):
        self.runner.run(self.store.close())
        self.store = self.runner.run(RedisStructure.open(self.url, self.prefix, cluster=self.cluster))

    @rule()
    def forget_scripts(self):
        redis_server.forget_scripts(self.url)


TestFileLife = FileLife.TestCase
TestFileLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("cluster", [False, True])
def test_redis_lives_as_the_model_does(request, cluster):
    url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
    life = type("ThisRedisLife", (RedisLife,), {"url": url, "cluster": cluster})
    run_state_machine_as_test(life, settings=settings(max_examples=20, stateful_step_count=25, deadline=None))
