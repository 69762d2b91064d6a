"""HTML cut into tags and text.

The standard library's parser takes minutes for hostile input of 200 kB and raises for some. Here every input is read
in linear time and nothing raises; what is no tag is text. Entities are decoded once.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

# From a `<` a tag reaches over at most 64 quoted values with 4 more `<` in each, so cutting stays linear.
_QUOTED = r'"[^"<]*+(?:<[^"<]*+){0,4}+"' + r"|'[^'<]*+(?:<[^'<]*+){0,4}+'"
_TAG = re.compile(rf"<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)([^<>\"']*+(?:(?:{_QUOTED})[^<>\"']*+){{0,64}}+)>")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++)))?""")


class Tag(NamedTuple):
    """A tag: its name in lower case, whether it closes, and its attributes as they were written."""

    name: str
    closes: bool
    attributes: str


def tokens(source: str) -> Iterator[str | Tag]:
    """Tags and the text between them, not yet decoded. Comments, scripts and styles are passed over."""
    at = start = 0
    while (at := source.find("<", at)) >= 0:
        if source.startswith(("<!", "<?"), at):
            end = source.find("-->" if source.startswith("<!--", at) else ">", at)
            yield source[start:at]
            if end < 0:
                return
            at = start = source.index(">", end) + 1
        elif match := _TAG.match(source, at):
            yield source[start:at]
            at = start = match.end()
            name = match[2].lower()
            yield Tag(name, bool(match[1]), match[3])
            if name in ("script", "style") and not match[1]:
                at = start = _end_of(name, source, at)
        else:
            at += 1
    yield source[start:]


def _end_of(name: str, source: str, at: int) -> int:
    closing = re.compile(f"</{name}", re.IGNORECASE).search(source, at)
    return closing.start() if closing else len(source)


def attributes_of(text: str) -> dict[str, str]:
    """The attributes of a tag by their names in lower case, decoded; of two of one name the first."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), decoded(match[2] or match[3] or match[4] or ""))
    return found


def decoded(text: str) -> str:
    """Text with its entities decoded, once."""
    try:
        return html.unescape(text) if "&" in text else text
    except ValueError:  # a number of more than 4,300 digits
        return text
