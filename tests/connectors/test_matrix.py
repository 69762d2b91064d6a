from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Given, Report
from streammem.connectors.matrix import payloads
from streammem.errors import SourceError
from streammem.records import Attachment, Link, Mention, MessageEvent, TieEvent
from tests.connectors.faults import state_of
from tests.connectors.sources import Drawn, content, drawn, zipped
from tests.connectors.standing import standing
from tests.connectors.test_any_input import mutated

SAMPLE = Path(__file__).parent.parent / "data" / "samples" / "matrix" / "element_export.json"
ROOM, ADA, BRAM = "!room:example.org", "@ada:example.org", "@bram:example.org"
START = 1_704_189_600_000


def event(name: str, kind: str, at: int = 0, sender: str = ADA, **more: Any) -> dict[str, Any]:
    base = {"type": kind, "event_id": name, "sender": sender, "origin_server_ts": START + at, "room_id": ROOM}
    return {**base, "content": {}, **more}


def said(name: str, body: str, at: int = 0, sender: str = ADA, **more: Any) -> dict[str, Any]:
    return event(name, "m.room.message", at, sender, content={"msgtype": "m.text", "body": body, **more})


def related(kind: str, target: str, **more: Any) -> dict[str, Any]:
    return {"m.relates_to": {"rel_type": kind, "event_id": target, **more}}


def edit(name: str, target: str, body: str, at: int, sender: str = ADA, **more: Any) -> dict[str, Any]:
    new = {"msgtype": "m.text", "body": body, **more}
    return said(name, f"* {body}", at, sender, **related("m.replace", target), **{"m.new_content": new})


def reply(target: str) -> dict[str, Any]:
    return {"m.relates_to": {"m.in_reply_to": {"event_id": target}}}


def redaction(name: str, target: str, at: int, sender: str = ADA) -> dict[str, Any]:
    return event(name, "m.room.redaction", at, sender, content={"redacts": target})


def reaction(name: str, target: str, key: str, sender: str = BRAM, at: int = 5) -> dict[str, Any]:
    return event(name, "m.reaction", at, sender, content=related("m.annotation", target, key=key))


def state(name: str, kind: str, said_: dict[str, Any], at: int = 0, key: str = "") -> dict[str, Any]:
    return event(name, kind, at, content=said_, state_key=key)


