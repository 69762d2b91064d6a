"""The other half of the role `summarize`: a language model words what was summarised, while nobody waits for it."""

from __future__ import annotations

import asyncio

import structlog

from streammem.errors import PausedError, SettingsError, TransientError
from streammem.flows import wording
from streammem.flows.sheet import Pen
from streammem.flows.telling import Teller
from streammem.wiring.language import language_model, writer_of
from streammem.wiring.stream import Streaming
from streammem.workers.duty import Pulse

PAUSED = 15.0
"""Seconds between two looks whether a pause is over. `status` tells of it, as the ledger does."""

log = structlog.get_logger()


async def word_for_ever(parts: Streaming, pulse: Pulse) -> None:
    """Word what is due, round after round. Whatever is wrong with the model keeps nothing else from being done."""
    settings = parts.settings
    writer, model = writer_of(settings), language_model(settings)
    teller = Teller(model, parts.ledger, parts.structure, writer.terms, trouble=pulse.wait)
    pen = Pen(parts.structure, teller, writer.name, settings.forest.k, settings.wording, lease=settings.worker.lease)
    begun = False
    try:
        while True:
            try:
                begun = begun or await _begun(parts, writer.name)
                await wording.word(pen)
                pulse.wait("")
                await asyncio.sleep(settings.worker.round)
            except PausedError as error:
                pulse.wait("")  # no trouble: `status` tells of it by the ledger
                log.info("model calls are paused", because=str(error))
                await asyncio.sleep(min(error.wait, PAUSED))
            except (TransientError, SettingsError) as error:
                pulse.wait(str(error))
                log.warning("model calls fail", because=str(error))
                await asyncio.sleep(settings.worker.patience)
    finally:
        await teller.close(settings.worker.stop / 2)
        await model.close()


async def _begun(parts: Streaming, writer: str) -> bool:
    await wording.begin(parts.structure, parts.ledger, writer)
    return True
