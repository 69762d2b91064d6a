"""Prove that the stores are what the log says: rebuild the forests beside them and compare checksums.

And that no summary in use covers what is not said any more (flows.lineage).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import msgspec

from streammem.core import bridges, checksums, forest, positions, routing
from streammem.core.identifiers import Rules
from streammem.core.registers import winner
from streammem.flows.artifacts import Grouper, compare
from streammem.flows.lineage import trace
from streammem.flows.structure import grow
from streammem.ports import LogReader, Span, StructureStore
from streammem.records import Bridge, Leaf, Position, Sequence, Version

PARTS = ("registers", "sequences", "answers", "directory", "placements", "bridges")
_ROWS = {
    "version": "registers",
    "erasure": "registers",
    "entry": "sequences",
    "answering": "answers",
    "fact": "directory",
}
_PIECE = 512


class Checksums(msgspec.Struct, frozen=True):
    """The checksum of each part and of the whole."""

    parts: dict[str, str]

    @property
    def checksum(self) -> str:
        return checksums.total([checksums.row(name, self.parts[name]) for name in PARTS])


class Verified(msgspec.Struct, frozen=True):
    """The stores' checksums beside those of a rebuild, and what differs.

    Of the `groupings` into artifacts that are up to date, those of the workspaces `regrouped` come out otherwise now.
    Of the `summaries` and `wordings` in use that were looked at, `stale_count` cover what is deleted, erased, edited or
    not visible any more; `stale` says so of the first of them.
    """

    checksum: str
    stored: dict[str, str]
    rebuilt: dict[str, str]
    entries: int
    summaries: int = 0
    wordings: int = 0
    groupings: int = 0
    regrouped: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    stale_count: int = 0

    @property
    def different(self) -> list[str]:
        return [name for name in PARTS if self.stored[name] != self.rebuilt[name]]

    @property
    def sound(self) -> bool:
        return not self.different and not self.stale_count and not self.regrouped


async def replay(
    log: LogReader,
    store: StructureStore,
    rules: Rules,
    *,
    after: Position | None = None,
    upto: Position | None = None,
    batch: int = 500,
    progress: Callable[[int], None] | None = None,
) -> Position:
    """Grow a store from the log; return the position reached. Starting too early only costs time.

    Past `upto` nothing is read that need not be: of a partition that it does not name, nothing.
    """
    position = dict(after or {})
    while (upto is None or not positions.covers(position, upto)) and (entries := await log.read(position, batch)):
        position = positions.joined(position, positions.after(entries))
        wanted = [e for e in entries if upto is None or e.position <= upto.get(e.partition, 0)]
        await grow(wanted, store, rules)
        if progress:
            progress(len(wanted))
    return position


async def verify(
    log: LogReader,
    store: StructureStore,
    fresh: StructureStore,
    rules: Rules,
    *,
    k: int,
    fan_out: int = 2,
    progress: Callable[[int], None] | None = None,
    traced: Callable[[int], None] | None = None,
    grouper: Grouper | None = None,
) -> Verified:
    """Rebuild from the log into `fresh` and compare it with `store`; then look at what its summaries cover.

    With a `grouper`, group each workspace again and compare that, too.

    `progress` hears of entries, `traced` of summaries.
    """
    upto = await store.applied("structure")
    await replay(log, fresh, rules, upto=upto, progress=progress)
    stored, rebuilt = await measure(store, k, fan_out), await measure(fresh, k, fan_out)
    found = await trace(store, k, traced)
    groupings, regrouped = await compare(grouper) if grouper else (0, ())
    return Verified(
        stored.checksum,
        stored.parts,
        rebuilt.parts,
        positions.between({}, upto),
        summaries=found.summaries,
        wordings=found.wordings,
        groupings=groupings,
        regrouped=regrouped,
        stale=found.named,
        stale_count=found.stale,
    )


async def measure(store: StructureStore, k: int, fan_out: int) -> Checksums:
    """The checksums of a store: what it holds, and what placements and bridges follow from that."""
    sums: defaultdict[str, int] = defaultdict(int)
    async for name, content in store.everything():
        sums[_ROWS[name]] += checksums.row(name, content)
    for workspace in await store.workspaces():
        for sequence in await store.sequences(workspace):
            async for part, value in _sequence(sequence, store, k, fan_out):
                sums[part] += value
    return Checksums({name: checksums.total([sums[name]]) for name in PARTS})


async def _sequence(sequence: Sequence, store: StructureStore, k: int, fan_out: int) -> AsyncIterator[tuple[str, int]]:
    """Rows for every placement in a sequence, and for the bridges that start at its leaves."""
    (size,) = await store.sizes([sequence])
    name = "/".join(msgspec.structs.astuple(sequence))
    carriers: list[tuple[Leaf, Version]] = []
    for start in range(0, size, _PIECE):
        (leaves,) = await store.leaves([Span(sequence, start, start + _PIECE)])
        uids = [leaf.uid for leaf in leaves]
        known = {uid: v for uid, v in zip(uids, await store.versions(uids), strict=True) if v}
        targets = await _targets(known, store)
        for rank, leaf in enumerate(leaves, start):
            version = winner(known[leaf.uid])
            live = routing.belongs(sequence, version, targets)
            yield "placements", checksums.row(leaf.uid, name, rank, forest.parent(sequence, rank, k).index, live)
            if live and sequence.view == "channel" and version.reply_to:
                yield "bridges", _bridge(Bridge(kind="reply", source=leaf.uid, target=version.reply_to))
            if sequence.view == "artifact" and sequence.tree in version.identifiers and not version.deleted:
                carriers.append((leaf, version))
    for bridge in _identifier_bridges(sequence.tree, carriers, fan_out):
        yield "bridges", _bridge(bridge)


async def _targets(known: dict[str, tuple[Version, ...]], store: StructureStore) -> dict[str, tuple[Version, ...]]:
    targets = list(dict.fromkeys(t for versions in known.values() for t in routing.targets_of(winner(versions))))
    return dict(zip(targets, await store.versions(targets), strict=True))


def _identifier_bridges(identifier: str, carriers: list[tuple[Leaf, Version]], fan_out: int) -> list[Bridge]:
    leaves = [leaf for leaf, _ in carriers]
    found: list[Bridge] = []
    for i, (leaf, version) in enumerate(carriers):
        near = leaves[max(0, i - fan_out) : i + fan_out + 1]
        found.extend(
            Bridge(kind="identifier", source=version.uid, target=other.uid, label=identifier)
            for other in bridges.nearest(leaf, near, fan_out)
        )
    return found


def _bridge(bridge: Bridge) -> int:
    return checksums.row(bridge.kind, bridge.source, bridge.target, bridge.label)
