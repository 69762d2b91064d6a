"""The scripted model server itself: what it answers, what it remembers, how it fails."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.servers.model_server import (
    Answer,
    Asked,
    BatchPlan,
    Broken,
    Cut,
    ModelServer,
    Refuse,
    Slow,
    Status,
    Wrong,
)

ROOT = Path(__file__).parents[2]
A, B = "00000000000a", "00000000000b"
LEVEL_1 = f"""Node {A}
View: channel <#C1>
Level: 1
From 2026-03-01 10:00 to 2026-03-01 11:30 UTC
<<<data {A}
1 | 2026-03-01 10:00 | <@U1> | one two three four five six seven eight nine
2 | 2026-03-01 10:05 | <@U2> | (to 1) agreed
>>>data {A}"""
LEVEL_2 = f"""Node {B}
View: actor <@U1>
Level: 2
From 2026-03-01 10:00 to 2026-03-02 11:30 UTC
<<<data {B}
1 | 2026-03-01 10:00 to 2026-03-01 11:30 | they agreed
>>>data {B}"""
FIRST, SECOND = "In short: one two three four five six seven eight; agreed", "In short: they agreed"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """What speaks to the server."""
    async with aiohttp.ClientSession() as session:
        yield session


def request(data: str = LEVEL_1, **more: object) -> dict[str, object]:
    words = [{"role": "system", "content": "Summarise."}, {"role": "user", "content": data}]
    return {"model": "m", "messages": words, **more}


async def ask(
    http: aiohttp.ClientSession, server: ModelServer, data: str = LEVEL_1, **more: object
) -> tuple[int, dict]:
    async with http.post(f"{server.url}/chat/completions", json=request(data, **more)) as response:
        return response.status, await response.json()


def texts(body: dict) -> dict[str, str]:
    content = json.loads(body["choices"][0]["message"]["content"])
    return {entry["node"]: entry["text"] for entry in content["summaries"]}


async def test_every_node_that_is_asked_for_is_answered_with_words_of_its_lines(http):
    async with ModelServer() as server:
        status, body = await ask(http, server, f"{LEVEL_1}\n\n{LEVEL_2}")
    assert status == 200
    assert texts(body) == {A: FIRST, B: SECOND}
    assert server.paid == {A: 1, B: 1}
    assert server.asked[0].nodes == (A, B)
    assert server.asked[0].answered == "answer"
    assert body["usage"]["prompt_tokens"] == server.asked[0].tokens > 100
    assert body["usage"]["total_tokens"] == server.asked[0].spent


async def test_a_script_sees_the_number_and_the_json_of_a_request(http):
    seen = []

    def script(number, asked):
        seen.append((number, asked["model"]))
        return Answer("all the same")

    async with ModelServer(script) as server:
        await ask(http, server)
        _, body = await ask(http, server, LEVEL_2)
    assert seen == [(1, "m"), (2, "m")]
    assert texts(body) == {B: "all the same"}


@pytest.mark.parametrize(
    ("behaviour", "content", "paid"),
    [
        (Answer({A: "mine"}), {A: "mine", B: SECOND}, {A: 1, B: 1}),
        (Answer({A: None}), {B: SECOND}, {B: 1}),
        (Answer(" "), {A: " ", B: " "}, {}),
        (Wrong(), {"ffffffffff00": FIRST, "ffffffffff01": SECOND}, {}),
    ],
)
async def test_only_good_texts_for_the_right_nodes_are_paid(http, behaviour, content, paid):
    async with ModelServer(lambda *_: behaviour) as server:
        _, body = await ask(http, server, f"{LEVEL_1}\n{LEVEL_2}")
    assert texts(body) == content
    assert server.paid == paid


async def test_a_model_may_break_its_json_refuse_or_talk(http):
    behaviours = [Broken("{oops"), Refuse(), Refuse("content_filter"), Answer(before="Sure: ", finish="length")]
    async with ModelServer(lambda number, _: behaviours[number - 1]) as server:
        broken, refused, filtered, talking = [(await ask(http, server))[1]["choices"][0] for _ in behaviours]
    assert broken["message"]["content"] == "{oops"
    assert refused["message"]["refusal"]
    assert refused["finish_reason"] == "stop"
    assert filtered["finish_reason"] == "content_filter"
    assert talking["message"]["content"].startswith("Sure: {")
    assert talking["finish_reason"] == "length"
    assert server.paid == {A: 1}


async def test_a_status_comes_with_its_headers_and_body(http):
    script = {1: Status(429, {"Retry-After": "3"}), 2: Status(500, body={"error": "no"}), 3: Status(502, body="<html>")}
    async with ModelServer(lambda number, _: script[number]) as server:
        async with http.post(f"{server.url}/chat/completions", json=request()) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "3")
            assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
        assert await ask(http, server) == (500, {"error": "no"})
        async with http.post(f"{server.url}/chat/completions", json=request()) as response:
            assert (response.status, await response.text()) == (502, "<html>")
    assert [one.answered for one in server.asked] == ["429", "500", "502"]
    assert not server.paid


@pytest.mark.parametrize("after", [0, 30])
async def test_a_connection_is_cut_before_or_in_the_middle_of_an_answer(http, after):
    async with ModelServer(lambda *_: Cut(after)) as server:
        with pytest.raises(aiohttp.ClientError):
            await ask(http, server)
    assert server.asked[0].answered == "cut"
    assert not server.paid


async def test_who_does_not_wait_for_a_slow_answer_has_not_got_it(http):
    async with ModelServer(lambda *_: Slow(0.5)) as server:
        call = asyncio.create_task(ask(http, server))
        while not server.calls:
            await asyncio.sleep(0.01)
        call.cancel()
        while not server.asked[0].answered:
            await asyncio.sleep(0.01)
        assert server.asked[0].answered == "gone"
        assert not server.paid


async def test_the_server_counts_who_asks_at_once(http):
    async with ModelServer(delay=0.5) as server:
        await asyncio.gather(*(ask(http, server) for _ in range(3)))
        await ask(http, server)
    assert (server.calls, server.most_at_once) == (4, 3)


def test_the_server_counts_what_came_within_a_time():
    server = ModelServer()
    server.asked = [Asked(number=0, at=at, nodes=(), tokens=0, spent=10) for at in (1.0, 1.4, 1.9, 2.0, 2.3)]
    assert [server.in_any_window(seconds) for seconds in (0.05, 0.5, 1.0, 60)] == [1, 3, 4, 5]
    assert server.tokens_in_any_window(1.0) == 40


async def test_what_an_old_server_does_not_know_is_refused(http):
    async with ModelServer(refuses={"temperature", "json_schema"}) as server:
        assert (await ask(http, server))[0] == 200
        status, said = await ask(http, server, temperature=0)
        assert (status, said["error"]["param"]) == (400, "temperature")
        status, said = await ask(http, server, response_format={"type": "json_schema"})
        assert (status, said["error"]["param"]) == (400, "response_format")
        assert (await ask(http, server, response_format={"type": "json_object"}))[0] == 200
        server.refusal = 422
        assert (await ask(http, server, temperature=0))[1]["detail"][0]["loc"] == ["body", "temperature"]


async def test_key_and_model_are_checked_and_models_are_listed(http):
    async with ModelServer(key="secret", model="other") as server:
        assert (await ask(http, server))[0] == 401
        server.key = None
        assert (await ask(http, server))[1]["error"]["code"] == "model_not_found"
        async with http.get(f"{server.url}/models") as response:
            assert (await response.json())["data"][0]["id"] == "other"
        async with http.get(f"{server.url}/nothing") as response:
            assert response.status == 404


async def test_a_job_is_done_after_some_looks(http):
    async with ModelServer(batch=BatchPlan(polls=2, fates={"late": "expired"})) as server:
        lines = [{"custom_id": key, "body": request()} for key in ("good", "late")]
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", "\n".join(map(json.dumps, lines)).encode(), filename="x.jsonl")
        async with http.post(f"{server.url}/files", data=form) as response:
            file = (await response.json())["id"]
        async with http.post(f"{server.url}/batches", json={"input_file_id": file, "metadata": {"a": "b"}}) as response:
            job = (await response.json())["id"]
        states = []
        for _ in range(2):
            async with http.get(f"{server.url}/batches/{job}") as response:
                states.append(await response.json())
        assert [state["status"] for state in states] == ["in_progress", "completed"]
        async with http.get(f"{server.url}/files/{states[1]['output_file_id']}/content") as response:
            assert json.loads(await response.text())["custom_id"] == "good"
        async with http.get(f"{server.url}/files/{states[1]['error_file_id']}/content") as response:
            assert json.loads(await response.text())["error"]["code"] == "batch_expired"
        assert server.paid == {A: 1}
        assert server.calls == 0


async def test_it_runs_as_a_process_of_its_own_and_logs_what_it_is_asked(http, tmp_path):
    log = tmp_path / "requests"
    command = (sys.executable, "-m", "tests.servers.model_server", "--delay", "0.05", "--requests-log", str(log))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with http.post(f"{url}/chat/completions", json=request()) as response:
            assert texts(await response.json()) == {A: FIRST}
        line = json.loads(log.read_text())
    finally:
        process.terminate()
        await process.wait()
    assert (line["number"], line["nodes"], line["answered"]) == (1, [A], "answer")
