"""What the flows rely on in a vector index: what is seen, by whom, as of when, and with which scores."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import AsyncQdrantClient
from qdrant_edge import Filter, UpdateOperation

from streammem.backends import qdrant_edge
from streammem.backends.lexical import words
from streammem.backends.memory_vectors import MemoryIndex
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.errors import MemoryFormatError, MemoryHeldError
from streammem.ports import MessageHit, MessagePoint, NodePoint, NodeSearch, VectorIndex, Vectors, Visible
from streammem.records import FOREVER, Leaf, Naming, NodeId, Sequence, Summary, Version
from tests import qdrant

pytestmark = qdrant.quiet

ROOT = Path(__file__).parents[2]
DIMENSIONS = 8
EVERYTHING = Visible("W", None, None)
WRITES = {"upsert", "replace", "lower", "keep_nodes", "drop_nodes", "clear"}


class Reopened:
    """An index that is closed and opened again between a write and what follows: nothing may live in the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now = EdgeIndex(path, "tiny", DIMENSIONS)
        self._written = False

    def __getattr__(self, name: str) -> Any:
        if self._written and name != "close":
            self._now.close()
            self._now = EdgeIndex(self._path, "tiny", DIMENSIONS)
        self._written = name in WRITES
        return getattr(self._now, name)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A new directory, in memory where the machine has such: an index makes a thousand small synchronous writes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[dict[str, Any]]:
    """One index of each backend for all tests: making one costs a second."""
    edges = EdgeIndex(folder / "edge", "tiny", DIMENSIONS), Reopened(folder / "reopened")
    local = qdrant.local(AsyncQdrantClient(location=":memory:"))
    asyncio.run(local.open())
    yield {"memory": MemoryIndex(DIMENSIONS), "edge": edges[0], "edge-reopened": edges[1], "qdrant-local": local}
    for index in edges:
        index.close()
    asyncio.run(local._client.close())


BACKENDS = ["memory", "edge", "edge-reopened", "qdrant-local"] + ["qdrant-server"] * bool(qdrant.SERVER)
"""That no server was named, and so none was tried, is said once: in tests/backends/test_qdrant_server.py."""


@pytest.fixture(params=BACKENDS)
async def index(request: pytest.FixtureRequest, opened: dict[str, Any]) -> AsyncIterator[Any]:
    """An empty index of each backend."""
    if request.param == "qdrant-server":
        async with qdrant.on_server(DIMENSIONS) as served:
            yield served
        return
    chosen = opened[request.param]
    if request.param.startswith("edge"):
        await emptied(chosen)
    else:
        await chosen.clear()
    yield chosen


async def emptied(index: Any) -> None:
    """Remove every point, as `clear` does, without making the directory anew."""
    for shard in (index._messages, index._nodes):
        shard.update(UpdateOperation.delete_points_by_filter(Filter()))
    index._channels.clear()
    index._audiences.clear()


