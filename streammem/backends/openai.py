"""A language model behind an OpenAI-compatible server, over the official client.

What a server takes is found out by asking: a way to ask for JSON, a temperature or a name for the room of the reply
that it refuses is left out from then on, for the life of the object. Otherwise nothing is tried again here.

The client's environment variables are not read: its key, URL, headers and proxies come from the settings only.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from streammem.backends.openai_faults import ROOM, SHORT, Fault, after, fault, plain, read
from streammem.errors import MissingExtraError, ModelBusyError, RejectedError, SettingsError, StreammemError
from streammem.records import Prompt, Reply

try:
    import httpx2  # what the client speaks HTTP with
    import openai
    from openai.types import Batch, FileObject
except ModuleNotFoundError as error:
    raise MissingExtraError("openai", "openai") from error

OPENAI: Final = "https://api.openai.com/v1"
COMPLETIONS: Final = "/chat/completions"

Structured = Literal["auto", "schema", "json", "none"]
T = TypeVar("T")

LIMITED: Final = 2.0
"""Seconds until a server is asked again that has too many requests and does not say until when."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_LADDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"auto": ("schema", "json", "none"), "schema": ("schema",), "json": ("json",), "none": ("none",)}
)
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_SETTING = "STREAMMEM_OPENAI__"


class _Style(msgspec.Struct, frozen=True):
    """How a server is asked. `formats` are the ways to ask for JSON that are left, the first is used; `room` names."""

    formats: tuple[str, ...]
    room: tuple[str, ...]
    temperature: float | None

    def without(self, part: str) -> _Style | None:
        """The style that does without a part (Fault.refuses); None if there is none."""
        if part == "format":
            return msgspec.structs.replace(self, formats=self.formats[1:]) if self.formats[1:] else None
        if part == "temperature":
            return msgspec.structs.replace(self, temperature=None) if self.temperature is not None else None
        room = tuple(name for name in self.room if name != part)
        return msgspec.structs.replace(self, room=room) if part in self.room and room else None


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    """What is read of a reply. Some servers tell of errors with a status of 200."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    """A line of a job's output or error file."""

    custom_id: str
    response: _Response | None = None
    error: Any = None


_completion = msgspec.json.Decoder(_Completion).decode
_line = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class _Client(openai.AsyncOpenAI):
    """The official client with headers of our own: the environment adds none, and they are put together once."""

    sent: Mapping[str, str] = _NO_HEADERS

    @property
    def default_headers(self) -> dict[str, str | openai.Omit]:
        return dict(self.sent)


