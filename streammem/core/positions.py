"""Places in the log, compared and written down (records.Position)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streammem.errors import QueryError
from streammem.records import Awaited, LogEntry, Position

_PART = re.compile(r"(\d{1,9}):(\d{1,18})")
_HOW = "write it as PARTITION:POSITION,... of the log, or as messages=PARTITION:POSITION,... of an input topic"


def covers(position: Position, wanted: Position) -> bool:
    """Whether everything before `wanted` lies before `position` too."""
    return all(position.get(partition, 0) >= place for partition, place in wanted.items())


def joined(*positions: Position) -> Position:
    """The least position that covers all of these."""
    furthest: Position = {}
    for position in positions:
        for partition, place in position.items():
            furthest[partition] = max(place, furthest.get(partition, 0))
    return furthest


def after(entries: Iterable[LogEntry]) -> Position:
    """The position behind these entries."""
    furthest: Position = {}
    for entry in entries:
        furthest[entry.partition] = max(entry.position, furthest.get(entry.partition, 0))
    return furthest


def between(behind: Position, ahead: Position) -> int:
    """How many places lie between two positions: entries, or a few more where a log was compacted."""
    return sum(max(0, place - behind.get(partition, 0)) for partition, place in ahead.items())


def written(position: Position) -> str:
    """A position as a line of text: `0:17,1:3`."""
    return ",".join(f"{partition}:{place}" for partition, place in sorted(position.items()))


def awaited_text(awaited: Awaited) -> str:
    """What to wait for as a line of text: `0:17,1:3;messages=0:5`."""
    parts = [written(awaited.log)] if awaited.log else []
    return ";".join([*parts, *(f"{name}={written(place)}" for name, place in sorted(awaited.inputs.items()))])


def parse(text: str) -> Awaited:
    """Read what `awaited_text` writes. Raises QueryError for anything else."""
    log: Position = {}
    inputs: dict[str, Position] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, named, places = part.rpartition("=")
        position: Position = {}
        for place in places.split(","):
            match = _PART.fullmatch(place.strip())
            if match is None:
                raise QueryError(f"{place!r} is no position: {_HOW}")
            position = joined(position, {int(match[1]): int(match[2])})
        if not named or name == "log":
            log = joined(log, position)
        else:
            inputs[name] = joined(inputs.get(name, {}), position)
    if not log and not inputs:
        raise QueryError(f"{text!r} is no position: {_HOW}")
    return Awaited(log=log, inputs=inputs)
