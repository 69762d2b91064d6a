"""No summary in use covers what is not said any more: `trace` proves it, and no reply that comes too late is shown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from streammem.backends.memory import MemoryStructure
from streammem.backends.memory_ledger import MemoryLedger
from streammem.backends.redis import RedisStructure
from streammem.backends.sqlite import SqliteStructure
from streammem.core import forest, routing, summaries
from streammem.core.events import version_of
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Summarizing
from streammem.core.numbers import Wording as Numbers
from streammem.flows import forgetting, lineage, wording
from streammem.flows.calling import Terms
from streammem.flows.lineage import Lineage, trace
from streammem.flows.sheet import Pen
from streammem.flows.sight import shown_summaries, visible_to
from streammem.flows.telling import Teller
from streammem.flows.verify import verify
from streammem.records import Event, Limits, NodeId, Paid, Prompt, Query, Redaction, Reply, Summary, UserEvent, Wording
from tests.flows.worlds import World
from tests.servers import redis_server
from tests.stories import deleted, edited, private, public, said
from tests.strategies import histories

K = 4
CHANNEL = routing.channel_sequence("w", "c")
DOC = routing.artifact_sequence("w", "DOC-1")
ANA = routing.actor_sequence("w", "ana", "authored", "c")
WORDS = ("kettle", "gasket", "harbour", "lantern", "pylon", "saffron", "tundra", "walnut", "zephyr", "quarry")
SECRET = WORDS[5]
"""Only message 5 says it."""
TOLD = [
    said(str(i), f"DOC-1 {WORDS[i % 10][:: -1 if i > 9 else 1]} number {i} is on its way and will be there at noon")
    for i in range(1, 21)
]
TOLD_AT = [routing.leaf_of(version_of(m, "", DEFAULT_RULES)) for m in (TOLD[0], *TOLD)]
STORY: list[Event] = [public(), UserEvent(workspace="w", id="eve", name="eve"), *TOLD]


class Model:
    """Says again what it is told, two words of each line. It holds calls back that its test wants to be slow."""

    name = "m"

    def __init__(self, slow: Callable[[Prompt], bool] = lambda _: False) -> None:
        self.slow = slow
        self.go_on = asyncio.Event()
        self.held = 0
        self.said = 0

    async def say(self, prompt: Prompt) -> Reply:
        if self.slow(prompt):
            self.held += 1
            await self.go_on.wait()
            self.held -= 1
        self.said += 1
        found = [{"node": node, "text": self._text(prompt, node)} for node in _nodes(prompt)]
        return Reply(json.dumps({"summaries": found}), 100, 20)

    def _text(self, prompt: Prompt, node: str) -> str:
        lines = prompt.data.split(f"<<<data {node}\n")[1].split(f">>>data {node}")[0].splitlines()
        return "Told of " + ", ".join(" ".join(re.findall(r"DOC-1 \w+", line)) for line in lines)


def _nodes(prompt: Prompt) -> list[str]:
    return re.findall(r"^Node ([0-9a-f]{12})$", prompt.data, re.MULTILINE)


def at_level(*levels: int) -> Callable[[Prompt], bool]:
    """Whether nodes of one of these levels are asked for."""
    return lambda prompt: any(f"\nLevel: {level}\n" in prompt.data for level in levels)


class Writing:
    """A world in which a model words what was summarised."""

    def __init__(self, model: Model | None = None, world: World | None = None) -> None:
        self.world = world or World(k=K)
        self.world.bench = msgspec.structs.replace(self.world.bench, worded=True)
        self.model = model or Model()
        self.store = self.world.store
        numbers = Numbers(quiet=0, linger=0, pack=1)
        teller = Teller(self.model, MemoryLedger(), self.store, Terms(numbers, Limits()))  # type: ignore[arg-type]
        self.pen = Pen(self.store, teller, "m/1", self.world.forest.k, numbers, rest=0.01)

    async def tell(self, events: Iterable[Event]) -> None:
        await self.world.tell(events)
        await self.word()

    async def word(self) -> None:
        async with asyncio.timeout(20):
            await wording.word(self.pen)

    async def forget(self, *uids: str, users: tuple[str, ...] = ()) -> None:
        """Without summarising: the forests and the vectors follow the log."""
        world = self.world
        wanted = await forgetting.found("w", uids, users, world.log, directory=await world.directory("w"))
        await forgetting.forget(wanted, world.log, world.log, world.store)
        await world.catch_up()

    async def trace(self) -> Lineage:
        return await trace(self.store, self.world.forest.k)

    async def clean(self) -> Lineage:
        found = await self.trace()
        assert (found.stale, found.named) == (0, ())
        return found

    def worded(self, view: str = "", level: int = 1) -> list[Wording]:
        """The wordings of a level that tell of the secret."""
        known: list[Wording] = [w for _, w in self.store._wordings.items()]
        return [w for w in known if view in w.node.sequence.view and w.node.level == level and SECRET in w.text]

    def plant(self, node: NodeId, **change: Any) -> None:
        """Change a stored summary or, where the change is one of a wording's, the wording."""
        shelf: Any = self.store._wordings if "key" in change or change.pop("worded", False) else self.store._summaries
        shelf[node] = msgspec.structs.replace(shelf[node], **change)

    def unredact(self) -> None:
        """Lose the redactions, and what is due: nobody hides or renews anything any more."""
        self.store._redactions.clear()
        for queue in self.store._due.values():
            queue.clear()


