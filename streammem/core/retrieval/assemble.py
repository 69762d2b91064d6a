"""S4, budget-aware assembly: which candidates and headers go in, under quotas and a token budget (§3.2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec

from streammem.core.events import moment
from streammem.core.numbers import Retrieval
from streammem.records import Found, Header, Version


class Candidate(msgspec.Struct, frozen=True):
    """A message that a stage proposes, best first within its stage."""

    uid: str
    found: Found


class Chosen(msgspec.Struct, frozen=True):
    """What goes in: uids with every way they were found, in order of stages; tokens they take; what did not fit."""

    found: dict[str, tuple[Found, ...]]
    tokens: int
    too_long: tuple[str, ...]


STAGES = ("S1", "S2", "S3")


def quotas(sizes: Many[int], limit: int, numbers: Retrieval) -> tuple[int, int, int]:
    """Places for S1, S2, S3 when they propose `sizes` new messages each.

    14 + 6 of 20 by default, 2 of the 6 kept for S3, in proportion for another limit; unused places flow back to
    the stage before, and from S1 forward when nothing else can use them (design §9).
    """
    whole = numbers.anchors + numbers.expansion
    expansion = round(limit * numbers.expansion / whole) if whole else 0
    third = min(sizes[2], round(expansion * numbers.completion / numbers.expansion) if numbers.expansion else 0)
    second = min(sizes[1], expansion - third)
    first = min(sizes[0], limit - second - third)
    second = min(sizes[1], limit - first - third)
    return first, second, min(sizes[2], limit - first - second)


def choose(
    stages: Many[Many[Candidate]], cost: Callable[[str, int], int | None], limit: int, budget: int, numbers: Retrieval
) -> Chosen:
    """Merge the stages' proposals in the order S1, S2, S3 without repeats, under quotas and `budget` tokens.

    `cost` tells the tokens that a message takes when it is rendered, None when it takes more than the room given.
    A message that does not fit is passed over, not cut.
    """
    ways: dict[str, list[Found]] = {}
    for stage in stages:
        for candidate in stage:
            ways.setdefault(candidate.uid, []).append(candidate.found)
    places = _places(stages, limit, numbers)
    order = _order(stages, places)
    kept: dict[str, tuple[Found, ...]] = {}
    spent, too_long = 0, []
    for uid in order:
        if len(kept) >= limit:
            break
        taken = cost(uid, budget - spent)
        if taken is None:
            too_long.append(uid)
            continue
        spent += taken
        kept[uid] = tuple(ways[uid])
    return Chosen(kept, spent, tuple(too_long))


def _places(stages: Many[Many[Candidate]], limit: int, numbers: Retrieval) -> tuple[int, int, int]:
    """Count what each stage adds that the stages before do not already place."""
    first = {c.uid for c in stages[0][: round(limit * numbers.anchors / max(1, numbers.anchors + numbers.expansion))]}
    second = {c.uid for c in stages[1]} - first
    third = {c.uid for c in stages[2]} - first - second
    return quotas((len({c.uid for c in stages[0]}), len(second), len(third)), limit, numbers)


def _order(stages: Many[Many[Candidate]], places: tuple[int, int, int]) -> list[str]:
    """Each stage's quota in turn, then what is left over, in the same order."""
    taken: dict[str, None] = {}
    rest: list[str] = []
    for stage, quota in zip(stages, places, strict=True):
        new = [uid for uid in dict.fromkeys(c.uid for c in stage) if uid not in taken]
        taken.update(dict.fromkeys(new[:quota]))
        rest += new[quota:]
    return list(dict.fromkeys([*taken, *rest]))


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


def line(version: Version, room: str, user: str) -> str:
    """A message as it is rendered for an answer model: channel, speaker, time, lifecycle markers, verbatim text."""
    markers = f" [{', '.join(version.markers)}]" if version.markers else ""
    beside = f" [with: {' · '.join(version.attached.splitlines())}]" if version.attached else ""
    return f"{room} {moment(version.ts):%Y-%m-%d %H:%M} {user}{markers}: {version.text}{beside}"


def named(text: str, names: Mapping[str, str]) -> str:
    """A summary's text with marks like `<@user>` turned into names."""
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text
