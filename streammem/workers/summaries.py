"""Summaries by a language model in a memory that runs as a stream, for whoever looks after it."""

from __future__ import annotations

from collections.abc import Callable

from streammem.flows import wording
from streammem.flows.backfill import Backfill
from streammem.flows.outlook import Outlook, nobody, outlook
from streammem.flows.sheet import Pen, Tell, Worded
from streammem.wiring.language import Writer, language_model, writer_of
from streammem.wiring.stream import Streaming


class StreamSummaries:
    """What a Memory gives of its summaries, over the stores that the workers share. They may work meanwhile."""

    def __init__(self, parts: Streaming) -> None:
        self._parts = parts

    def _pen(self, writer: Writer, tell: Tell, told: Callable[[Worded], None] | None = None) -> Pen:
        settings = self._parts.settings
        lease = settings.worker.lease
        k, numbers = settings.forest.k, settings.wording
        return Pen(self._parts.structure, tell, writer.name, k, numbers, lease=lease, told=told)

    async def outlook(self, progress: Callable[[int], None] | None = None, *, batch: bool = False) -> Outlook:
        """How wording stands by view and level, what it has taken, and what finishing it (by jobs) would take."""
        writer = writer_of(self._parts.settings)
        return await outlook(self._pen(writer, nobody), self._parts.ledger, writer.terms, progress, batch=batch)

    async def retry(self) -> int:
        """Let the model try again where it failed, the next time; how many nodes that are."""
        return await wording.retry(self._parts.structure)

    async def word_in_jobs(
        self, told: Callable[[Worded], None] | None = None, waiting: Callable[[int], None] | None = None
    ) -> Worded:
        """Word what is due by jobs of the Batch API. `waiting` hears how many texts are with the server."""
        parts, writer = self._parts, writer_of(self._parts.settings)
        model = language_model(parts.settings)
        try:
            await wording.begin(parts.structure, parts.ledger, writer.name)
            pen = self._pen(writer, nobody, told)
            return await Backfill(pen, model, parts.ledger, writer.terms, told=waiting).run()
        finally:
            await model.close()