async def written(model: Model | None = None) -> Writing:
    """The story, summarised and worded."""
    it = Writing(model)
    await it.tell(STORY)
    assert {w.node.sequence.view for w in it.worded()} == {"channel", "actor", "artifact"}
    return it


# ------------------------------------------------------------------------------------------------ no false alarms


async def test_what_was_summarised_and_worded_is_looked_at_and_clean() -> None:
    it = await written()
    found = await it.clean()
    counts = await it.store.counts()
    assert (found.summaries, found.wordings) == (counts["summaries"], counts["wordings"])
    assert found.wordings > 20


CHANGES: dict[str, Callable[[Writing], Awaitable[Any]]] = {
    "edited": lambda it: it.world.place([edited(TOLD[4], "DOC-1 nothing to see here", 60)]),
    "deleted": lambda it: it.world.place([deleted(TOLD[4], 60)]),
    "erased": lambda it: it.forget("w/c/5"),
    "author-erased": lambda it: it.forget(users=("ana",)),
    "private": lambda it: it.world.place(private("c", "bo", version="2")),
}
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@changes
async def test_it_is_clean_at_every_moment_after_a_change(change: Callable[[Writing], Awaitable[Any]]) -> None:
    it = await written()
    before = await it.clean()
    await change(it)
    hidden = await it.clean()
    assert hidden.wordings <= before.wordings
    await it.world.summarize()
    await it.clean()
    await it.word()
    await it.clean()
    await it.world.tell([said("6.5", "DOC-1 late", user="bo", mentions=("ana",)), said("99", "DOC-1 the newest")])
    await it.clean()
    await it.word()
    await it.clean()


async def test_leaves_that_are_only_grouped_otherwise_are_no_fault() -> None:
    it = await written()
    await it.world.place([said("2.5", "DOC-1 said between the second and the third")])
    await it.clean()
    await it.world.summarize()
    await it.clean()
    await it.word()
    await it.clean()


async def test_quotes_of_another_length_are_no_fault() -> None:
    it = Writing(world=World(k=K, words=Summarizing(quote_length=20)))
    await it.tell([public(), said("0", "well… this… is a very long and winding message … indeed · of many words")])
    await it.tell(TOLD)
    await it.clean()


async def test_joins_and_blanks_are_no_fault() -> None:
    it = Writing()
    await it.world.tell([public(), *TOLD[:6], said("6.5", "ana joined", kind="system"), said("7.5", "  ")])
    assert (await it.clean()).summaries


@settings(deadline=None, max_examples=40)
@given(histories(), histories(max_size=6))
def test_whatever_happens_it_is_clean_before_and_after_the_next_summarising(
    history: list[Event], then: list[Event]
) -> None:
    async def story() -> None:
        world = World(k=2)
        for events in (history, then):
            await world.place(events)
            assert (await trace(world.store, 2)).named == ()
            await world.summarize()
            found = await trace(world.store, 2)
            assert (found.named, found.summaries) == ((), len(world.summaries()))

    asyncio.run(story())


