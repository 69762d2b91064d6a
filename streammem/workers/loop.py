"""The Faust loop: records of topics in batches to a duty, acknowledged after its effects. Transport only."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any

from streammem.backends.kafka import speaking
from streammem.core.topics import Topic, group_of, named
from streammem.errors import MissingExtraError
from streammem.records import Received
from streammem.settings import Settings
from streammem.wiring.stream import connection
from streammem.workers.duty import Duty, persist

try:
    import faust
except ModuleNotFoundError as error:
    raise MissingExtraError("faust-streaming", "stream") from error

IDLE = 10.0
"""Seconds between two looks at whether the store still has what this process did."""


def app_of(role: str, topics: Many[Topic], duty: Duty, settings: Settings) -> faust.App:
    """A Faust app that gives the records of these topics to a duty."""
    app = _app(role, settings)
    for topic in topics:
        channel = app.topic(
            named(settings.kafka.prefix, topic),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            internal=False,
        )
        app.agent(channel, name=f"{role}-{topic.short}", concurrency=1)(_taking(topic, duty, settings))
    return app


def idle_app_of(role: str, work: Callable[[], Awaitable[None]], settings: Settings) -> faust.App:
    """A Faust app without a topic, for a role that looks for its work in the store."""
    app = _app(role, settings)
    app.producer_only = True
    app.task(work)
    return app


def _taking(topic: Topic, duty: Duty, settings: Settings) -> Any:
    async def take(stream: Any) -> AsyncIterator[None]:
        size, within = settings.worker.batch, settings.worker.within
        if duty.pulse.role == "index":  # embedding is slow: what arrives meanwhile makes the next batch
            size, within = settings.worker.pool, within / 4
        async for events in stream.noack_take(size, within=within):
            await duty.do([_received(event.message, topic) for event in events])
            for event in events:
                event.ack()
            yield

    return take


def _received(message: Any, topic: Topic) -> Received:
    return Received(
        topic=topic.name,
        partition=message.partition,
        offset=message.offset,
        at=int((message.timestamp or 0) * 1_000_000),
        key=message.key,
        value=message.value,
        headers=tuple(message.headers or ()),
    )


def _app(role: str, settings: Settings) -> faust.App:
    brokers = ";".join(f"kafka://{broker}" for broker in settings.kafka.bootstrap.split(","))
    return faust.App(
        group_of(settings.kafka.prefix, role),
        broker=brokers,
        broker_credentials=_credentials(settings),
        autodiscover=False,
        web_enabled=False,
        topic_disable_leader=True,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.worker.session,
        broker_heartbeat_interval=settings.worker.session / 3,
        broker_commit_interval=0.5,
        broker_max_poll_records=4 * settings.worker.batch,
        stream_buffer_maxsize=4 * settings.worker.batch,
        consumer_max_fetch_size=4 * 2**20,
        producer_acks=-1,
        loghandlers=[],
        datadir=Path(tempfile.gettempdir()) / "streammem-faust",  # made for tables, of which there are none
    )


def _credentials(settings: Settings) -> Any:
    kafka = settings.kafka
    if kafka.protocol == "PLAINTEXT":
        return None
    context = ssl.create_default_context(cafile=kafka.ca_file) if kafka.protocol.endswith("SSL") else None
    if not kafka.protocol.startswith("SASL"):
        return faust.SSLCredentials(context=context)
    password = kafka.password.get_secret_value() if kafka.password else None
    return faust.SASLCredentials(
        username=kafka.username, password=password, ssl_context=context, mechanism=kafka.mechanism
    )


async def serve(build: Callable[[], faust.App], duty: Duty, settings: Settings) -> None:
    """Run an app until this is cancelled or the duty fails; when Kafka is away, begin again with a new one."""
    await persist(lambda: _run(build(), duty, settings), settings.worker.patience, duty.pulse.wait)


async def _run(app: faust.App, duty: Duty, settings: Settings) -> None:
    app.finalize()
    with speaking(connection(settings.kafka), "working as", duty.pulse.role):
        try:
            await app.start()
            duty.pulse.wait("")
            await _ended(app, duty)
        finally:
            await _stopped(app, settings.worker.stop)
    duty.failed.result()  # here, as a file that cannot be written must not look like a Kafka that is away


async def _stopped(app: faust.App, seconds: float) -> None:
    """Stop an app; one that does not end is left behind."""
    stopping = asyncio.ensure_future(app.stop())
    try:
        await asyncio.wait([stopping], timeout=seconds)
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)


async def _ended(app: faust.App, duty: Duty) -> None:
    """Return when the duty has failed; raise what a Faust service died of."""
    crashed = asyncio.ensure_future(app._crashed.wait())  # noqa: SLF001 - mode tells of it in no other way
    try:
        await asyncio.wait([crashed, duty.failed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        crashed.cancel()
    if not duty.failed.done():
        raise app._crash_reason or RuntimeError("Faust stopped")  # noqa: SLF001
