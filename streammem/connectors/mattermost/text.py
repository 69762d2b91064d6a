"""Mattermost's Markdown to plain text: who is meant is found by scanning for known names, outside of code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from streammem.connectors.markdown import Reading
from streammem.records import Mention

SPECIAL = frozenset({"all", "channel", "here"})

_NAMED = re.compile(r"(?<![\w@~/])([@~])([a-zA-Z0-9][a-zA-Z0-9._-]{0,200})")


@dataclass
class Names:
    """What usernames and `team/channel` are called."""

    users: dict[str, str] = field(default_factory=dict)
    channels: dict[str, str] = field(default_factory=dict)


def read(reading: Reading, text: str, names: Names, team: str) -> str:
    """Plain text of a message; names of people and of the team's channels are noted and shown as people know them."""
    return reading.text(text, lambda prose: _NAMED.sub(partial(_named, reading=reading, names=names, team=team), prose))


def _named(match: re.Match[str], reading: Reading, names: Names, team: str) -> str:
    """A name may end in punctuation that belongs to the sentence: `@bram.`"""
    sign, written = match[1], match[2]
    name = written
    while name:
        if (shown := _meant(sign, name, reading, names, team)) is not None:
            return shown + written[len(name) :]
        if name[-1] not in "._-":
            break
        name = name[:-1]
    return match[0]


def _meant(sign: str, name: str, reading: Reading, names: Names, team: str) -> str | None:
    folded = name.lower()
    if sign == "~":
        channel = f"{team}/{folded}"
        if (shown := names.channels.get(channel)) is None:
            return None
        reading.note(Mention(type="channel", id=channel, label=shown))
        return "#" + shown
    user = name if name in names.users else folded
    if user in names.users:
        reading.note(Mention(id=user, label=name))
        return "@" + names.users[user]
    if folded in SPECIAL:
        reading.note(Mention(type="special", id=folded))
        return "@" + folded
    return None
