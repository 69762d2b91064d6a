"""What the rows in Graph's pages and in the tenant export are, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streammem.connectors.fields import Row, row_of, text_of
from streammem.connectors.teams.place import NOWHERE, Place

_DEPTH = 60

_BY_TYPE = {
    "chatmessage": "message",
    "user": "user",
    "team": "team",
    "group": "team",
    "channel": "channel",
    "chat": "chat",
    "teamworktag": "tag",
    "teamworktagmember": "tag-member",
}
_BY_FIELDS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("notification", lambda row: "lifecycleEvent" in row or ("changeType" in row and "resource" in row)),
    ("message", lambda row: bool({"messageType", "channelIdentity", "eventDetail", "chatId"} & row.keys())),
    ("message", lambda row: "body" in row and ("from" in row or "createdDateTime" in row)),
    ("chat", lambda row: "chatType" in row),
    ("channel", lambda row: "membershipType" in row),
    ("tag", lambda row: "tagType" in row or {"teamId", "memberCount"} <= row.keys()),
    ("member", lambda row: "userId" in row),
    ("user", lambda row: bool({"userPrincipalName", "jobTitle", "givenName", "mail"} & row.keys())),
    ("team", lambda row: bool({"visibility", "groupsId", "internalId"} & row.keys())),
    ("channel", lambda row: text_of(row, "id").startswith("19:") and "displayName" in row),
)
_BY_PAGE = {
    "messages": "message",
    "replies": "message",
    "users": "user",
    "members": "member",
    "channels": "channel",
    "chats": "chat",
    "teams": "team",
    "joinedteams": "team",
    "tags": "tag",
}


def lowered(value: Any, depth: int = 0) -> Any:
    """The value with the first letter of every key in lower case: the tenant export and .NET write them upper."""
    if depth > _DEPTH:
        return value
    if isinstance(value, list):
        return [lowered(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: lowered(item, depth + 1) for key, item in value.items()}
    return value


def kind_of(row: Row, place: Place = NOWHERE) -> str:
    """What a row is: by its stated type, else by fields that no other kind has, else by its page; empty for no kind."""
    stated = text_of(row, "@odata.type", "odataType").rpartition(".")[2].casefold()
    if stated.endswith("conversationmember"):
        return "member"
    found = _BY_TYPE.get(stated) or next((kind for kind, fits in _BY_FIELDS if fits(row)), "")
    found = found or _BY_PAGE.get(place.thing, "")
    return "tag-member" if found == "member" and place.tag else found


def is_graph(payload: Any) -> bool:
    """Whether a payload looks like a page or a record of Graph."""
    return any(
        kind_of(row) in ("message", "chat", "channel", "team", "tag", "member", "user") and _is_teams(row, payload)
        for row in _first_rows(payload)
    )


def is_notification(payload: Any) -> bool:
    """Whether a payload looks like a change notification of Graph."""
    return any(kind_of(row) == "notification" and "subscriptionId" in row for row in _first_rows(payload))


def _first_rows(payload: Any) -> list[Row]:
    page = _lowered_keys(payload) if isinstance(payload, dict) else payload
    inside = page.get("value", page) if isinstance(page, dict) else page
    listed = inside if isinstance(inside, list) else [inside]
    return [_lowered_keys(row) for row in listed[:3] if isinstance(row, dict)]


def _lowered_keys(row: Row) -> Row:
    return {key[:1].lower() + key[1:]: value for key, value in row.items()}


def _is_teams(row: Row, payload: Any) -> bool:
    """Rows of other products have some of the fields too: what Graph alone writes tells them apart."""
    page = payload if isinstance(payload, dict) else {}
    if any(key.startswith("@odata.") for key in (*page, *row)):
        return True
    if {"messageType", "channelIdentity", "membershipType", "chatType"} & row.keys():
        return True
    return isinstance(row.get("body"), dict) and "contentType" in row_of(row, "body")
