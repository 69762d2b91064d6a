"""What people call a thing beside its identifier: the phrase of "DOC-42 - the rollout plan" (EGCForest §3.1.1).

General English and punctuation, no word of any company. What is no plain run of content words is no phrase: a
sentence after an identifier ("PR #12 - please have a look") says something of it and does not name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence as Many
from functools import lru_cache

import msgspec

from streammem.core.identifiers import Rules

_REMEMBERED = 1 << 16
"""Words whose stems are kept: people use few."""

LONGEST = 6
"""Words of a phrase."""


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARTICLES = _words_of("the a an this that our my your their its his her")
_PREPOSITIONS = _words_of("for of in on at by with from to about over under into as per via")
STOP_WORDS = (
    _ARTICLES
    | _PREPOSITIONS
    | _words_of(
        "these those it is are was were be been am i we you he she they me us him them and or but if so than then"
        " there here not no yes do does did done has have had will would can could should may might must just now up"
        " out off who what when where why how which whose all any some more most very also again still only too s t re"
        " ve ll d m one ones two three because after before until while"
    )
)
"""Words that stand in no name."""

_STATE = _words_of(
    "current latest last next previous old new newer newest active other same whole entire first second final recent"
    " earlier later"
)
"""Words that tell one state of a thing from another: they name nothing."""

WORD = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W_]+)?")
_BREAK = re.compile(r"[,;:/()\[\]{}（）、。\n.?!|@#*`\"=>]|\s[-\N{EN DASH}\N{EM DASH}]+(?:\s|$)")
_IN_BRACKETS = re.compile(r"\s*[(（\[]")
_APPOSED = re.compile(r"\s*,\s+(?=(?:the|a|an|our|my|your)\s)", re.IGNORECASE)
_IS = re.compile(r"\s+(?:is|was)\s+(?:now\s+)?(?=(?:the|our|my)\s)", re.IGNORECASE)
_DASH = re.compile(r"\s+[-\N{EN DASH}\N{EM DASH}]+\s+")
_OPENED = re.compile(r"\s*[(（\[]\s*$")


class Phrase(msgspec.Struct, gc=False, frozen=True):
    """What a text calls an identifier: its content words in lower case, and where they stand in the text."""

    identifier: str
    words: tuple[str, ...]
    start: int
    stop: int


def phrases(text: str, spans: Many[tuple[int, int, str]], rules: Rules) -> Iterator[Phrase]:
    """What a text calls the identifiers that stand at `spans` (Rules.spans)."""
    for place, (start, stop, identifier) in enumerate(spans):
        before = spans[place - 1][1] if place else 0
        behind = spans[place + 1][0] if place + 1 < len(spans) else len(text)
        for words in (_after(text, stop, behind), _before(text, before, start)):
            named = tuple(w[0].lower() for w in words if _names(w[0], rules))
            if len(named) > 1:
                yield Phrase(identifier, named, words[0].start(), words[-1].end())


def _names(word: str, rules: Rules) -> bool:
    """Whether a word of a phrase is part of the name: what state the thing is in is not."""
    folded = word.lower()
    return len(word) > 1 and folded not in STOP_WORDS and folded not in _STATE and not rules.markers(folded)


def _after(text: str, start: int, stop: int) -> list[re.Match[str]]:
    """The phrase behind an identifier: `ID (phrase)`, `ID, the phrase`, `ID is the phrase`, `ID - phrase`."""
    for opening in (_IN_BRACKETS, _APPOSED, _IS, _DASH):
        if (opened := opening.match(text, start, stop)) is not None:
            return _plain(_words(text, opened.end(), _end(text, opened.end(), stop)))
    return []


def _before(text: str, start: int, stop: int) -> list[re.Match[str]]:
    """The phrase in front of one: `the phrase (ID)`, `phrase (ID)`, `the phrase ID`."""
    opened = _OPENED.search(text, start, stop)
    edge = opened.start() if opened else stop
    for broken in _BREAK.finditer(text, start, edge):
        start = broken.end()
    words = _words(text, start, edge)
    if not words or (opened is None and text[words[-1].end() : stop].strip()):
        return []
    for place in range(len(words) - 1, max(-1, len(words) - LONGEST - 4), -1):
        if words[place][0].lower() in _ARTICLES:
            found = _plain(words[place + 1 :])
            # "a first cut of DOC-42" names no part of it: without brackets the phrase reaches up to the identifier
            return found if opened or (found and found[-1] is words[-1]) else []
    return _plain(_tail(words)) if opened else []


def _tail(words: list[re.Match[str]]) -> list[re.Match[str]]:
    start = len(words)
    while start and words[start - 1][0].lower() not in STOP_WORDS:
        start -= 1
    return words[start:]


def _words(text: str, start: int, stop: int) -> list[re.Match[str]]:
    return list(WORD.finditer(text, start, stop))


def _end(text: str, start: int, stop: int) -> int:
    broken = _BREAK.search(text, start, stop)
    return broken.start() if broken else stop


def _plain(words: list[re.Match[str]]) -> list[re.Match[str]]:
    """The words up to the first preposition, if they are a plain run: no pronoun, no verb of being, no number."""
    if words and words[0][0].lower() in _ARTICLES:
        words = words[1:]
    for place, word in enumerate(words):
        if place and word[0].lower() in _PREPOSITIONS and not _glued(word):
            words = words[:place]
            break
    while words and words[-1][0].lower() in ("one", "ones"):  # "the rollout one"
        words = words[:-1]
    plain = all((w[0].lower() not in STOP_WORDS and not w[0].isdigit()) or _glued(w) for w in words)
    return words if plain and len(words) <= LONGEST else []


def _glued(word: re.Match[str]) -> bool:
    """Whether a hyphen joins it to the word before: "write-up"."""
    return word.string[max(0, word.start() - 1) : word.start()] == "-"


# ------------------------------------------------------------------------------------------------- words that match


@lru_cache(_REMEMBERED)
def stem(word: str) -> str:
    """A word without the endings of number and time: coarse, the same for all forms that matter here."""
    word = word.lower()
    if word.endswith(("'s", "\N{RIGHT SINGLE QUOTATION MARK}s")):
        word = word[:-2]
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    for ending, least in (("ing", 6), ("ed", 5)):
        if len(word) >= least and word.endswith(ending):
            word = word[: -len(ending)]
            doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls"
            return word[:-1] if doubled else word
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def short_forms(word: str, following: str | None) -> Iterator[str]:
    """What people write for a word, or for it and the one that follows: a11y, loadtest, fstore."""
    if len(word) > 5:
        yield f"{word[0]}{len(word) - 2}{word[-1]}"
    if following:
        yield stem(word + following)
        yield stem(word[0] + following)


_RUNS = re.compile(rf"(?P<name>@[\w.]+)|(?P<word>{WORD.pattern})|(?P<glue>(?<=\w)-(?=\w))|(?P<other>[^\w\s])")


def runs(text: str) -> list[list[str]]:
    """The runs of content words of a text, in lower case: stop words, names and punctuation part them, hyphens do not.

    Runs of a single word are left out.
    """
    found: list[list[str]] = [[]]
    for match in _RUNS.finditer(text):
        word = match["word"]
        if word is not None and (folded := word.lower()) not in STOP_WORDS:
            found[-1].append(folded)
        elif match["glue"] is None and found[-1]:
            found.append([])
    return [run for run in found if len(run) > 1]
