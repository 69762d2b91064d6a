"""The log to registers, sequences, answers and directory: growing the forests."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from streammem.core import events as canonical
from streammem.core import forest, positions, routing
from streammem.core.directory import Directory
from streammem.core.identifiers import Rules
from streammem.core.registers import fact_key, fact_order
from streammem.flows.erasing import let_in, look_again
from streammem.ports import Fact, Span, StructureStore
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    Entry,
    Event,
    Leaf,
    LogEntry,
    MessageEvent,
    Sequence,
    TieEvent,
    Version,
)

APPLIED = "structure"
"""The name of this flow's offset in the store."""

Mark = tuple[Sequence, Leaf]


def versions_of(entries: Iterable[LogEntry], rules: Rules) -> list[Version]:
    """The version records of the message events in a piece of the log. The content hash ends each key."""
    return [
        canonical.version_of(e.event, e.key.rpartition("/")[2][1:], rules)
        for e in entries
        if isinstance(e.event, MessageEvent)
    ]


async def grow(entries: Many[LogEntry], store: StructureStore, rules: Rules) -> None:
    """Place a piece of the log in every sequence it belongs to. Running it again changes nothing.

    Every effect but erasure is grow-only, so pieces may come in any order and more than once. Marks come after what
    they mark, and always, also on redelivery: a mark must not be lost.
    """
    remembered, facts = await let_in(entries, store)  # 0. what is forgotten leaves, or does not come in
    versions = versions_of(remembered, rules)
    events = [e.event for e in remembered]
    own = routing.entries_of(versions)
    await store.register(versions)  # 1. what each message said
    await store.enter(own)  # 2. leaves of its own
    await store.link(routing.answerings_of(versions))  # 3. who answers whom
    inherited = await _complete_threads(versions, store)  # 4. leaves that threads add
    repealed = await _repealed(facts, events, store)
    await store.mark_due(repealed)  # 5. what turns private or public: once it is learned, nobody can tell any more
    await store.learn(facts)  # 6. people and channels
    changed = await _changed(versions, store)
    await store.redact([*changed, *_skeleton_marks(changed)])  # 7. hide what summaries say of changed leaves
    marks = [(e.sequence, e.leaf) for e in (*own, *inherited)]
    await store.mark_due([*marks, *changed, *repealed])  # 8.
    await look_again(remembered, versions, store)  # 9. an erasure may have come between
    if entries:
        await store.advance(APPLIED, positions.after(entries))  # 10. last: the offset


async def _complete_threads(versions: Many[Version], store: StructureStore) -> list[Entry]:
    """Enter the leaves that threads add to artifact sequences: own facts are written, now read the others'."""
    targets = list(dict.fromkeys(t for v in versions for t in routing.targets_of(v)))
    carriers = list(dict.fromkeys(v.uid for v in versions if v.identifiers))
    known = dict(zip(targets, await store.versions(targets), strict=True))
    answers = dict(zip(carriers, await store.answers(carriers), strict=True))
    entries = routing.inherited_entries(versions, known, answers)
    await store.enter(entries)
    return entries


async def _changed(versions: Many[Version], store: StructureStore) -> list[Mark]:
    """Every leaf whose content may have changed: those of messages with several versions and of their answers."""
    uids = list(dict.fromkeys(v.uid for v in versions))
    several = [uid for uid, known in zip(uids, await store.versions(uids), strict=True) if len(known) > 1]
    if not several:
        return []
    answering = [leaf.uid for leaves in await store.answers(several) for leaf in leaves]
    return await marks_of(list(dict.fromkeys([*several, *answering])), store)


def _skeleton_marks(marks: Iterable[Mark]) -> list[Mark]:
    """The same leaves under the nodes of the fixed skeletons above their sequences."""
    return [(node.sequence, leaf) for sequence, leaf in marks for node in forest.skeleton(sequence)]


async def marks_of(uids: Many[str], store: StructureStore) -> list[Mark]:
    """Every (sequence, leaf) that these messages have.

    Each also at the places where it stood before an earlier time was known: there older summaries are over it. Times
    come from the versions: a rank that was read is another message's as soon as somebody else enters a leaf.
    """
    known, placed = await store.versions(uids), await store.placements(uids)
    return [
        (stand.sequence, leaf)
        for versions, stands in zip(known, placed, strict=True)
        for stand in stands
        for leaf in sorted({routing.leaf_of(v) for v in versions if not v.deleted})
    ]


async def _repealed(facts: Iterable[Fact], events: Iterable[Event], store: StructureStore) -> list[Mark]:
    """The leaves whose audience these facts may change.

    A stated channel is looked at on every delivery. A hint in passing is looked at only when it turns the channel.
    """
    touched = [f for f in facts if _about_channel(f)]
    looked_at = {(f.workspace, id_) for f in events for id_ in _about_channel(f)}
    for workspace in sorted({f.workspace for f in touched}):
        before = {fact_key(f): f for f in await store.facts(workspace) if _about_channel(f)}
        after = dict(before)
        for fact in touched:
            name = fact_key(fact)
            if fact.workspace == workspace and (name not in after or _rank(fact) > _rank(after[name])):
                after[name] = fact  # type: ignore[assignment]
        was, will_be = Directory(before.values()), Directory(after.values())
        channels = {id_ for f in after.values() for id_ in _about_channel(f)}
        looked_at.update((workspace, c) for c in channels if was.is_public(c) != will_be.is_public(c))
    marks: list[Mark] = []
    for workspace, channel in sorted(looked_at):
        marks.extend(await _leaves_in(routing.channel_sequence(workspace, channel), store))
    return marks


def _about_channel(fact: Event) -> tuple[str, ...]:
    """The channels whose audience a fact may decide."""
    if isinstance(fact, ChannelEvent):
        return (fact.id,)
    if isinstance(fact, AttributeEvent) and (fact.entity, fact.attribute) == ("channel", "type"):
        return (fact.id,)
    return (fact.id, fact.same_as) if isinstance(fact, TieEvent) and fact.entity == "channel" else ()


def _rank(fact: Fact) -> tuple[str, bool, str]:
    return fact_order(fact, canonical.content_hash(fact))


async def _leaves_in(channel: Sequence, store: StructureStore) -> list[Mark]:
    """The leaves that the messages of a channel have, in all their sequences."""
    (size,) = await store.sizes([channel])
    (leaves,) = await store.leaves([Span(channel, 0, size)])
    placed = await store.placements([leaf.uid for leaf in leaves])
    return [(stand.sequence, leaf) for leaf, stands in zip(leaves, placed, strict=True) for stand in stands]
