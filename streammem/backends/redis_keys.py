"""What everything is called in Redis: no two things share a key, and what one atomic step touches shares a hash tag.

A key is PREFIX:{TAG}KIND and what the kind needs. What belongs to one channel has the channel as its tag: its
messages and the sequences that only its messages can be in. Sequences of many channels' messages share the tags of a
few shelves: a question looks at hundreds of them, and each tag costs it a command.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import NamedTuple

from streammem.core import events
from streammem.errors import SettingsError
from streammem.records import Sequence

SHELVES = 16
"""Tags for the pooled sequences of a workspace: few commands for a question, enough nodes of a cluster to lie on."""

KNOWN = 50_000
"""Names kept spelt out, a few hundred bytes each."""

_NOWHERE = "%"
"""The tag of uids that name no channel: a quoted text is never this."""

_UNSAFE = str.maketrans({"%": "%25", "/": "%2F", "{": "%7B", "}": "%7D", "\n": "%0A"})
_BRACES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", "\n": "%0A"})
_PLAIN = [("%0A", "\n"), ("%7D", "}"), ("%7B", "{"), ("%2F", "/"), ("%25", "%")]


_PREFIX = re.compile(r"[a-zA-Z0-9._-]+")


def checked(prefix: str) -> str:
    """A prefix that no other prefix's keys can begin with."""
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"the Redis prefix {prefix!r} is wrong: letters, digits, dots, hyphens and underscores")
    return prefix


class Place(NamedTuple):
    """Where a sequence is kept. `name` spells it in full, `listed` within its workspace."""

    tag: str
    rest: str
    name: str
    listed: str


class Home(NamedTuple):
    """Where a message is kept: its channel's tag, and its own name within the channel."""

    tag: str
    id: str


def home(uid: str) -> Home:
    """Where a message is kept. Any text is a uid here."""
    cut = uid.rfind("/") + 1
    return Home(_channel_tag(uid[:cut]), uid[cut:])


@lru_cache(KNOWN)
def _channel_tag(start: str) -> str:
    return start.translate(_BRACES) or _NOWHERE


@lru_cache(KNOWN)
def uid_start(tag: str) -> str:
    """What the uids of a channel's messages begin with."""
    return "" if tag == _NOWHERE else _unquoted(tag, slashes=False)


@lru_cache(KNOWN)
def place(sequence: Sequence) -> Place:
    """Where a sequence is kept."""
    workspace, view, tree, branch, channel = (
        part.translate(_UNSAFE)
        for part in (sequence.workspace, sequence.view, sequence.tree, sequence.branch, sequence.channel)
    )
    listed = f"{view}/{tree}/{branch}/{channel}"
    name = f"{workspace}/{listed}"
    if sequence.channel:
        return Place(_of_channel(sequence.workspace, sequence.channel), f"{view}/{tree}/{branch}", name, listed)
    if sequence.view == "channel" and not sequence.branch:
        return Place(_of_channel(sequence.workspace, sequence.tree), "channel", name, listed)
    return Place(f"{workspace}/{zlib.crc32(listed.encode('utf-8', 'surrogatepass')) % SHELVES}", listed, name, listed)


def _of_channel(workspace: str, channel: str) -> str:
    return home(events.uid(workspace, channel, "")).tag


@lru_cache(KNOWN)
def sequence_of(name: str) -> Sequence:
    """The sequence that a name spells."""
    return Sequence(*(_unquoted(part) for part in name.split("/")))


def quoted(part: str) -> str:
    """A text as a part of a name."""
    return part.translate(_UNSAFE)


def _unquoted(text: str, *, slashes: bool = True) -> str:
    if "%" in text:
        for mark, plain in _PLAIN:
            if slashes or plain != "/":
                text = text.replace(mark, plain)
    return text
