"""Rank arithmetic against trees that are really built."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streammem.core import forest
from streammem.records import NodeId, Sequence

SEQUENCE = Sequence("w", "channel", "c")


def grown(size: int, k: int) -> dict[tuple[int, int], range]:
    """A k-ary tree built by grouping, the way the paper says: every k nodes get a parent until one is left."""
    nodes: dict[tuple[int, int], range] = {}
    below = [range(i, i + 1) for i in range(size)]
    level = 0
    while size and (level == 0 or len(below) > 1):
        level += 1
        below = [range(g[0].start, g[-1].stop) for g in (below[i : i + k] for i in range(0, len(below), k))]
        nodes.update({(level, i): span for i, span in enumerate(below)})
    return nodes


@given(st.integers(0, 600), st.integers(2, 17))
def test_arithmetic_gives_the_tree_that_grouping_builds(size: int, k: int) -> None:
    tree = grown(size, k)
    assert set(forest.nodes_from(0, size, k)) == set(tree)
    assert {node: forest.cover(*node, size, k) for node in tree} == tree
    assert forest.root_level(size, k) == max((level for level, _ in tree), default=0)


@given(st.integers(1, 600), st.integers(2, 17), st.data())
def test_the_path_of_a_leaf_is_every_node_that_covers_it(size: int, k: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    covering = sorted(node for node, span in grown(size, k).items() if rank in span)
    assert sorted(forest.path(rank, size, k)) == covering
    assert forest.parent(SEQUENCE, rank, k) == NodeId(SEQUENCE, *forest.path(rank, size, k)[0])
    assert rank in forest.siblings(rank, size, k)


@given(st.integers(1, 400), st.integers(2, 9), st.data())
def test_nodes_from_a_rank_are_all_that_a_change_there_can_touch(size: int, k: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    touched = {node for node, span in grown(size, k).items() if span.stop > rank}
    found = forest.nodes_from(rank, size, k)
    assert set(found) == touched
    assert found == sorted(found, key=lambda node: node[0])


@given(st.integers(1, 400), st.integers(2, 9), st.data())
def test_ancestors_are_those_on_the_way_to_the_root(size: int, k: int, data: st.DataObject) -> None:
    level, index = data.draw(st.sampled_from(forest.nodes_from(0, size, k)))
    node = NodeId(SEQUENCE, level, index)
    above = forest.above(node, size, k)
    assert all(forest.is_ancestor(upper, node, k) for upper in above)
    assert not forest.is_ancestor(node, node, k)
    inside = set(forest.cover(level, index, size, k))
    assert all(inside <= set(forest.cover(u.level, u.index, size, k)) for u in above)


def test_a_window_is_cut_at_the_ends_of_its_sequence() -> None:
    assert forest.window(0, 10, 2) == range(3)
    assert forest.window(9, 10, 2) == range(7, 10)
    assert forest.window(5, 10, 2) == range(3, 8)


def test_only_actors_have_a_skeleton() -> None:
    assert forest.skeleton(SEQUENCE) == []
    branch, root = forest.skeleton(Sequence("w", "actor", "u", "authored", "c"))
    assert (branch.sequence.branch, root.sequence.branch) == ("authored", "")
