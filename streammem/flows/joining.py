"""S3's placement join: the messages that join two people whom a question names, and where their words lead (§3.2.3).

"What does the system use that went from Mira to Xavier?" A message that stands in the trees of both tells which system
that is; its own words find what else is said of it.
"""

from __future__ import annotations

from streammem.core.people_in_text import people
from streammem.core.retrieval import complete
from streammem.core.retrieval.complete import Join
from streammem.flows.seeding import Findings
from streammem.flows.sight import Desk
from streammem.ports import Visible


async def joined(found: Findings, visible: Visible, desk: Desk) -> dict[str, tuple[float, str]]:
    """What joins give each message, and the joining message that did."""
    if not complete.wants_join(found.spec) or not desk.numbers.joins:
        return {}
    joins = await _joins(found, visible, desk)
    leading = [join for join in joins if join.words]
    hits = await desk.index.find_words([" ".join(join.words) for join in leading], desk.numbers.seeds, visible)
    await found.sight.see(hit.uid for some in hits for hit in some)
    scores = [{h.uid: h.score for h in found.sight.standing(some)} for some in hits]
    alone = [(join, dict[str, float]()) for join in joins if not join.words]
    return complete.led_to([*zip(leading, scores, strict=True), *alone], desk.numbers)


async def _joins(found: Findings, visible: Visible, desk: Desk) -> list[Join]:
    """The joining messages: found by the names and ids of those whom the question names."""
    spec, sight, directory = found.spec, found.sight, desk.directory
    meant = dict.fromkeys(user for group in complete.groups(spec) for user in sorted(group))
    words = " ".join(f"{directory.user_name(user)} {user}" for user in meant)
    (hits,) = await desk.index.find_words([words], desk.numbers.seeds, visible)
    await sight.see(hit.uid for hit in hits)
    seen = [sight[hit.uid] for hit in sight.standing(hits)]
    named = {v.uid: [user for n in people(v.text, directory) for user in n.ids] for v in seen}
    joining = [v for v in seen if complete.holds(spec, v, named[v.uid])]
    cosines = await sight.weigh(v.uid for v in joining)
    names = (directory.user_name(user) for user in directory.users)
    beside = {word for text in (spec.text, *names) for word in complete.folded(text)}
    return complete.joins(((v.uid, cosines[v.uid], complete.content(v.text, beside)) for v in joining), desk.numbers)