async def test_verify_tells_what_it_looked_at() -> None:
    it = await written()
    found = await verify(it.world.log, it.store, MemoryStructure(), DEFAULT_RULES, k=K)
    assert found.sound
    assert (found.summaries, found.wordings) == ((await it.clean()).summaries, (await it.clean()).wordings)
    it.plant(NodeId(CHANNEL, 1, 0), text="<@ana>: what nobody said")
    found = await verify(it.world.log, it.store, MemoryStructure(), DEFAULT_RULES, k=K)
    assert not found.different
    assert not found.sound
    assert found.stale_count == 1
    assert found.stale[0].startswith("channel:c, level 1, node 0 of workspace w: ")


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, redis_prefix: str) -> AsyncIterator[Any]:
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        remote = await RedisStructure.open(url, redis_prefix)
        yield remote
        await remote.close()
        redis_server.forget(url, redis_prefix)
    else:
        file = MemoryStructure() if request.param == "memory" else SqliteStructure(tmp_path / "structure.sqlite")
        yield file
        if isinstance(file, SqliteStructure):
            file.close()


async def test_every_store_can_be_looked_at(store: Any) -> None:
    it = Writing(world=World(k=K, store=store))
    await it.tell(STORY)
    found = await it.clean()
    counts = await store.counts()
    assert (found.summaries, found.wordings) == (counts["summaries"], counts["wordings"])
    await it.world.place([said("2.5", "DOC-1 said between the second and the third")])
    await store.due(100, lease=1e6)  # somebody is at it
    await it.clean()
    (summary,) = await store.summaries([NodeId(CHANNEL, 1, 0)])
    await store.keep([msgspec.structs.replace(summary, text="what nobody said")])
    await store.uncache(["w/c/5"])
    assert await faults(it) == ["its quotes are not what is said now", "its text is not in the cache"]


# -------------------------------------------------------------------------------------------------- planted faults


async def faults(it: Writing) -> list[str]:
    """What is wrong, without the names of the nodes."""
    found = await it.trace()
    assert found.stale
    return sorted({fault.partition(": ")[2] for fault in found.named})


@changes
async def test_without_its_redactions_a_change_is_a_fault_of_all_that_covers_it(
    change: Callable[[Writing], Awaitable[Any]],
) -> None:
    it = await written()
    await change(it)
    it.unredact()
    found = await it.trace()
    assert found.stale >= 3


async def test_a_summary_that_is_written_past_the_redaction_check_is_a_fault() -> None:
    it = await written()
    node = NodeId(CHANNEL, 1, 1)
    old = it.world.summaries()[node]
    assert "w/c/5" in (*old.picks, old.first.uid)
    await it.world.tell([deleted(TOLD[4], 60)])
    await it.clean()
    await it.store.keep([msgspec.structs.replace(old, serial=99)])
    assert "it covers w/c/5, which was deleted" in await faults(it)


async def test_a_summary_over_a_message_that_it_does_not_quote_is_a_fault_when_that_was_deleted() -> None:
    it = await written()
    quoted = {uid for s in it.world.summaries().values() for uid in (*s.picks, s.first.uid, s.last.uid)}
    (silent, *_) = [m for m in TOLD if f"w/c/{m.id}" not in quoted]
    await it.world.place([deleted(silent, 60)])
    it.unredact()
    for node in list(it.store._wordings):
        await it.store.unword([node])
    assert await faults(it) == ["what it was made from is not what stands under it"]


async def test_quotes_that_were_edited_since_are_a_fault() -> None:
    it = await written()
    node = NodeId(CHANNEL, 1, 0)
    text = it.world.summaries()[node].text
    for other in (text.replace("is on its way", "is off its way"), text + " and more", text[:-1], ""):
        it.plant(node, text=other)
        assert await faults(it) == ["its quotes are not what is said now"]


async def test_an_erased_source_is_a_fault() -> None:
    it = await written()
    texts = dict(it.store._texts.items())
    kept = [w for level in (1, 2) for w in it.worded("channel", level)]
    await it.forget("w/c/5")
    await it.world.summarize()
    await it.word()
    await it.clean()
    for worded in kept:
        it.store._wordings[worded.node] = msgspec.structs.replace(worded, serial=99, first=TOLD_AT[6], last=TOLD_AT[8])
    assert await faults(it) == ["its text is not in the cache"]
    for key, text in texts.items():
        it.store._texts[key] = text
    assert await faults(it) == ["it was made from w/c/5, which was erased"]
    await it.store.unword([worded.node for worded in kept])
    it.plant(NodeId(CHANNEL, 1, 1), first=TOLD_AT[5])
    assert await faults(it) == ["it covers w/c/5, which was erased"]