class OpenAIModel:
    """A model and the server that has it. One object keeps one set of connections, without a limit."""

    def __init__(
        self,
        model: str,
        *,
        key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        headers: Mapping[str, str] = _NO_HEADERS,
        structured: Structured = "auto",
        temperature: float | None = 0.0,
    ) -> None:
        self._model, self._timeout = model, timeout
        key = (key or "").strip()
        self._keyed = bool(key) or any(name.lower() in {"authorization", "api-key"} for name in headers)
        url = base_url or OPENAI
        self._place = _place(url)
        self._secrets = _secrets(key, *headers.values())
        self._style = _Style(_LADDER[structured], _rooms(url), temperature)
        self._client = _client(url, key or "none", timeout, _checked(key, headers))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    @property
    def name(self) -> str:
        return self._model

    async def close(self) -> None:
        """Closing twice is no fault."""
        await self._client.close()

    # ---- one prompt
    async def say(self, prompt: Prompt) -> Reply:
        while True:
            style = self._style
            try:
                return self._reply(await self._post(self._body(prompt, style)))
            except openai.APIStatusError as error:
                found = _fault(error)
                if not self._adapts(found, style):
                    raise self._error(found, after(error.response.headers, time.time())) from None

    async def _post(self, body: Mapping[str, Any]) -> bytes:
        """The bytes of the server's answer. The client's own reading of them would take as long as all the rest."""
        content = _encode(body)
        async with self._reaching(), asyncio.timeout(self._timeout):
            response = await self._client.post(COMPLETIONS, content=content, cast_to=httpx2.Response)
            return response.content

    def _body(self, prompt: Prompt, style: _Style) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": prompt.instructions},
                {"role": "user", "content": prompt.data},
            ],
            **dict.fromkeys(style.room, prompt.room),
        }
        if style.temperature is not None:
            body["temperature"] = style.temperature
        if style.formats[0] == "schema":
            named = {"name": "summaries", "schema": prompt.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif style.formats[0] == "json":
            body["response_format"] = {"type": "json_object"}
        return body

    def _adapts(self, found: Fault, used: _Style) -> bool:
        """Whether there is another way to ask than the one used. Calls at the same time find out the same things."""
        if found.busy or found.too_long or found.policy:
            return False
        lesser = used.without(found.refuses)
        if lesser is None:
            return False
        if self._style == used:
            self._style = lesser
        return True

    def _reply(self, content: bytes) -> Reply:
        try:
            said = _completion(content)
        except msgspec.DecodeError:
            raise ModelBusyError(f"{self._place} answers with something that is no JSON of the API") from None
        if said.choices:
            return _reply(said.choices[0], said.usage or _Usage())
        if said.error is None:
            raise ModelBusyError(f"{self._place} answers without a choice")
        raise self._error(_told(said.error))

    # ---- jobs
    async def submit(self, name: str, prompts: Mapping[str, Prompt]) -> str:
        """Hand in prompts. What the server does not take is learnt from `say`, and from the replies of earlier jobs."""
        style = self._style
        lines = [
            _encode({"custom_id": key, "method": "POST", "url": f"/v1{COMPLETIONS}", "body": self._body(prompt, style)})
            for key, prompt in prompts.items()
        ]
        async with self._asking_jobs():
            file = await self._client.files.create(file=("streammem.jsonl", b"\n".join(lines)), purpose="batch")
            job = await self._client.batches.create(
                input_file_id=self._known(file, FileObject).id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"streammem": name},
            )
            return self._known(job, Batch).id

    async def handed_in(self, name: str) -> str | None:
        seen: set[str] = set()
        async with self._asking_jobs():
            async for job in self._client.batches.list(limit=100):
                if (job.metadata or {}).get("streammem") == name:
                    return job.id
                if job.id in seen:  # a server that knows no pages
                    break
                seen.add(job.id)
        return None

    async def ended(self, job: str) -> bool:
        """A job that the server has forgotten has ended too."""
        found = await self._job(job)
        return found is None or found.status in _ENDED

    async def replies(self, job: str) -> dict[str, Reply | str]:
        found = await self._job(job)
        if found is None:
            return {}
        if found.status == "failed" and not found.output_file_id and not found.error_file_id:
            return dict.fromkeys(await self._keys(found.input_file_id), self._why(found))
        replies: dict[str, Reply | str] = {}
        for file in (found.error_file_id, found.output_file_id):
            if file:
                replies.update(self._read(await self._file(file)))
        return replies

    async def discard(self, job: str) -> None:
        """Chat text does not stay where it need not: the files of the job go. What the server keeps besides, stays."""
        found = await self._job(job)
        for file in (found.input_file_id, found.output_file_id, found.error_file_id) if found else ():
            if file:
                with suppress(openai.APIStatusError):
                    async with self._reaching():
                        await self._client.files.delete(file)

    async def _job(self, job: str) -> Batch | None:
        try:
            async with self._reaching():
                return self._known(await self._client.batches.retrieve(job), Batch)
        except openai.NotFoundError:
            return None
        except openai.APIStatusError as error:
            raise self._error(_fault(error), after(error.response.headers, time.time())) from None

    async def _file(self, file: str) -> list[bytes]:
        async with self._asking_jobs():
            return (await self._client.files.content(file)).content.splitlines()

    async def _keys(self, file: str) -> list[str]:
        """What was asked in a job that the server did not begin."""
        return [line.custom_id for line in _lines(await self._file(file))]

    def _why(self, job: Batch) -> str:
        said = "; ".join(wrong.message or "" for wrong in (job.errors and job.errors.data) or ())
        return f"the job failed: {plain(said, self._secrets)}"

    def _read(self, content: list[bytes]) -> dict[str, Reply | str]:
        used = self._style
        return {line.custom_id: self._item(line, used) for line in _lines(content)}

    def _item(self, line: _Line, used: _Style) -> Reply | str:
        try:
            if line.response is None:
                raise self._error(_told(line.error))
            if line.response.status_code != HTTPStatus.OK:
                found = fault(line.response.status_code, bytes(line.response.body))
                self._adapts(found, used)
                raise self._error(found)
            return self._reply(bytes(line.response.body))
        except StreammemError as error:
            return str(error)

    # ---- what goes wrong
    def _known(self, answer: T, kind: type[T]) -> T:
        """The client passes on what it cannot read."""
        if not isinstance(answer, kind):
            raise ModelBusyError(f"{self._place} answers with something that is no JSON of the API")
        return answer

    @asynccontextmanager
    async def _asking_jobs(self) -> AsyncIterator[None]:
        try:
            async with self._reaching():
                yield
        except openai.APIStatusError as error:
            found = _fault(error)
            if found.status in {404, 405, 501}:
                raise SettingsError(f"{self._place} has no Batch API ({found.status}): word without jobs") from None
            raise self._error(found, after(error.response.headers, time.time())) from None

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        """Errors of the connection come out as those of the tree, without what was sent."""
        try:
            yield
        except (TimeoutError, openai.APITimeoutError):
            raise ModelBusyError(f"{self._place} gives no answer in {self._timeout:g} s", charged=True) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ConnectError) and "CERTIFICATE_VERIFY" in str(error.__cause__):
                raise SettingsError(f"the certificate of {self._place} is not trusted: add its authority") from None
            began = not isinstance(error.__cause__, httpx2.ConnectError)
            raise ModelBusyError(f"{self._place} is away ({type(error.__cause__).__name__})", charged=began) from None
        except (openai.APIResponseValidationError, AttributeError, ValueError):
            raise ModelBusyError(f"{self._place} answers with something that is no JSON of the API") from None

    def _error(self, found: Fault, seconds: float | None = None) -> StreammemError:
        """What an error of the server means. `seconds`: when it wants to be asked again.

        What comes with a 401 is not passed on: it may show a part of the key.
        """
        words = "" if found.status == HTTPStatus.UNAUTHORIZED else plain(found.message, self._secrets)
        said = f"{self._place} answers {found.status}{': ' if words else ''}{words}"
        if found.exhausted:
            why = "the account has no credit or quota left (insufficient_quota): add credit, or raise its limit"
            return ModelBusyError(f"{why} ({said})", seconds)
        if found.too_long:
            return RejectedError("too-long", said)
        if found.policy:
            return RejectedError("refused", said)
        if found.busy:
            limited = found.status == HTTPStatus.TOO_MANY_REQUESTS
            return ModelBusyError(
                f"the model server is busy: {said}", LIMITED if limited and seconds is None else seconds
            )
        mend = self._mend(found)
        return SettingsError(f"{mend} ({said})") if mend else RejectedError("refused", said)

    def _mend(self, found: Fault) -> str:
        """Which setting to mend, and how."""
        if found.status == HTTPStatus.UNAUTHORIZED:
            wrong = "the server refuses the key: mend" if self._keyed else "the server wants a key: set"
            return f"{wrong} {_SETTING}KEY"
        if found.no_model:
            return f"the server has no model {self._model!r}: mend {_SETTING}MODEL"
        if found.status == HTTPStatus.FORBIDDEN:
            return f"the key may not use {self._model!r}: mend {_SETTING}KEY or {_SETTING}MODEL"
        if found.refuses == "format":
            return f"the server does not give JSON that way: set {_SETTING}STRUCTURED=auto"
        if found.status < HTTPStatus.BAD_REQUEST or found.status in {404, 405}:
            return f"no API there: mend {_SETTING}BASE_URL (mostly it ends in /v1)"
        return ""


