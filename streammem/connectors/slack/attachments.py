"""Files, cards and shared messages that hang on a Slack message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from streammem.connectors.fields import Row, count_of, row_of, rows_of, text_of
from streammem.connectors.slack.blocks import BlockReading
from streammem.connectors.slack.text import Names, unescape
from streammem.records import Attachment, Forwarded

_DOCUMENTS = frozenset({"quip", "canvas", "space", "docs"})
_LOST: dict[str, Literal["deleted", "unavailable"]] = {
    "tombstone": "deleted",
    "hidden_by_limit": "unavailable",
    "file_access": "unavailable",
}
_LINKED = re.compile(r"/archives/([A-Z0-9]+)/p(\d{10})(\d{6})", re.ASCII)
_NO_ACCESS = frozenset({"check_file_info", "access_denied", "file_not_found"})


def is_quote(card: Row) -> bool:
    """Whether an attachment shows another message: one that was forwarded, or whose address was pasted."""
    return card.get("is_share") is True or card.get("is_msg_unfurl") is True


def is_unfurl(card: Row) -> bool:
    """Whether Slack (or an app that it asked) added an attachment to show where a link leads."""
    return is_quote(card) or bool(text_of(card, "from_url", "original_url", "app_unfurl_url", "service_name"))


def forwarded_of(row: Row, names: Names) -> Forwarded | None:
    """The message that a message without words of its own passes on."""
    shared = next(filter(is_quote, rows_of(row, "attachments")), None)
    if shared is None:
        return None
    text = BlockReading(names).quoted(shared)
    linked = _LINKED.search(text_of(shared, "from_url", "original_url"))
    return Forwarded(
        id=text_of(shared, "ts", "message_ts") or (f"{linked[2]}.{linked[3]}" if linked else None),
        channel=text_of(shared, "channel_id") or (linked[1] if linked else None),
        text=text or None,
    )


def attachments_of(row: Row, names: Names, *, told: bool, passed_on: bool) -> tuple[Attachment, ...]:
    """All that hangs on a message. A card that was `told` as its text, or `passed_on`, is listed without words."""
    if not ("files" in row or "file" in row or "attachments" in row):
        return ()
    cards = [*rows_of(row, "attachments")]
    files = [*_files(row), *(file for card in cards for file in rows_of(card, "files"))]
    read = (_card(card, names, silent=told or (passed_on and is_quote(card))) for card in cards)
    listed = (*map(_file, files), *read)
    return tuple(attachment for attachment in listed if attachment != Attachment(kind=attachment.kind))


def _files(row: Row) -> Iterator[Row]:
    if single := row_of(row, "file") if not row.get("files") else {}:
        yield single
    yield from rows_of(row, "files")


def _file(file: Row) -> Attachment:
    mime, mode = text_of(file, "mimetype"), text_of(file, "mode")
    lost = "file_access" if text_of(file, "file_access") in _NO_ACCESS else mode
    return Attachment(
        id=text_of(file, "id") or None,
        name=unescape(text_of(file, "title", "subject", "name")) or None,
        kind=_kind(mode, text_of(file, "filetype"), mime),
        url=without_token(text_of(file, "permalink", "url_private", "external_url")) or None,
        mime=mime or None,
        size=count_of(file, "size") or None,
        state=_LOST.get(lost, "available"),
        text=unescape(text_of(file, "plain_text", "preview") or _transcript(file)) or None,
    )


def _kind(mode: str, filetype: str, mime: str) -> Literal["canvas", "image", "other", "file"]:
    if mode in _DOCUMENTS or filetype in _DOCUMENTS:
        return "canvas"
    if mode == "list" or filetype == "list":
        return "other"
    return "image" if mime.startswith("image/") else "file"


def _transcript(file: Row) -> str:
    return text_of(row_of(row_of(file, "transcription"), "preview"), "content")


def without_token(url: str) -> str:
    """Exports sign file addresses with a token that opens the file to anybody: it must not be kept."""
    return url.partition("?")[0] if "t=xox" in url else url


def _card(card: Row, names: Names, *, silent: bool) -> Attachment:
    url = text_of(card, "title_link", "from_url", "original_url", "image_url")
    reading = BlockReading(names)
    text = "" if silent else reading.quoted(card) if is_quote(card) else reading.attachment(card)
    return Attachment(
        name=unescape(text_of(card, "title")) or None,
        kind="unfurl" if is_unfurl(card) else "card",
        url=without_token(unescape(url)) or None,
        text=text or None,
    )