@pytest.fixture
def path(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A directory of this test's own."""
    return folder / request.node.name


def unit(*values: float) -> Vectors:
    vector = np.zeros(DIMENSIONS, np.float32)
    vector[: len(values)] = values
    return (vector / np.linalg.norm(vector)).astype(np.float32)


EAST, NORTH, NORTH_EAST = unit(1), unit(0, 1), unit(1, 1)


def said(
    name: str,
    lexical: str = "hello",
    vector: Vectors = EAST,
    *,
    until: int = FOREVER,
    channel: str = "C1",
    number: str = "1",
    since: int = 10,
    ts: int = 10,
    workspace: str = "W",
) -> MessagePoint:
    uid, deleted = f"{workspace}/{channel}/{name}", False
    version = Version(uid, number, deleted, "h", workspace, channel, name, ts, since, "U1", lexical)
    return MessagePoint(version, until, vector, lexical)


def node(
    tree: str,
    vector: Vectors = EAST,
    *,
    view: str = "channel",
    level: int = 1,
    index: int = 0,
    is_root: bool = False,
    audience: str = "public",
    latest: int = 10,
    workspace: str = "W",
) -> NodePoint:
    place = NodeId(Sequence(workspace, view, tree), level, index)
    leaf = Leaf(1, "W/C1/a")
    blob = vector.astype("<f4").tobytes()
    return NodePoint(Summary(place, "text", leaf, leaf, 1, "d", ("C1",), (), latest, 0, is_root, blob), audience)


async def dense(index: Any, vector: Vectors, visible: Visible = EVERYTHING, limit: int = 10) -> list[str]:
    found, _ = await index.find_messages(vector, "", limit, visible)
    return [hit.uid.rsplit("/", 1)[1] for hit in found]


async def lexical(index: Any, text: str, visible: Visible = EVERYTHING, limit: int = 10) -> list[str]:
    _, found = await index.find_messages(EAST, text, limit, visible)
    return [hit.uid.rsplit("/", 1)[1] for hit in found]


# ------------------------------------------------------------------------------------------------ writing


async def test_what_was_written_first_under_a_key_stays(index: Any) -> None:
    await index.upsert([said("a", "first", EAST), said("a", "second", NORTH)])
    await index.upsert([said("a", "third", NORTH, until=5)])
    assert await lexical(index, "first second third") == ["a"]
    assert await lexical(index, "second third") == []
    np.testing.assert_array_equal((await index.vectors([said("a").version.key]))[0], EAST)
    assert await index.counts() == {"message points": 1, "node points": 0}


async def test_every_version_of_a_message_has_its_own_point(index: Any) -> None:
    await index.upsert([said("a", "draft", until=20), said("a", "final", number="2", since=20)])
    assert await lexical(index, "draft final") == ["a"]
    assert (await index.counts())["message points"] == 2


async def test_vectors_come_back_bit_by_bit_in_the_order_asked(index: Any) -> None:
    rng = np.random.default_rng(7)
    points = [said(f"m{i}", vector=unit(*rng.standard_normal(DIMENSIONS))) for i in range(20)]
    await index.upsert(points)
    keys = [point.version.key for point in points]
    found = await index.vectors([keys[3], "unknown", keys[0], keys[3]])
    np.testing.assert_array_equal(found[0], points[3].vector)
    assert found[1] is None
    np.testing.assert_array_equal(found[2], points[0].vector)
    np.testing.assert_array_equal(found[3], points[3].vector)
    assert all(vector.dtype == np.float32 for vector in found if vector is not None)


async def test_cosines_are_those_of_the_vectors_in_the_order_asked(index: Any) -> None:
    points = [said("a", vector=EAST), said("b", vector=NORTH), said("c", vector=NORTH_EAST)]
    await index.upsert(points)
    keys = [p.version.key for p in reversed(points)]
    asked = points[0].vector
    found = await index.cosines(asked, [*keys, "unknown"])
    assert found[-1] is None
    assert found[:-1] == pytest.approx([float(np.dot(p.vector, asked)) for p in reversed(points)], abs=2e-5)
    assert await index.cosines(asked, []) == []


async def test_known_names_the_keys_that_have_a_point(index: Any) -> None:
    await index.upsert([said("a"), said("b")])
    a, b = said("a").version.key, said("b").version.key
    assert await index.known([a, "unknown", b, a]) == {a, b}
    assert await index.known([]) == set()


async def test_an_until_is_lowered_and_never_raised(index: Any) -> None:
    await index.upsert([said("a")])
    key = said("a").version.key
    await index.lower({key: 30, "unknown": 7})
    await index.lower({key: 50})
    await index.lower({key: FOREVER})
    assert await dense(index, EAST) == []
    assert await dense(index, EAST, Visible("W", None, None, moment=29)) == ["a"]
    assert await dense(index, EAST, Visible("W", None, None, moment=30)) == []


async def test_a_cleared_index_is_empty_and_can_be_used(index: Any) -> None:
    await index.upsert([said("a")])
    await index.keep_nodes([node("T")])
    await index.clear()
    assert await index.counts() == {"message points": 0, "node points": 0}
    assert await dense(index, EAST) == []
    await index.upsert([said("b")])
    assert await dense(index, EAST) == ["b"]


async def test_writing_nothing_changes_nothing(index: Any) -> None:
    await index.upsert([])
    await index.lower({})
    await index.keep_nodes([])
    await index.drop_nodes([])
    await index.flush()
    assert await index.vectors([]) == []
    assert await index.find_nodes(EAST, [], EVERYTHING) == []
    assert await index.find_messages(EAST, "hello", 10, EVERYTHING) == ([], [])


# ----------------------------------------------------------------------------------------------- searching


async def test_dense_hits_come_nearest_first_with_their_cosine(index: Any) -> None:
    await index.upsert([said("far", vector=NORTH), said("near", vector=EAST), said("between", vector=NORTH_EAST)])
    found, _ = await index.find_messages(EAST * 3, "", 10, EVERYTHING)
    assert [hit.uid for hit in found] == ["W/C1/near", "W/C1/between", "W/C1/far"]
    assert [hit.score for hit in found] == pytest.approx([1, 0.70711, 0], abs=1e-5)
    assert found[0].key == said("near").version.key


async def test_lexical_hits_share_a_word_or_its_stem_with_the_question(index: Any) -> None:
    await index.upsert(
        [said("a", "the release is blocked"), said("b", "lunch"), said("c", "we blocked it, blocking all")]
    )
    assert await lexical(index, "what blocks?") == ["c", "a"]
    assert await lexical(index, "the is") == []


async def test_ties_are_broken_by_key_also_at_the_limit(index: Any) -> None:
    names = [f"m{i:02}" for i in range(60)]
    await index.upsert([said(name, "thanks") for name in reversed(names)])
    for limit in (1, 7, 60):
        found = await index.find_messages(EAST, "thanks", limit, EVERYTHING)
        assert [[hit.uid for hit in hits] for hits in found] == [[f"W/C1/{name}" for name in names[:limit]]] * 2


async def test_a_limit_of_zero_finds_nothing(index: Any) -> None:
    await index.upsert([said("a")])
    assert await index.find_messages(EAST, "hello", 0, EVERYTHING) == ([], [])


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("今日はデプロイが失敗しました", "デプロイ"),
        ("明天上午发布新版本", "新版本什么时候发布"),
        ("서버를재시작했습니다", "서버"),
        ("ระบบล่มตอนเช้า", "ตอนเช้า"),
        ("ＡＰＩの設計", "API"),
        ("Straße nach Köln", "köln"),
    ],
)
async def test_text_without_spaces_is_found_by_its_parts(index: Any, text: str, question: str) -> None:
    await index.upsert([said("a", text), said("b", "ข้าว nothing 何もない 没事 아무것도")])
    assert await lexical(index, question) == ["a"]


