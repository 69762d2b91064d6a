"""What the flows rely on where groupings are kept: compare and set, a generation that only grows, nothing left."""

from streammem.ports import GROUPS, QUEUES
from streammem.records import Alias, Artifacts, Joined, Leaf, Sequence, Tie

DOC = (("W/C1/a", "h1"), ("W/C1/b☃", "h2"))
MADE = Artifacts(
    "W",
    ("C1", "C/2"),
    (Tie("DOC-1", "PR-2", "said", 0.9133, DOC),),
    (Joined("W/C1/c", 30, "DOC-1", "named", (("W/C1/c", "h3"), *DOC)),),
    (Alias("DOC-1", 8, 24, DOC[0]),),
    (Tie("DOC-1", "DOC-3", "close", 0.8912, DOC),),
    (("DOC-1", ("drafted", "merged")),),
    ((2**48 - 1, 12), (7, 5)),
    "digest",
)
OTHER = Artifacts("W", digest="other")


async def test_a_workspace_that_was_never_grouped_has_no_grouping(store):
    assert await store.grouping("W") is None
    assert await store.grouping_generation("W") == 0


async def test_a_grouping_comes_back_as_it_was(store):
    assert await store.group(MADE, 0)
    assert await store.grouping("W") == MADE
    assert await store.grouping("V") is None
    assert (await store.counts())["groupings"] == 1 or not await store.workspaces()


async def test_each_grouping_moves_the_generation_of_its_workspace_alone(store):
    seen = [await store.grouping_generation("W")]
    for made in (MADE, OTHER, MADE):
        assert await store.group(made, seen[-1])
        seen.append(await store.grouping_generation("W"))
    assert seen == sorted(set(seen))
    assert await store.grouping_generation("V") == 0


async def test_a_grouping_that_follows_an_older_one_is_not_kept(store):
    assert await store.group(MADE, 0)
    before = await store.grouping_generation("W")
    assert not await store.group(OTHER, 0)
    assert await store.grouping("W") == MADE
    assert await store.grouping_generation("W") == before


async def test_what_was_begun_before_an_erasure_is_not_kept_after_it(store):
    before = await store.grouping_generation("W")
    await store.ungroup("W")
    assert not await store.group(MADE, before)
    assert await store.grouping("W") is None


async def test_ungrouping_leaves_nothing_and_moves_the_generation(store):
    await store.group(MADE, 0)
    before = await store.grouping_generation("W")
    await store.ungroup("W")
    assert await store.grouping("W") is None
    assert await store.grouping_generation("W") > before
    assert await store.group(OTHER, await store.grouping_generation("W"))
    assert await store.grouping("W") == OTHER


async def test_clearing_forgets_groupings_and_their_generation_goes_on(store):
    await store.group(MADE, 0)
    before = await store.grouping_generation("W")
    await store.clear()
    assert await store.grouping("W") is None
    assert await store.grouping_generation("W") > before


async def test_workspaces_to_group_wait_in_a_queue_of_their_own(store):
    assert GROUPS in QUEUES
    mark = Sequence("W", "groups", "")
    await store.mark_due([(mark, Leaf(0, ""))], GROUPS)
    (due,) = await store.due(9, 0.0, 60.0, GROUPS)
    assert due.sequence == mark
    assert await store.due(9) == []
    assert await store.sequences("W") == []
    await store.settle([due], GROUPS)
    assert (await store.counts())[GROUPS] == 0
