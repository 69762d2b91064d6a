from __future__ import annotations

import gzip
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Report, jsonl, recognise
from streammem.core.events import TEXT_LIMIT, encode, micros
from streammem.errors import SourceError
from streammem.records import (
    AttributeEvent,
    ChannelRef,
    ErasureEvent,
    Event,
    GroupEvent,
    MessageEvent,
    TieEvent,
    UserEvent,
)
from tests.connectors.sources import Drawn, content, drawn
from tests.connectors.standing import standing
from tests.connectors.test_any_input import mutated

DATA = Path(__file__).parent.parent / "data"


def row(message: str = "m1", **more):
    return {"id": message, "channel": "ops", "user": "ada", "ts": "2024-03-01T10:00:00Z", "text": "hello", **more}


def folder(path: Path, **files) -> Path:
    for name, rows in files.items():
        (path / f"{name}.jsonl").write_bytes(b"".join(content(item) + b"\n" for item in rows))
    return path


def test_a_plain_row_is_a_message_in_a_public_channel_by_somebody_of_that_name(lines) -> None:
    (message,) = lines(row(reply_to="m0", thread="topic", mentions=["bram", "bram", "cleo"], surprise=1)).messages
    assert message.channel == ChannelRef(id="ops", type="public")
    assert (message.sender.id, message.sender.name, message.workspace) == ("ada", "ada", "rows")
    assert (message.reply_to, message.thread_id, message.version) == ("m0", "topic", "0")
    assert [mention.id for mention in message.mentions] == ["bram", "cleo"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2024-03-01T10:00:00Z", datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("2024-03-01T10:00:00.123456", datetime(2024, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2024-03-01 11:00:00+01:00", datetime(2024, 3, 1, 10, tzinfo=UTC)),
        (1709287200, datetime(2024, 3, 1, 10, tzinfo=UTC)),
        (1709287200000, datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("1709287200.000200", datetime(2024, 3, 1, 10, 0, 0, 200, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_in_utc_to_the_microsecond(lines, written, read) -> None:
    assert lines(row(ts=written)).messages[0].ts == read


def test_a_number_with_a_fraction_is_an_exact_time(lines) -> None:
    (message,) = lines(b'{"id": 7, "channel": "ops", "user": "ada", "ts": 1709287200.000389, "text": "x"}').messages
    assert message.ts is not None
    assert (message.id, micros(message.ts)) == ("7", 1709287200000389)


def test_rows_without_a_time_take_the_order_of_their_workspace(lines) -> None:
    rows = [
        row("a", ws="w1"),
        row("b", ws="w2"),
        row("c", ws="w1"),
        row("d", ws="w2", ts="2024-01-01"),
        row("e", ws="w2"),
    ]
    for index in (0, 1, 2, 4):
        del rows[index]["ts"]
    times = {message.id: message.ts.isoformat()[:19] for message in lines(*rows).messages}
    assert times == {
        "a": "2000-01-01T00:00:00",
        "b": "2000-01-01T00:00:00",
        "c": "2000-01-01T00:00:01",
        "d": "2024-01-01T00:00:00",
        "e": "2024-01-01T00:00:01",
    }


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not-json"),
        ("[1]", "not-an-object"),
        (row(ts="yesterday"), "bad-timestamp"),
        (row(ts="0001-01-01T00:00:00+14:00"), "bad-timestamp"),
        ({**row(), "id": None}, "no-id"),
        ({**row(), "channel": ""}, "no-channel"),
        ({**row(), "text": 5}, "no-text"),
        ({"event": "party", "id": "x"}, "invalid-event"),
        ({"op": "upsert", "tenant": "T", "id": "x"}, "invalid-event"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_the_rest_is_kept(lines, bad, reason: str) -> None:
    read = lines(row("before"), bad, row("after"))
    assert [message.id for message in read.messages] == ["before", "after"]
    assert [(refusal.reason, refusal.origin) for refusal in read.report.refusals] == [(reason, "rows.jsonl#2")]


def test_blank_lines_are_nothing_and_blank_messages_are_kept(lines) -> None:
    canonical = {"op": "upsert", "tenant": "T", "channel": {"id": "C"}, "id": "2", "ts": "2024-01-01T00:00:00Z"}
    read = lines(b"", b"  \r", row(text=" "), canonical)
    assert [(m.text, m.text_source) for m in read.messages] == [("", "none")] * 2
    assert read.report.read == 2


def test_a_bom_crlf_and_a_very_long_line_do_no_harm(lines) -> None:
    text = "=" * 3_000_000
    first, second = content(row("first")), content(row("second", text=text))
    assert lines(b"\xef\xbb\xbf" + first + b"\r", second + b"\r").texts == ["hello", text[:TEXT_LIMIT]]


def test_canonical_events_are_read_as_they_stand(lines) -> None:
    said = MessageEvent(
        workspace="W", channel=ChannelRef(id="C1"), id="m1", ts=datetime(2024, 1, 1, tzinfo=UTC), text="hi"
    )
    user = UserEvent(workspace="W", id="U1", name="Ada", version="7")
    assert lines(encode(user), encode(said), row()).events[:2] == [user, said]


def test_the_examples_of_the_schema_proposal_are_read() -> None:
    read = drawn("jsonl", DATA / "canonical-examples.jsonl")
    assert [(m.workspace[:5], m.op, m.source) for m in read.messages] == [
        ("T0001", "upsert", "slack"),
        ("99999", "upsert", "teams"),
        ("T0001", "delete", "slack"),
    ]


def test_words_of_open_lists_that_nobody_knows_read_as_unknown(lines) -> None:
    line = {
        "op": "upsert",
        "tenant": "T",
        "id": "1",
        "ts": "2024-01-01T00:00:00Z",
        "text": "hi",
        "kind": "telepathy",
        "channel": {"id": "C", "type": "holodeck"},
        "sender": {"id": "U", "kind": "android"},
        "attachments": [{"name": "Earl Grey, hot", "kind": "replica"}],
        "reactions": [{"name": "wave", "users": ["U2"], "count": 3}],
    }
    read = lines(line)
    (message,) = read.messages
    assert (message.channel.type, message.sender.kind) == ("unknown", "unknown")
    assert (message.kind, message.attachments[0].kind) == ("message", "other")
    assert [(reaction.user, reaction.count) for reaction in read.reactions] == [("U2", 1), ("", 2)]


def test_null_is_absent_in_a_canonical_event_as_it_is_in_every_payload(lines) -> None:
    line: dict[str, object] = {"op": "upsert", "tenant": "T", "id": "1", "ts": "2024-01-01T00:00:00Z", "text": "hi"}
    line |= dict.fromkeys(
        ("kind", "version", "mentions", "attachments", "forwarded", "text_source", "broadcast", "ext")
    )
    line |= {
        "channel": {"id": "C", "type": None},
        "sender": {"id": "U", "kind": None},
        "links": [{"url": "u", "label": None}],
    }
    (message,) = lines(line).messages
    assert (message.text, message.kind, message.sender.kind, message.version) == ("hi", "message", "user", "0")
    assert message.links[0].url == "u"


def test_our_own_sample_of_plain_rows_is_read() -> None:
    read = drawn("jsonl", DATA / "plain-rows.jsonl", workspace="acme")
    assert [(m.id, m.workspace, m.reply_to) for m in read.messages] == [
        ("m1", "acme", None),
        ("m2", "acme", "m1"),
        ("m3", "acme", None),
    ]
    assert (read.messages[-1].text, read.messages[-1].text_source) == ("", "none")


def test_a_folder_gives_its_directory_before_its_messages(tmp_path: Path) -> None:
    users = [
        {"id": "U1", "name": "Ada", "aliases": ["Ada", "@a"], "role": "cto", "title": "CTO", "manager": "U0", "tz": -5}
    ]
    channels = [{"id": "C1", "name": "ops", "private": True, "members": ["U1"], "aliases": ["operations"]}]
    messages = [row(channel="C1", user="U1", ws="acme"), row("m2", channel="C2", user="U2", ws="acme")]
    read = drawn("jsonl", folder(tmp_path, users=users, channels=channels, messages=messages))
    user, channel, member, listed, stranger = read.events
    assert (user.workspace, user.version, user.aliases, user.timezone) == ("acme", "1", ("@a",), "UTC-05:00")
    assert (channel.type, channel.name, channel.aliases, channel.version) == ("private", "ops", ("operations",), "1")
    assert (member.channel, member.user) == ("C1", "U1")
    assert (listed.channel, listed.sender.name) == (ChannelRef(id="C1"), None)
    assert (stranger.channel.type, stranger.sender.name) == ("unknown", "U2")


def test_a_channel_that_does_not_say_whether_it_is_private_is_not_public(tmp_path: Path) -> None:
    assert drawn("jsonl", folder(tmp_path, channels=[{"id": "C1"}], messages=[row()])).channels[0].type == "unknown"


def test_a_role_that_only_rows_tell_is_told_once(lines) -> None:
    (user,) = lines(row("a", role="nurse", user_id="N1"), row("b", role="nurse", user_id="N1")).users
    assert (user.id, user.name, user.role) == ("N1", "ada", "nurse")


def test_a_given_workspace_stands_in_only_where_a_row_names_none(lines) -> None:
    read = lines(row("a"), row("b", ws="own"), workspace="acme")
    assert [message.workspace for message in read.messages] == ["acme", "own"]
    assert read.report.notes == ["rows that name their own workspace stay in it: own"]


def test_merged_workspaces_are_channels_of_one(tmp_path: Path) -> None:
    path = folder(tmp_path, messages=[row("a", ws="w1"), row("b", ws="w2")], channels=[{"id": "ops", "private": True}])
    report = Report()
    messages = [event for event in jsonl.read(path, report, merged="*") if isinstance(event, MessageEvent)]
    assert [(m.workspace, m.channel) for m in messages] == [
        ("*", ChannelRef(id="w1", type="public")),
        ("*", ChannelRef(id="w2", type="public")),
    ]
    assert report.ignored == {"merged-channel": 1}


def test_a_packed_file_that_breaks_off_gives_the_lines_before(tmp_path: Path) -> None:
    rows = b"".join(content(row(f"m{n}", text=f"{n * 7919 % 10007} words")) + b"\n" for n in range(20_000))
    path = tmp_path / "messages.jsonl.gz"
    path.write_bytes(gzip.compress(rows)[:-2000])
    report = Report()
    read = list(jsonl.read(path, report))
    assert 10_000 < len(read) < 20_000
    assert report.rejected["truncated-file"] == 1


@pytest.mark.parametrize("name", ["absent.jsonl", "notes.txt", "plain.jsonl.gz", "nothing-in-here"])
def test_what_holds_no_json_lines_is_refused_in_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "plain.jsonl.gz").write_text(json.dumps(row()))
    (tmp_path / "nothing-in-here").mkdir()
    with pytest.raises(SourceError, match=rf"{name}: [^\n]+; expected JSON lines"):
        list(jsonl.read(tmp_path / name, Report()))


def test_json_lines_are_recognised(tmp_path: Path) -> None:
    assert recognise(folder(tmp_path, messages=[row()])) == "jsonl"
    assert recognise(tmp_path / "messages.jsonl") == "jsonl"
    assert recognise(tmp_path / "messages.txt") is None
    (tmp_path / "backup.tar.gz").write_bytes(b"")
    assert recognise(tmp_path / "backup.tar.gz") is None


def test_events_of_every_kind_are_read_as_they_stand(lines) -> None:
    events: list[Event] = [
        GroupEvent(workspace="W", id="S1", name="ops", members=("U1",), version="3"),
        AttributeEvent(workspace="W", entity="channel", id="C1", attribute="name", value="new", version="4"),
        TieEvent(workspace="W", entity="user", id="U1", same_as="U2", version="5"),
    ]
    assert lines(*map(encode, events)).events == events


@pytest.mark.parametrize(
    "line",
    [
        encode(ErasureEvent(workspace="W", entity="user", id="U1")),
        b'{"event":"erasure", "workspace":"W","entity":"user","id":"U1","\\ud800":1}',
    ],
)
def test_no_file_can_erase(lines, line: bytes) -> None:
    read = lines(line, row())
    assert (read.texts, read.report.rejected) == (["hello"], {"not-importable": 1})


def test_a_given_channel_stands_in_where_a_row_names_none(lines) -> None:
    bare = row("a")
    del bare["channel"]
    assert [m.channel.id for m in lines(bare, row("b"), channel="given").messages] == ["given", "ops"]


def test_an_edit_that_leaves_no_words_deletes_the_message(lines) -> None:
    said, emptied = lines(row("a"), row("a", text=" ", edited_at="2024-03-01T10:01:00Z")).messages
    assert (said.op, emptied.op, emptied.id, emptied.version) == ("upsert", "delete", "a", "1709287260000")


def test_a_row_may_tell_its_edit_its_kind_its_channel_and_a_name(lines) -> None:
    edited = "2024-03-01T10:01:00Z"
    first, second, third, fourth = lines(
        row("a", edited_at=edited, name="Ada Quill", private=True, channel_name="Operations"),
        row("b", version="7", edited_at=edited, type="dm"),
        row("c", type="system", mentions=["bram"]),
        row("d", edited_at="soon", kind="party", type="party"),
    ).messages
    assert (first.version, first.edited_at) == ("1709287260000", datetime(2024, 3, 1, 10, 1, tzinfo=UTC))
    assert (first.sender.name, first.channel) == ("Ada Quill", ChannelRef(id="ops", name="Operations", type="private"))
    assert (second.version, second.channel.type) == ("7", "dm")
    assert (third.kind, third.mentions, third.channel.type) == ("system", (), "unknown")
    assert (fourth.kind, fourth.version, fourth.edited_at) == ("message", "0", None)


def test_a_list_is_read_like_lines(tmp_path: Path) -> None:
    user = UserEvent(workspace="W", id="U1", name="Ada")
    written = b"\xef\xbb\xbf" + json.dumps([row(), json.loads(encode(user)), 5, row("m2", ts="x")]).encode()
    path = tmp_path / "rows.json"
    path.write_bytes(written)
    report = Report()
    events = list(jsonl.read(path, report))
    assert [type(event) for event in events] == [MessageEvent, UserEvent]
    assert [(r.reason, r.origin) for r in report.refusals] == [
        ("not-an-object", "rows.json#2"),
        ("bad-timestamp", "rows.json#3"),
    ]


def test_lines_may_be_called_json_and_a_folder_may_hold_lists(tmp_path: Path) -> None:
    (tmp_path / "messages.json").write_bytes(content(row()) + b"\n" + content(row("m2")))
    (tmp_path / "users.json").write_text(json.dumps([{"id": "ada", "name": "Ada Quill"}]))
    assert jsonl.recognises(tmp_path)
    read = drawn("jsonl", tmp_path)
    assert ([u.name for u in read.users], [m.id for m in read.messages]) == (["Ada Quill"], ["m1", "m2"])


def test_a_json_file_of_something_else_is_not_recognised(tmp_path: Path) -> None:
    for number, other in enumerate(([], [{"id": "1", "text": "x"}], {"ok": True}, "words", 5)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(other))
        assert not jsonl.recognises(path)
    with pytest.raises(SourceError, match=r"4.json: [^\n]+; expected JSON lines"):
        list(jsonl.read(tmp_path / "4.json", Report()))


ALL = [
    row(),
    row(text="edited", edited_at="2024-03-01T10:01:00Z"),
    row("m2", user="bram", role="cto"),
    row("m3", user="bram", role="ceo"),
    row("m4", user="bram", ws="other", type="private"),
    json.loads(encode(GroupEvent(workspace="W", id="S1", version="3"))),
]


def read_rows(rows: list[Any]) -> Drawn:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "rows.json"
        path.write_bytes(json.dumps(rows).encode() if isinstance(rows, list) else rows)
        return drawn("jsonl", path, workspace="W")


@settings(deadline=None)
@given(st.permutations(ALL))
def test_the_order_of_rows_changes_nothing_that_stands(rows: list[Any]) -> None:
    assert standing(read_rows(rows).events) == standing(read_rows(ALL).events)


def test_a_second_reading_gives_the_same_again() -> None:
    assert read_rows(ALL).events == read_rows(ALL).events


@settings(deadline=None)
@given(mutated(ALL).filter(lambda raw: raw.lstrip()[:1] in (b"[", b"{", b"")))
def test_a_damaged_list_is_accounted_for(raw: Any) -> None:
    read_rows(raw)


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ({"private": "true"}, "private"),
        ({"private": 1}, "private"),
        ({"private": "Y"}, "private"),
        ({"is_private": True}, "private"),
        ({"channel_type": "im"}, "private"),
        ({"channel_type": "DM"}, "dm"),
        ({"type": "private_channel"}, "private"),
        ({"type": "P"}, "private"),
        ({"visibility": "team only"}, "unknown"),
        ({"type": "public", "private": True}, "private"),
        ({"type": "public", "channel_type": "dm"}, "dm"),
        ({"private": "false"}, "public"),
        ({"private": 0}, "public"),
        ({"private": None}, "public"),
        ({"visibility": "Public"}, "public"),
        ({"channel_type": "channel"}, "public"),
        ({"type": "message"}, "public"),
    ],
)
def test_a_channel_is_not_public_where_a_row_says_so_in_whatever_words(lines, stated: Any, kind: str) -> None:
    assert lines(row("a", **stated)).messages[0].channel.type == kind


def test_a_packed_file_that_unpacks_out_of_all_proportion_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(content(row("a")) + (b" " * (1 << 20) + b"\n") * 20))
    read = drawn("jsonl", path)
    assert read.texts == [row("a")["text"]]
    assert read.report.rejected == {"truncated-file": 1}


@pytest.mark.parametrize("turned", [False, True])
def test_a_row_that_says_nothing_opens_no_channel_that_another_row_calls_private(lines, turned: bool) -> None:
    rows = [row("a"), row("b", private=True), row("c"), row("d", channel="all")]
    read = lines(*(rows[::-1] if turned else rows))
    kinds = {message.id: message.channel.type for message in read.messages}
    assert kinds == {"a": "unknown", "b": "private", "c": "unknown", "d": "public"}