def test_only_unspaced_scripts_become_pairs() -> None:
    assert words("deploy v2.1 now").split() == ["deploy", "v2.1", "now"]
    assert words("v2をデプロイ").split() == ["v2", "をデ", "デプ", "プロ", "ロイ"]
    assert words("犬 café").split() == ["犬", "café"]


# -------------------------------------------------------------------------------------------------- access


async def test_only_visible_channels_of_the_workspace_are_found(index: Any) -> None:
    await index.upsert([said("a", channel="C1"), said("b", channel="C2"), said("c", channel="C3")])
    await index.upsert([said("x", channel="C1", workspace="V")])
    for channels, expected in (({"C1"}, "a"), ({"C1", "C3"}, "ac"), ({"C1", "C2", "C3", "C9"}, "abc"), ({"C9"}, "")):
        visible = Visible("W", frozenset(channels), None)
        assert await dense(index, EAST, visible) == list(expected)
        assert await lexical(index, "hello", visible) == list(expected)
    assert await dense(index, EAST) == ["a", "b", "c"]
    assert await dense(index, EAST, Visible("unknown", None, None)) == []


async def test_no_channels_at_all_means_no_hits(index: Any) -> None:
    await index.upsert([said("a")])
    await index.keep_nodes([node("T")])
    nothing = Visible("W", frozenset(), frozenset())
    assert await index.find_messages(EAST, "hello", 10, nothing) == ([], [])
    assert await index.find_nodes(EAST, [inner("channel", 5)], nothing) == [[]]


async def test_a_channel_that_is_new_since_opening_stays_hidden(index: Any) -> None:
    visible = Visible("W", frozenset({"C1", "C2"}), None)
    await index.upsert([said(f"m{i}", channel=f"C{i % 2 + 1}") for i in range(10)])
    assert len(await dense(index, EAST, visible)) == 10
    await index.upsert([said("secret", channel="P1")])
    assert "secret" not in await dense(index, EAST, visible, limit=99)
    assert await lexical(index, "hello", Visible("W", frozenset({"P1"}), None)) == ["secret"]


