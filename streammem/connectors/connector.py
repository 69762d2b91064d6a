"""What a connector is: the shape that every source of chat has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from streammem.connectors.report import Report
from streammem.records import Event


@dataclass(frozen=True)
class Given:
    """What the caller knows and the source may not say.

    `workspace` and `channel` stand in where the source names none (a page of Slack's conversations.history does not
    say of which channel it is); `domain` (acme in acme.slack.com) is for permalinks.
    """

    workspace: str = ""
    channel: str = ""
    domain: str = ""


NOTHING = Given()


class Read(Protocol):
    """Reads a file or folder. Raises SourceError, at the first event, when it cannot be read at all."""

    def __call__(self, path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]: ...


class Payloads(Protocol):
    """Reads what a product sends, one decoded JSON value at a time: the same for files, raw topics and live hooks.

    What `read` gives depends on the payload, on what was given and on what was learned before; a payload never
    changes how another one is read. Learning commutes: who wants names shows all payloads to `learn` first, in any
    order.
    """

    def learn(self, payload: Any) -> None:
        """Take note of what a payload tells about names and changed ids. Never raises."""

    def read(self, payload: Any, report: Report, origin: str) -> Iterator[Event]:
        """The events of a payload. Never raises: each record in it is counted in `report`, refused ones with a reason.

        `origin` says where the payload stood, e.g. `page.json#3` or `chat.raw.slack.v1/0@42`. A page holds many
        records: the origin of its i-th (from 0) is `{origin}/{i}`.
        """


@dataclass(frozen=True)
class Connector:
    """One kind of source. `recognises` never raises.

    A source that comes `in_pieces` may hold people and channels only: the messages are in other pieces.
    """

    name: str
    description: str
    read: Read
    recognises: Callable[[Path], bool]
    in_pieces: bool = False
