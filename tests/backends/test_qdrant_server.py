"""The Qdrant server's adapter: what it asks for, what it refuses, and what it says when the server is away.

Over local mode (a model of the server) and over scripted answers. What only the engine can show is in the contract
suite, which runs against a real server where STREAMMEM_TEST_QDRANT names one.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from streammem.backends.memory_vectors import MemoryIndex
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.backends.qdrant_points import MESSAGE_FIELDS, NODE_FIELDS, Description
from streammem.backends.qdrant_server import QdrantIndex
from streammem.errors import MemoryFormatError, SettingsError, TransientError
from streammem.ports import MessagePoint, Visible
from streammem.records import FOREVER, Naming
from tests import qdrant
from tests.contract.test_vector_index import DIMENSIONS, EAST, EVERYTHING, NORTH, inner, node, said, unit

pytestmark = qdrant.quiet


@pytest.fixture
async def client() -> AsyncIterator[AsyncQdrantClient]:
    """An empty Qdrant in this process."""
    client = AsyncQdrantClient(location=":memory:")
    yield client
    await client.close()


async def opened(client: AsyncQdrantClient, model: str = "tiny", dimensions: int = 8, **options: Any) -> QdrantIndex:
    index = qdrant.local(client, model, dimensions, **options)
    await index.open()
    return index


async def aliases(client: AsyncQdrantClient) -> dict[str, str]:
    return {a.alias_name: a.collection_name for a in (await client.get_aliases()).aliases}


# ----------------------------------------------------------------------------------- collections and aliases


async def test_opening_makes_two_collections_and_says_by_alias_that_they_are_in_use(client: AsyncQdrantClient) -> None:
    first = await opened(client)
    assert first.fresh
    names = {c.name for c in (await client.get_collections()).collections}
    assert names == {"t-messages-tiny-8", "t-summaries-tiny-8"}
    assert await aliases(client) == {"t-messages": "t-messages-tiny-8", "t-summaries": "t-summaries-tiny-8"}
    await first.upsert([said("a")])
    again = await opened(client)
    assert not again.fresh
    assert (await again.counts())["message points"] == 1


async def test_another_model_is_refused_by_both_names_and_leaves_no_trace(client: AsyncQdrantClient) -> None:
    await opened(client, "org/tiny")
    other = qdrant.local(client, "grand", 16)
    with pytest.raises(MemoryFormatError, match=r"org/tiny \(8 dim.*grand \(16 dim.*`streammem rebuild`"):
        await other.open()
    assert not await client.collection_exists("t-messages-grand-16")


async def test_a_rebuild_fills_a_second_collection_and_then_switches(client: AsyncQdrantClient) -> None:
    old = await opened(client)
    await old.upsert([said("a")])
    new = qdrant.local(client, "grand", 16)
    await new.open(rebuild=True)
    assert new.fresh
    assert (await aliases(client))["t-messages"] == "t-messages-tiny-8"
    await new.clear()
    assert (await aliases(client))["t-messages"] == "t-messages-tiny-8"
    assert (await old.counts())["message points"] == 1
    await new.switch()
    await new.switch()
    assert await aliases(client) == {"t-messages": "t-messages-grand-16", "t-summaries": "t-summaries-grand-16"}
    with pytest.raises(MemoryFormatError, match=r"grand \(16 .*tiny \(8 "):
        await opened(client)
    await old.upsert([said("b")])
    assert await old.counts() == {"message points": 2, "node points": 0}
    assert await new.counts() == {"message points": 0, "node points": 0}


async def test_clearing_keeps_the_alias(client: AsyncQdrantClient) -> None:
    index = await opened(client)
    await index.upsert([said("a")])
    await index.clear()
    assert (await aliases(client))["t-messages"] == "t-messages-tiny-8"
    assert not (await opened(client)).fresh


DENSE = models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)
IDF = models.SparseVectorParams(modifier=models.Modifier.IDF)
MADE = msgspec.to_builtins(Description("tiny", DIMENSIONS, 40.0))
RIGHT = {"vectors_config": {"dense": DENSE}, "sparse_vectors_config": {"lexical": IDF}, "metadata": MADE}


@pytest.mark.parametrize(
    ("wrong", "said_so"),
    [
        ({"vectors_config": {"dense": DENSE.model_copy(update={"size": 16})}}, "16 dimensions by Cosine.*8 dimensions"),
        (
            {"vectors_config": {"dense": DENSE.model_copy(update={"distance": models.Distance.DOT})}},
            "8 dimensions by Dot.*8 dimensions by Cosine",
        ),
        ({"vectors_config": DENSE}, "no such name.*8 dimensions by Cosine"),
        ({"sparse_vectors_config": None}, "no lexical vectors with IDF"),
        ({"sparse_vectors_config": {"lexical": models.SparseVectorParams()}}, "no lexical vectors with IDF"),
        ({"metadata": None}, "something unknown"),
        ({"metadata": MADE | {"average_length": 60.0}}, "mean length 60.*mean length 40"),
        ({"metadata": MADE | {"format": 1}}, "format 1.*format 3"),
        ({"metadata": MADE | {"model": "ti/ny"}}, r"ti/ny \(.*tiny \("),
    ],
)
async def test_a_collection_of_another_make_is_refused_until_a_rebuild(
    client: AsyncQdrantClient, wrong: dict[str, Any], said_so: str
) -> None:
    await client.create_collection("t-messages-tiny-8", **(RIGHT | wrong))
    index = qdrant.local(client)
    with pytest.raises(MemoryFormatError, match=rf"t-messages-tiny-8 of Qdrant at .*{said_so}.*`streammem rebuild`"):
        await index.open()
    await index.open(rebuild=True)
    assert index.fresh
    await (await opened(client)).upsert([said("a")])


# ---------------------------------------------------------------------------------------- many processes


async def test_what_another_process_writes_to_an_unknown_channel_stays_hidden(client: AsyncQdrantClient) -> None:
    mine, theirs = await opened(client), await opened(client)
    await mine.upsert([said("a", channel="C1"), said("b", channel="C2")])
    await mine.keep_nodes([node("T"), node("U", audience="C2")])
    visible = Visible("W", frozenset({"C1", "C2"}), frozenset({"public", "C2"}))
    assert len((await mine.find_messages(EAST, "hello", 10, visible))[0]) == 2
    before = await mine.find_messages(EAST, "hello", 10, visible)
    await theirs.upsert([said("secret", channel="P1")])
    await theirs.keep_nodes([node("S", audience="P1")])
    assert await mine.find_messages(EAST, "hello", 10, visible) == before
    [found] = await mine.find_nodes(EAST, [inner("channel", 9)], visible)
    assert [hit.node.sequence.tree for hit in found] == ["T", "U"]


def worded(name: str, speaker: str, follows: tuple[str, ...] = ("user",), **fields: Any) -> MessagePoint:
    point = said(name, f"{speaker} says hello", **fields)
    return msgspec.structs.replace(point, naming=Naming(speaker, "room", follows))


async def test_names_that_another_process_wrote_are_found_when_they_change(client: AsyncQdrantClient) -> None:
    mine, theirs = await opened(client), await opened(client)
    await theirs.upsert([worded("a", "Ann"), worded("b", "Ann", ()), worded("c", "Ann", workspace="V")])
    assert await mine.misnamed("W", {"U1": "Ann"}, {}) == []
    assert await mine.misnamed("W", {"U2": "Anna"}, {"C1": "other"}) == []
    assert await mine.misnamed("W", {"U1": "Anna"}, {}) == [(said("a").version.key, Naming("Ann", "room", ("user",)))]
    await mine.replace([worded("a", "Anna")])
    assert await theirs.misnamed("W", {"U1": "Anna"}, {}) == []


async def test_many_misnamed_messages_are_all_found(client: AsyncQdrantClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammem.backends.qdrant_server._PAGE", 3)
    monkeypatch.setattr("streammem.backends.qdrant_server._FACETS", 1)
    index = await opened(client)
    await index.upsert([worded(f"m{i:02}", f"Ann{i % 2}") for i in range(10)])
    keys = [key for key, _ in await index.misnamed("W", {"U1": "Anna"}, {})]
    assert keys == [said(f"m{i:02}").version.key for i in range(10)]


async def test_a_replaced_message_has_new_words_and_an_until_that_only_falls(client: AsyncQdrantClient) -> None:
    index = await opened(client)
    await index.upsert([worded("a", "Ann", until=30), worded("b", "Ann")])
    await index.replace([worded("a", "Zoe", vector=NORTH), worded("b", "Zoe", until=20), worded("c", "Zoe")])
    now = Visible("W", None, None)
    assert [h.uid for h in (await index.find_messages(EAST, "Zoe", 9, now))[1]] == ["W/C1/c"]
    earlier = Visible("W", None, None, moment=25)
    assert [h.uid for h in (await index.find_messages(EAST, "Zoe", 9, earlier))[1]] == ["W/C1/a", "W/C1/c"]
    assert (await index.find_messages(EAST, "Ann", 9, earlier))[1] == []
    np.testing.assert_array_equal((await index.vectors([said("a").version.key]))[0], NORTH)


# ------------------------------------------------------------------------------------- the same three indexes


async def test_the_same_world_gives_the_same_dense_hits_everywhere(client: AsyncQdrantClient, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    coordinates = rng.integers(-2, 3, (80, DIMENSIONS)) + 0.5
    points = [
        said(f"m{i:02}", vector=unit(*coordinates[i]), channel=f"C{i % 4}", since=i, ts=i, until=90 if i % 5 else 40)
        for i in range(80)
    ]
    edge = EdgeIndex(tmp_path / "edge", "tiny", DIMENSIONS)
    indexes = [MemoryIndex(DIMENSIONS), edge, await opened(client)]
    found: list[list[Any]] = []
    for index in indexes:
        await index.upsert(points)
        await index.lower({points[i].version.key: 60 for i in range(0, 80, 7)})
        found.append([])
        for channels, moment in ((None, 50), (frozenset({"C1", "C2"}), 30), (frozenset({"C9"}), 50), (None, None)):
            visible = Visible("W", channels, None, moment=moment)
            hits, _ = await index.find_messages(unit(*coordinates[3]), "", 12, visible)
            found[-1].append([(hit.key, pytest.approx(hit.score, abs=2e-5)) for hit in hits])
        found[-1].append(await index.find_nodes(EAST, [inner("channel", 3)], EVERYTHING))
    edge.close()
    assert [len(hits) for hits in found[0]] == [12, 12, 0, 0, 1]
    assert found[1] == found[0]
    assert found[2] == found[0]


# ------------------------------------------------------------------------------------------- a real server


@qdrant.needs_server
async def test_a_real_server_has_every_payload_index_and_both_aliases() -> None:
    async with qdrant.on_server(DIMENSIONS) as index:
        for collection in (index._messages, index._nodes):
            schema = (await index._info(collection.name)).payload_schema
            assert {field: stored.data_type.value for field, stored in schema.items()} == collection.fields
        names = await aliases(index._client)
        assert names[index._messages.alias] == index._messages.name
        assert names[index._nodes.alias] == index._nodes.name
        await index.upsert([said("a")])
        await index.open()
        assert not index.fresh
        await index.clear()
        assert (await aliases(index._client))[index._messages.alias] == index._messages.name


# ---------------------------------------------------------------------------------------- scripted answers


class Script:
    """A Qdrant that remembers what it was asked and answers what the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.version = "1.19.2"
        self.schema: dict[str, str] = {}
        self.collections: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.answer: Callable[[httpx.Request], httpx.Response | None] = lambda request: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, str(request.url.raw_path, "ascii"), body))
        return self.answer(request) or self._usual(request.method, request.url.path, body)

    def _usual(self, method: str, path: str, body: Any) -> httpx.Response:
        if path == "/":
            return httpx.Response(200, json={"title": "qdrant - vector search engine", "version": self.version})
        if path == "/aliases":
            return ok({"aliases": [{"alias_name": a, "collection_name": c} for a, c in self.aliases.items()]})
        if path == "/collections/aliases":
            created = [action["create_alias"] for action in body["actions"] if "create_alias" in action]
            self.aliases |= {c["alias_name"]: c["collection_name"] for c in created}
            return ok(result=True)
        name, _, rest = path.removeprefix("/collections/").partition("/")
        if rest == "exists":
            return ok({"exists": name in self.collections})
        return ok(self._points(rest, body) if rest else self._collection(method, name, body))

    def _collection(self, method: str, name: str, body: Any) -> Any:
        if method == "PUT":
            self.collections[name] = body
            return True
        return self._info(self.collections[name])

    def _points(self, rest: str, body: Any) -> Any:
        done = {"operation_id": 1, "status": "completed"}
        if rest == "points/query/batch":
            return [{"points": []} for _ in body["searches"]]
        return [done for _ in body["operations"]] if rest == "points/batch" else done

    def _info(self, made: Any) -> Any:
        return {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "config": {
                "params": {"vectors": made["vectors"], "sparse_vectors": made.get("sparse_vectors")},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
                "metadata": made["metadata"],
            },
            "payload_schema": {field: {"data_type": kind, "points": 0} for field, kind in self.schema.items()},
        }

    def bodies(self, ending: str) -> list[Any]:
        return [body for _, path, body in self.asked if path.partition("?")[0].endswith(ending)]


