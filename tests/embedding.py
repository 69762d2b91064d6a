"""A tiny deterministic Embedder for tests of flows: no model, no download, the same vectors everywhere."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

import numpy as np

from streammem.ports import Vectors


class HashingEmbedder:
    """Bag of words and of character trigrams, each hashed to a signed place; unit norm."""

    name = "hashing"
    dimensions = 64

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._vector(text) for text in texts]) if texts else np.zeros((0, 64), np.float32)

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(self.dimensions, np.float32)
        for feature, weight in _features(text):
            digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=4).digest())
            vector[digest % self.dimensions] += weight if digest & 2**31 else -weight
        length = np.linalg.norm(vector)
        return (vector / length).astype(np.float32) if length else np.eye(1, self.dimensions, dtype=np.float32)[0]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(re.findall(r"\w+|[^\w\s]", text)) for text in texts]


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in re.findall(r"\w+", text.lower()):
        yield f"w:{word}", 1.0
        padded = f" {word} "
        for start in range(len(padded) - 2):
            yield f"t:{padded[start : start + 3]}", 0.3
