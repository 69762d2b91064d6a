"""Words that are meant when others are written: names within a typo or two."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

SHORTEST, LONG = 4, 8
"""Letters of a word in which one typo is forgiven, and of one in which two are."""


def forgiven(word: str) -> int:
    """How many typos a word of its length may have."""
    return 0 if len(word) < SHORTEST else 1 if len(word) < LONG else 2


def nearest(word: str, names: Collection[str]) -> tuple[str, ...]:
    """The names that are meant by a word that is none of them: all of the least distance, sorted; () when none is near.

    The first letter is hardly ever mistyped: it must agree.
    """
    if word in names or not forgiven(word):
        return ()
    near = {name: typos for name in names if (typos := _typos(word, name)) is not None}
    least = min(near.values(), default=0)
    return tuple(sorted(name for name, typos in near.items() if typos == least))


def _typos(word: str, name: str) -> int | None:
    """The typos between two, None if they are more than are forgiven, in the whole and in each of their words."""
    limit = min(forgiven(word), forgiven(name))
    if abs(len(name) - len(word)) > limit or name[:1] != word[:1]:
        return None
    if (_letters(word) ^ _letters(name)).bit_count() > 2 * limit or (found := distance(word, name)) > limit:
        return None
    parts = list(zip(word.split(), name.split(), strict=False))
    alike = all(distance(a, b) <= min(forgiven(a), forgiven(b)) for a, b in parts if a != b)
    return found if alike and word.count(" ") == name.count(" ") else None


@lru_cache(1 << 15)
def _letters(word: str) -> int:
    """The letters of a word as bits: a typo changes two of them at most."""
    bits = 0
    for letter in word:
        bits |= 1 << (ord(letter) & 63)
    return bits


def distance(one: str, other: str) -> int:
    """Letters to insert, leave out, change, or swap with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
