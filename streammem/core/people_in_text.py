"""The people whom a text names: by name or first name, with a typo, by title. Names resolve to all who bear them.

Deciding among several is core.ambiguity's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from streammem.core.directory import Directory, fold
from streammem.core.scripts import plain
from streammem.core.spelling import nearest
from streammem.core.words_in_text import Named, Token, is_ordinary, opens_as_a_word, phrases, tokens

_LONGEST_NAME, _LONGEST_TITLE = 4, 6
_MOST_BEARERS = 4
"""More people of one title than this are a group: the title names none of them."""


def people(text: str, directory: Directory, apart: tuple[int, int] = (0, 0)) -> list[Named]:
    """The people that a text names, in its order; what stands in `apart` (a date) is nobody's name.

    A title beside a name says which of its bearers is meant.
    """
    titled = _titled(text, directory)
    named = _by_name(text, directory, [apart, *(t.at for t in titled)])
    return sorted([*(_told_apart(n, titled, text, directory) for n in named), *titled], key=lambda n: n.at)


def _by_name(text: str, directory: Directory, taken: list[tuple[int, int]]) -> list[Named]:
    words, found = tokens(text), list[Named]()
    for i, j, phrase in phrases(words, _LONGEST_NAME, text):
        at = words[i].start, words[j - 1].end
        if any(at[0] < end and start < at[1] for start, end in taken):
            continue
        if ids := _bearers(phrase, words[i:j], directory):
            found.append(Named("user", phrase, ids, at))
        elif ids := _meant(words, i, j, text, directory):
            found.append(Named("user", phrase, ids, at, "typo"))
        if ids:
            taken.append(at)
    return found + _unspaced(text, directory, taken)


def _bearers(phrase: str, tokens: list[Token], directory: Directory) -> tuple[str, ...]:
    """Who is called exactly that: a whole name, an alias, an id, or a first name alone."""
    alone = len(tokens) == 1
    if alone and not _is_a_name(tokens[0]):
        return ()
    folded = fold(phrase)
    tables = [directory.user_names, directory.first_names] if alone else [directory.user_names]
    exact = next((table[folded] for table in tables if folded in table), frozenset[str]())
    return tuple(sorted(exact or directory.plain_names.get(plain(folded), frozenset[str]())))


def _is_a_name(token: Token) -> bool:
    """Whether a word is written as a name is, and no ordinary word that a sentence begins with."""
    word = token.word
    if opens_as_a_word(token):
        return False
    return word[0] == "@" or not word[0].islower() or any(c.isdigit() for c in word)


def _meant(words: list[Token], first: int, end: int, text: str, directory: Directory) -> tuple[str, ...]:
    """Who is meant by a name with a typo: every word looks like a name and is no word of the chat."""
    tokens = words[first:end]
    if not all(_may_be_misspelt(token, directory) for token in tokens):
        return ()
    if len(tokens) == 1 and tokens[0].word[0] != "@" and (tokens[0].opens or _in_a_longer_name(words, first, text)):
        return ()  # any sentence begins with a capital
    folded = fold(" ".join(token.word for token in tokens))
    names = nearest(folded, directory.spelled_names)
    return tuple(sorted({user for name in names for user in directory.spelled_names[name]}))


def _in_a_longer_name(words: list[Token], place: int, text: str) -> bool:
    """Whether a capitalised word stands right before or after it, as in the name of a place or a firm."""
    pairs = zip(words[max(0, place - 1) : place + 1], words[max(0, place - 1) + 1 : place + 2], strict=False)
    beside = [(a, b) for a, b in pairs if not text[a.end : b.start].strip()]
    others = (a if b is words[place] else b for a, b in beside)
    return any(other.word[0].isupper() and not is_ordinary(other.word) for other in others)


def _may_be_misspelt(token: Token, directory: Directory) -> bool:
    word = token.word.lstrip("@")
    folded = fold(word)
    is_word = word.isalpha() and (token.word[0] == "@" or (word[0].isupper() and not word.isupper()))
    return is_word and not is_ordinary(word) and folded not in directory.vocabulary


def _unspaced(text: str, directory: Directory, taken: list[tuple[int, int]]) -> list[Named]:
    """Names inside runs of a script that sets no blanks between words, the longest first."""
    found = list[Named]()
    for name, ids in directory.unspaced_names if not text.isascii() else ():
        start = text.find(name)
        at = start, start + len(name)
        if start >= 0 and not any(at[0] < end and begin < at[1] for begin, end in taken):
            found.append(Named("user", text[at[0] : at[1]], tuple(sorted(ids)), at))
            taken.append(at)
    return found


# --------------------------------------------------------------------------------------------------- titles


def _titled(text: str, directory: Directory) -> list[Named]:
    """The people that a text names by title or role: of several words, or of one that is one person's alone."""
    words, found, after = tokens(text), list[Named](), 0
    for i, j, phrase in phrases(words, _LONGEST_TITLE, text, directory.title_beginnings):
        at = words[i].start, words[j - 1].end
        bearers = directory.titles.get(fold(phrase), ())
        if at[0] < after or not 0 < len(bearers) <= _MOST_BEARERS:
            continue
        if j - i > 1 or (len(bearers) == 1 and _with_article(text[: at[0]])):
            found.append(Named("user", phrase, tuple(sorted(bearers)), at, "title"))
            after = at[1]
    return found


def _with_article(before: str) -> bool:
    return re.search(r"\b(?:the|our|der|die|le|la|el)\s+$", before, re.IGNORECASE) is not None


_BESIDE = re.compile(r"[\s,(\[–—-]*(?:(?:the|our|who is|who was|a)\s+)?", re.IGNORECASE)
_PART = re.compile(r"\s*[(,]?\s*(?:from|of|in|at)\s+(?:the\s+)?([\w-]+)", re.IGNORECASE)


def _told_apart(named: Named, titled: Iterable[Named], text: str, directory: Directory) -> Named:
    """Of several bearers of a name those whose title stands beside it, or whose department does (Wen from payments)."""
    if len(named.ids) < 2:
        return named
    kept = {
        user
        for title in titled
        if _BESIDE.fullmatch(
            text[named.at[1] : title.at[0]] if title.at[0] >= named.at[1] else text[title.at[1] : named.at[0]]
        )
        for user in title.ids
    }
    if not kept and (part := _PART.match(text, named.at[1])):
        kept = {user for user in named.ids if fold(part[1]) in fold(directory.user_title(user)).split()}
    left = tuple(user for user in named.ids if user in kept)
    return msgspec.structs.replace(named, ids=left) if left else named
