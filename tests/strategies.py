"""Hypothesis strategies: the events of one small workspace, crowded so that everything meets everything.

Few ids, few versions, few texts: edits, deletions, ties, dangling replies and late arrivals are the rule here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from streammem.core.events import content_hash, key, uid, version_of
from streammem.core.identifiers import DEFAULT_RULES
from streammem.records import (
    ChannelEvent,
    ChannelRef,
    Event,
    Ingest,
    MembershipEvent,
    Mention,
    MessageEvent,
    ReactionEvent,
    Sender,
    UserEvent,
    Version,
)

WORKSPACE = "W"
CHANNELS = ("C1", "C2", "D/3")
USERS = ("U1", "U2", "U3")
MESSAGES = tuple(f"M{n}" for n in range(1, 7))
GHOST = "M99"
"""A message that is answered and never said."""

UIDS = tuple(uid(WORKSPACE, channel, message) for channel in CHANNELS for message in (*MESSAGES, GHOST))

TEXTS = (
    "hello",
    "ok",
    "draft of DOC-1 is up",
    "PR #2 merged, see DOC-1",
    "DOC-1 approved, DOC-22 blocked on issue 7",
    "v1.2 released with PR-2",
    "naïve ☃ \N{PILE OF POO}",
)
TOKENS = ("0", "1", "2", "9", "10", "1.5", "1.50", "123456789012345678901234567890")

_START = datetime(2024, 3, 1, 9, tzinfo=UTC)

channels = st.sampled_from(CHANNELS)
users = st.sampled_from(USERS)
messages = st.sampled_from(MESSAGES)
tokens = st.sampled_from(TOKENS)
maybe_message = st.sampled_from((None, None, *MESSAGES, GHOST))
mentions = st.sampled_from(
    (
        (),
        (),
        (Mention(id="U1"),),
        (Mention(id="U2"), Mention(id="U3")),
        (Mention(id="U1"), Mention(type="special", id="all")),
    )
)
ingests = st.sampled_from((None, Ingest(origin="import"), Ingest(origin="kafka", retry=1)))


def _moment(minute: int) -> datetime:
    return _START + timedelta(minutes=minute, microseconds=minute)


times = st.integers(0, 8).map(_moment)
"""Moments within a few minutes; equal ones are likely."""

_SENDERS = st.sampled_from(
    (*(Sender(id=u) for u in USERS), Sender(id="U1", name="Ann"), Sender(name="a bot", kind="bot"), Sender())
)
_REFS = st.sampled_from(
    (
        *(ChannelRef(id=c) for c in CHANNELS),
        ChannelRef(id="C1", name="general", type="public"),
        ChannelRef(id="C1", name="ops", type="private"),
    )
)


def _said(message: str, claimed: datetime | None) -> datetime:
    """The time of a message follows its id, unless a version claims another."""
    return claimed or _moment(MESSAGES.index(message))


_upserts = st.builds(
    lambda message, claimed, **rest: MessageEvent(workspace=WORKSPACE, id=message, ts=_said(message, claimed), **rest),
    message=messages,
    claimed=st.none() | times,
    channel=_REFS,
    version=tokens,
    edited_at=st.none() | times,
    kind=st.sampled_from(("message", "message", "message", "system")),
    sender=_SENDERS,
    reply_to=maybe_message,
    thread_id=maybe_message,
    text=st.sampled_from(TEXTS),
    mentions=mentions,
    ingest=ingests,
)
_deletes = st.builds(
    lambda message, **rest: MessageEvent(op="delete", workspace=WORKSPACE, id=message, **rest),
    message=messages,
    channel=_REFS,
    version=tokens,
    deleted_at=st.none() | times,
    ingest=ingests,
)


def upserts() -> st.SearchStrategy[MessageEvent]:
    """Versions of messages, whole."""
    return _upserts


def deletes() -> st.SearchStrategy[MessageEvent]:
    """Deletions, with or without the time at which they happened."""
    return _deletes


def message_events() -> st.SearchStrategy[MessageEvent]:
    """Versions of messages; about one in six is a deletion."""
    return _messages


def user_events() -> st.SearchStrategy[UserEvent]:
    """What the directory says of a user, with ties in version and differing content."""
    return st.builds(
        UserEvent,
        workspace=st.just(WORKSPACE),
        id=users,
        version=tokens,
        present=st.booleans(),
        name=st.sampled_from((None, "Ann", "Bob", "Zoë")),
        aliases=st.sampled_from(((), ("annie",))),
        kind=st.just("user"),
        title=st.none() | st.just("Lead"),
        role=st.none(),
        manager=st.none() | users,
        timezone=st.none(),
        same_as=st.just(()),
        ingest=ingests,
    )


def channel_events() -> st.SearchStrategy[ChannelEvent]:
    """What the directory says of a channel: names and types that change."""
    return st.builds(
        ChannelEvent,
        workspace=st.just(WORKSPACE),
        id=channels,
        version=tokens,
        present=st.booleans(),
        name=st.sampled_from((None, "general", "ops")),
        type=st.sampled_from(("public", "private", "unknown")),
        aliases=st.just(()),
        parent_id=st.none(),
        topic=st.none(),
        ingest=ingests,
    )


def membership_events() -> st.SearchStrategy[MembershipEvent]:
    """Who joined and left."""
    return st.builds(
        MembershipEvent,
        workspace=st.just(WORKSPACE),
        channel=channels,
        user=users,
        version=tokens,
        present=st.booleans(),
        ingest=ingests,
    )


def reaction_events() -> st.SearchStrategy[ReactionEvent]:
    """Reactions given and taken back, some by nobody in particular."""
    return st.builds(
        ReactionEvent,
        workspace=st.just(WORKSPACE),
        channel=channels,
        message=messages,
        name=st.sampled_from(("+1", "eyes")),
        user=users | st.just(""),
        count=st.integers(1, 2),
        version=tokens,
        present=st.booleans(),
        ingest=ingests,
    )


_facts = st.one_of(user_events(), channel_events(), membership_events(), reaction_events())
_messages = st.integers(0, 5).flatmap(lambda n: _upserts if n else _deletes)
_events = st.integers(0, 2).flatmap(lambda n: _messages if n else _facts)
_histories = st.lists(_events, max_size=30)
_versions = _messages.map(lambda event: version_of(event, content_hash(event), DEFAULT_RULES))


def facts() -> st.SearchStrategy[UserEvent | ChannelEvent | MembershipEvent | ReactionEvent]:
    """Directory facts and reactions."""
    return _facts


def events() -> st.SearchStrategy[Event]:
    """Any canonical event; two in three are messages. All survive `core.events.normalise`."""
    return _events


@st.composite
def histories(draw: st.DrawFn, max_size: int = 30) -> list[Event]:
    """The events of one workspace as they arrive: out of order, late, and some of them twice."""
    said = draw(_histories if max_size == 30 else st.lists(_events, max_size=max_size))
    again = draw(st.lists(st.integers(0, len(said) - 1), max_size=4)) if said else []
    return [*said, *(said[n] for n in again)]


def versions() -> st.SearchStrategy[Version]:
    """Message versions as the memory keeps them."""
    return _versions


def keyed(history: list[Event]) -> list[tuple[str, Event]]:
    """The (key, event) pairs that the log takes."""
    return [(key(event, content_hash(event)), event) for event in history]
