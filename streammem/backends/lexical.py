"""Text to BM25 weights, the same for every vector index: English stems and stop words, character pairs elsewhere."""

from __future__ import annotations

import re

from qdrant_edge import Bm25, Bm25Config

from streammem.core.scripts import UNSPACED, plain

AVERAGE_LENGTH = 40.0
"""Words of a mean chat message; BM25's length norm is relative to it. It is part of the stored weights."""


def bm25(average_length: float = AVERAGE_LENGTH) -> Bm25:
    """The model of both documents and questions. Give it `words(text)`."""
    return Bm25(Bm25Config(avg_len=average_length))


def words(text: str) -> str:
    """The text without case and accents, with runs of an unspaced script as overlapping pairs of characters."""
    return text if text.isascii() else UNSPACED.sub(_pairs, plain(text))


def _pairs(run: re.Match[str]) -> str:
    letters = "".join(filter(str.isalnum, run[0]))  # the engine would break words at vowel signs
    return f" {' '.join(letters[i : i + 2] for i in range(max(1, len(letters) - 1)))} "
