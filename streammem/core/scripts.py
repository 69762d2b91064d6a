"""Scripts as they are searched: which set no blanks between words, which marks over letters count for nothing."""

from __future__ import annotations

import re
import unicodedata

_DAKUTEN = 8
"""The combining class of the two marks that make another kana of a kana."""

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Runs of Thai, Lao, Myanmar, Khmer, kana and Han, which set no blanks, and of Hangul, whose words end in particles."""


def plain(text: str) -> str:
    """A text without case, widths, and the marks over its letters that people leave out when they type.

    That is accents, vowel points (Arabic, Hebrew), tone marks (Thai), and viramas; vowel signs of Indic scripts stay.
    """
    if text.isascii():
        return text.casefold()
    letters = unicodedata.normalize("NFKD", text).casefold()
    kept = "".join(c for c in letters if unicodedata.combining(c) in (0, _DAKUTEN))
    return unicodedata.normalize("NFC", kept)
