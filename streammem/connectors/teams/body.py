"""The words of a Teams message and what is attached to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streammem.connectors.fields import Row, row_of, rows_of, text_of, words_of
from streammem.connectors.teams.cards import Card, content_of, read_card
from streammem.connectors.teams.html import LIMIT, Markup, read_html, without_secret
from streammem.connectors.teams.mentions import Mentions, Names
from streammem.records import Attachment, Forwarded, Link, Mention

_REFERENCES = frozenset({"messagereference", "forwardedmessagereference"})
_OTHERS = frozenset({"meetingreference", "tabreference"})
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".svg")


@dataclass(frozen=True)
class Body:
    """What a message says. `quoted` is the message of the same chat that it answers."""

    text: str
    text_source: Literal["text", "html", "attachments", "none"]
    mentions: tuple[Mention, ...]
    links: tuple[Link, ...]
    attachments: tuple[Attachment, ...]
    quoted: str
    forwarded: Forwarded | None
    is_cut: bool = False


def read_body(row: Row, names: Names) -> Body:
    """Subject and body; where both are empty the words of the cards, which else stay with their attachments."""
    mentions = Mentions(row, names)
    content = words_of(row_of(row, "body"), "content")
    is_text = text_of(row_of(row, "body"), "contentType").casefold() == "text"
    markup = Markup(text=content.strip()) if is_text else read_html(content, mentions)
    cards = [(attachment, card) for attachment in rows_of(row, "attachments") if (card := _card(attachment))]
    told = "\n".join(card.text for _, card in cards if card.text)
    text = "\n".join(filter(None, (text_of(row, "subject").strip(), markup.text)))
    source: Literal["text", "html", "attachments", "none"] = "text" if is_text else "html"
    links = dict(markup.links)
    forwarded, original = _forwarded(row, names)
    if not text and told:
        text, source = told, "attachments"
        links |= {url: link for _, card in cards for url, link in card.links.items()}
    return Body(
        text=text,
        text_source=source if text else "none",
        mentions=mentions.of(markup.mentioned),
        links=tuple(links.values()),
        attachments=(*_attached(row, told=source == "attachments"), *_shown(markup), *_shown(original)),
        quoted=_quoted(row) or markup.quoted,
        forwarded=forwarded,
        is_cut=not is_text and len(content) > LIMIT,
    )


def _kind(attachment: Row) -> str:
    return text_of(attachment, "contentType").casefold()


def _card(attachment: Row) -> Card | None:
    """The card in an attachment: every kind that carries JSON and is no reference."""
    kind = _kind(attachment)
    content = {} if kind in _REFERENCES | _OTHERS else content_of(attachment)
    return read_card(content) if content else None


def _attached(row: Row, *, told: bool) -> Iterator[Attachment]:
    for attachment in rows_of(row, "attachments"):
        kind = _kind(attachment)
        # A bot's message may come with its own body once more, as an attachment.
        if kind in _REFERENCES or kind == "text/html":
            continue
        listed = _listed(attachment, kind, told=told)
        if listed != Attachment(kind=listed.kind):
            yield listed


def _listed(attachment: Row, kind: str, *, told: bool) -> Attachment:
    card = _card(attachment) or Card()
    url = without_secret(text_of(attachment, "contentUrl") or card.url)
    name = text_of(attachment, "name").strip() or card.title
    return Attachment(
        id=text_of(attachment, "id") or None,
        name=name or None,
        kind=_sort(kind, name),
        url=url or None,
        mime=kind if "/" in kind and not kind.startswith("application/vnd.microsoft.") else None,
        text=None if told else card.text or None,
    )


def _sort(kind: str, name: str) -> Literal["file", "image", "card", "other"]:
    if ".card" in kind or kind.endswith("card"):
        return "card"
    if kind.startswith("image/") or (kind == "reference" and name.casefold().endswith(_PICTURES)):
        return "image"
    return "other" if kind in _OTHERS or kind.startswith(("audio", "video")) else "file"


def _shown(markup: Markup) -> Iterator[Attachment]:
    """Images in the text, each once."""
    yield from {(media.id, media.url): media for media in markup.media}.values()


def _quoted(row: Row) -> str:
    for attachment in rows_of(row, "attachments"):
        if _kind(attachment) == "messagereference":
            return text_of(content_of(attachment), "messageId") or text_of(attachment, "id")
    return ""


def _forwarded(row: Row, names: Names) -> tuple[Forwarded | None, Markup]:
    """The message that this one passes on, and all that its body shows."""
    for attachment in rows_of(row, "attachments"):
        if _kind(attachment) == "forwardedmessagereference":
            original = content_of(attachment)
            words = text_of(original, "originalMessageContent", "messagePreview")
            markup = read_html(words, Mentions(original, names))
            forwarded = Forwarded(
                id=text_of(original, "originalMessageId", "messageId") or text_of(attachment, "id") or None,
                channel=text_of(original, "originalConversationId", "conversationId", "chatId") or None,
                text=markup.text or None,
            )
            return forwarded, markup
    return None, Markup()