def _rooms(url: str) -> tuple[str, ...]:
    """OpenAI itself takes the newer name. Others may pass over the one that they do not know: they are told both."""
    return ROOM[:1] if url.startswith(OPENAI) else ROOM


def _secrets(*values: str) -> tuple[str, ...]:
    """What no message may hold, longest first: each value, and the token behind its "Bearer"."""
    found = {word for value in values for word in (value, value.rpartition(" ")[2]) if len(word) >= SHORT}
    return tuple(sorted(found, key=len, reverse=True))


def _place(url: str) -> str:
    """The server, as messages name it. A URL with a password is refused: the client's log shows URLs."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        host = parts.hostname or ""
    except ValueError:
        host = port = ""
    if not host:
        raise SettingsError(f"{_SETTING}BASE_URL is no URL: write it as http://HOST:PORT/v1")
    if parts.username is not None or parts.password is not None:
        raise SettingsError(f"{_SETTING}BASE_URL holds a name or password: give them in {_SETTING}HEADERS")
    return f"{parts.scheme}://{host}{port}"


def _checked(key: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request. Names a setting whose value no header can carry, never the value."""
    if not _sendable(key):
        raise SettingsError(f"{_SETTING}KEY holds characters that a key cannot have: set it anew")
    for name, value in headers.items():
        if not (name and _sendable(name) and " " not in name and ":" not in name and _sendable(value)):
            raise SettingsError(f"{_SETTING}HEADERS holds a name or value that no header can have: mend it")
    usual = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "streammem",
        "Authorization": f"Bearer {key or 'none'}",
    }
    own = {name.lower() for name in headers}
    return {**{name: value for name, value in usual.items() if name.lower() not in own}, **headers}


