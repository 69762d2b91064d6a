"""Node summaries: what a node is made from, which nodes need renewal, and the extractive summary (design §3, §7).

A summary is navigation. Its text quotes messages under `<@user>` marks that are turned into names when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec
import numpy as np
import numpy.typing as npt

from streammem.core import forest
from streammem.core.events import channel_of
from streammem.core.identifiers import MARKER_RULES
from streammem.core.numbers import Summarizing
from streammem.records import Leaf, NodeId, Redaction, Sequence, Summary, Version, Wording

Vector = npt.NDArray[np.float32]


class Source(msgspec.Struct, frozen=True):
    """A live leaf as a summariser reads it: its version, its vector, and who may read it."""

    version: Version
    vector: Vector
    audience: str


class Reading(msgspec.Struct, frozen=True):
    """What was read for one node. `vector` is the mean over `count` leaves; `candidates` may be quoted."""

    node: NodeId
    first: Leaf
    last: Leaf
    count: int
    made_from: str
    channels: tuple[str, ...]
    markers: tuple[str, ...]
    latest: int
    vector: Vector
    candidates: tuple[Source, ...]


class Words(msgspec.Struct, frozen=True):
    """An extractive text and the uids of the messages it quotes."""

    text: str
    picks: tuple[str, ...]


def audience_of(channel: str, *, public: bool) -> str:
    """Who may read: "public" for the whole workspace, else the id of the one channel."""
    return "public" if public else channel


def audience_of_summary(summary: Summary | Wording, is_public: Callable[[str], bool]) -> str:
    """Who may read a summary: it is made from public channels, or from the one private channel it names."""
    return audience_of(summary.channels[0], public=all(map(is_public, summary.channels)))


def read_by_everyone(sequence: Sequence) -> bool:
    """Whether a sequence pools channels, so that only leaves of public channels may be summarised in it."""
    return sequence.view == "artifact"


def grouped(sequence: Sequence, leaves: Iterable[Leaf], is_public: Callable[[str], bool]) -> list[Leaf]:
    """The leaves that the nodes of a sequence group by k: where channels are pooled, those of public channels only.

    Grouping the others too would show in the summaries how many there are and where (design §5, Audience).
    """
    return [leaf for leaf in leaves if not read_by_everyone(sequence) or is_public(channel_of(leaf.uid))]


def reading_of_leaves(node: NodeId, live: Many[tuple[Leaf, Source]]) -> Reading | None:
    """Read a level-1 node from its live leaves in order. None when none is live."""
    if not live:
        return None
    sources = [source for _, source in live]
    versions = [s.version for s in sources]
    return Reading(
        node=node,
        first=live[0][0],
        last=live[-1][0],
        count=len(sources),
        made_from=forest.digest(f"{s.version.key}|{s.audience}" for s in sources),
        channels=tuple(sorted({v.channel for v in versions})),
        markers=_ordered({m for v in versions for m in v.markers}),
        latest=max(v.since for v in versions),
        vector=np.mean([s.vector for s in sources], axis=0, dtype=np.float32),
        candidates=tuple(sources),
    )


def reading_of_children(node: NodeId, children: Many[Summary], quoted: Mapping[str, Source]) -> Reading | None:
    """Read a node above level 1 from the summaries below it, in order. `quoted` holds the messages they quote."""
    if not children:
        return None
    weights = np.array([c.count for c in children], dtype=np.float32)
    vectors = np.stack([np.frombuffer(c.vector, dtype=np.float32) for c in children])
    return Reading(
        node=node,
        first=min(c.first for c in children),
        last=max(c.last for c in children),
        count=int(weights.sum()),
        made_from=forest.digest(c.made_from for c in children),
        channels=tuple(sorted({channel for c in children for channel in c.channels})),
        markers=_ordered({m for c in children for m in c.markers}),
        latest=max(c.latest for c in children),
        vector=(weights @ vectors / weights.sum()).astype(np.float32),
        candidates=tuple(quoted[uid] for c in children for uid in c.picks if uid in quoted),
    )


def _ordered(markers: set[str]) -> tuple[str, ...]:
    return tuple(name for name in MARKER_RULES if name in markers) + tuple(sorted(markers - MARKER_RULES.keys()))


def is_current(summary: Summary | None, reading: Reading, *, is_root: bool, serial: int) -> bool:
    """Whether a stored summary still says what the reading would say, and nothing hides it."""
    return (
        summary is not None
        and summary.made_from == reading.made_from
        and summary.is_root == is_root
        and summary.serial >= serial
        and (summary.first, summary.last) == (reading.first, reading.last)
        and summary.vector == reading.vector.tobytes()
    )


def hidden(summary: Summary | Wording, redactions: Iterable[Redaction]) -> bool:
    """Whether a leaf under the summary changed after it was made: it is then never shown (design §3)."""
    return any(summary.first <= r.leaf <= summary.last and r.serial > summary.serial for r in redactions)


def shows(summary: Summary | Wording, visible: frozenset[str] | None, moment: int | None) -> bool:
    """Whether a reader of the `visible` channels (None: all) may see it as of `moment` (None: now)."""
    if moment is not None and summary.latest > moment:
        return False
    return visible is None or visible.issuperset(summary.channels)


# ----------------------------------------------------------------------------------------- extractive summary


def picks(candidates: Many[Source], centroid: Vector, numbers: Summarizing, view: str) -> list[int]:
    """Indices of the messages to quote, in order: near the centroid, unlike one another (MMR), by emphasis of the view.

    Carbonell and Goldstein 1998 (MMR). The channel and artifact views lean to messages that show a lifecycle
    marker, which is where decisions and transitions are said (EGCForest §3.1.1).
    """
    vectors = np.stack([c.vector for c in candidates])
    norm = float(np.linalg.norm(centroid)) or 1.0
    worth = vectors @ (centroid / norm)
    if view != "actor":
        worth = worth + np.array([0.1 * bool(c.version.markers) for c in candidates], dtype=np.float32)
    chosen: list[int] = []
    likeness = np.zeros(len(candidates), dtype=np.float32)
    while len(chosen) < min(numbers.quotes, len(candidates)):
        score = numbers.diversity * worth - (1 - numbers.diversity) * likeness
        score[chosen] = -np.inf
        best = int(np.argmax(np.round(score, 5)))  # rounded, so that equal texts tie the same way on every machine
        chosen.append(best)
        likeness = np.maximum(likeness, vectors @ vectors[best])
    return sorted(chosen)


def quote(version: Version, length: int) -> str:
    """One message on one line, cut at a word."""
    text = " ".join(version.text.split())
    if len(text) > length:
        text = text[:length].rsplit(" ", 1)[0] + "…"
    return f"<@{version.user}>: {text}"


def extract(reading: Reading, numbers: Summarizing) -> Words:
    """Word a node by its own messages: deterministic, offline."""
    if not reading.candidates:
        return Words("", ())
    chosen = picks(reading.candidates, reading.vector, numbers, reading.node.sequence.view)
    quoted = {reading.candidates[i].version.uid: reading.candidates[i].version for i in chosen}
    return Words(" · ".join(quote(v, numbers.quote_length) for v in quoted.values()), tuple(quoted))


def said_whole(summary: Summary) -> bool:
    """Whether its quotes are all that was said under a node, uncut: a language model could add nothing.

    A single message needs no summary either, however long it is.
    """
    whole = len(summary.picks) == summary.count and not any(q.endswith("…") for q in summary.text.split(" · "))
    return summary.count == 1 or whole


def written(reading: Reading, words: Words, *, is_root: bool, serial: int) -> Summary:
    """The summary to store for a reading that has been worded."""
    return Summary(
        node=reading.node,
        text=words.text,
        first=reading.first,
        last=reading.last,
        count=reading.count,
        made_from=reading.made_from,
        channels=reading.channels,
        markers=reading.markers,
        latest=reading.latest,
        serial=serial,
        is_root=is_root,
        vector=reading.vector.astype("<f4").tobytes(),
        picks=words.picks,
    )
