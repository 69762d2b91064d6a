"""A question to evidence: the four stages in order, then the answer (design §9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from collections.abc import Sequence as Many

import msgspec

from streammem.core.directory import Directory
from streammem.core.events import native_id
from streammem.core.query_spec import parse, within
from streammem.core.retrieval import assemble, confidence
from streammem.core.retrieval.assemble import Candidate
from streammem.flows.bearers import settled
from streammem.flows.completing import completed
from streammem.flows.gathering import gathered
from streammem.flows.seeding import Findings, anchored, routed, seeded
from streammem.flows.sight import Desk, Sight, desk_for, resolve, visible_to
from streammem.flows.supplementing import supplemented
from streammem.ports import Embedder
from streammem.records import EXTRACTIVE, Answer, Evidence, Found, Header, Query, Summary, Version


class Watch:
    """Milliseconds by step."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.steps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Note the time since the last lap under `name`."""
        now = time.perf_counter()
        self.steps[name] = round((now - self._last) * 1000, 2)
        self._last = now

    def total(self) -> dict[str, float]:
        """All steps, and the whole."""
        return {**self.steps, "total": round((time.perf_counter() - self._start) * 1000, 2)}


async def answer(query: Query, desk: Desk, now: Callable[[], float] = time.time) -> Answer:
    """Answer a question with verbatim messages. Raises QueryError for a user or channel that is not known.

    `now` (seconds) gives what a question means by "yesterday" that is not asked as of another time.
    """
    watch = Watch()
    query = await resolve(query, desk)
    visible = visible_to(query, desk.directory)
    desk = desk_for(visible, desk)
    asker = desk.directory.person(query.asker) if query.asker else None
    asked = int(now() * 1e6) if query.as_of is None else query.as_of
    spec = parse(query.text, asker, desk.directory, desk.rules, asked)
    spec = within(spec, visible.channels)
    watch.lap("parse")
    vector = (await asyncio.to_thread(desk.embedder.encode, [query.text]))[0]
    watch.lap("embed")
    spec, ambiguous = await settled(spec, query, visible, vector, desk)
    watch.lap("names")
    found = await seeded(spec, visible, vector, query, desk)
    watch.lap("search")
    best = await routed(found, visible, vector, desk)
    watch.lap("S1")
    await gathered(found, best, visible, desk)
    first = anchored(found, desk)
    watch.lap("pool")
    second = await supplemented(found, visible, vector, desk)
    watch.lap("S2")
    third = await completed(found, first, second, desk)
    watch.lap("S3")
    if desk.touched is not None:
        desk.touched([summary.node for summary in found.chains])
    answered = assembled(query, (first, second, third), found, desk, watch)
    return msgspec.structs.replace(answered, ambiguous=ambiguous) if ambiguous else answered


def assembled(query: Query, stages: Many[Many[Candidate]], found: Findings, desk: Desk, watch: Watch) -> Answer:
    """Choose under the quotas and the budget, render, and account for what was hidden."""
    sight, directory, numbers = found.sight, desk.directory, desk.numbers
    limit, budget = query.limit or numbers.limit, query.budget or numbers.budget
    nearest = max((s.dense for s in found.seeds), default=0.0)
    sure = confidence.confidence(found.spec, found.pool, found.plain, nearest) if stages[0] else 0.0
    abstained = not stages[0] or sure < numbers.floor
    lines = _Lines(assemble.in_order(stages, limit, numbers), sight, directory, desk.embedder)
    chosen = assemble.choose(stages, lines.cost, limit, budget, numbers)
    headers = [_header(s, directory) for s in found.chains]
    room = list(zip(headers, desk.embedder.count_tokens([header_line(h) for h in headers]), strict=True))
    shown = [] if abstained or numbers.stages < 4 else assemble.headers(room, budget, chosen.tokens, numbers)
    watch.lap("S4")
    notes = [f"{len(chosen.too_long)} messages did not fit the token budget of {budget}"] if chosen.too_long else []
    return Answer(
        question=query.text,
        asker=query.asker,
        as_of=query.as_of,
        evidence=tuple(_evidence(sight.said(uid), ways, directory) for uid, ways in chosen.found.items()),
        headers=tuple(shown),
        tokens=chosen.tokens + sum(cost for header, cost in dict(room).items() if header in shown),
        abstained=abstained,
        confidence=sure,
        timings_ms=watch.total(),
        hidden_channels=_hidden(query, directory),
        notes=tuple(notes),
    )


