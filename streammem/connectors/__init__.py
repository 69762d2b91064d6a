"""Bytes of a chat product to canonical events. Pure: paths or payloads in, events out, in bounded memory.

Reading the same path again gives the same events in the same order, so an import that broke off is resumed by
starting it again: what is in the log already costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from streammem.connectors import csv_rows, gitter, jsonl, kafka_records
from streammem.connectors.archive import settled
from streammem.connectors.connector import Connector, Given, Payloads
from streammem.connectors.discord import export as discord
from streammem.connectors.matrix import payloads as matrix
from streammem.connectors.mattermost import export as mattermost
from streammem.connectors.report import Gap, Report
from streammem.connectors.rocketchat import dump as rocketchat
from streammem.connectors.slack import export as slack_export
from streammem.connectors.slack import payloads as slack
from streammem.connectors.teams import payloads as teams
from streammem.connectors.teams import tenant_export
from streammem.connectors.zulip import export as zulip
from streammem.errors import SourceError

__all__ = ["ALIASES", "CONNECTORS", "Connector", "Gap", "Given", "Payloads", "Report", "recognise"]

CONNECTORS: Mapping[str, Connector] = MappingProxyType(
    {
        connector.name: connector
        for connector in (
            Connector("slack-export", slack_export.EXPECTED, slack_export.read, slack_export.recognises),
            Connector("teams-tenant-export", tenant_export.EXPECTED, tenant_export.read, tenant_export.recognises),
            Connector("zulip-export", zulip.EXPECTED, zulip.read, zulip.recognises),
            Connector("mattermost-bulk", mattermost.EXPECTED, mattermost.read, mattermost.recognises),
            Connector("discord-dce", discord.EXPECTED, discord.read, discord.recognises),
            Connector("rocketchat-mongo", rocketchat.EXPECTED, rocketchat.read, rocketchat.recognises),
            Connector("matrix-element", matrix.EXPECTED, matrix.read, matrix.recognises),
            Connector("gitter", gitter.EXPECTED, gitter.read, gitter.recognises),
            Connector(
                "teams-graph-notification",
                teams.NOTIFICATIONS,
                teams.notifications.read,
                teams.notifications.recognises,
            ),
            Connector("teams-graph", teams.GRAPH, teams.graph.read, teams.graph.recognises, in_pieces=True),
            Connector(
                "slack-events", slack.events.expected, slack.events.read, slack.events.recognises, in_pieces=True
            ),
            Connector(
                "slack-history", slack.history.expected, slack.history.read, slack.history.recognises, in_pieces=True
            ),
            Connector("kafka", kafka_records.EXPECTED, kafka_records.read, kafka_records.recognises, in_pieces=True),
            Connector("csv", csv_rows.EXPECTED, csv_rows.read, csv_rows.recognises),
            Connector("jsonl", jsonl.EXPECTED, jsonl.read, jsonl.recognises, in_pieces=True),
        )
    }
)
"""By name; `recognise` asks them in this order."""


ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "discord": "discord-dce",
        "matrix": "matrix-element",
        "mattermost": "mattermost-bulk",
        "rocketchat": "rocketchat-mongo",
        "slackdump": "slack-export",
        "zulip": "zulip-export",
    }
)
"""Other names that formats go by."""


def recognise(path: Path) -> str | None:
    """The name of the connector for a path; None when no connector knows it."""
    try:
        with settled(path) as place:
            return next((name for name, connector in CONNECTORS.items() if connector.recognises(place)), None)
    except SourceError:
        return None
