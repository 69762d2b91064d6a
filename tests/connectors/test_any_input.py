"""Whatever a file holds, reading it harms nothing but that file."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors.json_rows import CutShortError, NotAListError, elements
from tests.connectors.sources import CHANNELS, USERS, Drawn, content, drawn, said, zipped

KEYS = [
    *("type", "subtype", "user", "bot_id", "text", "ts", "thread_ts", "edited", "blocks", "attachments"),
    *("files", "reactions", "room", "message", "users", "count", "name", "id", "elements", "fields"),
    *("title", "profile", "updated", "members", "created", "old_name", "reply_count", "previous_names", "is_private"),
]
WORDS = (
    "",
    "message",
    "message_changed",
    "tombstone",
    "huddle_thread",
    "channel_name",
    "rich_text",
    "section",
    "U0ADA",
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
ROW = {"id": "m1", "channel": "ops", "user": "ada", "ts": "2024-01-01", "text": "hi", "mentions": ["b"]}
TEXT = {"type": "text", "text": "x", "style": {"code": True}}
RICH = said(
    "<@U0ADA> see <https://a.example|docs> `code`",
    thread_ts="1704190000.000100",
    edited={"ts": "1704190060.000000"},
    reactions=[{"name": "wave", "users": ["U0ADA"], "count": 2}],
    files=[{"id": "F1", "name": "a.png", "mimetype": "image/png"}],
    blocks=[
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}]}
    ],
    attachments=[{"title": "card", "text": "words", "fields": [{"title": "a", "value": "b"}]}],
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, item in inside for spot in spots(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = new
    return changed


@st.composite
def mutated(draw: st.DrawFn, original: Any) -> bytes:
    """The JSON with values exchanged anywhere, then perhaps cut, or with some bytes exchanged."""
    value = original
    for _ in range(draw(st.integers(0, 3))):
        value = replaced(value, draw(st.sampled_from(spots(value))), draw(VALUES))
    raw = json.dumps(value).encode()
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, min(len(raw), start + 5)))
    insert = draw(st.binary(max_size=3) | st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"NaN"]))
    return draw(st.sampled_from([raw, raw[:start], raw[:start] + insert + raw[end:]]))


def export(**files: bytes) -> Drawn:
    whole = {
        "users.json": USERS,
        "channels.json": CHANNELS,
        "ops/2024-01-01.json": [said("before", "1704100000.000100")],
        "ops/2024-01-02.json": [],
        "ops/2024-01-03.json": [said("after", "1704276400.000100")],
    } | {name.replace("_json", ".json"): raw for name, raw in files.items()}
    with tempfile.TemporaryDirectory() as folder:
        return drawn("slack-export", zipped(Path(folder) / "export.zip", whole))


@settings(deadline=None)
@given(mutated([said("one"), RICH, said("two", "1704190001.000100")]))
def test_a_damaged_day_file_never_costs_another_day_and_never_stops_the_import(day: bytes) -> None:
    texts = export(**{"ops/2024-01-02_json": day}).texts
    assert (texts[0], texts[-1]) == ("before", "after")


@settings(deadline=None)
@given(mutated(USERS), mutated(CHANNELS))
def test_damaged_lists_never_cost_a_message(users: bytes, channels: bytes) -> None:
    assert export(users_json=users, channels_json=channels).texts == ["before", "after"]


@settings(deadline=None)
@given(
    st.lists(
        mutated({"id": "m1", "channel": "ops", "user": "ada", "ts": "2024-01-01", "text": "hi", "mentions": ["b"]})
    )
)
def test_a_damaged_line_never_costs_another_line(rows: list[bytes]) -> None:
    good = json.dumps({"id": "last", "channel": "ops", "user": "ada", "ts": "2024-01-01T00:00:00Z", "text": "after"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(b"\n".join([*(row.replace(b"\n", b" ") for row in rows), content(good)]))
        assert drawn("jsonl", path).texts[-1:] == ["after"]


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(), LEAVES) | st.lists(st.dictionaries(st.text(), LEAVES))), st.integers(1, 9))
def test_a_list_is_cut_into_its_elements_whatever_the_size_of_the_pieces(items: list[Any], size: int) -> None:
    raw = json.dumps(items).encode()
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert [json.dumps(json.loads(element)) for element in elements(pieces)] == [json.dumps(item) for item in items]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20)))
def test_cutting_garbage_ends_in_one_of_two_ways_at_most(pieces: list[bytes]) -> None:
    with contextlib.suppress(CutShortError, NotAListError):
        list(elements(pieces))


@pytest.mark.parametrize(("name", "file"), [("gitter", "g.json"), ("matrix-element", "m.json"), ("zulip-export", "r")])
def test_a_record_nested_without_end_costs_no_other_and_no_time(tmp_path: Path, name: str, file: str) -> None:
    deep = "[" * 400_000
    if name == "gitter":
        row = '{"id": "1", "text": "hi", "sent": "2024-01-01T00:00:00Z", "fromUser": {"id": "u"}}'
        (tmp_path / file).write_text(f"[{row}, {{{deep}{']' * 400_000}}}, {row.replace('1', '2', 1)}]")
        path = tmp_path / file
    elif name == "matrix-element":
        row = json.dumps({"type": "m.room.message", "event_id": "$1", "room_id": "!r:s", "origin_server_ts": 17e11})
        said = row[:-1] + ', "content": {"msgtype": "m.text", "body": "hi"}}'
        (tmp_path / file).write_text(f'{{"messages": [{said}, {deep}{"]" * 400_000}, {said.replace("$1", "$2")}]}}')
        path = tmp_path / file
    else:
        (tmp_path / file).mkdir()
        path = tmp_path / file
        (path / "realm.json").write_text('{"zerver_recipient": [{"id": 9, "type": 2, "type_id": 3}]}')
        said = '{"id": 1, "sender": 1, "recipient": 9, "content": "hi", "date_sent": 1700000000}'
        rows = f"{said}, {{{deep}{']' * 400_000}}}, {said.replace('1', '2', 1)}"
        (path / "messages-000001.json").write_text(f'{{"zerver_message": [{rows}]}}')
    began = time.process_time()
    read = drawn(name, path)
    assert read.texts == ["hi", "hi"]
    assert read.report.rejected == {"not-json": 1}
    assert time.process_time() - began < 20  # it would take minutes if each bracket looked at all others
