"""Graph's change notifications. Most tell only that a message changed: what it says is still to be fetched.

A notification without content never becomes a message, for an empty one would wipe the text that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from streammem.connectors.fields import Row, as_row, row_of, text_of
from streammem.connectors.json_rows import loads
from streammem.connectors.report import IgnoredError, Report
from streammem.connectors.teams.known import Known
from streammem.connectors.teams.message import Said, Setting, events_of, id_of, just_after, learn_message, version_in
from streammem.connectors.teams.place import Place, place_in
from streammem.connectors.teams.rows import lowered
from streammem.records import Event

_LOST = {"missed": "missed-notifications", "subscriptionremoved": "subscription-removed"}
_CONTENTS = ("decryptedContent", "contentDecryptedBySimulator", "resourceData")
_SAYING = ("body", "eventDetail", "deletedDateTime")


def read_notification(row: Row, setting: Setting, report: Report, origin: str) -> Iterator[Event]:
    """The events of one notification, counted; what it announces and does not hold is a gap."""
    place = _place(row)
    setting = replace(setting, tenant=text_of(row, "tenantId"))
    reasons: list[str] = []
    yield from report.counted(partial(_events, row, place, setting, origin, reasons), origin)
    for reason in reasons:
        report.gap(reason, _name(row, place, setting) or origin)


def learn_notification(row: Row, known: Known) -> None:
    """Take note of the tenant, and of what a message in it tells."""
    place = _place(row)
    known.belongs(text_of(row, "tenantId"), place.channel)
    if content := _content(row):
        learn_message(content, known, place)


def _events(row: Row, place: Place, setting: Setting, origin: str, reasons: list[str]) -> Iterator[Event]:
    if "lifecycleEvent" in row:
        reasons += filter(None, (_LOST.get(text_of(row, "lifecycleEvent").casefold()),))
        raise IgnoredError("lifecycle-event")
    content = _content(row)
    message = {"id": place.message or id_of(row_of(row, "resourceData")), **content}
    if place.thing and place.thing not in ("messages", "replies"):
        raise IgnoredError("other-resource")
    said = Said(message, setting, place, origin)
    if text_of(row, "changeType").casefold() == "deleted":
        stated = said.stated_version if content else version_in(row_of(row, "resourceData"))
        if not stated:
            reasons.append("undated-deletion")
        yield said.deletion(stated or just_after(said.id))
    elif content:
        yield from events_of(message, setting, origin, place)
    else:
        reasons.append("pending-fetch")
        raise IgnoredError("encrypted-content" if row.get("encryptedContent") else "pending-fetch")


def _place(row: Row) -> Place:
    stated = text_of(row, "resource") or text_of(row_of(row, "resourceData"), "@odata.id")
    return place_in(stated)


def _content(row: Row) -> dict[str, Any]:
    """The message itself, where somebody has decrypted it; an empty object when only its id is told."""
    for key in _CONTENTS:
        content = row.get(key)
        if isinstance(content, str):
            try:
                content = lowered(loads(content.encode("utf-8", "replace")))
            except ValueError:
                continue
        if any(as_row(content).get(field) for field in _SAYING):
            return dict(as_row(content))
    return {}


def _name(row: Row, place: Place, setting: Setting) -> str:
    """Channel and id of the message, and the one that it replies to, for who fetches it."""
    channel, message = place.channel or setting.channel, place.message or id_of(row_of(row, "resourceData"))
    if not (channel and message):
        return ""
    return f"{channel}/{message}" + (f"?reply_to={place.root}" if place.root else "")
