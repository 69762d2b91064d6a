# ruff: noqa: E501 (a pattern reads best on one line)
"""Text to structured identifiers and lifecycle markers, by a rule table (EGCForest §3.1.1, design §5).

The table is configuration: its digest stands in the store, and another digest means rebuild.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

IDENTIFIER_RULES: Mapping[str, str] = MappingProxyType(
    {
        # Most specific first: a later rule never re-reads what an earlier one has taken.
        "url": r"https?://[^\s<>|)\]]+/(?:pull|issues|merge_requests|d|document|pages|wiki)/[^\s<>|)\]?#,;]*[^\s<>|)\]?#,;.:]",
        "file": r"(?<![\w/.-])[\w][\w-]{2,}(?:\.[\w-]+)*\.(?:pdf|docx?|xlsx?|pptx?|md|csv|ya?ml|json|sql|ipynb|fig|py|go|rs|ts|java|lean)(?!\w)",
        "pull": r"(?<!\w)(?:PR|MR|pull request)[ -]?#?(\d{1,6})(?!\w)",
        "issue": r"(?<!\w)(?:issue|ticket|bug)[ -]#?(\d{1,6})(?!\w)",
        "code": r"(?<![\w-])([A-Z][A-Z0-9]{1,9}-\d{1,6})(?![\w-])",
        "version": r"(?<![\w.])v(\d+\.\d+(?:\.\d+)?(?:-?(?:rc|beta|alpha)\.?\d*)?)(?![\w.]*\w)",
        "number": r"(?<![\w#&/])#(\d{1,6})(?!\w)",
    }
)
"""Kind to pattern. Group 1, where there is one, is the identifier's own part.

A pattern with \\d in it has to match a digit: it is tried only on texts that have one."""

IDENTIFIER_SIGNS: Mapping[str, str] = MappingProxyType(
    {
        "url": r"://",
        "file": r"\.(?:pdf|doc|xls|ppt|md|csv|ya?ml|json|sql|ipynb|fig|py|go|rs|ts|java|lean)",
        "pull": r"[rt][ -]?#?\d",
        "issue": r"(?:issue|ticket|bug)[ -]#?\d",
        "code": r"-\d",
        "version": r"v\d+\.\d",
        "number": r"#\d",
    }
)
"""Kind to something quickly looked for in lower case that stands in all that its rule finds: most texts have none.

They change nothing that is found, so they are not in the digest."""

MARKER_RULES: Mapping[str, str] = MappingProxyType(
    {
        "drafted": r"draft(?:ed|ing)?|first version|wrote up|written up|proposal|proposed",
        "opened": r"opened|raised|filed|created|kicked off|started",
        "assigned": r"assigned|owner is|taking over|takes over|picked up|handed over",
        "in review": r"(?:in|under|for|up for|needs?) (?:a )?review|please review|reviewing|reviewed|ptal|take a look|comments on",
        "changes requested": r"changes requested|needs? (?:changes|rework|work)|rework|sent back|rejected|declined|nack",
        "approved": r"approved?|approval|signed? off|sign-off|lgtm|green ?light(?:ed)?|ship it",
        "merged": r"merged?|landed",
        "tested": r"tested|qa (?:passed|ok|done)|passed qa|verified|validated",
        "blocked": r"blocked|blocker|on hold|stuck|waiting (?:for|on)|paused",
        "delayed": r"delay(?:ed)?|postponed?|slipp?(?:ed|ing)|pushed back|moved to|rescheduled",
        "released": r"releas(?:ed|ing)|shipped|deployed|rolled out|went live|is live|published|launched",
        "reverted": r"revert(?:ed|ing)?|rolled back|roll(?:ing)? back|backed out|withdrawn",
        "cancelled": r"cancel(?:l?ed)|dropped|scrapped|abandoned|killed off",
        "resolved": r"resolved|fixed|closed|mitigated|done and dusted|completed?|finished",
    }
)
"""Lifecycle marker to the words that show it, in lower case. Matched as whole words, without regard to case."""

_DIGIT = re.compile(r"\d")
_GROUP = re.compile(r"\([^()]*\)\??")
_LETTERS = re.compile(r"(?:[\w -](?![?*{]))*")
_SPELLED_BY_KIND = {"pull": "PR-{}", "issue": "ISSUE-{}", "number": "#{}", "version": "v{}"}


class Rules:
    """A compiled rule table. Pure and immutable; equal tables have equal digests."""

    def __init__(
        self, identifiers: Mapping[str, str] = IDENTIFIER_RULES, markers: Mapping[str, str] = MARKER_RULES
    ) -> None:
        self._identifiers = [
            (kind, re.compile(_sign_of(kind, pattern)), re.compile(pattern, re.IGNORECASE if kind != "code" else 0))
            for kind, pattern in identifiers.items()
        ]
        self._without_digits = [rule for rule in self._identifiers if r"\d" not in rule[2].pattern]
        # Matched against lower case: on lists of words that is four times as fast as IGNORECASE.
        self._markers = [
            (name, _stems(pattern), re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")) for name, pattern in markers.items()
        ]
        self._source = repr((tuple(identifiers.items()), tuple(markers.items())))

    @cached_property
    def digest(self) -> str:
        """Names this table: sequences made under another digest must be rebuilt."""
        return hashlib.blake2b(self._source.encode(), digest_size=8).hexdigest()

    def identifiers(self, text: str) -> tuple[str, ...]:
        """The structured identifiers in `text`, each in one spelling, sorted, without repeats."""
        return tuple(sorted({identifier for _, _, identifier in self.spans(text)}))

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where identifiers stand in `text`: start, stop, spelling, in order. They do not overlap."""
        taken: list[tuple[int, int, str]] = []
        lower = text.lower()
        for kind, sign, pattern in self._identifiers if _DIGIT.search(text) else self._without_digits:
            if sign.search(lower) is None:
                continue
            for match in pattern.finditer(text):
                start, end = match.span()
                if all(end <= a or start >= b for a, b, _ in taken):
                    taken.append((start, end, _spelled(kind, match)))
        return sorted(taken)

    def markers(self, text: str) -> tuple[str, ...]:
        """The lifecycle markers that `text` shows, in the table's order."""
        lower = text.lower()
        found = []
        for name, stems, pattern in self._markers:
            for stem in stems:
                if stem in lower:
                    if pattern.search(lower):
                        found.append(name)
                    break
        return tuple(found)


def _sign_of(kind: str, pattern: str) -> str:
    """What to look for first. A rule of somebody's own is tried on every text."""
    return IDENTIFIER_SIGNS[kind] if IDENTIFIER_RULES.get(kind) == pattern else ""


def _stems(pattern: str) -> tuple[str, ...]:
    """Letters that stand in all that a list of words finds, one for each word; the empty one stands in every text."""
    stems = {max(_LETTERS.findall(_GROUP.sub("|", word)), key=len) for word in _words(pattern)}
    return tuple(sorted(s for s in stems if not any(o != s and o in s for o in stems)))


def _words(pattern: str) -> list[str]:
    """The alternatives of a pattern, those inside brackets left alone."""
    words, depth = [""], 0
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and not depth:
            words.append("")
        else:
            words[-1] += letter
    return words


def _spelled(kind: str, match: re.Match[str]) -> str:
    whole = match.group(1) if match.re.groups else match.group(0)
    if kind in ("file", "version", "url"):
        whole = whole.lower() if kind != "url" else whole.rstrip("/")
    return _SPELLED_BY_KIND.get(kind, "{}").format(whole)


DEFAULT_RULES = Rules()
