"""Runs roles in one process until SIGTERM: opens the parts, waits for what is away, ends within a set time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from collections.abc import Sequence as Many
from typing import Any

import structlog

from streammem.connectors.connector import Given
from streammem.connectors.kafka_records import RecordReader
from streammem.core.topics import LOG, READS, USES, group_of
from streammem.errors import SettingsError, TransientError
from streammem.flows.asking import Counter
from streammem.flows.summarize import Bench, summarize
from streammem.ports import Embedder
from streammem.records import Event
from streammem.settings import ReceiveSettings, Settings
from streammem.wiring.language import language_model, replier
from streammem.wiring.stream import Streaming, exchange, open_streaming
from streammem.workers import stages
from streammem.workers.connect import Connecting
from streammem.workers.duty import BEAT, SILENCE, Duty, Pulse, persist
from streammem.workers.grouping import group_for_ever
from streammem.workers.loop import IDLE, app_of, idle_app_of, serve
from streammem.workers.query import Clerk
from streammem.workers.stages import Done, LogStage, Stage
from streammem.workers.wording import word_for_ever

ROLES = ("connect", "ingest", "structure", "index", "summarize", "query")
"""What `all` is."""
RECEIVE = "receive"
"""The role that listens to the world. It runs only where it is named and gives no sign of life: those are in Redis, and
so is every channel; this role has no business there. Its GET /health speaks for it."""

log = structlog.get_logger()


async def run(roles: Many[str], settings: Settings, *, embedder: Callable[[Settings], Embedder] | None = None) -> None:
    """Work in these roles until SIGTERM or SIGINT. Raises what ends a worker: SettingsError, or a fault."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    working = asyncio.create_task(_work(roles, settings, embedder))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        raise _first_of(working.exception())
    log.info("stopping", roles=roles)
    working.cancel()
    await asyncio.wait([working], timeout=settings.worker.stop)
    log.info("stopped", roles=roles)