async def test_a_text_that_left_the_cache_is_a_fault_of_all_that_was_made_from_it() -> None:
    it = await written()
    (low,) = it.worded("artifact")
    del it.store._texts[low.key]
    assert await faults(it) == ["its text is not in the cache"]
    named = {fault.partition(", node")[0] for fault in (await it.trace()).named}
    assert named == {f"artifact:DOC-1, level {level}" for level in (1, 2, 3)}


@pytest.mark.parametrize("level", [1, 2])
async def test_a_cached_text_that_names_a_deleted_message_is_a_fault(level: int) -> None:
    it = await written()
    await it.world.tell([said("0.5", "DOC-1 gone"), deleted(said("0.5", ""), 60)])
    await it.word()
    await it.clean()
    (worded,) = it.worded("channel", level)
    (paid,) = await it.store.cached([worded.key])
    assert paid is not None
    await it.store.cache({worded.key: Paid(paid.text, (*paid.sources, "w/c/0.5"))})
    assert await faults(it) == ["it was made from w/c/0.5, which was deleted"]


async def test_a_cached_text_that_names_nothing_is_a_fault() -> None:
    it = await written()
    (worded,) = it.worded("channel")
    await it.store.cache({worded.key: Paid(worded.text, ())})
    assert await faults(it) == ["nobody knows what it was made from"]


async def test_a_wording_of_an_edited_message_is_a_fault_and_so_is_what_was_made_from_it() -> None:
    it = await written()
    await it.world.place([edited(TOLD[4], "DOC-1 nothing to see here", 60)])
    kept = {w.node: w for level in (1, 2) for w in it.worded("channel", level)}
    await it.world.summarize()
    for worded in kept.values():
        it.store._wordings[worded.node] = msgspec.structs.replace(worded, serial=99)
    assert await faults(it) == ["it was made from a version that was edited since"]


@pytest.mark.parametrize("place", [(1, 0), (2, 0)])
async def test_a_wording_whose_key_names_another_text_is_a_fault(place: tuple[int, int]) -> None:
    it = await written()
    (one,), (other,) = it.worded("channel"), await it.store.wordings([NodeId(CHANNEL, *place)])
    assert other is not None
    it.plant(one.node, key=other.key)
    assert await faults(it) == ["its text is not of what it was made from"]
    it.plant(one.node, key=other.key, made_from=other.made_from)
    assert await faults(it) == ["it was made from other versions than those that stand"]


async def test_a_pooled_summary_of_a_channel_that_turned_private_is_shown_to_nobody_else_and_a_fault_if_it_stays() -> (
    None
):
    it = Writing()
    leads = [
        msgspec.structs.replace(m, id=f"9{m.id}", channel=msgspec.structs.replace(m.channel, id="a")) for m in TOLD
    ]
    await it.tell([*STORY[:11], public("a"), *leads])
    pooled = [n for n, s in it.world.summaries().items() if n.sequence == DOC and set(s.channels) == {"a", "c"}]
    assert pooled
    await it.world.place(private("a", "bo", version="2"))
    await it.clean()  # nothing is redacted: the audience of the summaries is another
    for asker in (None, "eve"):
        assert not (await _shown(it, asker=asker)).keys() & set(pooled)
    await it.world.summarize()
    await it.word()
    await it.clean()
    again = Writing()
    await again.tell([*STORY[:11], public("a"), *leads])
    await again.world.place(private("a", "bo", version="2"))
    again.unredact()
    found = await again.trace()
    assert any(fault.startswith("artifact:DOC-1, level 1") for fault in found.named)
    assert not any("words" in fault for fault in found.named)


async def test_a_wording_or_summary_that_hides_which_channel_it_is_of_is_a_fault() -> None:
    it = Writing()
    secret = [said(f"9{i}", f"{WORDS[i]} said in secret {i}", channel="leads", minute=i + 0.5) for i in range(9)]
    await it.tell([*STORY, *private("leads", "ana"), *secret])
    await it.clean()
    own = routing.channel_sequence("w", "leads")
    node = NodeId(own, 1, 0)
    it.plant(node, channels=("c",))
    assert await faults(it) == ["it covers channel leads, which it does not name"]
    it.plant(node, channels=("leads",))
    top = NodeId(ANA, 2, 0)
    (worded,) = await it.store.wordings([node])
    assert worded is not None
    (paid,) = await it.store.cached([next(w.key for _, w in it.store._wordings.items() if w.node == top)])
    assert paid is not None
    await it.store.cache({it.store._wordings.get(top).key: Paid(paid.text, (*paid.sources, worded.key))})  # type: ignore[union-attr]
    assert await faults(it) == ["it was made from channel leads, which it does not name"]


