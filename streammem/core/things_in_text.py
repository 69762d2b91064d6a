"""The channels and artifacts that a text names, artifacts also where they are spelled otherwise than in the memory."""

from __future__ import annotations

import re

from streammem.core.directory import Directory, fold
from streammem.core.identifiers import Rules
from streammem.core.spelling import nearest
from streammem.core.words_in_text import Named, Token, phrases, tokens

_LONGEST_NAME = 4


def channels(text: str, directory: Directory, asker: str | None = None) -> list[Named]:
    """The channels that a text names: with #, by a telling name, or beside the word channel.

    With a typo only those that the asker reads: the name of another would show by what it takes the place of.
    """
    words, found = tokens(text), list[Named]()
    for i, j, phrase in phrases(words, _LONGEST_NAME, text):
        named = _channels_called(phrase, words[i:j], text, directory, asker)
        if named and not any(n.at[0] <= words[i].start < n.at[1] for n in found):
            found.append(Named("channel", phrase, named, (words[i].start, words[j - 1].end)))
    return found


def _channels_called(
    phrase: str, tokens: list[Token], text: str, directory: Directory, asker: str | None
) -> tuple[str, ...]:
    folded = fold(phrase)
    beside = _beside_channel(text, tokens[0].start, tokens[-1].end)
    known = directory.channel_names.get(folded, frozenset())
    if not known and beside and len(tokens) > 1:
        known = directory.channel_names.get(folded.replace(" ", "-"), frozenset())
    if not known and phrase[0] == "#" and len(tokens) == 1:
        known = _channels_meant(folded, directory, asker)
    telling = phrase[0] == "#" or "-" in phrase or "_" in phrase or phrase in known or beside
    return tuple(dict.fromkeys(c for each in sorted(known) for c in directory.ids_of_channel(each))) if telling else ()


def _channels_meant(folded: str, directory: Directory, asker: str | None) -> frozenset[str]:
    readable = {
        name: seen
        for name, ids in directory.channel_names.items()
        if (seen := frozenset(c for c in ids if directory.visible(c, asker)))
    }
    return frozenset(c for name in nearest(folded, readable) for c in readable[name])


def _beside_channel(text: str, start: int, end: int) -> bool:
    return (
        re.match(r"['’\"]?\s+(?:chat\s+)?channel\b", text[end : end + 20], re.IGNORECASE) is not None
        or re.search(r"\bchannel\s+['’\"]?$", text[max(0, start - 12) : start], re.IGNORECASE) is not None
    )


# ---------------------------------------------------------------------------------------------- identifiers

_LOOSE = re.compile(r"(?<![\w.#/-])([A-Za-z][A-Za-z0-9]{0,8}[A-Za-z])\s?[-–_ ]?\s?(\d{1,6})(?![\w/-]|\.\w)")
_LOOSE_VERSION = re.compile(r"(?<!\w)(?:version|release|ver\.?|v)\s?(\d+\.\d+(?:\.\d+)?)(?![\w.]*\w)", re.IGNORECASE)
_WIDTHS = range(1, 6)
"""Digits that numbers of identifiers are filled up to with zeros."""


def loose_identifiers(text: str, rules: Rules, apart: tuple[int, int] = (0, 0)) -> list[Named]:
    """What may be an identifier of the memory spelled otherwise (doc 42, DOC042, or DOC-42 for DOC-042).

    With the spellings to look for in the memory: first the one that is nearest to what is written.
    """
    found = list[Named]()
    for pattern, spellings in ((_LOOSE, _codes), (_LOOSE_VERSION, _versions)):
        for match in pattern.finditer(text):
            written = rules.identifiers(match[0])
            if (written and match[0] not in written) or (match.start() < apart[1] and apart[0] < match.end()):
                continue
            known = (i for spelling in spellings(match) for i in rules.identifiers(spelling))
            ids = tuple(dict.fromkeys([*written, *known]))
            if len(ids) > len(written):
                found.append(Named("artifact", match[0], ids, match.span()))
    return found


def _codes(match: re.Match[str]) -> list[str]:
    family, number = match[1].upper(), str(int(match[2]))
    return [f"{family}-{filled}" for filled in dict.fromkeys([match[2], *(number.zfill(w) for w in _WIDTHS)])]


def _versions(match: re.Match[str]) -> list[str]:
    return [f"v{match[1]}"]
