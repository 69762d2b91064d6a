"""A memory that runs as a stream, from outside: events and questions go to Kafka, answers come back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from streammem import settings as configuration
from streammem.core import events as canonical
from streammem.core import positions
from streammem.errors import SettingsError
from streammem.records import Answer, Awaited, Event, Query

if TYPE_CHECKING:
    from streammem.backends.kafka_exchange import KafkaExchange

SCHEME = "kafka://"
_PREFIX = re.compile(r"[a-zA-Z0-9._-]*")


@asynccontextmanager
async def connect(url: str, settings: configuration.Settings | None = None) -> AsyncIterator[StreamMemory]:
    """Connect to the memory behind `kafka://HOST:PORT,...`, optionally `/PREFIX` of its topics.

    User, password and certificates come from the settings (STREAMMEM_KAFKA__...).
    """
    from streammem.wiring import stream  # noqa: PLC0415 - loads the Kafka client

    chosen = _named(url, settings or configuration.load())
    exchange = stream.exchange(chosen)
    try:
        yield StreamMemory(exchange, chosen.worker.timeout)
    finally:
        await exchange.stop()


def _named(url: str, settings: configuration.Settings) -> configuration.Settings:
    """The settings with what a URL says instead. Raises SettingsError for one that cannot be."""
    bootstrap, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or "@" in url:
        raise SettingsError(
            f"a memory behind Kafka is named {SCHEME}HOST:PORT,... or {SCHEME}HOST:PORT/PREFIX, no user"
        )
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"{prefix!r} is no prefix of topics: letters, digits, dots, _ and - make one")
    said = {name: value for name, value in (("bootstrap", bootstrap), ("prefix", prefix)) if value}
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update=said)})


class Questions:
    """What can be asked of a memory, in words; how a query record is answered is the facade's own."""

    async def query(
        self,
        text: str,
        *,
        asker: str | None = None,
        workspace: str | None = None,
        everything: bool = False,
        as_of: int | None = None,
        channels: Iterable[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
        budget: int | None = None,
        exclude: Iterable[str] = (),
        wait_for: Awaited | str | None = None,
        answer: bool = False,
    ) -> Answer:
        """Answer a question with verbatim evidence. Users and channels are given by id or by name, times in µs.

        Without `asker` only public channels are searched; `everything` lifts the filter. With `wait_for` it is not
        answered before that can be found. With `answer` a language model, where one is configured, writes a reply from
        the evidence (Answer.reply), or a note says why there is none. Raises QueryError for a user, channel or
        workspace that is not known.
        """
        return await self.ask(
            Query(
                text=text,
                workspace=workspace or "",
                asker=asker,
                everything=everything,
                as_of=as_of,
                channels=tuple(channels),
                since=since,
                until=until,
                limit=limit,
                budget=budget,
                exclude=tuple(exclude),
                wait_for=positions.parse(wait_for) if isinstance(wait_for, str) else wait_for,
                answer=answer,
            )
        )

    async def ask(self, query: Query) -> Answer:
        """Answer a query record."""
        raise NotImplementedError


class StreamMemory(Questions):
    """A connection to a memory. Safe to use from many tasks of one event loop.

    A question raises QueryError when its answer says why there is none, TransientError when none comes.
    """

    def __init__(self, exchange: KafkaExchange, seconds: float) -> None:
        self._exchange, self._seconds = exchange, seconds

    async def append(self, events: Iterable[Event]) -> Awaited:
        """Send events; return, once Kafka has them, what to `wait_for` so that a question finds them.

        Raises RejectedError, before anything is sent, for an event that the memory would refuse.
        """
        usable = [canonical.normalise(event) for event in events]
        sent = Awaited()
        async for done in self._exchange.produce(usable):
            sent = done.awaited
        return sent

    async def ask(self, query: Query) -> Answer:
        """Answer a query record."""
        if query.wait_for is not None and not (query.wait_for.log or query.wait_for.inputs):
            query = msgspec.structs.replace(query, wait_for=None)
        query = msgspec.structs.replace(query, text=canonical.clean(query.text))
        return await self._exchange.ask(query, self._seconds + 5.0)  # the worker's own time-out says more