def member(name: str, user: str, membership: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return state(name, "m.room.member", {"membership": membership, **more}, at, user)


@pytest.fixture
def matrix(tmp_path: Path):
    """Read events as lines."""

    def read(*events: Any, **options: Any) -> Drawn:
        path = tmp_path / "events.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in events))
        return drawn("matrix-element", path, **options)

    return read


def shown(read: Drawn) -> dict[str, str | None]:
    """The words that stand under each id; None for what is deleted."""
    return {name: m.text if m.op == "upsert" else None for (_, name), m in state_of(read.events).items()}


def test_the_sample_is_read_whole() -> None:
    assert payloads.recognises(SAMPLE)
    read = drawn("matrix-element", SAMPLE)
    assert shown(read) == {
        "$c": "",
        "$n": "Ops",
        "$j": "Ada Quill join",
        "$1": "Hello! My name is bar",
        "$2": None,
        "$4": "in thread",
        "$7": "",
        "$8": "",
    }
    by_id = {m.id: m for m in read.messages if m.op == "upsert"}
    assert (by_id["$2"].reply_to, by_id["$2"].text) == ("$1", "yes Ada")
    assert (by_id["$4"].reply_to, by_id["$4"].thread_id) == ("$1", "$1")
    assert by_id["$7"].kind == "encrypted"
    assert by_id["$8"].attachments == (
        Attachment(name="photo.jpg", kind="image", url="mxc://example.org/abc", mime="image/jpeg", size=31037),
    )
    assert [(r.message, r.name, r.user) for r in read.reactions] == [("$1", "👍️", BRAM)]
    assert [(c.name, c.type, c.workspace) for c in read.channels] == [("Ops", "private", "example.org")]
    assert (read.report.read, read.report.rejected.total(), read.report.ignored.total()) == (11, 0, 0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_edits_win_by_their_time_and_keep_what_the_original_said_of_itself(matrix, order: Any) -> None:
    first = said("$1", "deploy at 3", **reply("$0"))
    events = [first, edit("$2", "$1", "deploy at 4", 10), edit("$3", "$1", "deploy at 5", 20)]
    ((_, last),) = state_of(matrix(*(events[i] for i in order)).events).items()
    assert (last.id, last.text, last.reply_to, last.version) == ("$1", "deploy at 5", "$0", str(START + 20))
    assert last.ts is not None
    assert last.edited_at is not None
    assert (last.edited_at - last.ts).total_seconds() == 0.02


def test_an_edit_by_somebody_else_is_none(matrix) -> None:
    read = matrix(said("$1", "mine"), edit("$2", "$1", "yours", 10, BRAM))
    assert (shown(read), read.report.ignored) == ({"$1": "mine"}, {"edit-by-another": 1})


def test_an_edit_of_what_was_never_seen_stands_for_it(matrix) -> None:
    assert shown(matrix(edit("$2", "$1", "all there is", 10))) == {"$1": "all there is"}


def test_an_edit_without_new_content_reads_without_its_star(matrix) -> None:
    bare = said("$2", "* mended", 10, **related("m.replace", "$1"))
    assert shown(matrix(said("$1", "x"), bare)) == {"$1": "mended"}


def test_an_edit_that_cannot_be_decrypted_hides_nothing(matrix) -> None:
    sealed = event("$2", "m.room.encrypted", 10, content=related("m.replace", "$1"))
    unread = said("$3", "** Unable to decrypt **", 20, msgtype="m.bad.encrypted", **related("m.replace", "$1"))
    assert shown(matrix(said("$1", "words"), sealed, unread)) == {"$1": "words"}


def test_an_edit_of_an_edit_is_no_message_of_its_own(matrix) -> None:
    read = matrix(said("$1", "first"), edit("$2", "$1", "second", 10), edit("$3", "$2", "third", 20))
    assert shown(read) == {"$1": "second"}


def test_a_redaction_deletes_for_good_however_it_comes(matrix) -> None:
    emptied = event("$2", "m.room.message", 1, unsigned={"redacted_because": redaction("$r2", "$2", 50)})
    old = event("$r3", "m.room.redaction", 50, redacts="$3")
    read = matrix(said("$1", "a"), edit("$e", "$1", "b", 90), redaction("$r1", "$1", 50), emptied, said("$3", "c"), old)
    assert shown(read) == {"$1": None, "$2": None, "$3": None}
    assert all(m.deleted_at for m in read.messages if m.op == "delete")


@pytest.mark.parametrize("turned", [False, True])
def test_an_edit_taken_back_brings_the_words_before_it_back(matrix, turned: bool) -> None:
    events = [
        said("$1", "first"),
        edit("$2", "$1", "second", 10),
        edit("$3", "$1", "third", 20),
        redaction("$r", "$3", 30),
    ]
    read = matrix(*(reversed(events) if turned else events))
    assert (shown(read), state_of(read.events)[ROOM, "$1"].version) == ({"$1": "second"}, str(START + 30))


def test_a_reaction_taken_back_is_gone_and_deletes_nothing(matrix) -> None:
    read = matrix(
        redaction("$r", "$x", 9, BRAM), said("$1", "a"), reaction("$x", "$1", "👍"), reaction("$y", "$1", "🎉")
    )
    facts = {(r.name, r.version): r.present for r in read.reactions}
    assert facts == {("👍", str(START + 9)): False, ("👍", str(START + 5)): True, ("🎉", str(START + 5)): True}
    assert shown(read) == {"$1": "a"}


def test_a_reply_is_told_without_what_it_answers(matrix) -> None:
    body = f"> <{ADA}> one\n> two\n\n> my own quote\nyes"
    html = '<mx-reply><a href="https://matrix.to/#/@ghost:x">g</a></mx-reply>yes'
    read = matrix(
        said("$2", body, formatted_body=html, **reply("$1")),
        said("$3", "> just a quote\nno reply"),
        said("$4", "> a quote\nyes", **reply("$1")),
    )
    assert shown(read) == {"$2": "> my own quote\nyes", "$3": "> just a quote\nno reply", "$4": "> a quote\nyes"}
    assert read.messages[0].mentions == ()


def test_a_thread_knows_real_replies_from_fallen_back_ones(matrix) -> None:
    inside = {"m.in_reply_to": {"event_id": "$2"}}
    real = said("$3", "b", **related("m.thread", "$1", is_falling_back=False, **inside))
    fallback = said("$4", "c", **related("m.thread", "$1", is_falling_back=True, **inside))
    assert [(m.reply_to, m.thread_id) for m in matrix(real, fallback).messages] == [("$2", "$1"), ("$1", "$1")]


def test_mentions_are_stated_or_linked_and_rooms_too(matrix) -> None:
    links = (
        f'<a href="https://matrix.to/#/{BRAM}">Bram</a> <a href="https://matrix.to/#/%23ops:example.org">ops</a>'
        ' <a href="https://a.example/x?y=1">x</a>'
    )
    stated, linked = matrix(
        said("$1", "hi", formatted_body=links, **{"m.mentions": {"user_ids": [ADA], "room": True}}),
        said("$2", "hi", formatted_body=links),
    ).messages
    room = Mention(type="channel", id="#ops:example.org")
    assert stated.mentions == (Mention(id=ADA), Mention(type="special", id="room"), room)
    assert linked.mentions == (Mention(id=BRAM), room)
    assert linked.links == (Link(url="https://a.example/x?y=1"),)


def test_every_kind_of_message_has_its_words_and_things(matrix) -> None:
    poll = {
        "question": {"org.matrix.msc1767.text": "Lunch?"},
        "answers": [{"id": "1", "org.matrix.msc1767.text": "Soup"}],
    }
    stable = {"question": {"m.text": [{"body": "Tea?"}]}, "answers": [{"m.text": [{"body": "Yes"}]}]}
    read = matrix(
        said("$a", "waves", msgtype="m.emote"),
        said("$b", "build failed", msgtype="m.notice"),
        said("$c", "a caption", msgtype="m.file", filename="a.pdf", file={"url": "mxc://e/1"}, info={"size": 3}),
        said("$d", "here", msgtype="m.location", geo_uri="geo:1,2"),
        event("$e", "m.sticker", content={"body": "Cat", "url": "mxc://e/2"}),
        event("$f", "org.matrix.msc3381.poll.start", content={"org.matrix.msc3381.poll.start": poll}),
        event("$g", "m.poll.start", content={"m.poll.start": stable}),
        said("$h", "** Unable to decrypt **", msgtype="m.bad.encrypted"),
        event("$i", "m.call.invite"),
        said("$j", "whatever", msgtype="org.example.new"),
    )
    assert [(m.text, m.kind, [(a.name, a.kind, a.url) for a in m.attachments]) for m in read.messages] == [
        ("waves", "message", []),
        ("build failed", "message", []),
        ("a caption", "message", [("a.pdf", "file", "mxc://e/1")]),
        ("here", "message", [("location", "other", "geo:1,2")]),
        ("Cat", "message", [("Cat", "sticker", "mxc://e/2")]),
        ("Lunch?\n- Soup", "message", []),
        ("Tea?\n- Yes", "message", []),
        ("", "encrypted", []),
        ("", "call", []),
        ("whatever", "message", []),
    ]
    assert read.messages[1].sender.kind == "bot"


def room_of(matrix: Any, *events: Any) -> Any:
    (channel,) = matrix(*events).channels
    return channel


def rule(name: str) -> dict[str, Any]:
    return state("$rule", "m.room.join_rules", {"join_rule": name})


def past(name: str) -> dict[str, Any]:
    return state("$past", "m.room.history_visibility", {"history_visibility": name})


@pytest.mark.parametrize(
    ("events", "type_"),
    [
        ([rule("public")], "public"),
        ([rule("public"), past("shared")], "public"),
        ([past("world_readable"), rule("public")], "public"),
        ([rule("public"), past("joined")], "private"),
        ([rule("public"), past("brand_new")], "private"),
        ([rule("invite")], "private"),
        ([rule("restricted"), past("shared")], "private"),
        ([past("shared")], "private"),
        ([rule("invite"), member("$m", BRAM, "invite", is_direct=True)], "dm"),
    ],
)
def test_a_room_is_public_only_where_anybody_may_join_and_read(matrix, events: Any, type_: str) -> None:
    assert room_of(matrix, *events).type == type_


@pytest.mark.parametrize(
    ("events", "name"),
    [
        ([], "Bram"),
        ([member("$m", BRAM, "invite", is_direct=True)], None),
        ([member("$m", BRAM, "invite", is_direct=True), state("$n", "m.room.name", {"name": "Launch"})], "Bram"),
    ],
)
def test_a_direct_room_that_nobody_named_is_not_called_as_element_shows_it(matrix, events: Any, name: Any) -> None:
    read = matrix({"room_name": "Bram", "messages": [said("$1", "hi"), *events]})
    assert next(m for m in read.messages if m.id == "$1").channel.name == name


def test_a_room_has_the_state_that_was_set_last_whatever_the_order(matrix) -> None:
    room = room_of(
        matrix,
        state("$n2", "m.room.name", {"name": "Ops"}, 20),
        state("$n1", "m.room.name", {"name": "Old"}, 10),
        state("$a", "m.room.canonical_alias", {"alias": "#ops:example.org", "alt_aliases": ["#o:example.org"]}),
        state("$t", "m.room.topic", {"topic": "All of it"}),
        state("$p", "m.space.parent", {"via": ["example.org"], "canonical": True}, key="!space:example.org"),
        state("$q", "m.space.parent", {}, key="!aaa:example.org"),
        rule("public"),
    )
    assert (room.name, room.type, room.topic, room.parent_id) == ("Ops", "public", "All of it", "!space:example.org")
    assert (room.aliases, room.version) == (("#ops:example.org", "#o:example.org"), "1704189600.020")


def test_members_come_and_go_and_an_invitation_opens_nothing(matrix) -> None:
    read = matrix(
        member("$1", ADA, "join", displayname="Ada Quill"),
        member("$2", BRAM, "invite", 1, displayname="Bram"),
        member("$3", ADA, "leave", 2),
        member("$4", BRAM, "ban", 3),
    )
    assert [(m.user, m.present) for m in read.members] == [(ADA, True), (ADA, False), (BRAM, False)]
    assert [(u.id, u.name, u.aliases) for u in read.users] == [(ADA, "Ada Quill", ("ada",)), (BRAM, "Bram", ("bram",))]


def test_a_room_that_moved_is_one_with_its_successor(matrix) -> None:
    (tie,) = matrix(state("$t", "m.room.tombstone", {"body": "moved", "replacement_room": "!new:example.org"})).of(
        TieEvent
    )
    assert (tie.entity, tie.id, tie.same_as) == ("channel", "!new:example.org", ROOM)


def test_pages_and_sync_and_lists_are_read_like_lines(tmp_path: Path) -> None:
    plain = said("$1", "hello")
    without_room = {key: value for key, value in plain.items() if key != "room_id"}
    joined = {ROOM: {"state": {"events": []}, "timeline": {"events": [without_room]}}}
    for written in ({"chunk": [plain]}, {"rooms": {"join": joined}}, [plain], {"events": [plain]}, plain):
        path = tmp_path / "page.json"
        path.write_text(json.dumps(written))
        assert [(m.channel.id, m.text) for m in drawn("matrix-element", path).messages] == [(ROOM, "hello")]


def test_an_export_is_read_out_of_its_zip(tmp_path: Path) -> None:
    packed = zipped(tmp_path / "export.zip", {"export.json": SAMPLE.read_bytes(), "images/photo.jpg": b"x"})
    assert payloads.recognises(packed)
    assert len(drawn("matrix-element", packed).messages) == len(drawn("matrix-element", SAMPLE).messages)


def test_a_given_room_and_workspace_stand_in(matrix) -> None:
    row = said("$1", "hello")
    del row["room_id"]
    (message,) = matrix(row, channel="!given:x", workspace="acme").messages
    assert (message.channel.id, message.workspace) == ("!given:x", "acme")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**said("$", "x"), "event_id": 5}, "no-event_id"),
        ({**said("$", "x"), "type": None}, "no-type"),
        ({**said("$", "x"), "room_id": ""}, "no-channel"),
        ({**said("$", "x"), "origin_server_ts": 2**52}, "bad-timestamp"),
        ({**said("$", "x"), "origin_server_ts": None}, "bad-timestamp"),
        (5, "not-an-object"),
        (event("$", "m.room.redaction"), "no-target"),
    ],
)
def test_a_bad_event_is_refused_with_its_line(matrix, bad: Any, reason: str) -> None:
    read = matrix(said("$1", "before"), bad, said("$2", "after"))
    assert read.texts == ["before", "after"]
    assert [(r.reason, r.origin) for r in read.report.refusals] == [(reason, "events.jsonl#2")]


