"""S4, budget-aware assembly: which candidates and headers go in, under quotas and a token budget (§3.2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core.events import moment
from streammem.core.numbers import Retrieval
from streammem.records import Evidence, Found, Header, Version


class Candidate(msgspec.Struct, frozen=True):
    """A message that a stage proposes, best first within its stage."""

    uid: str
    found: Found


class Chosen(msgspec.Struct, frozen=True):
    """What goes in: uids with every way they were found, in order of stages; tokens they take; what did not fit."""

    found: dict[str, tuple[Found, ...]]
    tokens: int
    too_long: tuple[str, ...]


def choose(
    stages: Many[Many[Candidate]], cost: Callable[[str, int], int | None], limit: int, budget: int, numbers: Retrieval
) -> Chosen:
    """Merge anchors (S1), what context and structure rank (S2, S3) and ends of bridges, under quotas and a budget.

    `cost` tells the tokens that a message takes when it is rendered, None when it takes more than the room given.
    A message that does not fit is passed over, not cut.
    """
    ways: dict[str, list[Found]] = {}
    for stage in stages:
        for candidate in stage:
            ways.setdefault(candidate.uid, []).append(candidate.found)
    kept: dict[str, tuple[Found, ...]] = {}
    spent, too_long = 0, []
    for uid in in_order(stages, limit, numbers):
        if len(kept) >= limit:
            break
        taken = cost(uid, budget - spent)
        if taken is None:
            too_long.append(uid)
            continue
        spent += taken
        kept[uid] = tuple(ways[uid])
    return Chosen(kept, spent, tuple(too_long))


def in_order(stages: Many[Many[Candidate]], limit: int, numbers: Retrieval) -> list[str]:
    """The uids as places are given out: S1's quota, what S2 and S3 rank, then the ends of bridges before what is left.

    Of `limit` places S1 has its share (8 of 20), and so have the ends of bridges (2 of 20); a stage that proposes less
    leaves its places to the others.
    """
    anchors, ranked, ends = ([c.uid for c in stage] for stage in stages)
    whole = numbers.anchors + numbers.expansion
    taken = dict.fromkeys(anchors[: round(limit * numbers.anchors / whole) if whole else limit])
    more = [uid for uid in dict.fromkeys(ranked) if uid not in taken]
    first = ends[: round(limit * numbers.bridge_messages / whole) if whole else 0]
    new = [uid for uid in first if uid not in taken and uid not in more[: max(0, limit - len(taken) - len(first))]]
    taken |= dict.fromkeys(more[: max(0, limit - len(taken) - len(new))])
    return list(dict.fromkeys([*taken, *new, *more, *ends, *anchors]))


def headers(candidates: Iterable[tuple[Header, int]], room: int, spent: int, numbers: Retrieval) -> list[Header]:
    """The headers that fit: at most the header share of the budget, and only in what messages leave free.

    `room` is the whole budget, `spent` what messages take, each candidate comes with its tokens.
    """
    free = min(int(room * numbers.header_share), room - spent)
    kept: list[Header] = []
    for header, cost in candidates:
        if cost <= free and header not in kept:
            kept.append(header)
            free -= cost
    return kept


def line(version: Version | Evidence, room: str, user: str, title: str = "") -> str:
    """A message as it is rendered for an answer model: channel, time, speaker and title, markers, verbatim text."""
    markers = f" [{', '.join(version.markers)}]" if version.markers else ""
    beside = f" [with: {' · '.join(version.attached.splitlines())}]" if version.attached else ""
    speaker = f"{user} ({title})" if title else user
    return f"{room} {moment(version.ts):%Y-%m-%d %H:%M} {speaker}{markers}: {version.text}{beside}"


def named(text: str, names: Mapping[str, str]) -> str:
    """A summary's text with marks like `<@user>` turned into names."""
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text
