"""Erasure inside the forests: what is forgotten leaves them as if it had never been said (design §4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core import erasure, forest, routing
from streammem.core import events as canonical
from streammem.core.events import uid, workspace_of
from streammem.flows.wording import take_back
from streammem.ports import Span, StructureStore
from streammem.records import (
    DirectoryEvent,
    Entry,
    ErasureEvent,
    Leaf,
    LogEntry,
    MessageEvent,
    ReactionEvent,
    Sequence,
    Version,
    Wording,
)

Mark = tuple[Sequence, Leaf]

PIECE = 256
"""Messages that are erased at once."""


async def let_in(
    entries: Many[LogEntry], store: StructureStore
) -> tuple[list[LogEntry], list[DirectoryEvent | ReactionEvent]]:
    """Carry out the erasures among these entries; return the entries that no mark refuses, and their facts.

    What a forgotten message says in passing of its channel, or of somebody who is not forgotten, is no part of it.

    Whichever of a message and its erasure comes last completes it, so the outcome is the same in any order. A message
    of which a forgotten user said any version is forgotten whole. Running it again changes nothing. Cut short, it may
    not find again what a user said: the erasures of those messages do, which stand in the log beside the user's.
    """
    erasures = [e.event for e in entries if isinstance(e.event, ErasureEvent)]
    await store.forbid([erasure.mark_of(e) for e in erasures])  # 1. from now on nothing of it comes in
    marks = await forbidding(entries, store)
    refused = refused_messages(entries, marks)
    await store.forbid(sorted(refused - marks))  # 2. nor any other version of it
    messages = refused | {erasure.mark_of(e) for e in erasures if e.entity == "message"}
    for user in (e for e in erasures if e.entity == "user"):
        messages |= await _said_by(user, store)
    await store.forbid(sorted(messages))  # 3. what a forgotten user said, whoever says it next
    for user in (e for e in erasures if e.entity == "user"):
        await store.unlearn(user.workspace, user.id)  # 4. who it was
    await _erase(sorted(messages), store)  # 5. what was said
    facts = canonical.facts_of(e.event for e in entries)
    known = [left for f in facts if (left := erasure.without(f, marks | messages)) is not None]
    return kept(entries, marks | messages), known  # type: ignore[return-value]


async def look_again(entries: Many[LogEntry], versions: Many[Version], store: StructureStore) -> None:
    """Take out what was let in and written while another worker set a mark that refuses it.

    Whoever marks looks afterwards for what is there, and whoever writes looks afterwards for marks: one of the two
    finds the other. What is erased already, in part, is said once more, for erasing goes by what was said.
    """
    marks = await forbidding(entries, store)
    reactions = (e.event for e in entries if isinstance(e.event, ReactionEvent)) if marks else ()
    late = refused_messages(entries, marks) | marks.intersection(
        uid(r.workspace, r.channel, r.message) for r in reactions
    )
    await store.forbid(sorted(late - marks))
    await store.register([v for v in versions if v.uid in late])
    await _erase(sorted(late), store)
    for workspace, user in filter(None, map(erasure.marked_user, sorted(marks))):
        await store.unlearn(workspace, user)


async def forbidding(entries: Iterable[LogEntry], store: StructureStore) -> set[str]:
    """The marks that refuse some of these entries."""
    asked = {mark for e in entries for mark in erasure.asked_about(e.event)}
    return await store.forbidden(asked) if asked else set()


def refused_messages(entries: Iterable[LogEntry], marks: set[str]) -> set[str]:
    """The uids of the messages among these entries that marks refuse."""
    said = (e.event for e in entries if isinstance(e.event, MessageEvent)) if marks else ()
    return {uid(m.workspace, m.channel.id, m.id) for m in said if erasure.without(m, marks) is None}


def kept(entries: Many[LogEntry], marks: set[str]) -> list[LogEntry]:
    """The entries as far as marks let them be taken in."""
    if not marks:
        return list(entries)
    found = ((e, erasure.without(e.event, marks)) for e in entries)
    return [e if left is e.event else msgspec.structs.replace(e, event=left) for e, left in found if left is not None]


async def _said_by(user: ErasureEvent, store: StructureStore) -> set[str]:
    """The messages of which a user said any version."""
    known = await store.sequences(user.workspace, "actor", user.id)
    authored = [s for s in known if s.branch == routing.AUTHORED]
    sizes = await store.sizes(authored)
    spans = [Span(s, 0, size) for s, size in zip(authored, sizes, strict=True)]
    return {leaf.uid for leaves in await store.leaves(spans) for leaf in leaves}


async def _erase(uids: Many[str], store: StructureStore) -> None:
    if uids:
        await unsay(uids, store)
    for start in range(0, len(uids), PIECE):
        await _erase_piece(uids[start : start + PIECE], store)
    for workspace in sorted(set(map(workspace_of, uids))):  # last: what is grouped meanwhile is not kept either
        await store.ungroup(workspace)


async def unsay(uids: Many[str], store: StructureStore) -> None:
    """Drop the texts that a model made from these messages, or beside them in one call, wherever they are shown."""
    keys = set(await store.texts_of(uids))
    if keys:
        await take_back([w async for _, w in store.generated() if isinstance(w, Wording) and w.key in keys], store)
        await store.uncache(uids)


async def _erase_piece(uids: Many[str], store: StructureStore) -> None:
    """Take messages out of everything. What says where they stand goes last: until then it can be done again."""
    versions = [v for known in await store.versions(uids) for v in known]
    targets = list(dict.fromkeys(t for v in versions for t in routing.targets_of(v)))
    known = dict(zip(targets, await store.versions(targets), strict=True))
    lent = await _lent(versions, store)
    leaving = [*_own(versions, known), *((sequence, leaf) for sequence, leaf, _ in lent)]
    marks = [*leaving, *((node.sequence, leaf) for s, leaf in leaving for node in forest.skeleton(s))]
    await _hide(marks, store)  # a. what summaries say of them
    await store.withdraw([(s, leaf.uid) for s, leaf in leaving])  # b. their leaves, and those that they lent
    await store.enter([Entry(sequence, left) for sequence, _, left in lent if left])  # where answers stand without them
    await store.unlink([(target, v.uid) for v in versions for target in routing.targets_of(v)])  # c.
    await _hide(marks, store)  # d. also what was summarised between a and b
    await store.strike(uids)  # e.


async def _hide(marks: Many[Mark], store: StructureStore) -> None:
    await store.redact(marks)
    await store.mark_due(marks)


def _own(versions: Iterable[Version], targets: Mapping[str, Many[Version]]) -> list[Mark]:
    """Every leaf that messages have, whoever gave it to them."""
    leaves: dict[Mark, None] = {}
    for version in versions:
        lent = {i for t in routing.targets_of(version) for v in targets.get(t, ()) for i in v.identifiers}
        sequences = [*routing.own_sequences(version), *(routing.artifact_sequence(version.workspace, i) for i in lent)]
        leaves.update(((sequence, routing.leaf_of(version)), None) for sequence in sequences if not version.deleted)
    return list(leaves)


async def _lent(versions: Iterable[Version], store: StructureStore) -> list[tuple[Sequence, Leaf, Leaf | None]]:
    """The leaves of answers that only these messages' identifiers put where they are.

    Each with the leaf that the answer has there without them: a later one, or none.
    """
    lending = [v for v in versions if v.identifiers and not v.deleted]
    gone = {v.uid for v in lending}
    answers = await store.answers([v.uid for v in lending])
    uids = list(dict.fromkeys(leaf.uid for leaves in answers for leaf in leaves))
    said = dict(zip(uids, await store.versions(uids), strict=True))
    others = list(dict.fromkeys(t for some in said.values() for v in some for t in routing.targets_of(v)))
    known = dict(zip(others, await store.versions(others), strict=True))
    rest = {target: some for target, some in known.items() if target not in gone}
    found = (
        (sequence, leaf, min(_standing(sequence, said[leaf.uid], rest), default=None))
        for v, leaves in zip(lending, answers, strict=True)
        for sequence in (routing.artifact_sequence(v.workspace, i) for i in v.identifiers)
        for leaf in leaves
    )
    return [(sequence, leaf, left) for sequence, leaf, left in found if left is None or leaf < left]


def _standing(sequence: Sequence, versions: Iterable[Version], targets: Mapping[str, Many[Version]]) -> Iterator[Leaf]:
    """The leaves that the versions of an answer have in an artifact's sequence without the target that leaves."""
    return (
        routing.leaf_of(v)
        for v in versions
        if not v.deleted
        and (
            sequence.tree in v.identifiers
            or any(sequence.tree in t.identifiers for name in routing.targets_of(v) for t in targets.get(name, ()))
        )
    )
