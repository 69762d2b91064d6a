"""The log to vectors: every message version becomes one point, worded with the names that stand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from streammem.core import events as canonical
from streammem.core import indexing, positions
from streammem.core.directory import Directory
from streammem.core.erasure import mark_of, marks_on
from streammem.core.identifiers import Rules
from streammem.flows.artifacts import mark_groups
from streammem.flows.erasing import forbidding, kept, refused_messages
from streammem.flows.structure import marks_of, versions_of
from streammem.ports import Embedder, MessagePoint, StructureStore, VectorIndex, Vectors
from streammem.records import (
    FOREVER,
    AttributeEvent,
    ChannelEvent,
    ErasureEvent,
    LogEntry,
    MembershipEvent,
    MessageEvent,
    Naming,
    TieEvent,
    UserEvent,
    Version,
)

APPLIED = "index"
"""The name of this flow's offset in the store."""

_PIECE = 512

Spoken = tuple[Version, Naming]


async def index(
    entries: Many[LogEntry], store: StructureStore, vectors: VectorIndex, embedder: Embedder, rules: Rules
) -> None:
    """Make a piece of the log findable; the structure flow has been over it. Running it again changes nothing.

    Pieces may be indexed in any order and by several processes at once: whatever another one may write meanwhile is
    read again after the own write (design §3).
    """
    marks = await _forget(entries, store, vectors)  # 0. what is forgotten leaves
    remembered = kept(entries, marks)
    versions = versions_of(remembered, rules)
    events = [e.event for e in remembered if isinstance(e.event, MessageEvent)]
    said = {v.key: event for v, event in zip(versions, events, strict=True)}
    uids = list(dict.fromkeys(v.uid for v in versions))
    await _add(versions, said, store, vectors, embedder)  # 1. the points
    await vectors.lower(await _ends(uids, store))  # 2. what newer versions end
    await _forget(entries, store, vectors)  # again: an erasure may have come between
    named = await _rename(entries, versions, store, vectors, embedder)  # 3. what was worded with names of before
    await vectors.flush()  # 4. durable
    await store.mark_due(await marks_of(named, store))  # 5. summaries over those
    await mark_groups((e.event.workspace for e in entries), store)  # 6. artifacts
    if entries:
        await store.advance(APPLIED, positions.after(entries))  # 7. last: the offset


async def _forget(entries: Many[LogEntry], store: StructureStore, vectors: VectorIndex) -> set[str]:
    """Remove the points of all that these entries erase, and of messages that marks refuse. Return the marks."""
    marks = await forbidding(entries, store)
    marks |= refused_messages(entries, marks)
    gone: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for entry in entries:
        event = entry.event
        if isinstance(event, ErasureEvent):
            uids, users = gone[event.workspace]
            uids.add(mark_of(event)) if event.entity == "message" else users.add(event.id)
        elif isinstance(event, MessageEvent) and marks.intersection(marks_on(event)):
            gone[event.workspace][0].add(canonical.uid(event.workspace, event.channel.id, event.id))
    for workspace, (uids, users) in gone.items():
        await vectors.erase(workspace, sorted(uids), sorted(users))
    return marks


async def _ends(uids: Many[str], store: StructureStore) -> dict[str, int]:
    """When the versions of these messages ended, by Version.key: those that did."""
    known = await store.versions(uids)
    return {key: until for some in known for key, until in indexing.untils(some).items() if until < FOREVER}


async def _add(
    versions: Many[Version],
    said: dict[str, MessageEvent],
    store: StructureStore,
    vectors: VectorIndex,
    embedder: Embedder,
) -> None:
    have = await vectors.known([v.key for v in versions])
    new = {v.key: v for v in versions if indexing.searchable(v) and v.key not in have}
    names = {w: Directory(await store.facts(w)) for w in {v.workspace for v in new.values()}}
    spoken = [(v, indexing.naming_of(said[v.key], v, names[v.workspace])) for v in new.values()]
    untils = await _ends(list(dict.fromkeys(v.uid for v in new.values())), store)
    await vectors.upsert(_points(spoken, await _encoded(spoken, embedder), untils))


async def _encoded(spoken: Many[Spoken], embedder: Embedder) -> Many[Vectors]:
    texts = [indexing.dense_text(version, naming) for version, naming in spoken]
    return list(await asyncio.to_thread(embedder.encode, texts)) if texts else []


