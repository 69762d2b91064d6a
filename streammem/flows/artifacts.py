"""Messages to artifacts: which identifiers are one, which messages without an identifier join (EGCForest §3.1.1).

A workspace is grouped as a whole, beside everything else: no append and no question waits for it. What is kept is a
fact that is applied when reading, like the directory; drop it and it is made again, the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core import artifacts
from streammem.core.artifacts import Reading
from streammem.core.directory import Directory
from streammem.core.identifiers import Rules
from streammem.core.indexing import searchable
from streammem.core.numbers import Grouping
from streammem.core.registers import winner
from streammem.core.ties import Pair
from streammem.ports import GROUPS, Span, StructureStore, VectorIndex, Vectors
from streammem.records import Alias, Artifacts, Due, Joined, Leaf, Sequence, Tie, Version

SHARE = 9
"""Rest after grouping, in the time that it took."""

_PIECE = 512
_START = Leaf(0, "")

NOTHING = Reading()
"""Of a workspace that is not grouped, or for somebody who may not see what it was made from."""


class Grouper(msgspec.Struct, frozen=True):
    """What a grouping is made with: `clock` in seconds, shared by all that group; `lease` in seconds.

    `verdicts` are a judge's, by pair of identifiers.
    """

    store: StructureStore
    index: VectorIndex
    rules: Rules
    numbers: Grouping
    clock: Callable[[], float] = time.time
    lease: float = 300.0
    verdicts: Mapping[Pair, bool] = {}


def groups_of(workspace: str) -> Sequence:
    """What marks a workspace in the queue of groupings. No sequence of the forests is called so."""
    return Sequence(workspace, "groups", "")


async def mark_groups(workspaces: Iterable[str], store: StructureStore) -> None:
    """Let these workspaces be grouped anew: something in them has changed."""
    await store.mark_due([(groups_of(workspace), _START) for workspace in sorted(set(workspaces))], GROUPS)


async def begin(store: StructureStore) -> None:
    """Mark what was never grouped: a memory from before there were groupings."""
    never = [w for w in await store.workspaces() if not await store.grouping_generation(w)]
    await mark_groups(never, store)


async def group_due(grouper: Grouper) -> int:
    """Group every workspace that is due and that nobody else is at; how many. Running it again finds none."""
    count = 0
    while batch := await grouper.store.due(1, grouper.clock(), grouper.lease, GROUPS):
        for due in batch:
            count += await _group(due, grouper)
    return count


async def _group(due: Due, grouper: Grouper) -> bool:
    """Group one workspace: kept first, then the mark. Whether it was kept."""
    workspace = due.sequence.workspace
    kept = await grouper.store.group(*await make(workspace, grouper))
    if kept:
        await grouper.store.settle([due], GROUPS)
    else:  # an erasure came between, or another process was quicker: once more
        await mark_groups([workspace], grouper.store)
    return kept


async def make(workspace: str, grouper: Grouper) -> tuple[Artifacts, int]:
    """The grouping of a workspace as it stands, and the generation that it follows. Writes nothing."""
    generation = await grouper.store.grouping_generation(workspace)
    said = await said_in_public(workspace, grouper.store)
    vectors = await _vectors(artifacts.carrying(said), grouper.index)
    made = await asyncio.to_thread(
        artifacts.grouped, workspace, said, vectors, grouper.rules, grouper.numbers, verdicts=grouper.verdicts
    )
    return made, generation


async def compare(grouper: Grouper) -> tuple[int, tuple[str, ...]]:
    """How many groupings that are up to date were made once more, and the workspaces where that came out otherwise."""
    store = grouper.store
    looked, otherwise = 0, []
    for workspace in await store.workspaces():
        stored = await store.grouping(workspace)
        made, generation = await make(workspace, grouper)
        if stored is None or stored.digest != made.digest or generation != await store.grouping_generation(workspace):
            continue  # it is to be grouped anew anyhow
        looked += 1
        if stored != made:
            otherwise.append(workspace)
    return looked, tuple(otherwise)


async def said_in_public(workspace: str, store: StructureStore) -> list[Version]:
    """What stands in the public channels of a workspace and was said by a person, channel by channel."""
    directory = Directory(await store.facts(workspace))
    found: list[Version] = []
    for sequence in await store.sequences(workspace, "channel"):
        if not directory.is_public(sequence.tree):
            continue
        (size,) = await store.sizes([sequence])
        for start in range(0, size, _PIECE):
            (leaves,) = await store.leaves([Span(sequence, start, start + _PIECE)])
            standing = (winner(known) for known in await store.versions([leaf.uid for leaf in leaves]) if known)
            found.extend(v for v in standing if searchable(v) and v.channel == sequence.tree)
    return found


async def _vectors(carriers: Many[Version], index: VectorIndex) -> dict[str, Vectors]:
    found: dict[str, Vectors] = {}
    for start in range(0, len(carriers), _PIECE):
        piece = carriers[start : start + _PIECE]
        known = zip(piece, await index.vectors([v.key for v in piece]), strict=True)
        found.update((v.uid, vector) for v, vector in known if vector is not None)
    return found


# -------------------------------------------------------------------------------------------------------- reading


class Groupings:
    """The grouping of each workspace as it stands, read anew only when it has changed: a question pays for a number."""

    def __init__(self, store: StructureStore) -> None:
        self._store = store
        self._known: dict[str, tuple[int, Reading]] = {}

    async def of(self, workspace: str, directory: Directory) -> Reading:
        """The grouping, or nothing while a channel that it was made from is not public.

        For those who read all public channels: for guests it is `NOTHING`. What a tie or join rests on is to be looked
        at before it is used (artifacts.stands).
        """
        generation = await self._store.grouping_generation(workspace)
        known = self._known.get(workspace)
        if known is None or known[0] != generation:
            # The number is read first: whatever is read after it is at least as new, and is read again if it moved.
            known = self._known[workspace] = generation, Reading(await self._store.grouping(workspace))
        reading = known[1]
        return reading if all(map(directory.is_public, reading.artifacts.channels)) else NOTHING


def alias(name: Alias, seen: Callable[[str], Version | None]) -> str:
    """The words of an alias, as they stand in the message that says it; empty where that is not seen as it was."""
    uid, digest = name.source
    version = seen(uid)
    return version.text[name.start : name.stop] if version is not None and version.hash == digest else ""


_TIED = {
    "said": "a message says so",
    "named": "they bear one name",
    "alike": "mentioned together",
    "judged": "judged to be one",
    "close": "close",
}
_JOINED = {
    "named": "by a name of it",
    "continued": "its author goes on from a message about it",
    "answer": "it answers a message about it",
}


def why(fact: Tie | Joined, reading: Reading, seen: Callable[[str], Version | None]) -> str:
    """One line that says why two identifiers are one, or why a message belongs to one."""
    if isinstance(fact, Tie):
        centroids = f"; centroids {fact.cosine:.2f}" if fact.cosine else ""
        return f"{fact.one} and {fact.other}: {_TIED[fact.why]}{centroids}"
    words = _words_of(fact, reading, seen)
    return f"{fact.identifier}: alias {words!r}" if words else f"{fact.identifier}: {_JOINED[fact.why]}"


def _words_of(joined: Joined, reading: Reading, seen: Callable[[str], Version | None]) -> str:
    """The name that a message says, as it stands where it is explained."""
    sources = set(joined.sources[1:]) if joined.why == "named" else set()
    of_it = (a for a in reading.artifacts.aliases if a.identifier == joined.identifier and a.source in sources)
    return next((words for a in of_it if (words := alias(a, seen))), "")


class Overview(msgspec.Struct, frozen=True):
    """The grouping of a workspace in numbers, with a few examples."""

    counts: dict[str, int]
    aliases: tuple[str, ...]
    merged: tuple[str, ...]


async def overview(workspace: str, store: StructureStore, examples: int = 5) -> Overview:
    """Count the grouping of a workspace. Names that many messages say come first."""
    reading = Reading(await store.grouping(workspace))
    made = reading.artifacts
    tied = {identifier for tie in made.ties for identifier in (tie.one, tie.other)}
    artifacts_of_several = {reading.artifact_of(identifier) for identifier in tied}
    by_why = Counter(joined.why for joined in made.joined)
    named = Counter(source for joined in made.joined if joined.why == "named" for source in joined.sources[1:])
    used = sorted(made.aliases, key=lambda a: (-named[a.source], a.identifier, a.start))[:examples]
    uids = list(dict.fromkeys(a.source[0] for a in used))
    known = {uid: winner(some) for uid, some in zip(uids, await store.versions(uids), strict=True) if some}
    words = [(a.identifier, alias(a, known.get)) for a in used]
    return Overview(
        {
            "artifacts_of_several_identifiers": len(artifacts_of_several),
            "identifiers_in_them": len(tied),
            "borderline_pairs_kept_apart": len(made.apart),
            "aliases": len(made.aliases),
            "joined_by_alias": by_why["named"],
            "joined_by_going_on": by_why["continued"],
            "joined_by_answering": by_why["answer"],
        },
        tuple(f"{identifier}: {text}" for identifier, text in words if text),
        tuple(why(tie, reading, known.get) for tie in made.ties[:examples]),
    )
