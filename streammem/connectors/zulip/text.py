"""Zulip's Markdown to plain text: mentions, links, and blocks of code, quotes and spoilers.

Nothing in code is a mention. Nor is what is quoted, nor what is named silently (`@_**Ada**`): nobody was called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from streammem.connectors.markdown import FENCE, Reading
from streammem.records import Forwarded, Mention

SPECIAL = frozenset({"all", "everyone", "stream", "channel", "topic"})

_DEPTH = 8
_NAMED = re.compile(
    r"(?<![^\s'\"({\[/<])"
    r"(?:@(?P<silent>_?)\*\*(?P<user>[^*\n]+)\*\*|@(?P<hush>_?)\*(?P<group>[^*\n]+)\*"
    r"|#\*\*(?P<stream>[^*>\n]+)(?:>(?P<topic>[^*\n]*?)(?:@\d+)?)?\*\*)"
)
_WITH_ID = re.compile(r"(.*?)\|(\d+)")
_SAID = re.compile(r"@_\*\*[^*\n]+\*\* \[[^\]\n]*\]\((?P<url>[^\s()]*#narrow/[^\s()]*)\):?[ \t]*")
_NEAR = re.compile(r"#narrow/(?:(?P<kind>stream|channel|dm|pm-with)/(?P<place>[^/]{1,300})).{0,1000}?/near/(?P<id>\d+)")


@dataclass
class Names:
    """What ids are called, and which id a name means where only one bears it."""

    users: dict[str, str] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    users_named: dict[str, set[str]] = field(default_factory=dict)
    streams_named: dict[str, set[str]] = field(default_factory=dict)


class Words:
    """The words of one message being read, in the channel where they stand."""

    def __init__(self, names: Names, channel: str) -> None:
        self.reading = Reading(uploads="/user_uploads/")
        self.reply_to = ""
        self.forwarded: Forwarded | None = None
        self._quoted: list[str] = []
        self._names = names
        self._channel = channel

    def text(self, written: str) -> str:
        """Plain text. A message quoted from this channel is answered and left out; one from elsewhere is passed on.

        Who says nothing else says what is quoted.
        """
        told = "\n".join(self._blocks(written.replace("\r\n", "\n").split("\n"), 0)).strip("\n")
        return told if told.strip() else "\n".join(self._quoted)

    # ------------------------------------------------------------------------------------------- blocks

    def _blocks(self, lines: list[str], depth: int) -> Iterator[str]:
        at, prose = 0, list[str]()
        while at < len(lines):
            opens = FENCE.fullmatch(lines[at].rstrip())
            if opens is None:
                prose.append(lines[at])
                at += 1
                continue
            end = _closing(lines, at + 1, opens[1], nests=_nests(opens[2]))
            said = _SAID.fullmatch(prose[-1]) if prose and _is(opens[2], "quote") else None
            if said:
                prose.pop()
            yield from self._paragraph(prose)
            prose = []
            yield from self._block(opens, lines[at + 1 : end], said, depth)
            at = end + 1
        yield from self._paragraph(prose)

    def _block(self, opens: re.Match[str], inside: list[str], said: re.Match[str] | None, depth: int) -> Iterator[str]:
        if depth > _DEPTH or not _nests(opens[2]):
            yield from (opens[0], *inside, opens[1])
        elif _is(opens[2], "spoiler"):
            yield from filter(None, (self.prose(opens[2].partition(" ")[2].strip()),))
            yield from self._blocks(inside, depth + 1)
        else:
            quoted = Words(self._names, self._channel)
            words = [line for part in quoted._blocks(inside, depth + 1) for line in part.split("\n")]
            shown = [f"> {line}" for line in words]
            if said and self._answers(said["url"], "\n".join(words)):
                self._quoted += shown
            else:
                yield from (self.prose(said[0]), *shown) if said else shown

    def _answers(self, url: str, words: str) -> bool:
        """Take note of a quoted message; whether it needs no repeating."""
        if (near := _NEAR.search(url)) is None:
            return False
        place = unquote(near["place"].replace(".", "%")).partition("-")[0]
        is_direct = near["kind"] in ("dm", "pm-with")
        if self._is_here(place, is_direct=is_direct):
            self.reply_to = self.reply_to or near["id"]
            return True
        if self.forwarded is not None:
            return False
        self.forwarded = Forwarded(id=near["id"], channel=None if is_direct else place, text=words or None)
        return True

    def _is_here(self, place: str, *, is_direct: bool) -> bool:
        """Whether a link leads to the channel of this message; those to direct messages may leave oneself out."""
        if not is_direct:
            return place == self._channel
        is_direct_here = self._channel.startswith("dm:")
        return is_direct_here and set(place.split(",")) <= set(self._channel.removeprefix("dm:").split(","))

    def _paragraph(self, lines: list[str]) -> Iterator[str]:
        """Lines outside of blocks; those that begin with `>` are quoted."""
        if not lines:
            return
        quoted = Words(self._names, self._channel)
        yield "\n".join((quoted if line.lstrip().startswith(">") else self).prose(line) for line in lines)

    # -------------------------------------------------------------------------------------- what is named

    def prose(self, text: str) -> str:
        """Plain text of a line."""
        return self.reading.prose(text, lambda words: _NAMED.sub(self._named, words))

    def _named(self, match: re.Match[str]) -> str:
        if user := match["user"]:
            return self._user(user, silent=bool(match["silent"]))
        if group := match["group"]:
            return self._group(group, silent=bool(match["hush"]))
        return self._stream(match["stream"], match["topic"])

    def _user(self, written: str, *, silent: bool) -> str:
        name, user = written, ""
        if with_id := _WITH_ID.fullmatch(written):
            name, user = with_id[1], with_id[2]
        elif written in SPECIAL and not silent:
            self.reading.note(Mention(type="special", id=written))
        else:
            user = _only(self._names.users_named, written)
        if user and not silent:
            self.reading.note(Mention(id=user, label=name or None))
        return "@" + (self._names.users.get(user) or name or user)

    def _group(self, name: str, *, silent: bool) -> str:
        if not silent:
            self.reading.note(Mention(type="group", id=self._names.groups.get(name, name), label=name))
        return f"@{name}"

    def _stream(self, name: str, topic: str | None) -> str:
        if stream := _only(self._names.streams_named, name):
            self.reading.note(Mention(type="channel", id=stream, label=name))
        return f"#{name} > {topic}" if topic else f"#{name}"


def _only(bearers: dict[str, set[str]], name: str) -> str:
    """Whom a name means, when only one bears it."""
    named = bearers.get(name, set())
    return next(iter(named)) if len(named) == 1 else ""


def _is(info: str, kind: str) -> bool:
    return info.strip().partition(" ")[0].lower() == kind


def _nests(info: str) -> bool:
    """Whether a block holds Markdown; all others hold code."""
    return _is(info, "quote") or _is(info, "spoiler")


def _closing(lines: list[str], at: int, fence: str, *, nests: bool) -> int:
    """The line that closes a block; the end when none does."""
    blocks = [(fence, nests)]
    for index in range(at, len(lines)):
        line = lines[index].strip()
        fence, nests = blocks[-1]
        if line == fence:
            blocks.pop()
            if not blocks:
                return index
        elif nests and len(blocks) < _DEPTH and (inner := FENCE.fullmatch(line)) and inner[2]:
            blocks.append((inner[1], _nests(inner[2])))
    return len(lines)
