"""What the wording of a question asks for: which side in time, which kind of thing, whose point of view.

Words of general English, and the commonest of German, French and Spanish.
"""

from __future__ import annotations

import re
from typing import Literal

from streammem.core.dates_in_text import Dated

Cue = Literal["", "before", "after", "on", "latest", "first"]
Asks = Literal["", "who", "when", "how_long", "how_many", "where", "why", "what", "how"]


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)


# --------------------------------------------------------------------------------------------- side in time

_LATEST = (
    r"latest|current(?:ly)?|now(?:adays)?|most recent(?:ly)?|newest|these days|(?<!at )last(?! names?\b)|at present"
    r"|presently|at the moment|as (?:things|it) stands?|as of (?:now|today)|up[- ]to[- ]date|still|to date"
    r"|aktuell\w*|zuletzt|derzeit|jetzt|momentan|neueste\w*|actuel\w*|maintenant|dernière?s?|actualmente|ahora|últim[oa]s?"
)
_FIRST = (
    r"first|original(?:ly)?|initial(?:ly)?|earliest|at the (?:start|outset|beginning)|to begin with"
    r"|zuerst|anfangs|ursprünglich\w*|d'abord|au début|al principio|primero"
)
_CUES: tuple[tuple[Cue, re.Pattern[str]], ...] = (
    ("before", _words(r"before|prior to|until|earlier than|by the time|bevor|avant que|antes de")),
    (
        "after",
        _words(r"after|since|following|later than|once(?! (?:a|per)\b)|nachdem|seit|après|depuis|después de|desde"),
    ),
    ("latest", _words(_LATEST)),
    ("first", _words(_FIRST)),
)
_ACTUAL, _SPANISH = _words(r"actual(?:es)?"), _words(r"el|los|las|es|cuál|qué|quién|está")
_SIDES: tuple[tuple[Cue, str], ...] = (
    ("before", r"(?:before|until|till|by|prior to|up to|earlier than|bis|vor|avant|antes del?)\s+(?:the\s+)?"),
    ("after", r"(?:after|since|later than|following|seit|nach|après|depuis|desde)\s+(?:the\s+)?"),
)
_BESIDE = tuple(
    (cue, re.compile(rf"\b{words}$", re.IGNORECASE), re.compile(words, re.IGNORECASE)) for cue, words in _SIDES
)


def cue_of(text: str, date: Dated | None) -> Cue:
    """The temporal cue. The word before a date says on which side of it; words inside it (last week) say no more."""
    if date is None:
        return _cue_in(text)
    start, end = date.at
    between = " and " in text[start:end] or " to " in text[start:end]
    for cue, ending, beginning in _BESIDE:
        if not between and (ending.search(text[:start]) or beginning.match(text[start:end])):
            return cue
    return _cue_in(f"{text[:start]} {text[end:]}") or "on"


def _cue_in(text: str) -> Cue:
    for cue, pattern in _CUES:
        if pattern.search(text):
            return cue
    return "latest" if _ACTUAL.search(text) and _SPANISH.search(text) else ""  # in English, actual is real


# ------------------------------------------------------------------------------------------- what is wanted