async def test_hidden_messages_do_not_move_the_score_of_a_visible_one(index: Any) -> None:
    await index.upsert([said("a", "the zephyr contract"), said("b", "lunch at noon"), said("c", "zephyr again")])
    visible = Visible("W", frozenset({"C1"}), None)
    before = await index.find_messages(EAST, "zephyr contract", 10, visible)
    await index.upsert([said(f"p{i}", "zephyr contract", channel="P1") for i in range(40)])
    await index.upsert([said(f"d{i}", "zephyr contract", until=20) for i in range(40)])
    await index.upsert([said(f"v{i}", "zephyr contract", workspace="V") for i in range(40)])
    assert await index.find_messages(EAST, "zephyr contract", 10, visible) == before
    assert (await index.find_messages(EAST, "zephyr contract", 10, EVERYTHING))[1][-1] != before[1][-1]


async def test_deleting_a_visible_message_restores_the_scores_of_the_others(index: Any) -> None:
    await index.upsert([said("a", "the zephyr contract"), said("b", "lunch at noon")])
    before = await index.find_messages(EAST, "zephyr", 10, EVERYTHING)
    await index.upsert([said("c", "zephyr", NORTH)])
    assert await index.find_messages(EAST, "zephyr", 10, EVERYTHING) != before
    await index.lower({said("c").version.key: 15})
    assert await index.find_messages(EAST, "zephyr", 10, EVERYTHING) == before


# ---------------------------------------------------------------------------------------------------- time


async def test_as_of_a_moment_the_version_of_that_moment_is_found(index: Any) -> None:
    await index.upsert([said("a", "draft", since=10, until=20), said("a", "final", number="2", since=20)])
    for moment, expected in ((9, []), (10, ["draft"]), (19, ["draft"]), (20, ["final"]), (10**15, ["final"])):
        visible = Visible("W", None, None, moment=moment)
        found = [text for text in ("draft", "final") if await lexical(index, text, visible)]
        assert found == expected


async def test_since_and_until_bound_the_time_of_the_message_half_open(index: Any) -> None:
    await index.upsert([said(f"m{ts}", ts=ts) for ts in (10, 20, 30)])
    assert await dense(index, EAST, Visible("W", None, None, since=20)) == ["m20", "m30"]
    assert await dense(index, EAST, Visible("W", None, None, until=20)) == ["m10"]
    assert await lexical(index, "hello", Visible("W", None, None, since=20, until=30)) == ["m20"]


async def test_microseconds_are_compared_exactly(index: Any) -> None:
    late = 7_258_118_400_000_000 - 1
    await index.upsert([said("a", ts=late, since=late, until=late + 1)])
    assert await dense(index, EAST, Visible("W", None, None, moment=late)) == ["a"]
    assert await dense(index, EAST, Visible("W", None, None, moment=late + 1)) == []
    assert await dense(index, EAST, Visible("W", None, None, moment=late, since=late + 1)) == []


async def test_excluded_messages_are_not_found_and_do_not_change_scores(index: Any) -> None:
    await index.upsert([said("a", "zephyr one"), said("b", "zephyr two")])
    _, both = await index.find_messages(EAST, "zephyr", 10, EVERYTHING)
    visible = Visible("W", None, None, exclude=frozenset({"W/C1/a"}))
    dense_hits, lexical_hits = await index.find_messages(EAST, "zephyr", 10, visible)
    assert [hit.uid for hit in dense_hits] == ["W/C1/b"]
    assert lexical_hits == [hit for hit in both if hit.uid == "W/C1/b"]


# --------------------------------------------------------------------------------------------------- nodes

ROOTS = NodeSearch("channel", roots_only=True, limit=9)


def inner(view: str, limit: int, trees: tuple[str, ...] = ()) -> NodeSearch:
    return NodeSearch(view, roots_only=False, limit=limit, trees=trees)


async def nodes(index: Any, search: NodeSearch, visible: Visible = EVERYTHING) -> list[str]:
    [found] = await index.find_nodes(EAST, [search], visible)
    return [hit.node.sequence.tree for hit in found]


async def test_each_node_search_has_its_own_hits_in_order(index: Any) -> None:
    await index.keep_nodes([node("far", NORTH), node("near", EAST), node("root", NORTH_EAST, level=2, is_root=True)])
    await index.keep_nodes([node("U1", EAST, view="actor")])
    searches = [inner("channel", 9), ROOTS, inner("actor", 9)]
    searches += [inner("channel", 1), inner("channel", 9, ("far", "root", "unknown"))]
    found = await index.find_nodes(EAST, searches, EVERYTHING)
    trees = [[hit.node.sequence.tree for hit in hits] for hits in found]
    assert trees == [["near", "root", "far"], ["root"], ["U1"], ["near"], ["root", "far"]]
    assert found[1][0].is_root
    assert found[1][0].node == node("root", level=2).summary.node
    assert found[0][1].score == pytest.approx(0.70711, abs=1e-5)


