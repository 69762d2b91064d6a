"""Facts that every chat product states in its own way: versions, time zones, reactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from streammem.connectors.fields import Row, count_of, rows_of, text_of, texts_of
from streammem.core.events import moment
from streammem.core.registers import number
from streammem.errors import RejectedError
from streammem.records import ReactionEvent

_SECONDS = re.compile(r"\d{1,20}(?:\.\d{1,9})?")
_MILLISECONDS_FROM = 10**11


def version_of(*times: Any) -> str:
    """The greatest of a source's times as a version in seconds, at least 1: hints must never beat a directory."""
    return max(("1", *filter(None, map(_seconds, times))), key=number)


def _seconds(value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.isascii() or not _SECONDS.fullmatch(text):
        return ""
    whole, _, fraction = text.partition(".")
    if int(whole) >= _MILLISECONDS_FROM:  # `updated` of a channel is in ms, `created` in s
        return f"{int(whole) // 1000}.{int(whole) % 1000:03d}"
    return f"{int(whole)}.{fraction}" if fraction else str(int(whole))


def moment_of_ms(milliseconds: int) -> datetime:
    """The time of a count of milliseconds since 1970. Raises RejectedError for one that no calendar has."""
    try:
        return moment(milliseconds * 1000)
    except OverflowError:
        raise RejectedError("bad-timestamp", f"{milliseconds} ms is no time") from None


def offset_name(seconds: Any) -> str | None:
    """A fixed offset from UTC as a time zone name, e.g. UTC+05:30."""
    if not isinstance(seconds, int) or isinstance(seconds, bool) or abs(seconds) > 50_400:
        return None
    hours, rest = divmod(abs(seconds) // 60, 60)
    return f"UTC{'-' if seconds < 0 else '+'}{hours:02d}:{rest:02d}"


def reactions_of(row: Row, workspace: str, channel: str, message: str, version: str) -> Iterator[ReactionEvent]:
    """A fact for each listed giver, and one without a giver for those that the source only counts."""
    for reaction in rows_of(row, "reactions"):
        name = text_of(reaction, "name")
        if not name:
            continue
        users = texts_of(reaction, "users")
        for user in users:
            yield ReactionEvent(
                workspace=workspace, channel=channel, message=message, name=name, user=user, version=version
            )
        if (unnamed := count_of(reaction, "count") - len(users)) > 0:
            yield ReactionEvent(
                workspace=workspace, channel=channel, message=message, name=name, count=unnamed, version=version
            )
