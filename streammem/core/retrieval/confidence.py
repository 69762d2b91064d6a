"""How sure it is that the question was ever answered, from what a query has fetched anyway (issue 6, Abstention).

A question that nobody answered still finds its words: it asks a known thing about a known thing, which were never said
together. So what counts is less how well the best message scores than what it brings together. A sign is believed only
where the question is understood: a paraphrase that the memory does not have in these words proves nothing.

The constants were chosen by hand on the simulated company orgsim, with an eye on locomo and gatemem. With a floor of
0.5 about 5 % of the questions with evidence abstain on each of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from itertools import groupby, pairwise

from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval.context import Member
from streammem.core.scripts import plain
from streammem.core.words_in_text import is_ordinary

APART = 0.5
"""What each yes-or-no sign leaves: two things never said together, a strange identifier; a foreign topic."""
AWRY = 0.5
"""By how much (fused score) others may be ahead of whom the question names before nothing is left."""
CLEAR = 0.5
"""The lead (fused score) over the sixth best message with which the best one stands out."""
LONGEST = 25
"""Words of a question that is about one thing; a longer one is a post, which speaks of many things and people."""
FOREIGN = 0.3
"""The cosine below which nothing that was said is about it. Of 2,000 questions with evidence 1 is below (MiniLM)."""
_SIXTH = 5
_SAID = 2
"""Messages with two words side by side that make them a phrase of this memory, not of this question."""

_WORD = re.compile(r"\w+|[^\w\s]")
_BESIDE = frozenset((" ", "-", "\n"))
_AND = frozenset(("and", "or", "&", "/", "and the", "or the"))

Pairs = frozenset[tuple[str, str]]
"""Words that stand side by side."""


def confidence(spec: QuerySpec, pool: Mapping[str, Member], scores: Mapping[str, float], nearest: float = 1.0) -> float:
    """Between 0 and 1; below 0.5 only where something speaks against it, above says how far the best stands out.

    `scores` are those of the pool's messages by their own text and prior (S1), `nearest` is the highest cosine to the
    question. 0 without a message.
    """
    if not scores:
        return 0.0
    short = len(spec.text.split()) <= LONGEST
    kept = APART if strange(spec, pool) or (short and apart(spec, pool)) else 1.0
    kept *= 1.0 - min(1.0, behind(spec, pool, scores) / AWRY) if short else 1.0
    kept *= 1.0 if nearest >= FOREIGN else APART
    return round(kept * (1.0 + clear(scores)) / 2, 4)


def strange(spec: QuerySpec, pool: Mapping[str, Member]) -> bool:
    """Whether the question names an identifier that no message has which was found for it."""
    return not {*spec.identifiers}.issubset(i for member in pool.values() for i in member.version.identifiers)


def clear(scores: Mapping[str, float]) -> float:
    """How far the best message stands out, between 0 and 1."""
    best = sorted(scores.values(), reverse=True)[: _SIXTH + 1]
    return min(1.0, max(0.0, best[0] - best[-1]) / CLEAR)


# --------------------------------------------------------------------------------------- two things, never together


def apart(spec: QuerySpec, pool: Mapping[str, Member]) -> bool:
    """Whether the question is about two things that are said in messages, but in none (with what it answers) both.

    Of one thing, or of a list of things, that says nothing: each may be told in a message of its own.
    """
    runs = _runs(spec)
    telling = {word for run in runs for word in run}
    if len(telling) < 2 * _SAID:
        return False
    said = _said(telling, pool)
    common = Counter(pair for _, pairs in said.values() for pair in pairs)
    things = list(dict.fromkeys(thing for run in runs for thing in phrases(run, common)))
    if len(things) != 2 or _listed(spec.text, things):
        return False
    sought = {word for thing in things for word in thing}
    nothing = (frozenset[str](), frozenset[tuple[str, str]]())
    return not any(
        sought <= heard | said.get(pool[uid].version.reply_to, nothing)[0] for uid, (heard, _) in said.items()
    )


def phrases(run: Many[str], common: Mapping[tuple[str, str], int]) -> Iterator[tuple[str, ...]]:
    """The longest stretches of a run of words whose neighbours stand side by side in messages, too."""
    start = 0
    for i in range(1, len(run) + 1):
        if i == len(run) or common.get((run[i - 1], run[i]), 0) < _SAID:
            if i - start > 1:
                yield tuple(run[start:i])
            start = i


def _said(telling: Iterable[str], pool: Mapping[str, Member]) -> dict[str, tuple[frozenset[str], Pairs]]:
    """Which of these words each message says, and which pairs of them side by side. Messages with none are left out."""
    pattern = re.compile(rf"\b({'|'.join(sorted(telling))})s?\b")
    said = {}
    for uid, member in pool.items():
        text = plain(member.version.text)
        found = [(match[1], match.start(), match.end()) for match in pattern.finditer(text)]
        if found:
            pairs = {(a, b) for (a, _, end), (b, start, _) in pairwise(found) if text[end:start] in _BESIDE}
            said[uid] = frozenset(word for word, _, _ in found), frozenset(pairs)
    return said


def _runs(spec: QuerySpec) -> list[list[str]]:
    """The question in runs of telling words: names of people and channels and identifiers are looked for otherwise."""
    text = spec.text
    for start, end in (named.at for named in spec.named):
        text = text[:start] + "?" * (end - start) + text[end:]
    for identifier in spec.identifiers:
        text = text.replace(identifier, "?")
    telling = groupby(_WORD.findall(plain(text)), lambda word: word[0].isalnum() and not is_ordinary(word))
    return [[_singular(word) for word in some] for kept, some in telling if kept]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _listed(text: str, things: Many[Many[str]]) -> bool:
    """Whether the two things stand in a list: with a comma, or with no word but an "and" or "or", between them."""
    between = plain(text).partition(things[0][-1])[2].partition(things[1][0])[0]
    return "," in between or between.strip(" s") in _AND


# ------------------------------------------------------------------------------------------ said of somebody else


def behind(spec: QuerySpec, pool: Mapping[str, Member], scores: Mapping[str, float]) -> float:
    """By how much the best message of whom the question names is behind the best of others; 0 if it is ahead.

    "What did Ann say about the race?" finds what Ben said about it.
    """
    people = [named for named in spec.named if named.kind == "user"]
    ids = {one for named in people for one in named.ids} - {spec.asker}
    if (
        not ids or len({named.ids for named in people}) > 1
    ):  # of several, each may be spoken of by itself (S3 joins them)
        return 0.0
    names = [plain(named.words) for named in people]
    theirs = {uid for uid in scores if _of(pool[uid], ids, names)}
    theirs |= {uid for uid in scores if (to := pool.get(pool[uid].version.reply_to)) and to.version.user in ids}
    return max(0.0, _best(scores, scores.keys() - theirs) - _best(scores, theirs))


def _of(member: Member, ids: set[str], names: Iterable[str]) -> bool:
    """Whether a message is said by one of them, mentions one, or has a name of one as the question has it."""
    version = member.version
    text = plain(version.text)
    return version.user in ids or bool(ids.intersection(version.mentions)) or any(name in text for name in names)


def _best(scores: Mapping[str, float], uids: Iterable[str]) -> float:
    return max((scores[uid] for uid in uids), default=0.0)
