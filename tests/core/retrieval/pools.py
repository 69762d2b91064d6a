"""Messages, pools and candidates for tests of the stages, told in few words."""

from __future__ import annotations

from hypothesis import strategies as st

from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.context import Member
from streammem.records import Found, Version

MINUTE = 60_000_000


def version(name: str, minute: float = 0, **rest: object) -> Version:
    """A message; it says as much as it must to be somebody's."""
    given = {"channel": "c", "user": "u", "text": "", "thread": "", "reply_to": ""} | rest
    ts = int(minute * MINUTE)
    return Version(
        uid=name, number="", deleted=False, hash="", workspace="w", id=name, ts=ts, since=ts, **given,  # type: ignore[arg-type]
    )  # fmt: skip


def member(name: str, rank: int, minute: float = 0, **rest: object) -> Member:
    """A message of a pool, at its rank in its channel."""
    return Member(version(name, minute, **rest), rank)


def pool(*members: Member) -> dict[str, Member]:
    """Members by uid."""
    return {m.version.uid: m for m in members}


def candidates(stage: str, names: str) -> list[Candidate]:
    """What a stage proposes, best first; one letter is one message."""
    return [Candidate(name, Found(stage=stage, signal="")) for name in names]


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Member]:
    """Pools in two channels; a message may answer an earlier one of its channel and stand in its thread."""
    found: dict[str, Member] = {}
    ranks = {"c": 0, "d": 0}
    for number in range(draw(st.integers(0, 9))):
        channel = draw(st.sampled_from("cd"))
        ranks[channel] += draw(st.integers(1, 3))
        earlier = [m.version.uid for m in found.values() if m.version.channel == channel]
        target = draw(st.sampled_from(["", *earlier]))
        root = found[target].thread if target and draw(st.booleans()) else ""
        name = f"m{number}"
        found[name] = member(
            name,
            ranks[channel],
            number * draw(st.sampled_from((0.5, 20))),
            channel=channel,
            user=draw(st.sampled_from(("ana", "bo", ""))),
            text=draw(st.sampled_from(("yes", "is it?", "done"))),
            reply_to=target,
            thread=root,
        )
    return found
