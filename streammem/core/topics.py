"""The topics of the stream form as data: their names, how they are kept, who writes and reads them (design §4)."""

from __future__ import annotations

from typing import Literal
from zlib import crc32

import msgspec

from streammem.core.registers import fact_key
from streammem.records import DirectoryEvent, ErasureEvent, Event, MembershipEvent, MessageEvent, ReactionEvent

_HOUR = 3_600_000
_DAY = 24 * _HOUR
_DEFAULT_BYTES = 1_048_588
"""What Kafka lets a batch of records have by default: 1 MiB of records and the batch's head."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `short` is its name in code and on the command line, `name` its full name without a prefix.

    `retention` in ms, None for ever; `max_bytes` of one batch of records; `more` are further settings of Kafka.
    """

    short: str
    name: str
    cleanup: Literal["delete", "compact"]
    retention: int | None
    holds: str
    key: str
    writers: str
    readers: str
    max_bytes: int = _DEFAULT_BYTES
    more: dict[str, str] = {}

    @property
    def config(self) -> dict[str, str]:
        """The settings of the topic in Kafka's words."""
        return {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(-1 if self.retention is None else self.retention),
            "max.message.bytes": str(self.max_bytes),
            **self.more,
        }


INPUT_BYTES = 4 * 2**20
"""Input topics take more than the log does, so that what is too large is refused with a reason and not by Kafka."""

RAW_SLACK = Topic(
    short="raw-slack",
    name="chat.raw.slack.v1",
    cleanup="delete",
    retention=7 * _DAY,
    holds="what Slack sends, as it came or in a wrapper, not trusted",
    key="any; receive: team:channel",
    writers="receive; bridges; dead-letters replay",
    readers="connect",
    max_bytes=INPUT_BYTES,
)
RAW_TEAMS = Topic(
    short="raw-teams",
    name="chat.raw.teams.v1",
    cleanup="delete",
    retention=7 * _DAY,
    holds="what Microsoft Graph sends of Teams, as it came or in a wrapper, not trusted",
    key="any; receive: tenant:channel",
    writers="receive; bridges; dead-letters replay",
    readers="connect",
    max_bytes=INPUT_BYTES,
)
MESSAGES = Topic(
    short="messages",
    name="chat.messages.v1",
    cleanup="delete",
    retention=7 * _DAY,
    holds="canonical messages and reactions, not trusted",
    key="workspace:channel",
    writers="exporters; connect; import --to kafka; dead-letters replay",
    readers="ingest",
    max_bytes=INPUT_BYTES,
)
DIRECTORY = Topic(
    short="directory",
    name="chat.directory.v1",
    cleanup="delete",
    retention=7 * _DAY,
    holds="users, channels and memberships, not trusted",
    key="entity",
    writers="exporters; connect; import --to kafka; dead-letters replay",
    readers="ingest",
    max_bytes=INPUT_BYTES,
)
LOG = Topic(
    short="log",
    name="memory.log.v1",
    cleanup="compact",
    retention=None,
    holds="validated events: the log, from which all else is rebuilt",
    key="uid/version/content hash (directory: entity/version/content hash)",
    writers="ingest",
    readers="structure; index; verify; rebuild",
    # Every version has its own key, so compaction takes only repeated entries and what was erased. What was erased is
    # off the disk a week later, and whoever reads again within four weeks still sees that it was.
    more={"max.compaction.lag.ms": str(7 * _DAY), "delete.retention.ms": str(28 * _DAY)},
)
DEAD_LETTERS = Topic(
    short="dead-letters",
    name="memory.dead-letter.v1",
    cleanup="delete",
    retention=28 * _DAY,
    holds="records that could not be used: reason, origin, the first KiB",
    key="as the record's own",
    writers="every role that reads",
    readers="dead-letters; status",
)
QUERIES = Topic(
    short="queries",
    name="memory.queries.v1",
    cleanup="delete",
    retention=6 * _HOUR,
    holds="questions; the asker in them is a claim",
    key="query id",
    writers="trusted services only; ask --via kafka",
    readers="query",
)
ANSWERS = Topic(
    short="answers",
    name="memory.answers.v1",
    cleanup="delete",
    retention=6 * _HOUR,
    holds="answers, messages of private channels among them",
    key="query id",
    writers="query",
    readers="who asked",
)
TOPICS = (RAW_SLACK, RAW_TEAMS, MESSAGES, DIRECTORY, LOG, DEAD_LETTERS, QUERIES, ANSWERS)


def named(prefix: str, topic: Topic) -> str:
    """The name of a topic on the cluster."""
    return prefix + topic.name


def group_of(prefix: str, role: str) -> str:
    """The consumer group of a role."""
    return f"{prefix}streammem-{role}"


RAW = (RAW_SLACK, RAW_TEAMS)
READS = {
    "connect": RAW,
    "ingest": (MESSAGES, DIRECTORY),
    "structure": (LOG,),
    "index": (LOG,),
    "query": (QUERIES,),
}
"""The topics that the consumer group of each role reads; `summarize` looks for its work in the store."""
USES = {
    "receive": RAW,
    "connect": (*RAW, MESSAGES, DIRECTORY, DEAD_LETTERS),
    "ingest": (MESSAGES, DIRECTORY, LOG, DEAD_LETTERS),
    "structure": (LOG, DEAD_LETTERS),
    "index": (LOG, DEAD_LETTERS),
    "summarize": (DEAD_LETTERS,),
    "query": (QUERIES, ANSWERS, DEAD_LETTERS),
}
"""The topics that each role reads or writes."""
REPLAYED = (*RAW, MESSAGES, DIRECTORY, QUERIES)
"""The topics to which a record that was given up may be sent again: only `ingest` writes the log."""


def _quoted(*parts: str) -> str:
    """Parts as one string that no other parts give."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def place(event: Event) -> str:
    """What decides the partition of an event in the log: its channel, or the user or channel that it describes.

    All versions of a message, its reactions and all facts of one register have the same place.
    """
    if isinstance(event, MessageEvent):
        return _quoted("in", event.workspace, event.channel.id)
    if isinstance(event, ReactionEvent | MembershipEvent):
        return _quoted("in", event.workspace, event.channel)
    if isinstance(event, ErasureEvent):
        return (
            _quoted("in", event.workspace, event.channel)
            if event.channel
            else _quoted("user", event.workspace, event.id)
        )
    return _quoted(*fact_key(event))


def partition_of(event: Event, partitions: int) -> int:
    """The partition of an event in a log of so many: CRC-32 of its place in UTF-8. Never to be changed.

    Another number of partitions moves channels to other partitions: harmless, as no step relies on Kafka's order.
    """
    return crc32(place(event).encode("utf-8", "surrogatepass")) % partitions


def input_of(event: Event) -> tuple[str, str]:
    """The input topic that an event is produced to, by its short name, and its key there."""
    if isinstance(event, MessageEvent):
        return MESSAGES.short, f"{event.workspace}:{event.channel.id}"
    if isinstance(event, ReactionEvent):
        return MESSAGES.short, f"{event.workspace}:{event.channel}"
    if isinstance(event, ErasureEvent):
        return DIRECTORY.short, ":".join(filter(None, ("erasure", event.workspace, event.channel, event.id)))
    return DIRECTORY.short, entity_of(event)


def entity_of(event: DirectoryEvent) -> str:
    """The key of a directory event in its input topic."""
    return ":".join(fact_key(event))
