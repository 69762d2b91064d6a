"""S1, second half: from anchors and summaries to the trees worth a closer look, each view by itself (§3.2.1)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from streammem.core.numbers import Retrieval
from streammem.core.retrieval.seed import Seed

Tree = tuple[str, str]
"""(view, tree)."""

SIGNALS = ("leaf2tree", "root", "collapsed")


class Route(msgspec.Struct, frozen=True):
    """A selected tree: its score and its rank by each signal, within its view."""

    view: str
    tree: str
    score: float
    ranks: dict[str, int]


def leaf2tree(seeds: Iterable[Seed], hosts: Mapping[str, Iterable[Tree]]) -> dict[Tree, float]:
    """Every anchor votes, with its score, for each tree that hosts it (its placements are in `hosts`)."""
    votes: defaultdict[Tree, float] = defaultdict(float)
    for seed in seeds:
        for tree in hosts.get(seed.uid, ()):
            votes[tree] += seed.score
    return dict(votes)


def best(hits: Iterable[tuple[Tree, float]]) -> dict[Tree, float]:
    """The score of each tree's best hit: over roots for the Root signal, over inner nodes for Collapsed."""
    scores: dict[Tree, float] = {}
    for tree, score in hits:
        scores[tree] = max(score, scores.get(tree, score))
    return scores


def routes(signals: Mapping[str, Mapping[Tree, float]], numbers: Retrieval) -> dict[str, list[Route]]:
    """The selected trees of each view, best first: ranked by each signal within the view, ranks fused (η_tree)."""
    weights = dict(zip(SIGNALS, (numbers.weight_leaf2tree, numbers.weight_root, numbers.weight_collapsed), strict=True))
    views: defaultdict[str, dict[Tree, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for signal in SIGNALS:
        for tree, rank in _ranked(signals.get(signal, {})):
            views[tree[0]][tree][signal] = rank
    return {view: _fused(trees, weights, numbers) for view, trees in sorted(views.items())}


def _ranked(scores: Mapping[Tree, float]) -> list[tuple[Tree, int]]:
    """Each tree with its rank within its own view."""
    seen: defaultdict[str, int] = defaultdict(int)
    ranked = []
    for tree in sorted(scores, key=lambda t: (-round(scores[t], 6), t)):
        seen[tree[0]] += 1
        ranked.append((tree, seen[tree[0]]))
    return ranked


def _fused(trees: Mapping[Tree, dict[str, int]], weights: Mapping[str, float], numbers: Retrieval) -> list[Route]:
    found = [
        Route(view, tree, sum(weights[s] / (numbers.rrf_tree + rank) for s, rank in ranks.items()), dict(ranks))
        for (view, tree), ranks in trees.items()
    ]
    return sorted(found, key=lambda r: (-r.score, r.tree))[: numbers.trees_per_view]


# ------------------------------------------------------------------------------------------- shares of the votes


class Shares(msgspec.Struct, frozen=True):
    """How the voters' scores fall on channels and threads: each share between 0 and 1."""

    channels: dict[str, float]
    threads: dict[str, float]


def shares(voters: Iterable[tuple[str, str, float]]) -> Shares:
    """The shares of votes, each a channel, a thread and a score. Shares keep what ranks lose: how far one is ahead."""
    voters = list(voters)
    total = sum(score for _, _, score in voters) or 1.0
    channels: defaultdict[str, float] = defaultdict(float)
    threads: defaultdict[str, float] = defaultdict(float)
    for channel, thread, score in voters:
        channels[channel] += score / total
        threads[thread] += score / total
    return Shares(dict(channels), dict(threads))


def about(anchors: Iterable[tuple[Iterable[str], float]], named: Iterable[str], numbers: Retrieval) -> dict[str, float]:
    """How likely each artifact is what the question is about, at most 1: best first, no more than are completed.

    `anchors` are the artifacts of each and its score, best first. An artifact counts by its best anchor and by how far
    that is behind the first one's; what the question names is ahead of them all.
    """
    best: dict[str, float] = {}
    top = 0.0
    for artifacts, score in anchors:
        top = max(top, score)
        for artifact in artifacts:
            best.setdefault(artifact, score)
    ahead = max(best.values(), default=1.0) + numbers.about_named
    best |= dict.fromkeys(named, ahead)
    first = max(best.values(), default=0.0)
    scale = first / max(top, first, 1e-9)
    ranked = sorted(best, key=lambda a: (-round(best[a], 6), a))[: numbers.artifacts]
    found = {a: scale * math.exp((best[a] - first) / numbers.about_width) for a in ranked}
    return {a: value for a, value in found.items() if value >= _TOO_LITTLE}


_TOO_LITTLE = 0.05
"""An artifact that is less likely than that is not completed: it would change no order."""
