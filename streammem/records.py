"""The nouns of streammem: frozen records, free of behaviour beyond their own identity.

Two families. *Events* cross processes (Kafka, JSONL, the log): their JSON Schema is written to `schemas/` by
`python -m streammem.schemas` and a test fails when the two differ. New fields have defaults; types and meaning
never change. *Memory records* are what the stores hold and what a query returns.

Times are integer microseconds UTC everywhere except in events, which carry RFC 3339 date-times.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

FOREVER = 2**53 - 1
"""The `until` of a version that nothing has superseded: the largest integer that is exact as a double."""

Text = Annotated[str, msgspec.Meta(min_length=1)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Token = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
"""A version: an unsigned decimal number of any length, compared as a number, never through a double."""

ChannelType = Literal["public", "private", "dm", "group_dm", "thread", "unknown"]
SenderKind = Literal["user", "bot", "external", "system", "unknown"]
View = Literal["channel", "actor", "artifact"]

# --------------------------------------------------------------------------------------------------- events


class ChannelRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The channel of a message. `name` and `type` are hints that any directory event overrides."""

    id: Text
    name: str | None = None
    type: ChannelType | None = None


class Sender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who said it. `name` is a hint that any directory event overrides."""

    id: str | None = None
    name: str | None = None
    kind: SenderKind = "user"


class Mention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something a message names by id: a person, a user group, a channel or everybody."""

    type: Literal["user", "group", "channel", "special"] = "user"
    id: Text
    label: str | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A URL in a message with the label it was written under."""

    url: str
    label: str | None = None


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something attached; `text` is what could be read from it."""

    id: str | None = None
    name: str | None = None
    kind: Literal["file", "image", "canvas", "card", "unfurl", "sticker", "other"] = "file"
    url: str | None = None
    mime: str | None = None
    size: int | None = None
    state: Literal["available", "deleted", "unavailable"] = "available"
    text: str | None = None


class Forwarded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message passed on: the original's id and channel where the source tells them, and its words."""

    id: str | None = None
    channel: str | None = None
    text: str | None = None


class Ingest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an event came here. Never part of its identity."""

    origin: str | None = None
    event_id: str | None = None
    received_at: Moment | None = None
    retry: int | None = None


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="message"):
    """One version of a message (`upsert`, always the whole state) or its deletion (`delete`).

    `topic` is a conversation's name inside its channel (Zulip), `participants` are the ids of who was in a call.
    """

    schema_version: str = "1.0"
    op: Literal["upsert", "delete"] = "upsert"
    source: str = "generic"
    source_format: str | None = None
    workspace: Text
    channel: ChannelRef
    id: Text
    version: Token = "0"
    ts: Moment | None = None
    edited_at: Moment | None = None
    deleted_at: Moment | None = None
    kind: Literal["message", "system", "call", "encrypted"] = "message"
    subtype: str | None = None
    sender: Sender = Sender()
    reply_to: str | None = None
    thread_id: str | None = None
    broadcast: bool = False
    text: str = ""
    text_source: Literal["text", "blocks", "attachments", "html", "none"] = "text"
    text_truncated: bool = False
    text_bytes: int | None = None
    mentions: tuple[Mention, ...] = ()
    links: tuple[Link, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    permalink: str | None = None
    topic: str | None = None
    forwarded: Forwarded | None = None
    participants: tuple[str, ...] = ()
    ingest: Ingest | None = None


class ReactionEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="reaction"):
    """A reaction given or taken back. It does not move the version of its message.

    `user` is empty for reactions whose givers the source does not list; `count` then says how many.
    """

    schema_version: str = "1.0"
    workspace: Text
    channel: Text
    message: Text
    name: Text
    user: str = ""
    count: int = 1
    version: Token = "0"
    present: bool = True
    ingest: Ingest | None = None


class UserEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="user"):
    """The full state of a user as the source knew it at `version` (the source's time)."""

    schema_version: str = "1.0"
    workspace: Text
    id: Text
    version: Token = "0"
    present: bool = True
    name: str | None = None
    aliases: tuple[str, ...] = ()
    kind: SenderKind = "user"
    title: str | None = None
    role: str | None = None
    manager: str | None = None
    timezone: str | None = None
    same_as: tuple[str, ...] = ()
    ingest: Ingest | None = None


class ChannelEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="channel"):
    """The full state of a channel as the source knew it at `version`. An unknown type counts as private."""

    schema_version: str = "1.0"
    workspace: Text
    id: Text
    version: Token = "0"
    present: bool = True
    name: str | None = None
    type: ChannelType = "unknown"
    aliases: tuple[str, ...] = ()
    parent_id: str | None = None
    topic: str | None = None
    ingest: Ingest | None = None