async def test_a_kept_node_replaces_the_one_of_its_place(index: Any) -> None:
    await index.keep_nodes([node("T", EAST, audience="P1"), node("U", NORTH_EAST)])
    await index.keep_nodes([node("T", NORTH)])
    assert await nodes(index, inner("channel", 9)) == ["U", "T"]
    assert await nodes(index, inner("channel", 9), Visible("W", None, frozenset({"P1"}))) == []
    assert (await index.counts())["node points"] == 2


async def test_dropped_nodes_are_gone(index: Any) -> None:
    await index.keep_nodes([node("T"), node("U")])
    await index.drop_nodes([node("T").summary.node, node("unknown").summary.node])
    assert await nodes(index, inner("channel", 9)) == ["U"]
    assert (await index.counts())["node points"] == 1


async def test_summaries_of_other_audiences_are_not_found(index: Any) -> None:
    await index.keep_nodes([node("A"), node("B", audience="P1"), node("C", audience="P2"), node("X", workspace="V")])
    for audiences, expected in (({"public"}, "A"), ({"public", "P1"}, "AB"), ({"P2", "P9"}, "C"), ({"P9"}, "")):
        visible = Visible("W", frozenset({"C1"}), frozenset(audiences))
        assert await nodes(index, inner("channel", 9), visible) == list(expected)
    assert await nodes(index, inner("channel", 9)) == ["A", "B", "C"]


async def test_as_of_a_moment_no_summary_knows_more(index: Any) -> None:
    await index.keep_nodes([node("old", latest=10), node("new", latest=20)])
    assert await nodes(index, inner("channel", 9), Visible("W", None, None, moment=19)) == ["old"]
    assert await nodes(index, inner("channel", 9), Visible("W", None, None, moment=20)) == ["new", "old"]


# ------------------------------------------------------------------------------------- the same as the model

VOCABULARY = ("deploy", "failed", "again", "発布", "the", "thanks", "v2")
texts = st.lists(st.sampled_from(VOCABULARY), max_size=6).map(" ".join)
coordinates = st.lists(st.sampled_from((-1.0, 0.0, 1.0, 2.0)), min_size=3, max_size=3).filter(any)
vectors = coordinates.map(lambda values: unit(*values))
moments = st.integers(0, 6)
channels = st.sampled_from(("C1", "C2", "P1"))
ends = moments | st.just(FOREVER)
few = st.frozensets(channels)


