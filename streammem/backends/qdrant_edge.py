"""The embedded vector index: Qdrant's engine in this process, in a directory that one process holds at a time.

Two shards: `messages` (dense and BM25) and `summaries` (dense). Points are small rows of payload and never hold
text. Searches are exact: no HNSW graph is built, because building one holds the GIL for tens of seconds. The engine
keeps no log of its writes, because nothing ever leaves that: what is written is durable when it is flushed.
"""

from __future__ import annotations

import fcntl
import shutil
import struct
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, Generic, TypeVar
from uuid import UUID

import msgspec
import numpy as np
from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeOptimizersConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    FacetRequest,
    FieldCondition,
    Filter,
    HasIdCondition,
    IdfParams,
    MatchAny,
    MatchValue,
    Modifier,
    PayloadSchemaType,
    Point,
    Query,
    QueryBatchRequest,
    QueryRequest,
    RangeFloat,
    SearchParams,
    UpdateMode,
    UpdateOperation,
)

from streammem.backends.lexical import AVERAGE_LENGTH, bm25, words
from streammem.backends.qdrant_points import (
    MARGIN,
    MESSAGE_FIELDS,
    MESSAGE_SHOWN,
    NAMING_SHOWN,
    NODE_FIELDS,
    NODE_SHOWN,
    AnyOf,
    Between,
    Condition,
    Description,
    Is,
    Where,
    asked_for,
    best_messages,
    best_nodes,
    calls_of,
    canonical,
    corpus,
    cut_in_a_tie,
    erased,
    message_payload,
    message_shown,
    misworded,
    naming,
    node_payload,
    node_shown,
    other_calls,
    point_id,
    score,
    sought,
    summaries,
)
from streammem.errors import MemoryFormatError, MemoryHeldError
from streammem.ports import MessageHit, MessagePoint, NodeHit, NodePoint, NodeSearch, Vectors, Visible
from streammem.records import FOREVER, Naming, NodeId

_KEYWORD, _INTEGER = PayloadSchemaType.Keyword, PayloadSchemaType.Integer
_KINDS = {"keyword": _KEYWORD, "integer": _INTEGER}
_MESSAGE_INDEXES = {field: _KINDS[kind] for field, kind in MESSAGE_FIELDS.items()}
_NODE_INDEXES = {field: _KINDS[kind] for field, kind in NODE_FIELDS.items()}
_ALL = 2**31 - 1
_TIES = 3
"""Lexical hits fetched beyond the limit, times the limit: many messages say one of the words in one length, and a look
for the rest of a tie takes as long as the search."""
_NAMES = 1 << 15
"""Names of points at hand: 10 MB."""

Shown = TypeVar("Shown")


def discard(path: Path) -> None:
    """Remove whatever index is under `path`, damaged or of any model: before a rebuild. None there may be open."""
    if path.exists():
        shutil.rmtree(path)