async def test_words_of_private_messages_in_a_pooled_node_are_a_fault_although_the_channel_is_public_now() -> None:
    it = await written()
    (worded,) = it.worded("artifact")
    (paid,) = await it.store.cached([worded.key])
    assert paid is not None
    versions = [v for (v,) in await it.store.versions(paid.sources)]
    made_from = forest.digest(f"{v.key}|c" for v in versions)
    key = f"{made_from}/artifact/m/1"
    await it.store.cache({key: paid})
    it.plant(worded.node, key=key, made_from=made_from)
    assert await faults(it) == ["it was made from other versions than those that stand"]


async def test_a_node_above_that_was_made_from_other_children_is_a_fault() -> None:
    it = await written()
    it.plant(NodeId(CHANNEL, 2, 0), made_from="0" * 32)
    it.plant(forest.skeleton(ANA)[-1], made_from="0" * 32)
    found = await it.trace()
    assert await faults(it) == ["what it was made from is not what stands under it"]
    assert {fault.partition(", node")[0] for fault in found.named} == {
        *("channel:c, level 2", "channel:c, level 3"),
        "actor:ana, level 0",
    }


async def test_a_node_that_no_tree_has_any_more_is_looked_at_too() -> None:
    it = await written()
    node = NodeId(routing.channel_sequence("w", "gone"), 1, 0)
    kept = it.world.summaries()[NodeId(CHANNEL, 1, 0)]
    await it.store.keep([msgspec.structs.replace(kept, node=node, picks=(*kept.picks, "w/gone/1"))])
    assert (await it.trace()).named == (
        "channel:gone, level 1, node 0 of workspace w: it covers w/gone/1, which is not there",
    )


async def test_all_faults_are_counted_and_some_are_named() -> None:
    it = await written()
    for node in it.world.summaries():
        it.plant(node, text="what nobody said")
    found = await it.trace()
    assert found.stale == found.summaries > lineage.NAMED == len(found.named)


# ---------------------------------------------------------------------------------------------------------- races


async def _shown(it: Writing, **query: Any) -> dict[NodeId, Summary]:
    desk = await it.world.desk()
    visible = visible_to(Query(text="", workspace="w", **query), desk.directory)
    return await shown_summaries(list(it.world.summaries()), visible, desk)


async def never_shown(it: Writing, *words: str, everything: bool = True) -> None:
    """Nobody is shown a text with one of these words, and no summary in use rests on what is not said any more."""
    askers: list[dict[str, Any]] = [{}, {"asker": "eve"}, *([{"everything": True}] if everything else [])]
    for asker in askers:
        seen = [s.text for s in (await _shown(it, **asker)).values()]
        seen += [h.text for h in (await it.world.ask(f"DOC-1 {SECRET} number 5", **asker)).headers]
        assert [one for one in seen if any(word in one for word in words)] == []
    await it.clean()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0.001)


async def begun(it: Writing) -> asyncio.Task[None]:
    """Wording that has come as far as the model lets it: the calls that are to be slow are in flight."""
    task = asyncio.create_task(it.word())
    held = -1
    await until(lambda: bool(it.model.held))
    while held != it.model.held:
        held = it.model.held
        await asyncio.sleep(0.05)
    return task


HIDING = {name: change for name, change in CHANGES.items() if name != "private"}
SLOW = {1: at_level(1), 2: at_level(2), 0: at_level(0, 3)}
levels = pytest.mark.parametrize("level", SLOW)


async def replied(it: Writing) -> None:
    """The replies that were held come, and what is made of them is written."""
    said, it.model.slow = it.model.said, lambda _: False
    it.model.go_on.set()
    await until(lambda: it.model.said > said and not it.model.held)
    await asyncio.sleep(0.05)


