"""Nodes to words: a language model words what the extractive summariser has summarised, children before parents.

A node's summary is always there first, and findable. Its wording stands beside it and takes nothing away: while the
model is away, too dear or wrong, the quotes are shown. Nothing here is waited for by an append or a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager

import msgspec

from streammem.core import forest, summaries
from streammem.core.directory import Directory
from streammem.errors import StreammemError
from streammem.flows.sheet import Pen, Room, Sheet, Worded, ended
from streammem.ports import OPEN, RENEWALS, TOUCHED, UPPER, WORDING, WORDS, Ledger, Span, StructureStore
from streammem.records import Due, NodeId, Wording

MORE = 0.05
"""Seconds after which more sequences are taken in hand, if those before have left room."""

AGAIN = 1.0
"""Seconds after which to look for more while those in hand wait for a slow server."""


async def word(pen: Pen) -> Worded:
    """Word all that is to be worded now and that nobody else is at. Running it again finds nothing to do.

    Raises what stopped it: PausedError, ModelBusyError, SettingsError. What was worded until then is kept.
    """
    total = await drain(pen)
    while total.behind:  # children come before parents: look again at those that had to wait, as long as it helps
        await asyncio.sleep(pen.rest)
        more = await drain(pen)
        total = msgspec.structs.replace(total, behind=0) + more
        if not more.worded + more.failed:
            break
    return total


async def drain(pen: Pen) -> Worded:
    """Work off the queues, with as many sequences in hand as keep all calls busy: most have a node or two to word."""
    hands: set[asyncio.Task[Worded]] = set()
    try:
        return await _work_off(pen, hands)
    finally:  # who stops this stops all that it began
        await ended(hands)


async def _work_off(pen: Pen, hands: set[asyncio.Task[Worded]]) -> Worded:
    total = Worded()
    directories, room = Directories(pen.store), Room(pen.numbers)
    errors: list[BaseException] = []
    while True:
        more = min(pen.numbers.in_flight, room.free, room.places - len(hands))
        taken = [] if errors else await _take(pen, more, idle=not hands)
        hands |= {asyncio.create_task(_sequence(due, queue, pen, directories, room)) for due, queue in taken}
        if not hands:
            break
        soon = MORE if taken else AGAIN
        done, _ = await asyncio.wait(hands, timeout=soon, return_when=asyncio.FIRST_COMPLETED)
        hands -= done
        errors += [error for hand in done if (error := hand.exception()) is not None]
        total += sum((hand.result() for hand in done if hand.exception() is None), Worded())
    if errors:
        raise errors[0]
    return total


class Directories:
    """The directory of each workspace as it stands; read anew only when a fact has changed."""

    def __init__(self, store: StructureStore) -> None:
        self._store = store
        self._known: dict[str, tuple[int, Directory]] = {}

    async def of(self, workspace: str) -> Directory:
        """The directory of one workspace."""
        generation = await self._store.facts_generation(workspace)
        known = self._known.get(workspace)
        if known is None or known[0] != generation:
            known = self._known[workspace] = (generation, Directory(await self._store.facts(workspace)))
        return known[1]


async def _take(pen: Pen, room: int, *, idle: bool) -> list[tuple[Due, str]]:
    """What is due, most urgent first. What is only grouped otherwise is renewed when there is nothing else to do."""
    taken: list[tuple[Due, str]] = []
    for queue in WORDING:
        renewing = queue == RENEWALS and (not idle or pen.numbers.renew != "idle")
        if len(taken) >= room or (taken and queue in (UPPER, RENEWALS)) or renewing:
            break
        found = await pen.store.due(room - len(taken), pen.clock(), pen.lease, queue)
        taken += [(due, queue) for due in found]
    return taken


async def _sequence(due: Due, queue: str, pen: Pen, directories: Directories, room: Room) -> Worded:
    """Word what is due of one sequence, then say what is still to be done about it."""
    sheet = Sheet(due, queue, pen, await directories.of(due.sequence.workspace), room)
    try:
        async with _held(due, queue, pen):
            await sheet.fill()
    except (StreammemError, asyncio.CancelledError):
        await pen.store.hold([due], pen.clock() + pen.rest, queue)
        raise
    if not await _left(sheet, due, queue, pen):
        late = await pen.store.settle([due], queue)
        await pen.store.mark_due([(d.sequence, d.earliest) for d in late], WORDS)  # its lease ran out: look once more
    return sheet.done


@asynccontextmanager
async def _held(due: Due, queue: str, pen: Pen) -> AsyncIterator[None]:
    """Keep others away from a sequence however long it takes."""

    async def extend() -> None:
        while True:
            await asyncio.sleep(pen.lease / 3)
            await pen.store.hold([due], pen.clock() + pen.lease, queue)

    extending = asyncio.create_task(extend())
    try:
        yield
    finally:
        extending.cancel()
        await asyncio.gather(extending, return_exceptions=True)


async def _left(sheet: Sheet, due: Due, queue: str, pen: Pen) -> bool:
    """Say what is left of a sequence. Whether that lets it stay in its queue, where it rests.

    A mark that is made anew while it is held would not rest: whoever settles an older one lets it go.
    """
    rests = {sheet.queue_again: (due.earliest, pen.clock() + pen.rest)} if sheet.done.behind else {}
    if sheet.later is not None:
        rests[OPEN] = (sheet.later[1], sheet.later[0])
    for name, (leaf, until) in rests.items():
        if name == queue:
            await pen.store.hold([msgspec.structs.replace(due, earliest=leaf)], until, queue)
        else:
            await pen.store.mark_due([(due.sequence, leaf)], name, until)
    if sheet.shifted is not None:
        await pen.store.mark_due([(due.sequence, sheet.shifted)], RENEWALS)
    if sheet.root_anew and due.sequence.view == "actor" and not forest.is_skeleton(due.sequence):
        await pen.store.mark_due([(forest.top_of(due.sequence), due.earliest)], UPPER)
    return queue in rests


async def touch(nodes: Many[NodeId], store: StructureStore) -> None:
    """Let nodes that a question met come first, if they have no words yet or are only shifted."""
    found = zip(await store.summaries(nodes, vectors=False), await store.wordings(nodes), strict=True)
    marks = [
        (s.node.sequence, s.first)
        for s, w in found
        if s is not None
        and not summaries.said_whole(s)
        and not forest.is_skeleton(s.node.sequence)
        and (w is None or (s.node.level == 1 and s.made_from != w.made_from))
    ]
    await store.mark_due(marks, TOUCHED)


async def begin(store: StructureStore, ledger: Ledger, writer: str) -> None:
    """Mark everything when another model, or other prompts, write from now on. Noted last: it may be cut short."""
    if await ledger.writer(f"{writer}…") != writer:
        await mark_all(store)
    await ledger.writer(writer)


async def mark_all(store: StructureStore) -> None:
    """Let every sequence be looked at."""
    for workspace in await store.workspaces():
        for due in await everything(workspace, store):
            queue = UPPER if forest.is_skeleton(due.sequence) else WORDS
            await store.mark_due([(due.sequence, due.earliest)], queue)


async def everything(workspace: str, store: StructureStore) -> list[Due]:
    """Every sequence of a workspace from its first leaf on, and the skeletons above those of actors after them."""
    sequences = await store.sequences(workspace)
    firsts = await store.leaves([Span(sequence, 0, 1) for sequence in sequences])
    due = [Due(sequence, 0, leaves[0]) for sequence, leaves in zip(sequences, firsts, strict=True) if leaves]
    skeletons = {forest.top_of(d.sequence): d.earliest for d in due if d.sequence.view == "actor"}
    return [*due, *(Due(sequence, 0, leaf) for sequence, leaf in sorted(skeletons.items()))]


async def retry(store: StructureStore) -> int:
    """Let the model try again where it failed; how many nodes that are."""
    failed = [item async for _, item in store.generated() if isinstance(item, Wording) and item.fault]
    await take_back(failed, store)
    return len(failed)


async def take_back(worded: Many[Wording], store: StructureStore) -> None:
    """Forget these wordings, and let their nodes be looked at again."""
    await store.unword([w.node for w in worded])
    marks = [(w.node.sequence, w.first) for w in worded]
    await store.mark_due([mark for mark in marks if not forest.is_skeleton(mark[0])], WORDS)
    await store.mark_due([(forest.top_of(s), leaf) for s, leaf in marks if forest.is_skeleton(s)], UPPER)