def _sendable(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)


def _client(url: str, key: str, timeout: float, headers: Mapping[str, str]) -> _Client:
    """The official client. The system's certificates are trusted, as OpenSSL finds them; no redirect is followed."""
    connections = httpx2.AsyncClient(
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        timeout=timeout,
        verify=ssl.create_default_context(),
        trust_env=False,
        follow_redirects=False,
    )
    try:
        client = _Client(api_key=key, base_url=url, timeout=timeout, max_retries=0, http_client=connections)
    except httpx2.InvalidURL:
        raise SettingsError(f"{_SETTING}BASE_URL is no URL: write it as http://HOST:PORT/v1") from None
    client.sent = headers
    return client


def _fault(error: openai.APIStatusError) -> Fault:
    return fault(error.status_code, error.response.content)


def _told(said: Any) -> Fault:
    """An error without a status of its own, which may be its code."""
    code = said.get("code") if isinstance(said, Mapping) else None
    return read(code if isinstance(code, int) and code >= HTTPStatus.BAD_REQUEST else 500, {"error": said})


def _reply(choice: _Choice, usage: _Usage) -> Reply:
    refused = ""
    if choice.message.refusal:
        refused = "the model does not want to answer this prompt"
    elif choice.finish_reason == "content_filter":
        refused = "the server's content filter stopped the reply"
    text = "" if refused else _text(choice.message.content)
    return Reply(text, usage.prompt_tokens or 0, usage.completion_tokens or 0, refused)


def _text(content: str | list[dict[str, Any]] | None) -> str:
    """Some servers give a reply in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return content or ""


def _lines(content: Iterable[bytes]) -> list[_Line]:
    """The lines of a job's file; what cannot be read is missing."""
    lines = []
    for line in content:
        try:
            lines.append(_line(line))
        except msgspec.DecodeError:
            continue
    return lines