def ok(result: Any) -> httpx.Response:
    return httpx.Response(200, json={"result": result, "status": "ok", "time": 0.0})


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def scripted(script: Script) -> AsyncIterator[QdrantIndex]:
    """An index over the script, not opened."""
    client = AsyncQdrantClient(
        url="http://qdrant:6333", check_compatibility=False, transport=httpx.MockTransport(script)
    )
    yield QdrantIndex("http://qdrant:6333", "tiny", DIMENSIONS, prefix="t", client=client)
    await client.close()


async def test_opening_creates_the_payload_indexes_and_waits_for_them(scripted: QdrantIndex, script: Script) -> None:
    await scripted.open()
    created = [(path, body) for method, path, body in script.asked if method == "PUT" and "/index" in path]
    assert {path for path, _ in created} == {
        "/collections/t-messages-tiny-8/index?wait=true",
        "/collections/t-summaries-tiny-8/index?wait=true",
    }
    fields = [(body["field_name"], body["field_schema"]) for _, body in created]
    assert fields == [*MESSAGE_FIELDS.items(), *NODE_FIELDS.items()]
    made = script.collections["t-messages-tiny-8"]
    assert made["vectors"] == {"dense": {"size": 8, "distance": "Cosine"}}
    assert made["sparse_vectors"] == {"lexical": {"modifier": "idf"}}
    assert made["shard_number"] == 1


