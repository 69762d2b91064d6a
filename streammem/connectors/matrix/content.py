"""The content of a Matrix message: its words, what it answers, mentions and attachments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from streammem.connectors.fields import Row, as_list, count_of, row_of, rows_of, text_of, texts_of, words_of
from streammem.records import Attachment, Link, Mention

POLLS = ("m.poll.start", "org.matrix.msc3381.poll.start")

_FALLBACK = re.compile(r"\A> (?:\* )?<@[^>\n]*>[^\n]*(?:\n>[^\n]*)*(?:\n\n?|\Z)")
"""What older clients put before a reply: whom it answers and the words. A quotation without a name is the author's."""
_REPLY_BEGINS, _REPLY_ENDS = (re.compile(f"<{sign}mx-reply>", re.IGNORECASE) for sign in ("", "/"))
_PILL = re.compile(r"""href\s*=\s*["']https://matrix\.to/#/([^"'?/]{1,1000})""", re.IGNORECASE)
_HREF = re.compile(r"""<a\s[^<>]*href\s*=\s*["']([a-z][a-z0-9+.-]*://[^"'<>]+)["']""", re.IGNORECASE)
_FILES: dict[str, Literal["image", "file"]] = {
    "m.image": "image",
    "m.file": "file",
    "m.audio": "file",
    "m.video": "file",
}


@dataclass(frozen=True)
class Relation:
    """What an event says of others: the event it answers, its thread's root, and what it replaces or annotates."""

    reply_to: str = ""
    thread: str = ""
    kind: str = ""
    target: str = ""
    key: str = ""


def relation_of(content: Row) -> Relation:
    """In a thread, a reply that only stands there for old clients answers the thread's root."""
    relates = row_of(content, "m.relates_to")
    kind, target = text_of(relates, "rel_type"), text_of(relates, "event_id")
    reply = text_of(row_of(relates, "m.in_reply_to"), "event_id")
    if kind in ("m.thread", "io.element.thread"):
        is_reply = reply and relates.get("is_falling_back") is not True
        return Relation(reply if is_reply else target, target)
    return Relation(reply, "", kind, target, text_of(relates, "key"))


def text_of_message(content: Row, *, answers: bool) -> str:
    """The words of a message: the body without the quotation that a reply repeats, a caption, a poll's question."""
    if poll := _poll(content):
        return poll
    body = words_of(content, "body")
    if answers:
        body = _FALLBACK.sub("", body, count=1)
    if text_of(content, "msgtype") in _FILES:
        # The body of a file is its name, unless a name stands elsewhere: then it is a caption.
        named = text_of(content, "filename")
        return body if named and named != body else ""
    return body


def _poll(content: Row) -> str:
    """Question and answers, in the words of the proposal and in those of the specification."""
    poll = next((part for key in POLLS if (part := row_of(content, key))), {})
    if not poll:
        return ""
    answers = (f"- {told}" for answer in rows_of(poll, "answers") if (told := _extensible(answer)))
    return "\n".join(filter(None, (_extensible(row_of(poll, "question")), *answers)))


def _extensible(part: Row) -> str:
    """Text in its newer form: a string, or a list of representations."""
    for key in ("m.text", "org.matrix.msc1767.text"):
        value = part.get(key)
        if isinstance(value, str) and value:
            return value
        for one in as_list(value):
            if isinstance(one, dict) and (told := text_of(one, "body")):
                return told
    return text_of(part, "body")


def mentions_of(content: Row) -> tuple[Mention, ...]:
    """Whom the message names: as it says itself, else as its links to people do."""
    stated = row_of(content, "m.mentions")
    found = [Mention(id=user) for user in texts_of(stated, "user_ids")]
    if "m.mentions" not in content:
        found += _pills(words_of(content, "formatted_body"))
    if stated.get("room") is True:
        found.append(Mention(type="special", id="room"))
    return tuple(dict.fromkeys(found))


def _own(html: str) -> str:
    """The HTML without the quotation that a reply repeats."""
    begins = _REPLY_BEGINS.search(html)
    ends = _REPLY_ENDS.search(html, begins.end()) if begins else None
    return html[: begins.start()] + html[ends.end() :] if begins and ends else html


def _pills(html: str) -> Iterator[Mention]:
    for target in _PILL.findall(_own(html)):
        name = unquote(target)
        if name.startswith("@") and ":" in name:
            yield Mention(id=name)


def rooms_named(content: Row) -> tuple[Mention, ...]:
    """The rooms that the message links to, by id or address."""
    targets = _PILL.findall(_own(words_of(content, "formatted_body")))
    rooms = (name for target in targets if (name := unquote(target))[:1] in ("!", "#") and len(name) > 1)
    return tuple(Mention(type="channel", id=room) for room in dict.fromkeys(rooms))


def links_of(content: Row) -> tuple[Link, ...]:
    """Addresses that the message links to, but for those of people and rooms."""
    found = _HREF.findall(_own(words_of(content, "formatted_body")))
    return tuple(Link(url=url) for url in dict.fromkeys(found) if not url.startswith("https://matrix.to/"))


def attachments_of(content: Row, *, is_sticker: bool = False) -> tuple[Attachment, ...]:
    """The file, sticker or place that a message is."""
    kind = text_of(content, "msgtype")
    if kind == "m.location":
        return (Attachment(kind="other", name="location", url=text_of(content, "geo_uri") or None),)
    if kind not in _FILES and not is_sticker:
        return ()
    info = row_of(content, "info")
    return (
        Attachment(
            name=text_of(content, "filename", "body") or None,
            kind="sticker" if is_sticker else _FILES[kind],
            url=text_of(content, "url") or text_of(row_of(content, "file"), "url") or None,
            mime=text_of(info, "mimetype") or None,
            size=count_of(info, "size") or None,
        ),
    )
