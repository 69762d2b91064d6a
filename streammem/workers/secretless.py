"""Takes out of a body what only proves who sent it: with that, whoever reads the raw topics could send in its name.

It is Slack's old verification `token` and Graph's `clientState`. All else is kept as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from streammem.connectors.fields import Row

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def slack_body(body: bytes, payload: Row) -> bytes:
    """A body of Slack, decoded as `payload`, without its token."""
    if "token" not in payload:
        return body
    try:
        return msgspec.json.encode(_without("token", _fields.decode(body)))
    except _UNREADABLE:
        return msgspec.json.encode(_without("token", payload))


def teams_body(body: bytes, payload: Row) -> bytes:
    """A body of Graph, decoded as `payload` with a list of notifications, without their clientState."""
    if not any("clientState" in item for item in payload["value"]):
        return body
    try:
        told = _fields.decode(body)
        return _without_state(told, _items.decode(told["value"]))
    except _UNREADABLE:
        return _without_state(payload, payload["value"])


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What only a lenient decoder reads (a BOM, bad UTF-8) is encoded from what that made of it, as readers will see it."""


def _without_state(told: Mapping[str, Any], items: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({**told, "value": [_without("clientState", item) for item in items]})


def _without(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != name}
