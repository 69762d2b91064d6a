"""The memory as one asker may see it at one moment: the gate that every query goes through (design §5, §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core import forest, registers, routing, summaries, wording
from streammem.core.artifacts import Reading
from streammem.core.directory import Directory, fold
from streammem.core.events import channel_of, native_id
from streammem.core.events import uid as uid_of
from streammem.core.identifiers import Rules
from streammem.core.indexing import searchable
from streammem.core.numbers import Forest, Retrieval
from streammem.errors import QueryError
from streammem.ports import Embedder, MessageHit, Span, Stand, StructureStore, VectorIndex, Vectors, Visible
from streammem.records import FOREVER, Leaf, NodeId, Query, Redaction, Sequence, Summary, Version, Wording


class Desk(msgspec.Struct, frozen=True):
    """What a query is answered with.

    `touched` hears of the nodes that it met; `artifacts` is how identifiers are grouped, and what is said every day.
    """

    store: StructureStore
    index: VectorIndex
    embedder: Embedder
    directory: Directory
    rules: Rules
    forest: Forest
    numbers: Retrieval
    touched: Callable[[Many[NodeId]], None] | None = None
    artifacts: Reading = Reading()


async def resolve(query: Query, desk: Desk) -> Query:
    """Turn names into ids. An asker nobody knows is an error: guessing would decide access."""
    asker = await _asker(query, desk) if query.asker else None
    readable = {
        c for c in desk.directory.channels if query.everything or desk.directory.visible(c, asker)
    }  # the name of a channel that the asker does not read is not confirmed either
    channels = tuple(_channel(name, desk.directory, readable) for name in query.channels)
    if query.since is not None and query.until is not None and query.since > query.until:
        raise QueryError("the question's `since` is later than its `until`: nothing can lie between them")
    return msgspec.structs.replace(query, asker=asker, channels=channels)


async def _asker(query: Query, desk: Desk) -> str:
    name = query.asker or ""
    if name in desk.directory.users:
        return name
    known = desk.directory.user_names.get(fold(name), frozenset())
    if len(known) == 1:
        return next(iter(known))
    if known:
        raise QueryError(f"{name!r} is the name of {len(known)} users: ask as one of {', '.join(sorted(known))}")
    if await desk.store.sequences(query.workspace, "actor", name):
        return name
    raise QueryError(f"no user {name!r} in this memory: name a user by id, name or alias")


def _channel(name: str, directory: Directory, readable: set[str]) -> str:
    if name in readable:
        return name
    known = directory.channel_names.get(fold(name), frozenset()) & readable
    if len(known) == 1:
        return next(iter(known))
    if known:
        raise QueryError(f"{name!r} is the name of {len(known)} channels: name one of {', '.join(sorted(known))}")
    raise QueryError(f"no channel {name!r} that you can read in this memory: name a channel by id or name")


def visible_to(query: Query, directory: Directory) -> Visible:
    """What this query may touch: public channels and those the asker is in, or all of them if it says so."""
    mine = directory.private_channels_of(query.asker)
    guest = directory.is_guest(query.asker)
    channels = None if query.everything else mine if guest else directory.public_channels | mine
    audiences = None if query.everything else mine if guest else mine | {"public"}
    if query.channels:
        wanted = frozenset(other for c in query.channels for other in directory.ids_of_channel(c))
        channels = wanted if channels is None else channels & wanted
    return Visible(
        workspace=query.workspace,
        channels=channels,
        audiences=audiences,
        moment=query.as_of,
        since=query.since,
        until=None if query.until is None else query.until + 1,  # a question's last moment counts, a search's does not
        exclude=_excluded(query, directory.channels if channels is None else channels),
    )


def end(visible: Visible) -> Leaf:
    """A leaf behind all that had been said by the moment asked for."""
    return Leaf(FOREVER if visible.moment is None else visible.moment + 1, "")


def desk_for(visible: Visible, desk: Desk) -> Desk:
    """The desk without a grouping, for who does not read all public channels: a guest.

    What a grouping or a count rests on need not be seen to move it: that two identifiers are kept apart, that a text is
    said every day.
    """
    if visible.audiences is None or "public" in visible.audiences:
        return desk
    return msgspec.structs.replace(desk, artifacts=Reading())


def _excluded(query: Query, channels: Iterable[str]) -> frozenset[str]:
    """The names as they were given, and the uids that they may be ids of."""
    uids = (uid_of(query.workspace, channel, name) for channel in channels for name in query.exclude)
    return frozenset((*query.exclude, *uids))


class Sight:
    """The memory as the asker may see it at the moment asked for. Whatever a query derives passes through here.

    A message that is not visible, not said yet, deleted, blank, or not asked for does not exist here (design §5).
    """

    def __init__(self, desk: Desk, query: Query, visible: Visible, vector: Vectors) -> None:
        self._desk, self._wanted, self._vector = desk, visible, vector
        self._moment = query.as_of
        self._seen: dict[str, Version | None] = {}
        self._said: dict[str, Version] = {}
        self._cosines: dict[str, float] = {}

    async def see(self, uids: Iterable[str]) -> None:
        """Look at these messages."""
        new = [uid for uid in dict.fromkeys(uids) if uid not in self._seen and self._reads(uid)]
        for uid, version in zip(new, await self._standing(new), strict=True):
            mine = version is not None and version.uid == uid and self._may(version)
            self._seen[uid] = version if mine else None
        if self._desk.directory.has_former_channels:
            await self._follow(new)
        if self._desk.directory.has_ties:
            self._unite(new)

    async def _standing(self, uids: Many[str]) -> list[Version | None]:
        """What stands of each message, whichever of its channel's ids it was said under."""
        if not self._desk.directory.has_former_channels:  # nearly always
            return [registers.as_of(some, self._moment) for some in await self._desk.store.versions(uids)]
        names = [self._names(uid) for uid in uids]
        found = iter(await self._desk.store.versions([name for some in names for name in some]))
        known = [[version for _ in some for version in next(found)] for some in names]
        return [registers.as_of(some, self._moment) for some in known]

    def _names(self, uid: str) -> list[str]:
        """The uids of a message under all ids that its channel has had."""
        if not self._desk.directory.has_former_channels:  # nearly always
            return [uid]
        channels = self._desk.directory.ids_of_channel(channel_of(uid))
        return [uid] if len(channels) == 1 else [uid_of(self._wanted.workspace, c, native_id(uid)) for c in channels]

    async def _follow(self, uids: Iterable[str]) -> None:
        """Let replies and threads name their target as it stands, across a change of the channel's id."""
        moved = [v for uid in uids if (v := self.get(uid)) is not None and (v.reply_to or v.thread)]
        targets = list(dict.fromkeys(t for v in moved for t in (v.reply_to, v.thread) if t))
        standing = dict(zip(targets, await self._standing(targets), strict=True))
        names = {target: version.uid if version else target for target, version in standing.items()} | {"": ""}
        for v in moved:
            self._seen[v.uid] = msgspec.structs.replace(v, reply_to=names[v.reply_to], thread=names[v.thread])

    def _unite(self, uids: Iterable[str]) -> None:
        """Let every person have one id; `said` tells which ones a message was said with."""
        person = self._desk.directory.person
        for uid in uids:
            if (version := self.get(uid)) is not None:
                self._said[uid] = version
                mentions = tuple(sorted(set(map(person, version.mentions))))
                self._seen[uid] = msgspec.structs.replace(version, user=person(version.user), mentions=mentions)

    def said(self, uid: str) -> Version:
        """A message that was looked at, with the ids that it was said with."""
        return self._said.get(uid) or self[uid]

    async def answers(self, uids: Many[str]) -> list[tuple[Leaf, ...]]:
        """The leaves that answer each message, under all ids that its channel has had."""
        names = [self._names(uid) for uid in uids]
        found = iter(await self._desk.store.answers([name for some in names for name in some]))
        return [tuple(sorted({leaf for _ in some for leaf in next(found)})) for some in names]

    def tree_of(self, sequence: Sequence) -> tuple[str, str]:
        """The tree that a sequence belongs to: a person has one, and so has a channel, whatever ids they have had."""
        view, tree = forest.tree_of(sequence)
        if view == "actor":
            return view, self._desk.directory.person(tree)
        return view, self._desk.directory.in_use(tree) if view == "channel" else tree

    async def near(self, places: Many[tuple[Sequence, int]], before: int, after: int) -> list[list[Version]]:
        """For each rank of a sequence, up to `before` visible leaves that stand before it and `after` from there on.

        Hidden leaves do not count: a window of ranks would show how many of them there are (design §5, Audience). Nor
        do hollow ones: an edit, made since or still to come, does not say where a message stands.
        """
        wide = 1
        while True:
            spans = [Span(s, max(0, rank - wide * before), rank + wide * after) for s, rank in places]
            windows = await self._desk.store.leaves(spans)
            await self.see(leaf.uid for leaves in windows for leaf in leaves)
            await self._see_targets(leaf.uid for leaves in windows for leaf in leaves)
            sides = [
                (self._live(s, leaves[: rank - span.start]), self._live(s, leaves[rank - span.start :]))
                for (s, rank), span, leaves in zip(places, spans, windows, strict=True)
            ]
            if all(
                (len(left) >= before or not span.start)
                and (len(right) >= after or len(leaves) < span.stop - span.start)
                for (left, right), span, leaves in zip(sides, spans, windows, strict=True)
            ):
                return [left[max(0, len(left) - before) :] + right[:after] for left, right in sides]
            wide *= 4

    async def said_by(self, person: str) -> dict[Sequence, int]:
        """How many messages somebody has said by the moment asked for, by sequence, where the asker reads."""
        store, visible = self._desk.store, self._wanted
        ids = self._desk.directory.ids_of(person)
        known = [s for one in ids for s in await store.sequences(visible.workspace, "actor", one)]
        authored = (s for s in known if s.branch == routing.AUTHORED)
        own = [s for s in authored if visible.channels is None or s.channel in visible.channels]
        counts = await store.ranks([(sequence, end(visible)) for sequence in own])
        return dict(zip(own, counts, strict=True))

    def standing(self, hits: Iterable[MessageHit]) -> list[MessageHit]:
        """The hits of what stands and the asker sees: an index may know an older version still."""
        return [h for h in hits if (version := self.get(h.uid)) is not None and version.key == h.key]

    async def stands(self, uids: Many[str]) -> dict[str, tuple[Stand, ...]]:
        """Where each message that was looked at has a live leaf: where it belongs by what the asker sees of it."""
        await self._see_targets(uids)
        found = zip(uids, await self._desk.store.placements(uids), strict=True)
        return {uid: tuple(s for s in some if self._stands(uid, s.sequence)) for uid, some in found}

    async def _see_targets(self, uids: Iterable[str]) -> None:
        """Look at what these messages answer: an answer belongs where that does."""
        await self.see(t for uid in uids if (v := self.get(uid)) is not None for t in routing.targets_of(v))

    def _stands(self, uid: str, sequence: Sequence) -> bool:
        version = self.get(uid)
        if version is None:
            return False
        targets = routing.targets_of(version) if sequence.view == "artifact" else ()  # an answer stays with what it has
        answered = {t: (v,) for t in targets if (v := self.get(t)) is not None}
        return routing.belongs(sequence, self.said(uid), answered)

    def _live(self, sequence: Sequence, leaves: Iterable[Leaf]) -> list[Version]:
        return [self[leaf.uid] for leaf in leaves if self._stands(leaf.uid, sequence)]

    def _reads(self, uid: str) -> bool:
        channels = self._wanted.channels
        return channels is None or channel_of(uid) in channels

    def _may(self, version: Version) -> bool:
        v = self._wanted
        return (
            version.workspace == v.workspace
            and (v.channels is None or version.channel in v.channels)
            and (v.since is None or version.ts >= v.since)
            and (v.until is None or version.ts < v.until)
            and version.id not in v.exclude
            and version.uid not in v.exclude
            and searchable(version)
        )

    def get(self, uid: str) -> Version | None:
        """What the asker sees of a message that was looked at."""
        return self._seen.get(uid)

    def __getitem__(self, uid: str) -> Version:
        version = self._seen[uid]
        if version is None:
            raise KeyError(uid)
        return version

    async def weigh(self, uids: Iterable[str], known: Mapping[str, float] = {}) -> dict[str, float]:
        """The cosine of each visible message to the question; `known` gives those already found."""
        seen = [uid for uid in dict.fromkeys(uids) if self.get(uid) is not None]
        self._cosines.update(known)
        wanted = [uid for uid in seen if uid not in self._cosines]
        found = await self._desk.index.cosines(self._vector, [self[uid].key for uid in wanted])
        self._cosines.update((uid, value or 0.0) for uid, value in zip(wanted, found, strict=True))
        return {uid: self._cosines[uid] for uid in seen}

    def cosine(self, uid: str) -> float | None:
        """The cosine of a message that was weighed; None for one that the asker does not see."""
        return self._cosines.get(uid) if self.get(uid) is not None else None


