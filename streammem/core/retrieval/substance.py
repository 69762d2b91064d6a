"""How much a message says of its own: "on it" and what everybody says every day are chatter around what matters.

What pulls a message up for where it stands (its thread, its artifact, its neighbours) counts in this measure. Its own
match with the question does not need it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from streammem.core.numbers import Retrieval

_MARK = re.compile(r"<[@#!][^>]*>|@[\w.-]+")
_SPLIT = re.compile(r"[\W\d_]+")


def unmarked(text: str) -> str:
    """A text without marks like `<@user>` and mentions."""
    return _MARK.sub(" ", text)


def gist(text: str) -> int:
    """A name for a text without names, numbers and punctuation: the same for "thanks @mira!" and "Thanks"."""
    left = " ".join(filter(None, _SPLIT.split(unmarked(text).lower())))
    return int.from_bytes(blake2b(left.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")


def commonplaces(texts: Iterable[str], least: int) -> dict[int, int]:
    """How often each gist is said that is said `least` times or more."""
    return {name: count for name, count in Counter(map(gist, texts)).items() if count >= least}


def substance(text: str, common: Mapping[int, int], numbers: Retrieval) -> float:
    """Between 0 and 1: less for a short text, less for one that is said again and again."""
    often = common.get(gist(text), 1)
    return min(1.0, len(text) / numbers.substantial) / (1.0 + numbers.commonplace * math.log(often))
