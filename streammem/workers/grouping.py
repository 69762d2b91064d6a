"""Another part of the role `summarize`: what is due is grouped into artifacts, now and then and while nobody waits."""

from __future__ import annotations

import asyncio
import time

from streammem.flows.artifacts import SHARE, Grouper, begin, group_due
from streammem.wiring.stream import Streaming
from streammem.workers.duty import Pulse, persist


async def group_for_ever(parts: Streaming, pulse: Pulse) -> None:
    """Group what is due, every so many seconds, and longer apart where a grouping takes long."""
    settings = parts.settings
    grouper = Grouper(parts.structure, await parts.index(), parts.rules, settings.grouping, lease=settings.worker.lease)
    await persist(lambda: begin(parts.structure), settings.worker.patience, pulse.wait)
    while True:
        began = time.monotonic()
        await persist(lambda: group_due(grouper), settings.worker.patience, pulse.wait)
        await asyncio.sleep(max(settings.grouping.every, SHARE * (time.monotonic() - began)))
