"""A small data set, and memories that always answer the same, for tests of what an evaluation asks and tells."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from streammem.core.numbers import Retrieval
from streammem.records import (
    Answer,
    ChannelEvent,
    ChannelRef,
    Event,
    Evidence,
    MembershipEvent,
    MessageEvent,
    Query,
    Sender,
    UserEvent,
)

START = datetime(2024, 3, 1, tzinfo=UTC)


def said(number: int, text: str, channel: str = "open", user: str = "u1", **more: object) -> MessageEvent:
    return MessageEvent(
        workspace=str(more.get("workspace", "w")),
        channel=ChannelRef(id=channel),
        id=f"m{number}",
        version=str(more.get("version", "0")),
        ts=START + timedelta(hours=number),
        sender=Sender(id=user),
        text=text,
    )


EVENTS: list[Event] = [
    UserEvent(workspace="w", id="u1", name="Ann Lee", title="Baker"),
    UserEvent(workspace="w", id="u2", name="Bob"),
    ChannelEvent(workspace="w", id="open", name="general", type="public"),
    ChannelEvent(workspace="w", id="closed", name="vault", type="private"),
    MembershipEvent(workspace="w", channel="closed", user="u1"),
    said(1, "the launch moves to June"),
    said(2, "the launch budget is secret: 40k", channel="closed"),
    said(3, "lunch is at noon", user="u2"),
    said(4, "the launch moves to July"),
]


def put(folder: Path, *rows: dict[str, object], packed: bool = False) -> Path:
    lines = b"".join(msgspec.json.encode({"id": f"q{i}", "ws": "w", **row}) + b"\n" for i, row in enumerate(rows))
    if packed:
        (folder / "questions.jsonl.gz").write_bytes(gzip.compress(lines))
    else:
        (folder / "questions.jsonl").write_bytes(lines)
    return folder


def answering(query: Query, ids: Iterable[str]) -> Answer:
    evidence = tuple(
        Evidence(
            uid=f"w/open/{name}",
            id=name,
            workspace="w",
            channel="open",
            channel_name="general",
            user="u1",
            user_name="Ann",
            ts=0,
            text="",
        )
        for name in ids
    )
    return Answer(
        question=query.text,
        asker=query.asker,
        as_of=query.as_of,
        evidence=evidence,
        headers=(),
        tokens=0,
        abstained=not evidence,
        timings_ms={},
    )


class Asked:
    """An `ask` that always finds the same messages and remembers what it was asked."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.queries: list[Query] = []

    async def __call__(self, query: Query, numbers: Retrieval) -> Answer:
        self.queries.append(query)
        return answering(query, self.ids)
