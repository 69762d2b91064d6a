"""A whole log and structure store in the memory of one process: what every other backend is compared with."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, MutableMapping
from collections.abc import Sequence as Many
from functools import lru_cache
from itertools import islice, takewhile
from typing import Generic, Protocol, TypeVar

import msgspec
from sortedcontainers import SortedDict, SortedList

from streammem.backends.erasing import message_of, paid, quoting, searched, without_user, written
from streammem.core.events import content_hash, encode
from streammem.core.registers import fact_key, fact_order, order
from streammem.ports import QUEUES, SUMMARIES, Appended, Fact, LogReader, LogWriter, Span, Stand, StructureStore
from streammem.records import (
    Answering,
    Artifacts,
    DirectoryEvent,
    Due,
    Entry,
    Event,
    Leaf,
    LogEntry,
    NodeId,
    Paid,
    Position,
    ReactionEvent,
    Redaction,
    Sequence,
    Summary,
    Version,
    Wording,
)

Name = TypeVar("Name", Sequence, str)
Key = TypeVar("Key")
Value = TypeVar("Value")

_pack = msgspec.msgpack.Encoder().encode
_version = lru_cache(1 << 13)(msgspec.msgpack.Decoder(Version).decode)
"""A question looks at a thousand messages, many of them the same as the one before: 12 MB of them stay at hand."""


class MemoryLog(LogWriter, LogReader):
    """A log that lives as long as the process."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self._keys: set[str] = set()
        self._last = 0  # position ever given: none comes again

    async def append(self, events: Many[tuple[str, Event]]) -> Appended:
        before = self._last
        for key, event in events:
            if key not in self._keys:
                self._keys.add(key)
                self._last += 1
                self._entries.append(LogEntry(position=self._last, key=key, event=event))
        accepted = self._last - before
        return Appended(accepted=accepted, duplicates=len(events) - accepted, position=await self.end())

    async def erase(self, entries: Many[LogEntry]) -> None:
        gone = {(entry.position, entry.key) for entry in entries}
        self._entries = [entry for entry in self._entries if (entry.position, entry.key) not in gone]
        self._keys = {entry.key for entry in self._entries}

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        start = bisect_right(self._entries, after.get(0, 0), key=lambda entry: entry.position)
        return list(islice(self._entries, start, start + max(limit, 0)))

    async def erased(self, keys: Iterable[str]) -> set[str]:  # noqa: ARG002 - what is erased is not given any more
        return set()

    async def end(self) -> Position:
        return {0: self._entries[-1].position} if self._entries else {}


class Run(Generic[Name]):
    """A sorted set with one leaf for each message: of two leaves of a message the earlier stays.

    It is sorted when its order is first asked for: most runs are never looked at between opening and closing.
    """

    __slots__ = ("_sorted", "name", "of")

    def __init__(self, name: Name, of: dict[str, Leaf] | None = None) -> None:
        self.name: Name = name
        self.of = {} if of is None else of
        self._sorted: SortedList | None = None

    def __len__(self) -> int:
        return len(self.of)

    @property
    def leaves(self) -> SortedList:
        """The leaves in order."""
        if self._sorted is None:
            self._sorted = SortedList(self.of.values())
        return self._sorted

    def add(self, leaf: Leaf) -> bool:
        """Whether this changed anything."""
        known = self.of.get(leaf.uid)
        if known is not None and known.ts <= leaf.ts:
            return False
        self.of[leaf.uid] = leaf
        if self._sorted is not None:
            self._sorted.add(leaf)
            if known is not None:
                self._sorted.remove(known)
        return True

    def remove(self, uid: str) -> bool:
        """Whether there was a leaf of this message."""
        leaf = self.of.pop(uid, None)
        if leaf is not None and self._sorted is not None:
            self._sorted.remove(leaf)
        return leaf is not None

    def rank(self, leaf: Leaf) -> int:
        """How many leaves are smaller."""
        return int(self.leaves.bisect_left(leaf))

    def cut(self, start: int, stop: int) -> tuple[Leaf, ...]:
        """The leaves of the ranks [start, stop), as far as there are any."""
        return tuple(self.leaves.islice(max(start, 0), max(stop, 0)))


