"""What a scripted model does with a request: the behaviours, and the answers made of the prompt that is asked.

A script is a callable (number of the request from 1, its JSON) -> behaviour.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from typing import Any

import msgspec

_BLOCK = re.compile(r"^<<<data ([0-9a-f]{12})\n(.*?)^>>>data \1", re.MULTILINE | re.DOTALL)
_ANSWERS = re.compile(r"^\(to \d+\) ")
_WORDS, _LINES = 8, 3

Request = Mapping[str, Any]
"""The JSON of a request for a completion."""


class Answer(msgspec.Struct, frozen=True):
    """Summaries for the nodes that are asked: the same text for all, or by node (None leaves it out); else the default.

    `finish` is the finish_reason; `before` and `after` stand around the JSON, as some models talk.
    """

    texts: str | Mapping[str, str | None] | None = None
    finish: str = "stop"
    before: str = ""
    after: str = ""


class Wrong(msgspec.Struct, frozen=True):
    """Summaries, but for other nodes than those that are asked."""

    node: str = "ffffffffffff"


class Broken(msgspec.Struct, frozen=True):
    """A completion whose content is this."""

    content: str = '{"summaries": [{"node"'


class Refuse(msgspec.Struct, frozen=True):
    """The model does not want to: in its `refusal` field, or the server stops it (content_filter)."""

    how: str = "refusal"


class Status(msgspec.Struct, frozen=True):
    """An HTTP status. `body` is JSON, or text as it is; by default what OpenAI says."""

    code: int
    headers: Mapping[str, str] = {}
    body: Any = None


class Cut(msgspec.Struct, frozen=True):
    """The connection ends after so many bytes of the body; 0: before anything was said."""

    after: int = 0


class Slow(msgspec.Struct, frozen=True):
    """Something else, so many seconds later."""

    seconds: float
    then: "Behaviour" = Answer()


Behaviour = Answer | Wrong | Broken | Refuse | Status | Cut | Slow
Script = Callable[[int, Request], Behaviour]


def good(number: int, request: Request) -> Behaviour:
    """The script of a server that always answers."""
    return Answer()


class Asked(msgspec.Struct):
    """A request that came: when (time.monotonic()), for which nodes, how many tokens, and what was answered.

    `tokens` are those of the prompt, `spent` those of prompt and reply. `answered` is the behaviour's name, with the
    code of a status; "gone" when the client did not wait for it. The names of `headers` are in small letters.
    """

    number: int
    at: float
    nodes: tuple[str, ...]
    tokens: int
    spent: int = 0
    answered: str = ""
    request: Request = {}
    headers: Mapping[str, str] = {}


def asked(number: int, at: float, request: Request) -> tuple[Asked, dict[str, str]]:
    """The record of a request, and the default text of each node in it."""
    words = [str(message.get("content")) for message in request.get("messages") or ()]
    texts = {node: _text(lines) for node, lines in _BLOCK.findall(words[-1] if words else "")}
    return Asked(number=number, at=at, nodes=tuple(texts), tokens=sum(map(tokens, words))), texts


def tokens(text: str) -> int:
    """Roughly."""
    return len(text) // 4 + 1


def _text(lines: str) -> str:
    """A summary that holds nothing that is not in the lines."""
    said = (_ANSWERS.sub("", line.rsplit(" | ", 1)[-1]) for line in lines.splitlines()[:_LINES])
    return "In short: " + "; ".join(" ".join(text.split()[:_WORDS]) for text in said)


def name_of(behaviour: Behaviour) -> str:
    """What stands in the log of requests."""
    if isinstance(behaviour, Slow):
        return name_of(behaviour.then)
    return f"{behaviour.code}" if isinstance(behaviour, Status) else type(behaviour).__name__.lower()


def given(behaviour: Behaviour, texts: Mapping[str, str]) -> dict[str, str]:
    """The text of each node in an answer."""
    if not isinstance(behaviour, Answer):
        return {}
    chosen = behaviour.texts
    if isinstance(chosen, str):
        return dict.fromkeys(texts, chosen)
    named = {node: text if chosen is None else chosen.get(node, text) for node, text in texts.items()}
    return {node: text for node, text in named.items() if text is not None}


def completion(behaviour: Behaviour, request: Request, record: Asked, texts: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of a chat completion. Notes in the record what it takes."""
    content = _content(behaviour, texts)
    taken = tokens(content)
    record.spent = record.tokens + taken
    refuses = isinstance(behaviour, Refuse)
    filtered = refuses and behaviour.how == "content_filter"
    message = {
        "role": "assistant",
        "content": "" if refuses else content,
        "refusal": "I cannot help with that." if refuses and not filtered else None,
    }
    finish = behaviour.finish if isinstance(behaviour, Answer) else "content_filter" if filtered else "stop"
    return {
        "id": f"chatcmpl-{record.number}",
        "object": "chat.completion",
        "created": 1772000000,
        "model": request.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": record.tokens, "completion_tokens": taken, "total_tokens": record.spent},
    }


def _content(behaviour: Behaviour, texts: Mapping[str, str]) -> str:
    if isinstance(behaviour, Broken):
        return behaviour.content
    if isinstance(behaviour, Wrong):
        return _json([(f"{behaviour.node[:-2]}{n:02x}", text) for n, text in enumerate(texts.values())])
    around = behaviour if isinstance(behaviour, Answer) else Answer()
    return around.before + _json(list(given(behaviour, texts).items())) + around.after


def _json(texts: Many[tuple[str, str]]) -> str:
    return msgspec.json.encode({"summaries": [{"node": node, "text": text} for node, text in texts]}).decode()


_SAID: Mapping[int, tuple[str, str, str]] = {
    400: ("invalid_request_error", "invalid_value", "Invalid request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "forbidden", "You are not allowed to sample from this model."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached."),
    503: ("server_error", "overloaded", "The server is overloaded."),
}


def fault(code: int, message: str | None = None, param: str | None = None, name: str | None = None) -> dict[str, Any]:
    """The JSON of an error as OpenAI words it; `name` is its code."""
    kind, usual, words = _SAID.get(code, ("server_error", "server_error", "The server had an error."))
    return {"error": {"message": message or words, "type": kind, "param": param, "code": name or usual}}


def status(behaviour: Status) -> tuple[int, Any]:
    """The status and body of a refusal."""
    return behaviour.code, fault(behaviour.code) if behaviour.body is None else behaviour.body
