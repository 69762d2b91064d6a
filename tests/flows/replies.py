"""What a scripted model writes to a question, and a replier that asks it over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from streammem.backends.memory_ledger import MemoryLedger
from streammem.core.directory import Directory
from streammem.core.numbers import Answering
from streammem.core.numbers import Wording as Numbers
from streammem.flows.calling import Calls, Terms
from streammem.flows.replying import Replier
from streammem.records import Answer, Evidence, Limits
from tests.flows.wordings import model_at
from tests.servers.model_script import Broken, Request, Script
from tests.servers.model_server import ModelServer

QUICK = Numbers(attempts=3, backoff=0.002, longest=0.02, cooling=0.02)
AT = 1_772_442_000_000_000  # 2026-03-02 09:00


def wrote(*sentences: tuple[str, list[int]], answered: bool = True) -> Broken:
    """The completion of a model that answers in these sentences."""
    entries = [{"text": text, "cites": cites} for text, cites in sentences]
    return Broken(json.dumps({"answered": answered, "sentences": entries}))


def data_of(request: Request) -> str:
    """What a request holds besides the instructions."""
    return str(request["messages"][-1]["content"])


def instructions_of(request: Request) -> str:
    """What a request tells the model to do."""
    return str(request["messages"][0]["content"])


def found(*texts: str, **rest: Any) -> Answer:
    """An answer with this evidence."""
    evidence = tuple(
        Evidence(
            uid=f"w/c/{n}",
            id=str(n),
            workspace="w",
            channel="c",
            channel_name="general",
            user="ana",
            user_name="Ana",
            ts=AT + n * 60_000_000,
            text=text,
        )
        for n, text in enumerate(texts, 1)
    )
    fields: dict[str, Any] = {"question": "when is the launch?", "asker": None, "as_of": None, "headers": ()}
    fields |= {"tokens": 9, "abstained": not texts, "timings_ms": {"total": 1.0}}
    return Answer(evidence=evidence, **{**fields, **rest})


async def nobody(workspace: str) -> Directory:
    """A directory without facts."""
    return Directory(())


@asynccontextmanager
async def replying(
    script: Script,
    *,
    server: Mapping[str, Any] = {},
    patience: float = 5.0,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    price: tuple[float, float] = (0.0, 0.0),
    wording: Numbers = QUICK,
    ledger: MemoryLedger | None = None,
    **numbers: Any,
) -> AsyncIterator[tuple[Replier, ModelServer, MemoryLedger]]:
    """A replier, the server that it asks, and the ledger. `numbers` are those of replies."""
    kept = ledger or MemoryLedger()
    async with ModelServer(script, **server) as running, model_at(running, patience) as model:
        calls = Calls(model, kept, Terms(wording, limits, price), chance=lambda: 0.5)
        replier = Replier(calls, model, Answering(**numbers), nobody)
        try:
            yield replier, running, kept
        finally:
            await replier.close()
