"""Rows as Graph writes them, made on the spot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streammem.connectors import Given, Report
from streammem.connectors.teams.payloads import TeamsPayloads
from tests.connectors.sources import Drawn

TEAM = "22222222-bbbb-4bbb-8bbb-000000000001"
ROOM = "19:abc@thread.tacv2"
CHAT = "19:def@thread.v2"
ADA = "11111111-aaaa-4aaa-8aaa-000000000001"
BRAM = "11111111-aaaa-4aaa-8aaa-000000000002"
TENANT = "99999999-eeee-4eee-8eee-000000000009"
ID = "1704189600000"


def person(user: str = ADA, name: str | None = "Ada Quill", **more: Any) -> dict[str, Any]:
    return {"user": {"id": user, "displayName": name, "userIdentityType": "aadUser", **more}}


def message(html: str = "<p>one</p>", **more: Any) -> dict[str, Any]:
    """A message of a channel; `chat=True` puts it in a chat."""
    in_chat = more.pop("chat", False)
    row = {
        "id": ID,
        "etag": more.get("id", ID),
        "messageType": "message",
        "createdDateTime": "2024-01-02T10:00:00.000Z",
        "lastModifiedDateTime": "2024-01-02T10:00:00.000Z",
        "from": person(),
        "body": {"contentType": "html", "content": html},
        "channelIdentity": None if in_chat else {"teamId": TEAM, "channelId": ROOM},
        "chatId": CHAT if in_chat else None,
    }
    return row | more


def event(kind: str, **detail: Any) -> dict[str, Any]:
    more = {"@odata.type": f"#microsoft.graph.{kind}EventMessageDetail", "initiator": person(name=None), **detail}
    return message("<systemEventMessage/>", messageType="systemEventMessage", eventDetail=more, **{"from": None})


def page(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"value": [*rows], **more}


def taken(*payloads: Any, **given: str) -> Drawn:
    """What the payloads state: all are shown first, then all are read."""
    return taken_by(TeamsPayloads(Given(**given)), payloads, payloads)


def taken_by(reader: TeamsPayloads, learned: Iterable[Any], read: Iterable[Any]) -> Drawn:
    report = Report()
    for payload in learned:
        reader.learn(payload)
    events = [event for at, payload in enumerate(read) for event in reader.read(payload, report, f"p{at}")]
    outcomes = report.accepted + report.duplicates + report.superseded
    assert report.read == outcomes + report.ignored.total() + report.rejected.total()
    return Drawn(events, report)
