"""The HTML of a Teams message to plain text: what a reader of the message saw, with names for mentions.

Names the people and channels it mentions, keeps code, lists, tables and quotations apart, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streammem.connectors.teams.tokens import Tag, attributes_of, decoded, tokens
from streammem.records import Attachment, Link

LIMIT = 1 << 18
"""Characters of HTML that are read. Teams takes messages of about 100 kB."""

_DEPTH = 40
"""Elements inside elements; what is nested deeper is read as if it were not."""

_SPACES = re.compile(r"[ \t\n\r\f]+")
_EMPTY = re.compile(r"</?(?:p|div|br|span)\b[^<>]*>|&nbsp;|\s", re.IGNORECASE)
_HOSTED = re.compile(r"/hostedContents/([^/?#]+)")
_SCHEME = re.compile(r"(?:https?|ftp|mailto|tel|file|onenote|msteams|sip|callto):", re.IGNORECASE)
_TOKEN_KEYS = re.compile(r"[?&](?:tempauth|access_token|sig|token|auth)=", re.IGNORECASE)

_BLOCK, _BREAK = "\x1e", "\x1f"
"""Between blocks (any number is one line break), and a line break that was written."""
_BLANK_NAMES = frozenset({"", "image", "img", "photo", "picture"})
_BLOCKS = frozenset(
    {
        *("p", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "section", "article", "header", "footer", "form"),
        *("figure", "figcaption", "dl", "dt", "dd", "tbody", "thead", "center"),
    }
)
_FRAMES = frozenset({"a", "at", "pre", "code", "codeblock", "li", "ul", "ol", "blockquote", "table", "tr", "td", "th"})
_MEDIA = frozenset({"video", "audio", "iframe", "embed"})
_CLOSED_BY: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol"})),
    "td": (frozenset({"td", "th"}), frozenset({"tr", "table"})),
    "th": (frozenset({"td", "th"}), frozenset({"tr", "table"})),
    "tr": (frozenset({"tr"}), frozenset({"table"})),
}
"""What an element that is opened closes, looked for up to its container."""


class Naming(Protocol):
    """What the `<at>` elements of a message stand for."""

    def key(self, at: str) -> tuple[str, str] | None:
        """Whom an element with this id mentions: type and id."""

    def shown(self, at: str, label: str) -> str:
        """How the mention reads."""


@dataclass
class Markup:
    """What stood in the HTML."""

    text: str = ""
    mentioned: dict[str, None] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    media: list[Attachment] = field(default_factory=list)
    quoted: str = ""


class _At(NamedTuple):
    at: str
    label: str


@dataclass
class _Frame:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    pieces: list[str | _At] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)


def is_blank(source: str) -> bool:
    """Whether the HTML is empty: no words, no image, nothing that Teams shows."""
    return not _EMPTY.sub("", source[:LIMIT])


def read_html(source: str, naming: Naming) -> Markup:
    """Plain text of HTML, and what it mentions, links to, shows and quotes."""
    reader = _Reader(naming)
    for token in tokens(source[:LIMIT].replace(_BLOCK, "").replace(_BREAK, "")):
        reader.take(token)
    return reader.finish()


def without_secret(url: str) -> str:
    """The address without its query when that holds a token, which opens the file to anybody."""
    return url.partition("?")[0] if _TOKEN_KEYS.search(url) else url


# ------------------------------------------------------------------------------------------------ the reader


class _Reader:
    """Holds the elements that are open. One that closes becomes text in the one around it."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._found = Markup()
        self._open = [_Frame("")]

    def take(self, token: str | Tag) -> None:
        if isinstance(token, str):
            self._text(decoded(token))
        elif token.closes:
            self._closed(token.name)
        else:
            self._opened(token.name, attributes_of(token.attributes))

    def finish(self) -> Markup:
        while len(self._open) > 1:
            self._close_last()
        self._found.text = self._flat(self._open[0].pieces).replace("\xa0", " ").strip()
        return self._found

    def _text(self, text: str) -> None:
        if not self._in("pre", "codeblock"):
            text = _SPACES.sub(" ", text)
            last = self._open[-1].pieces[-1:]
            if text.startswith(" ") and last and isinstance(last[0], str) and last[0].endswith((" ", _BLOCK, _BREAK)):
                text = text[1:]
        self._put(text)

    def _put(self, text: str | _At) -> None:
        if text:
            self._open[-1].pieces.append(text)

    def _in(self, *tags: str) -> bool:
        return any(frame.tag in tags for frame in self._open)

    def _opened(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _CLOSED_BY:
            self._close_before(*_CLOSED_BY[tag])
        if tag in _FRAMES and len(self._open) < _DEPTH:
            self._open.append(_Frame(tag, attributes))
        elif tag == "br":
            self._put("\n" if self._in("pre", "codeblock") else _BREAK)
        elif tag in _BLOCKS:
            self._put(_BLOCK)
        elif tag in ("emoji", "customemoji") or (tag == "img" and _is_emoji(attributes)):
            self._put(attributes.get("alt") or attributes.get("title", ""))
        elif tag == "img" or tag in _MEDIA:
            self._media(tag, attributes)

    def _media(self, tag: str, attributes: dict[str, str]) -> None:
        url = without_secret(attributes.get("src", ""))
        hosted = _HOSTED.search(url)
        named = hosted[1] if hosted else attributes.get("itemid", "")
        if not (url or named):
            return
        alt = attributes.get("alt") or attributes.get("title", "")
        self._found.media.append(
            Attachment(
                id=named or None,
                name=None if alt.casefold() in _BLANK_NAMES else alt,
                kind="image" if tag == "img" else "other",
                url=url if _SCHEME.match(url) else None,
            )
        )

    def _closed(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._put(_BLOCK)
        elif tag in _FRAMES and self._in(tag):
            while self._close_last() != tag:
                pass

    def _close_before(self, closed: frozenset[str], within: frozenset[str]) -> None:
        inner = next((f.tag for f in reversed(self._open) if f.tag in closed or f.tag in within), "")
        if inner in closed:
            self._closed(inner)

    def _close_last(self) -> str:
        frame = self._open.pop()
        _CLOSERS.get(frame.tag, _Reader._close_list)(self, frame)
        return frame.tag

    # ------------------------------------------------------------------------------------------- elements

    def _close_at(self, frame: _Frame) -> None:
        self._put(_At(frame.attributes.get("id", ""), self._line(frame)))

    def _close_link(self, frame: _Frame) -> None:
        url, label = frame.attributes.get("href", "").strip(), self._line(frame)
        self._put(self._link(url, label) if _SCHEME.match(url) else label)

    def _link(self, url: str, label: str) -> str:
        """`label (url)`; an address alone where the label adds nothing, a label alone for mail and telephone."""
        self._found.links.setdefault(url, Link(url=url, label=None if label in ("", url) else label))
        if url.lower().startswith(("mailto:", "tel:")):
            return label or url.partition(":")[2]
        bare = url.partition("://")[2].rstrip("/")
        return url if label.rstrip("/") in ("", url.rstrip("/"), bare) else f"{label} ({url})"

    def _close_code(self, frame: _Frame) -> None:
        if self._in("pre", "codeblock"):
            self._open[-1].pieces += frame.pieces
        elif code := self._flat(frame.pieces).strip():
            self._put(f"`{code}`" if "\n" not in code else f"{_BLOCK}```\n{code}\n```{_BLOCK}")

    def _close_pre(self, frame: _Frame) -> None:
        code = "".join(piece if isinstance(piece, str) else piece.label for piece in frame.pieces)
        code = code.replace(_BLOCK, "\n").replace(_BREAK, "\n").strip("\n")
        if self._in("pre", "codeblock"):
            self._put(code)
        elif code.strip():
            self._put(f"{_BLOCK}```\n{code}\n```{_BLOCK}")

    def _close_item(self, frame: _Frame) -> None:
        around = next((f for f in reversed(self._open) if f.tag in ("ul", "ol")), None)
        if not (text := self._flat(frame.pieces)):
            return
        sign = "-"
        if around is not None and around.tag == "ol":
            around.cells.append(text)
            sign = f"{len(around.cells) - 1 + _first(around.attributes)}."
        self._put(f"{_BLOCK}{sign} {text}{_BLOCK}".replace("\n", "\n  "))

    def _close_list(self, frame: _Frame) -> None:
        self._put(f"{_BLOCK}{self._flat(frame.pieces)}{_BLOCK}")

    def _close_quote(self, frame: _Frame) -> None:
        """A quotation; the words of a message that this one answers are that message's, not this one's."""
        if frame.attributes.get("itemtype", "").lower().endswith("/reply"):
            self._found.quoted = self._found.quoted or frame.attributes.get("itemid", "")
        elif text := self._flat(frame.pieces):
            self._put(f"{_BLOCK}> {text}{_BLOCK}".replace("\n", "\n> "))

    def _close_row(self, frame: _Frame) -> None:
        cells = " | ".join(frame.cells) if any(frame.cells) else ""
        self._put(f"{_BLOCK}{' '.join(filter(None, (cells, self._flat(frame.pieces))))}{_BLOCK}")

    def _close_cell(self, frame: _Frame) -> None:
        row = next((f for f in reversed(self._open) if f.tag in ("tr", "table")), None)
        if row is not None and row.tag == "tr":
            row.cells.append(self._line(frame))
        else:
            self._put(f"{_BLOCK}{self._line(frame)}{_BLOCK}")

    # ----------------------------------------------------------------------------------------------- text

    def _line(self, frame: _Frame) -> str:
        return " ".join(self._flat(frame.pieces).replace("\xa0", " ").split("\n"))

    def _flat(self, pieces: list[str | _At]) -> str:
        """Lines of the pieces. A paragraph of a hard space only is a blank line; there is never more than one."""
        joined = "".join(self._shown(pieces))
        lines: list[str] = []
        for block in joined.split(_BLOCK):
            if block.strip(" " + _BREAK):
                lines += (part.strip(" ") for part in block.strip(" ").split(_BREAK))
        tidy = ["" if line == "\xa0" * len(line) else line for line in lines]
        kept = [line for at, line in enumerate(tidy) if line or (at and tidy[at - 1])]
        return "\n".join(kept).strip("\n")

    def _shown(self, pieces: list[str | _At]) -> Iterator[str]:
        """The pieces as text. Teams cuts a name into one element for each word: side by side they are one mention."""
        at = 0
        while at < len(pieces):
            piece = pieces[at]
            at += 1
            if isinstance(piece, str):
                yield piece
                continue
            label = piece.label
            while (more := self._continues(pieces, at, piece.at)) and more.label != label:
                label = f"{label} {more.label}"
                at += 1 if isinstance(pieces[at], _At) else 2
            self._found.mentioned.setdefault(piece.at)
            yield self._naming.shown(piece.at, label)

    def _continues(self, pieces: list[str | _At], at: int, first: str) -> _At | None:
        if at < len(pieces) and isinstance(pieces[at], str) and pieces[at] in (" ", "\xa0"):
            at += 1
        other = pieces[at] if at < len(pieces) else None
        if isinstance(other, _At) and self._naming.key(first) and self._naming.key(other.at) == self._naming.key(first):
            return other
        return None


def _first(attributes: dict[str, str]) -> int:
    """The number that a list begins with."""
    start = attributes.get("start", "")
    return int(start) if start.isascii() and start.isdecimal() and len(start) < 7 else 1


def _is_emoji(attributes: dict[str, str]) -> bool:
    kind = attributes.get("itemtype", "").lower()
    return (
        kind.endswith("/emoji") or "emoticon" in attributes.get("class", "") or "emoji" in attributes.get("class", "")
    )


_CLOSERS: dict[str, Callable[[_Reader, _Frame], None]] = {
    "a": _Reader._close_link,  # noqa: SLF001
    "at": _Reader._close_at,  # noqa: SLF001
    "code": _Reader._close_code,  # noqa: SLF001
    "pre": _Reader._close_pre,  # noqa: SLF001
    "codeblock": _Reader._close_pre,  # noqa: SLF001
    "li": _Reader._close_item,  # noqa: SLF001
    "blockquote": _Reader._close_quote,  # noqa: SLF001
    "tr": _Reader._close_row,  # noqa: SLF001
    "td": _Reader._close_cell,  # noqa: SLF001
    "th": _Reader._close_cell,  # noqa: SLF001
}