class MembershipEvent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="membership"
):
    """Whether `user` belongs to `channel`: one fact for each pair; absence wins a tie."""

    schema_version: str = "1.0"
    workspace: Text
    channel: Text
    user: Text
    version: Token = "0"
    present: bool = True
    ingest: Ingest | None = None


class GroupEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="group"):
    """The full state of a user group (Slack's subteams, Teams' tags) as the source knew it at `version`."""

    schema_version: str = "1.0"
    workspace: Text
    id: Text
    version: Token = "0"
    present: bool = True
    name: str | None = None
    aliases: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    ingest: Ingest | None = None


class AttributeEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="attribute"):
    """One attribute of a user or channel, for sources that tell a change and not the whole state (a rename).

    It stands over the full state of a lower version (core.directory).
    """

    schema_version: str = "1.0"
    workspace: Text
    entity: Literal["user", "channel"]
    id: Text
    attribute: Literal["name", "type", "topic", "title"]
    value: str
    version: Token = "0"
    present: bool = True
    ingest: Ingest | None = None


class TieEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="tie"):
    """Two ids are one: a person's in two products, a channel's before and after its id changed.

    One fact for each pair; absence wins a tie of versions. Of two ids of a channel, `id` is the one in use.
    """

    schema_version: str = "1.0"
    workspace: Text
    entity: Literal["user", "channel"]
    id: Text
    same_as: Text
    version: Token = "0"
    present: bool = True
    ingest: Ingest | None = None


class ErasureEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="erasure"):
    """A permanent marker: this message, or everything of this user, is forgotten and never taken in again (design §4).

    Holds ids only. A message is named by `channel` and `id`, a user by `id` alone.
    """

    schema_version: str = "1.0"
    workspace: Text
    entity: Literal["message", "user"]
    id: Text
    channel: str = ""
    ingest: Ingest | None = None


DirectoryEvent = UserEvent | ChannelEvent | MembershipEvent | GroupEvent | AttributeEvent | TieEvent
Event = (
    MessageEvent
    | ReactionEvent
    | UserEvent
    | ChannelEvent
    | MembershipEvent
    | GroupEvent
    | AttributeEvent
    | TieEvent
    | ErasureEvent
)


Position = dict[int, int]
"""A place in the log: for each partition the position of the last entry before it. Positions count from 1 (in Kafka
the offset plus one), so the empty position lies before everything. Text writes it `0:17,1:3` (core.positions)."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A validated event in the log. `key` names the fact (uid/version/content hash), `position` its place."""

    position: int
    key: str
    event: Event
    partition: int = 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input record that could not be used, and where it stood. `place` counts from 0 in what was given together."""

    reason: str
    detail: str = ""
    origin: str = ""
    place: int = 0


# ---------------------------------------------------------------------------------------------- the forests
# Records of the forests are acyclic and many: `gc=False` keeps the garbage collector from walking them.


class Version(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """One version of a message as the memory keeps it. Everything routing needs is here.

    Registers order versions by (`number`, deletes first, `hash`): `number` is the version token in a form
    whose string order is its numeric order. `since` is when this version was said (µs). `attached` are words that came
    beside its own: what it passes on, cards, names of files.
    """

    uid: str
    number: str
    deleted: bool
    hash: str
    workspace: str
    channel: str
    id: str
    ts: int
    since: int
    user: str
    text: str
    reply_to: str = ""
    thread: str = ""
    mentions: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    kind: str = "message"
    permalink: str = ""
    attached: str = ""

    @property
    def key(self) -> str:
        """Names this version for ever: the identity of its log entry and of its vector point."""
        return f"{self.uid}/{self.number}/{'d' if self.deleted else 'u'}{self.hash}"


class Naming(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """The names of speaker and channel that the words of a message in the vector index were made with.

    `follows` says which of the two ("user", "channel") the directory gave: when it says otherwise, the words change.
    """

    speaker: str
    room: str
    follows: tuple[str, ...] = ()


class Sequence(msgspec.Struct, gc=False, frozen=True, order=True, array_like=True):
    """An ordered run of leaves inside a tree.

    channel view: one for each channel (`branch` and `channel` empty); actor view: one for each
    (`branch` authored or mentioned, `channel`); artifact view: one for each identifier (`tree`).
    """

    workspace: str
    view: str
    tree: str
    branch: str = ""
    channel: str = ""


class Leaf(msgspec.Struct, gc=False, frozen=True, order=True, array_like=True):
    """A reference to a message at its place in time. Leaves order by (ts, uid)."""

    ts: int
    uid: str


class Entry(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A leaf that belongs in a sequence: the unit by which forests grow."""

    sequence: Sequence
    leaf: Leaf


