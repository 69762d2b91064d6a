"""Which identifiers are one artifact: a document and its pull request (EGCForest §3.1.1, the merge at 0.88)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from itertools import combinations, pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from streammem.core import routing
from streammem.core.naming import Name, family
from streammem.core.said import Said
from streammem.records import Tie

Vectors = npt.NDArray[np.float32]
Pair = tuple[str, str]

_MOST_APART = 100
"""Borderline pairs that are kept."""
_BLOCK = 1024

_SAYS_ONE = re.compile(
    r"\s*,?\s*(?:(?:which|that)\s+)?(?:(?:is|was)\s+)?"
    r"(?:implement(?:s|ed|ing)?(?: (?:by|in))?|track(?:s|ed|ing)?(?: (?:by|in|as))?|clos(?:es|ed|ing)(?: by)?"
    r"|fix(?:es|ed|ing)(?: by)?|resolv(?:es|ed|ing)(?: by)?|cover(?:s|ed|ing)(?: by)?"
    r"|document(?:s|ed|ing)(?: (?:by|in))?"
    r"|(?:the )?(?:PR|MR|ticket|issue|doc|document) (?:for|of)|for|aka|alias|=|==)\s*",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"\s*[(（\[]\s*")


def centroids_of(said: Said, vectors: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """The direction of each identifier's messages, of those that have enough. Summed in one order, so always alike."""
    found = {}
    for identifier in sorted(said.carried):
        some = [vectors[v.uid] for v in said.carried[identifier] if v.uid in vectors]
        if len(some) >= said.numbers.centroid:
            mean = np.sum(np.stack(some).astype(np.float64), axis=0)
            length = float(np.linalg.norm(mean))
            if length:
                found[identifier] = (mean / length).astype(np.float32)
    return found


def _cosine(one: str, other: str, centroids: Mapping[str, Vectors]) -> float:
    if one not in centroids or other not in centroids:
        return 0.0
    return round(float(np.dot(centroids[one], centroids[other])), 4)


def tied(said: Said, centroids: Mapping[str, Vectors], verdicts: Mapping[Pair, bool]) -> tuple[list[Tie], list[Tie]]:
    """The pairs that are one, and those that are borderline."""
    ties: dict[Pair, Tie] = {}
    apart: dict[Pair, Tie] = {}
    together = _mentioned_together(said)
    for pair, uids in _said_one(said):
        ties[pair] = Tie(*pair, "said", _cosine(*pair, centroids), said.sources(*uids))
    for pair, uids in _bearing_one_name(said):
        tie = Tie(*pair, "named", _cosine(*pair, centroids), said.sources(*uids, *together.get(pair, ())))
        one = pair in together or tie.cosine > said.numbers.merge
        (ties if one else apart).setdefault(pair, tie)
    for pair, uids in together.items():
        tie = Tie(*pair, "alike", _cosine(*pair, centroids), said.sources(*uids))
        if tie.cosine > said.numbers.borderline:
            (ties if tie.cosine > said.numbers.merge else apart).setdefault(pair, tie)
    for pair, cosine in _close(centroids, said.numbers.merge):
        first = (said.carried[identifier][0].uid for identifier in pair)
        apart.setdefault(pair, Tie(*pair, "close", cosine, said.sources(*first)))
    open_ = {pair: tie for pair, tie in apart.items() if pair not in ties}
    for pair, tie in open_.items():
        if verdicts.get(pair):
            ties[pair] = msgspec.structs.replace(tie, why="judged")
    unjudged = [tie for pair, tie in open_.items() if pair not in verdicts]
    return list(ties.values()), sorted(unjudged, key=lambda t: (-t.cosine, order(t)))[:_MOST_APART]


def order(tie: Tie) -> Pair:
    """By which ties are sorted."""
    return tie.one, tie.other