class EdgeIndex:
    """VectorIndex over two Qdrant Edge shards in a directory under `path` that is named after the model.

    `fresh` says that the directory did not exist before: nothing has been indexed in it.
    Raises MemoryFormatError for an index of another model, size or format, MemoryHeldError if it is open elsewhere.
    """

    def __init__(self, path: Path, model: str, dimensions: int, average_length: float = AVERAGE_LENGTH) -> None:
        self._description = Description(model, dimensions, average_length)
        self._folder = path / self._description.name
        self._bm25 = bm25(average_length)
        _refuse_others(path, self._description)
        self.fresh = not self._folder.exists()
        self._open()

    def _open(self) -> None:
        if not self._folder.exists():
            _create(self._folder, self._description)
        with ExitStack() as opened:
            opened.enter_context(_hold(self._folder))
            self._messages = _load(self._folder / "messages", _message_config(self._description), _MESSAGE_INDEXES)
            opened.callback(self._messages.close)
            self._nodes = _load(self._folder / "summaries", _node_config(self._description), _NODE_INDEXES)
            opened.callback(self._nodes.close)
            self._opened = opened.pop_all()
        self._written: set[EdgeShard] = set()
        self._erased = False
        self._channels = _seen(self._messages, "channel")
        self._audiences = _seen(self._nodes, "audience")
        self._called = _seen(self._messages, "called")
        self._message_names = _Names(self._messages, MESSAGE_SHOWN, message_shown)
        self._node_names = _Names(self._nodes, NODE_SHOWN, node_shown)

    def close(self) -> None:
        """Release the directory. Nothing else may be called afterwards."""
        self._opened.close()

    def _write(self, shard: EdgeShard, operation: UpdateOperation) -> None:
        self._written.add(shard)
        shard.update(operation)

    async def flush(self) -> None:
        for shard in tuple(self._written):
            shard.flush()
            self._written.discard(shard)
        if self._erased:
            _vacuum(self._messages)
            _vacuum(self._nodes)
            self._erased = False

    async def clear(self) -> None:
        self.close()
        shutil.rmtree(self._folder)
        self._open()

    async def counts(self) -> dict[str, int]:
        everything = CountRequest(exact=True)
        return {"message points": self._messages.count(everything), "node points": self._nodes.count(everything)}

    # ---- messages
    async def upsert(self, points: Many[MessagePoint]) -> None:
        # Within one call the engine keeps the last of two points with one id; the contract keeps the first.
        first = {point.version.key: point for point in reversed(points)}
        if not first:
            return
        for point in first.values():
            self._channels[point.version.workspace][point.version.channel] += 1
            self._called[point.version.workspace].update(calls_of(point))
        batch = [self._message_point(point) for point in first.values()]
        self._write(self._messages, UpdateOperation.upsert_points(batch, update_mode=UpdateMode.InsertOnly))

    async def replace(self, points: Many[MessagePoint]) -> None:
        ids = [point_id(point.version.key) for point in points]
        found: list[Any] = self._messages.retrieve(list(set(ids)), with_payload=["until"], with_vector=False)
        untils = {record.id: record.payload["until"] for record in found}
        kept = [
            msgspec.structs.replace(point, until=min(point.until, untils.get(each, FOREVER)))
            for point, each in zip(points, ids, strict=True)
        ]
        await self.upsert(kept)  # those that are not there yet, and what is known of all of them
        if kept:
            self._write(self._messages, UpdateOperation.upsert_points([self._message_point(point) for point in kept]))

    async def misnamed(
        self, workspace: str, users: Mapping[str, str], channels: Mapping[str, str]
    ) -> list[tuple[str, Naming]]:
        others = other_calls(self._called.get(workspace, ()), users, channels)
        if not others:
            return []
        where = _filter(misworded(workspace, others))
        count = self._messages.count(CountRequest(filter=where, exact=True))
        for call in others if not count else ():
            del self._called[workspace][call]
        points: list[Any] = (
            self._messages.query(QueryRequest(count, filter=where, with_payload=NAMING_SHOWN)) if count else []
        )
        return sorted((point.payload["key"], naming(point.payload)) for point in points)

    def _message_point(self, point: MessagePoint) -> Point:
        vectors = {"dense": point.vector.tolist(), "lexical": self._bm25.embed_document(words(point.lexical))}
        return Point(point_id(point.version.key), vectors, message_payload(point))

    async def lower(self, untils: Mapping[str, int]) -> None:
        keys: dict[int, set[Any]] = defaultdict(set)
        for key, until in untils.items():
            keys[until].add(point_id(key))
        for until, ids in keys.items():
            higher = Filter(must=[HasIdCondition(ids), _condition(Between("until", above=until))])
            self._write(self._messages, UpdateOperation.set_payload_by_filter(higher, {"until": until}))

    async def erase(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> None:
        """Nobody finds them any more; the next `flush` takes them out of the files as well."""
        for where in map(_filter, erased(workspace, uids, users)):
            if self._messages.count(CountRequest(filter=where, exact=True)):
                self._write(self._messages, UpdateOperation.delete_points_by_filter(where))
                self._erased = True

    async def traces(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> int:
        parts = map(_filter, erased(workspace, uids, users))
        return sum(self._messages.count(CountRequest(filter=where, exact=True)) for where in parts)

    async def known(self, keys: Many[str]) -> set[str]:
        ids = {point_id(key): key for key in keys}
        found: list[Any] = self._messages.retrieve(list(ids), with_payload=False, with_vector=False)
        return {ids[record.id] for record in found}

    async def vectors(self, keys: Many[str]) -> list[Vectors | None]:
        ids = [point_id(key) for key in keys]
        found: list[Any] = self._messages.retrieve(list(set(ids)), with_payload=False, with_vector=["dense"])
        packed = struct.Struct(f"<{self._description.dimensions}f").pack  # half the time of an array of the list
        dense = {record.id: np.frombuffer(packed(*record.vector["dense"]), "<f4") for record in found}
        return [dense.get(each) for each in ids]

    async def cosines(self, vector: Vectors, keys: Many[str]) -> list[float | None]:
        if not keys:
            return []
        ids = [point_id(key) for key in keys]
        these = Filter(must=[HasIdCondition(set(ids))])
        near = Query.Nearest(vector.tolist(), using="dense")
        hits: list[Any] = self._messages.query(QueryRequest(len(ids), query=near, filter=these))
        scores = {hit.id: round(hit.score, 5) for hit in hits}
        return [scores.get(each) for each in ids]

    async def find_messages(
        self, vector: Vectors, lexical: str, limit: int, visible: Visible
    ) -> tuple[list[MessageHit], list[MessageHit]]:
        allowed = _narrow("channel", visible.channels, self._channels.get(visible.workspace, Counter()))
        if allowed is None or limit < 1:
            return [], []
        readable = _in_one(self._channels, corpus(visible, allowed))
        asked = _filter(asked_for(readable, visible))
        near = Query.Nearest(vector.tolist(), using="dense")
        dense, sparse = self._hits(
            [_Search(near, asked, limit), self._worded(lexical, asked, limit, _filter(readable))]
        )
        return dense, sparse

    async def find_words(self, texts: Many[str], limit: int, visible: Visible) -> list[list[MessageHit]]:
        allowed = _narrow("channel", visible.channels, self._channels.get(visible.workspace, Counter()))
        if allowed is None or limit < 1 or not texts:
            return [[] for _ in texts]
        readable = _in_one(self._channels, corpus(visible, allowed))
        asked, counted = _filter(asked_for(readable, visible)), _filter(readable)
        return self._hits([self._worded(text, asked, limit, counted) for text in texts])

    def _hits(self, searches: Many[_Search]) -> list[list[MessageHit]]:
        found = _run(self._messages, searches)
        names = self._message_names.of(found)
        return [
            best_messages((MessageHit(*names[each], value) for each, value in some), search.limit)
            for some, search in zip(found, searches, strict=True)
        ]

    def _worded(self, text: str, asked: Filter, limit: int, readable: Filter) -> _Search:
        """A lexical search; words are rare or common among what is readable."""
        query = Query.Nearest(self._bm25.embed_query(words(text)), using="lexical")
        idf = SearchParams(idf=IdfParams(corpus=readable))
        return _Search(query, asked, limit, MARGIN + _TIES * limit, idf)

    # ---- summaries
    async def keep_nodes(self, points: Many[NodePoint]) -> None:
        if not points:
            return
        for point in points:
            self._audiences[point.summary.node.sequence.workspace][point.audience] += 1
        self._write(self._nodes, UpdateOperation.upsert_points([_node_point(point) for point in points]))

    async def drop_nodes(self, nodes: Many[NodeId]) -> None:
        ids: list[Any] = [point_id(canonical(node)) for node in nodes]
        found: list[Any] = self._nodes.retrieve(ids, with_payload=False, with_vector=False)
        if found:
            self._nodes.update(UpdateOperation.delete_points([record.id for record in found]))
            self._nodes.flush()  # the store forgets them next: it could not name them again

    async def find_nodes(self, vector: Vectors, searches: Many[NodeSearch], visible: Visible) -> list[list[NodeHit]]:
        allowed = _narrow("audience", visible.audiences, self._audiences.get(visible.workspace, Counter()))
        if allowed is None or not searches:
            return [[] for _ in searches]
        readable = _in_one(self._audiences, summaries(visible, allowed))
        near = Query.Nearest(vector.tolist(), using="dense")
        found = _run(self._nodes, [_Search(near, _filter(sought(readable, s)), s.limit) for s in searches])
        names = self._node_names.of(found)
        return [
            best_nodes((NodeHit(names[each], value) for each, value in some), search.limit)
            for some, search in zip(found, searches, strict=True)
        ]


# ------------------------------------------------------------------------------------------- the directory


def _refuse_others(path: Path, wanted: Description) -> None:
    for folder in sorted(path.glob("[!.]*/")):
        if (stored := _described(folder / "index.json")) != wanted:
            raise MemoryFormatError(f"{path} was indexed with {stored}, wanted is {wanted}: {stored.mend(wanted)}")


def _described(file: Path) -> Description:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Description)
    except (OSError, msgspec.DecodeError) as error:
        raise MemoryFormatError(f"{file} cannot be read ({error}): run `streammem rebuild` to index again") from None


def _create(folder: Path, description: Description) -> None:
    """Make the directory whole under another name, then rename it: one that exists is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _create_shard(draft / "messages", _message_config(description), _MESSAGE_INDEXES)
        _create_shard(draft / "summaries", _node_config(description), _NODE_INDEXES)
        (draft / "index.json").write_bytes(msgspec.json.encode(description))
        with suppress(FileExistsError):  # another process was first: loading says so
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _create_shard(path: Path, config: EdgeConfig, indexes: Mapping[str, Any]) -> None:
    path.mkdir()
    shard = EdgeShard.create(str(path), config)
    for field, kind in indexes.items():
        shard.update(UpdateOperation.create_field_index(field, kind))
    shard.close()


def _message_config(description: Description) -> EdgeConfig:
    return _config(description, sparse_vectors={"lexical": EdgeSparseVectorParams(modifier=Modifier.Idf)})


def _node_config(description: Description) -> EdgeConfig:
    return _config(description)


def _config(description: Description, **more: Any) -> EdgeConfig:
    """The engine's optimizer, which runs when it is told to, rids segments of what was deleted and does nothing else.

    Its thresholds of size are out of reach: it builds no graph and splits nothing.
    """
    optimizers = EdgeOptimizersConfig(
        deleted_threshold=1e-9,  # of all points: any
        vacuum_min_vector_number=1,
        default_segment_number=1,
        indexing_threshold=10**9,
        max_segment_size=10**9,
    )
    dense = {"dense": EdgeVectorParams(description.dimensions, Distance.Cosine)}
    return EdgeConfig(vectors=dense, optimizers=optimizers, wal_enabled=False, **more)


def _hold(folder: Path) -> IO[bytes]:
    """Take the directory. The lock goes with the file, and with the process, however that ends."""
    file = (folder / "index.json").open("rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise MemoryHeldError(f"{folder} is open in another process: wait for it to end or stop it") from None
    return file


def _load(path: Path, config: EdgeConfig, indexes: Mapping[str, Any]) -> EdgeShard:
    shutil.rmtree(path / "temp_segments", ignore_errors=True)  # of a vacuum that was killed
    try:
        if (path / "wal").exists():
            _drop_log(path)
        shard = EdgeShard.load(str(path), config)
    except Exception as error:
        raise MemoryFormatError(f"{path} cannot be read ({error}): run `streammem rebuild` to index again") from error
    try:
        _index_fields(shard, path, indexes)
        _vacuum(shard)  # an erasure that was killed before it ended
    except BaseException:
        shard.close()
        raise
    return shard


def _drop_log(path: Path) -> None:
    """Make of a shard with a log, as they were made before, one without."""
    shard = EdgeShard.load(str(path))
    shard.flush()  # all that the log holds is in the segments now
    shard.close()
    file = path / "edge_config.json"
    config = msgspec.json.decode(file.read_bytes()) | {"wal_enabled": False}
    (path / "edge_config.new").write_bytes(msgspec.json.encode(config))
    (path / "edge_config.new").replace(file)
    shutil.rmtree(path / "wal")


def _index_fields(shard: EdgeShard, path: Path, indexes: Mapping[str, Any]) -> None:
    """Create the payload indexes that are missing: a field that has come to be searched by."""
    stored = {field: index.data_type for field, index in shard.info().payload_schema.items()}
    if wrong := sorted(field for field, kind in indexes.items() if stored.get(field, kind) != kind):
        raise MemoryFormatError(
            f"{path} has an index of another kind on {', '.join(wrong)}: run `streammem rebuild` to index again"
        )
    for field in indexes.keys() - stored.keys():
        shard.update(UpdateOperation.create_field_index(field, indexes[field]))


def _vacuum(shard: EdgeShard) -> None:
    """Take deleted points out of the files. The engine writes their segment anew and holds the GIL meanwhile.

    That takes 2 s at 33,000 points of 384 dimensions, 6 s at 100,000, and nothing where none is deleted.
    """
    shard.flush()  # a kill must not bring them back
    shard.optimize()
    shard.flush()  # the old segment goes


def _seen(shard: EdgeShard, field: str) -> defaultdict[str, Counter[str]]:
    """How many points each workspace has under each value of a field (at least: replaced points count again)."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for workspace in _facet(shard, "workspace", None):
        seen[workspace] = _facet(shard, field, _filter(Where((Is("workspace", workspace),))))
    return seen


def _facet(shard: EdgeShard, field: str, only: Filter | None) -> Counter[str]:
    return Counter({hit.value: hit.count for hit in shard.facet(FacetRequest(field, _ALL, exact=True, filter=only))})


# ------------------------------------------------------------------------------------------------ searches


_Scored = tuple[UUID, float]


class _Search(msgspec.Struct, frozen=True):
    """`margin` is how many points are fetched beyond the limit."""

    query: Any
    where: Any
    limit: int
    margin: int = MARGIN
    params: Any = None

    def fetching(self, count: int) -> QueryRequest:
        return QueryRequest(count, query=self.query, filter=self.where, with_payload=False, params=self.params)


def _run(shard: EdgeShard, searches: Many[_Search]) -> list[list[_Scored]]:
    """The best points of each search, as many as its limit and all that tie with the last of them."""
    batch = QueryBatchRequest([search.fetching(search.limit + search.margin) for search in searches])
    found = shard.query_batch(batch)
    return [_with_ties(shard, search, points) for search, points in zip(searches, found, strict=True)]


def _with_ties(shard: EdgeShard, search: _Search, points: list[Any]) -> list[_Scored]:
    count = search.limit + search.margin
    while cut_in_a_tie(points, search.limit, count):
        count *= 4
        points = shard.query(search.fetching(count))
    least = score(points[search.limit - 1]) if len(points) > search.limit else float("-inf")
    scored = ((point.id, score(point)) for point in points)
    return list(takewhile(lambda one: one[1] >= least, scored))


class _Names(Generic[Shown]):
    """What points are named in their payload. It never changes: those met lately, at most `_NAMES`, are at hand.

    Payloads lie in the file as JSON; reading them takes longer than finding them.
    """

    def __init__(self, shard: EdgeShard, fields: list[str], shown: Callable[[Mapping[str, Any]], Shown]) -> None:
        self._shard, self._fields, self._shown = shard, fields, shown
        self._known: dict[UUID, Shown] = {}

    def of(self, found: Iterable[Iterable[_Scored]]) -> Mapping[UUID, Shown]:
        """The names of found points, and of others."""
        ids = {each for some in found for each, _ in some}
        new: list[Any] = [each for each in ids if each not in self._known]
        if len(self._known) + len(new) > _NAMES:
            self._known, new = {}, list(ids)
        if new:
            records: list[Any] = self._shard.retrieve(new, with_payload=self._fields, with_vector=False)
            self._known.update((record.id, self._shown(record.payload)) for record in records)
        return self._known


# ------------------------------------------------------------------------------------------------- filters


def _filter(where: Where) -> Filter:
    return Filter(must=[*map(_condition, where.must)], must_not=[*map(_condition, where.must_not)])


def _condition(condition: Condition) -> FieldCondition:
    match condition:
        case Is(field, value):
            return FieldCondition(field, match=MatchValue(value))
        case AnyOf(field, values):
            return FieldCondition(field, match=MatchAny(list(values)))
        case Between(field, at_least, above, to, below):
            return FieldCondition(field, range=RangeFloat(gte=at_least, gt=above, lte=to, lt=below))


def _in_one(seen: Mapping[str, Counter[str]], where: Where) -> Where:
    """The same without naming the workspace, where the index has no other: checking it takes a tenth of a search.

    Closed as well, see `_narrow`: every workspace is counted before its first point is written.
    """
    if len(seen) > 1:
        return where
    return Where(tuple(c for c in where.must if not (isinstance(c, Is) and c.field == "workspace")), where.must_not)


def _narrow(field: str, allowed: frozenset[str] | None, seen: Counter[str]) -> Where | None:
    """What leaves only allowed values of a field; None if nothing is left.

    Naming values that hold most points is slow: at 33,000 points 33 ms for half of 300 channels, 14 for the other
    half hidden. So the visible are named only where they hold less than a third, else the hidden.
    That is closed as well: one process holds the index and counts every value before its first point is written,
    so no point has a value that is on neither list.
    """
    shown = seen.keys() if allowed is None else seen.keys() & allowed
    hidden = seen.keys() - shown
    if not shown:
        return None
    if not hidden:
        return Where()
    if 3 * sum(seen[value] for value in shown) <= seen.total():
        return Where((AnyOf(field, tuple(sorted(shown))),))
    return Where((), (AnyOf(field, tuple(sorted(hidden))),))


def _node_point(point: NodePoint) -> Point:
    vectors = {"dense": np.frombuffer(point.summary.vector, "<f4").tolist()}
    return Point(point_id(canonical(point.summary.node)), vectors, node_payload(point))
