"""A world whose summaries are worded by a language model: the scripted server over HTTP, or its script without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streammem.backends.memory import MemoryStructure
from streammem.backends.memory_ledger import MemoryLedger
from streammem.backends.openai import OpenAIModel
from streammem.core import forest, prompts, summaries
from streammem.core.numbers import Summarizing
from streammem.core.numbers import Wording as Numbers
from streammem.flows import wording
from streammem.flows.calling import Terms
from streammem.flows.sheet import Pen, Worded
from streammem.flows.telling import Teller
from streammem.ports import LanguageModel, StructureStore
from streammem.records import Answer, Limits, NodeId, Paid, Prompt, Query, Reply, Summary, Wording
from tests.flows.worlds import World, shape
from tests.servers.model_script import Script, asked, completion, good
from tests.servers.model_server import ModelServer
from tests.stories import at

LATER = at(10_000).timestamp()
"""Long after all that is said: every open node has been quiet."""

HUNG = 30.0
"""Seconds after which a run has failed: what is worded again and again never ends."""

NUMBERS = Numbers(in_flight=8, pack=4, linger=0.002, backoff=0.002, longest=0.02, cooling=0.02, poll=0.01)
"""As quick as the scripted server."""

ONE_QUOTE = Summarizing(quotes=1)
"""Quotes that never are all that was said, unless there is one message only: every other node is worded."""


class WordedWorld(World):
    """A world with a model that words it. `now` is its clock, which also goes by itself as time passes."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        k: int = 3,
        writer: str = "m/1",
        numbers: Numbers = NUMBERS,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        price: tuple[float, float] = (0.0, 0.0),
        store: MemoryStructure | None = None,
    ) -> None:
        super().__init__(k=k, words=ONE_QUOTE, store=store)
        self.model, self.writer, self.wording_numbers = model, writer, numbers
        self.terms = Terms(numbers, limits, price)
        self.now, self._started = LATER, time.monotonic()
        self.bench = msgspec.structs.replace(self.bench, worded=True, clock=self.clock)
        self.ledger = MemoryLedger(self.clock)

    def clock(self) -> float:
        return self.now + time.monotonic() - self._started

    def teller(self, **others: Any) -> Teller:
        """A process that asks; it has its own claims and breaker."""
        parts = {"model": self.model, "ledger": self.ledger, "store": self.store, "terms": self.terms, **others}
        return Teller(**parts, chance=lambda: 0.5)

    def pen(self, **others: Any) -> Pen:
        """A process that words. `model`, `ledger` and `store` may be others than the world's."""
        store = others.get("store", self.store)
        return Pen(
            store, self.teller(**others), self.writer, self.forest.k, self.terms.numbers, clock=self.clock, rest=0.01
        )

    async def word(self, **others: Any) -> Worded:
        """Word what is due, as a new process does. Stopped, it gives up the replies that are under way."""
        pen = self.pen(**others)
        try:
            async with asyncio.timeout(HUNG):
                return await wording.word(pen)
        finally:
            await pen.tell.close()  # type: ignore[attr-defined]

    def tune(self, **numbers: Any) -> None:
        """Change numbers."""
        self.wording_numbers = _tuned(self.wording_numbers, **numbers)
        self.terms = msgspec.structs.replace(self.terms, numbers=self.wording_numbers)

    def limit(self, **limits: Any) -> None:
        """Set limits."""
        self.terms = msgspec.structs.replace(self.terms, limits=Limits(**limits))

    async def touch(self, text: str) -> Answer:
        """Ask as a process does that lets the nodes which a question meets come first."""
        counter = self.counter()
        answer = await counter.ask(Query(text=text, workspace="w"))
        for task in list(counter._touching):
            await task
        return answer

    # ---- what there is
    def wordings(self) -> dict[NodeId, Wording]:
        """Every wording that is stored."""
        return dict(self.store._wordings)  # type: ignore[call-overload]

    def by_id(self) -> dict[str, list[NodeId]]:
        """Which nodes a model knows under which id, by the wordings that stand."""
        found: dict[str, list[NodeId]] = {}
        for node, one in self.wordings().items():
            found.setdefault(prompts.id_of(one.key), []).append(node)
        return found

    def unworded(self) -> list[NodeId]:
        """Nodes that a model could say more of than their quotes do and has not."""
        worded = {node for node, one in self.wordings().items() if one.text}
        return [n for n, s in self.summaries().items() if n not in worded and not summaries.said_whole(s)]

    def below(self, node: NodeId) -> list[NodeId]:
        """The nodes that a node above level 1 is made from."""
        known = self.summaries()
        if node.level != forest.SKELETON:
            first = node.index * self.forest.k
            return [n for i in range(self.forest.k) if (n := NodeId(node.sequence, node.level - 1, first + i)) in known]
        if node.index == 1:
            return [n for n in known if n.level == 0 and n.index == 0 and n.sequence.tree == node.sequence.tree]
        same = [n for n, s in known.items() if s.is_root and n.level and n.sequence.view == "actor"]
        return [n for n in same if (n.sequence.tree, n.sequence.branch) == (node.sequence.tree, node.sequence.branch)]

    async def queues(self) -> dict[str, int]:
        """How many sequences wait in each queue that is not empty."""
        counts = await self.store.counts()
        return {name: counts[name] for name in wording.WORDING if counts[name]}


