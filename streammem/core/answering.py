"""A reply to a question from its evidence: what a language model is asked, and whether its reply may be believed.

The model sees numbered messages and cites them by number. What it writes is checked by form: each sentence cites
evidence, and holds no number, date, identifier, link or markup that the messages it cites do not have. Whether it
follows from them is not checked. Chat text is data: it stands between markers, as in core.prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from collections.abc import Sequence as Many
from datetime import datetime

import msgspec

from streammem.core import figures
from streammem.core.events import moment
from streammem.core.prompts import AGAIN, FENCED, cut, quoted, strict_object, tokens
from streammem.core.replies import decoded, foreign, prose, shown
from streammem.core.retrieval import assemble
from streammem.records import Evidence, Generated, Prompt, Sentence


class Question(msgspec.Struct, frozen=True):
    """What was asked, who asked (a name, or "" where nobody is named) and when; an as-of question: as of when."""

    text: str
    by: str
    at: datetime


class Checked(msgspec.Struct, frozen=True):
    """What may be shown of a reply, and everything that is wrong with it. Refused: the evidence has no answer."""

    sentences: tuple[Sentence, ...] = ()
    faults: tuple[str, ...] = ()
    refused: bool = False


# ----------------------------------------------------------------------------------------------------------- prompt

MOST = 12
"""Sentences of a reply."""

_TASK = "You answer a question from messages of an organisation's group chat, and from nothing else."
_LINES = "A line of the data is a message: its number, channel, time (UTC), who wrote it, what it says."
_ONLY = "Say only what the messages say, and nothing that you know from elsewhere. Guess and compute nothing."
_CITE = 'With each sentence list in "cites" the numbers of the messages that say it; at least one, and none besides.'
_EXACT = (
    "Copy names, identifiers, numbers, dates and times exactly as the cited messages write them; what one calls "
    "yesterday may be given as its date."
)
_LATER = "Where messages disagree, go by the later one and say what it changed."
_REFUSE = 'If the messages do not say what is asked, write no sentence: {"answered": false, "sentences": []}.'
_PLAIN = "Plain prose in the language of the question: no markup, no message numbers in the text, no links of your own."
_REPLY = 'Reply with JSON only: {"answered": true, "sentences": [{"text": "one sentence", "cites": [1]}]}'
_RULES = (_ONLY, _CITE, _EXACT, _LATER, _REFUSE, _PLAIN, FENCED)

PLACEHOLDER = "one sentence"
_SENTENCES = frozenset(sentence.casefold() for sentence in (_TASK, _LINES, *_RULES, _REPLY, AGAIN))
_WORDS_PER_TOKEN = 0.55  # as in core.prompts
_JSON_OF_REPLY, _JSON_OF_SENTENCE = 20, 20
_FAULTS, _TOLD = 5, 3  # that are told when asking once more, and to who asked


def prompt(question: Question, evidence: Many[Evidence], length: int, faults: Many[str] = ()) -> Prompt:
    """Ask for a reply of at most `length` tokens. `faults` is what was wrong with an earlier one."""
    lines = [_TASK, _LINES, "Rules:", *(f"- {rule}" for rule in _RULES)]
    lines += [f"- At most {max(20, round(length * _WORDS_PER_TOKEN / 10) * 10)} words.", _REPLY]
    wrong = [f"- {cut(quoted(fault), 300)}" for fault in faults[:_FAULTS]]
    fence, data = _fence(evidence), map(line, range(1, len(evidence) + 1), evidence)
    return Prompt(
        instructions="\n".join([*lines, "", AGAIN, *wrong] if wrong else lines),
        data="\n".join((head(question), f"<<<data {fence}", *data, f">>>data {fence}")),
        schema=_schema(len(evidence)),
        room=length + _JSON_OF_REPLY + MOST * _JSON_OF_SENTENCE,
    )


def head(question: Question) -> str:
    """The question on one line."""
    by = f" by {quoted(question.by)}" if question.by else ""
    return f"Question{by} on {question.at:%Y-%m-%d}: {quoted(question.text)}"


def line(number: int, item: Evidence) -> str:
    """A message as the model reads it: its number, then as its tokens were counted, on one line."""
    room = item.channel_name if item.direct else f"#{item.channel_name}"
    return f"{number} | {quoted(assemble.line(item, room, item.user_name, item.title))}"


def _fence(evidence: Iterable[Evidence]) -> str:
    """What marks the data: 12 hex digits, which nobody who writes a message can foresee, as they depend on it."""
    said = "\n".join(f"{item.uid} {item.text}" for item in evidence)
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=6).hexdigest()


def _schema(count: int) -> dict[str, object]:
    cites = {"type": "array", "items": {"type": "integer", "enum": list(range(1, count + 1))}}
    sentence = strict_object({"text": {"type": "string"}, "cites": cites})
    sentences = {"type": "array", "items": sentence, "maxItems": MOST}
    return strict_object({"answered": {"type": "boolean"}, "sentences": sentences})


# ------------------------------------------------------------------------------------------------------------ check


class _Said(msgspec.Struct):
    text: str
    cites: list[int] = []


class _Reply(msgspec.Struct):
    answered: bool
    sentences: list[_Said] = []


_TOO_LONG = 2  # times the length that was asked for
_NUMBERS = re.compile(r"\s*\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")


def read(reply: str, question: Question, evidence: Many[Evidence], length: int) -> Checked:
    """What a reply says, sentence by sentence, with what is wrong. What must not be shown at all is left out."""
    try:
        found = decoded(reply, _Reply)
    except ValueError as error:
        return Checked(faults=(f"{error}: {shown(reply)}",))
    if not found.answered:
        return Checked(refused=True)
    if fault := _misshapen(found.sentences, length):
        return Checked(faults=(fault,))
    checked = [_checked(one, question, evidence) for one in found.sentences]
    return Checked(
        tuple(sentence for sentence in checked if sentence.text),
        tuple(f"sentence {n}: {one.fault}" for n, one in enumerate(checked, 1) if one.fault),
    )


def _misshapen(sentences: Many[_Said], length: int) -> str:
    """What is wrong with a reply as a whole."""
    if not sentences:
        return "it has no sentence"
    long = sum(tokens(one.text) for one in sentences)
    if long > _TOO_LONG * length or len(sentences) > MOST:
        return f"it is too long: {len(sentences)} sentences, about {long} tokens; {length} tokens were asked for"
    return ""


def _checked(said: _Said, question: Question, evidence: Many[Evidence]) -> Sentence:
    """A sentence with what is wrong with it; without its text where that must not be shown."""
    numbers = list(dict.fromkeys([*said.cites, *_numbers_in(said.text)]))
    cited = [evidence[n - 1] for n in numbers if 0 < n <= len(evidence)]
    text = prose(_NUMBERS.sub("", said.text))
    cites = tuple(item.uid for item in cited)
    if fault := _unfit(text, question, cited, evidence):
        return Sentence(text="", cites=cites, fault=fault)
    if unknown := [n for n in numbers if not 0 < n <= len(evidence)]:
        return Sentence(text=text, cites=cites, fault=f"it cites {unknown[0]}, which is none of the messages")
    if not cited:
        return Sentence(text=text, cites=cites, fault="it cites no message")
    strange = figures.strange(text, _known(question, cited))
    fault = f"the messages it cites do not have {', '.join(map(shown, strange[:3]))}" if strange else ""
    return Sentence(text=text, cites=cites, fault=fault)


def _numbers_in(text: str) -> list[int]:
    """The citations that a model wrote into its text all the same."""
    return [int(number) for group in _NUMBERS.findall(text) for number in group.split(",")]


def _unfit(text: str, question: Question, cited: Many[Evidence], evidence: Many[Evidence]) -> str:
    """Why a text must not be shown, whatever it cites: it would lead elsewhere, or is nobody's words."""
    if not text or text.casefold().strip(" .") == PLACEHOLDER:
        return "it has no text"
    data = "\n".join((head(question), *(line(number, item) for number, item in enumerate(cited, 1))))
    return next(foreign(text, data, _fence(evidence), _SENTENCES), "")


