"""Events from anywhere to the log: validate, normalise, leave out what is forgotten, append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Sequence as Many

import msgspec

from streammem.core import erasure
from streammem.core import events as canonical
from streammem.errors import RejectedError
from streammem.ports import LogWriter
from streammem.records import ErasureEvent, Event, Position, Refusal

Forbidden = Callable[[Iterable[str]], Awaitable[set[str]]]
"""Which of these erasure marks are kept (StructureStore.forbidden)."""


class Ingested(msgspec.Struct, frozen=True):
    """What became of a batch. Every event is accepted, a duplicate, forgotten or refused; `position` is durable."""

    accepted: int
    duplicates: int
    refusals: tuple[Refusal, ...]
    position: Position
    forgotten: int = 0


async def ingest(events: Many[Event], log: LogWriter, forbidden: Forbidden) -> Ingested:
    """Append what can be used; return, for the rest, why not. Running it again adds only duplicates.

    What is about a forgotten message or user is dropped, usable or not: it is counted and nothing of it is kept
    anywhere, nor given back with a reason.
    """
    marks = await forbidden({mark for event in events for mark in erasure.asked_about(event)})
    usable: list[Event] = []
    refusals: list[Refusal] = []
    for place, event in enumerate(events):
        left = erasure.without(event, marks)
        if left is None:
            continue
        try:
            usable.append(_taken(left))
        except RejectedError as error:
            origin = event.ingest.origin or "" if event.ingest else ""
            refusals.append(Refusal(reason=error.reason, detail=error.detail, origin=origin, place=place))
    done = await log.append([(canonical.key(event, canonical.content_hash(event)), event) for event in usable])
    forgotten = len(events) - len(usable) - len(refusals)
    return Ingested(done.accepted, done.duplicates, tuple(refusals), done.position, forgotten)


def _taken(event: Event) -> Event:
    if isinstance(event, ErasureEvent):
        raise RejectedError("not-importable", "an erasure is not taken from a source: use streammem forget")
    return canonical.normalise(event)
