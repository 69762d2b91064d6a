"""Events from anywhere to the log: validate, normalise, append."""

from __future__ import annotations

from collections.abc import Sequence as Many

import msgspec

from streammem.core import events as canonical
from streammem.errors import RejectedError
from streammem.ports import LogWriter
from streammem.records import Event, Position, Refusal


class Ingested(msgspec.Struct, frozen=True):
    """What became of a batch. Every event is accepted, a duplicate or refused; `position` is durable."""

    accepted: int
    duplicates: int
    refusals: tuple[Refusal, ...]
    position: Position


async def ingest(events: Many[Event], log: LogWriter) -> Ingested:
    """Append what can be used; return, for the rest, why not. Running it again adds only duplicates."""
    keyed: list[tuple[str, Event]] = []
    refusals: list[Refusal] = []
    for place, event in enumerate(events):
        try:
            usable = canonical.normalise(event)
        except RejectedError as error:
            origin = event.ingest.origin or "" if event.ingest else ""
            refusals.append(Refusal(reason=error.reason, detail=error.detail, origin=origin, place=place))
        else:
            keyed.append((canonical.key(usable, canonical.content_hash(usable)), usable))
    done = await log.append(keyed)
    return Ingested(done.accepted, done.duplicates, tuple(refusals), done.position)
