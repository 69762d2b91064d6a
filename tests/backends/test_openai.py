"""The language model over the official client and real HTTP: what is asked, what comes back, what a fault means."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, formatdate
from typing import Any

import pytest

from streammem.backends.openai import LIMITED, OPENAI, OpenAIModel
from streammem.backends.openai_faults import Fault, after, fault, plain
from streammem.errors import ModelBusyError, RejectedError, SettingsError
from streammem.records import Prompt, Reply
from tests.servers.model_server import (
    Answer,
    BatchPlan,
    Broken,
    Cut,
    ModelServer,
    Refuse,
    Slow,
    Status,
)

NODE = "1a2b3c4d5e6f"
KEY = "sk-very-secret-0123456789"
LINE = "1 | 2026-03-01 10:00 | <@U1> | we ship on Friday"
SCHEMA = {
    "type": "object",
    "properties": {"summaries": {"type": "array", "items": {"type": "object"}}},
    "required": ["summaries"],
    "additionalProperties": False,
}


def prompt(node: str = NODE, room: int = 300) -> Prompt:
    return Prompt("Summarise.", f"Node {node}\nLevel: 1\n<<<data {node}\n{LINE}\n>>>data {node}", SCHEMA, room)


@asynccontextmanager
async def talking(server: ModelServer, **options: Any) -> AsyncIterator[OpenAIModel]:
    """A model of a server."""
    async with server:
        model = OpenAIModel("scripted", **{"base_url": server.url, "timeout": 10.0, **options})
        try:
            yield model
        finally:
            await model.close()


def always(behaviour: Any) -> Callable[..., Any]:
    return lambda *_: behaviour


async def raised(kind: type[Exception], behaviour: Any, **options: Any) -> Any:
    """The error that a behaviour of the server comes out as."""
    async with talking(ModelServer(always(behaviour)), **options) as model:
        with pytest.raises(kind) as caught:
            await model.say(prompt())
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return caught.value


# ---------------------------------------------------------------------------------------------- what is asked


async def test_a_prompt_is_asked_with_its_schema_and_room_and_answered_with_what_it_took():
    server = ModelServer()
    async with talking(server, key=KEY, headers={"X-Team": "memory"}) as model:
        reply = await model.say(prompt())
        assert model.name == "scripted"
    entry = {"node": NODE, "text": "In short: we ship on Friday"}
    assert json.loads(reply.text) == {"summaries": [entry]}
    sent, headers = server.asked[0].request, server.asked[0].headers
    assert [message["content"] for message in sent["messages"]] == ["Summarise.", prompt().data]
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "summaries", "strict": True, "schema": SCHEMA},
    }
    assert (sent["model"], sent["temperature"], sent["max_completion_tokens"]) == ("scripted", 0.0, 300)
    assert (headers["authorization"], headers["x-team"]) == (f"Bearer {KEY}", "memory")
    assert (reply.tokens_in, reply.tokens_out) == (
        server.asked[0].tokens,
        server.asked[0].spent - server.asked[0].tokens,
    )


@pytest.mark.parametrize("refusal", [400, 422])
@pytest.mark.parametrize(
    ("refuses", "kept"),
    [
        ((), {"temperature", "max_tokens", "max_completion_tokens", "json_schema"}),
        (("json_schema",), {"temperature", "max_tokens", "max_completion_tokens", "json_object"}),
        (("json_schema", "json_object"), {"temperature", "max_tokens", "max_completion_tokens"}),
        (("temperature",), {"max_tokens", "max_completion_tokens", "json_schema"}),
        (("max_tokens",), {"temperature", "max_completion_tokens", "json_schema"}),
        (("max_completion_tokens",), {"temperature", "max_tokens", "json_schema"}),
        (("temperature", "json_schema", "json_object", "max_completion_tokens"), {"max_tokens"}),
    ],
)
async def test_what_a_server_refuses_is_left_out_and_not_sent_again(refuses, kept, refusal):
    server = ModelServer(refuses=refuses, refusal=refusal)
    async with talking(server) as model:
        await model.say(prompt())
        assert server.calls == len(refuses) + 1
        await model.say(prompt())
    assert server.calls == len(refuses) + 2
    sent = server.asked[-1].request
    found = {name for name in ("temperature", "max_tokens", "max_completion_tokens") if name in sent}
    assert found | {kind for kind in [sent.get("response_format", {}).get("type")] if kind} == kept


async def test_calls_at_the_same_time_learn_only_once_what_a_server_refuses():
    server = ModelServer(refuses=("json_schema", "temperature"), delay=0.05)
    async with talking(server) as model:
        replies = await asyncio.gather(*(model.say(prompt(f"{n:012x}")) for n in range(8)))
        assert len(replies) == 8
        before = server.calls
        await model.say(prompt())
    assert server.calls == before + 1
    assert server.asked[-1].request["response_format"] == {"type": "json_object"}
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize(
    ("structured", "kind"),
    [("schema", "json_schema"), ("json", "json_object"), ("none", None), ("auto", "json_schema")],
)
async def test_how_json_is_asked_for_can_be_set(structured, kind):
    server = ModelServer()
    async with talking(server, structured=structured, temperature=None) as model:
        await model.say(prompt())
    assert server.asked[0].request.get("response_format", {}).get("type") == kind
    assert "temperature" not in server.asked[0].request


async def test_a_way_to_ask_for_json_that_was_set_is_not_left_silently():
    async with talking(ModelServer(refuses=("json_schema",)), structured="schema") as model:
        with pytest.raises(SettingsError, match="STREAMMEM_OPENAI__STRUCTURED=auto"):
            await model.say(prompt())


async def test_a_server_that_takes_neither_name_of_the_room_is_asked_nothing_without_it():
    async with talking(ModelServer(refuses=("max_tokens", "max_completion_tokens"))) as model:
        with pytest.raises(RejectedError, match="max_completion_tokens"):
            await model.say(prompt())


async def test_the_environment_of_the_client_is_not_read(monkeypatch):
    for name, value in {
        "OPENAI_API_KEY": "from-outside",
        "OPENAI_ADMIN_KEY": "from-outside",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_ORG_ID": "from-outside",
        "OPENAI_PROJECT_ID": "from-outside",
        "OPENAI_CUSTOM_HEADERS": "X-Outside: from-outside\nAuthorization: Bearer from-outside",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "NETRC": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    server = ModelServer()
    async with talking(server) as model:
        await model.say(prompt())
    assert "from-outside" not in repr(server.asked[0].headers)
    assert server.asked[0].headers["authorization"] == "Bearer none"
    outside = OpenAIModel("m")
    assert str(outside._client.base_url).rstrip("/") == OPENAI
    await outside.close()


async def test_openai_itself_is_told_the_room_under_its_newer_name_only():
    model = OpenAIModel("m")
    assert "max_tokens" not in model._body(prompt(), model._style)
    assert model._body(prompt(), model._style)["max_completion_tokens"] == 300
    await model.close()


async def test_256_calls_are_under_way_at_once():
    server = ModelServer(delay=60.0)
    async with talking(server, timeout=60.0) as model:
        calls = [asyncio.create_task(model.say(prompt(f"{n:012x}"))) for n in range(256)]
        while server.most_at_once < 256:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


# ------------------------------------------------------------------------------------------- what comes back


async def test_a_reply_that_ran_out_of_room_comes_as_far_as_it_got():
    async with talking(ModelServer(always(Answer("so far", finish="length")))) as model:
        assert "so far" in (await model.say(prompt())).text


async def test_broken_json_of_the_model_is_passed_on_unchecked():
    async with talking(ModelServer(always(Broken("{oops")))) as model:
        assert (await model.say(prompt())).text == "{oops"


def choice(message: dict[str, Any], **more: Any) -> Status:
    return Status(200, body={"choices": [{"message": message, "finish_reason": "stop"}], **more})


@pytest.mark.parametrize(
    ("behaviour", "reply"),
    [
        (choice({"content": None}), Reply("")),
        (choice({"content": "a"}, usage=None), Reply("a")),
        (choice({"content": "a"}, usage={"prompt_tokens": 3}), Reply("a", 3)),
        (choice({"content": [{"type": "thinking"}, {"type": "text", "text": "a"}]}), Reply("a")),
    ],
)
async def test_servers_may_leave_parts_of_a_reply_out(behaviour, reply):
    async with talking(ModelServer(always(behaviour))) as model:
        assert await model.say(prompt()) == reply


@pytest.mark.parametrize("how", ["refusal", "content_filter"])
async def test_a_model_or_filter_that_does_not_want_to_is_told_with_what_it_took(how):
    async with talking(ModelServer(always(Refuse(how)))) as model:
        reply = await model.say(prompt())
    assert (reply.text, bool(reply.refused), reply.tokens_in > 0) == ("", True, True)


# -------------------------------------------------------------------------------------------------- faults


def says(message: str, code: str | None = None, kind: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": kind, "param": param}}


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("body", [None, "<html>Bad gateway</html>", ""])
async def test_a_server_that_cannot_now_is_busy(code, body):
    error = await raised(ModelBusyError, Status(code, body=body))
    assert str(code) in str(error)
    assert "<html>" not in str(error)
    assert error.after == (LIMITED if code == 429 else None)  # too many requests, whenever it likes them again


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "nan"}, None),
    ],
)
async def test_a_busy_server_says_when_to_come_again(code, headers, seconds):
    limited = LIMITED if code == 429 else None
    assert (await raised(ModelBusyError, Status(code, headers))).after == (limited if seconds is None else seconds)


async def test_a_busy_server_may_name_the_time_of_day():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    error = await raised(ModelBusyError, Status(429, {"Retry-After": date}))
    assert 60 < error.after <= 90


def test_a_time_that_has_passed_is_now():
    assert after({"retry-after": formatdate(1_000, usegmt=True)}, now=2_000.0) == 0.0
    assert after({"retry-after": "Thu, 99 Foo 2026"}, now=0.0) is None


@pytest.mark.parametrize("behaviour", [Cut(0), Cut(40)])
async def test_a_cut_connection_is_a_busy_server(behaviour):
    assert "away" in str(await raised(ModelBusyError, behaviour))


async def test_a_server_that_gives_no_answer_in_time_is_busy():
    assert "0.1 s" in str(await raised(ModelBusyError, Slow(1.0), timeout=0.1))


async def test_a_server_that_nobody_started_is_busy():
    async with ModelServer() as server:
        url = server.url
    model = OpenAIModel("m", base_url=url)
    with pytest.raises(ModelBusyError, match=r"http://127\.0\.0\.1:\d+ is away"):
        await model.say(prompt())
    await model.close()


@pytest.mark.parametrize(
    "body",
    ["<html>hello</html>", "", "[]", '"text"', {"choices": []}, {"choices": [{}]}, {"choices": [{"message": 3}]}],
)
async def test_a_reply_that_is_no_json_of_the_api_is_a_busy_server(body):
    await raised(ModelBusyError, Status(200, body=body))


async def test_an_error_in_a_reply_of_status_200_is_an_error():
    busy = {"error": {"code": 429, "message": "slow down"}}
    assert "slow down" in str(await raised(ModelBusyError, Status(200, body=busy)))
    refused = {"error": {"code": 400, "message": "content policy"}}
    await raised(RejectedError, Status(200, body=refused))


async def test_an_account_without_credit_is_busy_and_says_so():
    body = says("You exceeded your current quota, please check your plan.", "insufficient_quota", "insufficient_quota")
    error = await raised(ModelBusyError, Status(429, {"Retry-After": "9"}, body))
    assert "insufficient_quota" in str(error)
    assert "add credit" in str(error)
    assert error.after == 9
    assert "add credit" in str(await raised(ModelBusyError, Status(402, body=says("Insufficient Balance"))))


@pytest.mark.parametrize(
    ("behaviour", "names"),
    [
        (Status(401), "STREAMMEM_OPENAI__KEY"),
        (Status(403), "STREAMMEM_OPENAI__KEY or STREAMMEM_OPENAI__MODEL"),
        (Status(404), "STREAMMEM_OPENAI__MODEL"),
        (Status(404, body={"object": "error", "message": "The model `m` does not exist."}), "STREAMMEM_OPENAI__MODEL"),
        (Status(400, body=says("Model Not Exist", "invalid_request_error")), "STREAMMEM_OPENAI__MODEL"),
        (Status(404, body={"detail": "Not Found"}), "STREAMMEM_OPENAI__BASE_URL"),
        (Status(405, body="no"), "STREAMMEM_OPENAI__BASE_URL"),
        (Status(307, {"Location": "http://127.0.0.1:9/"}), "STREAMMEM_OPENAI__BASE_URL"),
    ],
)
async def test_wrong_settings_are_named(behaviour, names):
    error = await raised(SettingsError, behaviour, key=KEY)
    assert f"mend {names}" in str(error)


async def test_who_has_no_key_is_told_to_set_one():
    async with talking(ModelServer(key="wanted")) as model:
        with pytest.raises(SettingsError, match="wants a key: set STREAMMEM_OPENAI__KEY"):
            await model.say(prompt())


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (400, says("The response was filtered", "content_filter", param="prompt")),
        (400, says("Your request was rejected by our safety system", "content_policy_violation")),
        (400, says("Invalid prompt: we've limited access for safety reasons", "invalid_prompt")),
        (403, says("Your input was flagged", "403")),
        (400, says("Something else that nobody knows")),
        (422, {"detail": "no"}),
    ],
)
async def test_content_that_a_server_does_not_take_is_refused(code, body):
    assert (await raised(RejectedError, Status(code, body=body))).reason == "refused"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (400, says("This model's maximum context length is 8192 tokens.", "context_length_exceeded", param="messages")),
        (400, says("'max_tokens' is too large: 900. This model's maximum context length is 2048 tokens.")),
        (400, {"error": {"code": 400, "message": "the request exceeds", "type": "exceed_context_size_error"}}),
        (400, says("prompt is too long: 300000 tokens")),
        (413, "<html>"),
        (
            429,
            says("Request too large for gpt-x on tokens per min (TPM): Limit 30000", "rate_limit_exceeded", "tokens"),
        ),
    ],
)
async def test_a_prompt_that_never_fits_is_too_long(code, body):
    assert (await raised(RejectedError, Status(code, body=body))).reason == "too-long"


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (
            says("Unsupported value: 'temperature' does not support 0.0", "unsupported_value", param="temperature"),
            "temperature",
        ),
        (
            says("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", param="max_tokens"),
            "max_tokens",
        ),
        (says("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."), "max_tokens"),
        (says("Invalid parameter: 'response_format' of type 'json_schema'", param="response_format"), "format"),
        (says("This model does not support response format `json_schema`."), "format"),
        ({"error": "Failed to initialize samplers: failed to parse grammar"}, "format"),
        ({"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs"}]}, "max_completion_tokens"),
        (says("Invalid 'messages[1].content'"), ""),
    ],
)
def test_servers_word_a_refused_part_differently(said, part):
    assert fault(400, json.dumps(said).encode()).refuses == part
    assert not fault(500, json.dumps(said).encode()).refuses


def test_a_body_that_says_nothing_is_read_as_nothing():
    assert fault(400, b"<html>") == fault(400, b"[3]") == fault(400, b"null") == Fault(400)


# --------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("code", [400, 401, 403, 404, 429, 500])
async def test_the_key_and_the_headers_stay_secret_whatever_the_server_echoes(code, caplog):
    caplog.set_level(logging.DEBUG)
    headers = {"X-Token": "Bearer other-secret", "Proxy-Key": "third-secret"}
    echo = says(f"bad key {KEY},\nother-secret and {headers['X-Token']}, third-secret " + "x" * 400)
    server = ModelServer(always(Status(code, body=echo)))
    async with talking(server, key=KEY, headers=headers) as model:
        with pytest.raises((ModelBusyError, RejectedError, SettingsError)) as caught:
            await model.say(prompt())
        shown = [repr(model), str(model), repr(caught.value), caplog.text, repr(caught.value.__cause__)]
    assert server.asked[0].headers["proxy-key"] == "third-secret"
    for secret in (KEY, "other-secret", "third-secret"):
        assert all(secret not in text for text in shown)
    assert len(str(caught.value)) < 600
    assert caught.value.__suppress_context__


async def test_the_key_stays_secret_when_the_connection_fails(caplog):
    caplog.set_level(logging.DEBUG)
    for behaviour in (Cut(0), Status(200, body=f"<html>{KEY}")):
        assert KEY not in str(await raised(ModelBusyError, behaviour, key=KEY))
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"key": "sk-bad\nX: y"}, "STREAMMEM_OPENAI__KEY"),
        ({"key": "schlüssel-geheim"}, "STREAMMEM_OPENAI__KEY"),
        ({"headers": {"X-A": "geheim\r\nX-B: c"}}, "STREAMMEM_OPENAI__HEADERS"),
        ({"headers": {"X A": "geheim"}}, "STREAMMEM_OPENAI__HEADERS"),
        ({"base_url": "http://"}, "STREAMMEM_OPENAI__BASE_URL"),
        ({"base_url": "http://geheim@host:port/v1"}, "STREAMMEM_OPENAI__BASE_URL"),
        ({"base_url": "http://me:geheim@127.0.0.1/v1"}, "STREAMMEM_OPENAI__BASE_URL"),
    ],
)
def test_settings_that_cannot_be_sent_are_named_and_not_shown(options, names):
    with pytest.raises(SettingsError, match=names) as caught:
        OpenAIModel("m", **options)
    assert "geheim" not in str(caught.value)
    assert "sk-bad" not in str(caught.value)


async def test_a_key_from_a_file_may_end_with_its_line():
    server = ModelServer(key=KEY)
    async with talking(server, key=f"{KEY}\n") as model:
        await model.say(prompt())
    assert server.paid == {NODE: 1}


def test_short_words_are_no_secrets():
    assert plain("a\n b  c", ()) == "a b c"
    assert plain("key secret!", ("secret",)) == "key ***!"


# ----------------------------------------------------------------------------------------------------- jobs


def refusing(node: str, behaviour: Any) -> Callable[..., Any]:
    """Answers everything but prompts for one node."""
    return lambda _, request: behaviour if node in request["messages"][1]["content"] else Answer()


A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


async def test_a_job_is_handed_in_found_by_its_name_and_collected():
    server = ModelServer(batch=BatchPlan(polls=2))
    async with talking(server, key=KEY) as model:
        assert await model.handed_in("first") is None
        job = await model.submit("first", {"k1": prompt(A), "k2": prompt(B)})
        assert await model.handed_in("first") == job
        assert await model.handed_in("second") is None
        assert not await model.ended(job)
        assert await model.ended(job)
        replies = await model.replies(job)
    assert {key: json.loads(reply.text)["summaries"][0]["node"] for key, reply in replies.items()} == {"k1": A, "k2": B}
    assert all(reply.tokens_in and reply.tokens_out for reply in replies.values())
    assert server.paid == {A: 1, B: 1}
    assert server.calls == 0
    sent = server.items[0].request
    assert (sent["temperature"], sent["response_format"]["type"]) == (0.0, "json_schema")
    assert server.batches.jobs[job]["completion_window"] == "24h"
    assert server.batches.jobs[job]["endpoint"] == "/v1/chat/completions"


async def test_the_files_of_a_job_that_is_done_with_are_deleted_and_twice_does_no_harm():
    async with talking(server := ModelServer()) as model:
        job = await model.submit("first", {"k1": prompt(A)})
        assert await model.ended(job)
        assert await model.replies(job)
        assert len(server.batches.files) == 2
        await model.discard(job)
        assert server.batches.files == {}
        await model.discard(job)
        await model.discard("nothing")


@pytest.mark.parametrize(
    ("behaviour", "charged"), [(Slow(5), True), (Cut(0), True), (Status(500), False), (Status(429), False)]
)
async def test_a_call_that_the_server_may_have_worked_for_is_told_from_one_that_it_refused(behaviour, charged):
    async with talking(ModelServer(lambda *_: behaviour), timeout=0.3) as model:
        with pytest.raises(ModelBusyError) as raised:
            await model.say(prompt())
    assert raised.value.charged == charged


async def test_a_job_is_found_among_many():
    async with talking(ModelServer()) as model:
        jobs = [await model.submit(f"job {n}", {"k": prompt()}) for n in range(103)]
        assert await model.handed_in("job 0") == jobs[0]
        assert await model.handed_in("job 102") == jobs[102]


async def test_each_prompt_of_a_job_has_its_reply_or_a_line_that_says_what_went_wrong():
    server = ModelServer(
        refusing(A, Status(500, body=says(f"boom {KEY}"))),
        batch=BatchPlan(fates={"gone": "missing", "late": "expired"}),
    )
    async with talking(server, key=KEY) as model:
        prompts = {"bad": prompt(A), "good": prompt(B), "gone": prompt(B), "late": prompt(B)}
        job = await model.submit("mixed", prompts)
        assert await model.ended(job)
        replies = await model.replies(job)
    assert set(replies) == {"bad", "good", "late"}
    assert isinstance(replies["good"], Reply)
    assert "500: boom ***" in str(replies["bad"])
    assert "expired" in str(replies["late"]) or "completion window" in str(replies["late"])


@pytest.mark.parametrize("behaviour", [Refuse(), Refuse("content_filter"), Status(200, body={"choices": []})])
async def test_a_prompt_that_the_model_refused_in_a_job_says_so(behaviour):
    async with talking(ModelServer(always(behaviour))) as model:
        job = await model.submit("refused", {"k": prompt()})
        await model.ended(job)
        reply = (await model.replies(job))["k"]
        assert isinstance(reply, str) or reply.refused


@pytest.mark.parametrize(
    ("ends", "word"), [("expired", "window"), ("cancelled", "window"), ("failed", "not parseable")]
)
async def test_a_job_that_came_to_nothing_has_ended_and_says_why(ends, word):
    async with talking(ModelServer(batch=BatchPlan(ends=ends))) as model:
        job = await model.submit("nothing", {"k1": prompt(A), "k2": prompt(B)})
        assert await model.ended(job)
        replies = await model.replies(job)
        assert set(replies) == {"k1", "k2"}
        assert all(word in str(reply) and "\n" not in str(reply) for reply in replies.values())


async def test_a_job_that_the_server_does_not_know_has_ended_with_nothing():
    async with talking(ModelServer()) as model:
        assert await model.ended("batch_unknown")
        assert await model.replies("batch_unknown") == {}


async def test_what_the_prompts_of_a_job_were_refused_for_is_left_out_of_the_next():
    server = ModelServer(refuses=("json_schema",))
    async with talking(server) as model:
        job = await model.submit("first", {"k1": prompt(A), "k2": prompt(B)})
        await model.ended(job)
        assert all(isinstance(reply, str) for reply in (await model.replies(job)).values())
        job = await model.submit("second", {"k1": prompt(A), "k2": prompt(B)})
        await model.ended(job)
        assert all(isinstance(reply, Reply) for reply in (await model.replies(job)).values())
    assert server.items[-1].request["response_format"] == {"type": "json_object"}


async def test_a_server_without_jobs_says_so():
    async with talking(ModelServer()) as model:
        model._client.base_url = f"{model._client.base_url}nowhere/"
        with pytest.raises(SettingsError, match="has no Batch API"):
            await model.submit("first", {"k": prompt()})
        with pytest.raises(SettingsError, match="has no Batch API"):
            await model.handed_in("first")


async def test_jobs_of_a_server_that_is_away_or_refuses_the_key_fail_as_calls_do():
    async with talking(ModelServer(key=KEY)) as model:
        with pytest.raises(SettingsError, match="STREAMMEM_OPENAI__KEY"):
            await model.submit("first", {"k": prompt()})
        with pytest.raises(SettingsError, match="STREAMMEM_OPENAI__KEY"):
            await model.ended("batch_1")
    away = OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
    for call in (away.submit("x", {"k": prompt()}), away.handed_in("x"), away.ended("b"), away.replies("b")):
        with pytest.raises(ModelBusyError, match="is away"):
            await call
    await away.close()


async def test_closing_twice_is_no_fault():
    model = OpenAIModel("m")
    await model.close()
    await model.close()


async def test_a_call_that_is_given_up_leaves_the_others_alone():
    server = ModelServer(lambda number, _: Slow(60.0) if number == 1 else Answer())
    async with talking(server) as model:
        slow = asyncio.create_task(model.say(prompt(A)))
        while not server.calls:
            await asyncio.sleep(0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await model.say(prompt(B))
    assert server.paid == {B: 1}
