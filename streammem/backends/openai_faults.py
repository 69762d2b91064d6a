"""What an OpenAI-compatible server means by its errors. Servers word them differently: by status, by code, in prose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import Any

import msgspec

ROOM = ("max_completion_tokens", "max_tokens")
"""The two names of the most tokens that a reply may have: the second is the older one."""

BUSY = frozenset({402, 408, 409, 425, 429})
"""Statuses that say: later. So do all from 500 on. 402 is how some say that the credit is used up."""

LENGTH = 300
"""Characters of a server's message that are passed on: it may quote the prompt."""

SHORT = 4
"""Secrets below this length are no secrets, and would be found in every word."""

_EXHAUSTED = re.compile(r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context_length|exceed_context|context (length|size|window)|prompt is too long|input is too long"
    r"|too many (input )?tokens|request too large|reduce (the|your) (length|input|prompt)"
    r"|string_above_max_length|payload too large",
    re.IGNORECASE,
)
_POLICY = re.compile(
    r"content_filter|content_policy|ResponsibleAI|content (management )?policy|usage polic|safety system|moderation"
    r"|flagged|invalid_prompt",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|model.{0,160}(not|n't) (exist|found|available)|(unknown|invalid) model", re.IGNORECASE
)
_FORMAT = re.compile(
    r"response[_ ]format|json[_ ](schema|object)|structured[_ ]output|guided|grammar|json mode", re.IGNORECASE
)
_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)
_ROOM = re.compile(r"\b(max_completion_tokens|max_tokens)\b")


class Fault(msgspec.Struct, frozen=True):
    """An error as the server told it: status, and of its JSON the code, the parameter and the message. "" for none."""

    status: int
    code: str = ""
    param: str = ""
    message: str = ""

    @property
    def words(self) -> str:
        """All that it said, to be searched."""
        return f"{self.code} {self.message}"

    @property
    def exhausted(self) -> bool:
        """Whether the account has no credit left."""
        return self.status == HTTPStatus.PAYMENT_REQUIRED or (
            self.status in {403, 429} and bool(_EXHAUSTED.search(self.words))
        )

    @property
    def too_long(self) -> bool:
        """Whether the prompt is longer than the model or the account's limits ever take."""
        return self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (
            self.status < HTTPStatus.INTERNAL_SERVER_ERROR and bool(_TOO_LONG.search(self.words))
        )

    @property
    def policy(self) -> bool:
        """Whether the content is not wanted."""
        return self.status in {400, 403, 422} and bool(_POLICY.search(self.words))

    @property
    def busy(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in BUSY or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def no_model(self) -> bool:
        """Whether it knows no such model."""
        return self.status in {400, 404, 422} and bool(_NO_MODEL.search(self.words))

    @property
    def refuses(self) -> str:
        """The part of a request that the server does not take: "format", "temperature", a name in ROOM, or ""."""
        if self.status not in {400, 422}:
            return ""
        for said in (self.param, self.message):
            if _FORMAT.search(said):
                return "format"
            if _TEMPERATURE.search(said):
                return "temperature"
            if named := _ROOM.search(said):
                return named[0]
        return ""


def fault(status: int, content: bytes) -> Fault:
    """Read an error's body. One that is no JSON of an API (a proxy's page) says nothing."""
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return Fault(status)
    return read(status, body)


def read(status: int, body: Any) -> Fault:
    """Read an error's JSON: {"error": {...}}, {"error": "..."}, {"message": ...} or {"detail": ...}."""
    said = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(said, Mapping):
        return Fault(status, message=said if isinstance(said, str) else "")
    param, message = _detail(said.get("detail"))
    return Fault(
        status,
        code=" ".join(str(said[key]) for key in ("code", "type") if said.get(key)),
        param=str(said.get("param") or param),
        message=str(said.get("message") or message),
    )


def _detail(detail: Any) -> tuple[str, str]:
    """Parameter and message as FastAPI tells them."""
    first = detail[0] if isinstance(detail, list) and detail else detail
    if not isinstance(first, Mapping):
        return "", first if isinstance(first, str) else ""
    param = ".".join(str(part) for part in first.get("loc") or () if part != "body")
    return param, f"{param}: {first.get('msg', '')}"


def after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the server wants to be asked again. `now` in seconds since 1970."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    if (seconds := _number(said)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now) if said else None
    except (ValueError, OverflowError):
        return None


def _number(said: str | None) -> float | None:
    try:
        number = float(said) if said else -1.0
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def plain(text: str, secrets: tuple[str, ...]) -> str:
    """A server's words on one line, without secrets, cut."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(text.split())
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 1]}…"
