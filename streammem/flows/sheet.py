"""The nodes of one sequence and what a language model is to word of them, children before parents."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from collections.abc import Sequence as Many
from typing import Any, Literal

import msgspec

from streammem.core import forest, prompts, routing, summaries, wording
from streammem.core.directory import Directory
from streammem.core.indexing import searchable
from streammem.core.numbers import Wording as Numbers
from streammem.core.prompts import Part
from streammem.core.wording import Told, Verdict
from streammem.flows.summarize import speaking, stretch
from streammem.ports import CHANGED, RENEWALS, TOUCHED, UPPER, WORDS, StructureStore
from streammem.records import Due, Leaf, NodeId, Redaction, Sequence, Summary, Version, Wording

PIECE = 512
"""Nodes read at a time."""

WINDOW = 4
"""Nodes in the making, for each call that may be in flight: those that are read and written, that wait for company, and
parents that wait for their children are among them."""


class Said(msgspec.Struct, frozen=True):
    """What a model said of a part, or what was wrong with it. `tokens` were paid for it."""

    text: str
    tokens: int = 0
    fault: str = ""


Tell = Callable[[Part, str], Awaitable[Said | None]]
"""Gives the text of a part, or None where it comes later. Parts of one company may be asked for together: they are of
one workspace, view, level and audience."""


class Worded(msgspec.Struct, frozen=True):
    """What was done: nodes worded, nodes that the model failed at, nodes left for later.

    `behind` are nodes whose summaries, or whose children's texts, are not there yet: they are looked at again soon.
    """

    worded: int = 0
    failed: int = 0
    later: int = 0
    behind: int = 0

    def __add__(self, other: Worded) -> Worded:
        return Worded(
            self.worded + other.worded,
            self.failed + other.failed,
            self.later + other.later,
            self.behind + other.behind,
        )


class Pen(msgspec.Struct, frozen=True):
    """What nodes are worded with. Times in seconds, by a clock that all processes share.

    A sequence is held for a `lease` while its nodes are worded, and rests when it cannot go on.
    `told` hears of what is done.
    """

    store: StructureStore
    tell: Tell
    writer: str
    k: int
    numbers: Numbers
    clock: Callable[[], float] = time.time
    lease: float = 60.0
    rest: float = 1.0
    told: Callable[[Worded], None] | None = None


class Room(asyncio.Semaphore):
    """How many nodes may be in the making. Whatever takes a place waits for nothing that has none."""

    def __init__(self, numbers: Numbers) -> None:
        self.places = self.free = numbers.in_flight * max(WINDOW, 2 * numbers.pack)
        super().__init__(self.places)

    async def acquire(self) -> Literal[True]:
        await super().acquire()
        self.free -= 1
        return True

    def release(self) -> None:
        self.free += 1
        super().release()


class Sheet:
    """The nodes of one sequence in the making, in a room that it shares with others.

    After `fill`: `done` is what was done, `later` when to look again and from where, `shifted` the first leaf of a node
    that is renewed lazily, `root_anew` whether the root has other words. `states` counts nodes by view, level and what
    they were when they were looked at (core.wording.STATES).
    """

    def __init__(self, due: Due, queue: str, pen: Pen, directory: Directory, room: Room | None = None) -> None:
        self.due, self._queue, self._pen, self._directory = due, queue, pen, directory
        self.done = Worded()
        self.later: tuple[float, Leaf] | None = None
        self.shifted: Leaf | None = None
        self.root_anew = False
        self.states: Counter[tuple[str, int, str]] = Counter()
        self._serials: dict[Sequence, int] = {}
        self._redactions: dict[Sequence, tuple[Redaction, ...]] = {}
        self._summaries: dict[NodeId, Summary] = {}
        self._wordings: dict[NodeId, Wording] = {}
        self._path: set[NodeId] = set()
        self._behind: set[NodeId] = set()
        self._making: dict[NodeId, asyncio.Task[None]] = {}
        self._room = room if room is not None else Room(pen.numbers)
        self._stopped = False

    @property
    def queue_again(self) -> str:
        """Where a sequence waits whose summaries are behind."""
        return UPPER if forest.is_skeleton(self.due.sequence) else WORDS

    async def fill(self) -> None:
        """Word every node that is to be worded now. Raises what stopped it, when all that was begun has ended."""
        try:
            await (self._fill_skeleton() if forest.is_skeleton(self.due.sequence) else self._fill_sequence())
            made = await asyncio.gather(*self._making.values(), return_exceptions=True)
        finally:  # stopped halfway, it leaves nothing running
            await ended(self._making.values())
        for error in made:
            if isinstance(error, BaseException):
                raise error
        self._count(Worded(behind=len(self._behind)))

    def _count(self, done: Worded) -> None:
        self.done += done
        if self._pen.told is not None:
            self._pen.told(done)

    # ---- what there is
    async def _look(self, nodes: Many[NodeId]) -> None:
        """Read summaries and wordings. What hides them was read before: it can only be older than they are."""
        for start in range(0, len(nodes), PIECE):
            piece = nodes[start : start + PIECE]
            found = await asyncio.gather(
                self._pen.store.summaries(piece, vectors=False), self._pen.store.wordings(piece)
            )
            for summary, worded in zip(*found, strict=True):
                if summary is not None:
                    self._take(summary, worded)

    def _take(self, summary: Summary, worded: Wording | None) -> None:
        node, redactions = summary.node, self._redactions[summary.node.sequence]
        if summaries.hidden(summary, redactions):
            self._behind.add(node)  # the summariser has not been here yet
            return
        self._summaries[node] = summary
        if worded is not None and wording.stands(worded, redactions) and self._may_stand(worded, summary):
            self._wordings[node] = worded

    def _may_stand(self, worded: Wording, summary: Summary) -> bool:
        """Whether it is of what is under its node, and what pools channels is of public ones still."""
        pooled = summaries.read_by_everyone(worded.node.sequence) or forest.is_skeleton(worded.node.sequence)
        public = all(map(self._directory.is_public, worded.channels))
        return wording.fits(worded, summary) and (public or not pooled)

    async def _redacted(self, sequences: Many[Sequence]) -> None:
        known = await self._pen.store.redactions(sequences)
        self._redactions.update(zip(sequences, known, strict=True))
        self._serials.update((s, max((r.serial for r in k), default=0)) for s, k in self._redactions.items())

    # ---- a sequence
    async def _fill_sequence(self) -> None:
        pen, sequence, k = self._pen, self.due.sequence, self._pen.k
        await self._redacted([sequence])
        now = await stretch(self.due, pen.store, k, self._directory)
        if not now.leaves:
            return
        rising = [NodeId(sequence, level, index) for level, index in forest.rising(now.start, now.size, k)]
        older = [c for n in rising if n.level > 1 for c in forest.children(n, now.size, k)]
        await self._look(list(dict.fromkeys([*rising, *older])))
        first = sum(leaf < self.due.earliest for leaf in now.leaves) + now.start
        self._path = {NodeId(sequence, *place) for place in forest.path(min(first, now.size - 1), now.size, k)}
        tail = now.leaves[(now.size - 1) // k * k - now.start]
        for node in rising:
            if self._stopped:
                return
            full = (node.index + 1) * k**node.level <= now.size
            if node.level == 1:
                leaves = now.leaves[node.index * k - now.start : (node.index + 1) * k - now.start]
                await self._leaf_node(node, leaves, full=full, tail=tail)
            else:
                await self._upper_node(node, forest.children(node, now.size, k), full=full, tail=tail)

    async def _leaf_node(self, node: NodeId, leaves: Many[Leaf], *, full: bool, tail: Leaf) -> None:
        summary = self._summaries.get(node)
        if summary is None:
            return
        key = wording.key_of(summary.made_from, node.sequence.view, self._pen.writer)
        if self._due_now(node, summary, key, full=full, tail=tail):
            await self._begin(node, self._word_leaves(node, summary, key, leaves))

    async def _upper_node(self, node: NodeId, children: Many[NodeId], *, full: bool, tail: Leaf) -> None:
        if any(child in self._making for child in children):
            await self._begin(node, self._after(node, children, full=full, tail=tail))
        elif (wanted := self._wanted(node, children)) is not None:
            read, key = wanted
            if self._due_now(node, self._summaries[node], key, full=full, tail=tail):
                await self._begin(node, self._word_children(node, children, read, key))
        else:
            self._note_unwanted(node)

    async def _after(self, node: NodeId, children: Many[NodeId], *, full: bool, tail: Leaf) -> None:
        """Word a node when its children have been: the only thing that a node waits for."""
        await asyncio.gather(*(self._making[child] for child in children if child in self._making))
        wanted = self._wanted(node, children)
        if wanted is None:
            self._note_unwanted(node)
        elif self._due_now(node, self._summaries[node], wanted[1], full=full, tail=tail):
            await self._word_children(node, children, *wanted)

    def _wanted(self, node: NodeId, children: Many[NodeId]) -> tuple[Told, str] | None:
        """What a node would be worded from, and the key of that; None where there is nothing to be done."""
        below = self._below(children)
        if not self._behind.isdisjoint(children):
            self._behind.add(node)
        if node not in self._summaries or not below or node in self._behind:
            return None
        if len(below) == 1:  # nothing can be added to what one child says
            return (below[0], below[0].id) if below[0].sources == (below[0].id,) else None
        read = wording.told_together(below)
        return read, wording.key_of(read.id, node.sequence.view, self._pen.writer)

    def _below(self, children: Iterable[NodeId]) -> list[Told]:
        return [t for child in children if (t := self._tell(child)) is not None]

    def _tell(self, node: NodeId) -> Told | None:
        summary = self._summaries.get(node)
        return None if summary is None else wording.told(summary, self._wordings.get(node))

    # ---- what is to be done
    def _due_now(self, node: NodeId, summary: Summary, key: str, *, full: bool, tail: Leaf) -> bool:
        pen, path = self._pen, self._path
        verdict = wording.verdict(
            summary,
            self._wordings.get(node),
            key,
            full=full,
            pressing=node in path or self._queue == RENEWALS,
            urgent=self._queue == CHANGED,
            now=pen.clock(),
            k=pen.k,
            numbers=pen.numbers,
        )
        self._note(node, verdict, summary, tail)
        return verdict.what == "now"

    def _note(self, node: NodeId, verdict: Verdict, summary: Summary, tail: Leaf) -> None:
        self.states[node.sequence.view, node.level, wording.state_of(verdict, summary, self._wordings.get(node))] += 1
        if verdict.what == "later":
            at = min(verdict.at, self.later[0]) if self.later else verdict.at
            self.later = (at, tail)
        elif verdict.what == "lazily":
            self.shifted = min(self.shifted or summary.first, summary.first)
        if verdict.what in ("later", "lazily"):
            self._count(Worded(later=1))

    def _note_unwanted(self, node: NodeId) -> None:
        """A node that cannot be worded: what is below it comes first, or is one child without words."""
        if node in self._summaries:
            self.states[node.sequence.view, node.level, "due" if node in self._behind else "quoted"] += 1

    # ---- doing it
    async def _begin(self, node: NodeId, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            work.close()
            raise
        task = asyncio.ensure_future(work)
        self._making[node] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._room.release()
        self._stopped |= task.cancelled() or task.exception() is not None

    async def _word_leaves(self, node: NodeId, summary: Summary, key: str, leaves: Many[Leaf]) -> None:
        sequence = node.sequence
        live = await speaking(sequence, [leaf.uid for leaf in leaves], self._pen.store, self._directory)
        versions = [v for leaf in leaves if (v := live.get(leaf.uid)) is not None and searchable(v)]
        if self._digest(versions) != summary.made_from:
            self._behind.add(node)  # the summariser will come, and mark it again
            return
        read = wording.told(summary, None)
        pooled = summaries.read_by_everyone(sequence)
        part = self._part(node, read, key, tuple(v.uid for v in versions), _lines(versions, pooled, self._pen.numbers))
        await self._write(node, read, key, await self._pen.tell(part, self._company(node, read)))

    def _digest(self, versions: Iterable[Version]) -> str:
        public = self._directory.is_public
        return forest.digest(f"{v.key}|{summaries.audience_of(v.channel, public=public(v.channel))}" for v in versions)

    async def _word_children(self, node: NodeId, children: Many[NodeId], read: Told, key: str) -> None:
        below = self._below(children)
        if len(below) == 1:
            await self._write(node, read, key, Said(read.text))
            return
        lines = tuple(prompts.text_line(n, t.first.ts, t.last.ts, t.text) for n, t in enumerate(below, 1))
        part = self._part(node, read, key, read.sources, lines)
        await self._write(node, read, key, await self._pen.tell(part, self._company(node, read)))

    def _part(self, node: NodeId, read: Told, key: str, sources: tuple[str, ...], lines: tuple[str, ...]) -> Part:
        view, tree = node.sequence.view, node.sequence.tree
        label = prompts.label(view, tree)
        return Part(key, view, label, node.level, read.first.ts, read.last.ts, sources, lines)

    def _company(self, node: NodeId, read: Told) -> str:
        public = all(map(self._directory.is_public, read.channels))
        audience = summaries.audience_of(read.channels[0], public=public)
        return forest.digest((node.sequence.workspace, node.sequence.view, str(node.level), audience))

    async def _write(self, node: NodeId, read: Told, key: str, said: Said | None) -> None:
        """Keep what was said, unless something was redacted meanwhile: then the sequence is looked at once more."""
        if said is None:
            self._behind.add(node)
            return
        made = wording.written(
            node,
            read,
            key,
            said.text,
            serial=self._serials[node.sequence],
            writer=self._pen.writer,
            fault=said.fault,
            tokens=said.tokens,
        )
        if not await self._kept(made):
            self._behind.add(node)
            return
        self._wordings[node] = made
        self.root_anew |= self._summaries[node].is_root
        self._count(Worded(worded=not said.fault, failed=bool(said.fault)))

    async def _kept(self, made: Wording) -> bool:
        """Keep a wording unless something was redacted since it was read, or erased: then its text has left the cache.

        Where a whole tree was erased and grew anew, its redactions have gone with it. So the cache is asked, too, once
        more when the wording stands: whoever erases after that finds it.
        """
        store = self._pen.store
        if made.text and (await store.cached([made.key]))[0] is None:
            return False
        if not (await store.word([made]))[0]:
            return False
        if made.text and (await store.cached([made.key]))[0] is None:
            await store.unword([made.node])
            return False
        return True

    # ---- the skeleton above an actor's sequences
    async def _fill_skeleton(self) -> None:
        """Branches and root, from the roots of the sequences in public channels (design §5, Audience)."""
        pen, actor = self._pen, self.due.sequence
        below = await pen.store.sequences(actor.workspace, "actor", actor.tree)
        below = [s for s in below if self._directory.is_public(s.channel)]
        branches = [Sequence(actor.workspace, "actor", actor.tree, b) for b in (routing.AUTHORED, routing.MENTIONED)]
        await self._redacted([actor, *branches, *below])
        sizes = dict(zip(below, await pen.store.sizes(below), strict=True))
        roots = {s: NodeId(s, forest.root_level(n, pen.k), 0) for s, n in sizes.items()}
        upper = [NodeId(branch, forest.SKELETON, 0) for branch in branches]
        top = NodeId(actor, forest.SKELETON, 1)
        under = [c for s, root in roots.items() if root.level > 1 for c in forest.children(root, sizes[s], pen.k)]
        await self._look([*roots.values(), *under, *upper, top])
        self._path = {*upper, top} if self._queue in (CHANGED, TOUCHED) else set()
        self._behind |= {root for root in roots.values() if self._awaits(root, sizes[root.sequence])}
        for node in upper:
            children = [root for s, root in roots.items() if s.branch == node.sequence.branch]
            await self._upper_node(node, children, full=False, tail=self.due.earliest)
        await self._upper_node(top, upper, full=False, tail=self.due.earliest)

    def _awaits(self, root: NodeId, size: int) -> bool:
        """Whether the root of a sequence is to be worded now."""
        summary, full = self._summaries.get(root), size == self._pen.k**root.level
        if summary is None:
            return False
        if root.level == 1:
            key = wording.key_of(summary.made_from, "actor", self._pen.writer)
        elif (wanted := self._wanted(root, forest.children(root, size, self._pen.k))) is not None:
            key = wanted[1]
        else:
            return False
        standing = self._wordings.get(root)
        now, k, numbers = self._pen.clock(), self._pen.k, self._pen.numbers
        found = wording.verdict(
            summary, standing, key, full=full, pressing=False, urgent=False, now=now, k=k, numbers=numbers
        )
        return found.what == "now"


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """End what still runs of these."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _lines(versions: Many[Version], pooled: bool, numbers: Numbers) -> tuple[str, ...]:
    """The messages of a node as the model reads them; a reply to one of them says to which."""
    places = {version.uid: number for number, version in enumerate(versions, 1)}
    return tuple(
        prompts.message_line(number, v, places.get(v.reply_to), numbers.message_length, shows_channel=pooled)
        for number, v in enumerate(versions, 1)
    )