class Answering(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """`leaf` answers `target`: it replies to it or stands in the thread that `target` opened."""

    target: str
    leaf: Leaf


class NodeId(msgspec.Struct, gc=False, frozen=True, order=True, array_like=True):
    """An inner node: computed, never allocated. Level 1 stands above the leaves.

    The fixed skeleton above an actor's sequences has level 0 and names its height in `index`:
    (actor tree, branch) is the branch node, (actor tree, no branch) the root.
    """

    sequence: Sequence
    level: int
    index: int


class Placement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message stands: rank `position` of `size` leaves in `sequence`, under `parent`."""

    sequence: Sequence
    position: int
    size: int
    parent: NodeId


class Bridge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link between two different messages, `source` and `target` being uids."""

    kind: Literal["reply", "identifier"]
    source: str
    target: str
    label: str = ""


class Due(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A sequence whose summaries need a look from `earliest` on. Cleared only at the same `generation`."""

    sequence: Sequence
    generation: int
    earliest: Leaf


class Redaction(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A leaf whose content changed: summaries over it with a lower `serial` are hidden at once."""

    leaf: Leaf
    serial: int


EXTRACTIVE = "extractive"
"""Who chose a summary's words when no language model wrote them."""


class Summary(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """What is stored for a node. Generated text: navigation, never evidence.

    `vector` is float32 little-endian, the mean of `count` live leaves' vectors. `made_from` is the digest of what
    was read. `channels` are the channels it was made from, `latest` the newest `since` among its leaves (µs),
    `serial` the sequence's newest redaction when it was read, `picks` the uids of the messages it quotes.
    """

    node: NodeId
    text: str
    first: Leaf
    last: Leaf
    count: int
    made_from: str
    channels: tuple[str, ...]
    markers: tuple[str, ...]
    latest: int
    serial: int
    is_root: bool
    vector: bytes
    picks: tuple[str, ...] = ()
    summarizer: str = EXTRACTIVE


class Wording(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """What a language model wrote for a node: shown instead of the extractive text. Navigation, never evidence.

    It stands beside the summary, which it never changes. `key` is its key in the cache of paid texts: `made_from`, view
    and `writer` (model and version of the prompt). `made_from` is the digest of what was read: at level 1 the summary's
    own, above it of the children's texts (core.wording). `first`, `last`, `count`, `channels`, `latest` and `serial`
    say of the leaves that were read what a Summary's say. `fault` tells why there is no text: the extractive one stays
    until somebody retries. `tokens` were paid for it, 0 if it came from the cache.
    """

    node: NodeId
    key: str
    text: str
    first: Leaf
    last: Leaf
    count: int
    made_from: str
    channels: tuple[str, ...]
    latest: int
    serial: int
    writer: str
    fault: str = ""
    tokens: int = 0


class Paid(msgspec.Struct, frozen=True):
    """A text in the cache, by Wording.key, as JSON.

    `sources` are what it was made from: the uids of the messages that were read, and the keys of the paid texts that
    were read. `beside` are those of other texts that were asked for in the same call: a model may mix them up. Whatever
    is made from an erased message is found through both (design §4).
    """

    text: str
    sources: tuple[str, ...]
    beside: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------- language models


class Prompt(msgspec.Struct, frozen=True):
    """What a language model is asked: instructions, data (chat text, fenced), the JSON Schema of its reply.

    `room` is the most tokens that the reply may have.
    """

    instructions: str
    data: str
    schema: dict[str, Any]
    room: int


class Reply(msgspec.Struct, frozen=True):
    """What a language model answered, and what that took. Where the server does not say, tokens are 0.

    `refused` says why there is no text: that is paid for as well.
    """

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    refused: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes together may ask of a model server. None: no limit.

    `requests` and `tokens` in any `window` seconds; `day_tokens` and `day_money` on one day (UTC). Money in billionths.
    """

    requests: int | None = None
    tokens: int | None = None
    window: float = 60.0
    day_tokens: int | None = None
    day_money: int | None = None


class Taken(msgspec.Struct, frozen=True):
    """Whether a call may be made. If not, `why` ("limit", "rest", "budget", "paused").

    `wait`: after how many seconds to ask again. `said` is what a person said when pausing.
    """

    granted: bool
    why: str = ""
    wait: float = 0.0
    said: str = ""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What calls took, for the nodes of one view and level on one day (UTC, 2026-11-30). Money in billionths.

    `calls` that were made, `failed` among them; `nodes` that were worded by them.
    """

    day: str = ""
    view: str
    level: int
    calls: int = 0
    failed: int = 0
    nodes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    money: int = 0


class Claim(msgspec.Struct, frozen=True):
    """A text that is being written: its key in the cache, and of which view and level it is."""

    key: str
    view: str
    level: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job of prompts that a model server works off in its own time.

    `name` is ours and known before `id`, the server's. `tokens` and `money` were taken for it. `claims` are the texts
    it is to write.
    """

    name: str
    claims: tuple[Claim, ...]
    tokens: int
    money: int
    at: float
    id: str = ""


# -------------------------------------------------------------------------------------------------- artifacts


class Tie(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """Two identifiers of one artifact (or kept apart), and why.

    `said`: a message says so; `named`: they bear one name; `alike`: their centroids are close and they are mentioned
    together; `judged`: a language model said so; `close`: only that (never one by itself). `cosine` is that of their
    centroids, 0 where there is none. `sources` are the messages that it rests on: uid and hash of what was read.
    """

    one: str
    other: str
    why: Literal["said", "named", "alike", "judged", "close"]
    cosine: float
    sources: tuple[tuple[str, str], ...]


class Joined(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A message without an identifier that belongs to one, and why. `sources` begin with the message itself.

    `named`: it says a name of it; `continued`: its author goes on from a message that belongs; `answer`: it answers
    one that does.
    """

    uid: str
    ts: int
    identifier: str
    why: Literal["named", "continued", "answer"]
    sources: tuple[tuple[str, str], ...]


class Alias(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A name of an identifier: the places [start, stop) in the text of the version that says it."""

    identifier: str
    start: int
    stop: int
    source: tuple[str, str]


class Artifacts(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """How the identifiers and messages of a workspace are grouped. Everything is sorted.

    `channels` are those that it was made from: while one of them is not public it holds for nobody. `apart` are
    borderline pairs that nobody has judged. `markers` are the lifecycle markers of each artifact of several identifiers
    or with joined messages, by its first identifier. `commonplaces` are what is said again and again, by gist, and how
    often (core.retrieval.substance). `digest` names what it was made from.
    """

    workspace: str
    channels: tuple[str, ...] = ()
    ties: tuple[Tie, ...] = ()
    joined: tuple[Joined, ...] = ()
    aliases: tuple[Alias, ...] = ()
    apart: tuple[Tie, ...] = ()
    markers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    commonplaces: tuple[tuple[int, int], ...] = ()
    digest: str = ""


# ----------------------------------------------------------------------------------------------- the query


class Awaited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must be findable before a question is answered (read your writes).

    `log` is a place in the log. `inputs` are places in input topics, by short name (`messages`, `directory`): what a
    producer knows of its own events before they are in the log.
    """

    log: Position = {}
    inputs: dict[str, Position] = {}


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to the memory. `asker` is a claim that only trusted callers may make.

    No asker sees public channels only; `everything` (explicit) lifts the filter. `as_of`, `since`, `until` in µs.
    `exclude` names messages, by id or uid, that must not be found. `wait_for` names what must have been taken in first.
    `answer` asks for a reply that a language model writes from the evidence, where one is configured.
    """

    text: str
    workspace: str = ""
    asker: str | None = None
    everything: bool = False
    as_of: int | None = None
    channels: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    exclude: tuple[str, ...] = ()
    limit: int | None = None
    budget: int | None = None
    wait_for: Awaited | None = None
    answer: bool = False


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an evidence item was found: which stage, by which signal, along which path."""

    stage: str
    signal: str
    path: str = ""
    rank: int | None = None
    score: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it was said. `ts` in µs; `user` and `channel` are ids, the names are what people read.

    `attached` is what came with it: words that it passes on, cards, names of files. A `direct` channel is one of a few
    people (dm, group_dm), called by their names unless it has one. `title` is the speaker's title or role now.
    """

    uid: str
    id: str
    workspace: str
    channel: str
    channel_name: str
    user: str
    user_name: str
    ts: int
    text: str
    attached: str = ""
    direct: bool = False
    reply_to: str | None = None
    permalink: str | None = None
    edited: bool = False
    markers: tuple[str, ...] = ()
    stage: str = "S1"
    found_by: tuple[Found, ...] = ()
    title: str = ""


class Bearer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody or something that bears a name of a question: its id, what people call it, a person's title."""

    id: str
    name: str
    title: str = ""


class Ambiguity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name in a question that several bear, and the ids of those that were searched for: one when that was clear."""

    name: str
    kind: Literal["user", "channel", "artifact"] = "user"
    candidates: tuple[Bearer, ...]
    meant: tuple[str, ...]


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A summary shown as navigation. `by` names the language model that wrote it; without one it quotes messages."""

    view: str
    tree: str
    label: str
    level: int
    text: str
    first: int
    last: int
    by: str = ""


class Sentence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sentence of a generated reply and the evidence that it cites, by uid. `fault`: why that does not carry it."""

    text: str
    cites: tuple[str, ...]
    fault: str = ""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that a language model wrote from the evidence: generated text, never evidence, and never stored.

    `supported`: every sentence cites messages of the evidence and has no number, date, identifier or link that those
    do not have; whether it follows from them is not checked. `refused`: the evidence does not say what was asked, so
    there is no text. `model` is empty where none was asked; `tokens` were paid for, in and out. `note` is one line on
    what is wrong, or why it is refused.
    """

    text: str
    sentences: tuple[Sentence, ...]
    supported: bool
    refused: bool
    model: str
    tokens: int
    note: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a query returns: verbatim evidence, best first, headers, and an honest account.

    `position` says up to which place of the log the structure and the index had come. `error` is one line that says
    why there is no answer: then there is no evidence either. `confidence` is what the floor of abstention is held to.
    `ambiguous` are the names in the question that several bear, and who was taken to be meant.
    `reply` is there when one was asked for and a language model wrote it or was not needed to refuse; else a note says
    why there is none.
    """

    question: str
    asker: str | None
    as_of: int | None
    evidence: tuple[Evidence, ...]
    headers: tuple[Header, ...]
    tokens: int
    abstained: bool
    timings_ms: dict[str, float]
    hidden_channels: int = 0
    notes: tuple[str, ...] = ()
    position: dict[str, Position] = {}
    error: str | None = None
    ambiguous: tuple[Ambiguity, ...] = ()
    confidence: float = 0.0
    reply: Generated | None = None


# ------------------------------------------------------------------------------------------------ the stream


class Received(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A record as it came from a topic. `topic` is its name without the prefix, `at` its time stamp in µs."""

    topic: str
    partition: int
    offset: int
    at: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that could not be used: why, where it stood, and its beginning.

    `reason` is a short stable code for counts. `key` and `value` are the first KiB of each (base64 in JSON); `size`
    is the whole value's, None for a null value. `at` is when it was given up, in µs.
    """

    role: str
    reason: str
    detail: str = ""
    topic: str
    partition: int
    offset: int
    at: int
    key: bytes | None = None
    value: bytes | None = None
    size: int | None = None
    headers: dict[str, str] = {}


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one role of one process is doing. Times in seconds since 1970, `fresh` in seconds.

    `fresh` is the time from produce to findable of the messages of the last minute: p50, p95 and the longest.
    """

    role: str
    process: str
    at: float
    started: float
    handled: int = 0
    refused: int = 0
    rate: float = 0.0
    waiting: str = ""
    fresh: tuple[float, float, float] | None = None