def _first_of(error: BaseException | None) -> BaseException:
    """What went wrong first among tasks that ended together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error or RuntimeError("the roles ended by themselves")


async def _work(roles: Many[str], settings: Settings, embedder: Callable[[Settings], Embedder] | None) -> None:
    async with open_streaming(settings, embedder=embedder) as parts:
        pulses = [Pulse(role) for role in roles]
        async with asyncio.TaskGroup() as group:
            group.create_task(_beat([pulse for pulse in pulses if pulse.role != RECEIVE], parts))
            for pulse in pulses:
                group.create_task(_role(pulse, parts), name=pulse.role)


async def _role(pulse: Pulse, parts: Streaming) -> None:
    longest = parts.settings.worker.patience
    await persist(lambda: _ready(pulse.role, parts), longest, pulse.wait)
    log.info("started", role=pulse.role)
    await _DUTIES[pulse.role](pulse, parts)


async def _ready(role: str, parts: Streaming) -> None:
    """Return when everything that a role needs is there and is what it should be."""
    if role == RECEIVE:
        _opened(parts.settings.receive)
    if absent := await parts.exchange.missing(USES[role]):
        raise SettingsError(f"topics are missing: {', '.join(absent)}: run `streammem topics create`")
    if role not in (RECEIVE, "connect"):
        await parts.check()
    if role in ("index", "summarize", "query"):
        await parts.index()
    if role == "summarize" and parts.settings.openai.model is not None:
        await language_model(parts.settings).close()  # a wrong set-up is told at start


def _opened(settings: ReceiveSettings) -> None:
    """Refuse to listen where every sender would be refused."""
    if settings.slack_signing_secret is None and settings.teams_client_state is None:
        raise SettingsError(f"nobody may post to `receive`: set {' or '.join(settings.closed.values())}, or both")


async def _beat(pulses: Many[Pulse], parts: Streaming) -> None:
    """Give signs of life, and take them back at the end: a process that has stopped does not count as running."""
    try:
        while True:
            await _say(pulses, parts, SILENCE)
            await asyncio.sleep(BEAT)
    finally:
        async with asyncio.timeout(1.0):
            await _say(pulses, parts, 0.001)


async def _say(pulses: Many[Pulse], parts: Streaming, seconds: float) -> None:
    for pulse in pulses:
        try:
            await parts.beats.beat(pulse.beat(), seconds)
        except TransientError as error:
            log.debug("no sign of life", because=str(error))


# ------------------------------------------------------------------------------------------------------ the duties


def _duty(stage: Stage, pulse: Pulse, parts: Streaming) -> Duty:
    worker = parts.settings.worker
    return Duty(stage, parts.exchange.bury, pulse, burst=worker.burst, longest=worker.patience)


async def _ingest(pulse: Pulse, parts: Streaming) -> None:
    duty = _duty(stages.ingesting(parts.log, parts.structure.forbidden), pulse, parts)
    await serve(lambda: app_of("ingest", READS["ingest"], duty, parts.settings), duty, parts.settings)


async def _connect(pulse: Pulse, parts: Streaming) -> None:
    settings = parts.settings

    async def produce(events: Many[Event]) -> None:
        async for _ in parts.exchange.produce(events):
            pass

    reader = RecordReader(Given(workspace=settings.connect.workspace, domain=settings.connect.domain))
    duty = _duty(Connecting(produce, reader), pulse, parts)
    await serve(lambda: app_of("connect", READS["connect"], duty, settings), duty, settings)


async def _receive(pulse: Pulse, parts: Streaming) -> None:
    from streammem.workers.receive import Receiver  # noqa: PLC0415 - an extra that not all need

    settings = parts.settings
    sender = exchange(settings, patience=settings.receive.within)
    try:
        await Receiver(sender.send, settings.receive, pulse).serve()
    finally:
        await sender.stop()


async def _structure(pulse: Pulse, parts: Streaming) -> None:
    await _follow(stages.structuring(parts.log, parts.structure, parts.rules), pulse, parts)


async def _index(pulse: Pulse, parts: Streaming) -> None:
    vectors, embedder = await parts.index(), await parts.embedder()
    await _follow(stages.indexing(parts.log, parts.structure, vectors, embedder, parts.rules), pulse, parts)


async def _follow(stage: LogStage, pulse: Pulse, parts: Streaming) -> None:
    """Work off the log, and look now and then whether the store still has what was done."""
    duty = _duty(stage, pulse, parts)
    group_name = group_of(parts.settings.kafka.prefix, pulse.role)

    async def look() -> None:
        acknowledged = await parts.topics.committed(group_name)
        await stage.mend(acknowledged.get(LOG.short))

    async def mend() -> None:
        while True:
            await persist(look, parts.settings.worker.patience, pulse.wait)
            await asyncio.sleep(IDLE)

    async with asyncio.TaskGroup() as group:
        group.create_task(mend())
        group.create_task(
            serve(lambda: app_of(pulse.role, READS[pulse.role], duty, parts.settings), duty, parts.settings)
        )


async def _summarize(pulse: Pulse, parts: Streaming) -> None:
    settings = parts.settings
    bench = Bench(
        parts.structure,
        await parts.index(),
        settings.forest.k,
        settings.summary,
        lease=settings.worker.lease,
        worded=await persist(parts.worded, settings.worker.patience, pulse.wait),
    )

    async def round_() -> Done:
        done = await summarize(bench, limit=64)
        return Done(done.written)

    duty = _duty(_nothing, pulse, parts)

    async def work() -> None:
        while True:
            try:
                done = await persist(round_, settings.worker.patience, pulse.wait)
            except Exception as error:  # noqa: BLE001 - Faust would only log what ends a task
                await duty.fail(error)
            else:
                pulse.count(done)
            await asyncio.sleep(settings.worker.round)

    async with asyncio.TaskGroup() as group:
        group.create_task(serve(lambda: idle_app_of("summarize", work, settings), duty, settings))
        group.create_task(group_for_ever(parts, pulse))
        if settings.openai.model is not None:
            group.create_task(word_for_ever(parts, pulse))


async def _nothing(records: Any) -> Done:
    raise NotImplementedError("summarize takes its work from the store")


async def _query(pulse: Pulse, parts: Streaming) -> None:
    settings = parts.settings
    counter = Counter(
        parts.structure,
        await parts.index(),
        await parts.embedder(),
        parts.rules,
        forest=settings.forest,
        numbers=settings.retrieval,
        worded=settings.openai.model is not None,
    )
    replying = replier(settings, parts.ledger, counter.directory)
    try:
        await Clerk(parts, counter, pulse, replying).serve()
    finally:
        await replying.close(settings.worker.stop / 2)


_DUTIES: dict[str, Callable[[Pulse, Streaming], Coroutine[Any, Any, None] | Awaitable[None]]] = {
    RECEIVE: _receive,
    "connect": _connect,
    "ingest": _ingest,
    "structure": _structure,
    "index": _index,
    "summarize": _summarize,
    "query": _query,
}
