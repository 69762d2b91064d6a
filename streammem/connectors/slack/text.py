"""Slack's markup (mrkdwn) to plain text, and what it mentions and links to.

Tokens are found first and decoded second, once: `&amp;lt;` is the text `&lt;`. Inside code nothing is a mention.
User names come from the directory, else the token's label, else the id; emphasis stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streammem.records import Link, Mention

PLACEHOLDERS = frozenset(
    {
        "This content can't be displayed",
        "This content can’t be displayed",
        "This message contains interactive elements",
        "[no preview available]",
        "New Assistant Thread",
    }
)
"""What Slack writes where a client that cannot show blocks would show nothing."""

_TOKEN = re.compile(r"```.*?```|`[^`\n]+`|<([^<>\n]*)>", re.DOTALL)
_CODE_LINK = re.compile(r"<((?:https?|mailto|ftp):[^<>\n]*)>")
_ESCAPE = re.compile(r"&(amp|lt|gt);")
_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">"}
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_ID = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Names:
    """What ids are called: users, channels, and the handles of user groups."""

    users: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


def unescape(text: str) -> str:
    """Decode Slack's three entities in a single pass; every other entity is what somebody typed."""
    return _ESCAPE.sub(lambda match: _CHARACTERS[match[1]], text) if "&" in text else text


def is_blank(text: str) -> bool:
    """Whether a text says nothing: empty, or one of Slack's stand-ins."""
    stripped = text.strip()
    return not stripped or stripped.rstrip(".") in PLACEHOLDERS


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
        return "@" + (self._names.groups.get(group) or label.lstrip("@") or group)

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
