"""Bytes of a chat product to canonical events. Pure: paths or payloads in, events out, in bounded memory.

Reading the same path again gives the same events in the same order, so an import that broke off is resumed by
starting it again: what is in the log already costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from streammem.connectors import jsonl
from streammem.connectors.connector import Connector, Given, Payloads
from streammem.connectors.report import Gap, Report
from streammem.connectors.slack import export as slack_export

__all__ = ["ALIASES", "CONNECTORS", "Connector", "Gap", "Given", "Payloads", "Report", "recognise"]

CONNECTORS: Mapping[str, Connector] = MappingProxyType(
    {
        connector.name: connector
        for connector in (
            Connector("slack-export", slack_export.EXPECTED, slack_export.read, slack_export.recognises),
            Connector("jsonl", jsonl.EXPECTED, jsonl.read, jsonl.recognises),
        )
    }
)
"""By name; `recognise` asks them in this order."""


ALIASES: Mapping[str, str] = MappingProxyType({"rocketchat": "rocketchat-mongo", "slackdump": "slack-export"})
"""Other names that formats go by."""


def recognise(path: Path) -> str | None:
    """The name of the connector for a path; None when no connector knows it."""
    return next((name for name, connector in CONNECTORS.items() if connector.recognises(path)), None)