def home(fact: Fact) -> tuple[str, ...]:
    """Where a fact is looked for: directory facts by workspace, reactions by message."""
    if isinstance(fact, ReactionEvent):
        return (fact.workspace, fact.channel, fact.message)
    return (fact.workspace,)


def _beats(fact: Fact, standing: Fact | None) -> bool:
    """By core.registers.fact_order; contents are hashed only where the rest is a tie."""
    if standing is None:
        return True
    ahead, behind = fact_order(fact, ""), fact_order(standing, "")
    if ahead != behind:
        return ahead > behind
    return content_hash(fact) > content_hash(standing)


def _reads_the_same(fact: Fact, other: Fact | None) -> bool:
    return other is not None and msgspec.structs.replace(fact, version=other.version) == other


def _least(marks: Many[tuple[Sequence, Leaf]]) -> dict[Sequence, Leaf]:
    least: dict[Sequence, Leaf] = {}
    for sequence, leaf in marks:
        known = least.setdefault(sequence, leaf)
        if leaf < known:
            least[sequence] = leaf
    return least


def _row(queue: str, sequence: Sequence) -> tuple[str, tuple[object, ...]]:
    """Table and key of a mark. The first queue has a table of its own, from before there were others."""
    return ("due", (sequence,)) if queue == SUMMARIES else ("queued", (sequence, queue))


class Shelf(Protocol[Key, Value]):
    """What the store asks of a part that may live elsewhere: less than a dictionary has."""

    def get(self, key: Key, /) -> Value | None: ...
    def clear(self) -> None: ...
    def __setitem__(self, key: Key, value: Value, /) -> None: ...
    def __delitem__(self, key: Key, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Key]: ...
    def items(self) -> Iterable[tuple[Key, Value]]: ...