async def test_only_missing_payload_indexes_are_created(scripted: QdrantIndex, script: Script) -> None:
    script.schema = {field: kind for field, kind in (MESSAGE_FIELDS | NODE_FIELDS).items() if field != "until"}
    await scripted.open()
    assert [body["field_name"] for body in script.bodies("/t-messages-tiny-8/index")] == ["until"]
    assert script.bodies("/t-summaries-tiny-8/index") == []


async def test_a_payload_index_of_another_kind_is_refused_by_name(scripted: QdrantIndex, script: Script) -> None:
    script.schema = {"until": "keyword"}
    with pytest.raises(MemoryFormatError, match=r"t-messages-tiny-8 .* payload index of another kind on until"):
        await scripted.open()


async def test_a_collection_that_another_process_makes_first_is_taken(scripted: QdrantIndex, script: Script) -> None:
    def conflict(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT" and re.fullmatch(r"/collections/[^/]+", request.url.path):
            script.collections[request.url.path.rsplit("/", 1)[1]] = json.loads(request.content)
            return httpx.Response(409, json={"status": {"error": "Collection already exists!"}})
        return None

    script.answer = conflict
    await scripted.open()
    assert not scripted.fresh


async def test_messages_are_inserted_only_and_every_write_waits(scripted: QdrantIndex, script: Script) -> None:
    await scripted.upsert([said("a"), said("b"), said("a", "second")])
    await scripted.lower({said("a").version.key: 20, said("b").version.key: 20, said("c").version.key: 30})
    await scripted.keep_nodes([node("T")])
    await scripted.drop_nodes([node("T").summary.node])
    assert all("wait=true" in path for _, path, _ in script.asked)
    inserted, kept = script.bodies("/points")
    assert inserted["update_mode"] == "insert_only"
    assert [point["payload"]["key"] for point in inserted["points"]] == [said(n).version.key for n in "ab"]
    assert inserted["points"][0]["payload"]["until"] == FOREVER
    assert kept.get("update_mode") is None
    [lowered] = script.bodies("/points/batch")
    first, second = (operation["set_payload"] for operation in lowered["operations"])
    assert (first["payload"], second["payload"]) == ({"until": 20}, {"until": 30})
    assert len(first["filter"]["must"][0]["has_id"]) == 2
    assert first["filter"]["must"][1] == {"key": "until", "range": {"gt": 20.0}}


async def test_erasing_and_looking_for_traces_name_users_and_messages_and_no_versions(
    scripted: QdrantIndex, script: Script
) -> None:
    script.answer = lambda request: ok({"count": 2}) if request.url.path.endswith("/count") else None
    await scripted.erase("W", ["W/C1/b", "W/C1/a"], ["U1"])
    assert await scripted.traces("W", ["W/C1/b", "W/C1/a"], ["U1"]) == 4
    here, theirs = {"key": "workspace", "match": {"value": "W"}}, {"key": "user", "match": {"any": ["U1"]}}
    these = {"key": "uid", "match": {"any": ["W/C1/a", "W/C1/b"]}}
    parts = [{"must": [here, theirs]}, {"must": [here, these], "must_not": [theirs]}]
    assert [body["filter"] for body in script.bodies("/points/delete")] == parts
    assert [body["filter"] for body in script.bodies("/points/count")] == parts
    assert all(body["exact"] for body in script.bodies("/points/count"))
    assert all("wait=true" in path for _, path, _ in script.asked if "/delete" in path)


async def test_nothing_to_erase_is_not_asked_for(scripted: QdrantIndex, script: Script) -> None:
    await scripted.erase("W")
    assert await scripted.traces("W") == 0
    assert script.asked == []


async def test_one_batch_searches_what_may_be_read_and_counts_idf_over_it(
    scripted: QdrantIndex, script: Script
) -> None:
    visible = Visible("W", frozenset({"C2", "C1"}), None, since=5, exclude=frozenset({"W/C1/x"}))
    await scripted.find_messages(EAST, "hello", 10, visible)
    [body] = script.bodies("/t-messages-tiny-8/points/query/batch")
    near, worded = body["searches"]
    readable = [
        {"key": "workspace", "match": {"value": "W"}},
        {"key": "until", "match": {"value": FOREVER}},
        {"key": "channel", "match": {"any": ["C1", "C2"]}},
    ]
    assert worded["params"]["idf"] == {"corpus": {"must": readable}}
    assert near["filter"] == worded["filter"]
    assert near["filter"] == {
        "must": [*readable, {"key": "ts", "range": {"gte": 5.0}}],
        "must_not": [{"key": "uid", "match": {"any": ["W/C1/x"]}}],
    }
    assert (near["using"], worded["using"]) == ("dense", "lexical")


async def test_all_node_searches_are_one_batch(scripted: QdrantIndex, script: Script) -> None:
    visible = Visible("W", frozenset(), frozenset({"public", "C1"}), moment=9)
    await scripted.find_nodes(EAST, [inner("channel", 3), inner("actor", 4, ("U1",))], visible)
    [body] = script.bodies("/t-summaries-tiny-8/points/query/batch")
    audience = {"key": "audience", "match": {"any": ["C1", "public"]}}
    assert [audience in search["filter"]["must"] for search in body["searches"]] == [True, True]
    assert {"key": "tree", "match": {"any": ["U1"]}} in body["searches"][1]["filter"]["must"]
    assert len(script.asked) == 1


async def test_who_may_read_nothing_is_not_asked_for(scripted: QdrantIndex, script: Script) -> None:
    nothing = Visible("W", frozenset(), frozenset())
    assert await scripted.find_messages(EAST, "hello", 10, nothing) == ([], [])
    assert await scripted.find_nodes(EAST, [inner("channel", 3)], nothing) == [[]]
    assert script.asked == []


# --------------------------------------------------------------------------------------------------- errors


def always(status: int, text: str = '{"status":{"error":"no"}}', **headers: str) -> Any:
    return lambda request: httpx.Response(status, text=text, headers=headers)


@pytest.mark.parametrize("version", ["1.18.3", "1.9.0", "0.11.0"])
async def test_an_older_server_is_refused_by_both_versions(scripted: QdrantIndex, script: Script, version: str) -> None:
    script.version = version
    with pytest.raises(SettingsError, match=rf"qdrant:6333 is version {version}: 1\.19 or newer"):
        await scripted.open()
    assert len(script.asked) == 1


@pytest.mark.parametrize("version", ["1.19.0", "1.20.0-dev", "2.0.1"])
async def test_a_newer_server_is_taken(scripted: QdrantIndex, script: Script, version: str) -> None:
    script.version = version
    await scripted.open()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_server_in_trouble_is_a_transient_error(scripted: QdrantIndex, script: Script, status: int) -> None:
    script.answer = always(status)
    for call in (scripted.open(), scripted.upsert([said("a")]), scripted.counts()):
        with pytest.raises(TransientError, match=rf"Qdrant at qdrant:6333 could not: .* \(HTTP {status}\)"):
            await call


@pytest.mark.parametrize("wait", ["7", "soon"])
async def test_a_server_that_asks_for_patience_is_a_transient_error(
    scripted: QdrantIndex, script: Script, wait: str
) -> None:
    script.answer = always(429, **{"Retry-After": wait})
    with pytest.raises(TransientError, match="Qdrant at qdrant:6333 is busy: insert messages"):
        await scripted.upsert([said("a")])


async def test_a_write_that_is_only_noted_is_a_transient_error(scripted: QdrantIndex, script: Script) -> None:
    script.answer = lambda request: ok({"operation_id": 1, "status": "wait_timeout"})
    with pytest.raises(TransientError, match="has not applied yet: insert messages"):
        await scripted.upsert([said("a")])


async def test_a_collection_that_is_gone_is_a_transient_error(scripted: QdrantIndex, script: Script) -> None:
    script.answer = always(404, '{"status":{"error":"Not found: Collection `t-messages-tiny-8` doesn\'t exist!"}}')
    with pytest.raises(TransientError, match="the collection is gone"):
        await scripted.upsert([said("a")])


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_wrong_request_is_a_fault(scripted: QdrantIndex, script: Script, status: int) -> None:
    script.answer = always(status)
    with pytest.raises(UnexpectedResponse):
        await scripted.upsert([said("a")])


@pytest.mark.parametrize(("status", "text"), [(200, "<html>welcome</html>"), (200, "{}"), (404, "nothing here")])
async def test_something_else_at_the_url_is_a_settings_error(
    scripted: QdrantIndex, script: Script, status: int, text: str
) -> None:
    script.answer = always(status, text)
    with pytest.raises(SettingsError, match="qdrant:6333 does not answer as a Qdrant server does"):
        await scripted.open()


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A port that answers every request with the same bytes (none: never), and what it was sent."""
    asked: list[bytes] = []
    done = asyncio.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if not answer:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
        done.set()


@pytest.fixture
def closing() -> Iterator[list[QdrantIndex]]:
    """Indexes with clients of their own, closed by the test."""
    made: list[QdrantIndex] = []
    yield made
    assert all(index._client._client.closed for index in made)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_a_settings_error_that_does_not_tell_it(closing: list[QdrantIndex], status: int) -> None:
    answer = f"HTTP/1.1 {status} No\r\nContent-Length: 15\r\nConnection: close\r\n\r\nInvalid api-key".encode()
    async with listening(answer) as (place, asked):
        index = QdrantIndex(f"http://{place}", "tiny", DIMENSIONS, api_key="sesame")
        closing.append(index)
        with pytest.raises(SettingsError, match=rf"Qdrant at {place} refuses: .*HTTP {status}.*set an API key") as told:
            await index.open()
        await index.close()
    assert "sesame" not in str(told.value)
    assert b"api-key: sesame" in asked[0]


async def test_a_server_that_is_away_is_a_transient_error_that_names_it(closing: list[QdrantIndex]) -> None:
    async with listening(b"") as (place, _):
        pass
    index = QdrantIndex(f"http://user:secret@{place}", "tiny", DIMENSIONS)
    closing.append(index)
    for call in (index.open(), index.upsert([said("a")]), index.find_messages(EAST, "x", 1, EVERYTHING)):
        with pytest.raises(TransientError, match=rf"Qdrant at {place} did not answer: ") as told:
            await call
        assert "secret" not in str(told.value)
    await index.close()


async def test_a_server_that_does_not_answer_in_time_is_a_transient_error(closing: list[QdrantIndex]) -> None:
    async with listening(b"") as (place, _):
        index = QdrantIndex(place, "tiny", DIMENSIONS, timeout=1)
        closing.append(index)
        with pytest.raises(TransientError, match=rf"Qdrant at {place} did not answer: ask for its version \(ReadTime"):
            await index.open()
        await index.close()


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", ""])
def test_a_url_that_is_none_is_a_settings_error(url: str) -> None:
    with pytest.raises(SettingsError, match="the URL of the Qdrant server is wrong"):
        QdrantIndex(url, "tiny", DIMENSIONS)
