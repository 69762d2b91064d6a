"""The memory that people import: one process, one directory, no server.

async with streammem.open_memory("memory") as memory:
await memory.append(events)
answer = await memory.query("who approved DOC-042?", asker="U7")
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from streammem import settings as configuration
from streammem.client import SCHEME, Questions
from streammem.core import positions
from streammem.core.directory import Directory
from streammem.errors import QueryError, SettingsError
from streammem.flows import artifacts as grouping
from streammem.flows import forgetting, wording
from streammem.flows.artifacts import Grouper
from streammem.flows.asking import Counter
from streammem.flows.backfill import Backfill
from streammem.flows.forgetting import Forgotten, Traces
from streammem.flows.index import APPLIED as INDEXED
from streammem.flows.index import index
from streammem.flows.ingest import Ingested, ingest
from streammem.flows.outlook import Outlook, nobody, outlook
from streammem.flows.replying import Mute, Replier
from streammem.flows.sheet import Pen, Tell, Worded
from streammem.flows.stats import Stats, stats
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.summarize import Bench, Summarized, summarize
from streammem.flows.telling import Teller
from streammem.flows.verify import Verified, replay, verify
from streammem.ports import CHANGED, TOUCHED, WORDS, Embedder, LanguageModel
from streammem.records import Answer, Event, Position, Query
from streammem.wiring import embedded
from streammem.wiring.language import Writer, language_model, replier, writer_of

if TYPE_CHECKING:
    from streammem.core.baselines import Corpus
    from streammem.flows.evaluate import Dataset

HOLDER = "embedded"
"""Who holds the texts that are being written: a directory has one process."""

GRACE = 5.0
"""Seconds that replies under way, which are paid for, are waited for at the end."""

_PATIENCE = 0.5
"""Seconds that an append waits for its message to be grouped: what takes longer goes on without it."""

Progress = Callable[[str, int], None]
"""Told, by stage (`log`, `index`, `summaries`, `replay`), how many more are done."""


@asynccontextmanager
async def open_memory(
    path: str | Path,
    settings: configuration.Settings | None = None,
    *,
    create: bool = True,
    rebuild: bool = False,
    embedder: Callable[[configuration.Settings], Embedder] | None = None,
) -> AsyncIterator[Memory]:
    """Open the memory in a directory, made when it is not there (unless `create` is false).

    What an earlier process appended but did not finish indexing is caught up with on the first append or query.
    Raises SettingsError (and MemoryHeldError, MemoryFormatError) with one line that says what to do.
    """
    if str(path).startswith(SCHEME):
        raise SettingsError(f"{path} is the memory of a stream: use streammem.connect({str(path)!r})")
    chosen = settings or configuration.load()
    parts = embedded.open_embedded(Path(path), chosen, create=create, rebuild=rebuild, embedder=embedder)
    memory = Memory(parts)
    try:
        yield memory
    finally:
        await memory._close()  # noqa: SLF001 - who opens it closes it
        parts.close()


class Memory(Questions):
    """An open memory. Safe to use from many tasks of one event loop."""

    def __init__(self, parts: embedded.Embedded) -> None:
        self._parts = parts
        self._writing = asyncio.Lock()
        self._wording = asyncio.Lock()
        self._counter: Counter | None = None
        self._replier: Replier | Mute | None = None
        self._behind = True
        self._rested = 0.0
        self._grouping: asyncio.Task[None] | None = None

    async def _close(self) -> None:
        if self._grouping is not None:
            self._grouping.cancel()
            await asyncio.gather(self._grouping, return_exceptions=True)  # it is due again when the memory is opened
        if self._counter is not None:
            await self._counter.close()
        if self._replier is not None:
            await self._replier.close(GRACE)

    # ------------------------------------------------------------------------------------------------ writing

    async def append(self, events: Iterable[Event]) -> Ingested:
        """Append events. On return they are durable, findable and summarised."""
        total = Ingested(0, 0, (), await self._parts.log.end())
        async for done in self.load(events):
            total = Ingested(
                total.accepted + done.accepted,
                total.duplicates + done.duplicates,
                total.refusals + done.refusals,
                done.position,
                total.forgotten + done.forgotten,
            )
        await self._settle()
        await self._group_meanwhile()
        return total

    async def load(self, events: Iterable[Event], progress: Progress | None = None) -> AsyncIterator[Ingested]:
        """Append a long stream of events in bounded memory; each yield says what is durable by then.

        Structure keeps up batch by batch, embedding follows in pools sorted by length. Call `settle` at the end.
        """
        async with self._writing:
            for batch in _batched(events, self._parts.settings.batch):
                done = await ingest(batch, self._parts.log, self._parts.structure.forbidden)
                await self._structure(progress)
                yield done
                if await self._unindexed(done.position) >= self._parts.settings.pool:
                    await self._index(progress)

    async def _unindexed(self, end: Position) -> int:
        return positions.between(await self._parts.structure.applied(INDEXED), end)

    async def settle(self, progress: Progress | None = None) -> Summarized:
        """Catch up with the log: structure, vectors, then every due summary and grouping."""
        done = await self._settle(progress)
        await self._group()
        return done

    async def _settle(self, progress: Progress | None = None) -> Summarized:
        async with self._writing:
            await self._structure(progress)
            await self._index(progress)
            settings = self._parts.settings
            bench = Bench(
                self._parts.structure,
                self._parts.index,
                settings.forest.k,
                settings.summary,
                worded=self._parts.worded,
            )
            done = await summarize(bench, progress=(lambda n: progress("summaries", n)) if progress else None)
            if self._behind:
                await grouping.begin(self._parts.structure)
            self._behind = False
            return done

    async def _group(self) -> None:
        """Group into artifacts what is due, and wait for it: others may go on."""
        began = time.monotonic()
        await grouping.group_due(self._grouper())
        self._rested = time.monotonic() + grouping.SHARE * (time.monotonic() - began)

    async def _group_meanwhile(self) -> None:
        """The same while messages come one by one: it takes at most one part of ten of the time, and nobody waits long.

        What goes wrong is raised by whoever appends next.
        """
        if self._grouping is not None and self._grouping.done():
            self._grouping.result()
            self._grouping = None
        rest = max(0.0, self._rested - time.monotonic())
        if self._grouping is None:
            self._grouping = asyncio.create_task(self._group_after(rest))
        if not rest:
            await asyncio.wait([self._grouping], timeout=_PATIENCE)

    async def _group_after(self, rest: float) -> None:
        await asyncio.sleep(rest)
        await self._group()

    def _grouper(self) -> Grouper:
        parts = self._parts
        return Grouper(parts.structure, parts.index, parts.rules, parts.settings.grouping)

    # -------------------------------------------------------------------------------------------------- wording

    async def word(
        self, told: Callable[[Worded], None] | None = None, trouble: Callable[[str], None] | None = None
    ) -> Worded:
        """Let the language model of the settings word all node summaries that are due; return when none is.

        It may run beside appends and questions, which never wait for it, and be stopped at any time: what was paid for
        is kept. `told` hears of what is done, `trouble` why calls are kept back ("" when they go again). Raises
        PausedError when somebody or the budget says so, ModelBusyError when the server stays away, SettingsError when
        no model is set or the server refuses it.
        """
        async with self._writing_words(trouble) as (pen, _):
            return await wording.word(msgspec.structs.replace(pen, told=told))

    async def word_in_jobs(
        self, told: Callable[[Worded], None] | None = None, waiting: Callable[[int], None] | None = None
    ) -> Worded:
        """The same by jobs of the Batch API: cheaper, within a day. `waiting` hears how much is with the server.

        Stopped, it goes on where it was: jobs are remembered, and nothing is handed in twice.
        """
        async with self._writing_words(None) as (pen, model):
            ledger, terms = self._parts.ledger, writer_of(self._parts.settings).terms
            return await Backfill(msgspec.structs.replace(pen, told=told), model, ledger, terms, told=waiting).run()

    @asynccontextmanager
    async def _writing_words(self, trouble: Callable[[str], None] | None) -> AsyncIterator[tuple[Pen, LanguageModel]]:
        if self._behind:
            await self.settle()
        parts, writer = self._parts, writer_of(self._parts.settings)
        model = language_model(parts.settings)
        teller = Teller(model, parts.ledger, parts.structure, writer.terms, trouble=trouble, holder=HOLDER)
        try:
            async with self._wording:  # one at a time: what a process that was killed held is this one's at once
                await wording.begin(parts.structure, parts.ledger, writer.name)
                yield self._pen(writer, teller), model
        finally:
            await teller.close(GRACE)
            await model.close()

    def _pen(self, writer: Writer, tell: Tell) -> Pen:
        settings = self._parts.settings
        return Pen(self._parts.structure, tell, writer.name, settings.forest.k, settings.wording)

    async def outlook(self, progress: Callable[[int], None] | None = None, *, batch: bool = False) -> Outlook:
        """How wording stands by view and level, what it has taken, and what finishing it (by jobs) would take."""
        if self._behind:
            await self.settle()
        writer = writer_of(self._parts.settings)
        return await outlook(self._pen(writer, nobody), self._parts.ledger, writer.terms, progress, batch=batch)

    async def to_word(self) -> int:
        """Sequences that wait for the language model to look at them: told at once, unlike the outlook."""
        counts = await self._parts.structure.counts()
        return sum(counts[queue] for queue in (CHANGED, TOUCHED, WORDS))

    async def retry(self) -> int:
        """Let the model try again where it failed, the next time; how many nodes that are."""
        return await wording.retry(self._parts.structure)

    async def _structure(self, progress: Progress | None) -> None:
        after = await self._parts.structure.applied(STRUCTURED)
        told = (lambda n: progress("log", n)) if progress else None
        await replay(self._parts.log, self._parts.structure, self._parts.rules, after=after, progress=told)

    async def _index(self, progress: Progress | None) -> None:
        parts = self._parts
        await parts.check_index()
        while entries := await parts.log.read(await parts.structure.applied(INDEXED), parts.settings.pool):
            await index(entries, parts.structure, parts.index, parts.embedder, parts.rules)
            if progress:
                progress("index", len(entries))

    # ------------------------------------------------------------------------------------------------ reading

    async def ask(self, query: Query) -> Answer:
        """Answer a query record."""
        if self._behind:
            await self.settle()
        if query.wait_for and not positions.covers(await self._parts.log.end(), query.wait_for.log):
            raise QueryError(
                f"this memory's log ends at {positions.written(await self._parts.log.end()) or 'its start'}"
            )
        answer = await self._counting().ask(query)
        return await self._replying()(answer) if query.answer else answer

    def _replying(self) -> Replier | Mute:
        """Who writes replies, made for the first question that asks for one."""
        if self._replier is None:
            self._replier = replier(self._parts.settings, self._parts.ledger, self.directory)
        return self._replier

    def _counting(self) -> Counter:
        """Where questions are put, made for the first of them: the index is not opened before."""
        if self._counter is None:
            parts = self._parts
            self._counter = _counter(parts, parts.embedder, worded=parts.settings.openai.model is not None)
        return self._counter

    async def workspaces(self) -> list[str]:
        """The workspaces that it holds something of."""
        return await self._parts.structure.workspaces()

    async def directory(self, workspace: str) -> Directory:
        """The directory of a workspace as it stands."""
        return await self._counting().directory(workspace)

    # --------------------------------------------------------------------------------------------- caretaking

    async def verify(self, progress: Progress | None = None) -> Verified:
        """Rebuild the forests from the log beside the stores and compare checksums; look at what summaries cover."""
        async with self._writing:
            await self._structure(progress)
            await self._parts.check_index()
            told = (lambda n: progress("replay", n)) if progress else None
            traced = (lambda n: progress("summaries", n)) if progress else None
            return await verify(
                self._parts.log,
                self._parts.structure,
                self._parts.fresh_structure(),
                self._parts.rules,
                k=self._parts.settings.forest.k,
                fan_out=self._parts.settings.retrieval.fan_out,
                progress=told,
                traced=traced,
                grouper=self._grouper(),
            )

    async def meant(self, workspace: str, messages: Iterable[str], users: Iterable[str]) -> Forgotten:
        """What these names stand for, and all that these users said, to be forgotten. Raises QueryError."""
        async with self._writing:
            await self._structure(None)
            store, log = self._parts.structure, self._parts.log
            named = await forgetting.meant(workspace, messages, users, store, log)
            names = Directory(await store.facts(named.workspace))
            return await forgetting.found(named.workspace, named.messages, named.users, log, directory=names)

    async def forget(self, wanted: Forgotten, progress: Progress | None = None) -> Forgotten:
        """Forget messages and users for good (design §4, Erasure): as if it had never been said."""
        told = (lambda n: progress("replay", n)) if progress else None
        async with self._writing:
            log = self._parts.log
            done = await forgetting.forget(wanted, log, log, self._parts.structure, told)
        await self.settle(progress)
        async with self._writing:
            await self._parts.structure.sweep()
            self._parts.write_anew()
        return done

    async def traces(self, wanted: Forgotten, progress: Progress | None = None) -> Traces:
        """Search everything that this memory holds for what was forgotten."""
        told = (lambda n: progress("replay", n)) if progress else None
        async with self._writing:
            await self._parts.check_index()
            return await forgetting.traces(wanted, self._parts.log, self._parts.structure, self._parts.index, told)

    async def stats(self) -> Stats:
        """Count what the memory holds."""
        async with self._writing:
            forest = self._parts.settings.forest
            return await stats(self._parts.structure, self._parts.index, forest.k, forest.lifecycle_markers)

    async def corpus(self, dataset: Dataset) -> Corpus:
        """A data set that this memory holds as flat baselines rank it, with this memory's vectors (flows.evaluate)."""
        from streammem.flows.evaluate import corpus_of  # noqa: PLC0415 - only `eval` measures

        return await corpus_of(dataset, self._parts.index, self._parts.embedder)

    def examined(self, embedder: Embedder) -> Counter:
        """Where questions are put to measure: with an embedder that has this one's vectors, with other numbers.

        They mark nothing for a language model, and are answered by what is settled (flows.measuring).
        """
        return _counter(self._parts, embedder, worded=False)

    @property
    def embedder(self) -> Embedder:
        """The memory's model."""
        return self._parts.embedder

    async def backlog(self) -> dict[str, int]:
        """How much is left to do, by the stages of Progress: entries to place and embed, sequences to summarise."""
        structure, end = self._parts.structure, await self._parts.log.end()
        placed, embedded = await structure.applied(STRUCTURED), await structure.applied(INDEXED)
        left = {"log": positions.between(placed, end), "index": positions.between(embedded, end)}
        return left | {"summaries": (await structure.counts())["due"]}

    async def rebuild(self, progress: Progress | None = None) -> Summarized:
        """Drop everything but the log and build it again: after a change of k, rule table or model, or a fault."""
        async with self._writing:
            await self._parts.structure.clear()
            await self._parts.index.clear()
            self._parts.renew()
        return await self.settle(progress)


def _counter(parts: embedded.Embedded, embedder: Embedder, *, worded: bool) -> Counter:
    return Counter(
        parts.structure,
        parts.index,
        embedder,
        parts.rules,
        forest=parts.settings.forest,
        numbers=parts.settings.retrieval,
        worded=worded,
    )


def _batched(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    iterator = iter(events)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
