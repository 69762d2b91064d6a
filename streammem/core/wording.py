"""When a language model words a node, from what, and which text stands for it (design §3, §7).

A wording is made from what stood when it was read, and stays true of the leaves it names. The structure moves on
below it, so a node and its wording may differ in three ways: the node has *grown*, or is only *shifted*, or what was
read has *changed*; a changed one is hidden at once and is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

import msgspec

from streammem.core import forest, summaries
from streammem.core.numbers import Wording as Numbers
from streammem.records import Leaf, NodeId, Redaction, Summary, Wording


class Told(msgspec.Struct, frozen=True):
    """The text that stands for a node, as its parent reads it. `id` names the text, `sources` is as in Paid."""

    id: str
    text: str
    sources: tuple[str, ...]
    first: Leaf
    last: Leaf
    count: int
    channels: tuple[str, ...]
    latest: int


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done about a node: "none", "now", "later" (at a time in seconds), or "lazily" (it is shifted)."""

    what: str
    at: float = 0.0


NONE, NOW, LAZILY = Verdict("none"), Verdict("now"), Verdict("lazily")


STATES = ("quoted", "worded", "due", "later", "shifted", "failed")
"""What a node can be: its quotes are all that was said; the model's words stand; to be worded now; when it has grown or
been quiet; when it is renewed; the model failed at it."""


def state_of(verdict: Verdict, summary: Summary, wording: Wording | None) -> str:
    """Which of STATES a node is in."""
    if verdict.what == "none" and (wording is None or summaries.said_whole(summary)):
        return "quoted"
    if verdict.what == "none":
        return "failed" if wording is not None and wording.fault else "worded"
    return {"now": "due", "later": "later", "lazily": "shifted"}[verdict.what]


def writer_of(model: str, prompt: int) -> str:
    """Names who words: the model and the version of the prompts."""
    return f"{model}/{prompt}"


def key_of(made_from: str, view: str, writer: str) -> str:
    """Names a text in the cache. Views word the same leaves differently."""
    return f"{made_from}/{view}/{writer}"


def stands(wording: Wording | None, redactions: Iterable[Redaction]) -> bool:
    """Whether there is a wording that nothing hides. One with a fault stands, too: it says that the model failed."""
    return wording is not None and not summaries.hidden(wording, redactions)


def told(summary: Summary, wording: Wording | None) -> Told:
    """The text of a node: the model's where it stands, else the quotes."""
    if wording is not None and wording.text:
        return Told(
            wording.key,
            wording.text,
            (wording.key,),
            wording.first,
            wording.last,
            wording.count,
            wording.channels,
            wording.latest,
        )
    return Told(
        summary.made_from,
        summary.text,
        summary.picks,
        summary.first,
        summary.last,
        summary.count,
        summary.channels,
        summary.latest,
    )


def told_together(children: Many[Told]) -> Told:
    """What a node above level 1 is worded from: the texts of its children, in order. It has no text yet."""
    return Told(
        id=forest.digest(child.id for child in children),
        text="",
        sources=tuple(source for child in children for source in child.sources),
        first=min(child.first for child in children),
        last=max(child.last for child in children),
        count=sum(child.count for child in children),
        channels=tuple(sorted({channel for child in children for channel in child.channels})),
        latest=max(child.latest for child in children),
    )


def verdict(
    summary: Summary,
    wording: Wording | None,
    key: str,
    *,
    full: bool,
    pressing: bool,
    urgent: bool,
    now: float,
    k: int,
    numbers: Numbers,
) -> Verdict:
    """Whether to word a node now.

    `key` is what its wording would have, `wording` the one that stands. `full`: no leaf can be appended under it.
    `pressing`: what happened, happened under it, so that it is not only shifted. `urgent`: an edit or a deletion did.
    """
    if summaries.said_whole(summary) or (wording is not None and wording.key == key):
        return NONE
    if wording is not None and wording.first != summary.first and not pressing:
        return NOW if numbers.renew == "always" else LAZILY
    if full or (urgent and pressing):
        return NOW
    return _of_open(summary, wording, now, k, numbers)


def _of_open(summary: Summary, wording: Wording | None, now: float, k: int, numbers: Numbers) -> Verdict:
    """An open node is worded after a quiet time, or when it has grown by a share: a busy channel pays a few times."""
    before = wording.count if wording is not None else 0
    step = numbers.growth * (before or k)
    quiet = summary.last.ts / 1e6 + numbers.quiet
    return NOW if summary.count >= before + step or quiet <= now else Verdict("later", quiet)


def written(
    node: NodeId, read: Told, key: str, text: str, *, serial: int, writer: str, fault: str = "", tokens: int = 0
) -> Wording:
    """The wording to keep for what was read."""
    return Wording(
        node=node,
        key=key,
        text=text,
        first=read.first,
        last=read.last,
        count=read.count,
        made_from=read.id,
        channels=read.channels,
        latest=read.latest,
        serial=serial,
        writer=writer,
        fault=fault,
        tokens=tokens,
    )


def fits(wording: Wording, summary: Summary) -> bool:
    """Whether a wording still tells of what is under its node: backfill may have moved all of its leaves elsewhere."""
    return wording.first <= summary.last and summary.first <= wording.last


def in_words(summary: Summary, wording: Wording | None) -> Summary:
    """A summary as it is shown: with the model's text and what that was made from, where there is one that fits."""
    if wording is None or not wording.text or not fits(wording, summary):
        return summary
    return msgspec.structs.replace(
        summary,
        text=wording.text,
        first=wording.first,
        last=wording.last,
        count=wording.count,
        channels=wording.channels,
        latest=wording.latest,
        summarizer=wording.writer,
    )
