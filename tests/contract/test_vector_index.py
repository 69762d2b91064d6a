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
from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    Filter,
    Modifier,
    UpdateOperation,
)

from streammem.backends import qdrant_edge
from streammem.backends.lexical import AVERAGE_LENGTH, words
from streammem.backends.memory_vectors import MemoryIndex
from streammem.backends.qdrant_edge import EdgeIndex
from streammem.backends.qdrant_points import FORMAT, PIECE, Description, node_payload, point_id
from streammem.errors import MemoryFormatError, MemoryHeldError
from streammem.ports import MessageHit, MessagePoint, NodePoint, NodeSearch, VectorIndex, Vectors, Visible
from streammem.records import FOREVER, Leaf, Naming, NodeId, Sequence, Summary, Version
from tests import qdrant

pytestmark = qdrant.quiet

ROOT = Path(__file__).parents[2]
DIMENSIONS = 8
EVERYTHING = Visible("W", None, None)
WRITES = {"upsert", "replace", "lower", "erase", "keep_nodes", "drop_nodes", "clear"}


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
    user: str = "U1",
) -> MessagePoint:
    uid, deleted = f"{workspace}/{channel}/{name}", False
    version = Version(uid, number, deleted, "h", workspace, channel, name, ts, since, user, lexical)
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
        ("昨天谁批准了预算？", "预算是谁批准的"),
        ("来週の予算は承認されました", "予算の承認はいつ"),
        ("งบประมาณได้รับอนุมัติเมื่อวานนี้", "ใครอนุมัติงบประมาณ"),
        ("Бюджет утверждён ЁЛКИНЫМ вчера", "кто утвержден елкиным"),
        ("Ο προϋπολογισμός ΕΓΚΡΙΘΗΚΕ", "εγκρίθηκε"),
        ("تمّت المُوافَقة على الميزانيّة", "الموافقة"),
        ("क्या बजट स्वीकृत है", "बजट"),
        ("the naïve résumé of Zoë", "naive zoe"),
        ("the naive resume of Zoe", "NAÏVE RÉSUMÉ"),
        ("ﬁnal draft", "final"),
    ],
)
async def test_a_text_in_any_script_is_found_by_its_words_or_their_parts(index: Any, text: str, question: str) -> None:
    await index.upsert([said("a", text), said("b", "ข้าว nothing 何もない 没事 아무것도")])
    assert await lexical(index, question) == ["a"]


def test_only_unspaced_scripts_become_pairs() -> None:
    assert words("deploy v2.1 now").split() == ["deploy", "v2.1", "now"]
    assert words("v2をデプロイ").split() == ["v2", "をデ", "デプ", "プロ", "ロイ"]
    assert words("犬 café").split() == ["犬", "cafe"]


def test_vowel_signs_that_tell_words_apart_stay() -> None:
    assert words("किताब") != words("कताब")
    assert words("バス") != words("ハス")


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


# --------------------------------------------------------------------------------------------------- words alone

SPEECH = [
    ("a", "the zephyr contract", "C1", 10, FOREVER),
    ("b", "lunch at noon", "C1", 20, FOREVER),
    ("c", "zephyr renewed, and lunch", "C2", 30, FOREVER),
    ("d", "zephyr zephyr", "P1", 10, FOREVER),
    ("e", "the contract of lunch", "C1", 10, 25),
]
SEEN = [
    EVERYTHING,
    Visible("W", frozenset({"C1"}), None),
    Visible("W", frozenset({"C1", "C2", "new"}), None),
    Visible("W", None, None, moment=24),
    Visible("W", None, None, since=15, until=30),
    Visible("W", None, None, exclude=frozenset({"W/C1/a"})),
]


async def speech(index: Any) -> None:
    points = [said(n, text, channel=c, ts=ts, since=ts, until=until) for n, text, c, ts, until in SPEECH]
    await index.upsert(points)


