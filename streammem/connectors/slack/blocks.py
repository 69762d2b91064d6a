"""Block Kit, rich text and legacy attachments to plain text, a line for each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from streammem.connectors.fields import Row, as_list, count_of, row_of, rows_of, text_of, words_of
from streammem.connectors.slack.text import Reading, is_blank, unescape

_DEPTH = 8
"""Rich text nests sections in lists in quotes; nothing honest goes deeper."""
_LATEST = 4_102_444_800  # the year 2100
_TITLED = ("title", "subtitle", "label", "text", "body", "description")
"""Where blocks keep their words, in the order in which they are shown."""


class BlockReading(Reading):
    """A reading of one message that knows blocks and attachments besides markup."""

    def blocks(self, blocks: Iterable[Row]) -> str:
        """Plain text of Block Kit blocks. Unknown kinds give their text if they have one."""
        return _lines(line for block in blocks for line in self._block(block))

    def _block(self, block: Row) -> Iterator[str]:
        kind = text_of(block, "type")
        if kind == "rich_text":
            yield self._rich_lines(block, 0)
        elif kind == "table":
            for row in as_list(block.get("rows")):
                yield " | ".join(self._cell(cell) for cell in as_list(row) if isinstance(cell, dict))
        elif kind == "markdown":
            yield self.mrkdwn(words_of(block, "text"))
        elif kind == "call":
            yield self._call(row_of(row_of(block, "call"), "v1"))
        elif kind == "file":
            yield unescape(text_of(row_of(block, "file"), "title", "name"))
        elif kind != "context_actions":  # thumbs up, thumbs down: nobody said them
            yield from self._plain_block(block, kind)

    def _plain_block(self, block: Row, kind: str) -> Iterator[str]:
        for key in _TITLED:
            yield self._composed(block, key)
        for part in rows_of(block, "fields"):
            yield self._object(part)
        if kind == "context":
            yield " ".join(filter(None, map(self._object, rows_of(block, "elements"))))
        elif kind == "actions":
            yield " | ".join(filter(None, map(self._control, rows_of(block, "elements"))))
        elif kind in ("image", "video"):
            yield unescape(words_of(block, "alt_text"))
        yield self._control(row_of(block, "accessory"))

    def _control(self, control: Row) -> str:
        """What a control shows: the label of a button, what is chosen, what an image is of."""
        if url := unescape(text_of(control, "url")):
            self._note_link(url, self._composed(control, "text"))
        if label := self._composed(control, "text") or unescape(words_of(control, "alt_text")):
            return label
        chosen = [row_of(control, "initial_option"), *rows_of(control, "initial_options")]
        return ", ".join(filter(None, (self._composed(option, "text") for option in chosen)))

    def _call(self, call: Row) -> str:
        name, url = unescape(words_of(call, "name")), unescape(text_of(call, "join_url"))
        return self.link(url, name) if url else name

    def _composed(self, block: Row, key: str) -> str:
        return self.mrkdwn(words_of(block, key)) or self._object(row_of(block, key))

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
        first = 1 + count_of(element, "offset")
        return "\n".join(f"{number}. {item}" if numbered else f"- {item}" for number, item in enumerate(items, first))

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
        if kind == "date" and not words_of(word, "fallback"):
            return _date(count_of(word, "timestamp"))
        return text or words_of(word, "fallback") or words_of(word, "value") or text_of(word, "team_id")

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

    def quoted(self, shared: Row) -> str:
        """The words of a message that an attachment shows: its text, else its blocks, else what attachments give."""
        text = words_of(shared, "text")
        if not is_blank(text):
            return self.mrkdwn(text)
        inner = (row_of(part, "message") for part in rows_of(shared, "message_blocks"))
        text = self.blocks(block for message in inner for block in rows_of(message, "blocks"))
        return self.attachment(shared) if is_blank(text) else text


def _date(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d") if 0 < timestamp < _LATEST else ""


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part.strip())