def _said_one(said: Said) -> Iterator[tuple[Pair, list[str]]]:
    """Pairs that a message says are one: "PR #12 implements DOC-42", "PR #12 (DOC-42)". Not those of containers."""
    found: defaultdict[Pair, list[str]] = defaultdict(list)
    for version in said.carriers:
        for (_, end, one), (start, stop, other) in _adjacent(said.spans[version.uid]):
            if one != other and _may_be_one(one) and _may_be_one(other) and _says(version.text, end, start, stop):
                found[_pair(one, other)].append(version.uid)
    partners = Counter((i, family(o)) for pair in found for i, o in (pair, pair[::-1]))
    hubs = {identifier for (identifier, _), count in partners.items() if count >= said.numbers.hub}
    for pair, uids in sorted(found.items()):
        if hubs.isdisjoint(pair):
            yield pair, uids[:1]


def _adjacent(spans: Many[tuple[int, int, str]]) -> Iterator[tuple[tuple[int, int, str], tuple[int, int, str]]]:
    return pairwise(spans)


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)


def _may_be_one(identifier: str) -> bool:
    """A release contains others, and a file of a name is in many places."""
    return not re.match(r"v\d", identifier) and ("://" in identifier or "." not in identifier)


def _says(text: str, end: int, start: int, stop: int) -> bool:
    between = text[end:start]
    if _IN_BRACKETS.fullmatch(between):
        return text[stop : stop + 1] in (")", "）", "]")
    return _SAYS_ONE.fullmatch(between) is not None


def _bearing_one_name(said: Said) -> Iterator[tuple[Pair, list[str]]]:
    """Pairs of two families with one name, apart from what the families are called; none where a third has it too."""
    bearers: defaultdict[tuple[str, ...], dict[str, Name]] = defaultdict(dict)
    for name in said.book.names:
        core = said.book.core(name)
        if len(core) > 1:
            bearers[core].setdefault(name.identifier, name)
    found: dict[Pair, list[str]] = {}
    for some in bearers.values():
        families = Counter(map(family, some))
        for one, other in combinations(sorted(some), 2):
            if family(one) != family(other) and families[family(one)] == families[family(other)] == 1:
                places = (*some[one].said_in, *some[other].said_in)
                found.setdefault(_pair(one, other), [uid for _, uid in places])
    for pair, uids in sorted(found.items()):
        if all(map(_may_be_one, pair)):
            yield pair, uids


def _mentioned_together(said: Said) -> dict[Pair, list[str]]:
    """Pairs that stand in one message, or one in an answer to the other, and the first message that shows it."""
    found: dict[Pair, list[str]] = {}
    for version in said.carriers:
        for one, other in combinations(version.identifiers, 2):
            found.setdefault(_pair(one, other), [version.uid])
        for target in routing.targets_of(version):
            asked = said.by_uid.get(target)
            for one in asked.identifiers if asked is not None else ():
                for other in version.identifiers:
                    if one != other:
                        found.setdefault(_pair(one, other), [version.uid, target])
    return found


def _close(centroids: Mapping[str, Vectors], least: float) -> Iterator[tuple[Pair, float]]:
    """Pairs whose centroids are closer than that, block by block."""
    names = sorted(centroids)
    if len(names) < 2:
        return
    every = np.stack([centroids[name] for name in names])
    for start in range(0, len(names), _BLOCK):
        cosines = every[start : start + _BLOCK] @ every.T
        for row, column in np.argwhere(cosines > least).tolist():
            if start + row < column:
                yield (names[start + row], names[column]), round(float(cosines[row, column]), 4)


def components(ties: Iterable[Tie]) -> dict[str, str]:
    """The first identifier of each artifact, by identifier: of those that are tied to others."""
    first: dict[str, str] = {}

    def find(one: str) -> str:
        while (other := first.setdefault(one, one)) != one:
            one = other
        return one

    for tie in ties:
        one, other = sorted((find(tie.one), find(tie.other)))
        first[other] = one
    return {identifier: find(identifier) for identifier in list(first)}
