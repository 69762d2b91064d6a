"""Whom and what the names of a question mean, by what the asker may see of the memory (design §9)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from streammem.core import ambiguity, query_spec, routing
from streammem.core.ambiguity import Closeness
from streammem.core.query_spec import QuerySpec
from streammem.core.words_in_text import Named
from streammem.flows.sight import Desk, Sight, end
from streammem.ports import Vectors, Visible
from streammem.records import Ambiguity, Query

_ORDINARY = 3
"""A word that so many messages use is no name with a typo."""


async def settled(
    spec: QuerySpec, query: Query, visible: Visible, vector: Vectors, desk: Desk
) -> tuple[QuerySpec, tuple[Ambiguity, ...]]:
    """The specification with every name read as the memory knows it, and what is to be told of those that stay open.

    A question whose names are plain asks nothing of the stores.
    """
    sight = Sight(desk, query, visible, vector)
    spec = await _without_ordinary_words(spec, sight, visible, desk)
    if spec.spellings:
        spec = query_spec.found(spec, await _known(spec, sight, visible, desk), desk.directory)
    return ambiguity.settled(spec, await _closeness(spec, sight, desk), desk.directory)


async def _without_ordinary_words(spec: QuerySpec, sight: Sight, visible: Visible, desk: Desk) -> QuerySpec:
    """The specification without names that were read into words of the chat as if they were typos."""
    typos = [named for named in spec.named if named.how == "typo"]
    ordinary = [named for named in typos if await _is_used(named, sight, visible, desk)]
    if not ordinary:
        return spec
    return query_spec.naming(spec, [named for named in spec.named if named not in ordinary], desk.directory)


async def _is_used(named: Named, sight: Sight, visible: Visible, desk: Desk) -> bool:
    (hits,) = await desk.index.find_words([named.words], 2 * _ORDINARY, visible)
    await sight.see(hit.uid for hit in hits)
    word = re.compile(rf"(?<!\w){re.escape(named.words.lstrip('@'))}(?!\w)", re.IGNORECASE)
    return sum((v := sight.get(hit.uid)) is not None and bool(word.search(v.text)) for hit in hits) >= _ORDINARY


async def _known(spec: QuerySpec, sight: Sight, visible: Visible, desk: Desk) -> set[str]:
    """Those of the loosely spelled identifiers of which the asker sees a message."""
    sequences = [routing.artifact_sequence(visible.workspace, name) for name in spec.spellings]
    ends = await desk.store.ranks([(sequence, end(visible)) for sequence in sequences])
    places = [(sequence, rank) for sequence, rank in zip(sequences, ends, strict=True) if rank]
    newest = await sight.near(places, 1, 0)
    return {sequence.tree for (sequence, _), some in zip(places, newest, strict=True) if some}


async def _closeness(spec: QuerySpec, sight: Sight, desk: Desk) -> dict[str, Closeness]:
    """What the asker has to do with each of those whom a name may mean, where several bear it."""
    asker = spec.asker
    several = [n for n in spec.named if len(ambiguity.bearers(n, desk.directory)) > 1]
    if asker is None or not several:
        return {}
    people = dict.fromkeys(one for n in several if n.kind == "user" for one in n.ids if one != asker)
    rooms = dict.fromkeys(one for n in several if n.kind == "channel" for one in ambiguity.bearers(n, desk.directory))
    mine, *theirs = await asyncio.gather(*(_messages(one, sight, desk) for one in (asker, *people)))
    close = {one: ambiguity.closeness_of(mine, said) for one, said in zip(people, theirs, strict=True)}
    return close | {room: Closeness(mine[room] > 0, mine[room]) for room in rooms}


async def _messages(person: str, sight: Sight, desk: Desk) -> Counter[str]:
    """How many messages somebody has said by the moment asked for, by channel, in channels that the asker reads."""
    counts = Counter[str]()
    for sequence, count in (await sight.said_by(person)).items():
        counts[desk.directory.in_use(sequence.channel)] += count
    return counts
