"""The log to vectors: every message version becomes one point, worded with the names that stand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Many

from streammem.core import events as canonical
from streammem.core import indexing, positions
from streammem.core.directory import Directory
from streammem.core.erasure import mark_of, marks_on
from streammem.core.identifiers import Rules
from streammem.flows.erasing import forbidding, kept, refused_messages
from streammem.flows.structure import marks_of, versions_of
from streammem.ports import Embedder, MessagePoint, StructureStore, VectorIndex, Vectors
from streammem.records import (
    FOREVER,
    AttributeEvent,
    ChannelEvent,
    ErasureEvent,
    LogEntry,
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
    named = await _rename(remembered, versions, store, vectors, embedder)  # 3. what was worded with names of before
    await vectors.flush()  # 4. durable
    await store.mark_due(await marks_of(named, store))  # 5. summaries over those
    if entries:
        await store.advance(APPLIED, positions.after(entries))  # 6. last: the offset


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
    users, channels = _entities(entries, versions)
    changed: dict[str, None] = {}
    for workspace in sorted({*users, *channels}):
        generation = -1
        while generation != (generation := await store.facts_generation(workspace)):
            names = Directory(await store.facts(workspace))
            called = {user: names.user_name(user) for user in users[workspace]}
            rooms = {channel: names.channel_name(channel) for channel in channels[workspace]}
            found = await vectors.misnamed(workspace, called, rooms)
            for start in range(0, len(found), _PIECE):
                misnamed = dict(found[start : start + _PIECE])
                changed |= dict.fromkeys(await _word(misnamed, names, store, vectors, embedder))
                gone = await store.forbidden(map(_uid_of, misnamed))  # an erasure may have come between
                await vectors.erase(workspace, sorted(gone))
    return list(changed)


def _entities(
    entries: Many[LogEntry], versions: Many[Version]
) -> tuple[defaultdict[str, set[str]], defaultdict[str, set[str]]]:
    """The users and channels that these entries are from or about, by workspace."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    channels: defaultdict[str, set[str]] = defaultdict(set)
    for version in versions:
        users[version.workspace].add(version.user)
        channels[version.workspace].add(version.channel)
    for fact in canonical.facts_of(e.event for e in entries):
        if isinstance(fact, UserEvent):
            users[fact.workspace].add(fact.id)
        elif isinstance(fact, ChannelEvent):
            channels[fact.workspace].add(fact.id)
        elif isinstance(fact, AttributeEvent | TieEvent):
            ids = {fact.id, fact.same_as} if isinstance(fact, TieEvent) else {fact.id}
            (users if fact.entity == "user" else channels)[fact.workspace] |= ids
    return users, channels


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
