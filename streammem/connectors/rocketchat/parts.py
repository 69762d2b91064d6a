"""The body of a Rocket.Chat message: its own words, what it quotes, what is attached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from streammem.connectors.fields import Row, as_list, count_of, row_of, rows_of, text_of, words_of
from streammem.connectors.rocketchat.mongo import id_of
from streammem.records import Attachment, Link

_INVISIBLE_LINK = re.compile(r"\[[ \u200b]*\]\((?=[^()\s]*\?msg=)[^()\s]*+\)[ \n]?")
"""How the client writes what it quotes: a link without a label in front of the words."""
_UPLOAD = re.compile(r"/file-upload/([^/?#]+)")
_MEDIA = ("image_url", "audio_url", "video_url")


@dataclass(frozen=True)
class Quote:
    """Another message inside this one. `room` is its room as its address names it."""

    id: str
    room: str
    text: str


def body_of(row: Row) -> tuple[str, Literal["text", "blocks", "attachments", "none"]]:
    """The words of a message and where they stood: `msg`, else blocks, else cards that an app attached."""
    text = _INVISIBLE_LINK.sub("", words_of(row, "msg"))
    if text.strip():
        return text, "text"
    if text := _joined(line for block in rows_of(row, "blocks") for line in _block(block)):
        return text, "blocks"
    if text := _joined(_told(card) for card in _cards(row) if not _is_file(card)):
        return text, "attachments"
    return "", "none"


def quote_of(row: Row) -> Quote | None:
    """The message that this one quotes or passes on: the first, with the words of all."""
    quoted = [card for card in rows_of(row, "attachments") if text_of(card, "message_link")]
    for card in quoted:
        try:
            address = urlsplit(text_of(card, "message_link"))
        except ValueError:
            continue
        if message := parse_qs(address.query).get("msg"):
            place = [part for part in address.path.split("/") if part]
            return Quote(message[0], place[-1] if place else "", _joined(map(_quoted, quoted)))
    return None


def attachments_of(row: Row, *, told: bool) -> tuple[Attachment, ...]:
    """Files, cards and a location. Cards whose words are the message's are listed without them."""
    files = {id_of(file.get("_id")): file for file in _files(row)}
    shown = [_attachment(card, files, told=told) for card in _cards(row)]
    listed = {attachment.id for attachment in shown}
    rest = [_file(file) for name, file in files.items() if name not in listed and not _is_preview(file, shown)]
    found = (*shown, *rest, *_location(row))
    return tuple(one for one in found if one != Attachment(kind=one.kind))


def links_of(row: Row) -> tuple[Link, ...]:
    """Addresses in the words, but for those of the messages that are quoted."""
    quoted = {text_of(card, "message_link") for card in rows_of(row, "attachments")}
    urls = (text_of(link, "url") for link in rows_of(row, "urls"))
    return tuple(Link(url=url) for url in dict.fromkeys(urls) if "://" in url and url not in quoted)


def _cards(row: Row) -> Iterator[Row]:
    return (card for card in rows_of(row, "attachments") if not text_of(card, "message_link"))


def _is_file(card: Row) -> bool:
    if text_of(card, "type") == "file" or _UPLOAD.search(_url(card)):
        return True
    return bool(text_of(card, *_MEDIA)) and not text_of(card, "text", "pretext")


def _url(card: Row) -> str:
    return text_of(card, "title_link", *_MEDIA)


def _told(card: Row) -> str:
    """All words of a card."""
    title, url = text_of(card, "title"), text_of(card, "title_link")
    linked = f"{title} ({url})" if title and "://" in url else title
    return _joined((words_of(card, "pretext"), linked, _words(card)))


def _quoted(card: Row) -> str:
    """The words of a quoted message, the names of its files where it has none."""
    return _told(card) or _joined(text_of(part, "title") for part in rows_of(card, "attachments"))


def _words(card: Row) -> str:
    fields = ((words_of(part, "title"), words_of(part, "value")) for part in rows_of(card, "fields"))
    pairs = (f"{title}: {value}" if title and value else title or value for title, value in fields)
    return _joined((words_of(card, "text"), words_of(card, "description"), *pairs))


def _attachment(card: Row, files: dict[str, Row], *, told: bool) -> Attachment:
    url, is_file = _url(card), _is_file(card)
    match = _UPLOAD.search(url)
    file = files.get(match[1], {}) if match else {}
    mime = text_of(file, "type") or text_of(card, "image_type", "audio_type", "video_type")
    is_image = mime.startswith("image/") or bool(text_of(card, "image_url"))
    words = _words(card) if is_file else _joined((words_of(card, "pretext"), _words(card)))
    return Attachment(
        id=match[1] if match else None,
        name=text_of(card, "title") or text_of(file, "name") or None,
        kind="image" if is_image and is_file else "file" if is_file else "card",
        url=url or None,
        mime=mime or None,
        size=count_of(file, "size") or count_of(card, "image_size") or None,
        text=None if told and not is_file else words or None,
    )


def _files(row: Row) -> list[Row]:
    return [*rows_of(row, "files")] or [single for single in (row_of(row, "file"),) if single]


def _is_preview(file: Row, shown: list[Attachment]) -> bool:
    """The server makes a small picture beside the picture, or the file is shown by a card of its name."""
    name = text_of(file, "name")
    return name.startswith("thumb-") or (bool(name) and any(one.name == name for one in shown))


def _file(file: Row) -> Attachment:
    mime = text_of(file, "type")
    return Attachment(
        id=id_of(file.get("_id")) or None,
        name=text_of(file, "name") or None,
        kind="image" if mime.startswith("image/") else "file",
        mime=mime or None,
        size=count_of(file, "size") or None,
    )


def _location(row: Row) -> Iterator[Attachment]:
    """GeoJSON writes longitude first, a geo address latitude."""
    pair = as_list(row_of(row, "location").get("coordinates"))
    if len(pair) == 2 and all(isinstance(part, int | str) and not isinstance(part, bool) for part in pair):
        yield Attachment(kind="other", name="location", url=f"geo:{pair[1]},{pair[0]}")


def _block(block: Row) -> Iterator[str]:
    """The words of a block of an app: its text, title, fields and the plain elements; buttons say nothing."""
    yield _text_object(row_of(block, "title"))
    yield _text_object(row_of(block, "text"))
    yield from map(_text_object, rows_of(block, "fields"))
    if block.get("type") == "context":
        yield " ".join(filter(None, map(_text_object, rows_of(block, "elements"))))
    yield words_of(block, "altText")


def _text_object(composed: Row) -> str:
    return words_of(composed, "text")


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part.strip())