def test_what_a_redaction_has_left_and_what_is_not_said_is_ignored(matrix) -> None:
    left = event("$1", "m.room.message")
    read = matrix(left, event("$2", "m.call.hangup"), event("$3", "m.receipt"), event("$4", "m.reaction"))
    assert read.events == []
    assert read.report.ignored == {"empty": 1, "signal": 1, "other-type": 1, "no-target": 1}


@pytest.mark.parametrize("content", [{"msgtype": "m.text", "body": " "}, {"msgtype": "m.text"}, {"body": 5}])
def test_a_message_without_words_is_kept(matrix, content: dict[str, Any]) -> None:
    (message,) = matrix(event("$1", "m.room.message", content=content)).messages
    assert (message.id, message.kind, message.text, message.text_source) == ("$1", "message", "", "none")


def test_what_is_no_matrix_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text('{"ok": true, "messages": [{"type": "message", "ts": "1.2", "text": "x"}]}')
    (tmp_path / "notes.txt").write_text("hello")
    assert not payloads.recognises(tmp_path / "page.json")
    assert not payloads.recognises(tmp_path / "notes.txt")
    with pytest.raises(SourceError, match=r"notes.txt: [^\n]+; expected Matrix events"):
        list(payloads.read(tmp_path / "notes.txt", Report()))