@levels
@pytest.mark.parametrize("late", [False, True], ids=["before-the-summariser", "after-the-summariser"])
@pytest.mark.parametrize("change", HIDING.values(), ids=HIDING)
async def test_a_reply_that_comes_after_a_change_is_never_written_nor_shown(
    level: int, late: bool, change: Callable[[Writing], Awaitable[Any]]
) -> None:
    it = Writing(Model(SLOW[level]))
    await it.world.tell(STORY)
    task = await begun(it)
    await change(it)
    await never_shown(it, SECRET)  # the reply is not there
    if late:
        await it.world.summarize()
        await never_shown(it, SECRET)
    await replied(it)
    assert it.worded(level=level) == []
    await never_shown(it, SECRET)  # it is there
    await it.world.summarize()
    await never_shown(it, SECRET)
    await task
    await never_shown(it, SECRET)
    await it.word()
    await never_shown(it, SECRET)
    if await it.store.forbidden(["w/c/5"]) == set():
        await it.forget("w/c/5")
        await it.world.summarize()
        await never_shown(it, SECRET)
    await nowhere(it, SECRET)


async def nowhere(it: Writing, word: str) -> None:
    """No generated text in the store has the word."""
    texts = [said.text async for _, said in it.store.generated()]
    assert [text for text in texts if word in text] == []
    assert [text for _, text in it.store._texts.items() if word in text] == []


@levels
async def test_a_reply_that_comes_after_its_channel_turned_private_is_shown_to_its_members_at_most(level: int) -> None:
    it = Writing(Model(SLOW[level]))
    own = [msgspec.structs.replace(m, id=f"9{m.id}", text=m.text.replace("number", "count")) for m in TOLD]
    other = [msgspec.structs.replace(m, channel=msgspec.structs.replace(m.channel, id="open")) for m in own]
    open_ = [msgspec.structs.replace(m, text=re.sub(rf"{SECRET}\d*", "plain", m.text)) for m in other]
    await it.world.tell([public("open"), *STORY, *open_])
    task = await begun(it)
    await CHANGES["private"](it)
    await never_shown(it, SECRET, everything=False)
    await replied(it)
    await never_shown(it, SECRET, everything=False)
    await it.world.summarize()
    await never_shown(it, SECRET, everything=False)
    await task
    await never_shown(it, SECRET, everything=False)
    await it.word()
    await never_shown(it, SECRET, everything=False)
    shown = await _shown(it, asker="bo")
    assert {n.sequence.view for n, s in shown.items() if SECRET in s.text} == {"channel", "actor"}


async def test_a_parent_whose_child_was_erased_while_it_was_worded_leaves_nothing_behind() -> None:
    it = Writing(Model(at_level(2)))
    await it.world.tell(STORY)
    task = await begun(it)
    (child,) = it.worded("channel")
    await it.forget("w/c/5")
    assert await it.store.cached([child.key]) == [None]
    await replied(it)
    await nowhere_but_in_hidden(it, SECRET)
    await it.world.summarize()
    await task
    await nowhere(it, SECRET)
    assert any(w.node.level == 2 for _, w in it.store._wordings.items())


async def nowhere_but_in_hidden(it: Writing, word: str) -> None:
    assert [text for _, text in it.store._texts.items() if word in text] == []
    for shelf in (it.store._summaries, it.store._wordings):
        for node, text in shelf.items():
            redactions: list[tuple[Redaction, ...]] = await it.store.redactions([node.sequence])
            assert word not in text.text or summaries.hidden(text, redactions[0])


async def test_a_reply_for_trees_that_were_forgotten_whole_and_grew_anew_is_not_kept() -> None:
    """Nothing tells them from trees in which nothing was ever redacted: their redactions are swept."""
    it = Writing(Model(at_level(1)))
    await it.world.tell(STORY[:8])
    task = await begun(it)
    await it.forget(*(f"w/c/{m.id}" for m in TOLD[:6]))
    await it.world.summarize()
    await it.store.sweep()
    await it.world.tell([said(f"{i}.5", f"DOC-1 anew number {i}", user="bo") for i in range(1, 7)])
    it.model.slow = lambda prompt: "anew" in prompt.data
    it.model.go_on.set()
    it.model.go_on = asyncio.Event()
    await until(lambda: it.model.said > 2)
    await asyncio.sleep(0.05)
    await never_shown(it, SECRET)
    await nowhere(it, SECRET)
    it.model.go_on.set()
    await task
    await never_shown(it, SECRET)
    await nowhere(it, SECRET)
