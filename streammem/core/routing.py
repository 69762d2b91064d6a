"""Message version to the sequences that get a leaf of it (design §3, §5).

Routing looks at the version alone, and for artifacts at what it answers. Directory facts never re-route anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many

from streammem.core.registers import winner
from streammem.records import Answering, Entry, Leaf, Sequence, Version

AUTHORED, MENTIONED = "authored", "mentioned"


def channel_sequence(workspace: str, channel: str) -> Sequence:
    """The one sequence of a channel's tree."""
    return Sequence(workspace, "channel", channel)


def actor_sequence(workspace: str, user: str, branch: str, channel: str) -> Sequence:
    """One sequence of an actor's tree."""
    return Sequence(workspace, "actor", user, branch, channel)


def artifact_sequence(workspace: str, identifier: str) -> Sequence:
    """The sequence of an identifier, pooled over channels."""
    return Sequence(workspace, "artifact", identifier)


def leaf_of(version: Version) -> Leaf:
    """The leaf of a message."""
    return Leaf(version.ts, version.uid)


def own_sequences(version: Version) -> Iterator[Sequence]:
    """Every sequence that the version itself puts its message in. A deletion adds no leaf anywhere."""
    if version.deleted:
        return
    workspace, channel = version.workspace, version.channel
    yield Sequence(workspace, "channel", channel)
    if version.user:
        yield Sequence(workspace, "actor", version.user, AUTHORED, channel)
    for user in version.mentions:
        yield Sequence(workspace, "actor", user, MENTIONED, channel)
    for identifier in version.identifiers:
        yield Sequence(workspace, "artifact", identifier)


def targets_of(version: Version) -> tuple[str, ...]:
    """The uids that the version answers: what it replies to and the root of its thread."""
    both = (version.reply_to, version.thread)
    return tuple(dict.fromkeys(target for target in both if target))


def entries_of(versions: Iterable[Version]) -> list[Entry]:
    """The leaves that a batch of versions puts in sequences by itself."""
    return [Entry(sequence, leaf_of(v)) for v in versions for sequence in own_sequences(v)]


def answerings_of(versions: Iterable[Version]) -> list[Answering]:
    """Who answers whom, for a batch of versions."""
    return [Answering(target, leaf_of(v)) for v in versions if not v.deleted for target in targets_of(v)]


def inherited_entries(
    versions: Many[Version], known: Mapping[str, Many[Version]], answers: Mapping[str, Many[Leaf]]
) -> list[Entry]:
    """The leaves that threads add to artifact sequences: an answer joins every identifier its target ever carried.

    `known` holds the versions of the targets of `versions`, `answers` the leaves that answer any of `versions`.
    Whichever of target and answer comes last completes the set, so the outcome is the same in any order.
    """
    entries = []
    for version in versions:
        if version.deleted:
            continue
        for target in targets_of(version):
            for identifier in sorted({i for v in known.get(target, ()) for i in v.identifiers}):
                entries.append(Entry(artifact_sequence(version.workspace, identifier), leaf_of(version)))  # noqa: PERF401
        for identifier in version.identifiers:
            sequence = artifact_sequence(version.workspace, identifier)
            entries.extend(Entry(sequence, leaf) for leaf in answers.get(version.uid, ()))
    return entries


def belongs(sequence: Sequence, version: Version, targets: Mapping[str, Many[Version]]) -> bool:
    """Whether a leaf of `version` in `sequence` is live: the version that stands still belongs there.

    `targets` holds the versions of what it answers; an answer stays with an identifier while a target carries it.
    """
    if version.deleted:
        return False
    if sequence.view == "channel":
        return version.channel == sequence.tree
    if sequence.view == "actor":
        if version.channel != sequence.channel:
            return False
        return version.user == sequence.tree if sequence.branch == AUTHORED else sequence.tree in version.mentions
    if sequence.tree in version.identifiers:
        return True
    standing = (winner(targets[t]) for t in targets_of(version) if targets.get(t))
    return any(not w.deleted and sequence.tree in w.identifiers for w in standing)