ALL = [
    said("$1", "first", **reply("$0")),
    edit("$2", "$1", "second", 10),
    edit("$3", "$1", "third", 20),
    edit("$4", "$1", "not mine", 25, BRAM),
    redaction("$r1", "$3", 30),
    said("$5", "gone", 1),
    redaction("$r2", "$5", 31),
    reaction("$6", "$1", "👍"),
    redaction("$r3", "$6", 32, BRAM),
    rule("public"),
    state("$n", "m.room.name", {"name": "Ops"}, 3),
    member("$m", ADA, "join", displayname="Ada"),
    member("$l", ADA, "leave", 7, displayname="Ada"),
]


def read_lines(rows: list[Any]) -> Drawn:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "events.jsonl"
        path.write_bytes(
            b"\n".join(row.replace(b"\n", b" ") if isinstance(row, bytes) else content(row) for row in rows)
        )
        return drawn("matrix-element", path)


@settings(deadline=None)
@given(st.permutations(ALL))
def test_the_order_of_events_changes_nothing_that_stands(rows: list[Any]) -> None:
    assert standing(read_lines(rows).events) == standing(read_lines(ALL).events)


def test_a_second_reading_gives_the_same_again() -> None:
    first, second = (list(payloads.read(SAMPLE, Report(), Given())) for _ in range(2))
    assert first == second


