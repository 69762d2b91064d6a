"""What questions met is worded first; whoever words it is not called back by every question."""

from __future__ import annotations

from typing import Any

import pytest

from streammem.flows import asking
from streammem.records import NodeId, Query
from tests.flows.worlds import World
from tests.stories import public, said


async def test_nodes_that_question_after_question_meets_are_noted_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[NodeId] = []

    async def note(nodes: Any, store: Any) -> None:
        noted.extend(nodes)

    monkeypatch.setattr(asking, "touch", note)
    world = World()
    await world.tell([public(), *(said(str(i), f"gasket number {i}", minute=i) for i in range(40))])
    await world.summarize()
    counter = world.counter()
    for _ in range(3):
        await counter.ask(Query(text="gasket number 7", workspace="w"))
        await counter.close()
    assert noted
    assert len(noted) == len(set(noted))
    monkeypatch.setattr(asking, "REST", 0.0)
    await counter.ask(Query(text="gasket number 7", workspace="w"))
    await counter.close()
    assert len(noted) == 2 * len(set(noted))
