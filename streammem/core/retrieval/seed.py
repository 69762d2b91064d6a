"""S1, first half: messages that match the question by words or by meaning, fused to one ranking (§3.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core.numbers import Retrieval
from streammem.records import Found


class Seed(msgspec.Struct, gc=False, frozen=True):
    """A message that a search found. Ranks count from 1, 0 is unranked; `lexical` and `dense` are raw scores."""

    uid: str
    score: float
    lexical: float = 0.0
    dense: float = 0.0
    lexical_rank: int = 0
    dense_rank: int = 0

    @property
    def found(self) -> Found:
        """Which search found it, in words."""
        ways = [f"lexical #{self.lexical_rank}"] if self.lexical_rank else []
        ways += [f"dense #{self.dense_rank}"] if self.dense_rank else []
        return Found(stage="S1", signal=" + ".join(ways), score=round(self.score, 4))


def fuse(lexical: Many[tuple[str, float]], cosines: Mapping[str, float], numbers: Retrieval) -> list[Seed]:
    """One ranking of lexical hits (uid and score, best first) and of all messages whose cosine is known, best first.

    By scores: lexical / best lexical + λ_d * cosine (a convex combination but for scale: Bruch, Gai and Ingber
    2023); by ranks: 1/(η + lexical rank) + λ_d/(η + dense rank), as EGCForest does. Ties by uid.
    """
    words = dict(lexical)
    best = max(words.values(), default=0.0) or 1.0
    lexical_rank = {uid: rank for rank, uid in enumerate(words, 1)}
    by_meaning = sorted(cosines, key=lambda uid: (-cosines[uid], uid))[: numbers.seeds]
    dense_rank = {uid: rank for rank, uid in enumerate(by_meaning, 1)}
    seeds = []
    for uid in dict.fromkeys((*words, *cosines)):
        cosine = cosines.get(uid, 0.0)
        if numbers.fusion == "scores":
            score = words.get(uid, 0.0) / best + numbers.dense_weight * max(cosine, 0.0)
        else:
            score = _reciprocal(lexical_rank.get(uid), numbers.rrf)
            score += numbers.dense_weight * _reciprocal(dense_rank.get(uid), numbers.rrf)
        ranks = (lexical_rank.get(uid, 0), dense_rank.get(uid, 0))
        seeds.append(Seed(uid, score, words.get(uid, 0.0), cosine, *ranks))
    return sorted(seeds, key=lambda seed: (-seed.score, seed.uid))


def _reciprocal(rank: int | None, constant: int) -> float:
    return 1.0 / (constant + rank) if rank else 0.0
