"""Identifiers and messages to artifacts (EGCForest §3.1.1, design §5): who is one, who joins, and what that rests on.

The paper clusters the messages of identifiers farthest-first and merges clusters whose centroids are closer than 0.88.
Merged over the initial centroids, such clusters are the connected components of the pairs above the threshold, wherever
the traversal starts: so pairs are what is looked at here. Measured with all-MiniLM-L6-v2, a centroid alone tells
nothing: all 50 pairs above 0.88 of a simulated company were wrong, and of 26 artifacts under two identifiers none came
above 0.6. So a pair above it merges only where something said ties it as well; what is clearly said needs no centroid.

Everything is made from the set of messages that stand in public channels, in no order. What it rests on is kept with
each tie and each joined message, so that a reader can see whether all of that is visible to whoever asks (`stands`).
No word of any message is kept, only where it stands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from hashlib import blake2b
from itertools import combinations, pairwise
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from streammem.core import routing
from streammem.core.identifiers import Rules
from streammem.core.naming import Book, Match, Name, Near, family, names_of
from streammem.core.numbers import Grouping
from streammem.core.phrases import WORD, phrases, stem
from streammem.records import Version

Vectors = npt.NDArray[np.float32]
Sources = tuple[tuple[str, str], ...]
"""Messages that something rests on: uid and hash of the version that was read."""
Pair = tuple[str, str]

_MOST_APART = 100
"""Borderline pairs that are kept."""
_BLOCK = 1024

_SAYS_ONE = re.compile(
    r"\s*,?\s*(?:(?:which|that)\s+)?(?:(?:is|was)\s+)?"
    r"(?:implement(?:s|ed|ing)?(?: (?:by|in))?|track(?:s|ed|ing)?(?: (?:by|in|as))?|clos(?:es|ed|ing)(?: by)?"
    r"|fix(?:es|ed|ing)(?: by)?|resolv(?:es|ed|ing)(?: by)?|cover(?:s|ed|ing)(?: by)?"
    r"|document(?:s|ed|ing)(?: (?:by|in))?"
    r"|(?:the )?(?:PR|MR|ticket|issue|doc|document) (?:for|of)|for|aka|alias|=|==|→|->)\s*",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"\s*[(（\[]\s*")
_OPEN_END = re.compile(r"(?::|\.\.\.|…|,|-|\N{EN DASH}|\N{EM DASH})\s*$")
_POINTS = re.compile(r"\b(?:it|its|it's|this|that|these|those)\b", re.IGNORECASE)


class Tie(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """Two identifiers of one artifact (or kept apart), and why.

    `said`: a message says so; `named`: they bear one name; `alike`: their centroids are close and they are mentioned
    together; `judged`: a language model said so. `cosine` is that of their centroids, 0 where there is none.
    """

    one: str
    other: str
    why: Literal["said", "named", "alike", "judged", "close"]
    cosine: float
    sources: Sources


class Joined(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A message without an identifier that belongs to one, and why. `sources` begin with the message itself.

    `named`: it says a name of it; `continued`: its author goes on from a message that belongs; `answer`: it answers
    one that does.
    """

    uid: str
    ts: int
    identifier: str
    why: Literal["named", "continued", "answer"]
    sources: Sources


