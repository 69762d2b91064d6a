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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

import msgspec

from streammem.core.identifiers import Rules
from streammem.core.joins import joined as joined_of
from streammem.core.naming import Name
from streammem.core.numbers import Grouping
from streammem.core.retrieval.substance import commonplaces
from streammem.core.said import Said
from streammem.core.ties import Pair, Vectors, centroids_of, components, order, tied
from streammem.records import Alias, Artifacts, Joined, Tie, Version

__all__ = ["Artifacts", "Joined", "Pair", "Reading", "Tie", "carrying", "grouped", "named_in", "stands"]


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
        self.common = dict(self.artifacts.commonplaces)
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
    desk = Said(workspace, said, rules, numbers)
    centroids = centroids_of(desk, vectors)
    ties, apart = tied(desk, centroids, verdicts or {})
    same = components(ties)
    desk.book.discard_common(((v.text, v.identifiers, desk.near(v)) for v in desk.carriers), same)
    joined = joined_of(desk, same)
    grouping = Artifacts(
        workspace,
        tuple(sorted({v.channel for v in desk.messages})),
        tuple(sorted(ties, key=order)),
        tuple(sorted(joined, key=lambda j: (j.identifier, j.ts, j.uid))),
        tuple(_alias(desk, name) for name in desk.book.names),
        tuple(sorted(apart, key=order)),
        _markers(desk, same, joined),
        tuple(sorted(commonplaces((v.text for v in desk.messages), numbers.commonplace).items())),
    )
    return msgspec.structs.replace(grouping, digest=_digest(desk.messages))


def carrying(said: Iterable[Version]) -> list[Version]:
    """The messages whose vectors a grouping is made from: those with an identifier that several have."""
    have = [v for v in said if v.identifiers]
    counts = Counter(i for v in have for i in v.identifiers)
    return [v for v in have if any(counts[i] > 1 for i in v.identifiers)]


def _alias(desk: Said, name: Name) -> Alias:
    return Alias(name.identifier, name.start, name.stop, desk.source(name.said_in[0][1]))


def _digest(said: Iterable[Version]) -> str:
    digest = blake2b(digest_size=16)
    for version in said:
        digest.update(version.key.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _markers(desk: Said, same: Mapping[str, str], joined: Iterable[Joined]) -> tuple[tuple[str, tuple[str, ...]], ...]:
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
