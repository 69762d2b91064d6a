"""Bytes of a chat product to canonical events. Pure: paths in, events out, in bounded memory.

Reading the same path again gives the same events in the same order, so an import that broke off is resumed by
starting it again: what is in the log already costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from streammem.connectors import jsonl, slack_export
from streammem.connectors.report import Gap, Report
from streammem.records import Event

__all__ = ["CONNECTORS", "Connector", "Gap", "Report", "recognise"]


class Read(Protocol):
    """Reads a source. Raises SourceError, at the first event, when it cannot be read at all."""

    def __call__(self, path: Path, report: Report, *, workspace: str = "") -> Iterator[Event]: ...


@dataclass(frozen=True)
class Connector:
    """One kind of source."""

    name: str
    description: str
    read: Read
    recognises: Callable[[Path], bool]


CONNECTORS: Mapping[str, Connector] = MappingProxyType(
    {
        connector.name: connector
        for connector in (
            Connector("slack-export", slack_export.EXPECTED, slack_export.read, slack_export.recognises),
            Connector("jsonl", jsonl.EXPECTED, jsonl.read, jsonl.recognises),
        )
    }
)


def recognise(path: Path) -> str | None:
    """The name of the connector for a path; None when no connector knows it."""
    return next((name for name, connector in CONNECTORS.items() if connector.recognises(path)), None)
