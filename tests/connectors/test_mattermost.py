"""Mattermost's bulk export: lines of one kind each, posts without ids, people known by their usernames."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors.mattermost.export import read, recognises
from streammem.connectors.report import Report
from streammem.errors import SourceError
from streammem.records import MessageEvent
from tests.connectors.faults import named, state_of, written
from tests.connectors.sources import Drawn, drawn, zipped
from tests.connectors.test_any_input import mutated

AT = 1553166657086


def line(kind: str, **inner: Any) -> dict[str, Any]:
    return {"type": kind, kind: inner}


def post(message: str, at: int = AT, **more: Any) -> dict[str, Any]:
    return line("post", **{"team": "red", "channel": "army", "user": "ada", "message": message, "create_at": at} | more)


def user(name: str, *channels: str, team: str = "red", **more: Any) -> dict[str, Any]:
    joined = [{"name": channel, "roles": "channel_user"} for channel in channels]
    return line("user", username=name, teams=[{"name": team, "channels": joined}], **more)


VERSION = {"type": "version", "version": 1}
TEAM = line("team", name="red", display_name="Red", type="O", allow_open_invite=True)
CLOSED = line("team", name="red", display_name="Red", type="O", allow_open_invite=False)
ARMY = line("channel", team="red", name="army", display_name="The Army", type="O")
ADA = user("ada", "army", first_name="Ada", last_name="Quill", nickname="")
BRAM = user("bram.o", "army", nickname="Bram", first_name="Bram", last_name="Osei")
HEAD = [VERSION, TEAM, ARMY, ADA, BRAM]


def bulk(folder: Path, *rows: Any, head: list[Any] | None = None) -> Drawn:
    path = folder / "export.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*(HEAD if head is None else head), *rows)))
    return drawn("mattermost-bulk", path)


def only(read_: Drawn) -> MessageEvent:
    (message,) = read_.messages
    return message


def test_a_post_is_one_message_however_often_it_is_listed(tmp_path: Path) -> None:
    path = written(named("28"), tmp_path)
    state = state_of(drawn("mattermost-bulk", path).events)
    texts = {message.text: message for message in state.values()}
    assert {channel for channel, _ in state} == {"red/army", "dm:ada,bram"}
    assert sorted(texts) == ["@ada hot!", "joined", "psst"]
    assert texts["@ada hot!"].reply_to == texts["joined"].id
    assert [mention.id for mention in texts["@ada hot!"].mentions] == ["ada"]


def test_two_posts_of_one_author_in_one_millisecond_are_two(tmp_path: Path) -> None:
    assert len({message.id for message in bulk(tmp_path, post("one"), post("two"), post("one")).messages}) == 2


def test_a_post_keeps_its_id_from_export_to_export(tmp_path: Path) -> None:
    (first,) = bulk(tmp_path, post("hi")).messages
    (second,) = bulk(tmp_path, post("hi", reactions=None, props={}), head=[VERSION]).messages
    assert first.id == second.id


@pytest.mark.parametrize(
    ("text", "shown", "ids"),
    [
        ("thanks @bram.o.", "thanks @Bram.", ["bram.o"]),
        ("cc:@ada", "cc:@Ada Quill", ["ada"]),
        ("@ADA, look", "@Ada Quill, look", ["ada"]),
        ("mail me: x@ada or ada@bram.o", "mail me: x@ada or ada@bram.o", []),
        ("`@ada` and\n```\n@ada\n```\n", "`@ada` and\n```\n@ada\n```\n", []),
        ("```@ada```", "```@ada```", []),
        ("@nobody @all @here.", "@nobody @all @here.", ["all", "here"]),
        ("see ~army and ~navy", "see #The Army and ~navy", ["red/army"]),
        ("https://a.example/@ada ok", "https://a.example/@ada ok", []),
        ("[the plan](https://a.example/p) (@ada)", "the plan (https://a.example/p) (@Ada Quill)", ["ada"]),
    ],
)
def test_names_are_found_where_people_mean_them(tmp_path: Path, text: str, shown: str, ids: list[str]) -> None:
    message = only(bulk(tmp_path, post(text)))
    assert message.text == shown
    assert [mention.id for mention in message.mentions] == ids


def test_who_only_posts_can_be_mentioned_too(tmp_path: Path) -> None:
    found = bulk(tmp_path, post("hi @cid"), post("yes", AT + 1, user="cid"))
    assert [mention.id for mention in found.messages[0].mentions] == ["cid"]
    assert found.messages[1].sender.kind == "unknown"


def test_replies_reactions_and_files_come_with_their_post(tmp_path: Path) -> None:
    reply = {"user": "bram.o", "message": "yes", "create_at": AT - 70_000, "reactions": None, "edit_at": AT + 5}
    found = bulk(
        tmp_path,
        post(
            "go?",
            replies=[reply, None],
            reactions=[{"user": "bram.o", "create_at": AT + 9, "emoji_name": "tick"}],
            attachments=[{"path": "20240101/teams/plan.PNG"}],
        ),
    )
    root, answer = found.messages
    assert (answer.reply_to, answer.thread_id) == (root.id, root.id)
    assert (answer.version, answer.edited_at) == (str(AT + 5), datetime.fromtimestamp((AT + 5) / 1000, UTC))
    assert [(file.name, file.kind) for file in root.attachments] == [("plan.PNG", "image")]
    assert [(r.name, r.user, r.message) for r in found.reactions] == [("tick", "bram.o", root.id)]
    assert found.report.rejected == {"not-an-object": 1}


@pytest.mark.parametrize("packed", [False, True])
def test_words_of_cards_stand_in_for_a_post_without_words(tmp_path: Path, packed: bool) -> None:
    props: Any = {
        "from_webhook": "true",
        "override_username": "CI",
        "attachments": [
            {"pretext": "Build", "title": "7", "title_link": "https://ci.example/7", "fallback": "no",
             "fields": [{"title": "branch", "value": "main"}]}
        ],
    }  # fmt: skip
    message = only(bulk(tmp_path, post("", props=json.dumps(props) if packed else props)))
    assert (message.text, message.text_source) == ("Build\n7 (https://ci.example/7)\nbranch: main", "attachments")
    assert (message.sender.id, message.sender.name, message.sender.kind) == ("ada", "CI", "bot")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (post("ada joined the channel."), "system"),
        (post("bram.o joined the channel."), "message"),
        (post("bram.o added to the channel by ada."), "system"),
        (post("ada joined the channel.", type=""), "message"),
        (post("ada was here", type="system_join_channel"), "system"),
        (post("", type="custom_calls"), "call"),
        (post("hello", type="custom_poll"), "message"),
    ],
)
def test_what_the_server_says_itself_is_told_by_type_or_wording(tmp_path: Path, row: Any, kind: str) -> None:
    assert only(bulk(tmp_path, row)).kind == kind


def test_direct_conversations_are_known_by_their_members(tmp_path: Path) -> None:
    said = {"user": "ada", "message": "psst", "create_at": AT}
    found = bulk(
        tmp_path,
        line("direct_channel", participants=[{"username": "cid"}, {"username": "ada"}, {"username": "bram.o"}]),
        line("direct_post", channel_members=["cid", "bram.o", "ada"], **said),
        line("direct_post", channel_members=["ada", "ada"], **said),
        line("direct_post", channel_members=[], **said),
        head=[],
    )
    assert {c.id: c.type for c in found.channels} == {"dm:ada,bram.o,cid": "group_dm", "dm:ada": "dm"}
    assert [message.channel.id for message in found.messages] == ["dm:ada,bram.o,cid", "dm:ada"]
    assert {(m.channel, m.user) for m in found.members} == {
        *(("dm:ada,bram.o,cid", name) for name in ("ada", "bram.o", "cid")),
        ("dm:ada", "ada"),
    }
    assert found.report.rejected == {"no-channel": 1}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ([TEAM, ARMY, ADA, user("eve", team="blue")], "public"),  # everybody may join
        ([CLOSED, ARMY, ADA, user("eve", team="blue")], "private"),
        ([CLOSED, ARMY, ADA, user("eve", team="blue", delete_at=1)], "public"),  # everybody has joined
        ([CLOSED, ARMY], "private"),
        ([ARMY, ADA, user("eve", team="blue")], "private"),
        ([TEAM, line("channel", team="red", name="army", type="P"), ADA], "private"),
        ([TEAM, line("channel", team="red", name="army"), ADA], "private"),
    ],
)
def test_a_channel_is_public_only_when_nobody_is_kept_out(tmp_path: Path, head: list[Any], kind: str) -> None:
    found = bulk(tmp_path, head=head)
    assert [channel.type for channel in found.channels] == [kind]
    readers = {member.user for member in found.members if member.channel == "red/army"}
    assert readers == ({"ada"} if kind == "private" and ADA in head else set())


def test_a_guest_reads_public_channels_as_a_member(tmp_path: Path) -> None:
    found = bulk(tmp_path, user("gus", "army", roles="system_guest"))
    assert [(member.channel, member.user) for member in found.members] == [("red/army", "gus")]
    assert {u.id: u.kind for u in found.users}["gus"] == "external"


def test_people_have_all_their_names(tmp_path: Path) -> None:
    found = bulk(tmp_path, line("bot", username="ci", display_name="Builder"), user("old", delete_at=5))
    people = {u.id: (u.name, u.aliases, u.kind, u.present) for u in found.users}
    assert people == {
        "ada": ("Ada Quill", (), "user", True),
        "bram.o": ("Bram", ("Bram Osei",), "user", True),
        "ci": ("Builder", (), "bot", True),
        "old": (None, (), "user", False),
    }


def test_a_post_without_words_is_kept_and_may_open_a_thread(tmp_path: Path) -> None:
    root, reply = bulk(tmp_path, post(" ", replies=[{"user": "bram.o", "message": "?", "create_at": AT + 5}])).messages
    assert (root.text, root.text_source, reply.thread_id) == ("", "none", root.id)


def test_a_newer_export_wins_over_an_older_one(tmp_path: Path) -> None:
    older = bulk(tmp_path, post("hi"))
    newer = bulk(tmp_path, post("hi"), head=[{**VERSION, "info": {"created": "2024-01-01T00:00:00Z"}}, ARMY])
    assert older.channels[0].version == f"{AT // 1000}.{AT % 1000:03d}"
    assert float(newer.channels[0].version) == datetime(2024, 1, 1, tzinfo=UTC).timestamp()


def test_a_long_line_is_read_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    whole = [json.dumps(row) for row in (VERSION, post("x" * 70_000), post("cut", AT + 1))]
    path.write_text("\n".join(whole)[:-20])
    found = drawn("mattermost-bulk", path)
    assert [len(message.text) for message in found.messages] == [65_536]
    assert found.report.rejected == {"not-json": 1}


def test_files_attached_to_posts_are_no_lines_of_the_export(tmp_path: Path) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in (*HEAD, post("hi")))
    path = zipped(tmp_path / "export.zip", {"import.jsonl": lines, "data/1/other.jsonl": lines, "data/a.png": b"x"})
    assert recognises(path)
    found = drawn("mattermost-bulk", path)
    assert found.texts == ["hi"]
    assert found.report.skipped == {"not-a-bulk-file": 2}


def test_other_lines_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "m1", "channel": "ops", "user": "ada", "ts": "2024-01-01", "text": "hi", "type": "post"}\n')
    assert not recognises(path)
    with pytest.raises(SourceError, match=r"rows\.jsonl.*expected a Mattermost"):
        list(read(path, Report()))


ROWS = [
    *HEAD,
    line("channel", team="red", name="navy", display_name="Navy", type="P"),
    post("go @bram.o", replies=[{"user": "bram.o", "message": "in ~navy", "create_at": AT - 5}]),
    post("go @bram.o", AT + 3, edit_at=AT + 9, reactions=[{"user": "ada", "emoji_name": "x", "create_at": AT}]),
    line("direct_post", channel_members=["ada", "bram.o"], user="ada", message="psst @cid", create_at=AT),
    line("direct_channel", members=["ada", "bram.o"], header="us"),
    line("user", username="cid", nickname="Cid"),
]


def state(found: Drawn) -> set[Any]:
    return {msgspec.structs.replace(event, ingest=None) for event in found.events}


@settings(deadline=None, max_examples=40)
@given(st.permutations(ROWS))
def test_the_order_of_lines_changes_nothing(rows: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found, again = (bulk(Path(folder), *order, head=[]) for order in (rows, ROWS))
        assert state(found) == state(again)
        assert state(bulk(Path(folder), *rows, *rows, head=[])) == state(found)


@settings(deadline=None)
@given(st.lists(mutated(ROWS[6]), max_size=3), mutated(ADA), mutated(ROWS[-3]))
def test_a_damaged_line_costs_no_other_line(posts: list[bytes], user_: bytes, direct: bytes) -> None:
    good = json.dumps(post("the last", AT + 99))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        parts = (b'{"type":"version","version":1}', *posts, user_, direct, good.encode())
        path.write_bytes(b"\n".join(part.replace(b"\n", b" ") for part in parts))
        assert drawn("mattermost-bulk", path).texts[-1:] == ["the last"]


@pytest.mark.parametrize("written", ["1700000000000", "1.7e12", "1700000000000.0", '"1700000000000"'])
def test_a_time_that_another_tool_wrote_as_a_float_is_a_time(tmp_path: Path, written: str) -> None:
    post = '"team": "t", "channel": "c", "user": "ada", "message": "hi"'
    (tmp_path / "import.jsonl").write_text(f'{{"type": "post", "post": {{{post}, "create_at": {written}}}}}\n')
    (message,) = drawn("mattermost-bulk", tmp_path / "import.jsonl").messages
    assert message.ts is not None
    assert message.ts.isoformat() == "2023-11-14T22:13:20+00:00"