def _points(spoken: Many[Spoken], vectors: Many[Vectors], untils: dict[str, int]) -> list[MessagePoint]:
    return [
        MessagePoint(version, untils.get(version.key, FOREVER), vector, indexing.lexical_text(version, naming), naming)
        for (version, naming), vector in zip(spoken, vectors, strict=True)
    ]


async def _rename(
    entries: Many[LogEntry],
    versions: Many[Version],
    store: StructureStore,
    vectors: VectorIndex,
    embedder: Embedder,
) -> list[str]:
    """Word points anew whose speaker or channel is called otherwise now. Return the uids whose vectors changed."""
    touched = _touched(entries, versions)
    changed: dict[str, None] = {}
    for workspace in sorted(touched):
        generation = -1
        while generation != (generation := await store.facts_generation(workspace)):
            names = Directory(await store.facts(workspace))
            users, channels = touched[workspace].under(names)
            called = {user: names.user_name(user) for user in users}
            rooms = {channel: names.channel_name(channel) for channel in channels}
            found = await vectors.misnamed(workspace, called, rooms)
            for start in range(0, len(found), _PIECE):
                misnamed = dict(found[start : start + _PIECE])
                changed |= dict.fromkeys(await _word(misnamed, names, store, vectors, embedder))
                gone = await store.forbidden(map(_uid_of, misnamed))  # an erasure may have come between
                await vectors.erase(workspace, sorted(gone))
    return list(changed)


@dataclass
class _Touched:
    """Whom and what in a workspace entries are from or about."""

    speakers: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    channels: set[str] = field(default_factory=set)
    forgets: bool = False

    def under(self, names: Directory) -> tuple[set[str], set[str]]:
        """The users and channels, under all their ids, that may be called otherwise since these entries.

        Direct conversations are called by who is in them. Where somebody who is forgotten was nobody knows any more.
        """
        users = {one for user in self.users for one in names.ids_of(user)}
        channels = {one for channel in self.channels for one in names.ids_of_channel(channel)}
        direct = names.direct_channels if self.forgets else {c for user in self.users for c in names.direct_of(user)}
        return self.speakers | users, self.channels | channels | direct


def _touched(entries: Many[LogEntry], versions: Many[Version]) -> dict[str, _Touched]:
    """What may be called otherwise, by workspace. Refused entries count: they may have stood for a moment."""
    touched: defaultdict[str, _Touched] = defaultdict(_Touched)
    for version in versions:
        touched[version.workspace].speakers.add(version.user)
        touched[version.workspace].channels.add(version.channel)
    for entry in entries:
        if isinstance(entry.event, ErasureEvent):
            touched[entry.event.workspace].forgets |= entry.event.entity == "user"
    for fact in canonical.facts_of(e.event for e in entries):
        here = touched[fact.workspace]
        if isinstance(fact, UserEvent):
            here.users.update((fact.id, *fact.same_as))
        elif isinstance(fact, ChannelEvent):
            here.channels.add(fact.id)
        elif isinstance(fact, MembershipEvent):
            here.channels.add(fact.channel)
        elif isinstance(fact, AttributeEvent | TieEvent):
            ids = {fact.id, fact.same_as} if isinstance(fact, TieEvent) else {fact.id}
            (here.users if fact.entity == "user" else here.channels).update(ids)
    return dict(touched)


def _uid_of(key: str) -> str:
    """The message that a Version.key is of."""
    return key.rsplit("/", 2)[0]


async def _word(
    misnamed: dict[str, Naming], names: Directory, store: StructureStore, vectors: VectorIndex, embedder: Embedder
) -> Iterable[str]:
    """Replace these points; only those whose speaker changed are encoded anew."""
    uids = list(dict.fromkeys(map(_uid_of, misnamed)))
    known = {v.key: v for some in await store.versions(uids) for v in some}
    spoken = {k: (known[k], indexing.renamed(n, known[k], names)) for k, n in misnamed.items() if k in known}
    again = [k for k, (_, naming) in spoken.items() if naming.speaker != misnamed[k].speaker]
    encoded = dict(zip(again, await _encoded([spoken[k] for k in again], embedder), strict=True))
    kept = [k for k in spoken if k not in encoded]
    encoded |= {k: v for k, v in zip(kept, await vectors.vectors(kept), strict=True) if v is not None}
    some = [spoken[k] for k in encoded]
    await vectors.replace(_points(some, list(encoded.values()), await _ends(uids, store)))
    await vectors.lower(await _ends(uids, store))
    return (known[k].uid for k in again)
