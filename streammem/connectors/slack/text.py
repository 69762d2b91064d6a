"""Slack's markup to plain text, and what it mentions and links to.

Tokens are found first and decoded second, once: `&amp;lt;` is the text `&lt;`. Inside code nothing is a mention.
User names come from the directory, else the token's label, else the id; emphasis stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streammem.connectors.fields import Row, as_list, row_of, rows_of, text_of, words_of
from streammem.records import Link, Mention

PLACEHOLDERS = frozenset(
    {
        "This content can't be displayed.",
        "This content can’t be displayed.",
        "This message contains interactive elements.",
        "[no preview available]",
    }
)
"""What Slack writes where a client that cannot show blocks would show nothing."""

_DEPTH = 8
"""Rich text nests sections in lists in quotes; nothing honest goes deeper."""
_TOKEN = re.compile(r"```.*?```|`[^`\n]+`|<([^<>\n]*)>", re.DOTALL)
_CODE_LINK = re.compile(r"<((?:https?|mailto|ftp):[^<>\n]*)>")
_ESCAPE = re.compile(r"&(amp|lt|gt);")
_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">"}
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_ID = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Names:
    """What ids are called: users and channels of the export."""

    users: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def unescape(text: str) -> str:
    """Decode Slack's three entities in a single pass; every other entity is what somebody typed."""
    return _ESCAPE.sub(lambda match: _CHARACTERS[match[1]], text) if "&" in text else text


def is_blank(text: str) -> bool:
    """Whether a text says nothing: empty, or one of Slack's stand-ins."""
    stripped = text.strip()
    return not stripped or stripped in PLACEHOLDERS


