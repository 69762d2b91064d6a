"""One number for a whole memory, the same for the same events in any order (design §1, promise 1)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_MODULUS = 2**128


def row(*parts: str | int | bytes) -> int:
    """The hash of one row as a number."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(raw).to_bytes(8, "big") + raw)
    return int.from_bytes(state.digest(), "big")


def total(rows: Iterable[int]) -> str:
    """Combine row hashes without regard to order: a sum, so that a row missing or doubled shows."""
    return f"{sum(rows) % _MODULUS:032x}"
