"""Whether a language model's reply may be kept (design §7).

A reply is made from chat text and may do what a message told the model to do. What is kept is plain prose: it holds no
link, no mark and no markup that was not in the node's own data.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Sequence as Many
from typing import TypeVar

import msgspec

from streammem.core.prompts import PLACEHOLDER, SENTENCES, Part, cut, one_line, quoted, tokens

T = TypeVar("T")

_QUOTED = 60  # characters of a reply that a fault repeats
_TOO_LONG = 2  # times the length that was asked for


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    node: str
    text: str


class _Summaries(msgspec.Struct, forbid_unknown_fields=True):
    summaries: list[_Entry]


def read(reply: str, parts: Many[Part], length: int) -> tuple[dict[str, str], dict[str, str]]:
    """The texts that may be kept and, for all other parts, one line that says what is wrong. Both by Part.key.

    `length` is the most tokens that were asked for in a text; up to twice as many are kept.
    """
    try:
        entries = decoded(reply, _Summaries).summaries
    except ValueError as error:
        return {}, {part.key: f"{error}: {shown(reply)}" for part in parts}
    if stray := _strays(entries, parts):
        return {}, {part.key: stray for part in parts}
    said: defaultdict[str, list[str]] = defaultdict(list)
    for entry in entries:
        said[entry.node.strip()].append(entry.text)
    found = {part.key: prose(said[part.id][0]) if said[part.id] else "" for part in parts}
    faults = {part.key: _fault(said[part.id], found[part.key], part, length) for part in parts}
    return (
        {key: text for key, text in found.items() if not faults[key]},
        {key: fault for key, fault in faults.items() if fault},
    )


# ------------------------------------------------------------------------------------------------- the reply's form

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def decoded(reply: str, form: type[T]) -> T:
    """The one JSON object in a reply. Raises ValueError that says what is wrong."""
    wrong = ""
    for candidate in _candidates(reply.encode(errors="replace").decode().strip()):
        try:
            return msgspec.json.decode(candidate, type=form)
        except (msgspec.DecodeError, RecursionError) as error:
            wrong = wrong or one_line(str(error))
    raise ValueError(f"the reply is not the JSON that was asked for ({cut(wrong, 120)})" if wrong else "no JSON object")


def _candidates(reply: str) -> Iterator[str]:
    """Where the object may be: from the first brace to the last, else inside a fence with braces around it."""
    start, end = reply.find("{"), reply.rfind("}")
    if 0 <= start < end:
        yield reply[start : end + 1]
    yield from _FENCED.findall(reply)


def _strays(entries: Many[_Entry], parts: Many[Part]) -> str:
    """What is wrong when a reply names a node that was not asked for, and leaves out one that was.

    The stranger's text may then belong to the missing node, and any other text to any other: none can be trusted. When
    every node has its own, a stranger takes nothing from them and is passed over.
    """
    said = {entry.node.strip() for entry in entries}
    strange, missing = sorted(said - {part.id for part in parts}), [part.id for part in parts if part.id not in said]
    if not (strange and missing):
        return ""
    return f"a node that was not asked for, {shown(strange[0])}, and none for {missing[0]}"


def shown(text: str) -> str:
    """The beginning of a piece of the reply, in quotes."""
    words = cut(one_line(text[: 10 * _QUOTED]), _QUOTED).replace('"', "'")
    return f'"{words}"'


# -------------------------------------------------------------------------------------------------------- one text

_QUOTES = frozenset(('""', "''", "“”", "„“", "‘’", "«»", "「」"))
_MARKER = re.compile(r"<<<\s*data|>>>\s*data", re.IGNORECASE)
_MARK = re.compile(r"<[@#][^<>\n]*>")
_INSTRUCTIONS = frozenset(sentence.casefold() for sentence in SENTENCES)
# Links, images and tags. What is not closed counts as well: something may close it where the text is shown.
_MARKUP = re.compile(r"!?\[[^\[\]]*\]\([^)]*\)?|\]\([^)]*\)?|<[a-z/!?][^<>]*>?")


def prose(text: str) -> str:
    """A text on one line, without the quotes that models put around it."""
    text = one_line(text)
    inner = text[1:-1]
    return inner.strip() if text[:1] + text[-1:] in _QUOTES and not set(inner) & {text[0], text[-1]} else text


def _fault(said: Many[str], text: str, part: Part, length: int) -> str:
    """What is wrong with what was said of a node, empty when nothing is."""
    if len(said) != 1:
        return "this node was named more than once" if said else "this node is missing"
    if not text:
        return "the text is empty"
    if (long := tokens(text)) > _TOO_LONG * length:
        return f"the text is too long: about {long} tokens, {length} were asked for"
    return next(foreign(text, "\n".join((quoted(part.label), *map(one_line, part.lines))), part.id), "")


def foreign(text: str, data: str, fence: str, instructions: frozenset[str] = _INSTRUCTIONS) -> Iterator[str]:
    """What the text holds and the data does not: links, marks, markup, words of the prompt (in small letters)."""
    if _MARKER.search(text) or (fence in text and fence not in data) or _repeats(text, data, instructions):
        yield "the text repeats the prompt"
    marks = set(_MARK.findall(data))
    yield from (f"a mark that is not in the data: {shown(m)}" for m in _MARK.findall(text) if m not in marks)
    # Also as some programs read them: full-width letters as letters. Not only so: some signs become spaces then.
    for form in (str.casefold, _plain):
        yield from _added(form(text), form(data))


def _added(text: str, data: str) -> Iterator[str]:
    """The markup and the links of a text that are not in the data, both without case."""
    yield from (f"markup: {shown(m[0])}" for m in _MARKUP.finditer(text) if m[0] not in data)
    if links := list(_links(text)):  # most texts have none, and the data is long
        known = _known_links(data)
        yield from (f"a link that is not in the data: {shown(one)}" for one in links if one not in known)


def _repeats(text: str, data: str, instructions: frozenset[str]) -> bool:
    """Whether a sentence of the instructions is in the text, and nobody in the data said it."""
    folded, said = text.casefold(), data.casefold()
    return folded.strip(" .") == PLACEHOLDER or any(one in folded and one not in said for one in instructions)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


# ----------------------------------------------------------------------------------------------------------- links

# Ends of domains. Two letters are a country, unless they end the name of a file; some do both, and with a path behind
# them are a link.
_GENERIC = (
    "com|net|org|info|biz|edu|gov|mil|int|dev|app|cloud|page|web|site|online|website|shop|store|tech|blog|wiki|link|click"
    "|live|news|xyz|top|club|icu|vip|email|chat|digital|agency|download|onion|example|test|local|internal|xn--[a-z0-9-]+"
    "|рф|укр|бг|срб|中国|中國|香港|台湾|台灣|한국|भारत"
)
_FILES = "js|ts|go|rb|cs|hs|kt|vb|gz|xz|db"
_FILES_AND_COUNTRIES = "md|py|rs|sh|so|pl|ps|cc|zip|mov"
_AMBIGUOUS = re.compile(rf"\.(?:{_FILES_AND_COUNTRIES})(?![a-z0-9])")
_ENDING = re.compile(
    rf"\.(?:(?!(?:{_FILES}|{_FILES_AND_COUNTRIES})(?![a-z0-9]))[a-z]{{2}}(?![a-z0-9])|(?:{_GENERIC})(?![a-z0-9]))"
)
# Scripts that are written without spaces: a word of theirs beside a domain is no part of it.
_SPACELESS = r"[\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u3005-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7ff]"
_LETTER = rf"(?:(?!{_SPACELESS})[\w-])"
_LABEL = rf"(?:(?<!{_LETTER}){_LETTER}+|(?<!{_SPACELESS}){_SPACELESS}+)"
_ADDRESS = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s<]+")
_LINK = re.compile(
    rf"{_ADDRESS.pattern}"
    r"|(?<![a-z0-9])(?:mailto|javascript|vbscript|data|tel|sms|file|blob|view-source):[^\s<]+"
    r"|www\.[^\s<]+"
    r"|(?<![^\s<>@|:,;()\[\]\"])[^\s<>@|:,;()\[\]\"]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+|[/?#])[^\s<]*"
    rf"|(?P<dotted>{_LABEL}(?:\.{_LABEL})+)"
)
_PATH = re.compile(r"(?::\d+)?[/?#][^\s<]*|:\d+")
_SCHEME = re.compile(r"\A(?:https?://|mailto:)")
_AFTER = re.compile(r"[\W_]+\Z")
_SEEN_END = re.compile(r"[|>\"'`)\]},;*]|[^\x00-\x7f]")


def _links(text: str) -> Iterator[str]:
    """The links in a folded text, as far as any program would take them, without the punctuation after them."""
    yield from (_ended(match[0]) for match in _ADDRESS.finditer(text))  # also one that is glued to another link
    at = 0
    while match := _LINK.search(text, at):
        at = match.end()
        if not match["dotted"]:
            yield _ended(match[0])
        elif "www." in match[0]:
            at = match.start() + match[0].index("www.")
        else:
            path = _PATH.match(text, at)
            if _ENDING.search(match[0]) or (path and _AMBIGUOUS.search(match[0])):
                at = path.end() if path else at
                yield _ended(text[match.start() : at])


def _ended(link: str) -> str:
    return _AFTER.sub("", link).lstrip("+.-")


def _known_links(data: str) -> frozenset[str]:
    """The links of the data in all forms in which a text may repeat them.

    A text may end one where a reader sees its end, and leave out the scheme: that carries nothing new.
    """
    whole = set(_links(data))
    ends = [_ended(link[: end.start()]) for link in whole for end in _SEEN_END.finditer(link)]
    return frozenset(form for link in (*whole, *ends) for form in (link, _SCHEME.sub("", link)))
