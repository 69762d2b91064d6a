"""The pool: what stands around the best anchors and belongs to their artifacts, and what each of it scores."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many

from streammem.core import routing
from streammem.core.retrieval import context, prior, route
from streammem.core.retrieval.context import Pull
from streammem.core.retrieval.substance import substance
from streammem.flows.belonging import belonging
from streammem.flows.joining import joined
from streammem.flows.placements import around
from streammem.flows.seeding import Findings, admit, plain
from streammem.flows.sight import Desk
from streammem.ports import Visible


async def gathered(found: Findings, best: Many[str], visible: Visible, desk: Desk) -> None:
    """Add to the pool what stands around the anchors (S2) and what structure brings in (S3), then score everything."""
    numbers = desk.numbers
    neighbours = await _around(found, best, desk)
    await found.sight.see(neighbours)
    await admit(neighbours, found, desk)
    found.plain = plain(found, desk, visible.moment)
    weights = _Substance(found, visible, desk)
    found.flat = _with_votes(found, found.plain, None, desk)
    if numbers.stages < 2:
        found.whole = found.flat
    elif numbers.stages < 3:
        found.whole = _with_votes(found, _lifted(found, found.plain, weights, desk), weights, desk)
    else:
        await _complete(found, visible, weights, desk)


async def _complete(found: Findings, visible: Visible, weights: _Substance, desk: Desk) -> None:
    """S3: bring in the artifacts that the question is about, and what joins the people that it names."""
    numbers = desk.numbers
    members = await belonging(found, visible, desk) if "artifact" in numbers.views else {}
    gains = await joined(found, visible, desk) if "actor" in numbers.views else {}
    await found.sight.see([*members, *gains])
    await admit([*members, *gains], found, desk)
    found.plain = plain(found, desk, visible.moment)
    with_gains = {uid: score + gains.get(uid, _NOTHING)[0] for uid, score in found.plain.items()}
    lifted = _lifted(found, with_gains, weights, desk)
    scored = _with_votes(found, lifted, weights, desk)
    for uid, (gain, join) in gains.items():
        if gain >= _TELLING:
            way = f"with {found.sight[join].id}" if join != uid else "of two people"
            found.structure[uid] = ("placement join", way)
    for uid, (likely, way) in members.items():
        if uid in scored:
            gain = numbers.about * likely * weights[uid]
            scored[uid] += gain
            if gain >= _TELLING:
                found.structure.setdefault(uid, ("artifact", way))
    found.whole = scored


_NOTHING = (0.0, "")
_TELLING = 0.2
"""A gain of structure that is told as the way a message was found: less changes hardly any order."""


class _Substance(dict[str, float]):
    """The substance of each message of the pool, worked out when it is first asked for.

    As of a day nothing is a commonplace: the counts go on after it.
    """

    def __init__(self, found: Findings, visible: Visible, desk: Desk) -> None:
        super().__init__()
        self._sight, self._numbers = found.sight, desk.numbers
        self._common = desk.artifacts.common if visible.moment is None else {}

    def __missing__(self, uid: str) -> float:
        value = self[uid] = substance(self._sight[uid].text, self._common, self._numbers)
        return value


# ------------------------------------------------------------------------------------------------------- context


async def _around(found: Findings, best: Many[str], desk: Desk) -> list[str]:
    """The neighbours of the anchors in their channels and threads, more of a thread where a voter stands."""
    numbers, sight = desk.numbers, found.sight
    if numbers.stages < 2 or "channel" not in numbers.views:
        return []
    places = [s for uid in best for s in found.stands.get(uid, ()) if s.sequence.view == "channel"]
    windows = await desk.store.leaves([around(s, numbers.window) for s in places])
    roots = {uid: found.pool[uid].thread for uid in best}
    threads = dict(zip(roots.values(), await sight.answers(list(roots.values())), strict=True))
    uids = [leaf.uid for leaves in windows for leaf in leaves] + list(roots.values())
    for place, (uid, root) in enumerate(roots.items()):
        width = numbers.pool_cap // 2 if place < numbers.voters else 4 * numbers.window
        uids += [leaf.uid for leaf in context.part(threads[root], routing.leaf_of(sight[uid]), width)]
    return list(dict.fromkeys(uids))


def _lifted(found: Findings, scores: Mapping[str, float], weights: _Substance, desk: Desk) -> dict[str, float]:
    """Each score with the strongest pull on it: of its own utterance instead, of its context in addition."""
    numbers = desk.numbers
    if "channel" not in numbers.views:
        return dict(scores)
    one = context.strongest(context.utterances(found.pool, numbers), context.confident(scores, numbers))
    spoken = {uid: max(score, one[uid][0]) if uid in one else score for uid, score in scores.items()}
    pulled = context.strongest(context.pulls(found.pool, numbers), context.confident(spoken, numbers))
    found.pulled = pulled | {uid: pull for uid, pull in one.items() if pull[0] > scores[uid]}
    return {uid: s + _gain(uid, pulled, weights) for uid, s in spoken.items()}


def _gain(uid: str, pulled: Mapping[str, tuple[float, Pull]], weights: _Substance) -> float:
    """What its context gives a message. The answer to a question may be short: "yes, on Friday" says it all."""
    if uid not in pulled:
        return 0.0
    value, pull = pulled[uid]
    return value if pull.along == "question" else weights[uid] * value


def _with_votes(
    found: Findings, scores: Mapping[str, float], weights: _Substance | None, desk: Desk
) -> dict[str, float]:
    """Each score with what the best give to their channels and threads."""
    numbers = desk.numbers
    if "channel" not in numbers.views:
        return dict(scores)
    top = prior.ordered(scores)[: numbers.voters]
    won = route.shares((found.pool[uid].version.channel, found.pool[uid].thread, scores[uid]) for uid in top)
    voted = dict(scores)
    for uid, score in scores.items():
        member = found.pool[uid]
        vote = numbers.vote_channel * won.channels.get(member.version.channel, 0.0)
        if share := won.threads.get(member.thread):
            vote += (weights[uid] if weights is not None else 1.0) * numbers.vote_thread * share
        voted[uid] = score + vote
    return voted
