"""The file, the model and plain dictionaries, step by step through the same random life, kills included."""

import asyncio
import copy
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streammem.backends.memory import MemoryStructure
from streammem.backends.sqlite import SqliteStructure
from streammem.core import routing
from streammem.ports import Span
from streammem.records import Answering, Entry, Leaf, NodeId, Sequence, Summary
from tests.strategies import CHANNELS, MESSAGES, UIDS, WORKSPACE, facts, versions

SEQUENCES = (
    *(Sequence(WORKSPACE, "channel", channel) for channel in CHANNELS),
    *(Sequence(WORKSPACE, "actor", "U1", branch, "C1") for branch in ("authored", "mentioned")),
    Sequence(WORKSPACE, "artifact", "DOC-1"),
    Sequence("V", "channel", "C1"),
)
NODES = tuple(NodeId(sequence, 1, index) for sequence in SEQUENCES[:4] for index in range(2))

MEMORY = Path("/dev/shm")
"""Only processes die here: files need not outlive the power."""

sequences = st.sampled_from(SEQUENCES)
leaves = st.builds(Leaf, st.integers(0, 6), st.sampled_from(UIDS[:8]))
entries = st.lists(st.builds(Entry, sequences, leaves), max_size=6)
answerings = st.lists(st.builds(Answering, st.sampled_from(UIDS[:4]), leaves), max_size=4)
marks = st.lists(st.tuples(sequences, leaves), max_size=4)
nodes = st.lists(st.sampled_from(NODES), max_size=3)
words = st.sampled_from(("a", "b", "c"))


async def reading(store: MemoryStructure) -> dict[str, Any]:
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
        "due": await store.due(99),
        "redactions": await store.redactions(SEQUENCES),
        "summaries": await store.summaries(NODES),
        "cached": await store.cached(["a", "b", "c"]),
        "applied": [await store.applied(name) for name in ("a", "b", "c")],
        "rows": sorted([row async for row in store.everything()]),
    }


class Plain:
    """What entering, linking, registering and marking mean, in four dictionaries and no cleverness."""

    def __init__(self) -> None:
        self.runs: defaultdict[Sequence, dict[str, int]] = defaultdict(dict)
        self.answers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.versions: defaultdict[str, set[Any]] = defaultdict(set)
        self.due: dict[Sequence, Leaf] = {}

    @staticmethod
    def add(run: dict[str, int], leaf: Leaf) -> None:
        run[leaf.uid] = min(leaf.ts, run.get(leaf.uid, leaf.ts))

    def mark(self, marks: list[tuple[Sequence, Leaf]]) -> None:
        for sequence, leaf in marks:
            self.due[sequence] = min(leaf, self.due.get(sequence, leaf))

    def check(self, read: dict[str, Any]) -> None:
        runs = [self.runs.get(s, {}) for s in (*SEQUENCES, *read["sequences"])]
        assert read["leaves"] == [self.ordered(run) for run in runs]
        assert read["answers"] == [self.ordered(self.answers.get(uid, {})) for uid in UIDS]
        assert read["versions"] == [frozenset(self.versions.get(uid, ())) for uid in UIDS]
        assert [(mark.sequence, mark.earliest) for mark in read["due"]] == list(self.due.items())
        for uid, stands in zip(UIDS, read["placements"], strict=True):
            expected = sorted((s, run) for s, run in self.runs.items() if uid in run)
            assert [(p.sequence, p.rank, p.size) for p in stands] == [
                (s, [leaf.uid for leaf in self.ordered(run)].index(uid), len(run)) for s, run in expected
            ]

    @staticmethod
    def ordered(run: dict[str, int]) -> tuple[Leaf, ...]:
        return tuple(sorted(Leaf(ts, uid) for uid, ts in run.items()))


class Life(RuleBasedStateMachine):
    """One store on file, one in memory, and plain dictionaries, told the same things."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.file = SqliteStructure(self.directory / "s")
        self.model = MemoryStructure()
        self.plain = Plain()
        self.position = 0
        self.settled()

    def teardown(self) -> None:
        self.file.close()
        self.runner.close()
        shutil.rmtree(self.directory)

    def both(self, verb: str, *arguments: Any) -> None:
        outcomes = [self.runner.run(getattr(store, verb)(*arguments)) for store in (self.model, self.file)]
        assert outcomes[0] == outcomes[1]

    def settled(self) -> None:
        """The file holds all of this now: what a kill falls back to."""
        self.standing = copy.deepcopy((self.model, self.plain))

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

    @rule(given=marks)
    def mark_due(self, given):
        self.both("mark_due", given)
        self.plain.mark(given)

    @rule(given=marks)
    def redact(self, given):
        self.both("redact", given)

    @rule(limit=st.integers(0, 3), marked=marks)
    def settle(self, limit, marked):
        due = self.runner.run(self.model.due(limit))
        self.mark_due(marked)
        self.both("settle", due)
        for mark in due:
            if mark.sequence not in dict(marked):
                del self.plain.due[mark.sequence]
        self.settled()

    @rule(given=nodes, text=words)
    def keep(self, given, text):
        first, last = Leaf(1, UIDS[0]), Leaf(2, UIDS[1])
        self.both(
            "keep", [Summary(n, text, first, last, 2, text, (), (), 2, 0, is_root=False, vector=b"") for n in given]
        )

    @rule(given=nodes)
    def drop(self, given):
        self.both("drop", given)

    @rule(texts=st.dictionaries(words, words, max_size=2))
    def cache(self, texts):
        self.both("cache", texts)
        self.settled()

    @rule(name=words, step=st.integers(-1, 3))
    def advance(self, name, step):
        self.position = max(0, self.position + step)
        self.both("advance", name, {0: self.position})
        self.settled()

    @rule()
    def count(self):
        self.both("counts")
        self.file.flush()
        self.settled()

    @precondition(lambda self: self.plain.runs)
    @rule()
    def clear(self):
        self.both("clear")
        self.plain = Plain()
        self.settled()

    @rule()
    def reopen(self):
        self.file.close()
        self.file = SqliteStructure(self.directory / "s")
        self.settled()

    @rule()
    def kill(self):
        """What the process held is gone; the file was never told to close."""
        self.file._file.close()
        self.file = SqliteStructure(self.directory / "s")
        self.model, self.plain = copy.deepcopy(self.standing)

    @invariant()
    def all_tell_the_same(self):
        read = self.runner.run(reading(self.model))
        assert self.runner.run(reading(self.file)) == read
        self.plain.check(read)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
