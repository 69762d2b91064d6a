"""The producer in the README's "Connect your exporter" works as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from streammem.client import StreamMemory, connect
from streammem.errors import QueryError
from tests.e2e.stream import Stream, running

README = Path(__file__).parents[2] / "README.md"


def producer() -> str:
    section = README.read_text().split("### Connect your exporter", 1)[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def stream(kafka: str, kafka_prefix: str, redis_url: str, tmp_path: Path) -> Stream:
    return Stream(kafka, redis_url, tmp_path, kafka_prefix)


def test_it_has_ten_lines() -> None:
    assert len(list(filter(None, producer().splitlines()))) <= 10


async def test_what_the_readme_produces_is_found(stream: Stream) -> None:
    kafka = stream.settings.kafka
    code = producer().replace("127.0.0.1:9092", kafka.bootstrap)
    code = code.replace("chat.messages", f"{kafka.prefix}chat.messages")
    async with running(stream, ("ingest", "structure", "index", "summarize", "query")):
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
        _, said = await program.communicate()
        assert program.returncode == 0, said.decode()
        async with connect(f"kafka://{kafka.bootstrap}", stream.settings) as memory, asyncio.timeout(60):
            found: list[tuple[str, str]] = []
            while not found:
                await asyncio.sleep(0.2)
                found = await asked(memory)
        assert found == [("DOC-042 is approved", "Ana")]


async def asked(memory: StreamMemory) -> list[tuple[str, str]]:
    """What is found; nothing as long as there is no memory to ask."""
    try:
        answer = await memory.query("what about DOC-042?")
    except QueryError:
        return []
    return [(e.text, e.user_name) for e in answer.evidence]
