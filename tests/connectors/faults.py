"""Faults seen in real exports (tests/data/faults): the input as files, and the right result beside what was read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from streammem.connectors import Given, Report
from streammem.core.registers import number
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    Event,
    MessageEvent,
    ReactionEvent,
    TieEvent,
)

FAULTS = Path(__file__).parent.parent / "data" / "faults"

Read = Callable[[Path, Report, Given], Iterator[Event]]
State = dict[tuple[str, str], MessageEvent]

METADATA = frozenset({"thread-notice", "pending-fetch", "format-version"})
"""Reasons to ignore a record that the expected counts leave out: they state nothing that could be lost."""


def named(number_: str) -> dict[str, Any]:
    (path,) = FAULTS.glob(f"{number_}_*.json")
    return json.loads(path.read_text())


def expected(number_: str) -> dict[str, Any]:
    return json.loads((FAULTS / "expected" / f"{number_}.json").read_text())


def written(fault: dict[str, Any], folder: Path) -> Path:
    """The input of a fault as its product would hand it over: a folder of files, or one file."""
    if files := fault.get("files"):
        for name, value in files.items():
            path = folder / "export" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        return folder / "export"
    if raw := fault.get("records_raw"):
        (folder / "records.json").write_text(raw)
        return folder / "records.json"
    rows = fault.get("records") or fault["lines"]
    (folder / "records.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return folder / "records.jsonl"


def state_of(events: Iterable[Event]) -> State:
    """The version of each message that stands when all are in, under the id of its channel that is in use."""
    events = list(events)
    moved = {e.same_as: e.id for e in events if isinstance(e, TieEvent) and e.entity == "channel" and e.present}
    state: State = {}
    said = [e for e in events if isinstance(e, MessageEvent)]
    for message in sorted(said, key=lambda m: (number(m.version), m.op == "delete")):
        channel = message.channel.id
        while channel in moved:
            channel = moved[channel]
        state[channel, message.id] = message
    return dict(sorted(state.items()))


def check(number_: str, folder: Path, read: Read) -> tuple[list[Event], Report]:
    """Read the input of a fault and hold it to the expected result. Returns what was read, for further looks."""
    fault, right = named(number_), expected(number_)
    report = Report()
    events = list(read(written(fault, folder), report, Given(channel=fault.get("channel", ""))))
    hold(events, report, right)
    return events, report


def hold(events: list[Event], report: Report, right: dict[str, Any]) -> None:
    """Compare what was read with the expected result."""
    state = state_of(events)
    ids = Ids(right, state)
    live = [_shown(channel, m, state, events) for (channel, _), m in state.items() if m.op == "upsert"]
    live.sort(key=lambda m: (m["channel"], ids(m["id"])))
    messages = sorted(right["messages"], key=lambda m: (m["channel"], m["id"]))
    shown = [{key: _plain(key, ids, row[key]) for key in wanted} for wanted, row in zip(messages, live, strict=True)]
    assert shown == [{key: _plain(key, lambda name: name, value) for key, value in m.items()} for m in messages]
    assert sorted(m.id for m in state.values() if m.op == "delete") == sorted(right["deleted"])
    assert report.rejected.total() == right["dead_letter"]
    idle = sum(count for reason, count in report.ignored.items() if reason not in METADATA)
    passed_over = idle + report.skipped["unsafe-path"]  # a stale page is a repetition as well as a lost race
    assert right["ignored"] in (passed_over, passed_over + report.duplicates)
    for channel in right.get("channels", ()):
        assert _channel(channel["id"], events) == (channel["name"], channel["aliases"])
    gaps = {gap.origin.partition("?")[0] for gap in report.gap_examples if gap.reason == "pending-fetch"}
    assert gaps == {f"{p['channel']}/{p['id']}" for p in right.get("pending_fetch", ())}


class Ids:
    """Made-up ids (`syn:…`) by the order in which the expected result lists them."""

    def __init__(self, right: dict[str, Any], state: State) -> None:
        made = [name for m in right["messages"] if (name := m["id"]).startswith("syn:P")]
        self._names: dict[str, str] = {}
        found = sorted((m.ts, m.id) for m in state.values() if m.id.startswith("syn:"))
        texts = {m["text"]: m["id"] for m in right["messages"] if m["id"] in made}
        by_id = {m.id: m for m in state.values()}
        for _, name in found:
            if by_id[name].text in texts:
                self._names[name] = texts[by_id[name].text]

    def __call__(self, name: Any) -> Any:
        return self._names.get(name, name)


def _plain(key: str, ids: Callable[[Any], Any], value: Any) -> Any:
    if key in ("id", "reply_to"):
        return ids(value)
    if key in ("ts", "edited_at") and value:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    if key == "mentions":
        return [(m["type"], m["id"]) for m in value]
    if key == "reactions":
        return sorted((r["name"], tuple(sorted(r["users"])), r["count"]) for r in value)
    return value


def _shown(channel: str, message: MessageEvent, state: State, events: list[Event]) -> dict[str, Any]:
    """A message with every field that an expected result may name."""
    f = message.forwarded
    return {
        "id": message.id,
        "channel": channel,
        "sender": message.sender.id,
        "sender_kind": message.sender.kind,
        "sender_name": message.sender.name,
        "kind": message.kind,
        "reply_to": message.reply_to,
        "reply_to_missing": message.reply_to is not None and (channel, message.reply_to) not in state,
        "text": message.text,
        "text_source": message.text_source,
        "mentions": [{"type": m.type, "id": m.id} for m in message.mentions],
        "links": [link.url for link in message.links],
        "attachments": [a.name for a in message.attachments],
        "reactions": _reactions(message, events),
        "ts": message.ts,
        "edited_at": message.edited_at,
        "broadcast": message.broadcast,
        "topic": message.topic,
        "event": message.subtype,
        "participants": list(message.participants),
        "forwarded": {"id": f.id, "channel": f.channel, "text": f.text} if f else None,
        "channel_aliases": [a for _, aliases in [_channel(channel, events)] for a in aliases],
    }


def _reactions(message: MessageEvent, events: list[Event]) -> list[dict[str, Any]]:
    given: dict[str, dict[str, ReactionEvent]] = defaultdict(dict)
    mine = [e for e in events if isinstance(e, ReactionEvent) and e.message == message.id]
    for reaction in sorted(mine, key=lambda r: (number(r.version), not r.present)):
        given[reaction.name][reaction.user] = reaction
    return [
        {
            "name": name,
            "users": [r.user for r in standing if r.user],
            "count": sum(r.count for r in standing),
        }
        for name, by_user in given.items()
        if (standing := [r for r in by_user.values() if r.present])
    ]


def _channel(channel: str, events: list[Event]) -> tuple[str | None, list[str]]:
    """The name and the former names and ids of a channel when all facts are in."""
    tied = {channel, *(e.same_as for e in events if isinstance(e, TieEvent) and e.id == channel)}
    name, version, aliases = None, "", tied - {channel}
    for event in events:
        if isinstance(event, ChannelEvent) and event.id in tied:
            aliases |= {*event.aliases}
            if event.name and number(event.version) > version:
                name, version = event.name, number(event.version)
        renamed = isinstance(event, AttributeEvent) and event.attribute == "name" and event.id in tied
        if renamed and number(event.version) > version:
            name, version = event.value, number(event.version)
    return name, sorted(aliases)