@st.composite
def collections(draw: st.DrawFn) -> list[dict[str, Any]]:
    size = draw(st.integers(0, 12))
    fields = st.fixed_dictionaries(
        {"lexical": texts, "vector": vectors, "until": ends, "channel": channels, "since": moments, "ts": moments}
    )
    return [{"name": f"m{i % 9}", "number": str(i // 9), **draw(fields)} for i in range(size)]


visibles = st.builds(
    lambda **chosen: chosen,
    channels=st.none() | few,
    audiences=st.none(),
    moment=st.none() | moments,
    since=st.none() | moments,
    until=st.none() | moments,
)


def assert_alike(found: Iterable[MessageHit], expected: Iterable[MessageHit]) -> None:
    """The same hits, with scores that differ in the last bits only; hits that close may change places."""
    pairs = list(itertools.zip_longest(found, expected))
    assert [a.score for a, _ in pairs] == pytest.approx([b.score for _, b in pairs], abs=1e-4)
    assert [a.key for a, b in pairs if a.key != b.key and abs(a.score - b.score) == 0] == []


SERIAL = itertools.count()


@pytest.mark.parametrize("engine", ["edge", "qdrant-local"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    story=st.tuples(collections(), st.dictionaries(st.integers(0, 11), ends)),
    visible=visibles,
    asked=st.tuples(vectors, texts),
)
def test_the_engine_finds_what_the_model_finds(
    opened: dict[str, Any],
    engine: str,
    story: tuple[list[dict[str, Any]], dict[int, int]],
    visible: dict[str, Any],
    asked: tuple[Vectors, str],
) -> None:
    workspace = f"W{next(SERIAL)}"  # one that no example has used
    points = [said(**fields, workspace=workspace) for fields in story[0]]
    untils = {points[i].version.key: until for i, until in story[1].items() if i < len(points)}
    asyncio.run(
        compare((opened[engine], MemoryIndex(DIMENSIONS)), points, untils, Visible(workspace, **visible), asked)
    )


async def compare(
    indexes: tuple[VectorIndex, VectorIndex],
    points: list[MessagePoint],
    untils: dict[str, int],
    visible: Visible,
    asked: tuple[Vectors, str],
) -> None:
    for index in indexes:
        await index.upsert(points)
        await index.lower(untils)
    for limit in (3, 50):
        found, expected = [await index.find_messages(*asked, limit, visible) for index in indexes]
        for mine, theirs in zip(found, expected, strict=True):
            assert_alike(mine, theirs)


# ------------------------------------------------------------------------------------- the embedded directory

WRITE_AND_WAIT = """
import asyncio, sys, time
from pathlib import Path
from streammem.backends.qdrant_edge import EdgeIndex
from tests.contract.test_vector_index import DIMENSIONS, node, said
async def main():
    index = EdgeIndex(Path(sys.argv[1]), "tiny", DIMENSIONS)
    await index.upsert([said(f"m{i}", f"word{i}") for i in range(500)])
    await index.lower({said("m0").version.key: 20})
    await index.keep_nodes([node(f"T{i}") for i in range(50)])
    await index.flush()
    print("flushed", flush=True)
    await index.upsert([said("late", "unflushed")])
    time.sleep(60)
asyncio.run(main())
"""


def killed_when_flushed(path: Path) -> None:
    command = [sys.executable, "-c", WRITE_AND_WAIT, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "flushed\n"
        child.send_signal(signal.SIGKILL)


async def test_what_was_flushed_survives_a_kill(path: Path) -> None:
    killed_when_flushed(path)
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    assert len(await index.known([said(f"m{i}").version.key for i in range(500)])) == 500
    assert await lexical(index, "word499 word0") == ["m499"]
    assert (await index.counts())["node points"] == 50
    index.close()


def test_a_second_opening_is_refused_until_the_first_is_closed(path: Path) -> None:
    first = EdgeIndex(path, "tiny", DIMENSIONS)
    assert first.fresh
    with pytest.raises(MemoryHeldError, match="open in another process"):
        EdgeIndex(path, "tiny", DIMENSIONS)
    first.close()
    second = EdgeIndex(path, "tiny", DIMENSIONS)
    assert not second.fresh
    second.close()


def test_another_model_is_refused_by_both_names_until_the_index_is_discarded(path: Path) -> None:
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    for model, dimensions in (("org/other", DIMENSIONS), ("tiny", 16)):
        expected = rf"tiny \(8 dimensions.*{model} \({dimensions} dimensions.*streammem rebuild"
        with pytest.raises(MemoryFormatError, match=expected):
            EdgeIndex(path, model, dimensions)
    with pytest.raises(MemoryFormatError, match=r"mean length 40.*mean length 60"):
        EdgeIndex(path, "tiny", DIMENSIONS, average_length=60)
    qdrant_edge.discard(path)
    other = EdgeIndex(path, "org/other", DIMENSIONS)
    assert other.fresh
    other.close()
    assert [folder.name for folder in path.iterdir()] == ["org-other-8"]


def test_a_damaged_directory_is_refused_with_the_mend(path: Path) -> None:
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    shutil.rmtree(path / "tiny-8" / "summaries")
    with pytest.raises(MemoryFormatError, match=r"summaries cannot be read.*streammem rebuild"):
        EdgeIndex(path, "tiny", DIMENSIONS)
    for damage in ((path / "tiny-8" / "index.json").unlink, lambda: (path / "tiny-8" / "index.json").write_text("{")):
        damage()
        with pytest.raises(MemoryFormatError, match=r"index\.json cannot be read.*streammem rebuild"):
            EdgeIndex(path, "tiny", DIMENSIONS)
    qdrant_edge.discard(path)
    EdgeIndex(path, "tiny", DIMENSIONS).close()


def test_a_missing_payload_index_is_refused_by_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    monkeypatch.setitem(qdrant_edge._NODE_INDEXES, "colour", qdrant_edge._KEYWORD)
    with pytest.raises(MemoryFormatError, match="summaries lacks the index of colour"):
        EdgeIndex(path, "tiny", DIMENSIONS)
    monkeypatch.undo()
    EdgeIndex(path, "tiny", DIMENSIONS).close()


# ------------------------------------------------------------------------------------------------ names


def worded(point: MessagePoint, speaker: str, room: str = "general", *follows: str) -> MessagePoint:
    """The point with these names in its words; `follows` says which of them the directory may change."""
    words_ = f"{speaker} #{room}: {point.version.text}"
    return msgspec.structs.replace(point, lexical=words_, naming=Naming(speaker, room, follows))


async def test_misnamed_are_the_points_whose_words_follow_the_directory_and_are_others_now(index: Any) -> None:
    follows = worded(said("a"), "Ann", "general", "user", "channel")
    own_speaker, own = worded(said("b"), "Ann", "general", "channel"), worded(said("c"), "Ann")
    elsewhere = worded(said("d", workspace="V"), "Ann", "general", "user", "channel")
    await index.upsert([follows, own_speaker, own, elsewhere])
    assert sorted(await index.misnamed("W", {"U1": "Anna"}, {})) == [(follows.version.key, follows.naming)]
    assert sorted(await index.misnamed("W", {}, {"C1": "ops"})) == [
        (follows.version.key, follows.naming),
        (own_speaker.version.key, own_speaker.naming),
    ]
    assert await index.misnamed("W", {"U1": "Anna"}, {"C1": "ops"}) == await index.misnamed("W", {}, {"C1": "ops"})


async def test_points_of_others_or_with_the_right_names_are_not_misnamed(index: Any) -> None:
    await index.upsert([worded(said("a"), "Ann", "general", "user", "channel")])
    assert await index.misnamed("W", {"U1": "Ann"}, {"C1": "general"}) == []
    assert await index.misnamed("W", {"U2": "Anna"}, {"C2": "ops"}) == []
    assert await index.misnamed("V", {"U1": "Anna"}, {"C1": "ops"}) == []
    assert await index.misnamed("W", {}, {}) == []


async def test_a_replaced_point_has_the_new_words_the_new_vector_and_the_new_names(index: Any) -> None:
    first = worded(said("a", "launch", EAST), "Ann", "general", "user")
    await index.upsert([first, worded(said("b", "lunch", EAST), "Ann", "general", "user")])
    again = worded(msgspec.structs.replace(first, vector=NORTH), "Zoe", "general", "user")
    await index.replace([again])
    await index.replace([again])
    assert await lexical(index, "Zoe") == ["a"]
    assert await lexical(index, "Ann") == ["b"]
    assert (await index.vectors([first.version.key]))[0].tolist() == NORTH.tolist()
    assert [key for key, _ in await index.misnamed("W", {"U1": "Zoe"}, {})] == [said("b").version.key]
    assert (await index.counts())["message points"] == 2


async def test_the_until_of_a_replaced_point_only_falls(index: Any) -> None:
    open_, closed = worded(said("a"), "Ann"), worded(said("b", until=20), "Ann")
    await index.upsert([open_, closed])
    await index.replace([worded(said("a", until=30), "Zoe"), worded(said("b"), "Zoe")])
    assert await dense(index, EAST) == []
    assert await dense(index, EAST, Visible("W", None, None, moment=15)) == ["a", "b"]
    assert await dense(index, EAST, Visible("W", None, None, moment=25)) == ["a"]


async def test_a_point_that_was_not_there_is_put_by_replace(index: Any) -> None:
    await index.replace([worded(said("a"), "Ann", "general", "user")])
    assert await dense(index, EAST) == ["a"]
    await index.upsert([worded(said("a", vector=NORTH), "Zoe")])
    assert await lexical(index, "Ann") == ["a"]


async def test_replacing_nothing_changes_nothing(index: Any) -> None:
    await index.upsert([worded(said("a"), "Ann")])
    await index.replace([])
    assert await lexical(index, "Ann") == ["a"]


async def test_a_point_that_was_lowered_meanwhile_does_not_rise_when_it_is_replaced(index: Any) -> None:
    await index.upsert([worded(said("a"), "Ann", "general", "user")])
    await index.lower({said("a").version.key: 20})
    await index.replace([worded(said("a"), "Zoe", "general", "user")])
    assert await dense(index, EAST) == []
    assert await dense(index, EAST, Visible("W", None, None, moment=15)) == ["a"]
