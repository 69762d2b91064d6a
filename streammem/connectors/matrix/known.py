"""What reading one Matrix event needs to know of others: originals of edits, redactions, the state of rooms."""

from __future__ import annotations

from dataclasses import dataclass, field

from streammem.connectors.fields import Row, count_of, row_of, text_of
from streammem.connectors.matrix.content import Relation, relation_of
from streammem.connectors.matrix.rooms import Rooms


@dataclass(frozen=True)
class Original:
    """What is edited or taken back."""

    sender: str
    ts: int
    relation: Relation


@dataclass(frozen=True)
class _Edit:
    ts: int
    sender: str


@dataclass
class Known:
    """Shown all events twice it knows the original of every edit, in whatever order they come.

    Only what is edited or redacted is held, and the state of rooms.
    """

    workspace: str = ""
    originals: dict[str, Original] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)
    _targets: set[str] = field(default_factory=set)
    _edits: dict[str, dict[str, _Edit]] = field(default_factory=dict)
    _rooms: dict[str, Rooms] = field(default_factory=dict)
    _standing: dict[str, tuple[int, int]] = field(default_factory=dict)

    def rooms(self, room: str) -> Rooms:
        """The rooms of a workspace, which is the server in the room's id when none is given."""
        workspace = self.workspace or room.partition(":")[2] or "matrix"
        return self._rooms.setdefault(workspace, Rooms(workspace))

    def learn(self, event: Row, room: str) -> None:
        name, ts, sender = text_of(event, "event_id"), count_of(event, "origin_server_ts"), text_of(event, "sender")
        relation = relation_of(row_of(event, "content"))
        self._standing.clear()
        self.rooms(room).learn(event, room)
        if target := redacts(event):
            self._redact(target, ts)
        if because := redaction_inside(event):
            self._redact(name, count_of(because, "origin_server_ts"))
        if relation.kind == "m.replace" and relation.target:
            self._targets.add(relation.target)
            self._edits.setdefault(relation.target, {})[name] = _Edit(ts, sender)
        if name in self._targets:
            self.originals[name] = Original(sender, ts, relation)

    def _redact(self, target: str, ts: int) -> None:
        self._targets.add(target)
        self.redacted[target] = max(ts, self.redacted.get(target, ts))

    def restated(self, message: str, edited: int) -> int:
        """When the state of a message made by an edit (0: as it was first said) came to stand again, else 0.

        That is when a later edit was taken back.
        """
        if message not in self._edits:
            return 0
        if message not in self._standing:
            self._standing[message] = self._standing_of(message)
        standing, undone = self._standing[message]
        return undone if edited == standing else 0

    def _standing_of(self, message: str) -> tuple[int, int]:
        """When the edit that stands was made, and when the last one was taken back; 0 for none."""
        edits, original = self._edits[message], self.originals.get(message)
        undone = (self.redacted[name] for name in edits if name in self.redacted)
        standing = (
            edit.ts
            for name, edit in edits.items()
            if name not in self.redacted and (original is None or original.sender == edit.sender)
        )
        return max(standing, default=0), max(undone, default=0)


def redacts(event: Row) -> str:
    """The event that a redaction takes back; where it is named depends on the room's version."""
    if text_of(event, "type") != "m.room.redaction":
        return ""
    return text_of(row_of(event, "content"), "redacts") or text_of(event, "redacts")


def redaction_inside(event: Row) -> Row:
    """The redaction that an emptied event carries."""
    return row_of(row_of(event, "unsigned"), "redacted_because") or row_of(event, "redacted_because")
