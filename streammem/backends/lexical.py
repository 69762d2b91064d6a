"""Text to BM25 weights, the same for every vector index: English stems and stop words, character pairs elsewhere."""

from __future__ import annotations

import re
import unicodedata

from qdrant_edge import Bm25, Bm25Config

AVERAGE_LENGTH = 40.0
"""Words of a mean chat message; BM25's length norm is relative to it. It is part of the stored weights."""

# Scripts written without spaces (Thai, Lao, Myanmar, Khmer, kana, Han), and Hangul, whose words end in particles.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def bm25(average_length: float = AVERAGE_LENGTH) -> Bm25:
    """The model of both documents and questions. Give it `words(text)`."""
    return Bm25(Bm25Config(avg_len=average_length))


def words(text: str) -> str:
    """The text in one Unicode form, with runs of an unspaced script as overlapping pairs of characters."""
    return text if text.isascii() else _UNSPACED.sub(_pairs, unicodedata.normalize("NFKC", text))


def _pairs(run: re.Match[str]) -> str:
    letters = "".join(filter(str.isalnum, run[0]))  # the engine would break words at tone marks
    return f" {' '.join(letters[i : i + 2] for i in range(max(1, len(letters) - 1)))} "
