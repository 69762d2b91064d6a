"""NEEDS. What the flows ask of the world, in the words of the core. A backend is one file that keeps one of these.

All methods may raise TransientError; everything else they raise is a fault of the caller or of the set-up.
Batch in, batch out: results stand in the order of what was asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from collections.abc import Sequence as Many
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from streammem.records import (
    Answering,
    Artifacts,
    Beat,
    Claim,
    DirectoryEvent,
    Due,
    Entry,
    Event,
    Job,
    Leaf,
    Limits,
    LogEntry,
    Naming,
    NodeId,
    Paid,
    Position,
    Prompt,
    ReactionEvent,
    Redaction,
    Reply,
    Sequence,
    Spent,
    Summary,
    Taken,
    Version,
    Wording,
)

Vectors = npt.NDArray[np.float32]
Fact = DirectoryEvent | ReactionEvent

SUMMARIES = "due"
"""The queue of sequences whose summaries need a look. What a language model is to word waits in queues of its own."""
CHANGED, TOUCHED, WORDS, OPEN = "changed", "touched", "words", "open"
"""Sequences with nodes whose wording an edit or deletion took away; that a query met; that may lack some; whose last
nodes still grow, to be looked at later."""
UPPER, RENEWALS = "upper", "renewals"
"""The skeletons above actors' sequences, worded after them; sequences that are only grouped otherwise (design §3)."""
WORDING = (CHANGED, TOUCHED, WORDS, OPEN, UPPER, RENEWALS)
"""The queues of nodes to be worded, most urgent first."""
GROUPS = "groups"
"""The queue of workspaces whose artifacts are to be grouped anew (core.artifacts), each as `groups_of(workspace)`."""
QUEUES = (SUMMARIES, *WORDING, GROUPS)

REPLIES = "replies"
"""What model calls for replies to questions are accounted under (Spent.view); all others word nodes of a view."""


class Appended(msgspec.Struct, frozen=True):
    """What an append did. `position` is where these entries end in the log; everything up to it is durable.

    A log that does not know what it holds (Kafka) accepts everything and leaves repeated keys to its readers.
    """

    accepted: int
    duplicates: int
    position: Position


class LogWriter(Protocol):
    """Appends validated events."""

    async def append(self, events: Many[tuple[str, Event]]) -> Appended:
        """Append (key, event) pairs whose key is new, in order; return only when they are durable."""

    async def erase(self, entries: Many[LogEntry]) -> None:
        """Take entries out for good (design §4, Erasure). Doing it again changes nothing.

        Kafka writes a null value under each key and gives the entries to readers until it compacts them: those who read
        from the start come to the mark of their erasure behind them.
        """


class LogReader(Protocol):
    """Reads the log, each partition in order of position."""

    async def read(self, after: Position, limit: int) -> list[LogEntry]:
        """Up to `limit` entries that lie after this position; none only at the end of every partition.

        A partition that `after` does not name is read from its start.
        """

    async def end(self) -> Position:
        """The position of the last entry of each partition; empty partitions are left out."""

    async def erased(self, keys: Iterable[str]) -> set[str]:
        """Which of these keys were erased last, although entries under them are still given to readers."""


class Span(msgspec.Struct, gc=False, frozen=True):
    """A run of ranks [start, stop) of a sequence; out of range is cut, never an error."""

    sequence: Sequence
    start: int
    stop: int


