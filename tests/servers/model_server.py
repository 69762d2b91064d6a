"""A real HTTP server that plays an OpenAI-compatible model server by a script.

In a test:      async with ModelServer(script) as server: ... server.url
As a process:   python -m tests.servers.model_server --port 0 --delay 0.2 [--requests-log FILE]

The process prints its URL on the first line, and writes every request to the log as a line of JSON (Asked).
"""

import argparse
import asyncio
import contextlib
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Self, TextIO

import msgspec
from aiohttp import web

from tests.servers.model_batches import Batches, BatchPlan
from tests.servers.model_script import (
    Answer,
    Asked,
    Behaviour,
    Broken,
    Cut,
    Refuse,
    Request,
    Script,
    Slow,
    Status,
    Wrong,
    asked,
    completion,
    fault,
    given,
    good,
    name_of,
    status,
)

__all__ = ["Answer", "Asked", "BatchPlan", "Broken", "Cut", "ModelServer", "Refuse", "Slow", "Status", "Wrong", "good"]

_JSON = {"Content-Type": "application/json"}
_COMPLETIONS = "/v1/chat/completions"
_SOON = BatchPlan()
_read = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


class ModelServer:
    """The server and what it remembers.

    `refuses` are what it takes no request with: "temperature", "max_tokens", "max_completion_tokens", "json_schema",
    "json_object", with `refusal` as the status. `key` and `model` are what it wants to be told, if set. `delay` is
    before every completion. `keeps` whether it keeps the JSON and the headers of requests.
    """

    def __init__(
        self,
        script: Script = good,
        *,
        delay: float = 0.0,
        refuses: Collection[str] = (),
        refusal: int = 400,
        key: str | None = None,
        model: str | None = None,
        batch: BatchPlan = _SOON,
        port: int = 0,
        keeps: bool = True,
        log: TextIO | None = None,
    ) -> None:
        self.script, self.delay, self.keeps = script, delay, keeps
        self.refuses, self.refusal, self.key, self.model = refuses, refusal, key, model
        self.asked: list[Asked] = []
        self.paid: Counter[str] = Counter()
        self.most_at_once = 0
        self.batches = Batches(batch, self._item)
        self.items: list[Asked] = []
        self._port, self._log, self._at_once = port, log, 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._route, access_log=None), shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    # ---- what tests ask
    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def calls(self) -> int:
        """How many completions were asked for, without those of jobs (`items`)."""
        return len(self.asked)

    def in_any_window(self, seconds: float) -> int:
        """The most requests that came within so many seconds."""
        return self._most(seconds, lambda _: 1)

    def tokens_in_any_window(self, seconds: float) -> int:
        """The most tokens, of prompts and replies, that were asked for within so many seconds."""
        return self._most(seconds, lambda one: one.spent)

    def _most(self, seconds: float, weight: Callable[[Asked], int]) -> int:
        at = [one.at for one in self.asked]
        sums = [0]
        for one in self.asked:
            sums.append(sums[-1] + weight(one))
        return max((sums[bisect_left(at, start + seconds)] - sums[n] for n, start in enumerate(at)), default=0)

    # ---- HTTP
    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = self._unknown(request.headers.get("Authorization", ""))
        if refused is not None:
            return _json(*refused)
        if request.path == _COMPLETIONS and request.method == "POST":
            return await self._complete(request)
        return await self._others(request)

    def _unknown(self, authorization: str) -> tuple[int, Any] | None:
        if self.key is None or authorization == f"Bearer {self.key}":
            return None
        return 401, fault(401, f"Incorrect API key provided: {authorization.removeprefix('Bearer ')}.")

    async def _others(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.removeprefix("/v1/").split("/")
        routes: dict[tuple[str, str, int], Callable[[web.BaseRequest, list[str]], Awaitable[web.Response]]] = {
            ("GET", "models", 1): self._models,
            ("POST", "files", 1): self._new_file,
            ("GET", "files", 3): self._file,
            ("DELETE", "files", 2): self._delete_file,
            ("POST", "batches", 1): self._new_batch,
            ("GET", "batches", 1): self._batch_list,
            ("GET", "batches", 2): self._batch,
        }
        route = routes.get((request.method, parts[0], len(parts)))
        return await route(request, parts) if route is not None else _json(404, {"detail": "Not Found"})

    async def _models(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        return _json(200, {"object": "list", "data": [{"id": self.model or "scripted", "object": "model"}]})

    async def _new_file(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        form = await request.post()
        sent = form["file"]
        assert isinstance(sent, web.FileField)
        return _json(200, self.batches.add_file(sent.file.read(), str(form["purpose"])))

    async def _file(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        content = self.batches.files.get(parts[1])
        return _json(404, fault(404)) if content is None else web.Response(body=content)

    async def _delete_file(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        gone = self.batches.files.pop(parts[1], None) is not None
        return _json(200, {"id": parts[1], "object": "file", "deleted": True}) if gone else _json(404, fault(404))

    async def _new_batch(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        return _json(200, self.batches.add(_read(await request.read())))

    async def _batch_list(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        return _json(200, self.batches.page(request.query.get("after"), int(request.query.get("limit", "20"))))

    async def _batch(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        job = self.batches.look(parts[1])
        return _json(404, fault(404, name="not_found")) if job is None else _json(200, job)

    # ---- completions
    async def _complete(self, request: web.BaseRequest) -> web.StreamResponse:
        at = time.monotonic()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._play(request, at)
        finally:
            self._at_once -= 1

    async def _play(self, request: web.BaseRequest, at: float) -> web.StreamResponse:
        sent = _read(await request.read())
        record, texts = asked(len(self.asked) + 1, at, sent)
        if self.keeps:
            record.request = sent
            record.headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(record)
        behaviour, seconds = self._behaviour(record, sent)
        code, body = self._said(behaviour, sent, record, texts)
        if seconds:
            await asyncio.sleep(seconds)
        here = request.transport is not None and not request.transport.is_closing()
        if here:
            self._pay(behaviour, texts)
        record.answered = name_of(behaviour) if here else "gone"
        self._note(record)
        return (
            await _cut(request, body, behaviour.after) if isinstance(behaviour, Cut) else _json(code, body, behaviour)
        )

    def _behaviour(self, record: Asked, sent: Request) -> tuple[Behaviour, float]:
        """What is to be done, and after how many seconds."""
        behaviour: Behaviour = self._refused(sent) or self.script(record.number, sent)
        seconds = 0.0 if isinstance(behaviour, Status) else self.delay
        while isinstance(behaviour, Slow):
            seconds, behaviour = seconds + behaviour.seconds, behaviour.then
        return behaviour, seconds

    def _refused(self, sent: Request) -> Status | None:
        """The refusal of a parameter or of a model, as OpenAI words it; with 422 as other servers do."""
        if self.model is not None and sent.get("model") != self.model:
            return Status(404)
        kind = (sent.get("response_format") or {}).get("type")
        for name in self.refuses:
            if name in sent or name == kind:
                return Status(
                    self.refusal, body=_unsupported(name, "response_format" if name == kind else name, self.refusal)
                )
        return None

    def _said(self, behaviour: Behaviour, sent: Request, record: Asked, texts: dict[str, str]) -> tuple[int, Any]:
        if isinstance(behaviour, Status):
            return status(behaviour)
        return 200, completion(behaviour, sent, record, texts)

    def _pay(self, behaviour: Behaviour, texts: dict[str, str]) -> None:
        """Only a text that was sent in full is one that somebody has."""
        self.paid.update(node for node, text in given(behaviour, texts).items() if text.strip())

    def _item(self, sent: Request) -> tuple[int, Any]:
        """A prompt of a job."""
        record, texts = asked(len(self.items) + 1, time.monotonic(), sent)
        record.request = sent
        self.items.append(record)
        behaviour, _ = self._behaviour(record, sent)
        self._pay(behaviour, texts)
        record.answered = name_of(behaviour)
        return self._said(behaviour, sent, record, texts)

    def _note(self, record: Asked) -> None:
        if self._log is not None:
            self._log.write(_write(record).decode() + "\n")


def _json(code: int, body: Any, behaviour: Behaviour | None = None) -> web.Response:
    headers = {**_JSON, **behaviour.headers} if isinstance(behaviour, Status) else _JSON
    return web.Response(status=code, body=body.encode() if isinstance(body, str) else _write(body), headers=headers)


async def _cut(request: web.BaseRequest, body: Any, after: int) -> web.StreamResponse:
    """Send the beginning of a body and hang up."""
    whole = _write(body)
    response = web.StreamResponse(headers={**_JSON, "Content-Length": str(len(whole))})
    if after:
        await response.prepare(request)
        await response.write(whole[:after])
    if request.transport is not None:
        request.transport.close()
    return response


def _unsupported(name: str, param: str, code: int) -> dict[str, Any]:
    if code == 422:
        return {
            "detail": [{"type": "extra_forbidden", "loc": ["body", param], "msg": "Extra inputs are not permitted"}]
        }
    said = f"Unsupported parameter: '{name}' is not supported with this model."
    return fault(code, said, param=param, name="unsupported_parameter")


# ---- as a process


async def _serve(port: int, delay: float, log: TextIO | None) -> None:
    async with ModelServer(port=port, delay=delay, keeps=False, log=log) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="A scripted model server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--requests-log", type=Path, help="a file to write every request to")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        log = options.requests_log and stack.enter_context(options.requests_log.open("w", buffering=1))
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(options.port, options.delay, log))


if __name__ == "__main__":
    main()
