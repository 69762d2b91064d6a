"""Cards to plain text: adaptive, hero, thumbnail, list, receipt and connector cards, polls.

A card is JSON in a text. All kinds are read alike: known fields in the order in which they are shown, then what is
nested in them, so a kind that nobody has heard of gives its words too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streammem.connectors.fields import Row, as_list, rows_of, text_of, words_of
from streammem.connectors.json_rows import loads
from streammem.connectors.teams.html import read_html
from streammem.records import Link

_DEPTH = 20
_LENGTH = 1 << 20
_WORDS = (
    *("title", "activityTitle", "subtitle", "activitySubtitle", "label", "text", "activityText", "altText", "alt"),
    *("placeholder", "description"),
)
_NESTED = (
    *("items", "columns", "rows", "cells", "inlines", "images", "sections", "pages", "media", "body", "choices"),
    *("card", "actions", "buttons", "potentialAction"),
)
_MARKUP = re.compile(r"<[a-zA-Z/][^<>]*>")
_AT = re.compile(r"<at(?:\s[^<>]*)?>([^<>]*)</at>", re.IGNORECASE)
_INPUTS = re.compile(r"Input\.", re.IGNORECASE)
_OPENING = frozenset({"action.openurl", "openurl", "openuri", "open"})
_ACTIONS = re.compile(r"action\.|imback|messageback|invoke|signin|httppost|actioncard", re.IGNORECASE)


@dataclass(frozen=True)
class Card:
    """What a card says. `url` is where its title or its first button leads."""

    title: str = ""
    text: str = ""
    url: str = ""
    links: dict[str, Link] = field(default_factory=dict)


def content_of(attachment: Row) -> Row:
    """The JSON object in an attachment's content, which Graph writes as a text; an empty one when there is none."""
    content = attachment.get("content")
    if isinstance(content, str) and len(content) < _LENGTH and content.lstrip().startswith("{"):
        try:
            content = loads(content.encode("utf-8", "replace"))
        except ValueError:
            return {}
    return content if isinstance(content, dict) else {}


def read_card(card: Row) -> Card:
    """The words of a card, a line for each part; what a client without cards shows only where there is nothing else."""
    reader = _Reader()
    text = _joined(reader.lines(card, 0)) or reader.words(card, "fallbackText", "summary", "speak")
    title = reader.words(card, "title", "name") or text.partition("\n")[0]
    url = text_of(card, "contentUrl", "componentUrl", "codeSnippetUrl") or next(iter(reader.links), "")
    return Card(title[:200], text, url, reader.links)


class _Nobody:
    """Cards name people by what is written: nothing is tied to an id."""

    def key(self, at: str) -> None:
        """No id of a card is a person's."""

    def shown(self, at: str, label: str) -> str:  # noqa: ARG002
        return f"@{label.lstrip('@')}" if label else ""


class _Reader:
    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    def words(self, row: Row, *keys: str) -> str:
        return next(filter(None, (self._plain(words_of(row, key)) for key in keys)), "")

    def lines(self, part: Any, depth: int) -> Iterator[str]:
        if isinstance(part, str):
            yield self._plain(part)
        if not isinstance(part, dict) or depth > _DEPTH:
            return
        kind = text_of(part, "type", "@type").casefold()
        if kind in _OPENING:
            yield self._button(part)
        elif not _ACTIONS.match(kind) or "card" in part:
            yield from self._parts(part, depth)

    def _parts(self, part: Row, depth: int) -> Iterator[str]:
        for key in _WORDS:
            if not (key == "placeholder" and part.get("label")):
                yield self._plain(words_of(part, key))
        for fact in rows_of(part, "facts"):
            yield self._fact(fact)
        for key in _NESTED:
            yield from self._nested(part, key, depth)
        for item in ("total", "tax", "price"):
            yield f"{item}: {part[item]}" if isinstance(part.get(item), str) and part[item] else ""

    def _nested(self, part: Row, key: str, depth: int) -> Iterator[str]:
        inside = part.get(key)
        if key == "choices" and _INPUTS.match(text_of(part, "type")):
            yield from (f"- {self._plain(text_of(choice, 'title', 'value'))}" for choice in rows_of(part, key))
        elif key in ("inlines", "cells", "columns"):
            joint = " " if key == "inlines" else " | "
            yield joint.join(filter(None, (_joined(self.lines(item, depth + 1), " ") for item in as_list(inside))))
        elif isinstance(inside, dict):
            yield from self.lines(inside, depth + 1)
        else:
            for item in as_list(inside):
                yield from self.lines(item, depth + 1)

    def _fact(self, fact: Row) -> str:
        name, value = self.words(fact, "title", "name", "key").rstrip(": "), self.words(fact, "value")
        return f"{name}: {value}" if name and value else name or value

    def _button(self, part: Row) -> str:
        title = self.words(part, "title", "name")
        target = next(rows_of(part, "targets"), part)
        url = text_of(target, "url", "uri", "value")
        if not url.lower().startswith(("http://", "https://")):
            return title
        self.links.setdefault(url, Link(url=url, label=title if title != url else None))
        return f"{title} ({url})" if title and title != url else url

    def _plain(self, text: str) -> str:
        """Text as shown: connector cards may hold HTML, adaptive cards hold `<at>` elements."""
        if not _MARKUP.search(text):
            return text.strip()
        if _AT.search(text):
            text = _AT.sub(lambda match: f"@{match[1]}", text)
        return read_html(text, _Nobody()).text if _MARKUP.search(text) else text.strip()


def _joined(lines: Iterable[str], joint: str = "\n") -> str:
    return joint.join(line for line in lines if line.strip())
