"""What generated texts rest on: none in use covers a version that is deleted, erased or said otherwise by now.

In use is what has a node in the store and no redaction over it. Each text is held against the messages as they stand,
whoever wrote it. Where a summariser is still to come, leaves may be grouped otherwise than its nodes are: there only
what a text names is looked at.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from itertools import islice, product

import msgspec

from streammem.core import forest, routing, summaries, wording
from streammem.core.directory import Directory
from streammem.core.events import channel_of
from streammem.core.indexing import searchable
from streammem.core.registers import winner
from streammem.flows.summarize import speaking
from streammem.flows.telling import is_key
from streammem.flows.wording import Directories
from streammem.ports import Span, StructureStore
from streammem.records import Due, NodeId, Paid, Redaction, Sequence, Summary, Version, Wording

PIECE = 128
"""Nodes, or cached texts, that are looked at together: they stand over a few thousand messages."""

NAMED = 20
"""Stale texts that are named; all are counted."""

EVERY = 1_000_000_000
"""More sequences than there are."""

GUESSES = 4096
"""Combinations of earlier versions that are tried for a text that is not of those that stand."""

Generated = Summary | Wording
Known = Mapping[str, tuple[Version, ...]]


class Lineage(msgspec.Struct, frozen=True):
    """How many summaries and wordings in use were looked at, and how many cover what they must not.

    `named` says of up to NAMED of these what is wrong.
    """

    summaries: int = 0
    wordings: int = 0
    stale: int = 0
    named: tuple[str, ...] = ()


async def trace(store: StructureStore, k: int, progress: Callable[[int], None] | None = None) -> Lineage:
    """Look at every summary and wording in use.

    A change that is being written while this runs may be seen before the redaction that hides it: look again then.
    """
    due = await store.due(EVERY, now=math.inf)  # also what somebody holds
    quotes, words, directories = _Quotes(store, k, due), _Words(store), Directories(store)
    found = Lineage()
    async for piece in _pieces(store):
        for sequence, (plain, worded) in _by_sequence(piece).items():
            directory = await directories.of(sequence.workspace)
            wrong = await quotes.faults(sequence, plain, directory) if plain else {}
            amiss = await words.faults(worded) if worded else {}
            (redactions,) = await store.redactions([sequence])  # last: they hide what was seen to change before
            found = _joined(found, _of(plain, wrong, redactions), _of(worded, amiss, redactions))
        if progress:
            progress(len(piece))
    return found


async def _pieces(store: StructureStore) -> AsyncIterator[list[Generated]]:
    piece: list[Generated] = []
    async for _, said in store.generated():
        if not isinstance(said, Paid):
            piece.append(said)
        if len(piece) >= PIECE:
            yield piece
            piece = []
    yield piece


def _by_sequence(piece: Iterable[Generated]) -> dict[Sequence, tuple[list[Summary], list[Wording]]]:
    groups: defaultdict[Sequence, tuple[list[Summary], list[Wording]]] = defaultdict(lambda: ([], []))
    for said in piece:
        plain, worded = groups[said.node.sequence]
        if isinstance(said, Summary):
            plain.append(said)
        elif said.text:  # else the model failed, and there is nothing to be shown
            worded.append(said)
    return groups


def _of(some: Iterable[Generated], faults: Mapping[NodeId, str], redactions: Many[Redaction]) -> list[str]:
    """What is wrong with each of these that is in use; "" where nothing is."""
    used = [said for said in some if said.node in faults and not summaries.hidden(said, redactions)]
    return [f"{name_of(said.node)}: {fault}" if (fault := faults[said.node]) else "" for said in used]


def _joined(found: Lineage, plain: Many[str], worded: Many[str]) -> Lineage:
    stale = [fault for fault in (*plain, *worded) if fault]
    return Lineage(
        found.summaries + len(plain),
        found.wordings + len(worded),
        found.stale + len(stale),
        (*found.named, *stale)[:NAMED],
    )


def name_of(node: NodeId) -> str:
    """A node for people to read."""
    s = node.sequence
    place = "".join((f", {s.branch}" if s.branch else "", f" in {s.channel}" if s.channel else ""))
    return f"{s.view}:{s.tree}{place}, level {node.level}, node {node.index} of workspace {s.workspace}"


# ------------------------------------------------------------------------------------------------ extractive ones


class _Quotes:
    """Extractive summaries against the messages that they quote and those that they stand over."""

    def __init__(self, store: StructureStore, k: int, due: Iterable[Due]) -> None:
        self._store, self._k = store, k
        self._due = {d.sequence: d.earliest for d in due}
        self._moving = {forest.top_of(s) for s in self._due if s.view == "actor"}

    async def faults(self, sequence: Sequence, some: Many[Summary], directory: Directory) -> dict[NodeId, str]:
        """What is wrong with each summary of a sequence; "" where nothing is."""
        known, erased = await _said({uid for s in some for uid in _named(s)}, self._store)
        anew = await self._made_anew(sequence, [s for s in some if self._is_settled(s)], directory)
        return {s.node: _ended(s, known, erased) or _misquoted(s, known) or _otherwise(s, anew) for s in some}

    def _is_settled(self, summary: Summary) -> bool:
        """Whether no summariser is to come any more, so that it must be what would be made now."""
        sequence, level = summary.node.sequence, summary.node.level
        if forest.is_skeleton(sequence):
            return forest.top_of(sequence) not in self._moving
        due = self._due.get(sequence)
        return due is None or (level == 1 and summary.last < due)

    async def _made_anew(self, sequence: Sequence, some: Many[Summary], directory: Directory) -> dict[NodeId, str]:
        """What each summary would be made from now, over the leaves from its first to its last."""
        if forest.is_skeleton(sequence):
            return {s.node: await self._of_skeleton(s.node, directory) for s in some}
        lowest = [s for s in some if s.node.level == 1]
        upper = [s.node for s in some if s.node.level > 1]
        anew = await self._of_leaves(sequence, lowest, directory) if lowest else {}
        return anew | (await self._of_children(upper) if upper else {})

    async def _of_leaves(self, sequence: Sequence, some: Many[Summary], directory: Directory) -> dict[NodeId, str]:
        ranks = iter(await self._store.ranks([(sequence, leaf) for s in some for leaf in (s.first, s.last)]))
        runs = await self._store.leaves([Span(sequence, next(ranks), next(ranks) + 1) for _ in some])
        live = await speaking(sequence, [leaf.uid for run in runs for leaf in run], self._store, directory)
        made = ([live[leaf.uid] for leaf in run if leaf.uid in live and searchable(live[leaf.uid])] for run in runs)
        return {s.node: _digest(versions, directory.is_public) for s, versions in zip(some, made, strict=True)}

    async def _of_children(self, nodes: Many[NodeId]) -> dict[NodeId, str]:
        """Of a last node some children are not there."""
        below = [NodeId(n.sequence, n.level - 1, n.index * self._k + i) for n in nodes for i in range(self._k)]
        stored = iter(await self._store.summaries(below, vectors=False))
        return {node: forest.digest(c.made_from for c in islice(stored, self._k) if c is not None) for node in nodes}

    async def _of_skeleton(self, node: NodeId, directory: Directory) -> str:
        below = _branches(node.sequence) if node.index else await self._roots(node.sequence, directory)
        stored = await self._store.summaries(below, vectors=False)
        return forest.digest(child.made_from for child in stored if child is not None)

    async def _roots(self, branch: Sequence, directory: Directory) -> list[NodeId]:
        """The roots of the sequences in public channels below a branch of an actor."""
        known = await self._store.sequences(branch.workspace, branch.view, branch.tree)
        public = [s for s in known if s.branch == branch.branch and directory.is_public(s.channel)]
        sizes = await self._store.sizes(public)
        return [NodeId(s, forest.root_level(n, self._k), 0) for s, n in zip(public, sizes, strict=True)]


def _branches(actor: Sequence) -> list[NodeId]:
    both = (Sequence(actor.workspace, actor.view, actor.tree, b) for b in (routing.AUTHORED, routing.MENTIONED))
    return [NodeId(branch, forest.SKELETON, 0) for branch in both]


def _digest(versions: Iterable[Version], is_public: Callable[[str], bool]) -> str:
    return forest.digest(f"{v.key}|{summaries.audience_of(v.channel, public=is_public(v.channel))}" for v in versions)


def _misquoted(summary: Summary, known: Known) -> str:
    if _quotes(summary.text, [winner(known[uid]) for uid in summary.picks]):
        return ""
    return "its quotes are not what is said now"


def _quotes(text: str, versions: Iterable[Version]) -> bool:
    """Whether a text is the quotes of these versions, each whole or cut anywhere: the length is a setting."""
    rest = text
    for number, version in enumerate(versions):
        rest = rest.removeprefix(" · " if number else "")
        whole = summaries.quote(version, len(version.text))
        said = whole[: _alike(whole, rest)]
        rest = rest[len(said) :]
        if said != whole and rest.startswith("…"):
            rest = rest[1:]
        elif said != whole and not said.endswith("…"):  # cut before an ellipsis of its own
            return False
    return not rest


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _otherwise(summary: Summary, anew: Mapping[NodeId, str]) -> str:
    """It covers something that is not there, or not for the same readers, although no summariser is to come."""
    if anew.get(summary.node, summary.made_from) == summary.made_from:
        return ""
    return "what it was made from is not what stands under it"


# ------------------------------------------------------------------------------------------------ worded ones


class _Words:
    """Wordings against the cache: from text to text down to the messages that stand."""

    def __init__(self, store: StructureStore) -> None:
        self._store, self._texts = store, _Texts(store)

    async def faults(self, some: Many[Wording]) -> dict[NodeId, str]:
        """What is wrong with each wording that has a summary to be shown for; "" where nothing is."""
        stored = await self._store.summaries([w.node for w in some], vectors=False)
        used = [w for w, s in zip(some, stored, strict=True) if s is not None and wording.fits(w, s)]
        await self._texts.look([w.key for w in used])
        known, erased = await _said({uid for w in used for uid in _named(w)}, self._store)
        return {w.node: _ended(w, known, erased) or _mismade(w) or self._texts.fault(w) for w in used}


def _mismade(worded: Wording) -> str:
    if worded.made_from in (worded.key, worded.key.partition("/")[0]):  # the words of an only child are its parent's
        return ""
    return "its text is not of what it was made from"


class _Texts:
    """The cached texts that were looked at, and what was found out about each: kept by key, without the texts."""

    def __init__(self, store: StructureStore) -> None:
        self._store = store
        self._below: dict[str, tuple[str, ...]] = {}  # to the keys of the texts that it was made from
        self._channels: dict[str, frozenset[str]] = {}
        self._faults: dict[str, str] = {}
        self._exact: dict[str, tuple[str, str]] = {}  # made from messages as they stand: the first and the last

    async def look(self, keys: Iterable[str]) -> None:
        """Look at these texts and at all that they were made from."""
        wanted = list(dict.fromkeys(keys))
        while wanted:
            piece = [key for key in wanted[-PIECE:] if key not in self._below]
            del wanted[-PIECE:]
            found = dict(zip(piece, await self._store.cached(piece), strict=True))
            uids = {uid for paid in found.values() if paid for uid in paid.sources if not is_key(uid)}
            known, erased = await _said(uids, self._store)
            for key, paid in found.items():
                self._note(key, paid, known, erased)
                wanted.extend(below for below in self._below[key] if below not in self._below)

    def _note(self, key: str, paid: Paid | None, known: Known, erased: set[str]) -> None:
        sources = paid.sources if paid is not None else ()
        uids = [source for source in sources if not is_key(source)]
        self._below[key] = tuple(source for source in sources if is_key(source))
        self._channels[key] = frozenset(map(channel_of, uids))
        if not sources:
            self._faults[key] = "its text is not in the cache" if paid is None else "nobody knows what it was made from"
        elif gone := next(_gone(uids, known, erased), ""):
            self._faults[key] = f"it was made from {gone}"
        elif not self._below[key]:
            self._compare(key, uids, [known[uid] for uid in uids])

    def _compare(self, key: str, uids: Many[str], versions: Many[tuple[Version, ...]]) -> None:
        """Where a text was made from messages, its key tells from which versions; not so where from quotes of them."""
        made_from, _, rest = key.partition("/")
        view = rest.partition("/")[0]
        if made_from in _digests(map(winner, versions), view):
            self._exact[key] = (uids[0], uids[-1])
        elif any(made_from in _digests(some, view) for some in islice(product(*versions), GUESSES)):
            self._faults[key] = "it was made from a version that was edited since"

    def fault(self, worded: Wording) -> str:
        """What is wrong with what a wording rests on, down to the messages."""
        ends = (worded.first.uid, worded.last.uid)
        if worded.node.level == 1 and worded.key not in self._faults and self._exact.get(worded.key) != ends:
            return "it was made from other versions than those that stand"
        allowed, seen, left = frozenset(worded.channels), {worded.key}, [worded.key]
        while left:
            key = left.pop()
            if fault := self._faults.get(key):
                return fault
            if strange := self._channels[key] - allowed:
                return f"it was made from channel {min(strange)}, which it does not name"
            left.extend(below for below in self._below[key] if below not in seen)
            seen.update(left)
        return ""


def _digests(versions: Iterable[Version], view: str) -> set[str]:
    """What a text over these versions may be made from: by who could read it when it was made.

    Words that everybody could read may stay where only members see them now; what pools channels is public or nothing.
    """
    some = tuple(versions)
    private = () if view == "artifact" else (_digest(some, lambda _: False),)
    return {_digest(some, lambda _: True), *private}


# ------------------------------------------------------------------------------------------------- messages


async def _said(uids: Iterable[str], store: StructureStore) -> tuple[Known, set[str]]:
    """The versions of these messages, and which of them are erased."""
    wanted = sorted(uids)
    erased = await store.forbidden(wanted)
    return dict(zip(wanted, await store.versions(wanted), strict=True)), erased


def _named(said: Generated) -> tuple[str, ...]:
    """The messages that a node is known to stand over."""
    return (said.first.uid, said.last.uid, *(said.picks if isinstance(said, Summary) else ()))


def _ended(said: Generated, known: Known, erased: set[str]) -> str:
    uids = _named(said)
    if gone := next(_gone(uids, known, erased), ""):
        return f"it covers {gone}"
    strange = {channel_of(uid) for uid in uids}.difference(said.channels)
    return f"it covers channel {min(strange)}, which it does not name" if strange else ""


def _gone(uids: Iterable[str], known: Known, erased: set[str]) -> Iterator[str]:
    """Those that do not stand any more, with the reason."""
    for uid in uids:
        if uid in erased:
            yield f"{uid}, which was erased"
        elif not known[uid]:
            yield f"{uid}, which is not there"
        elif winner(known[uid]).deleted:
            yield f"{uid}, which was deleted"
