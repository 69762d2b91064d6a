"""What Qdrant's engine and its server share: names, ids, payload, what may be seen, hits. Plain values only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from functools import lru_cache
from typing import Any, Literal
from uuid import UUID, uuid5

import msgspec

from streammem.backends.memory_vectors import DIGITS
from streammem.ports import MessageHit, MessagePoint, NodeHit, NodePoint, NodeSearch, Visible
from streammem.records import FOREVER, Naming, NodeId

FORMAT = 3
"""Of payload, point ids and lexical weights. Another number means: index again."""

MARGIN = 16
"""Hits fetched beyond the limit, so that a tie at the limit is seen and broken by key."""

Kind = Literal["keyword", "integer"]
MESSAGE_FIELDS: dict[str, Kind] = {
    "workspace": "keyword",
    "channel": "keyword",
    "user": "keyword",
    "uid": "keyword",
    "ts": "integer",
    "from": "integer",
    "until": "integer",
    "called": "keyword",  # who and what the words name as the directory did: found again when it says otherwise
}
"""The fields of message points that are searched by, and the kind of their payload index."""
NODE_FIELDS: dict[str, Kind] = {
    "workspace": "keyword",
    "view": "keyword",
    "tree": "keyword",
    "audience": "keyword",
    "is_root": "integer",  # 0 or 1: the engine's boolean index took 155 ms where an integer takes 15 (33,000 points)
    "latest": "integer",
}
MESSAGE_SHOWN, NODE_SHOWN = ["uid", "key"], ["node"]
"""The fields that a hit is made of."""
NAMING_SHOWN = ["key", "speaker", "room", "called"]
"""The fields that tell what a message was worded with."""
PIECE = 1000
"""Messages named in one filter."""
_POINTS = UUID("6f1d3a52-6c1b-5a53-9f0e-2b7a4c0d9e11")


class Description(msgspec.Struct, frozen=True):
    """What the stored vectors and weights were made with."""

    model: str
    dimensions: int
    average_length: float
    format: int = FORMAT

    @property
    def name(self) -> str:
        """The model and its size as a name for a directory or collection."""
        return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', self.model)}-{self.dimensions}"

    def mend(self, wanted: Description) -> str:
        """What to do about an index of this make when another is wanted."""
        if msgspec.structs.replace(self, format=wanted.format) == wanted:
            return "this version of streammem indexes words otherwise: run `streammem rebuild` to index again"
        return "set the model back, or run `streammem rebuild` to index again"

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions} dimensions, mean length {self.average_length:g}, format {self.format})"


# -------------------------------------------------------------------------------------------------- points


@lru_cache(1 << 15)  # a question weighs a thousand messages, many of them the same as the one before: 5 ms
def point_id(name: str) -> UUID:
    """The id of the point of a Version.key or of a canonical node."""
    return uuid5(_POINTS, name)


def canonical(node: NodeId) -> str:
    """A node as text, for ever the same."""
    return msgspec.json.encode(node).decode()


def message_payload(point: MessagePoint) -> dict[str, Any]:
    """What is stored beside the vectors of a message version: no text."""
    version = point.version
    return {
        "workspace": version.workspace,
        "channel": version.channel,
        "user": version.user,
        "ts": version.ts,
        "from": version.since,
        "until": point.until,
        "identifiers": list(version.identifiers),
        "key": version.key,
        "uid": version.uid,
        "speaker": point.naming.speaker,
        "room": point.naming.room,
        "called": calls_of(point),
    }


def node_payload(point: NodePoint) -> dict[str, Any]:
    """What is stored beside the vector of a summary: no text."""
    summary = point.summary
    node, sequence = summary.node, summary.node.sequence
    return {
        "workspace": sequence.workspace,
        "view": sequence.view,
        "tree": sequence.tree,
        "sequence": msgspec.json.encode(sequence).decode(),
        "level": node.level,
        "index": node.index,
        "is_root": int(summary.is_root),
        "audience": point.audience,
        "latest": summary.latest,
        "node": canonical(node),
    }


# --------------------------------------------------------------------------------------------------- names


def calls_of(point: MessagePoint) -> list[str]:
    """What the words of a message call its speaker and its channel, where they follow the directory."""
    naming, version = point.naming, point.version
    calls = {
        "user": _call("user", version.user, naming.speaker),
        "channel": _call("channel", version.channel, naming.room),
    }
    return [calls[entity] for entity in naming.follows]


def other_calls(calls: Iterable[str], users: Mapping[str, str], channels: Mapping[str, str]) -> list[str]:
    """Those of the calls that are about one of these users or channels and call it otherwise, sorted."""
    now = {_call("user", user, name) for user, name in users.items()}
    now |= {_call("channel", channel, name) for channel, name in channels.items()}
    about = set(map(_entity, now))
    return sorted(call for call in calls if call not in now and _entity(call) in about)


def misworded(workspace: str, others: Many[str]) -> Where:
    """The messages whose words call somebody so."""
    return Where((Is("workspace", workspace), AnyOf("called", tuple(others))))


def naming(payload: Mapping[str, Any]) -> Naming:
    """The names that a message was worded with."""
    follows = tuple(_entity(call)[0] for call in payload["called"])
    return Naming(payload["speaker"], payload["room"], follows)


def _call(entity: str, name: str, called: str) -> str:
    return msgspec.json.encode([entity, name, called]).decode()


def _entity(call: str) -> tuple[str, str]:
    entity, name, _ = msgspec.json.decode(call, type=tuple[str, str, str])
    return entity, name


# ------------------------------------------------------------------------------------------ what may be seen


class Is(msgspec.Struct, frozen=True):
    """The field has this value."""

    field: str
    value: str | int


class AnyOf(msgspec.Struct, frozen=True):
    """The field has one of these values."""

    field: str
    values: tuple[str, ...]


class Between(msgspec.Struct, frozen=True):
    """The field lies within bounds. Microseconds until 2255 are exact as doubles."""

    field: str
    at_least: int | None = None
    above: int | None = None
    to: int | None = None
    below: int | None = None


Condition = Is | AnyOf | Between


class Where(msgspec.Struct, frozen=True):
    """All of `must` and none of `must_not`."""

    must: tuple[Condition, ...] = ()
    must_not: tuple[Condition, ...] = ()

    def and_(self, *must: Condition, but_not: tuple[Condition, ...] = ()) -> Where:
        return Where((*self.must, *must), (*self.must_not, *but_not))


def corpus(visible: Visible, allowed: Where) -> Where:
    """The messages that the asker may read at the moment asked about, `allowed` saying in which channels."""
    must = (Is("workspace", visible.workspace), *_standing(visible.moment), *allowed.must)
    return Where(must, allowed.must_not)


def _standing(moment: int | None) -> tuple[Condition, ...]:
    if moment is None:
        return (Is("until", FOREVER),)
    return Between("from", to=moment), Between("until", above=moment)


def asked_for(readable: Where, visible: Visible) -> Where:
    """The part of a corpus that may be found."""
    bounded = visible.since is not None or visible.until is not None
    within = (Between("ts", at_least=visible.since, below=visible.until),) if bounded else ()
    excluded = (AnyOf("uid", tuple(sorted(visible.exclude))),) if visible.exclude else ()
    return readable.and_(*within, but_not=excluded)


def summaries(visible: Visible, allowed: Where) -> Where:
    """The summaries that the asker may be led by, `allowed` saying of which audiences."""
    said = () if visible.moment is None else (Between("latest", to=visible.moment),)
    return Where((Is("workspace", visible.workspace), *said, *allowed.must), allowed.must_not)


def sought(readable: Where, search: NodeSearch) -> Where:
    """The part of the summaries that one search is for."""
    roots = (Is("is_root", 1),) if search.roots_only else ()
    trees = (AnyOf("tree", search.trees),) if search.trees else ()
    return readable.and_(Is("view", search.view), *roots, *trees)


def erased(workspace: str, uids: Many[str], users: Many[str]) -> Iterator[Where]:
    """All that was said by these users, then these messages of others: no point lies in two of the parts."""
    here, theirs = Is("workspace", workspace), (AnyOf("user", tuple(sorted(set(users)))),) if users else ()
    if users:
        yield Where((here, *theirs))
    names = sorted(set(uids))
    for i in range(0, len(names), PIECE):
        yield Where((here, AnyOf("uid", tuple(names[i : i + PIECE]))), theirs)


# ---------------------------------------------------------------------------------------------------- hits


def score(point: Any) -> float:
    """A point's score as it is compared: engines whose last bits differ break ties alike."""
    return round(float(point.score), DIGITS)


def cut_in_a_tie(points: Many[Any], limit: int, fetched: int) -> bool:
    """Whether more points than were fetched may tie with the last one within the limit."""
    return len(points) == fetched and score(points[limit - 1]) == score(points[-1])


def message_hits(points: Iterable[Any], limit: int) -> list[MessageHit]:
    """The best of found points."""
    return best_messages((MessageHit(*message_shown(point.payload), score(point)) for point in points), limit)


def best_messages(hits: Iterable[MessageHit], limit: int) -> list[MessageHit]:
    """The best hits, those of one score by key."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:limit]


def message_shown(payload: Mapping[str, Any]) -> tuple[str, str]:
    """The uid and the key of a message version."""
    return payload["uid"], payload["key"]


def node_hits(points: Iterable[Any], limit: int) -> list[NodeHit]:
    """The best of found points."""
    return best_nodes((NodeHit(node_shown(point.payload), score(point)) for point in points), limit)


def best_nodes(hits: Iterable[NodeHit], limit: int) -> list[NodeHit]:
    """The best hits, those of one score by node."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.node))[:limit]


def node_shown(payload: Mapping[str, Any]) -> NodeId:
    """The node that a point is of."""
    return msgspec.json.decode(payload["node"], type=NodeId)
