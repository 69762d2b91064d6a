"""Which messages without an identifier belong to one: by a name, by going on, by answering (EGCForest §3.1.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from streammem.core import routing
from streammem.core.naming import Book, Match
from streammem.core.phrases import WORD, stem
from streammem.core.said import Said
from streammem.records import Joined, Version

_OPEN_END = re.compile(r"(?::|\.\.\.|…|,|-|\N{EN DASH}|\N{EM DASH})\s*$")
_POINTS = re.compile(r"\b(?:it|its|it's|this|that|these|those)\b", re.IGNORECASE)


def joined(said: Said, same: Mapping[str, str]) -> list[Joined]:
    """The messages without an identifier that belong to one: by a name, by going on from one, as answers to those."""
    own: dict[str, Joined] = {}
    for version in said.messages:
        if not version.identifiers and (match := said.book.found(version.text, same, said.near(version))) is not None:
            own[version.uid] = _by_name(said, version, match)
    own |= {joined.uid: joined for joined in _continued(said, own)}
    answers = (
        Joined(v.uid, v.ts, root.identifier, "answer", (said.source(v.uid), *root.sources))
        for v in said.messages
        if not v.identifiers and v.uid not in own
        for root in _belonging(v, own)
    )
    return [*own.values(), *answers]


def _by_name(said: Said, version: Version, match: Match) -> Joined:
    said_in = [uid for _, uid in match.name.said_in]
    return Joined(version.uid, version.ts, match.name.identifier, "named", said.sources(version.uid, *said_in))


def _belonging(version: Version, own: Mapping[str, Joined]) -> list[Joined]:
    """What a message answers, as far as that belongs to an identifier without carrying it."""
    found = (own[target] for target in routing.targets_of(version) if target in own)
    return list({joined.identifier: joined for joined in found}.values())


def _continued(said: Said, named: Mapping[str, Joined]) -> Iterator[Joined]:
    """Where the author of a message that belongs goes on at once: it was left open, or the next one points at it."""
    last: dict[tuple[str, str], Version] = {}
    most = int(said.numbers.following * 1e6)
    for version in said.messages:
        before = last.get((version.channel, version.user))
        last[version.channel, version.user] = version
        if before is None or version.ts - before.ts > most or not version.user:
            continue
        if version.identifiers or version.uid in named or routing.targets_of(version) or routing.targets_of(before):
            continue
        if not _goes_on(before.text, version.text, said.book):
            continue
        if before.uid in named:
            root = named[before.uid]
            yield Joined(
                version.uid, version.ts, root.identifier, "continued", (said.source(version.uid), *root.sources)
            )
        elif len(before.identifiers) == 1:
            sources = said.sources(version.uid, before.uid)
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
