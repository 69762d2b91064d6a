"""What stands when all events are in, whatever their order was: the winner of each register."""

from __future__ import annotations

from collections.abc import Iterable

from streammem.core.events import content_hash, uid
from streammem.core.registers import fact_key, fact_order, number
from streammem.records import ErasureEvent, Event, MessageEvent


def standing(events: Iterable[Event]) -> dict[tuple[str, ...], tuple[str, bool, str]]:
    won: dict[tuple[str, ...], tuple[str, bool, str]] = {}
    for event in events:
        assert not isinstance(event, ErasureEvent)
        digest = content_hash(event)
        if isinstance(event, MessageEvent):
            key = ("message", uid(event.workspace, event.channel.id, event.id))
            order = (number(event.version), event.op == "delete", digest)
        else:
            key, order = fact_key(event), fact_order(event, digest)
        won[key] = max(order, won.get(key, order))
    return won