@pytest.mark.parametrize("visible", SEEN)
async def test_words_alone_find_what_they_find_beside_a_vector(index: Any, visible: Visible) -> None:
    await speech(index)
    asked = ["zephyr contract", "lunch", "", "nothing said so", "zephyr contract"]
    for limit in (1, 10):
        found = await index.find_words(asked, limit, visible)
        assert found == [(await index.find_messages(EAST, text, limit, visible))[1] for text in asked]
        assert found[2:4] == [[], []]
        assert any(found)


async def test_each_text_of_a_search_for_words_has_its_own_hits_in_its_place(index: Any) -> None:
    await speech(index)
    found = await index.find_words(["noon", "renewed", "noon"], 10, EVERYTHING)
    assert [[hit.uid for hit in some] for some in found] == [["W/C1/b"], ["W/C2/c"], ["W/C1/b"]]
    assert found[0][0].key == said("b").version.key


async def test_hidden_messages_do_not_move_what_words_alone_score(index: Any) -> None:
    await speech(index)
    visible = Visible("W", frozenset({"C1"}), None)
    before = await index.find_words(["zephyr contract", "lunch"], 10, visible)
    assert {hit.uid for some in before for hit in some} == {"W/C1/a", "W/C1/b"}
    await index.upsert([said(f"p{i}", "zephyr contract", channel="P1") for i in range(40)])
    await index.upsert([said(f"d{i}", "lunch", until=20) for i in range(40)])
    await index.upsert([said(f"v{i}", "zephyr contract", workspace="V") for i in range(40)])
    assert await index.find_words(["zephyr contract", "lunch"], 10, visible) == before
    assert await index.find_words(["zephyr contract", "lunch"], 10, EVERYTHING) != before


async def test_no_words_no_room_or_nothing_to_read_find_nothing(index: Any) -> None:
    await speech(index)
    assert await index.find_words([], 10, EVERYTHING) == []
    assert await index.find_words(["zephyr", "lunch"], 0, EVERYTHING) == [[], []]
    for nothing in (Visible("W", frozenset(), frozenset()), Visible("W", frozenset({"C9"}), None)):
        assert await index.find_words(["zephyr", "lunch"], 10, nothing) == [[], []]


async def test_ties_among_words_alone_are_broken_by_key_also_at_the_limit(index: Any) -> None:
    names = [f"m{i:02}" for i in range(30)]
    await index.upsert([said(name, "thanks") for name in reversed(names)])
    (found,) = await index.find_words(["thanks"], 7, EVERYTHING)
    assert [hit.uid for hit in found] == [f"W/C1/{name}" for name in names[:7]]


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
users = st.sampled_from(("U1", "U2", "U3"))
erasures = st.tuples(st.sets(st.integers(0, 9), max_size=3), st.sets(users, max_size=1))


@st.composite
def collections(draw: st.DrawFn) -> list[dict[str, Any]]:
    size = draw(st.integers(0, 12))
    fields = st.fixed_dictionaries(
        {"lexical": texts, "vector": vectors, "until": ends, "channel": channels, "since": moments, "ts": moments}
        | {"user": users}
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
    story=st.tuples(collections(), st.dictionaries(st.integers(0, 11), ends), erasures),
    visible=visibles,
    asked=st.tuples(vectors, texts),
)
def test_the_engine_finds_what_the_model_finds(
    opened: dict[str, Any],
    engine: str,
    story: tuple[list[dict[str, Any]], dict[int, int], tuple[set[int], set[str]]],
    visible: dict[str, Any],
    asked: tuple[Vectors, str],
) -> None:
    workspace = f"W{next(SERIAL)}"  # one that no example has used
    points = [said(**fields, workspace=workspace) for fields in story[0]]
    untils = {points[i].version.key: until for i, until in story[1].items() if i < len(points)}
    uids = [f"{workspace}/{channel}/m{i}" for i in story[2][0] for channel in ("C1", "P1")]
    told = points, untils, (uids, list(story[2][1]))
    asyncio.run(compare((opened[engine], MemoryIndex(DIMENSIONS)), told, Visible(workspace, **visible), asked))


