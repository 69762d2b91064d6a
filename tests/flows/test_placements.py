"""The Placement Map: where messages stand, and what stands beside them."""

from __future__ import annotations

import pytest

from streammem.backends.memory import MemoryLog, MemoryStructure
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.routing import actor_sequence, channel_sequence
from streammem.flows.ingest import ingest
from streammem.flows.placements import cotenants, placements, trees_of, window
from streammem.flows.verify import replay
from tests.stories import said

K = 3


@pytest.fixture
async def store() -> MemoryStructure:
    log, grown = MemoryLog(), MemoryStructure()
    await ingest(
        [said(str(i), f"DOC-1 step {i}" if i % 2 else "fine", user="ana" if i < 4 else "bob") for i in range(8)],
        log,
        grown.forbidden,
    )
    await replay(log, grown, DEFAULT_RULES)
    return grown


async def test_a_message_stands_in_its_channel_actor_and_artifact_trees(store: MemoryStructure) -> None:
    assert await trees_of("w/c/5", store) == [("actor", "bob"), ("artifact", "DOC-1"), ("channel", "c")]
    assert await trees_of("w/c/unknown", store) == []


async def test_position_and_parent_follow_from_the_rank(store: MemoryStructure) -> None:
    (found,) = await placements(["w/c/5"], store, K)
    at = {p.sequence.view: (p.position, p.size, p.parent.index) for p in found}
    assert at == {"channel": (5, 8, 1), "actor": (1, 4, 0), "artifact": (2, 4, 0)}


async def test_a_window_is_taken_in_one_sequence(store: MemoryStructure) -> None:
    channel, bob = channel_sequence("w", "c"), actor_sequence("w", "bob", "authored", "c")
    assert [leaf.uid for leaf in await window("w/c/4", channel, 1, store)] == ["w/c/3", "w/c/4", "w/c/5"]
    assert [leaf.uid for leaf in await window("w/c/4", bob, 1, store)] == ["w/c/4", "w/c/5"]
    assert await window("w/c/0", bob, 1, store) == []


async def test_cotenants_share_a_parent_in_any_tree(store: MemoryStructure) -> None:
    assert [leaf.uid for leaf in await cotenants("w/c/5", store, K)] == ["w/c/1", "w/c/3", "w/c/4", "w/c/6"]
