"""Exports made on the spot, and what a connector reads from them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streammem.connectors import CONNECTORS, Given, Report
from streammem.core.events import decode, encode
from streammem.records import ChannelEvent, Event, MembershipEvent, MessageEvent, ReactionEvent, UserEvent

Files = Mapping[str, Any]

USERS = [
    {"id": "U0ADA", "name": "ada", "team_id": "T0001", "updated": 1700000000, "profile": {"real_name": "Ada Quill"}}
]
CHANNELS = [{"id": "C0001", "name": "ops", "created": 1600000000, "members": ["U0ADA"]}]


def said(text: str, ts: str = "1704190000.000100", **more: Any) -> dict[str, Any]:
    return {"type": "message", "user": "U0ADA", "text": text, "ts": ts, **more}


@dataclass
class Drawn:
    """All that a connector handed out for one source."""

    events: list[Event]
    report: Report = field(default_factory=Report)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def messages(self) -> list[MessageEvent]:
        return self.of(MessageEvent)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    @property
    def channels(self) -> list[ChannelEvent]:
        return self.of(ChannelEvent)

    @property
    def users(self) -> list[UserEvent]:
        return self.of(UserEvent)

    @property
    def members(self) -> list[MembershipEvent]:
        return self.of(MembershipEvent)

    @property
    def reactions(self) -> list[ReactionEvent]:
        return self.of(ReactionEvent)


def drawn(name: str, path: Path, **options: Any) -> Drawn:
    """Read a source and hold it to what every source must keep: sound events and a whole account."""
    report = Report()
    events = list(CONNECTORS[name].read(path, report, Given(**options)))
    assert [decode(encode(event)) for event in events] == events
    assert (
        report.read
        == report.accepted + report.duplicates + report.superseded + report.ignored.total() + report.rejected.total()
    )
    assert len(report.refusals) == report.rejected.total()
    assert (report.bytes_done, report.entries_done) == (report.bytes_total, report.entries_total)
    return Drawn(events, report)


def content(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def zipped(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, value in files.items():
            packed.writestr(name, content(value))
    return path