class Reading:
    """One message being read: renders its parts and gathers what they mention and link to, each once."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._mentions: dict[tuple[str, str], Mention] = {}
        self._links: dict[str, Link] = {}

    @property
    def mentions(self) -> tuple[Mention, ...]:
        return tuple(self._mentions.values())

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    # ------------------------------------------------------------------------------------------- mrkdwn

    def mrkdwn(self, text: str) -> str:
        """Plain text of a text field in Slack's markup."""
        if "<" not in text:
            return unescape(text)
        parts: list[str] = []
        end = 0
        for match in _TOKEN.finditer(text):
            parts += (unescape(text[end : match.start()]), self._span(match))
            end = match.end()
        parts.append(unescape(text[end:]))
        return "".join(parts)

    def _span(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return unescape(_CODE_LINK.sub(self._link_in_code, match[0]))
        shown = self._token(match[1])
        return unescape(match[0]) if shown is None else shown

    def _link_in_code(self, match: re.Match[str]) -> str:
        """Slack wraps addresses even in code, where people expect what they typed."""
        url, _, label = match[1].partition("|")
        self._note_link(unescape(url), unescape(label))
        return label or url

    def _token(self, token: str) -> str | None:
        """What a `<token>` reads as; None when it is no token of Slack's."""
        target, _, label = token.partition("|")
        label = unescape(label)
        sign, rest = target[:1], target[1:]
        if sign == "@" and _ID.fullmatch(rest):
            return self.user(rest, label)
        if sign == "#" and _ID.fullmatch(rest):
            return self.channel(rest, label)
        if sign == "!" and rest:
            return self._command(rest, label)
        return self.link(unescape(target), label) if _SCHEME.match(target) else None

    def _command(self, command: str, label: str) -> str:
        name, _, argument = command.partition("^")
        if name == "subteam" and argument:
            return self.group(argument.partition("^")[0], label)
        if name in ("here", "channel", "everyone", "group") and not argument:
            return self.special(name)
        return label or unescape(name)

    # ----------------------------------------------------------------------------------- what is named

    def user(self, user: str, label: str = "") -> str:
        self._note("user", user, label)
        return "@" + (self._names.users.get(user) or label.lstrip("@") or user)

    def channel(self, channel: str, label: str = "") -> str:
        self._note("channel", channel, label)
        return "#" + (self._names.channels.get(channel) or label.lstrip("#") or channel)

    def group(self, group: str, label: str = "") -> str:
        self._note("group", group, label)
        return "@" + (label.lstrip("@") or group)

    def special(self, name: str) -> str:
        self._note("special", name, "")
        return "@" + name

    def link(self, url: str, label: str = "") -> str:
        """`label (url)`; an address alone where the label adds nothing, a label alone for mail and telephone."""
        self._note_link(url, label)
        if url.startswith(("mailto:", "tel:")):
            return label or url.partition(":")[2]
        return url if label in ("", url) else f"{label} ({url})"

    def _note(self, kind: str, name: str, label: str) -> None:
        mention = Mention(type=kind, id=name, label=label.lstrip("@#") or None)  # type: ignore[arg-type]
        self._mentions.setdefault((kind, name), mention)

    def _note_link(self, url: str, label: str) -> None:
        self._links.setdefault(url, Link(url=url, label=label if label not in ("", url) else None))

    # ------------------------------------------------------------------------------------------- blocks

    def blocks(self, blocks: Iterable[Row]) -> str:
        """Plain text of Block Kit blocks, a line for each part. Unknown kinds give their text if they have one."""
        return _lines(line for block in blocks for line in self._block(block))

    def _block(self, block: Row) -> Iterator[str]:
        kind = text_of(block, "type")
        if kind == "rich_text":
            yield self._rich_lines(block, 0)
        elif kind == "table":
            for cells in _table(block):
                yield " | ".join(self._cell(cell) for cell in cells)
        else:
            yield from self._plain_block(block, kind)

    def _plain_block(self, block: Row, kind: str) -> Iterator[str]:
        if kind == "markdown":
            yield words_of(block, "text")
            return
        yield self._text_object(block, "title")
        yield self._text_object(block, "text")
        for part in rows_of(block, "fields"):
            yield self._object(part)
        if kind == "context":
            yield " ".join(filter(None, map(self._object, rows_of(block, "elements"))))
        elif kind in ("image", "video"):
            yield unescape(words_of(block, "alt_text"))

    def _text_object(self, block: Row, key: str) -> str:
        return self._object(row_of(block, key))

    def _object(self, composed: Row) -> str:
        """A composition object: `plain_text` has entities but no tokens."""
        text = words_of(composed, "text")
        return unescape(text) if composed.get("type") == "plain_text" else self.mrkdwn(text)

    def _cell(self, cell: Row) -> str:
        return self._rich_lines(cell, 0) if cell.get("type") == "rich_text" else unescape(words_of(cell, "text"))

    # ---------------------------------------------------------------------------------------- rich text

    def _rich_lines(self, block: Row, depth: int) -> str:
        return _lines(self._rich(element, depth) for element in rows_of(block, "elements"))

    def _rich(self, element: Row, depth: int) -> str:
        kind = text_of(element, "type")
        if depth > _DEPTH:
            return ""
        if kind == "rich_text_list":
            return self._rich_list(element, depth)
        if kind == "rich_text_preformatted":
            code = self._rich_words(element, coded=True)
            return f"```\n{code}\n```" if code.strip() else ""
        words = self._rich_words(element, coded=False)
        if kind == "rich_text_quote" and words.strip():
            return "> " + words.replace("\n", "\n> ")
        return words

    def _rich_list(self, element: Row, depth: int) -> str:
        numbered = element.get("style") == "ordered"
        items = filter(str.strip, (self._rich(item, depth + 1) for item in rows_of(element, "elements")))
        return "\n".join(f"{number}. {item}" if numbered else f"- {item}" for number, item in enumerate(items, 1))

    def _rich_words(self, element: Row, *, coded: bool) -> str:
        return "".join(self._rich_word(word, coded=coded) for word in rows_of(element, "elements"))

    def _rich_word(self, word: Row, *, coded: bool) -> str:
        """A run of rich text, which is never escaped."""
        kind, text = text_of(word, "type"), words_of(word, "text")
        if kind == "text":
            return f"`{text}`" if row_of(word, "style").get("code") is True and not coded and text else text
        if kind == "link":
            url = words_of(word, "url")
            return self.link(url, text) if url else text
        if kind == "emoji":
            return f":{words_of(word, 'name')}:"
        return self._rich_name(word, kind, text)

    def _rich_name(self, word: Row, kind: str, text: str) -> str:
        if kind == "user" and (user := text_of(word, "user_id")):
            return self.user(user)
        if kind == "usergroup" and (group := text_of(word, "usergroup_id")):
            return self.group(group)
        if kind == "channel" and (channel := text_of(word, "channel_id")):
            return self.channel(channel)
        if kind == "broadcast" and (name := text_of(word, "range")):
            return self.special(name)
        return text or words_of(word, "fallback") or words_of(word, "value")

    # -------------------------------------------------------------------------------------- attachments

    def attachment(self, attachment: Row) -> str:
        """Plain text of an attachment: its blocks, else its fields, and only then its fallback."""
        if not is_blank(text := self.blocks(rows_of(attachment, "blocks"))):
            return text
        if not is_blank(text := _lines(self._attachment_fields(attachment))):
            return text
        fallback = self.mrkdwn(words_of(attachment, "fallback"))
        return "" if is_blank(fallback) else fallback

    def _attachment_fields(self, attachment: Row) -> Iterator[str]:
        yield self.mrkdwn(words_of(attachment, "pretext"))
        title, url = self.mrkdwn(words_of(attachment, "title")), unescape(text_of(attachment, "title_link"))
        yield self.link(url, title) if url and title else title
        yield self.mrkdwn(words_of(attachment, "text"))
        for part in rows_of(attachment, "fields"):
            name, value = self.mrkdwn(words_of(part, "title")), self.mrkdwn(words_of(part, "value"))
            yield f"{name}: {value}" if name and value else name or value


def _table(block: Row) -> Iterator[list[Row]]:
    for row in as_list(block.get("rows")):
        yield [cell for cell in as_list(row) if isinstance(cell, dict)]


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part.strip())