async def compare(
    indexes: tuple[VectorIndex, VectorIndex],
    told: tuple[list[MessagePoint], dict[str, int], tuple[list[str], list[str]]],
    visible: Visible,
    asked: tuple[Vectors, str],
) -> None:
    points, untils, erased = told
    for index in indexes:
        await index.upsert(points)
        await index.lower(untils)
    found, expected = [await index.traces(visible.workspace, *erased) for index in indexes]
    assert found == expected
    for index in indexes:
        await index.erase(visible.workspace, *erased)
    for limit in (3, 50):
        found, expected = [await index.find_messages(*asked, limit, visible) for index in indexes]
        for mine, theirs in zip(found, expected, strict=True):
            assert_alike(mine, theirs)
        texts = [asked[1], "", "hello"]
        found, expected = [await index.find_words(texts, limit, visible) for index in indexes]
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


def killed_when_flushed(path: Path, script: str = WRITE_AND_WAIT) -> None:
    command = [sys.executable, "-c", script, str(path)]
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


def test_an_index_of_other_words_is_refused_in_one_line_with_the_mend(path: Path) -> None:
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    file = path / "tiny-8" / "index.json"
    file.write_bytes(msgspec.json.encode(Description("tiny", DIMENSIONS, AVERAGE_LENGTH, FORMAT - 1)))
    wanted = rf"format {FORMAT - 1}\).*format {FORMAT}\): this version .* otherwise: run `streammem rebuild`"
    with pytest.raises(MemoryFormatError, match=wanted):
        EdgeIndex(path, "tiny", DIMENSIONS)


def test_a_payload_index_of_another_kind_is_refused_by_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    monkeypatch.setitem(qdrant_edge._NODE_INDEXES, "latest", qdrant_edge._KEYWORD)
    with pytest.raises(MemoryFormatError, match="summaries has an index of another kind on latest"):
        EdgeIndex(path, "tiny", DIMENSIONS)
    monkeypatch.undo()
    EdgeIndex(path, "tiny", DIMENSIONS).close()


def as_before(path: Path) -> Path:
    """A directory as it was made before there was an erasure, its shards with a log and without an index of users."""
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    for name, indexes in (("messages", qdrant_edge._MESSAGE_INDEXES), ("summaries", qdrant_edge._NODE_INDEXES)):
        shutil.rmtree(path / "tiny-8" / name)
        sparse = {"lexical": EdgeSparseVectorParams(modifier=Modifier.Idf)} if name == "messages" else None
        config = EdgeConfig(vectors={"dense": EdgeVectorParams(DIMENSIONS, Distance.Cosine)}, sparse_vectors=sparse)
        kept = {field: kind for field, kind in indexes.items() if field != "user"}
        qdrant_edge._create_shard(path / "tiny-8" / name, config, kept)
    return path / "tiny-8" / "messages"


async def test_a_directory_with_a_log_keeps_its_points_and_loses_its_log(path: Path, folder: Path) -> None:
    messages = as_before(path)
    maker = EdgeIndex(folder / "maker", "tiny", DIMENSIONS)
    points = [maker._message_point(point) for point in (said("a", "zephyr"), said("b", user="U2"), said("c"))]
    maker.close()
    shard = EdgeShard.load(str(messages))
    shard.update(UpdateOperation.upsert_points(points))
    shard.close()
    assert has_log(messages)
    for _ in range(2):
        index = EdgeIndex(path, "tiny", DIMENSIONS)
        assert not has_log(messages)
        assert await dense(index, EAST) == ["a", "b", "c"]
        index.close()
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    await index.replace([said("a", "harbour")])  # the engine numbers its writes on from those of the log
    assert await lexical(index, "zephyr") == []
    assert await lexical(index, "harbour") == ["a"]
    await index.erase("W", users=["U2"])
    assert await dense(index, EAST) == ["a", "c"]
    index.close()


def has_log(shard: Path) -> bool:
    return (shard / "wal").exists()


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


# ---------------------------------------------------------------------------------------------- erasure


