"""Flat rankings to measure against: BM25, dense and their fusion, on the same messages under the same filters.

What they index and how is chosen to give the reference figures of this project: speaker, title, channel and date
before the text; English stop words left out and Snowball stems, which is also what the engine's own BM25 does.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from py_rust_stemmers import SnowballStemmer  # type: ignore[import-untyped]

from streammem.core.directory import Directory
from streammem.core.events import moment
from streammem.records import Query, Version

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Vectors = npt.NDArray[np.float32]
Words = Callable[[str], list[str]]

NAMES = ("bm25", "dense", "rrf")
K1, B = 1.2, 0.75
"""BM25's saturation and length normalisation: the usual ones, which the reference figures were made with."""
ETA = 60
"""RRF's constant (Cormack et al. 2009), as in EGCForest's Table 8."""
DEPTH = 200
"""How deep each ranking goes into the fusion."""

_TOKEN = re.compile(r"[^\W_]+")
_FIRST_PERSON = re.compile(r"\b(I|me|my|mine)\b(?! (own )?(team|group|unit|colleagues))")
_STOP_WORDS = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those am is are was were be
    been being have has had having do does did doing a an the and but if or because as until while of at by for with
    about against between into through during before after above below to from up down in out on off over under again
    further then once here there when where why how all any both each few more most other some such no nor not only
    own same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn
    haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""
_STOP = frozenset(_STOP_WORDS.split())
_stem = lru_cache(maxsize=1 << 17)(SnowballStemmer("english").stem_word)


def words(text: str) -> list[str]:
    """The stems of a text's words without stop words, in order, with repeats."""
    return [_stem(word) for word in _TOKEN.findall(text.lower()) if word not in _STOP]


# ------------------------------------------------------------------------------------------------ the corpus


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """The messages that the memory holds, as flat rankings see them.

    `place` gives each message's row in `places`, its (workspace, channel); `times` are µs; `vectors` the memory's own;
    `tokens` what each message takes when it is rendered, as the memory counts it.
    """

    ids: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    place: Ints
    times: Ints
    texts: tuple[str, ...]
    vectors: Vectors
    directories: Mapping[str, Directory]
    tokens: Ints

    @cached_property
    def rows(self) -> dict[tuple[str, str], list[int]]:
        """(workspace, message id) to the rows that bear it."""
        rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for row, (name, place) in enumerate(zip(self.ids, self.place, strict=True)):
            rows[self.places[place][0], name].append(row)
        return dict(rows)

    @cached_property
    def lexical(self) -> Lexical:
        """BM25 over these messages."""
        return Lexical(self.texts)


def corpus_of(
    versions: Many[Version], vectors: Vectors, directories: Mapping[str, Directory], tokens: Many[int]
) -> Corpus:
    """The corpus of these messages, one version each; `vectors` and `tokens` have a row for each."""
    places = {place: i for i, place in enumerate(dict.fromkeys((v.workspace, v.channel) for v in versions))}
    return Corpus(
        ids=tuple(v.id for v in versions),
        places=tuple(places),
        place=np.array([places[v.workspace, v.channel] for v in versions], dtype=np.int64),
        times=np.array([v.ts for v in versions], dtype=np.int64),
        texts=tuple(described(v, directories[v.workspace]) for v in versions),
        vectors=vectors,
        directories=directories,
        tokens=np.array(tokens, dtype=np.int64),
    )


def described(version: Version, directory: Directory) -> str:
    """The text with speaker, title, channel and date before it, the date in the spellings that questions use."""
    day = moment(version.ts)
    date = f"{day:%Y-%m-%d} {day:%d} {day.day} {day:%B} {day:%b}"
    speaker = f"{directory.user_name(version.user)} {directory.user_title(version.user)}"
    return f"{speaker} #{directory.channel_name(version.channel)} {date}: {version.text}"


def worded(query: Query, directory: Directory) -> str:
    """The words of a question; a question in the first person is about its asker as well."""
    if query.asker is None or not _FIRST_PERSON.search(query.text):
        return query.text
    return f"{query.text} {directory.user_name(query.asker)} {directory.user_title(query.asker)}"


def visible(corpus: Corpus, query: Query) -> Mask:
    """Which messages a question may find: the filters of the memory itself, by its own directory."""
    readable = np.array([_readable(corpus, place, query) for place in corpus.places], dtype=np.bool_)
    seen: Mask = readable[corpus.place]
    if query.as_of is not None:
        seen &= corpus.times <= query.as_of
    for name in query.exclude:
        seen[corpus.rows.get((query.workspace, name), [])] = False
    return seen