@settings(deadline=None)
@given(st.lists(st.sampled_from(ALL).flatmap(mutated), max_size=4))
def test_damaged_events_never_cost_another(rows: list[bytes]) -> None:
    last = {**said("$last", "after"), "room_id": "!unharmed:x"}
    read = read_lines([*rows, last])
    assert [m.text for m in read.messages if m.channel.id == "!unharmed:x"] == ["after"]


@settings(deadline=None)
@given(mutated(json.loads(SAMPLE.read_text())))
def test_a_damaged_export_is_accounted_for(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "export.json"
        path.write_bytes(raw)
        assert all(isinstance(m, MessageEvent) for m in drawn("matrix-element", path).messages)


@pytest.mark.parametrize("piece", ["<mx-reply>", "<a ", "<a href='x://", 'href="https://matrix.to/#/', "<a href"])
def test_html_made_to_be_slow_is_not(matrix, piece: str) -> None:
    message = said("$1", "hi", 1)
    message["content"] |= {"formatted_body": piece * (400_000 // len(piece))}
    began = time.process_time()
    assert shown(matrix(message)) == {"$1": "hi"}
    assert time.process_time() - began < 10  # minutes, where each piece looks for its end through all others


def test_a_message_that_was_edited_thousands_of_times_takes_no_longer_for_it(matrix) -> None:
    edits = [edit(f"$e{n}", "$1", f"{n} done", n + 2) for n in range(6000)]
    began = time.process_time()
    assert shown(matrix(said("$1", "0 done", 1), *edits)) == {"$1": "5999 done"}
    assert time.process_time() - began < 10


def test_a_quotation_in_html_names_nobody_and_what_follows_it_does(matrix) -> None:
    pill = '<a href="https://matrix.to/#/{}">x</a>'
    message = said("$2", "hi", 2)
    message["content"] |= reply("$1") | {
        "formatted_body": f"<MX-Reply>{pill.format(ADA)}</mx-reply> {pill.format(BRAM)} <a href='https://a.example'>a</a>"
    }
    (read,) = matrix(message).messages
    assert read.mentions == (Mention(id=BRAM),)
    assert read.links == (Link(url="https://a.example"),)


def test_lines_of_events_may_be_called_json(tmp_path: Path) -> None:
    rows = [said("$1", "one", 1), said("$2", "two", 2), "not an event", said("$3", "three", 3)]
    (tmp_path / "events.json").write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    assert payloads.recognises(tmp_path / "events.json")
    read = drawn("matrix-element", tmp_path / "events.json")
    assert read.texts == ["one", "two", "three"]
    assert read.report.read == 4