async def shown_summaries(nodes: Many[NodeId], visible: Visible, desk: Desk) -> dict[NodeId, Summary]:
    """The summaries of these nodes that the asker may see and that nothing hides, without vectors.

    They have the words of a language model where those may be shown, too.
    """
    sequences = list(dict.fromkeys(node.sequence for node in nodes))
    stored, worded, known = await asyncio.gather(
        desk.store.summaries(nodes, vectors=False), desk.store.wordings(nodes), desk.store.redactions(sequences)
    )
    redactions = dict(zip(sequences, known, strict=True))

    def shown(summary: Summary | Wording | None) -> bool:
        return summary is not None and _shown(summary, redactions[summary.node.sequence], visible, desk.directory)

    return {
        s.node: wording.in_words(s, w if shown(w) else None)
        for s, w in zip(stored, worded, strict=True)
        if s is not None and shown(s)
    }


def _shown(summary: Summary | Wording, redactions: Iterable[Redaction], visible: Visible, directory: Directory) -> bool:
    """Whether the asker may see what it was made from, as of the moment, and nothing of that has changed since.

    What is made from public channels is grouped over all of them: a guest, who does not read them all, sees none of it.
    """
    return (
        summaries.shows(summary, visible.channels, visible.moment)
        and (
            visible.audiences is None
            or summaries.audience_of_summary(summary, directory.is_public) in visible.audiences
        )
        and not summaries.hidden(summary, redactions)
    )