async def test_every_version_of_an_erased_message_is_gone_from_everything(index: Any) -> None:
    versions = [
        worded(said("a", "draft", until=20), "Ann", "general", "user"),
        worded(said("a", "final", number="2", since=20), "Ann", "general", "user"),
    ]
    await index.upsert([*versions, said("b", "other", NORTH)])
    keys = [point.version.key for point in versions]
    assert await index.traces("W", ["W/C1/a"]) == 2
    await index.erase("W", ["W/C1/a"])
    assert await index.traces("W", ["W/C1/a"]) == 0
    assert await dense(index, EAST) == ["b"]
    assert await lexical(index, "draft final Ann") == []
    assert await dense(index, EAST, Visible("W", None, None, moment=15)) == ["b"]
    assert await index.known(keys) == set()
    assert await index.vectors(keys) == [None, None]
    assert await index.cosines(EAST, keys) == [None, None]
    assert await index.misnamed("W", {"U1": "Anna"}, {}) == []
    assert (await index.counts())["message points"] == 1


async def test_all_messages_of_an_erased_user_are_gone_and_no_others(index: Any) -> None:
    await index.upsert([said("a", user="U2"), said("b", user="U2", channel="C2"), said("c")])
    await index.upsert([said("x", user="U2", workspace="V"), said("a", workspace="V")])
    assert await index.traces("W", users=["U2", "U9"]) == 2
    await index.erase("W", users=["U2", "U9"])
    assert await dense(index, EAST) == ["c"]
    assert await dense(index, EAST, Visible("V", None, None)) == ["a", "x"]
    assert await index.traces("V", ["V/C1/a"], ["U2"]) == 2


async def test_a_trace_is_counted_once(index: Any) -> None:
    await index.upsert([said("a", user="U2"), said("b", user="U2"), said("c"), said("d")])
    asked = (["W/C1/a", "W/C1/c", "W/C1/c"], ["U2", "U2"])
    assert await index.traces("W", *asked) == 3
    await index.erase("W", *asked)
    assert await index.traces("W", *asked) == 0
    assert await dense(index, EAST) == ["d"]


async def test_erasing_again_or_the_unknown_or_nothing_changes_nothing(index: Any) -> None:
    await index.upsert([said("a"), said("b")])
    for _ in range(2):
        await index.erase("W", ["W/C1/a"])
        await index.erase("W", ["unknown"], ["U9"])
        await index.erase("V", ["W/C1/b"], ["U1"])
        await index.erase("W")
        assert await index.traces("W") == 0
        assert await dense(index, EAST) == ["b"]


async def test_any_number_of_messages_is_erased(index: Any) -> None:
    await index.upsert([said("first"), said("last"), said("other")])
    uids = ["W/C1/first", *(f"W/C1/g{i}" for i in range(2 * PIECE)), "W/C1/last"]
    assert await index.traces("W", uids) == 2
    await index.erase("W", uids)
    assert await dense(index, EAST) == ["other"]


async def test_scores_are_those_of_an_index_that_never_held_what_was_erased(index: Any) -> None:
    await index.upsert([said("a", "the zephyr contract"), said("b", "lunch at noon"), said("c", "zephyr again")])
    shown = [EVERYTHING, Visible("W", frozenset({"C1"}), None), Visible("W", None, None, moment=15)]
    before = [await index.find_messages(EAST, "zephyr contract", 10, visible) for visible in shown]
    more = [said(f"e{i}", "zephyr contract", user="U2", channel=f"C{i % 2 + 1}", until=20 + i) for i in range(40)]
    await index.upsert([*more, said("e", "zephyr", user="U2")])
    assert await index.find_messages(EAST, "zephyr contract", 10, EVERYTHING) != before[0]
    await index.erase("W", users=["U2"])
    for _ in range(2):
        assert [await index.find_messages(EAST, "zephyr contract", 10, visible) for visible in shown] == before
        await index.flush()


async def test_what_was_erased_can_be_written_again(index: Any) -> None:
    await index.upsert([said("a", "first"), said("b")])
    await index.erase("W", ["W/C1/a"])
    await index.flush()
    await index.upsert([said("a", "second", NORTH)])
    assert await lexical(index, "first second") == ["a"]
    assert await dense(index, NORTH) == ["a", "b"]