class Stand(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """Where a message stands in one sequence: `rank` of `size`."""

    sequence: Sequence
    rank: int
    size: int


class StructureStore(Protocol):
    """Registers, sequences, placements, answers, directory, due marks, redactions and summaries.

    Every write is idempotent and commutes with every other write: entering never leaves (design §3).
    """

    # ---- growing
    async def register(self, versions: Many[Version]) -> None:
        """Add versions to their messages. The register is the greatest (core.registers.winner)."""

    async def enter(self, entries: Many[Entry]) -> None:
        """Add leaves to sequences; for a message already there the smaller ts stays."""

    async def link(self, answerings: Many[Answering]) -> None:
        """Add to what answers a message; for a message already there the smaller ts stays."""

    async def learn(self, facts: Many[Fact]) -> list[Fact]:
        """Keep the greatest fact of each register (core.registers.fact_order). Return those that now stand anew."""

    async def mark_due(
        self, marks: Many[tuple[Sequence, Leaf]], queue: str = SUMMARIES, until: float | None = None
    ) -> None:
        """Mark sequences due from the given leaf on: generation + 1, earliest = the least leaf of all open marks.

        With `until` (seconds) they rest until then, whoever held them or however long they were to rest before.
        """

    async def redact(self, marks: Many[tuple[Sequence, Leaf]]) -> None:
        """Hide summaries over these leaves until they are renewed: the sequence's serial + 1 for each."""

    # ---- erasure (design §4): the only way that anything leaves. Each may be repeated.
    async def forbid(self, marks: Many[str]) -> None:
        """Keep these erasure marks (core.erasure) for ever, `clear` included."""

    async def forbidden(self, marks: Iterable[str]) -> set[str]:
        """Which of these marks are kept."""

    async def withdraw(self, leaves: Many[tuple[Sequence, str]]) -> None:
        """Take messages (by uid) out of sequences, and each sequence out of the message's placements.

        A sequence that has no leaf left is no more: `sequences` does not name it.
        """

    async def unlink(self, answers: Many[tuple[str, str]]) -> None:
        """For each (target, uid): the message answers the target no more."""

    async def strike(self, uids: Many[str]) -> None:
        """Forget all versions, placements and reactions of these messages, and the leaves that they still have."""

    async def unlearn(self, workspace: str, user: str) -> None:
        """Forget every fact that names a user, and every reaction of it.

        The user itself, its attributes, memberships and ties of either side go. Groups that it is a member of, and
        users whose manager it is, stay without it.
        """

    async def texts_of(self, uids: Many[str]) -> list[str]:
        """The keys of the cached texts that name one of these messages (Paid), or a text that does, and so on.

        A text may be given instead of a message. None comes before what it was made from.
        """

    async def uncache(self, uids: Many[str]) -> None:
        """Drop the cached texts that `texts_of` gives."""

    async def sweep(self) -> None:
        """Forget the names of trees that have no leaf left: their redactions. For when nothing is due any more."""

    # ---- reading the forests
    async def versions(self, uids: Many[str]) -> list[tuple[Version, ...]]:
        """All versions of each message, in no particular order; empty for an unknown one."""

    async def placements(self, uids: Many[str]) -> list[tuple[Stand, ...]]:
        """Every sequence that each message has a leaf in, sorted by sequence, with rank and size."""

    async def leaves(self, spans: Many[Span]) -> list[tuple[Leaf, ...]]:
        """The leaves of each span, in order."""

    async def ranks(self, leaves: Many[tuple[Sequence, Leaf]]) -> list[int]:
        """For each, how many leaves of the sequence are smaller: its rank, or where it would stand."""

    async def sizes(self, sequences: Many[Sequence]) -> list[int]:
        """How many leaves each sequence has; 0 for an unknown one."""

    async def answers(self, uids: Many[str]) -> list[tuple[Leaf, ...]]:
        """The leaves that answer each message, in order."""

    async def sequences(self, workspace: str, view: str | None = None, tree: str | None = None) -> list[Sequence]:
        """The sequences of a workspace, of one of its views or of one tree, sorted."""

    async def workspaces(self) -> list[str]:
        """Every workspace that has a leaf or a fact, sorted."""

    async def facts(self, workspace: str) -> list[DirectoryEvent]:
        """The directory facts that stand in a workspace."""

    async def facts_generation(self, workspace: str) -> int:
        """A number that grows with every change of the workspace's facts, so that readings of them can be kept."""

    async def reactions(self, workspace: str, channel: str, message: str) -> list[ReactionEvent]:
        """The reactions that stand (present or not) on a message, sorted."""

    # ---- summarising
    async def due(self, limit: int, now: float = 0.0, lease: float = 0.0, queue: str = SUMMARIES) -> list[Due]:
        """Up to `limit` due sequences of a queue that nobody holds at `now` (in seconds, by a clock that all share).

        Oldest mark first. With a `lease` they are held for that many seconds: nobody else is given them until then.
        """

    async def hold(self, due: Many[Due], until: float, queue: str = SUMMARIES) -> None:
        """Let these due sequences, if their generation is still the one given, rest until then.

        They are due from the given `earliest` on from then on. A newer mark is held by nobody any more.
        """

    async def settle(self, due: Many[Due], queue: str = SUMMARIES) -> list[Due]:
        """Clear marks whose generation is still the one given; return those that somebody else had cleared before.

        A newer mark stays and is held by nobody any more.
        """

    async def redactions(self, sequences: Many[Sequence]) -> list[tuple[Redaction, ...]]:
        """The redactions of each sequence, one for each leaf (its newest serial), by leaf."""

    async def summaries(self, nodes: Many[NodeId], *, vectors: bool = True) -> list[Summary | None]:
        """The stored summary of each node. Who needs no vectors may be given summaries without (b"")."""

    async def keep(self, summaries: Many[Summary]) -> None:
        """Store summaries, replacing those of the same nodes."""

    async def drop(self, nodes: Many[NodeId]) -> None:
        """Forget the summaries of these nodes, and their wordings."""

    # ---- wordings: what a language model wrote for nodes
    async def wordings(self, nodes: Many[NodeId]) -> list[Wording | None]:
        """The wording of each node."""

    async def word(self, wordings: Many[Wording]) -> list[bool]:
        """Keep wordings, each in the place of the node's earlier one, if nothing changed since it was read; which were.

        That is: its node has a summary, and its sequence's newest redaction is the wording's `serial` (0: none). Test
        and write are one step: a text that was begun before a deletion is not written after it (design §3).
        """

    async def unword(self, nodes: Many[NodeId]) -> None:
        """Forget the wordings of these nodes."""

    async def cached(self, keys: Many[str]) -> list[Paid | None]:
        """Texts paid for before, by cache key (Wording.key)."""

    async def cache(self, texts: Mapping[str, Paid]) -> None:
        """Keep texts by cache key for ever, across rebuilds. They are durable when this returns."""

    # ---- artifacts
    async def grouping(self, workspace: str) -> Artifacts | None:
        """How the identifiers and messages of a workspace are grouped."""

    async def grouping_generation(self, workspace: str) -> int:
        """A number that grows with every change of the grouping, so that readings of it can be kept."""

    async def group(self, grouping: Artifacts, generation: int) -> bool:
        """Keep a grouping in place of the one before if its generation is still this; whether it was kept.

        Test and write are one step: what was begun before an erasure is not written after it.
        """

    async def ungroup(self, workspace: str) -> None:
        """Forget the grouping of a workspace. Its generation grows, also where there is none."""

    # ---- offsets and the whole
    async def applied(self, name: str) -> Position:
        """The log position up to which the effects named `name` are in the store."""

    async def advance(self, name: str, position: Position) -> None:
        """Record progress in these partitions: in each the greater stands. Call it last, after the effects."""

    def everything(self) -> AsyncIterator[tuple[str, bytes]]:
        """Canonical (name, content) rows of registers, sequences, answers, facts and erasure marks, in any order.

        For checksums and searches.
        """

    def generated(self) -> AsyncIterator[tuple[str, Summary | Wording | Paid]]:
        """Every stored summary (under ""), wording (under its key) and cached text (under its key), in any order.

        For searches.
        """

    async def counts(self) -> dict[str, int]:
        """Numbers for `stats`: messages, versions, leaves, sequences by view, answers, facts, summaries, wordings…

        Also how many sequences are in each queue, by its name.
        """

    async def clear(self) -> None:
        """Forget everything except the cache and the erasure marks: before a rebuild."""


class Beats(Protocol):
    """Signs of life of the processes, for `status`."""

    async def beat(self, beat: Beat, seconds: float) -> None:
        """Say how a role of a process is doing; forgotten after so many seconds unless said again."""

    async def beats(self) -> list[Beat]:
        """What was said and is not forgotten, sorted by role and process."""


class MessagePoint(msgspec.Struct, frozen=True):
    """A message version to be found: its payload, dense vector, the text for lexical search, the names in both."""

    version: Version
    until: int
    vector: Vectors
    lexical: str
    naming: Naming = Naming("", "")


class NodePoint(msgspec.Struct, frozen=True):
    """A summary to be found. `audience` is "public" or the id of the one private channel it was made from."""

    summary: Summary
    audience: str


class Visible(msgspec.Struct, frozen=True):
    """What a search may touch. Decided by the store, never after it (design §5).

    `channels` are the channels the asker may read (None: all, only for an explicit `everything`); `audiences` the
    same for summaries. `moment` is the as-of time in µs, None for now.
    """

    workspace: str
    channels: frozenset[str] | None
    audiences: frozenset[str] | None
    moment: int | None = None
    since: int | None = None
    until: int | None = None
    exclude: frozenset[str] = frozenset()


class MessageHit(msgspec.Struct, gc=False, frozen=True):
    """A found message version: `key` is Version.key."""

    uid: str
    key: str
    score: float


class NodeHit(msgspec.Struct, gc=False, frozen=True):
    """A found summary node."""

    node: NodeId
    score: float


class NodeSearch(msgspec.Struct, frozen=True):
    """One search for nodes: of one view, roots only or inner nodes too, of some trees only if any are named."""

    view: str
    roots_only: bool
    limit: int
    trees: tuple[str, ...] = ()


class VectorIndex(Protocol):
    """Dense and lexical search over message versions and summary nodes."""

    async def upsert(self, points: Many[MessagePoint]) -> None:
        """Insert points that are not there yet (one for each Version.key); existing ones are left alone."""

    async def replace(self, points: Many[MessagePoint]) -> None:
        """Put points in the place of those of the same Version.key, which they need not have; `until` only falls."""

    async def misnamed(
        self, workspace: str, users: Mapping[str, str], channels: Mapping[str, str]
    ) -> list[tuple[str, Naming]]:
        """The points of these users or in these channels, by Version.key, whose words follow the directory.

        Only those that were made with another name than the one given here.
        """

    async def lower(self, untils: Mapping[str, int]) -> None:
        """Lower the `until` of versions, by Version.key; never raises one; unknown keys are ignored."""

    async def erase(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> None:
        """Remove the points of these messages and of every message of these users."""

    async def traces(self, workspace: str, uids: Many[str] = (), users: Many[str] = ()) -> int:
        """How many points there are of these messages and users."""

    async def known(self, keys: Many[str]) -> set[str]:
        """Which of these Version.keys have a point."""

    async def vectors(self, keys: Many[str]) -> list[Vectors | None]:
        """The dense vectors of these Version.keys."""

    async def cosines(self, vector: Vectors, keys: Many[str]) -> list[float | None]:
        """The cosine of each Version.key's point to a vector: much cheaper than fetching the vectors."""

    async def find_messages(
        self, vector: Vectors, lexical: str, limit: int, visible: Visible
    ) -> tuple[list[MessageHit], list[MessageHit]]:
        """(dense hits, lexical hits), each best first. IDF counts only what is visible."""

    async def find_words(self, texts: Many[str], limit: int, visible: Visible) -> list[list[MessageHit]]:
        """The lexical hits alone, of several texts at once."""

    async def find_nodes(self, vector: Vectors, searches: Many[NodeSearch], visible: Visible) -> list[list[NodeHit]]:
        """The hits of each node search, best first."""

    async def keep_nodes(self, points: Many[NodePoint]) -> None:
        """Store node points, replacing those of the same nodes."""

    async def drop_nodes(self, nodes: Many[NodeId]) -> None:
        """Remove node points."""

    async def flush(self) -> None:
        """Return when everything written so far survives a kill."""

    async def counts(self) -> dict[str, int]:
        """Numbers for `stats`: message points, node points."""

    async def clear(self) -> None:
        """Forget everything: before a rebuild."""


class Embedder(Protocol):
    """Texts to unit vectors. Synchronous and CPU-bound: flows call it in a thread when something waits."""

    @property
    def name(self) -> str:
        """The model's name, recorded with the vectors."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Many[str]) -> Vectors:
        """(len(texts), dimensions) unit vectors, in order; batched by length under a token budget (design §8)."""

    def count_tokens(self, texts: Many[str]) -> list[int]:
        """How many tokens each text has, uncut."""


class LanguageModel(Protocol):
    """A language model behind a server.

    Raises ModelBusyError when it cannot answer now, RejectedError when the server does not take this prompt ("refused",
    "too-long") and nothing is paid, SettingsError when the settings are wrong (the key, the model's name).
    """

    @property
    def name(self) -> str:
        """The model's name as the server knows it."""

    async def say(self, prompt: Prompt) -> Reply:
        """The model's reply: the JSON that the prompt asks for, unchecked."""

    async def submit(self, name: str, prompts: Mapping[str, Prompt]) -> str:
        """Hand in prompts, by a key of up to 64 characters, to be answered within a day; the id of the job."""

    async def handed_in(self, name: str) -> str | None:
        """The id of the job that was handed in under this name."""

    async def ended(self, job: str) -> bool:
        """Whether nothing more will come of a job: done, failed, expired or cancelled."""

    async def replies(self, job: str) -> dict[str, Reply | str]:
        """What came of a job's prompts: replies, or one line each that says what went wrong. Some may be missing."""

    async def discard(self, job: str) -> None:
        """Let the server forget what was handed in with an ended job and what came of it, as far as it can."""

    async def close(self) -> None:
        """Release the connections."""


class Ledger(Protocol):
    """What model calls may take and have taken, and who is at what: shared by all processes of one memory.

    Its clock is its own: every process reads the same. Writes are durable when they return.
    """

    async def claim(self, claims: Many[Claim], holder: str, seconds: float) -> set[str]:
        """Hold texts while they are written: the keys that are `holder`'s now, for so long. Others' are left out."""

    async def release(self, keys: Many[str], holder: str) -> None:
        """Give back what `holder` holds of these."""

    async def claimed(self) -> list[Claim]:
        """The texts that are being written now, sorted by key."""

    async def take(self, limits: Limits, tokens: int, money: int) -> Taken:
        """Take a call out of the limits and the day's budget, all or nothing.

        `tokens` and `money` are the most that it may need.
        """

    async def settle(self, tokens: int, money: int, spent: Many[Spent], *, call: bool = True) -> None:
        """Put what a call really took (`spent`, by view and level, without `day`) in the place of what was taken.

        Its tokens stay in the window of the limits as they were taken. `call` is false where nothing was asked after
        all.
        """

    async def rest(self, seconds: float) -> None:
        """Grant no call for so long: the server said so. The later of several ends stands."""

    async def pause(self, said: str) -> None:
        """Grant no call until `resume`. What was said is told to whoever asks."""

    async def resume(self) -> None:
        """Grant calls again, also while the server wanted rest."""

    async def standing(self, limits: Limits) -> Taken:
        """What `take` would say now to a call that takes one token and no money."""

    async def spent(self, days: int = 1) -> list[Spent]:
        """What was spent on the last so many days, today included, sorted by day, view and level."""

    async def used(self) -> tuple[int, int]:
        """Tokens and money taken out of today's budget, with what calls in the making may still need."""

    async def writer(self, name: str) -> str:
        """Note who writes from now on; who was noted before ("" at first)."""

    async def keep_job(self, job: Job) -> None:
        """Remember a job, or what is new about it."""

    async def drop_job(self, name: str) -> None:
        """Forget a job that is done with."""

    async def jobs(self) -> list[Job]:
        """The jobs that are not done with, oldest first."""


Connector = Iterable[Event]
"""What a connector gives: canonical events in any order."""