_ASKS: tuple[tuple[Asks, re.Pattern[str]], ...] = (
    (
        "how_long",
        _words(r"how long|how many (?:minutes|hours|days|weeks|months|years)|wie lange|combien de temps|cuánto tiempo"),
    ),
    ("how_many", _words(r"how (?:many|much|often)|wie ?viele?|combien|cuánt[oa]s?")),
    (
        "who",
        _words(
            r"who|whom|whose|(?:which|what) (?:person|people|colleagues?|teammates?|members?)|wer|wessen|quién(?:es)?"
        ),
    ),
    ("when", _words(r"when|(?:which|what) (?:exact )?(?:date|day|week|month|year|time)|wann|quand|cuándo")),
    ("where", _words(r"where|(?:which|what) channels?|wo|wohin|où|dónde")),
    ("why", _words(r"why|(?:for )?what reasons?|how come|warum|wieso|pourquoi|por qué")),
    ("how", _words(r"how|wie|cómo")),
    ("what", _words(r"what|which|quel(?:le)?s?|qué|cuál(?:es)?")),
)
_LIFECYCLE = _words(
    r"(?:which|what|all(?: the)?|through) (?:stages|phases|steps)|(?:whole|entire|full) (?:life|story|history|journey)"
    r"|life ?cycle|life of|history of|timeline|chronolog\w+|sequence of events|over time|evol(?:ve|ves|ved|ution)"
    r"|(?:which|what) (?!did|do|does|has|have|is|was)\w+ .{1,80}\b(?:go|gone|went|going) through"
    r"|step by step|step-by-step(?! (?:guide|instruction|tutorial|manual)s?)"
    r"|from (?:the )?(?:very )?(?:start|beginning|draft|first \w+|creation|idea) to"
    r"|walk me through|how did (?:\S+ ){1,8}?(?:come about|unfold|develop|progress|change)"
    r"|lebenslauf|werdegang|verlauf|historique|cronología|historia de"
)


def asks_of(text: str) -> Asks:
    """The kind of thing that is asked for, by the first question word; of two at one place the more special."""
    places = [(match.start(), i) for i, (_, pattern) in enumerate(_ASKS) if (match := pattern.search(text))]
    return _ASKS[min(places)[1]][0] if places else ""


def wants_lifecycle(text: str) -> bool:
    """Whether the whole life of a thing is wanted, not one moment of it."""
    return _LIFECYCLE.search(text) is not None


# ------------------------------------------------------------------------------------------- whose question

_THEIRS = r"(?! (?:own )?(?:team|group|unit|squad|department|colleagues|teammates|manager|boss|supervisor))"
_FIRST_PERSON = re.compile(
    rf"\b(?:I(?![./-])|i(?![.'/-]\w|\.)(?=\s)|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ii]ch|[Mm]ir|[Mm]ich|[Mm]eine?[mnrs]?|[Jj]e|yo){_THEIRS}(?!\w)"
)
_KNOWING = r"(?:know|see|find|find out|understand|check|hear|learn|ask)"
_FRAMES = re.compile(
    r"\b(?:tell|show|give|remind|help|send|find|get|bring|fill|walk|catch|inform|update|explain to|let) me\b"
    rf"|\bI(?:['’]d| would)? ?(?:want|need|like|wish|have) to {_KNOWING}\b"
    rf"|\b(?:can|could|may|should|where can) I {_KNOWING}\b"
    r"|\bI(?:['’]m| am) (?:looking for|wondering|curious|not sure|trying to)\b"
    r"|\bI wonder\b|\bI (?:do not|don['’]t|can['’]t|cannot) (?:remember|recall|know)\b",
    re.IGNORECASE,
)
_TEAM = re.compile(
    r"\b(?:we|(?-i:us)|our|ours|ourselves|my (?:own )?(?:team|group|unit|squad|department|colleagues|teammates)"
    r"|wir|uns|unsere?[mnrs]?|nous|notre|nos|nosotros|nuestr[oa]s?)\b",
    re.IGNORECASE,
)
_MANAGER = re.compile(r"\bmy (?:own |direct |line )?(?:manager|boss|supervisor)\b", re.IGNORECASE)


def first_person(text: str) -> bool:
    """Whether a question is about its asker (my draft, did anyone answer me), not merely asked by one (tell me)."""
    return _FIRST_PERSON.search(_FRAMES.sub(" ", text)) is not None


def of_the_team(text: str) -> bool:
    """Whether a question is about the asker's team (our plan, what do people in my team say)."""
    return _TEAM.search(text) is not None


def of_the_manager(text: str) -> bool:
    """Whether a question is about whom the asker reports to."""
    return _MANAGER.search(text) is not None