def test_the_payload_of_a_summary_holds_no_text_and_no_message() -> None:
    told = msgspec.json.encode(node_payload(node("T"))).decode()
    assert "W/C1/a" not in told
    assert "text" not in told


SECRET = said("q7Zk9RwX", "zephyr", unit(3, 1, 4, 1, 5, 9, 2, 6), user="UvB3x8Lq")
MARKS = {
    "uid": b"q7Zk9RwX",
    "user": b"UvB3x8Lq",
    "name": b"Mw4Tf6Hj",
    "vector": SECRET.vector.tobytes()[:16],
    "id": point_id(SECRET.version.key).bytes,
    "id, as a number": point_id(SECRET.version.key).bytes[::-1],
}


def remains(path: Path) -> set[str]:
    """Which of the marks of the secret message some file holds."""
    contents = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    return {name for name, mark in MARKS.items() if any(mark in content for content in contents)}


async def with_a_secret(path: Path) -> EdgeIndex:
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    await index.upsert([said(f"m{i}", f"word{i}") for i in range(300)])
    await index.upsert([worded(SECRET, "Mw4Tf6Hj", "general", "user")])
    await index.flush()
    assert remains(path) >= {"uid", "user", "name", "vector"}
    return index


@pytest.mark.parametrize("named", [{"uids": [SECRET.version.uid]}, {"users": [SECRET.version.user]}])
async def test_no_file_holds_what_was_erased(path: Path, named: dict[str, list[str]]) -> None:
    index = await with_a_secret(path)
    await index.erase("W", **named)
    await index.flush()
    assert remains(path) == set()
    index.close()
    assert remains(path) == set()
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    assert remains(path) == set()
    assert (await index.counts())["message points"] == 300
    assert await lexical(index, "word7 zephyr") == ["m7"]
    index.close()


async def test_no_file_holds_the_last_message_either(path: Path) -> None:
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    await index.upsert([SECRET])
    await index.flush()
    await index.erase("W", users=[SECRET.version.user])
    await index.flush()
    assert remains(path) == set()
    index.close()


async def test_no_file_holds_a_dropped_summary_after_an_erasure(path: Path) -> None:
    index = await with_a_secret(path)
    summary = node(SECRET.version.user, SECRET.vector, view="actor")
    await index.keep_nodes([summary, node("T")])
    await index.flush()
    await index.drop_nodes([summary.summary.node])
    await index.erase("W", [SECRET.version.uid])
    await index.flush()
    assert remains(path) == set()
    assert await nodes(index, inner("channel", 9)) == ["T"]
    index.close()


async def test_an_erasure_that_was_cut_short_ends_at_the_next_opening(path: Path) -> None:
    index = await with_a_secret(path)
    await index.erase("W", [SECRET.version.uid])
    index.close()
    (path / "tiny-8" / "messages" / "temp_segments" / "segment_builder_x").mkdir(parents=True)
    (path / "tiny-8" / "messages" / "temp_segments" / "segment_builder_x" / "page_0.dat").write_bytes(MARKS["uid"])
    assert remains(path) >= {"uid", "vector"}
    EdgeIndex(path, "tiny", DIMENSIONS).close()
    assert remains(path) == set()


ERASE_AND_WAIT = """
import asyncio, sys, time
from pathlib import Path
from tests.contract.test_vector_index import SECRET, said, with_a_secret
async def main():
    index = await with_a_secret(Path(sys.argv[1]))
    await index.erase("W", users=[SECRET.version.user])
    await index.flush()
    print("flushed", flush=True)
    await index.upsert([said("late", "unflushed")])
    time.sleep(60)
asyncio.run(main())
"""


async def test_what_was_erased_and_flushed_stays_erased_after_a_kill(path: Path) -> None:
    killed_when_flushed(path, ERASE_AND_WAIT)
    assert remains(path) == set()
    index = EdgeIndex(path, "tiny", DIMENSIONS)
    assert await index.traces("W", [SECRET.version.uid], [SECRET.version.user]) == 0
    assert len(await index.known([said(f"m{i}").version.key for i in range(300)])) == 300
    index.close()