def _known(question: Question, cited: Many[Evidence]) -> figures.Known:
    """What a sentence may have: what the cited messages, their speakers and channels, and the question have."""
    texts = [question.by]
    texts += [text for one in cited for text in (one.attached, one.user_name, one.title, one.channel_name)]
    return figures.known(texts, [(question.text, question.at), *((one.text, moment(one.ts)) for one in cited)])


# ----------------------------------------------------------------------------------------------------------- record


def generated(checked: Checked, model: str, tokens: int) -> Generated:
    """The reply as an answer carries it."""
    note = f"{model} finds no answer in the evidence" if checked.refused else _told(checked.faults)
    return Generated(
        text=" ".join(sentence.text for sentence in checked.sentences),
        sentences=checked.sentences,
        supported=bool(checked.sentences) and not checked.faults,
        refused=checked.refused,
        model=model,
        tokens=tokens,
        note=note,
    )


def _told(faults: Many[str]) -> str:
    """Faults in one line, the first of them, without the words of the reply that may not be shown."""
    more = [f"and {len(faults) - _TOLD} more"] if len(faults) > _TOLD else []
    return "; ".join([fault.partition(': "')[0] for fault in faults[:_TOLD]] + more)


UNASKED = Generated(
    text="",
    sentences=(),
    supported=False,
    refused=True,
    model="",
    tokens=0,
    note="nothing that was said answers this well enough: no model was asked",
)
"""The reply to a question that the retrieval abstained from: it costs nothing."""