class _Lines:
    """Tokens of rendered messages: counted when first asked for, each time with those that come next in `order`."""

    AT_ONCE = 20
    """Counting takes longest of all in S4: fewer cost more calls, more are counted in vain."""

    def __init__(self, order: Many[str], sight: Sight, directory: Directory, embedder: Embedder) -> None:
        self._sight, self._directory, self._embedder = sight, directory, embedder
        self._waiting = list(order[: self.AT_ONCE])
        self._tokens: dict[str, int] = {}

    def cost(self, uid: str, room: int) -> int | None:
        """The tokens of a message, None when it has more than `room`. A word is at least a token: no need to count."""
        if uid not in self._tokens and len(self._sight[uid].text.split()) > room:
            return None
        if uid not in self._tokens:
            batch = [*self._waiting, uid] if uid not in self._waiting else self._waiting
            self._waiting = []
            self._tokens.update(zip(batch, self._embedder.count_tokens([*map(self._line, batch)]), strict=True))
        return taken if (taken := self._tokens[uid]) <= room else None

    def _line(self, uid: str) -> str:
        version = self._sight[uid]
        room, user = self._directory.room(version.channel), self._directory.user_name(version.user)
        return assemble.line(version, room, user, self._directory.user_title(version.user))


def _hidden(query: Query, directory: Directory) -> int:
    """How many channels of the workspace were not searched because the asker does not read them."""
    if query.everything:
        return 0
    return sum(not directory.visible(c, query.asker) for c, fact in directory.channels.items() if fact.present)


def _evidence(version: Version, ways: tuple[Found, ...], directory: Directory) -> Evidence:
    return Evidence(
        uid=version.uid,
        id=version.id,
        workspace=version.workspace,
        channel=directory.in_use(version.channel),
        channel_name=directory.channel_name(version.channel),
        direct=directory.is_direct(version.channel),
        user=version.user,
        user_name=directory.user_name(version.user),
        title=directory.user_title(version.user),
        ts=version.ts,
        text=directory.worded(version.text),
        attached=directory.worded(version.attached),
        reply_to=native_id(version.reply_to) or None,
        permalink=version.permalink or None,
        edited=version.since > version.ts,
        markers=version.markers,
        stage=ways[0].stage,
        found_by=ways,
    )


def _header(summary: Summary, directory: Directory) -> Header:
    """A summary as it is shown. Of channels it names those that it was made from: the asker reads them."""
    sequence = summary.node.sequence
    written = summary.summarizer != EXTRACTIVE
    names = {f"<@{user}>": directory.user_name(user) for user in map(uid_user, summary.text.split("<@")[1:])}
    names |= {f"<#{channel}>": directory.room(channel) for channel in summary.channels} if written else {}
    return Header(
        view=sequence.view,
        tree=sequence.tree,
        label=_label_of(sequence.view, sequence.tree, directory),
        level=summary.node.level,
        text=directory.worded(assemble.named(summary.text, names)),
        first=summary.first.ts,
        last=summary.last.ts,
        by=summary.summarizer if written else "",
    )


def uid_user(quote: str) -> str:
    """The user id at the start of a quote, up to its closing mark."""
    return quote.partition(">")[0]


def _label_of(view: str, tree: str, directory: Directory) -> str:
    if view == "channel":
        return directory.room(tree)
    return directory.user_name(tree) if view == "actor" else tree


def header_line(header: Header) -> str:
    """A header as it is rendered: what it is of, and that it is a summary."""
    return f"[summary of {header.view} {header.label}, level {header.level}] {header.text}"
