"""What Mattermost, Discord and Zulip share of Markdown: code, links, and cards under a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from streammem.connectors.fields import Row, rows_of, words_of
from streammem.records import Attachment, Link, Mention

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)")
"""The line that opens a block of code, and what stands behind the ticks."""

_TOKEN = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,3})(?!`)[^\n]{1,2000}?(?<!`)(?P=ticks)(?!`))"
    r"|!?\[(?P<label>[^\[\]\n]{0,500})\]\(\s{0,3}<?(?P<url>[^\s()<>]+(?:\([^\s()<>]*\)[^\s()<>]*)?)>?"
    r"(?:\s{1,3}\"[^\"\n]{0,500}\")?\)"
    r"|(?P<bare>https?://[^\s<>\"]+)"
)
_SIGNS = ("`", "](", "://")
"""Without one of these there is no token."""
_PUNCTUATION = ".,;:!?'*_)]"
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg", ".heic", ".avif")


@dataclass
class Reading:
    """One message being read: gathers what it mentions and links to, each once, and the files that it links to.

    `uploads` is how the address of an uploaded file begins: a link to one is a file and no link.
    """

    uploads: str = "\n"
    files: list[Attachment] = field(default_factory=list)
    _mentions: dict[tuple[str, str], Mention] = field(default_factory=dict)
    _links: dict[str, Link] = field(default_factory=dict)

    @property
    def mentions(self) -> tuple[Mention, ...]:
        return tuple(self._mentions.values())

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    def note(self, mention: Mention) -> None:
        self._mentions.setdefault((mention.type, mention.id), mention)

    def link(self, url: str, label: str = "") -> str:
        """`label (url)`; an address alone where the label adds nothing, a label alone for files and mail."""
        if self.uploads in url:
            return self._file(url, label)
        self._links.setdefault(url, Link(url=url, label=label if label not in ("", url) else None))
        if url.startswith(("mailto:", "tel:")):
            return label or url.partition(":")[2]
        return url if label in ("", url) else f"{label} ({url})"

    def _file(self, url: str, label: str) -> str:
        name = label or url.rpartition("/")[2]
        self.files.append(Attachment(name=name, url=url, kind=kind_of_file(url)))
        return name

    def prose(self, text: str, named: Callable[[str], str]) -> str:
        """Text on which code spans and links are read; `named` reads what stands between them."""
        if not any(sign in text for sign in _SIGNS):
            return named(text)
        parts: list[str] = []
        end = 0
        for match in _TOKEN.finditer(text):
            parts += (named(text[end : match.start()]), self._span(match))
            end = match.end()
        return "".join((*parts, named(text[end:])))

    def _span(self, match: re.Match[str]) -> str:
        if match["code"] is not None:
            return match[0]
        if match["bare"] is None:
            return self.link(match["url"], match["label"])
        url = match["bare"].rstrip(_PUNCTUATION)
        return self.link(url) + match["bare"][len(url) :]

    def text(self, written: str, named: Callable[[str], str]) -> str:
        """Text with blocks of code, which stay as they were written."""
        return "".join(part if coded else self.prose(part, named) for coded, part in _fenced(written))


def card(above: str, title: str, url: str, below: Iterable[str]) -> str:
    """Plain text of a card: what stands above its title, the title with its address, what stands below."""
    shown = f"{title} ({url})" if url and title else title
    return "\n".join(part for part in (above, shown, *below) if part.strip())


def fields_of(row: Row, *, name: str) -> Iterator[str]:
    """The `name: value` lines of a card."""
    for part in rows_of(row, "fields"):
        title, value = words_of(part, name), words_of(part, "value")
        yield f"{title}: {value}" if title and value else title or value


def kind_of_file(name: str) -> Literal["image", "file"]:
    """Whether a file is a picture, by its name."""
    return "image" if name.partition("?")[0].lower().endswith(_IMAGES) else "file"


def _fenced(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, and whether each is code. A block that nobody closed goes on to the end."""
    fence, held = "", list[str]()
    for line in text.splitlines(keepends=True) if "```" in text or "~~~" in text else (text,):
        match = FENCE.fullmatch(line.rstrip())
        if fence:
            held.append(line)
            if match and match[1].startswith(fence) and not match[2]:
                yield True, "".join(held)
                fence, held = "", []
        elif match:
            yield False, "".join(held)
            fence, held = match[1], [line]
        else:
            held.append(line)
    yield bool(fence), "".join(held)