def _tuned(numbers: Numbers, **changes: Any) -> Numbers:
    return Numbers(**{name: changes.get(name, getattr(numbers, name)) for name in Numbers.__slots__})


async def final(world: WordedWorld, *, cache: bool = True) -> tuple[Any, ...]:
    """What must be alike whatever the order: summaries, wordings without what was paid for them, paid texts."""
    worded = {n: msgspec.structs.replace(w, serial=0, tokens=0) for n, w in world.wordings().items()}
    return shape(world.summaries()), worded, await paid(world.store) if cache else {}


async def paid(store: StructureStore) -> dict[str, Paid]:
    """The cache, whatever was asked for together."""
    found = {key: item async for key, item in store.generated() if isinstance(item, Paid)}
    return {key: msgspec.structs.replace(item, beside=()) for key, item in found.items()}


class Scripted(LanguageModel):
    """The model of the scripted server without the server: for many examples. `delay` is awaited before each reply."""

    name = "m"

    def __init__(self, script: Script = good) -> None:
        self.script = script
        self.prompts: list[Prompt] = []
        self.nodes: list[tuple[str, ...]] = []

    async def say(self, prompt: Prompt) -> Reply:
        said = {"messages": [{"role": "user", "content": prompt.data}]}
        self.prompts.append(prompt)
        record, texts = asked(len(self.prompts), 0.0, said)
        self.nodes.append(record.nodes)
        body = completion(self.script(record.number, said), said, record, texts)
        return Reply(body["choices"][0]["message"]["content"], record.tokens, 20)


@asynccontextmanager
async def worded(
    script: Script = good,
    *,
    server: Mapping[str, Any] = {},
    patience: float = 5.0,
    **options: Any,
) -> AsyncIterator[tuple[WordedWorld, ModelServer]]:
    """A world and the server that words it."""
    async with ModelServer(script, **server) as running, model_at(running, patience) as model:
        yield WordedWorld(model, **options), running


@asynccontextmanager
async def model_at(server: ModelServer, patience: float = 5.0) -> AsyncIterator[OpenAIModel]:
    """The model of a server, which is waited for so many seconds."""
    model = OpenAIModel("m", base_url=server.url, key="secret", timeout=patience)
    try:
        yield model
    finally:
        await model.close()


STORE = ("word", "unword", "cache", "mark_due", "hold", "settle", "uncache", "drop", "keep")
LEDGER = ("claim", "release", "take", "settle", "rest", "writer", "keep_job", "drop_job")
MODEL = ("say", "submit")


class Dead(InterruptedError):  # noqa: N818 - it is no error
    """The process is no more."""


class Life:
    """What is left of a process: it dies at the nth effect, before or after it, and then does nothing any more."""

    def __init__(self, at: int = 1_000_000, *, after: bool = False) -> None:
        self.left, self.after, self.done = at, after, 0

    def of(self, part: Any, effects: Iterable[str]) -> Any:
        """A part of this process."""
        life, names = self, frozenset(effects)

        class Mortal:
            def __getattr__(self, name: str) -> Any:
                own = getattr(part, name)
                return life._dying(own) if name in names else own

        return Mortal()

    def _dying(self, effect: Any) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            self.done += 1
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.after):
                raise Dead
            outcome = await effect(*arguments, **named)
            if self.left <= 0:
                raise Dead
            return outcome

        return call


def secret_free(texts: Iterable[Summary | Wording], secret: str) -> bool:
    """Whether nothing tells of it."""
    return all(secret not in one.text for one in texts)
