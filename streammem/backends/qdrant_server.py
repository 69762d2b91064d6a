"""The vector index on a Qdrant server: two collections that any number of processes read and write.

`messages` (dense and BM25) and `summaries` (dense), each named after the model, so that another model is another
collection. An alias without the model's name says which one is in use. Points are small rows of payload and never
hold text. The server builds its HNSW graphs by itself when a collection outgrows a flat search.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

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
    Kind,
    Where,
    asked_for,
    calls_of,
    canonical,
    corpus,
    cut_in_a_tie,
    erased,
    message_hits,
    message_payload,
    misworded,
    naming,
    node_hits,
    node_payload,
    other_calls,
    point_id,
    sought,
    summaries,
)
from streammem.errors import MemoryFormatError, MissingExtraError, SettingsError, TransientError
from streammem.ports import MessageHit, MessagePoint, NodeHit, NodePoint, NodeSearch, Vectors, Visible
from streammem.records import Naming, NodeId

try:
    import httpx
    from qdrant_client import AsyncQdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
except ModuleNotFoundError as error:
    raise MissingExtraError("qdrant-client", "qdrant") from error

LEAST = (1, 19)
"""The oldest server that may be used: the first that counts IDF over what the asker may read. Older ones ignore
being told so, and their scores leak what others write."""

_BATCH = 256  # points in one request: 2 MB of JSON at 384 dimensions; a server takes 32
_PAGE = 1000
_FACETS = 1 << 16
_KINDS = {"keyword": models.PayloadSchemaType.KEYWORD, "integer": models.PayloadSchemaType.INTEGER}

T = TypeVar("T")


class _Collection(msgspec.Struct, frozen=True):
    name: str
    alias: str
    fields: dict[str, Kind]
    lexical: bool


class QdrantIndex:
    """VectorIndex over the collections `<prefix>-messages-<model>-<dimensions>` and `<prefix>-summaries-...`.

    `await open()` first, `await close()` last. `fresh`, after opening, says that this process made the collection
    of messages: nothing has been indexed in it. A process reads and writes the collections of its own model, never
    through the alias: a switch by another process cannot mix vectors of two models. Every write returns when the
    server has it in its log and has applied it. There is one shard, because the server counts IDF in each shard by
    itself. Raises TransientError while the server is away, SettingsError where it refuses.
    """

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        *,
        prefix: str = "streammem",
        api_key: str | None = None,
        average_length: float = AVERAGE_LENGTH,
        timeout: int = 30,
        client: AsyncQdrantClient | None = None,
    ) -> None:
        self._description = Description(model, dimensions, average_length)
        self._bm25 = bm25(average_length)
        messages, nodes = f"{prefix}-messages", f"{prefix}-summaries"
        self._messages = _Collection(f"{messages}-{self._description.name}", messages, MESSAGE_FIELDS, lexical=True)
        self._nodes = _Collection(f"{nodes}-{self._description.name}", nodes, NODE_FIELDS, lexical=False)
        self._place = _place(url)
        self._owned = client is None
        self._client = client or _client(url, api_key, timeout)
        self.fresh = False

    # ---- the collections
    async def open(self, *, rebuild: bool = False) -> None:
        """Create what is missing and assert the rest. Safe to run in several processes at once, and again.

        Raises SettingsError for a server that is too old or refuses, MemoryFormatError for collections of another
        make, and where the alias stands for another model's. With `rebuild` that alias is left alone until `switch`,
        and collections of another make are dropped and created again.
        """
        await self.check_server()
        if not rebuild:
            self._refuse_others(await self._used())
        self.fresh = await self._ensure(self._messages, rebuild)
        await self._ensure(self._nodes, rebuild)
        await self._name(over=False)
        if not rebuild:
            self._refuse_others(await self._used())

    async def switch(self) -> None:
        """Let both aliases stand for this model's collections, in one step. The last step of a rebuild."""
        await self._name(over=True)

    async def close(self) -> None:
        """Release the connections. Nothing else may be called afterwards."""
        if self._owned:
            await self._client.close()

    async def check_server(self) -> None:
        """Raise what is wrong with the server: it is away, too old, or no Qdrant."""
        try:
            info = await self._ask("ask for its version", self._client.info())
        except (ApiException, ValueError) as error:  # another status, or no JSON
            raise SettingsError(
                f"{self._place} does not answer as a Qdrant server does: set the URL of one, http://HOST:6333"
            ) from error
        if tuple(map(int, re.findall(r"\d+", info.version)[:2])) < LEAST:
            raise SettingsError(
                f"Qdrant at {self._place} is version {info.version}: {LEAST[0]}.{LEAST[1]} or newer is needed, "
                "older ones let hidden messages move the scores of visible ones"
            )

    async def _used(self) -> dict[str, tuple[str, Any]]:
        """What each alias of this memory stands for: the collection's name and what it says about itself."""
        found = await self._ask("read the aliases", self._client.get_aliases())
        ours = {self._messages.alias, self._nodes.alias}
        names = {a.alias_name: a.collection_name for a in found.aliases if a.alias_name in ours}
        return {alias: (name, (await self._info(name)).config.metadata) for alias, name in names.items()}

    def _refuse_others(self, used: Mapping[str, tuple[str, Any]]) -> None:
        for collection in (self._messages, self._nodes):
            name, metadata = used.get(collection.alias, (collection.name, None))
            if name != collection.name:
                raise MemoryFormatError(
                    f"{collection.alias} of Qdrant at {self._place} was indexed with {_described(metadata) or name}, "
                    f"the settings say {self._description}: set the model back, or run `streammem rebuild`"
                )

    async def _name(self, *, over: bool) -> None:
        """Create the aliases that are missing; with `over` move the others too."""
        used = await self._used()
        collections = [c for c in (self._messages, self._nodes) if over or c.alias not in used]
        changes: list[models.AliasOperations] = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=c.alias))
            for c in collections
            if c.alias in used
        ]
        changes += [
            models.CreateAliasOperation(
                create_alias=models.CreateAlias(collection_name=c.name, alias_name=c.alias),
            )
            for c in collections
        ]
        if changes:
            await self._ask("set the aliases", self._client.update_collection_aliases(changes))

    async def _ensure(self, collection: _Collection, rebuild: bool) -> bool:
        """Let the collection exist as it must be. Whether it was created."""
        created = await self._create(collection)
        info = await self._info(collection.name)
        if (fault := self._fault(collection, info)) is not None:
            if not rebuild:
                raise MemoryFormatError(
                    f"{collection.name} of Qdrant at {self._place} {fault}: set the model or the prefix back, "
                    "or run `streammem rebuild` to index again"
                )
            await self._drop(collection)
            created = await self._create(collection)
            info = await self._info(collection.name)
        await self._index_fields(collection, set(info.payload_schema))
        return created

    async def _create(self, collection: _Collection) -> bool:
        if await self._exists(collection):
            return False
        sparse = {"lexical": models.SparseVectorParams(modifier=models.Modifier.IDF)} if collection.lexical else None
        creation = self._client.create_collection(
            collection.name,
            vectors_config={
                "dense": models.VectorParams(size=self._description.dimensions, distance=models.Distance.COSINE)
            },
            sparse_vectors_config=sparse,
            shard_number=1,
            metadata=msgspec.to_builtins(self._description),
        )
        try:
            await self._ask(f"create {collection.name}", creation)
        except UnexpectedResponse:
            if await self._exists(collection):  # another process was first
                return False
            raise
        return True

    async def _exists(self, collection: _Collection) -> bool:
        asking = self._client.collection_exists(collection.name)
        return await self._ask(f"look for {collection.name}", asking)

    async def _drop(self, collection: _Collection) -> None:
        await self._ask(f"drop {collection.name}", self._client.delete_collection(collection.name))

    async def _info(self, name: str) -> models.CollectionInfo:
        return await self._ask(f"look at {name}", self._client.get_collection(name))

    def _fault(self, collection: _Collection, info: models.CollectionInfo) -> str | None:
        """What is wrong with a collection, as the rest of a sentence about it."""
        found, wanted = _dense_shape(info), f"{self._description.dimensions} dimensions by Cosine"
        if found != wanted:
            return f"has dense vectors of {found}, the settings say {wanted}"
        sparse = (info.config.params.sparse_vectors or {}).get("lexical")
        if collection.lexical and (sparse is None or sparse.modifier != models.Modifier.IDF):
            return "has no lexical vectors with IDF"
        if (made := _described(info.config.metadata)) != self._description:
            return f"was indexed with {made or 'something unknown'}, the settings say {self._description}"
        wrong = [f for f, i in info.payload_schema.items() if f in collection.fields and not _is_kind(i, collection, f)]
        return f"has a payload index of another kind on {', '.join(sorted(wrong))}" if wrong else None

    async def _index_fields(self, collection: _Collection, have: set[str]) -> None:
        for field, kind in collection.fields.items():
            if field not in have:
                await self._write(
                    f"create the payload index {field} of {collection.name}",
                    self._client.create_payload_index(collection.name, field, _KINDS[kind], wait=True),
                )

    async def clear(self) -> None:
        """Drop the collections and create them again. Other processes meet TransientError meanwhile."""
        used = await self._used()
        for collection in (self._messages, self._nodes):
            await self._drop(collection)
            await self._ensure(collection, rebuild=False)
        if any(used.get(c.alias, (c.name,))[0] == c.name for c in (self._messages, self._nodes)):
            await self._name(over=True)  # an alias goes with its collection

    async def flush(self) -> None:
        """Every write has waited for the server's log already."""

    async def counts(self) -> dict[str, int]:
        messages = await self._ask("count messages", self._client.count(self._messages.name, exact=True))
        nodes = await self._ask("count summaries", self._client.count(self._nodes.name, exact=True))
        return {"message points": messages.count, "node points": nodes.count}

    # ---- messages
    async def upsert(self, points: Many[MessagePoint]) -> None:
        first = {point.version.key: point for point in reversed(points)}
        for some in _pieces(first.values(), _BATCH):
            # The server itself leaves existing points alone: no reading before, nothing between two writers.
            insert = self._client.upsert(
                self._messages.name,
                [self._message_point(point) for point in some],
                wait=True,
                update_mode=models.UpdateMode.INSERT_ONLY,
            )
            await self._write("insert messages", insert)

    def _message_point(self, point: MessagePoint) -> models.PointStruct:
        key = str(point_id(point.version.key))
        return models.PointStruct(id=key, vector=self._message_vectors(point), payload=message_payload(point))

    def _message_vectors(self, point: MessagePoint) -> dict[str, Any]:
        lexical = self._bm25.embed_document(words(point.lexical))
        return {"dense": point.vector.tolist(), "lexical": _sparse(lexical)}

    async def replace(self, points: Many[MessagePoint]) -> None:
        """Never writes `until` over another writer's: names and vectors change, `until` is lowered."""
        last = {point.version.key: point for point in points}
        await self.upsert(list(last.values()))
        for some in _pieces(last.values(), _BATCH):
            vectors = [
                models.PointVectors(id=str(point_id(point.version.key)), vector=self._message_vectors(point))
                for point in some
            ]
            update = self._client.update_vectors(self._messages.name, vectors, wait=True)
            await self._write("replace the vectors of messages", update)
        await self._rename(last.values())  # after the vectors: until then they are found as misnamed
        await self.lower({key: point.until for key, point in last.items()})

    async def _rename(self, points: Iterable[MessagePoint]) -> None:
        ids: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for point in points:
            name = (point.naming.speaker, point.naming.room, tuple(calls_of(point)))
            ids[name].append(str(point_id(point.version.key)))
        await self._set(
            (Where(), some, {"speaker": speaker, "room": room, "called": list(called)})
            for (speaker, room, called), some in ids.items()
        )

    async def lower(self, untils: Mapping[str, int]) -> None:
        ids: dict[int, list[str]] = defaultdict(list)
        for key, until in untils.items():
            ids[until].append(str(point_id(key)))
        await self._set(
            (Where((Between("until", above=until),)), some, {"until": until}) for until, some in ids.items()
        )

    async def _set(self, payloads: Iterable[tuple[Where, list[str], dict[str, Any]]]) -> None:
        """Set fields of those of some points that lie within a filter, as the server finds them when it writes."""
        operations = (
            models.SetPayloadOperation(set_payload=models.SetPayload(payload=payload, filter=_filter(where, ids)))
            for where, ids, payload in payloads
        )
        for some in _pieces(operations, _BATCH):
            update = self._client.batch_update_points(self._messages.name, some, wait=True)
            await self._write("set fields of messages", update)

    async def misnamed(
        self, workspace: str, users: Mapping[str, str], channels: Mapping[str, str]
    ) -> list[tuple[str, Naming]]:
        others = other_calls(await self._calls(), users, channels)
        if not others:
            return []
        where, offset = _filter(misworded(workspace, others)), None
        found: list[tuple[str, Naming]] = []
        while True:
            records, offset = await self._ask(
                "look for messages with other names",
                self._client.scroll(self._messages.name, where, limit=_PAGE, offset=offset, with_payload=NAMING_SHOWN),
            )
            found += [(record.payload["key"], naming(record.payload)) for record in records if record.payload]
            if offset is None:
                return sorted(found)

    async def _calls(self) -> list[str]:
        """Every name that a message was worded with. Without a filter the server reads its index, not the points.

        Asked each time: what another process writes is not known here.
        """
        limit = _FACETS
        while True:
            facet = self._client.facet(self._messages.name, "called", limit=limit)
            hits = (await self._ask("list the names in messages", facet)).hits
            if len(hits) < limit:
                return [str(hit.value) for hit in hits]
            limit *= 4

    async def erase(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> None:
        """Nobody finds them any more. The server's files lose them when its optimizer writes the segment anew.

        That is when a fifth of it is deleted, unless the collection's `deleted_threshold` says otherwise.
        """
        for where in erased(workspace, uids, users):
            delete = self._client.delete(self._messages.name, models.FilterSelector(filter=_filter(where)), wait=True)
            await self._write("erase messages", delete)

    async def traces(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> int:
        found = 0
        for where in erased(workspace, uids, users):
            count = self._client.count(self._messages.name, count_filter=_filter(where), exact=True)
            found += (await self._ask("count traces of what was erased", count)).count
        return found

    async def known(self, keys: Many[str]) -> set[str]:
        ids = {str(point_id(key)): key for key in keys}
        return {ids[str(record.id)] for record in await self._retrieve(list(ids), with_vectors=False)}

    async def vectors(self, keys: Many[str]) -> list[Vectors | None]:
        ids = [str(point_id(key)) for key in keys]
        found = await self._retrieve(list(dict.fromkeys(ids)), with_vectors=["dense"])
        dense = {str(r.id): np.array(r.vector["dense"], np.float32) for r in found if isinstance(r.vector, dict)}
        return [dense.get(each) for each in ids]

    async def _retrieve(self, ids: list[str], with_vectors: bool | list[str]) -> list[models.Record]:
        found: list[models.Record] = []
        for some in _pieces(ids, _PAGE):
            get = self._client.retrieve(self._messages.name, some, with_payload=False, with_vectors=with_vectors)
            found += await self._ask("fetch messages", get)
        return found

    async def cosines(self, vector: Vectors, keys: Many[str]) -> list[float | None]:
        if not keys:
            return []
        ids = [str(point_id(key)) for key in keys]
        these = _filter(Where(), list(dict.fromkeys(ids)))
        near = models.QueryRequest(query=_near(vector), using="dense", filter=these, limit=len(ids))
        [hits] = await self._query(self._messages, [near])
        scores = {str(hit.id): round(float(hit.score), 5) for hit in hits}
        return [scores.get(each) for each in ids]

    async def find_messages(
        self, vector: Vectors, lexical: str, limit: int, visible: Visible
    ) -> tuple[list[MessageHit], list[MessageHit]]:
        allowed = _allowed("channel", visible.channels)
        if allowed is None or limit < 1:
            return [], []
        readable = corpus(visible, allowed)
        asked = _filter(asked_for(readable, visible))
        searches = [
            models.QueryRequest(query=_near(vector), using="dense", filter=asked, with_payload=MESSAGE_SHOWN),
            self._worded(lexical, asked, _filter(readable)),
        ]
        dense, sparse = await self._search(self._messages, searches, [limit, limit])
        return message_hits(dense, limit), message_hits(sparse, limit)

    async def find_words(self, texts: Many[str], limit: int, visible: Visible) -> list[list[MessageHit]]:
        allowed = _allowed("channel", visible.channels)
        if allowed is None or limit < 1 or not texts:
            return [[] for _ in texts]
        readable = corpus(visible, allowed)
        asked, counted = _filter(asked_for(readable, visible)), _filter(readable)
        searches = [self._worded(text, asked, counted) for text in texts]
        return [
            message_hits(found, limit) for found in await self._search(self._messages, searches, [limit] * len(texts))
        ]

    def _worded(self, text: str, asked: models.Filter, readable: models.Filter) -> models.QueryRequest:
        """A lexical search; words are rare or common among what is readable."""
        terms = models.NearestQuery(nearest=_sparse(self._bm25.embed_query(words(text))))
        idf = models.SearchParams(idf=models.IdfCorpusParams(corpus=readable))
        return models.QueryRequest(query=terms, using="lexical", filter=asked, with_payload=MESSAGE_SHOWN, params=idf)

    # ---- summaries
    async def keep_nodes(self, points: Many[NodePoint]) -> None:
        last = {point.summary.node: point for point in points}
        for some in _pieces(last.values(), _BATCH):
            upsert = self._client.upsert(self._nodes.name, [_node_point(point) for point in some], wait=True)
            await self._write("keep summaries", upsert)

    async def drop_nodes(self, nodes: Many[NodeId]) -> None:
        for some in _pieces(nodes, _PAGE):
            ids: list[models.ExtendedPointId] = [str(point_id(canonical(node))) for node in some]
            delete = self._client.delete(self._nodes.name, models.PointIdsList(points=ids), wait=True)
            await self._write("drop summaries", delete)

    async def find_nodes(self, vector: Vectors, searches: Many[NodeSearch], visible: Visible) -> list[list[NodeHit]]:
        allowed = _allowed("audience", visible.audiences)
        if allowed is None or not searches:
            return [[] for _ in searches]
        readable, near = summaries(visible, allowed), _near(vector)
        wanted = [
            models.QueryRequest(
                query=near, using="dense", filter=_filter(sought(readable, search)), with_payload=NODE_SHOWN
            )
            for search in searches
        ]
        found = await self._search(self._nodes, wanted, [search.limit for search in searches])
        return [node_hits(points, search.limit) for points, search in zip(found, searches, strict=True)]

    # ---- asking the server
    async def _search(
        self, collection: _Collection, searches: Many[models.QueryRequest], limits: Many[int]
    ) -> list[list[models.ScoredPoint]]:
        """The points of each search, at least as many as its limit and all that tie with the last of them."""
        counts = [limit + MARGIN for limit in limits]
        found = await self._query(collection, [_fetching(s, c) for s, c in zip(searches, counts, strict=True)])
        while cut := [i for i, c in enumerate(counts) if cut_in_a_tie(found[i], limits[i], c)]:
            for i in cut:
                counts[i] *= 4
            again = await self._query(collection, [_fetching(searches[i], counts[i]) for i in cut])
            for i, points in zip(cut, again, strict=True):
                found[i] = points
        return found

    async def _query(self, collection: _Collection, requests: Many[Any]) -> list[list[models.ScoredPoint]]:
        search = self._client.query_batch_points(collection.name, requests)
        return [response.points for response in await self._ask(f"search {collection.alias}", search)]

    async def _write(self, what: str, call: Awaitable[models.UpdateResult | list[models.UpdateResult]]) -> None:
        """Await a write and see that it was applied: a server may answer that it could only take note of it."""
        answer = await self._ask(what, call)
        for result in answer if isinstance(answer, list) else [answer]:
            if result.status != models.UpdateStatus.COMPLETED:
                raise TransientError(f"Qdrant at {self._place} has not applied yet: {what} ({result.status})")

    async def _ask(self, what: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except ResponseHandlingException as error:
            if not isinstance(error.source, httpx.TransportError):
                raise
            raise TransientError(f"Qdrant at {self._place} did not answer: {what} ({_named(error.source)})") from error
        except QdrantException as error:  # 429 with a time to wait
            raise TransientError(f"Qdrant at {self._place} is busy: {what} ({error})") from error
        except UnexpectedResponse as error:
            self._refuse(what, error)
            raise

    def _refuse(self, what: str, error: UnexpectedResponse) -> None:
        status = error.status_code or 0
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise SettingsError(
                f"Qdrant at {self._place} refuses: {what} (HTTP {status}): set an API key that may read, write and "
                "create collections"
            ) from error
        gone = status == HTTPStatus.NOT_FOUND and b"doesn't exist" in error.content  # a rebuild clears, or was it lost?
        busy = status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
        if gone or busy or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            said = " the collection is gone, wait for a rebuild or restart:" if gone else ""
            raise TransientError(f"Qdrant at {self._place} could not:{said} {what} (HTTP {status})") from error


# ---------------------------------------------------------------------------------------------- the server


def _place(url: str) -> str:
    """Where the server is, without a user or password that the URL may carry."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in {"", "http", "https"}:
        raise SettingsError("the URL of the Qdrant server is wrong: it must be http://HOST:PORT or https://HOST:PORT")
    return f"{host}:{port or 6333}"


def _client(url: str, api_key: str | None, timeout: int) -> AsyncQdrantClient:
    # The key goes as a header of its own: the client warns about `api_key` without TLS, which a private network may do.
    headers = {"api-key": api_key} if api_key else None
    return AsyncQdrantClient(url=url, headers=headers, timeout=timeout, prefer_grpc=False, check_compatibility=False)


def _named(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _described(metadata: Any) -> Description | None:
    try:
        return msgspec.convert(metadata, Description)
    except msgspec.ValidationError:
        return None


def _dense_shape(info: models.CollectionInfo) -> str:
    vectors = info.config.params.vectors
    dense = vectors.get("dense") if isinstance(vectors, dict) else None
    return f"{dense.size} dimensions by {dense.distance.value}" if dense else "no such name"


def _is_kind(index: models.PayloadIndexInfo, collection: _Collection, field: str) -> bool:
    return index.data_type == _KINDS[collection.fields[field]]


# ------------------------------------------------------------------------------------------------ requests


def _pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece


def _allowed(field: str, values: frozenset[str] | None) -> Where | None:
    """What leaves only allowed values of a field; None if nothing is left.

    Always the readable by name, though 2,900 channels cost 78 ms at 120,000 points: another process may write to a
    channel that this one has never heard of, so a list of the hidden would let it through.
    """
    if values is None:
        return Where()
    return Where((AnyOf(field, tuple(sorted(values))),)) if values else None


def _filter(where: Where, ids: list[str] | None = None) -> models.Filter:
    these = [] if ids is None else [models.HasIdCondition(has_id=list(ids))]
    return models.Filter(
        must=[*these, *map(_condition, where.must)], must_not=[*map(_condition, where.must_not)] or None
    )


def _condition(condition: Condition) -> models.FieldCondition:
    match condition:
        case Is(field, value):
            return models.FieldCondition(key=field, match=models.MatchValue(value=value))
        case AnyOf(field, values):
            return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
        case Between(field, at_least, above, to, below):
            return models.FieldCondition(key=field, range=models.Range(gte=at_least, gt=above, lte=to, lt=below))


def _near(vector: Vectors) -> models.NearestQuery:
    return models.NearestQuery(nearest=vector.tolist())


def _sparse(weights: Any) -> models.SparseVector:
    return models.SparseVector(indices=list(weights.indices), values=list(weights.values))


def _fetching(search: models.QueryRequest, count: int) -> models.QueryRequest:
    return search.model_copy(update={"limit": count})


def _node_point(point: NodePoint) -> models.PointStruct:
    vectors: dict[str, Any] = {"dense": np.frombuffer(point.summary.vector, "<f4").tolist()}
    return models.PointStruct(
        id=str(point_id(canonical(point.summary.node))), vector=vectors, payload=node_payload(point)
    )
