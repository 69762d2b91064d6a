from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Report, gitter
from streammem.errors import SourceError
from streammem.records import ChannelRef, Link, Mention
from tests.connectors.sources import Drawn, drawn, zipped
from tests.connectors.standing import standing
from tests.connectors.test_any_input import mutated

ADA = {"id": "a1", "username": "ada", "displayName": "Ada Quill", "v": 3}
BRAM = {"id": "b1", "username": "bram", "displayName": "bram", "v": 1}


def said(name: str = "m1", text: str = "hello", author: Any = ADA, **more: Any) -> dict[str, Any]:
    return {"id": name, "text": text, "html": text, "sent": "2016-06-02T20:54:38.747Z", "fromUser": author, **more}


@pytest.fixture
def room(tmp_path: Path):
    """Read the messages of a room."""

    def read(*messages: Any, **options: Any) -> Drawn:
        path = tmp_path / "lobby.json"
        path.write_text(json.dumps(messages))
        assert gitter.recognises(path)
        return drawn("gitter", path, **options)

    return read


def test_a_message_has_its_author_time_and_room(room) -> None:
    read = room(said(), said("m2", "hi", BRAM), said("m3"))
    first = read.messages[0]
    assert (first.channel, first.sender.id, first.workspace) == (ChannelRef(id="lobby", name="lobby"), "a1", "gitter")
    assert first.ts is not None
    assert (first.ts.isoformat(), first.version) == ("2016-06-02T20:54:38.747000+00:00", "0")
    assert [(u.id, u.name, u.aliases, u.version) for u in read.users] == [
        ("a1", "Ada Quill", ("ada",), "3"),
        ("b1", "bram", (), "1"),
    ]
    assert any("private" in note for note in read.report.notes)


def test_a_given_room_stands_in_for_the_name_of_the_file(room) -> None:
    assert room(said(), channel="org/lobby", workspace="acme").messages[0].channel.id == "org/lobby"


def test_mentions_replies_links_and_edits_are_told(room) -> None:
    mentions = [
        {"screenName": "bram", "userId": "b1"},
        {"screenName": "stranger", "userId": None},
        {"screenName": "all", "group": True, "userIds": []},
        {"screenName": "core", "group": True, "userIds": ["c1", "c2"]},
    ]
    (message,) = room(
        said(mentions=mentions, parentId="m0", editedAt="2016-06-02T20:55:00Z", urls=[{"url": "https://a.example"}, {}])
    ).messages
    assert message.mentions == (
        Mention(id="b1", label="bram"),
        Mention(id="stranger", label="stranger"),
        Mention(type="special", id="all"),
        Mention(id="c1"),
        Mention(id="c2"),
    )
    assert (message.reply_to, message.thread_id, message.links) == ("m0", "m0", (Link(url="https://a.example"),))
    assert (message.version, message.edited_at is not None) == ("1464900900000", True)


def test_what_was_emptied_is_ignored_and_what_has_no_author_is_kept(room) -> None:
    read = room(said("m1", ""), said("m2", "x", None))
    assert (read.report.ignored, [m.sender.kind for m in read.messages]) == ({"empty": 1}, ["unknown"])


@pytest.mark.parametrize(
    ("bad", "reason"), [(said(name=""), "no-id"), (said(sent=None), "bad-timestamp"), (5, "not-an-object")]
)
def test_a_bad_message_is_refused_with_its_place(room, bad: Any, reason: str) -> None:
    read = room(said("a"), bad, said("b"))
    assert [m.id for m in read.messages] == ["a", "b"]
    assert [(r.reason, r.origin) for r in read.report.refusals] == [(reason, "lobby.json#1")]


def test_a_folder_or_zip_has_a_room_in_each_file(tmp_path: Path) -> None:
    files = {"a.json": [said()], "b.json": [said()], "readme.md": "x"}
    read = drawn("gitter", zipped(tmp_path / "rooms.zip", files))
    assert ([m.channel.id for m in read.messages], read.report.skipped) == (["a", "b"], {"not-json": 1})


def test_what_is_no_gitter_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"id": "1", "text": "x"}]')
    (tmp_path / "notes.txt").write_text("hello")
    assert not gitter.recognises(tmp_path / "rows.json")
    assert not gitter.recognises(tmp_path / "absent.json")
    with pytest.raises(SourceError, match=r"notes.txt: [^\n]+; expected a Gitter export"):
        list(gitter.read(tmp_path / "notes.txt", Report()))


ALL = [
    said(),
    said(text="edited", editedAt="2016-06-02T20:55:00Z"),
    said("m2", "hi", BRAM),
    said("m3", "x", {**ADA, "v": 4, "displayName": "A."}),
]


def read_list(raw: bytes) -> Drawn:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "lobby.json"
        path.write_bytes(raw)
        return drawn("gitter", path)


@settings(deadline=None)
@given(st.permutations(ALL))
def test_the_order_of_messages_changes_nothing_that_stands(rows: list[Any]) -> None:
    assert standing(read_list(json.dumps(rows).encode()).events) == standing(read_list(json.dumps(ALL).encode()).events)


def test_a_second_reading_gives_the_same_again() -> None:
    raw = json.dumps(ALL).encode()
    assert read_list(raw).events == read_list(raw).events


@settings(deadline=None)
@given(mutated(ALL))
def test_a_damaged_export_is_accounted_for(raw: bytes) -> None:
    read_list(raw)