class Alias(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A name of an identifier: the places [start, stop) in the text of the version that says it."""

    identifier: str
    start: int
    stop: int
    source: tuple[str, str]


class Artifacts(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """How the identifiers and messages of a workspace are grouped. Everything is sorted.

    `channels` are those that it was made from: while one of them is not public it holds for nobody. `apart` are
    borderline pairs that nobody has judged. `markers` are the lifecycle markers of each artifact of several identifiers
    or with joined messages, by its first identifier. `digest` names what it was made from.
    """

    workspace: str
    channels: tuple[str, ...] = ()
    ties: tuple[Tie, ...] = ()
    joined: tuple[Joined, ...] = ()
    aliases: tuple[Alias, ...] = ()
    apart: tuple[Tie, ...] = ()
    markers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    digest: str = ""


def stands(fact: Tie | Joined, seen: Callable[[str], Version | None]) -> bool:
    """Whether all that a tie or a join rests on is seen, in the versions that it was made from. Fail closed.

    `seen` gives what somebody sees of a message: so what is deleted, edited, in a channel that turned private, or not
    said yet at the moment asked for, steers nothing.
    """
    return all((version := seen(uid)) is not None and version.hash == digest for uid, digest in fact.sources)


def named_in(grouping: Artifacts) -> list[str]:
    """The messages that a grouping names, as often as it does."""
    facts: tuple[Tie | Joined, ...] = (*grouping.ties, *grouping.apart, *grouping.joined)
    return [uid for fact in facts for uid, _ in fact.sources] + [alias.source[0] for alias in grouping.aliases]


class Reading:
    """The grouping of a workspace, to look things up in. Immutable; without an argument nothing is grouped."""

    def __init__(self, artifacts: Artifacts | None = None) -> None:
        self.artifacts = artifacts or Artifacts("")
        self._ties: defaultdict[str, list[Tie]] = defaultdict(list)
        for tie in self.artifacts.ties:
            self._ties[tie.one].append(tie)
            self._ties[tie.other].append(tie)
        self._joined: defaultdict[str, list[Joined]] = defaultdict(list)
        self._of: defaultdict[str, list[Joined]] = defaultdict(list)
        for joined in self.artifacts.joined:
            self._joined[joined.identifier].append(joined)
            self._of[joined.uid].append(joined)

    def ties_of(self, identifier: str) -> list[Tie]:
        """The ties of an identifier itself."""
        return self._ties.get(identifier, [])

    def ties_around(self, identifier: str) -> list[Tie]:
        """All ties of its artifact: what they rest on is to be looked at before `identifiers_of`."""
        one = self.identifiers_of(identifier)
        return sorted({tie for i in one for tie in self.ties_of(i)}, key=lambda t: (t.one, t.other))

    def identifiers_of(self, identifier: str, seen: Callable[[str], Version | None] | None = None) -> tuple[str, ...]:
        """The identifiers of its artifact, itself among them, sorted. With `seen`, by ties that stand for who sees."""
        found, news = {identifier}, [identifier]
        while news:
            at = news.pop()
            for tie in self.ties_of(at):
                other = tie.other if tie.one == at else tie.one
                if other not in found and (seen is None or stands(tie, seen)):
                    found.add(other)
                    news.append(other)
        return tuple(sorted(found))

    def artifact_of(self, identifier: str, seen: Callable[[str], Version | None] | None = None) -> str:
        """The name of its artifact: the first of its identifiers."""
        return self.identifiers_of(identifier, seen)[0]

    def joined(self, identifier: str) -> list[Joined]:
        """The messages without an identifier that belong to this one, in order."""
        return self._joined.get(identifier, [])

    def joins_of(self, uid: str) -> list[Joined]:
        """What a message without an identifier belongs to."""
        return self._of.get(uid, [])


# ------------------------------------------------------------------------------------------------------- grouping


def grouped(
    workspace: str,
    said: Iterable[Version],
    vectors: Mapping[str, Vectors],
    rules: Rules,
    numbers: Grouping,
    *,
    verdicts: Mapping[Pair, bool] | None = None,
) -> Artifacts:
    """Group the messages that stand in public channels. Of `vectors` those are needed that `carrying` names.

    `verdicts` are what a judge said of borderline pairs; what nobody judged stays apart.
    """
    desk = _Desk(workspace, said, rules, numbers)
    centroids = _centroids(desk, vectors)
    ties, apart = _tied(desk, centroids, verdicts or {})
    same = _components(ties)
    desk.book.discard_common(((v.text, v.identifiers, desk.near(v)) for v in desk.carriers), same)
    joined = _joined(desk, same)
    grouping = Artifacts(
        workspace,
        tuple(sorted({v.channel for v in desk.said})),
        tuple(sorted(ties, key=_order)),
        tuple(sorted(joined, key=lambda j: (j.identifier, j.ts, j.uid))),
        tuple(_alias(desk, name) for name in desk.book.names),
        tuple(sorted(apart, key=_order)),
        _markers(desk, same, joined),
    )
    return msgspec.structs.replace(grouping, digest=_digest(desk.said))


def carrying(said: Iterable[Version]) -> list[Version]:
    """The messages whose vectors a grouping is made from: those with an identifier that several have."""
    have = [v for v in said if v.identifiers]
    counts = Counter(i for v in have for i in v.identifiers)
    return [v for v in have if any(counts[i] > 1 for i in v.identifiers)]


class _Haunt(msgspec.Struct):
    """When, by whom and where an identifier is said."""

    times: list[int]
    users: frozenset[str]
    channels: frozenset[str]


class _Desk:
    """The messages of a grouping by what is asked of them."""

    def __init__(self, workspace: str, said: Iterable[Version], rules: Rules, numbers: Grouping) -> None:
        self.workspace, self.rules, self.numbers = workspace, rules, numbers
        self.said = sorted(said, key=lambda v: (v.ts, v.uid))
        self.by_uid = {v.uid: v for v in self.said}
        self.carriers = [v for v in self.said if v.identifiers]
        self.carried: defaultdict[str, list[Version]] = defaultdict(list)
        for version in self.carriers:
            for identifier in version.identifiers:
                self.carried[identifier].append(version)
        self._haunts: dict[str, _Haunt] = {}
        self.spans = {v.uid: rules.spans(v.text) for v in self.carriers}
        self.book = Book(
            names_of((v.ts, v.uid, p) for v in self.carriers for p in phrases(v.text, self.spans[v.uid], rules)),
            rules,
            numbers,
        )

    def near(self, version: Version) -> Near:
        """How near identifiers are to a message (naming.Near): said before it, of late, by or to its author, there."""

        def nearness(identifier: str) -> int:
            haunt = self._haunt(identifier)
            place = bisect_right(haunt.times, version.ts)
            if not place or version.ts - haunt.times[place - 1] > self.numbers.fresh * 86_400e6:
                return 0
            return 1 + (version.user in haunt.users) + (version.channel in haunt.channels)

        return nearness

    def _haunt(self, identifier: str) -> _Haunt:
        known = self._haunts.get(identifier)
        if known is None:
            said = self.carried[identifier]
            users = frozenset(u for v in said for u in (v.user, *v.mentions) if u)
            known = _Haunt([v.ts for v in said], users, frozenset(v.channel for v in said))
            self._haunts[identifier] = known
        return known

    def source(self, uid: str) -> tuple[str, str]:
        return uid, self.by_uid[uid].hash

    def sources(self, *uids: str) -> Sources:
        return tuple(map(self.source, dict.fromkeys(uids)))


def _order(tie: Tie) -> tuple[str, str]:
    return tie.one, tie.other


def _alias(desk: _Desk, name: Name) -> Alias:
    return Alias(name.identifier, name.start, name.stop, desk.source(name.said_in[0][1]))


def _digest(said: Iterable[Version]) -> str:
    digest = blake2b(digest_size=16)
    for version in said:
        digest.update(version.key.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------------- ties


def _centroids(desk: _Desk, vectors: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """The direction of each identifier's messages, of those that have enough. Summed in one order, so always alike."""
    found = {}
    for identifier in sorted(desk.carried):
        some = [vectors[v.uid] for v in desk.carried[identifier] if v.uid in vectors]
        if len(some) >= desk.numbers.centroid:
            mean = np.sum(np.stack(some).astype(np.float64), axis=0)
            length = float(np.linalg.norm(mean))
            if length:
                found[identifier] = (mean / length).astype(np.float32)
    return found


def _cosine(one: str, other: str, centroids: Mapping[str, Vectors]) -> float:
    if one not in centroids or other not in centroids:
        return 0.0
    return round(float(np.dot(centroids[one], centroids[other])), 4)


def _tied(desk: _Desk, centroids: Mapping[str, Vectors], verdicts: Mapping[Pair, bool]) -> tuple[list[Tie], list[Tie]]:
    """The pairs that are one, and those that are borderline."""
    ties: dict[Pair, Tie] = {}
    apart: dict[Pair, Tie] = {}
    together = _mentioned_together(desk)
    for pair, uids in _said_one(desk):
        ties[pair] = Tie(*pair, "said", _cosine(*pair, centroids), desk.sources(*uids))
    for pair, uids in _bearing_one_name(desk):
        tie = Tie(*pair, "named", _cosine(*pair, centroids), desk.sources(*uids, *together.get(pair, ())))
        one = pair in together or tie.cosine > desk.numbers.merge
        (ties if one else apart).setdefault(pair, tie)
    for pair, uids in together.items():
        tie = Tie(*pair, "alike", _cosine(*pair, centroids), desk.sources(*uids))
        if tie.cosine > desk.numbers.borderline:
            (ties if tie.cosine > desk.numbers.merge else apart).setdefault(pair, tie)
    for pair, cosine in _close(centroids, desk.numbers.merge):
        first = (desk.carried[identifier][0].uid for identifier in pair)
        apart.setdefault(pair, Tie(*pair, "close", cosine, desk.sources(*first)))
    open_ = {pair: tie for pair, tie in apart.items() if pair not in ties}
    for pair, tie in open_.items():
        if verdicts.get(pair):
            ties[pair] = msgspec.structs.replace(tie, why="judged")
    unjudged = [tie for pair, tie in open_.items() if pair not in verdicts]
    return list(ties.values()), sorted(unjudged, key=lambda t: (-t.cosine, _order(t)))[:_MOST_APART]


def _said_one(desk: _Desk) -> Iterator[tuple[Pair, list[str]]]:
    """Pairs that a message says are one: "PR #12 implements DOC-42", "PR #12 (DOC-42)". Not those of containers."""
    found: defaultdict[Pair, list[str]] = defaultdict(list)
    for version in desk.carriers:
        for (_, end, one), (start, stop, other) in _adjacent(desk.spans[version.uid]):
            if one != other and _may_be_one(one) and _may_be_one(other) and _says(version.text, end, start, stop):
                found[_pair(one, other)].append(version.uid)
    partners = Counter((i, family(o)) for pair in found for i, o in (pair, pair[::-1]))
    hubs = {identifier for (identifier, _), count in partners.items() if count >= desk.numbers.hub}
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


def _bearing_one_name(desk: _Desk) -> Iterator[tuple[Pair, list[str]]]:
    """Pairs of two families with one name, apart from what the families are called; none where a third has it too."""
    bearers: defaultdict[tuple[str, ...], dict[str, Name]] = defaultdict(dict)
    for name in desk.book.names:
        core = desk.book.core(name)
        if len(core) > 1:
            bearers[core].setdefault(name.identifier, name)
    found: dict[Pair, list[str]] = {}
    for some in bearers.values():
        families = Counter(map(family, some))
        for one, other in combinations(sorted(some), 2):
            if family(one) != family(other) and families[family(one)] == families[family(other)] == 1:
                said = (*some[one].said_in, *some[other].said_in)
                found.setdefault(_pair(one, other), [uid for _, uid in said])
    for pair, uids in sorted(found.items()):
        if all(map(_may_be_one, pair)):
            yield pair, uids


def _mentioned_together(desk: _Desk) -> dict[Pair, list[str]]:
    """Pairs that stand in one message, or one in an answer to the other, and the first message that shows it."""
    found: dict[Pair, list[str]] = {}
    for version in desk.carriers:
        for one, other in combinations(version.identifiers, 2):
            found.setdefault(_pair(one, other), [version.uid])
        for target in routing.targets_of(version):
            asked = desk.by_uid.get(target)
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


def _components(ties: Iterable[Tie]) -> dict[str, str]:
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


# ------------------------------------------------------------------------------------------------------- joining


def _joined(desk: _Desk, same: Mapping[str, str]) -> list[Joined]:
    """The messages without an identifier that belong to one: by a name, by going on from one, as answers to those."""
    own: dict[str, Joined] = {}
    for version in desk.said:
        if not version.identifiers and (match := desk.book.found(version.text, same, desk.near(version))) is not None:
            own[version.uid] = _by_name(desk, version, match)
    own |= {joined.uid: joined for joined in _continued(desk, own)}
    answers = (
        Joined(v.uid, v.ts, root.identifier, "answer", (desk.source(v.uid), *root.sources))
        for v in desk.said
        if not v.identifiers and v.uid not in own
        for root in _belonging(v, own)
    )
    return [*own.values(), *answers]


def _by_name(desk: _Desk, version: Version, match: Match) -> Joined:
    said_in = [uid for _, uid in match.name.said_in]
    return Joined(version.uid, version.ts, match.name.identifier, "named", desk.sources(version.uid, *said_in))


def _belonging(version: Version, own: Mapping[str, Joined]) -> list[Joined]:
    """What a message answers, as far as that belongs to an identifier without carrying it."""
    found = (own[target] for target in routing.targets_of(version) if target in own)
    return list({joined.identifier: joined for joined in found}.values())


def _continued(desk: _Desk, named: Mapping[str, Joined]) -> Iterator[Joined]:
    """Where the author of a message that belongs goes on at once: it was left open, or the next one points at it."""
    last: dict[tuple[str, str], Version] = {}
    most = int(desk.numbers.following * 1e6)
    for version in desk.said:
        before = last.get((version.channel, version.user))
        last[version.channel, version.user] = version
        if before is None or version.ts - before.ts > most or not version.user:
            continue
        if version.identifiers or version.uid in named or routing.targets_of(version) or routing.targets_of(before):
            continue
        if not _goes_on(before.text, version.text, desk.book):
            continue
        if before.uid in named:
            root = named[before.uid]
            yield Joined(
                version.uid, version.ts, root.identifier, "continued", (desk.source(version.uid), *root.sources)
            )
        elif len(before.identifiers) == 1:
            sources = desk.sources(version.uid, before.uid)
            yield Joined(version.uid, version.ts, before.identifiers[0], "continued", sources)


def _goes_on(before: str, text: str, book: Book) -> bool:
    """Whether a text goes on from the one before: that was left open, or this points at it and is no question."""
    if _OPEN_END.search(before):
        return True
    return not text.rstrip().endswith("?") and (_POINTS.search(text) is not None or _names_kind(text, book))


def _names_kind(text: str, book: Book) -> bool:
    """Whether a text points at a thing by its kind: "the PR", "the plan"."""
    words = [match[0].lower() for match in WORD.finditer(text)]
    heads = book.heads
    return any(one == "the" and stem(other) in heads for one, other in pairwise(words))


def _markers(desk: _Desk, same: Mapping[str, str], joined: Iterable[Joined]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The lifecycle markers of each artifact that is more than an identifier."""
    members: defaultdict[str, set[str]] = defaultdict(set)
    for join in joined:
        members[same.get(join.identifier, join.identifier)].add(join.uid)
    for artifact in same.values():
        members[artifact].update(())
    identifiers: defaultdict[str, set[str]] = defaultdict(set)
    for identifier, artifact in same.items():
        identifiers[artifact].add(identifier)
    found = []
    for artifact, uids in sorted(members.items()):
        carried = [v for i in sorted(identifiers[artifact] | {artifact}) for v in desk.carried.get(i, ())]
        said = [*carried, *(desk.by_uid[uid] for uid in sorted(uids))]
        found.append((artifact, tuple(sorted({m for v in said for m in v.markers}))))
    return tuple(found)
