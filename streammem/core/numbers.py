"""The numbers that decisions take.

Defaults are EGCForest's ("Table 8" below); where the paper is silent or a measurement says otherwise, the line
says why. `settings.py` fills these from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
Weight = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The shape of the forests. `k` is bound to the memory: another k means rebuild."""

    k: Annotated[int, Ge(2), Le(256)] = 16  # Table 8
    lifecycle_markers: Positive = 2  # different markers that make an identifier a tree; the paper says "sufficient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The four stages."""

    # For ablations (EGCForest Table 2 and Figure 3): what is left out. All on by default.
    stages: Annotated[int, Ge(1), Le(4)] = 4  # 1: S1 only, 2: and S2, 3: and S3, 4: and S4's headers
    views: tuple[Literal["channel", "actor", "artifact"], ...] = ("channel", "actor", "artifact")

    limit: Annotated[int, Ge(1), Le(200)] = 20  # final messages, Table 8
    budget: Annotated[int, Ge(100)] = 3000  # tokens of the whole answer, Table 8
    header_share: Share = 0.35  # Table 8

    # S1. The paper fuses ranks; scores fused instead gave 1 to 6 points more Recall@20 on all four development sets
    # (lexical score over the best one, plus dense_weight times the cosine). "ranks" is the paper's way.
    fusion: Literal["scores", "ranks"] = "scores"
    seeds: Positive = 150  # depth of each ranking that is fused; silent in the paper; 100 costs a point on one set
    rrf: Count = 60  # RRF constant for messages, Table 8; used when fusing ranks
    dense_weight: Weight = 1.0  # λ_d
    rrf_tree: Count = 0  # η_tree, Table 8: weight / rank
    weight_leaf2tree: Weight = 2.0  # Table 8
    weight_root: Weight = 0.8  # Table 8
    weight_collapsed: Weight = 0.8  # Table 8
    trees_per_view: Positive = 8  # silent in the paper
    # S1 quota. Table 8 has 14 + 6; measured on the development sets, 8 + 12 gives 1 to 3 points more Recall@20 on each.
    anchors: Count = 8

    # What speaks for a message besides its text, in units of the fused score (0 to 2). Measured together on the
    # development sets; each pays on two sets or more and none costs a point on any.
    habit: Weight = 0.1  # its channel is where the asker speaks, in proportion
    habit_any: Weight = 0.1  # the asker has spoken in its channel at all
    habit_thread: Weight = 0.1  # the asker has spoken in its thread
    recency: Weight = 0.25  # its age at the moment that a question is asked as of
    recency_days: Annotated[float, Ge(0.01)] = 30.0  # falls by e in this time
    node: Weight = 0.3  # cosine of the level-1 channel node above it (Collapsed, carried down to the leaf)
    vote_channel: Weight = 0.2  # share of the anchors' votes (Leaf2tree) that its channel has
    vote_thread: Weight = 1.0  # the same for its thread
    voters: Positive = 14  # anchors that vote
    pool_cap: Positive = 64  # most members that a voted thread or an artifact's sequence brings in

    # How much a message says of its own (core.retrieval.substance): what lifts it for where it stands is less without.
    substantial: Positive = 40  # characters of a message that says something
    commonplace: Weight = 0.3  # how fast it falls with the logarithm of how often the same is said

    # S2
    expansion: Count = 12  # S2 and S3 quota together; Table 8 has 6, see `anchors`
    paths: Count = 8  # Table 8
    leaves_per_path: Count = 4  # Table 8
    context_anchors: Count = 30  # seeds whose neighbours are looked at
    context_seconds: Annotated[float, Ge(1)] = 900.0  # a channel neighbour's pull falls by e in this time
    utterance_seconds: Annotated[float, Ge(0)] = 300.0  # the next message of the same author so soon is one utterance
    window: Count = 2  # neighbours on each side; silent in the paper
    confidence: Annotated[float, Ge(0.01)] = 0.5  # what pulls falls by e for so much less score than the best
    # How much of that a message gets along each way. The least sensitive numbers of all: half or twice does alike, but
    # for the channel's, which conversations without threads need.
    pull_utterance: Weight = 0.95  # instead of its own score, not in addition
    pull_channel: Weight = 0.5
    pull_thread: Weight = 0.9
    pull_reply: Weight = 1.2  # from what it answers
    pull_question: Weight = 1.5  # from a question that it answers
    pull_answered: Weight = 1.0  # from an answer to it

    # S3
    about: Weight = 1.2  # what a member of the artifact gets that the question is most likely about
    about_width: Annotated[float, Ge(0.01)] = 0.1  # falls by e for so much less score of an artifact's best anchor
    about_named: Weight = 0.3  # how far an identifier that the question names is ahead of the best anchor's
    about_anchors: Positive = 60  # anchors that speak for their artifacts
    artifacts: Count = 5  # artifacts that are completed
    join: Weight = 1.0  # what a message gets that joins two people whom the question names (§3.2.3)
    join_itself: Weight = 1.2  # the joining message itself, as a share of that
    join_width: Annotated[float, Ge(0.01)] = 0.3  # falls by e for so much less of a joining message's own relevance
    joins: Count = 5  # joining messages that lead further
    fan_out: Count = 2  # bridges, Table 8
    # Table 8 has 2 a query. Off: replies pull each other and artifacts are completed, which reaches the same messages;
    # on the development sets hops changed nothing on two and cost 0.8 points of Recall@20 on a third.
    bridge_messages: Count = 0
    bridge_anchors: Count = 10  # anchors whose bridges are followed; silent in the paper
    bridge_floor: float = 0.35  # least cosine of a bridge's endpoint; silent in the paper

    floor: float = 0.5  # confidence (core.retrieval.confidence) below which the answer abstains; 0 never does


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarizing:
    """Node summaries."""

    quotes: Positive = 3  # messages quoted in an extractive summary
    quote_length: Annotated[int, Ge(20)] = 160  # characters
    diversity: Share = 0.5  # λ of MMR: 1 is centroid only


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """When and how a language model words node summaries. The paper words every node once, offline."""

    quiet: Annotated[float, Ge(0)] = 600.0  # seconds without a new leaf after which an open node is worded
    growth: Annotated[float, Ge(0.01)] = 0.5  # or when it has grown by this share since: 5 calls while 16 leaves come
    renew: Literal["idle", "touched", "always"] = "idle"  # when a wording that is only shifted is renewed (design §3)
    length: Annotated[int, Ge(50), Le(4000)] = 220  # most tokens of one summary
    message_length: Annotated[int, Ge(50)] = 1200  # characters of a message that are shown to the model
    in_flight: Positive = 32  # calls of one process at the same time
    pack: Positive = 8  # most nodes in one call
    pack_tokens: Positive = 1500  # most tokens of data in a call with several nodes; instructions take about 400
    linger: Annotated[float, Ge(0)] = 0.05  # seconds that a small node waits for company
    attempts: Positive = 6  # of one call while the server is away or busy, with backoff between them
    backoff: Annotated[float, Ge(0.001)] = 0.5  # seconds before the second attempt, doubled for each, with full jitter
    longest: Annotated[float, Ge(0.001)] = 60.0  # seconds that a backoff is at most
    trips: Positive = 8  # failures in a row, of any calls, after which a process asks no more for a while
    cooling: Annotated[float, Ge(0.001)] = 15.0  # seconds of that while, doubled each time it was in vain
    lease: Annotated[float, Ge(1)] = 180.0  # seconds that a text is held by the process that writes it
    job: Positive = 2000  # most prompts in one job of the Batch API
    poll: Annotated[float, Ge(0.01)] = 30.0  # seconds between two looks at a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Which identifiers are one artifact, and which messages without one join it (EGCForest §3.1.1)."""

    merge: float = 0.88  # Table 8: cosine of centroids above which tied identifiers are one
    borderline: float = 0.80  # above it a pair that is not merged may be judged; silent in the paper
    centroid: Positive = 2  # messages that carry an identifier, before its centroid says anything
    hub: Positive = 3  # identifiers of one family said to be one with another: then it is a container, and ties none
    cover: Share = 0.8  # of a name's weight that a message has to say to join; 0.75 let in 5 % that was wrong
    inside: Share = 0.3  # or so much, if the message says nothing besides in the same breath
    margin: Share = 0.05  # by which it has to be ahead of the next artifact's
    strangers: Share = 0.2  # of a name's uses that may stand beside other identifiers
    fresh: Annotated[float, Ge(0)] = 30.0  # days since an identifier was said in which its name may mean it
    commonplace: Annotated[int, Ge(2)] = 5  # messages that say the same, before it is a commonplace
    following: Annotated[float, Ge(0)] = 300.0  # seconds in which the same speaker goes on; 20 minutes: 2 to 8 % worse
    every: Annotated[float, Ge(0)] = 30.0  # least seconds between two groupings of a workspace in a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """Replies that a language model writes from the evidence. How it is asked again while it is away is in Wording."""

    length: Annotated[int, Ge(50), Le(4000)] = 250  # most tokens of one reply
    seconds: Annotated[float, Ge(0.1)] = 60.0  # after which the evidence is returned without a reply
    in_flight: Positive = 4  # replies that one process has written at the same time
    waiting: Count = 32  # questions that wait for that; more are answered without a reply
