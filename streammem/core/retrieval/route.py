"""S1, second half: from anchors and summaries to the trees worth a closer look, each view by itself (§3.2.1)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many

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


def anchors(
    seeds: Many[Seed], hosts: Mapping[str, Iterable[Tree]], named: Iterable[Tree], places: int, quota: int
) -> list[Seed]:
    """The anchors in order, so that each tree the question names has up to `quota` of the `places` (best first).

    Without names the order is the seeds'. A quota lifts what the fused ranking already found; it adds nothing.
    """
    kept = list(seeds[:places])
    for tree in named:
        have = sum(tree in hosts.get(seed.uid, ()) for seed in kept)
        rest = [s for s in seeds[places:] if tree in hosts.get(s.uid, ()) and s not in kept]
        for seed in rest[: max(0, quota - have)]:
            loose = next((s for s in reversed(kept) if not _held(s, hosts, named)), None)
            if loose is None:
                break
            kept[kept.index(loose)] = seed
    chosen = {s.uid for s in kept}
    return [s for s in seeds if s.uid in chosen] + [s for s in seeds if s.uid not in chosen]


def _held(seed: Seed, hosts: Mapping[str, Iterable[Tree]], named: Iterable[Tree]) -> bool:
    return any(tree in hosts.get(seed.uid, ()) for tree in named)


# ------------------------------------------------------------------------------------------- shares of the votes


class Shares(msgspec.Struct, frozen=True):
    """How the voters' scores fall on channels, threads and identifiers: each share between 0 and 1."""

    channels: dict[str, float]
    threads: dict[str, float]
    identifiers: dict[str, float]


class Voter(msgspec.Struct, gc=False, frozen=True):
    """A message by what it votes for."""

    channel: str
    thread: str
    identifiers: frozenset[str]


def shares(voters: Iterable[tuple[Voter, float]], sizes: Mapping[str, int], named: Iterable[str]) -> Shares:
    """Leaf2tree as shares instead of ranks: the best anchors vote, with their score, for where they stand.

    A vote for identifiers is split among those of the message, and one with many messages (`sizes`) says less.
    An identifier that the question names has the whole vote. Shares keep what ranks lose: how far the first is ahead.
    """
    voters = list(voters)
    total = sum(score for _, score in voters) or 1.0
    channels: defaultdict[str, float] = defaultdict(float)
    threads: defaultdict[str, float] = defaultdict(float)
    identifiers: defaultdict[str, float] = defaultdict(float)
    for voter, score in voters:
        channels[voter.channel] += score / total
        threads[voter.thread] += score / total
        for identifier in voter.identifiers:
            identifiers[identifier] += score / total / math.sqrt(len(voter.identifiers))
    weighed = {i: v / math.log2(2 + max(1.0, sizes.get(i, 1) / 8)) for i, v in identifiers.items()}
    return Shares(dict(channels), dict(threads), weighed | dict.fromkeys(named, 1.0))


def boost(voter: Voter, won: Shares, numbers: Retrieval) -> float:
    """What a message gets for standing where the votes fell."""
    artifact = max((won.identifiers.get(i, 0.0) for i in voter.identifiers), default=0.0)
    return (
        numbers.vote_channel * won.channels.get(voter.channel, 0.0)
        + numbers.vote_thread * won.threads.get(voter.thread, 0.0)
        + numbers.vote_artifact * artifact
    )
