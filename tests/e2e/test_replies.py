"""Replies over a whole stream: Kafka, Redis, a worker process, and a scripted model server over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streammem.client import connect
from streammem.ports import REPLIES
from tests.e2e.stream import Stream, running
from tests.flows.replies import data_of, wrote
from tests.servers.model_server import ModelServer
from tests.stories import private, public, said

SECRET, OPEN = "the codeword is pelican 77", "the codeword was changed"


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


def quoting(number: int, request: Any) -> Any:
    """Says what the first message says."""
    return wrote((data_of(request).split("\n")[2].rpartition(": ")[2], [1]))


async def test_a_question_gets_a_reply_made_of_what_the_asker_may_read_and_without_a_model_a_note(
    stream: Stream,
) -> None:
    events = [public(), *private("leads", "ana"), said("1", SECRET, channel="leads"), said("2", OPEN)]
    address = f"kafka://{stream.settings.kafka.bootstrap}"
    async with ModelServer(quoting) as server:
        stream.change("openai", answer_model="scripted", base_url=server.url)
        async with (
            running(stream, ("ingest", "structure", "index", "query")),
            connect(address, stream.settings) as memory,
        ):
            sent = await memory.append(events)
            mine = await memory.query("what is the codeword?", asker="ana", wait_for=sent, answer=True)
            anyones = await memory.query("what is the codeword?", answer=True)
            plain = await memory.query("what is the codeword?", asker="ana")
        asked = [data_of(one.request) for one in server.asked]
    assert mine.reply is not None
    assert mine.reply.supported
    assert mine.reply.text == mine.evidence[0].text
    assert mine.reply.sentences[0].cites == (mine.evidence[0].uid,)
    assert anyones.reply is not None
    assert anyones.reply.text == OPEN
    assert plain.reply is None
    assert plain.evidence == mine.evidence
    assert [SECRET in data for data in asked] == [True, False]
    async with stream.open() as parts:
        (spent,) = await parts.ledger.spent()
        assert (spent.view, spent.calls) == (REPLIES, 2)
        assert not await parts.worded()  # replies alone let nothing be marked for a model
        kept = [content async for _, content in parts.structure.everything()]
        assert not [one async for one in parts.structure.generated()]
        assert not any(b"scripted" in content for content in kept)


async def test_without_a_model_the_evidence_comes_with_a_note_that_says_what_to_set(stream: Stream) -> None:
    address = f"kafka://{stream.settings.kafka.bootstrap}"
    async with running(stream, ("ingest", "structure", "index", "query")), connect(address, stream.settings) as memory:
        sent = await memory.append([public(), said("1", OPEN)])
        answer = await memory.query("the codeword?", wait_for=sent, answer=True)
    assert [item.text for item in answer.evidence] == [OPEN]
    assert answer.reply is None
    assert "STREAMMEM_OPENAI__ANSWER_MODEL" in answer.notes[-1]