def _readable(corpus: Corpus, place: tuple[str, str], query: Query) -> bool:
    workspace, channel = place
    if workspace != query.workspace or (query.channels and channel not in query.channels):
        return False
    return query.everything or corpus.directories[workspace].visible(channel, query.asker)


def beyond(corpus: Corpus, query: Query, found: Iterable[str]) -> int:
    """How many results the question's filters rule out. It catches a ranker that forgets them."""
    seen = visible(corpus, query)
    return sum(not seen[corpus.rows.get((query.workspace, name), [])].any() for name in found)


# ---------------------------------------------------------------------------------------------- the rankings


class Lexical:
    """BM25 over inverted lists (Robertson and Zaragoza 2009). Document frequencies are counted over what is visible."""

    def __init__(self, texts: Iterable[str], words: Words = words) -> None:
        self._words = words
        counts = [Counter(words(text)) for text in texts]
        lengths = np.array([count.total() for count in counts], dtype=np.float64)
        lists: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row, count in enumerate(counts):
            for word, often in count.items():
                lists[word][0].append(row)
                lists[word][1].append(often)
        norms = K1 * (1 - B + B * lengths / (lengths.mean() or 1.0)) if counts else lengths
        self._lists = {word: _weighted(*pair, norms) for word, pair in lists.items()}
        self._size = len(counts)

    def scores(self, question: str, seen: Mask) -> Floats:
        """The score of every message; 0 for those that are not seen or share no word."""
        total = np.zeros(self._size)
        count = int(seen.sum())
        for word in dict.fromkeys(self._words(question)):
            rows, weights = self._lists.get(word, _NOTHING)
            inside = seen[rows]
            if frequency := int(inside.sum()):
                total[rows[inside]] += idf(count, frequency) * weights[inside]
        return total


_NOTHING: tuple[Ints, Floats] = (np.empty(0, dtype=np.int64), np.empty(0))


def _weighted(rows: list[int], often: list[int], norms: Floats) -> tuple[Ints, Floats]:
    where, tf = np.array(rows, dtype=np.int64), np.array(often, dtype=np.float64)
    return where, tf * (K1 + 1) / (tf + norms[where])


def idf(count: int, frequency: int) -> float:
    """How telling a word is that `frequency` of `count` messages carry."""
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))


def best(scores: npt.NDArray[np.floating], among: Ints, k: int) -> Ints:
    """The `k` rows of `among` with the greatest scores, best first, ties by row."""
    values = scores[among]
    if len(among) > k:
        kept = values >= np.partition(values, -k)[-k]
        among, values = among[kept], values[kept]
    order: Ints = among[np.lexsort((among, -values))][:k]
    return order


def fuse(rankings: Iterable[Ints], k: int) -> Ints:
    """Reciprocal rank fusion: the `k` best by the sum of 1 / (60 + rank), ties by row."""
    total: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, row in enumerate(ranking.tolist(), 1):
            total[row] += 1 / (ETA + rank)
    return np.array(sorted(total, key=lambda row: (-total[row], row))[:k], dtype=np.int64)


def rank(corpus: Corpus, lexical: Lexical, query: Query, vector: Vectors, k: int) -> dict[str, tuple[str, ...]]:
    """The message ids that each baseline finds for a question, best first: at most `k`, within the query's budget."""
    seen = visible(corpus, query)
    scores = lexical.scores(worded(query, corpus.directories[query.workspace]), seen)
    by_words = best(scores, np.flatnonzero(scores > 0), DEPTH)
    by_meaning = best(corpus.vectors @ vector, np.flatnonzero(seen), DEPTH)
    rankings = (by_words, by_meaning, fuse((by_words, by_meaning), DEPTH))
    found = (tuple(corpus.ids[row] for row in fitting(rows, corpus.tokens, k, query.budget)) for rows in rankings)
    return dict(zip(NAMES, found, strict=True))


def fitting(rows: Iterable[int], tokens: Ints, k: int, budget: int | None) -> list[int]:
    """The first `k` rows that fit the token budget (None: no budget); one that does not fit is passed over.

    The same rule as the memory's own assembly (core.retrieval.assemble.choose): all systems fill one context.
    """
    kept: list[int] = []
    left = float("inf") if budget is None else budget
    for row in rows:
        if len(kept) < k and tokens[row] <= left:
            kept.append(row)
            left -= int(tokens[row])
    return kept
