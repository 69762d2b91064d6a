"""The words of a text as a reader of names sees them: runs of them, which one begins a sentence, which name nobody."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import pairwise
from typing import Literal

import msgspec

from streammem.core.dates_in_text import NAMES_OF_TIME
from streammem.core.directory import fold

Begins = Container[str]
How = Literal["name", "title", "typo", "relation"]


class Named(msgspec.Struct, frozen=True):
    """A place in a text that names somebody or something: its words, all that bear the name, how it was read."""

    kind: Literal["user", "channel", "artifact"]
    words: str
    ids: tuple[str, ...]
    at: tuple[int, int]
    how: How = "name"


_WORD = re.compile(r"[#@]?\w(?:[\w.'’-]*\w)?")
_POSSESSIVE = re.compile(r"['’]s$")
_ORDINARY_WORDS = """
    a about according after again all also although an and any are as ask at be because been before being
    between both but by can compare could currently describe did do does done during each either else even every
    explain find first for from get give had has have he hello help her here hey hi his how however i if in into
    is it its just last lay let list many may me mine more most much must my name no nor not now of officially
    on once one only or other our over per please remind said same say says shall she should show since so some
    state still such summarise summarize team tell than thank thanks that the their them then there these they
    this those though through to today trace under until up us was we were what whatever when where whether
    which while who whom whose why will with within without would yes yesterday you your
"""
_ORDINARY = frozenset(_ORDINARY_WORDS.split()) | NAMES_OF_TIME
_OPENING = frozenset(("bill", "chase", "drew", "grace", "grant", "hope", "jack", "mark", "pat", "rich", "rob", "sue"))
"""Names that begin an English sentence as another word does."""


class Token(msgspec.Struct, frozen=True):
    """A word, without a possessive s, and where it stands in characters."""

    word: str
    start: int
    end: int
    opens: bool
    """Whether a sentence begins with it."""


def is_ordinary(word: str) -> bool:
    """Whether a word is one of those that questions are made of, or a name of time."""
    return word.lower() in _ORDINARY


def opens_as_a_word(token: Token) -> bool:
    """Whether its capital is that of a sentence's beginning, and it is an ordinary word there."""
    return token.opens and (is_ordinary(token.word) or token.word.lower() in _OPENING)


def tokens(text: str) -> list[Token]:
    """The words of a text in order."""
    found = []
    for match in _WORD.finditer(text):
        before = text[: match.start()].rstrip(" \t\"'“‘(*")
        word = _POSSESSIVE.sub("", match[0])
        found.append(Token(word, match.start(), match.start() + len(word), not before or before[-1] in ".!?:\n"))
    return found


def phrases(
    words: list[Token], longest: int, text: str, begins: Begins | None = None
) -> Iterator[tuple[int, int, str]]:
    """Runs of words with nothing but blanks between, the longest first at each place: (first, after last, words).

    `begins` says which words one may begin with, folded.
    """
    apart = [i for i, (a, b) in enumerate(pairwise(words), 1) if text[a.end : b.start].strip()]
    ends = iter([*apart, len(words)])
    end = next(ends)
    for i, word in enumerate(words):
        end = next(ends) if i == end else end
        if begins is None or fold(word.word) in begins:
            for j in range(min(end, i + longest), i, -1):
                yield i, j, text[word.start : words[j - 1].end]
