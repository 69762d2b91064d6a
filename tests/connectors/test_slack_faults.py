"""Faults seen in real exports, with the right result beside each (tests/data/faults)."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streammem.core.registers import number
from streammem.records import MessageEvent
from tests.connectors.sources import Drawn, drawn

FAULTS = Path(__file__).parent.parent / "data" / "faults"
NUMBERS = ["01", "02", "04", "05", "06", "08", "09", "12", "13", "14", "15", "17"]


def rows_of(fault: dict[str, Any]) -> str:
    """History pages and events hold the rows that a day file holds."""
    if raw := fault.get("records_raw"):
        return raw[raw.index("[") : raw.rindex("]") + 1]
    pages = (record.get("messages") or [record["event"]] for record in fault["records"])
    return json.dumps([row for page in pages for row in page])


def files_of(fault: dict[str, Any]) -> dict[str, Any]:
    if fault["format"] == "slack-export":
        return fault["files"]
    return {"channels.json": [{"id": "C0001", "name": "ops"}], "ops/2024-01-02.json": rows_of(fault)}


def standing(read: Drawn) -> tuple[list[MessageEvent], list[str]]:
    """The messages and the deletions that stand when all versions are in."""
    winners: dict[tuple[str, str], MessageEvent] = {}
    for message in sorted(read.messages, key=lambda m: (number(m.version), m.op == "delete")):
        winners[message.channel.id, message.id] = message
    ordered = [winners[name] for name in sorted(winners)]
    return [m for m in ordered if m.op == "upsert"], [m.id for m in ordered if m.op == "delete"]


def seen(message: MessageEvent, expected: dict[str, Any]) -> dict[str, Any]:
    """The message in the words of the expectation, as far as it says something."""
    every = {
        "id": message.id,
        "channel": message.channel.id,
        "sender": message.sender.id,
        "sender_kind": message.sender.kind,
        "sender_name": message.sender.name,
        "kind": message.kind,
        "reply_to": message.reply_to,
        "text": message.text,
        "text_source": message.text_source,
        "mentions": [{"type": mention.type, "id": mention.id} for mention in message.mentions],
        "links": [link.url for link in message.links],
        "broadcast": message.broadcast,
        "ts": message.ts,
        "edited_at": message.edited_at,
    }
    return {key: value for key, value in every.items() if key in expected}


def told(expected: dict[str, Any]) -> dict[str, Any]:
    elsewhere = ("reactions", "reply_to_missing", "channel_aliases", "participants")
    shown = {key: value for key, value in expected.items() if key not in elsewhere}
    return shown | {key: datetime.fromisoformat(shown[key]) for key in ("ts", "edited_at") if key in shown}


def read_fault(fault: str, tmp_path: Path) -> Drawn:
    if packed := next(FAULTS.glob(f"{fault}_*.zip"), None):
        return drawn("slack-export", packed)
    for name, content in files_of(json.loads(next(FAULTS.glob(f"{fault}_*")).read_text())).items():
        path = tmp_path / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return drawn("slack-export", tmp_path / "export")


@pytest.mark.parametrize("fault", [*NUMBERS, "18"])
def test_a_known_fault_gives_the_expected_result(fault: str, tmp_path: Path) -> None:
    expected = json.loads((FAULTS / "expected" / f"{fault}.json").read_text())
    read = read_fault(fault, tmp_path)
    messages, deleted = standing(read)
    wanted = expected["messages"]
    assert [seen(message, want) for message, want in zip(messages, wanted, strict=True)] == list(map(told, wanted))
    assert deleted == expected["deleted"]
    assert read.report.rejected.total() == expected["dead_letter"]
    refused_paths = read.report.skipped["unsafe-path"]
    assert read.report.ignored.total() - read.report.ignored["thread-notice"] + refused_paths == expected["ignored"]


def test_reactions_keep_their_count_when_only_some_givers_are_listed(tmp_path: Path) -> None:
    reactions = read_fault("04", tmp_path).reactions
    assert [(r.user, r.count, r.name) for r in reactions] == [
        ("U0GONE2", 1, "wave"),
        ("U0ADA", 1, "wave"),
        ("", 7, "wave"),
    ]
    assert {r.version for r in reactions} == {"1704190000.000200"}


def test_a_reply_whose_root_is_absent_is_a_gap(tmp_path: Path) -> None:
    assert read_fault("05", tmp_path).report.gaps == {"missing-root": 1}


def test_a_rename_leaves_the_old_name_as_an_alias_of_the_newest_channel_fact(tmp_path: Path) -> None:
    channels = read_fault("17", tmp_path).channels
    newest = max(channels, key=lambda channel: number(channel.version))
    assert (newest.name, newest.aliases, newest.type) == ("ops", ("operations",), "public")


def test_the_export_is_found_in_a_zip_made_by_hand() -> None:
    report = drawn("slack-export", next(FAULTS.glob("18_*"))).report
    assert report.skipped == {"not-a-day-file": 3, "system-file": 2, "unsafe-path": 1}
    (refusal,) = report.refusals
    assert refusal.reason == "truncated-file"
    assert refusal.origin.endswith("一般-日本/2024-01-04.json#0")