class MemoryStructure(StructureStore):
    """Registers, sequences and all that hangs on them, in dictionaries and sorted sets.

    Versions are kept packed: a third of the memory of records, and a microsecond to read. A backend that makes this
    one durable overrides `_save` and `_remove`, which see every change as a row, and may put its own mappings in the
    place of `_summaries`, `_wordings` and `_texts`, the parts that need not be in memory.
    """

    def __init__(self) -> None:
        self._texts: Shelf[str, str] = {}  # of Paid, as JSON
        self._summaries: Shelf[NodeId, Summary] = {}
        self._wordings: Shelf[NodeId, Wording] = {}
        self._marks: set[str] = set()  # of erasure
        self._numbers: dict[str, int] = {}
        self._forget()

    def _forget(self) -> None:
        self._versions: dict[str, tuple[bytes, ...]] = {}
        self._runs: MutableMapping[Sequence, Run[Sequence]] = SortedDict()
        self._placed: dict[str, list[Run[Sequence]]] = {}
        self._answers: dict[str, Run[str]] = {}
        self._facts: dict[tuple[str, ...], dict[tuple[str, ...], Fact]] = {}
        # By queue. Since when, what; oldest first:
        self._due: defaultdict[str, dict[Sequence, tuple[int, Due]]] = defaultdict(dict)
        # Until when; gone with the process, as its holder is:
        self._held: defaultdict[str, dict[Sequence, float]] = defaultdict(dict)
        self._redactions: dict[Sequence, dict[Leaf, int]] = {}  # leaf to serial; newest last
        self._workspaces: set[str] = set()  # of leaves and facts
        self._groupings: dict[str, Artifacts] = {}

    def _save(self, table: str, key: tuple[object, ...], *values: object) -> None:
        """A row that is new or replaces the one of the same key. Here memory is the store."""

    def _remove(self, table: str, key: tuple[object, ...]) -> None:
        """A row that is no more. Here memory is the store."""

    def _set(self, name: str, value: int) -> None:
        self._numbers[name] = value
        self._save("number", (name,), value)

    def _tick(self) -> int:
        """The next of the store's own numbers: they never come again, not even after `clear`."""
        now = self._numbers.get("clock", 0) + 1
        self._set("clock", now)
        return now

    # ---- growing
    async def register(self, versions: Many[Version]) -> None:
        for version in versions:
            known = self._versions.get(version.uid, ())
            if all(order(_version(raw)) != order(version) for raw in known):
                raw = _pack(version)
                self._versions[version.uid] = (*known, raw)
                self._save("version", (version.uid, *order(version)), raw)

    async def enter(self, entries: Many[Entry]) -> None:
        for entry in entries:
            sequence, leaf = entry.sequence, entry.leaf
            run = self._runs.get(sequence)
            if run is None:
                run = self._runs[sequence] = Run(sequence)
                self._workspaces.add(sequence.workspace)
            size = len(run)
            if run.add(leaf):
                self._save("entry", (sequence, leaf.uid), leaf.ts)
            if len(run) > size:
                self._placed.setdefault(leaf.uid, []).append(run)

    async def link(self, answerings: Many[Answering]) -> None:
        for answering in answerings:
            target, leaf = answering.target, answering.leaf
            run = self._answers.get(target)
            if run is None:
                run = self._answers[target] = Run(target)
            if run.add(leaf):
                self._save("answering", (target, leaf.uid), leaf.ts)

    async def learn(self, facts: Many[Fact]) -> list[Fact]:
        anew: dict[tuple[str, ...], Fact] = {}
        for given in facts:
            fact = msgspec.structs.replace(given, ingest=None)  # how it came here must not show in checksums
            key = fact_key(fact)
            standing = self._facts.get(home(fact), {}).get(key)
            if _beats(fact, standing):
                self._stand(key, fact)
                anew[key] = fact
                if not isinstance(fact, ReactionEvent) and not _reads_the_same(fact, standing):
                    self._set(f"facts:{fact.workspace}", self._tick())
        return list(anew.values())

    def _stand(self, key: tuple[str, ...], fact: Fact) -> None:
        self._facts.setdefault(home(fact), {})[key] = fact
        self._workspaces.add(fact.workspace)
        self._save("fact", (_pack(key),), fact)

    async def mark_due(
        self, marks: Many[tuple[Sequence, Leaf]], queue: str = SUMMARIES, until: float | None = None
    ) -> None:
        waiting = self._due[queue]
        for sequence, leaf in _least(marks).items():
            generation = self._tick()
            since, mark = waiting.get(sequence) or (generation, Due(sequence, generation, leaf))
            self._stand_due(queue, since, Due(sequence, generation, min(mark.earliest, leaf)))
            if until is not None:
                self._held[queue][sequence] = until

    def _stand_due(self, queue: str, since: int, mark: Due) -> None:
        self._due[queue][mark.sequence] = since, mark
        row = _row(queue, mark.sequence)
        self._save(*row, since, mark.generation, mark.earliest.ts, mark.earliest.uid)

    async def redact(self, marks: Many[tuple[Sequence, Leaf]]) -> None:
        for sequence, leaf in marks:
            serials = self._redactions.setdefault(sequence, {})
            serial = self._newest(sequence) + 1
            serials.pop(leaf, None)
            serials[leaf] = serial
            self._save("redaction", (sequence, leaf.ts, leaf.uid), serial)

    def _newest(self, sequence: Sequence) -> int:
        """The serial of the newest redaction in a sequence."""
        return next(reversed(self._redactions.get(sequence, {}).values()), 0)

    # ---- erasure
    async def forbid(self, marks: Many[str]) -> None:
        for mark in marks:
            if mark not in self._marks:
                self._marks.add(mark)
                self._save("erasure", (mark,))

    async def forbidden(self, marks: Iterable[str]) -> set[str]:
        return self._marks.intersection(marks)

    async def withdraw(self, leaves: Many[tuple[Sequence, str]]) -> None:
        emptied: set[str] = set()
        for sequence, uid in leaves:
            run = self._runs.get(sequence)
            if run is None or not run.remove(uid):
                continue
            self._remove("entry", (sequence, uid))
            self._placed[uid].remove(run)
            if not self._placed[uid]:
                del self._placed[uid]
            if not run:
                del self._runs[sequence]
                emptied.add(sequence.workspace)
        self._leave(emptied)

    def _leave(self, workspaces: Iterable[str]) -> None:
        """Name those no more that have neither leaf nor fact left."""
        for workspace in workspaces:
            first = next(iter(self._runs.irange(Sequence(workspace, "", ""))), None)  # type: ignore[attr-defined]
            has_leaf = first is not None and first.workspace == workspace
            if not has_leaf and all(place[0] != workspace for place in self._facts):
                self._workspaces.discard(workspace)

    async def unlink(self, answers: Many[tuple[str, str]]) -> None:
        for target, uid in answers:
            run = self._answers.get(target)
            if run is not None and run.remove(uid):
                self._remove("answering", (target, uid))
                if not run:
                    del self._answers[target]

    async def strike(self, uids: Many[str]) -> None:
        await self.withdraw([(run.name, uid) for uid in uids for run in list(self._placed.get(uid, ()))])
        for uid in uids:
            for version in map(_version, self._versions.pop(uid, ())):
                self._remove("version", (uid, *order(version)))
            self._unstand(message_of(uid), lambda fact: None if isinstance(fact, ReactionEvent) else fact)
        self._leave({message_of(uid)[0] for uid in uids})
        _version.cache_clear()

    def _unstand(self, place: tuple[str, ...], left: Callable[[Fact], Fact | None]) -> bool:
        """Forget facts of one place, or parts of them. Whether there were any."""
        standing = self._facts.get(place, {})
        changed = {key: rest for key, fact in standing.items() if (rest := left(fact)) is not fact}
        for key, rest in changed.items():
            if rest is None:
                del standing[key]
                self._remove("fact", (_pack(key),))
            else:
                self._stand(key, rest)
        if changed and not standing:
            del self._facts[place]
        return bool(changed)

    async def unlearn(self, workspace: str, user: str) -> None:
        left = without_user(workspace, user)
        gone = [place for place in list(self._facts) if place[0] == workspace and self._unstand(place, left)]
        if (workspace,) in gone:
            self._set(f"facts:{workspace}", self._tick())
        self._leave([workspace])

    async def uncache(self, uids: Many[str]) -> None:
        """What was made from others goes before them: by them it is found again if this is cut short."""
        for key in reversed(await self.texts_of(uids)):
            del self._texts[key]

    async def texts_of(self, uids: Many[str]) -> list[str]:
        found: dict[str, None] = {}
        names = list(uids)
        while names:
            quotes = quoting(names)
            names = [key for key, text in self._texts.items() if key not in found and quotes(text)]
            found.update(dict.fromkeys(names))
        return list(found)

    async def sweep(self) -> None:
        standing = {(s.workspace, s.view, s.tree) for s in self._runs}
        due = self._due[SUMMARIES]
        for sequence in list(self._redactions):
            if (sequence.workspace, sequence.view, sequence.tree) not in standing and sequence not in due:
                for leaf in self._redactions.pop(sequence):
                    self._remove("redaction", (sequence, leaf.ts, leaf.uid))

    # ---- reading the forests
    async def versions(self, uids: Many[str]) -> list[tuple[Version, ...]]:
        return [tuple(map(_version, self._versions.get(uid, ()))) for uid in uids]

    async def placements(self, uids: Many[str]) -> list[tuple[Stand, ...]]:
        return [self._stands(uid) for uid in uids]

    def _stands(self, uid: str) -> tuple[Stand, ...]:
        runs = sorted(self._placed.get(uid, ()), key=lambda run: run.name)
        return tuple(Stand(run.name, run.rank(run.of[uid]), len(run)) for run in runs)

    async def leaves(self, spans: Many[Span]) -> list[tuple[Leaf, ...]]:
        runs = (self._runs.get(span.sequence) for span in spans)
        return [run.cut(span.start, span.stop) if run else () for run, span in zip(runs, spans, strict=True)]

    async def ranks(self, leaves: Many[tuple[Sequence, Leaf]]) -> list[int]:
        runs = (self._runs.get(sequence) for sequence, _ in leaves)
        return [run.rank(leaf) if run else 0 for run, (_, leaf) in zip(runs, leaves, strict=True)]

    async def sizes(self, sequences: Many[Sequence]) -> list[int]:
        return [len(self._runs.get(sequence, ())) for sequence in sequences]

    async def answers(self, uids: Many[str]) -> list[tuple[Leaf, ...]]:
        runs = (self._answers.get(uid) for uid in uids)
        return [run.cut(0, len(run)) if run else () for run in runs]

    async def sequences(self, workspace: str, view: str | None = None, tree: str | None = None) -> list[Sequence]:
        wanted = [part for part in (workspace, view, tree if view else None) if part is not None]
        first = Sequence(*wanted, *[""] * (3 - len(wanted)))
        run = takewhile(
            lambda s: [s.workspace, s.view, s.tree][: len(wanted)] == wanted,
            self._runs.irange(first),  # type: ignore[attr-defined]
        )
        return [sequence for sequence in run if tree is None or sequence.tree == tree]

    async def workspaces(self) -> list[str]:
        return sorted(self._workspaces)

    async def facts(self, workspace: str) -> list[DirectoryEvent]:
        standing = self._facts.get((workspace,), {})
        return [standing[key] for key in sorted(standing)]  # type: ignore[misc]

    async def facts_generation(self, workspace: str) -> int:
        """Facts that say what they said before, only later, do not count: every message hints at its channel's name."""
        return self._numbers.get(f"facts:{workspace}", 0)

    async def reactions(self, workspace: str, channel: str, message: str) -> list[ReactionEvent]:
        standing = self._facts.get((workspace, channel, message), {})
        return [standing[key] for key in sorted(standing)]  # type: ignore[misc]

    # ---- summarising
    async def due(self, limit: int, now: float = 0.0, lease: float = 0.0, queue: str = SUMMARIES) -> list[Due]:
        held = self._held[queue]
        free = (mark for _, mark in self._due[queue].values() if held.get(mark.sequence, now) <= now)
        taken = list(islice(free, max(limit, 0)))
        if lease:
            held.update((mark.sequence, now + lease) for mark in taken)
        return taken

    async def hold(self, due: Many[Due], until: float, queue: str = SUMMARIES) -> None:
        for given in due:
            since, mark = self._due[queue].get(given.sequence, (0, None))
            if mark is not None and mark.generation == given.generation:
                self._held[queue][given.sequence] = until
                if mark.earliest != given.earliest:
                    self._stand_due(queue, since, given)
            else:
                self._held[queue].pop(given.sequence, None)

    async def settle(self, due: Many[Due], queue: str = SUMMARIES) -> list[Due]:
        gone: list[Due] = []
        for settled in due:
            self._held[queue].pop(settled.sequence, None)
            _, mark = self._due[queue].get(settled.sequence, (0, None))
            if mark is None:
                gone.append(settled)
            elif mark.generation == settled.generation:
                del self._due[queue][settled.sequence]
                self._remove(*_row(queue, settled.sequence))
        return gone

    async def redactions(self, sequences: Many[Sequence]) -> list[tuple[Redaction, ...]]:
        serials = (self._redactions.get(sequence, {}) for sequence in sequences)
        return [tuple(Redaction(leaf, marks[leaf]) for leaf in sorted(marks)) for marks in serials]

    async def summaries(self, nodes: Many[NodeId], *, vectors: bool = True) -> list[Summary | None]:  # noqa: ARG002
        return [self._summaries.get(node) for node in nodes]

    async def keep(self, summaries: Many[Summary]) -> None:
        for summary in summaries:
            self._summaries[summary.node] = summary

    async def drop(self, nodes: Many[NodeId]) -> None:
        for node in nodes:
            if self._summaries.get(node) is not None:
                del self._summaries[node]
        await self.unword(nodes)

    # ---- wordings
    async def wordings(self, nodes: Many[NodeId]) -> list[Wording | None]:
        return [self._wordings.get(node) for node in nodes]

    async def word(self, wordings: Many[Wording]) -> list[bool]:
        return [self._word(wording) for wording in wordings]

    def _word(self, wording: Wording) -> bool:
        node = wording.node
        stands = self._summaries.get(node) is not None and self._newest(node.sequence) == wording.serial
        if stands:
            self._wordings[node] = wording
        return stands

    async def unword(self, nodes: Many[NodeId]) -> None:
        for node in nodes:
            if self._wordings.get(node) is not None:
                del self._wordings[node]

    async def cached(self, keys: Many[str]) -> list[Paid | None]:
        return [paid(self._texts.get(key)) for key in keys]

    async def cache(self, texts: Mapping[str, Paid]) -> None:
        for key, text in texts.items():
            self._texts[key] = written(text)

    # ---- artifacts
    async def grouping(self, workspace: str) -> Artifacts | None:
        return self._groupings.get(workspace)

    async def grouping_generation(self, workspace: str) -> int:
        return self._numbers.get(f"groups:{workspace}", 0)

    async def group(self, grouping: Artifacts, generation: int) -> bool:
        name = f"groups:{grouping.workspace}"
        if self._numbers.get(name, 0) != generation:
            return False
        self._groupings[grouping.workspace] = grouping
        self._save("grouping", (grouping.workspace,), grouping)
        self._set(name, self._tick())
        return True

    async def ungroup(self, workspace: str) -> None:
        if self._groupings.pop(workspace, None) is not None:
            self._remove("grouping", (workspace,))
        self._set(f"groups:{workspace}", self._tick())

    # ---- offsets and the whole
    async def applied(self, name: str) -> Position:
        start = f"applied:{name}/"
        return {int(n.removeprefix(start)): place for n, place in self._numbers.items() if n.startswith(start)}

    async def advance(self, name: str, position: Position) -> None:
        """Never goes back: of two places in a partition the greater stands."""
        for partition, place in position.items():
            number = f"applied:{name}/{partition}"
            if place > self._numbers.get(number, 0):
                self._set(number, place)

    async def everything(self) -> AsyncIterator[tuple[str, bytes]]:
        for known in list(self._versions.values()):
            for raw in known:
                yield "version", raw
        for run in list(self._runs.values()):
            for leaf in run.cut(0, len(run)):
                yield "entry", _pack(Entry(run.name, leaf))
        for answers in list(self._answers.values()):
            for leaf in answers.cut(0, len(answers)):
                yield "answering", _pack(Answering(answers.name, leaf))
        for standing in list(self._facts.values()):
            for fact in list(standing.values()):
                yield "fact", encode(fact)
        for mark in list(self._marks):
            yield "erasure", mark.encode()

    async def generated(self) -> AsyncIterator[tuple[str, Summary | Wording | Paid]]:
        for node in list(self._summaries):
            if (summary := self._summaries.get(node)) is not None:
                yield "", summary
        for node in list(self._wordings):
            if (wording := self._wordings.get(node)) is not None:
                yield wording.key, wording
        for key in list(self._texts):
            if (text := self._texts.get(key)) is not None:
                yield key, searched(text)

    async def counts(self) -> dict[str, int]:
        trees = Counter(view for view, _, _ in {(s.view, s.workspace, s.tree) for s in self._runs})
        reactions = sum(len(standing) for home, standing in self._facts.items() if len(home) > 1)
        return {
            "messages": len(self._versions),
            "versions": sum(map(len, self._versions.values())),
            "leaves": sum(map(len, self._runs.values())),
            "sequences": len(self._runs),
            "channel_trees": trees["channel"],
            "actor_trees": trees["actor"],
            "artifact_sequences": trees["artifact"],
            "answers": sum(map(len, self._answers.values())),
            "facts": sum(map(len, self._facts.values())) - reactions,
            "reactions": reactions,
            **{queue: len(self._due[queue]) for queue in QUEUES},
            "redactions": sum(map(len, self._redactions.values())),
            "summaries": len(self._summaries),
            "wordings": len(self._wordings),
            "cached_texts": len(self._texts),
            "groupings": len(self._groupings),
        }

    async def clear(self) -> None:
        """Numbers that tell new from old go on from where they were, so that nothing read before fits what comes."""
        self._forget()
        self._summaries.clear()
        self._wordings.clear()
        for name in list(self._numbers):
            if name.startswith("applied:"):
                del self._numbers[name]
                self._remove("number", (name,))
            elif name.startswith(("facts:", "groups:")):
                self._set(name, self._tick())
