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
from streammem.connectors.rocketchat import dump
from streammem.connectors.rocketchat.mongo import moment_of
from streammem.errors import SourceError
from streammem.records import Attachment, AttributeEvent, Forwarded, Link
from tests.connectors.faults import check
from tests.connectors.sources import Drawn, content, drawn, zipped
from tests.connectors.standing import standing
from tests.connectors.test_any_input import mutated

SAMPLE = Path(__file__).parent.parent / "data" / "samples" / "rocketchat"
ADA, BRAM = {"_id": "uAda", "username": "ada"}, {"_id": "uBram", "username": "bram"}
USERS = [
    {**ADA, "name": "Ada Quill", "type": "user", "active": True, "utcOffset": -5, "services": {"password": "secret"}},
    {**BRAM, "name": "Bram Osei", "active": False},
    {"_id": "rocket.cat", "username": "rocket.cat", "type": "bot"},
]
ROOMS = [{"_id": "GENERAL", "t": "c", "name": "general"}, {"_id": "rOps", "t": "p", "name": "ops"}]


def date(seconds: float) -> dict[str, int]:
    return {"$date": 1_704_189_600_000 + round(seconds * 1000)}


def said(name: str = "m1", msg: str = "hello", at: float = 0, **more: Any) -> dict[str, Any]:
    return {"_id": name, "rid": "GENERAL", "msg": msg, "ts": date(at), "u": ADA, "_updatedAt": date(at), **more}


def lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def folder(path: Path, **collections: Any) -> Path:
    for name, rows in collections.items():
        (path / (name if name == "users" else f"rocketchat_{name}")).with_suffix(".json").write_text(lines(rows))
    return path


@pytest.fixture
def rocket(tmp_path: Path):
    """Read messages, with users and rooms beside them unless said otherwise."""

    def read(*messages: Any, users: Any = USERS, room: Any = ROOMS, **collections: Any) -> Drawn:
        return drawn("rocketchat-mongo", folder(tmp_path, message=messages, users=users, room=room, **collections))

    return read


def test_the_fault_of_this_product_has_its_right_result(tmp_path: Path) -> None:
    check("30", tmp_path, dump.read)


def test_the_sample_is_read_whole() -> None:
    read = drawn("rocketchat-mongo", SAMPLE)
    assert dump.recognises(SAMPLE)
    assert [(m.id[0], m.op, m.kind) for m in read.messages] == [
        ("a", "upsert", "message"),
        ("b", "upsert", "message"),
        ("c", "upsert", "system"),
        ("d", "delete", "message"),
        ("e", "upsert", "message"),
    ]
    assert read.messages[4].attachments == (
        Attachment(id="f1", name="plan.pdf", mime="application/pdf", url="/file-upload/f1/plan.pdf", text="the plan"),
    )
    assert [(c.id, c.type, c.name, c.parent_id) for c in read.channels] == [
        ("GENERAL", "public", "general", None),
        ("rOps", "private", "ops", None),
        ("uAdauBram", "dm", None, None),
        ("rDisc", "public", "Incident 7", "GENERAL"),
    ]
    assert (read.report.read, read.report.accepted) == (9, 9)


@pytest.mark.parametrize(
    "written",
    [
        {"$date": "2024-01-02T10:00:00.123Z"},
        {"$date": 1704189600123},
        {"$date": {"$numberLong": "1704189600123"}},
        "2024-01-02T11:00:00.123+01:00",
        1704189600123,
    ],
)
def test_a_date_is_read_in_every_encoding(written: Any) -> None:
    when = moment_of(written)
    assert when is not None
    assert when.isoformat() == "2024-01-02T10:00:00.123000+00:00"


@pytest.mark.parametrize("written", [None, True, {}, {"$date": None}, {"$date": []}, "soon", {"$date": 10**30}])
def test_what_is_no_date_is_none(written: Any) -> None:
    assert moment_of(written) is None


def test_ids_may_be_objects_and_the_sender_may_be_written_flat(rocket) -> None:
    row = said(**{"_id": {"$oid": "507f1f77bcf86cd799439011"}, "u._id": "uCleo", "u.username": "cleo"})
    del row["u"]
    (message,) = rocket(row).messages
    assert (message.id, message.sender.id, message.sender.name) == ("507f1f77bcf86cd799439011", "uCleo", "cleo")


def test_people_have_all_their_names_and_none_of_their_secrets(rocket) -> None:
    read = rocket(said())
    ada, bram, cat = read.users
    assert (ada.name, ada.aliases, ada.timezone, ada.kind) == ("Ada Quill", ("ada",), "UTC-05:00", "user")
    assert (bram.present, cat.kind) == (False, "bot")
    assert "secret" not in repr(read.events)
    assert read.messages[0].sender.name is None


def test_reactions_name_people_by_id_where_the_users_are_known(rocket) -> None:
    reactions = {":+1:": {"usernames": ["bram", "gone"], "names": ["Bram", "Gone"]}, ":tada:": {"usernames": []}}
    given_ = rocket(said(reactions=reactions)).reactions
    assert [(reaction.name, reaction.user) for reaction in given_] == [("+1", "uBram"), ("+1", "gone")]


def test_a_reaction_moves_the_version_and_is_no_edit(rocket) -> None:
    later = said(_updatedAt=date(60), reactions={":+1:": {"usernames": ["bram"]}})
    edited = said(msg="hello all", _updatedAt=date(90), editedAt=date(89))
    first, second, third = rocket(said(), later, edited).messages
    assert int(first.version) < int(second.version) < int(third.version)
    assert (first.edited_at, second.edited_at) == (None, None)
    assert third.edited_at == moment_of(date(89))


def test_what_is_removed_or_hidden_is_deleted_and_old_versions_are_left_aside(rocket) -> None:
    read = rocket(
        said("gone", t="rm", msg="", editedAt=date(5), attachments=[], reactions=[]),
        said("hidden", _hidden=True),
        said("old", _hidden=True, parent="m1", msg="secret"),
        {"_id": "timeless", "rid": "GENERAL", "t": "rm"},
    )
    assert [(m.id, m.op, m.text) for m in read.messages] == [
        ("gone", "delete", ""),
        ("hidden", "delete", ""),
        ("timeless", "delete", ""),
    ]
    assert read.report.ignored == {"history": 1}


def test_mentions_are_people_teams_everybody_and_rooms(rocket) -> None:
    mentions = [
        {"_id": "uBram", "username": "bram", "name": "Bram Osei", "type": "user"},
        {"username": "ada"},
        {"_id": "T1", "name": "core", "type": "team"},
        {"_id": "here", "username": "here"},
        {"_id": "uBram", "username": "bram"},
        {},
    ]
    row = said(mentions=mentions, channels=[{"_id": "rOps", "name": "ops"}, {"name": "general"}, {"name": "nowhere"}])
    assert [(m.type, m.id) for m in rocket(row).messages[0].mentions] == [
        ("user", "uBram"),
        ("user", "uAda"),
        ("group", "T1"),
        ("special", "here"),
        ("channel", "rOps"),
        ("channel", "GENERAL"),
    ]


def test_a_system_message_keeps_its_words_and_mentions_nobody(rocket) -> None:
    read = rocket(said(t="au", msg="bram", mentions=[BRAM]), said("r", "ops-new", t="r"), said("x", t="brand_new"))
    assert [(m.kind, m.subtype, m.text, m.mentions) for m in read.messages] == [
        ("system", "au", "bram", ()),
        ("system", "r", "ops-new", ()),
        ("system", "brand_new", "hello", ()),
    ]
    (renamed,) = read.of(AttributeEvent)
    assert (renamed.id, renamed.attribute, renamed.value) == ("GENERAL", "name", "ops-new")


def test_an_encrypted_message_keeps_its_place_without_its_ciphertext(rocket) -> None:
    (message,) = rocket(said(t="e2e", msg="AbCdEf==")).messages
    assert (message.kind, message.text) == ("encrypted", "")


def test_a_reply_in_a_thread_may_be_shown_in_the_channel(rocket) -> None:
    (message,) = rocket(said("m2", tmid="m1", tshow=True)).messages
    assert (message.reply_to, message.thread_id, message.broadcast) == ("m1", "m1", True)


def quoting(msg: str, room: str = "channel/general") -> dict[str, Any]:
    link = f"https://chat.example/{room}?msg=q1"
    return said(
        msg=f"[ ]({link}) {msg}",
        attachments=[{"message_link": link, "text": "their words", "author_name": "bram", "attachments": [{}]}],
        urls=[{"url": link}, {"url": "https://a.example/x"}, {"url": "/relative"}],
    )


def test_a_quote_is_an_answer_and_its_words_are_not_the_authors(rocket) -> None:
    (message,) = rocket(quoting("I agree")).messages
    assert (message.text, message.reply_to, message.forwarded) == ("I agree", "q1", None)
    assert (message.attachments, message.links) == ((), (Link(url="https://a.example/x"),))


def test_a_message_passed_on_tells_whence(rocket) -> None:
    (message,) = rocket(quoting("", "group/ops")).messages
    assert (message.text, message.reply_to) == ("", None)
    assert message.forwarded == Forwarded(id="q1", channel="rOps", text="their words")


def test_a_file_passed_on_is_told_by_its_name_and_a_quote_of_nothing_by_its_id(rocket) -> None:
    quote = {"text": "", "author_name": "bram", "message_link": "/direct?msg=q1"}
    read = rocket(
        said(
            "a",
            None,
            attachments=[{**quote, "attachments": [{"title": "b.png", "title_link": "/file-upload/f/b.png"}]}],
        ),
        said("b", None, attachments=[quote]),
    )
    assert [(m.id, m.text_source, m.forwarded) for m in read.messages] == [
        ("a", "none", Forwarded(id="q1", text="b.png")),
        ("b", "none", Forwarded(id="q1")),
    ]


@pytest.mark.parametrize("words", ["", "  ", None])
def test_a_message_without_words_is_kept(rocket, words: str | None) -> None:
    (message,) = rocket(said("a", words)).messages
    assert (message.op, message.text, message.text_source) == ("upsert", "", "none")


def test_an_edit_that_leaves_nothing_deletes_the_message(rocket) -> None:
    edit = {"editedAt": {"$date": 1704189700000}, "_updatedAt": {"$date": 1704189700000}}
    (message,) = rocket(said("a", "", reactions={":x:": {"usernames": ["ada"]}}, **edit)).messages
    assert (message.op, message.id, message.version) == ("delete", "a", "1704189700000")


def test_the_words_of_an_app_stand_in_blocks_or_cards(rocket) -> None:
    poll = [{"type": "section", "text": {"type": "mrkdwn", "text": "Lunch?"}}, {"type": "actions", "elements": [{}]}]
    card = {
        "title": "Build 7",
        "title_link": "https://ci.example/7",
        "text": "failed",
        "fields": [{"title": "step", "value": "lint"}],
    }
    blocks, cards, both = rocket(
        said("a", "", blocks=poll),
        said("b", "", attachments=[card], bot={"i": "x"}, alias="CI"),
        said("c", attachments=[card]),
    ).messages
    assert (blocks.text, blocks.text_source) == ("Lunch?", "blocks")
    assert (cards.text, cards.text_source) == ("Build 7 (https://ci.example/7)\nfailed\nstep: lint", "attachments")
    assert cards.sender.kind == "bot"
    assert (both.text, both.attachments[0].text) == ("hello", "failed\nstep: lint")


def test_files_are_listed_once_and_without_their_previews(rocket) -> None:
    files = [
        {"_id": "f1", "name": "a.png", "type": "image/png", "size": 7},
        {"_id": "f2", "name": "thumb-a.png", "type": "image/png"},
        {"_id": "f3", "name": "log.txt", "type": "text/plain"},
    ]
    card = {
        "title": "a.png",
        "title_link": "/file-upload/f1/a.png",
        "image_url": "/file-upload/f1/a.png",
        "type": "file",
    }
    place = {"type": "Point", "coordinates": ["8.5", "47.3"]}
    (message,) = rocket(said(msg="", files=files, file=files[0], attachments=[card], location=place)).messages
    assert [(a.name, a.kind, a.size) for a in message.attachments] == [
        ("a.png", "image", 7),
        ("log.txt", "file", None),
        ("location", "other", None),
    ]
    assert message.attachments[2].url == "geo:47.3,8.5"


def test_a_room_that_is_not_known_to_be_open_is_not(rocket) -> None:
    rooms = [
        {"_id": "open", "t": "c", "teamMain": True, "teamId": "t1"},
        {"_id": "in-open", "t": "c", "teamId": "t1"},
        {"_id": "in-closed", "t": "c", "teamId": "t2"},
        {"_id": "chat", "t": "l"},
        {"_id": "odd", "t": "q"},
        {"_id": "three", "t": "d", "uids": ["a", "b", "c"]},
    ]
    assert [(c.id, c.type) for c in rocket(said(), room=rooms).channels] == [
        ("open", "public"),
        ("in-open", "public"),
        ("in-closed", "private"),
        ("chat", "private"),
        ("odd", "unknown"),
        ("three", "group_dm"),
    ]


def test_a_direct_room_has_members_and_no_name_made_of_theirs(rocket) -> None:
    room = {"_id": "d", "t": "d", "name": "ada, bram", "fname": "Ada Quill, Bram", "uids": ["uAda", "uBram", "uCid"]}
    read = rocket(said(), room=[room])
    assert [(c.type, c.name, c.aliases) for c in read.channels] == [("group_dm", None, ())]
    assert [m.user for m in read.members] == ["uAda", "uBram", "uCid"]


def test_subscriptions_tell_who_reads_a_room(rocket) -> None:
    joined = {"_id": "s1", "rid": "rOps", "u": ADA, "open": True, "ts": date(0)}
    invited = {"_id": "s2", "rid": "rOps", "u": BRAM, "status": "INVITED"}
    read = rocket(said(), subscription=[joined, invited, {"_id": "s3", "rid": "rOps"}])
    assert [(m.channel, m.user, m.version) for m in read.members] == [("rOps", "uAda", "1704189600.000")]
    assert (read.report.ignored, read.report.rejected) == ({"invitation": 1}, {"no-user": 1})


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**said(), "_id": None}, "no-id"),
        ({**said(), "rid": ""}, "no-channel"),
        ({**said(), "ts": {"$date": "soon"}}, "bad-timestamp"),
        ([], "not-an-object"),
    ],
)
def test_a_bad_document_is_refused_with_its_line(rocket, bad: Any, reason: str) -> None:
    read = rocket(said("before"), bad, said("after"))
    assert [m.id for m in read.messages] == ["before", "after"]
    assert [(r.reason, r.origin.rpartition("!")[2]) for r in read.report.refusals] == [
        (reason, "rocketchat_message.json#2")
    ]


@pytest.mark.parametrize(
    "written", [lines, json.dumps, lambda rows: "\n".join(json.dumps(row, indent=1) for row in rows)]
)
def test_all_that_mongoexport_writes_is_read_alone_and_packed(tmp_path: Path, written: Any) -> None:
    rows = [said("m1"), said("m2", 'x {[ " y')]
    path = tmp_path / "rocketchat_message.json"
    path.write_text("\ufeff" + written(rows))
    assert dump.recognises(path)
    assert [m.id for m in drawn("rocketchat-mongo", path).messages] == ["m1", "m2"]
    packed = zipped(tmp_path / "dump.zip", {"dump/rocketchat_message.json": written(rows), "dump/other.json": "{}"})
    read = drawn("rocketchat-mongo", packed)
    assert ([m.workspace for m in read.messages], read.report.skipped) == (["dump", "dump"], {"other-file": 1})


def test_one_file_may_hold_all_collections(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    reaction = said(reactions={":+1:": {"usernames": ["bram"]}})
    path.write_text(lines([reaction, *USERS, *ROOMS, {"_id": "s", "rid": "rOps", "u": ADA, "open": True}]))
    read = drawn("rocketchat-mongo", path, workspace="acme")
    assert (len(read.users), len(read.channels), len(read.members), len(read.messages)) == (3, 2, 1, 1)
    assert read.reactions[0].user == "uBram"


def test_a_binary_dump_says_how_it_becomes_json(tmp_path: Path) -> None:
    path = tmp_path / "rocketchat_message.bson"
    path.write_bytes(b"\x16\x00\x00\x00")
    for where in (path, tmp_path):
        assert dump.recognises(where)
        with pytest.raises(SourceError, match=r"bsondump rocketchat_message\.bson > rocketchat_message\.json"):
            list(dump.read(where, Report()))


def test_what_is_no_dump_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "messages.json").write_text('[{"id": 1}]')
    assert not dump.recognises(tmp_path)
    assert not dump.recognises(tmp_path / "notes.txt")
    assert not dump.recognises(tmp_path / "messages.json")
    with pytest.raises(SourceError, match=r"notes.txt: [^\n]+; expected a Rocket.Chat dump"):
        list(dump.read(tmp_path / "notes.txt", Report()))


ALL = [
    *USERS,
    *ROOMS,
    said(),
    said(msg="hi", _updatedAt=date(9), editedAt=date(9), mentions=[BRAM]),
    said("m2", tmid="m1", reactions={":+1:": {"usernames": ["ada"]}}),
    said("m2", t="rm", _updatedAt=date(20)),
    said("r", "new-name", t="r"),
    quoting("yes"),
]


def read_lines(rows: list[Any]) -> Drawn:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "all.jsonl"
        path.write_bytes(
            b"\n".join(row.replace(b"\n", b" ") if isinstance(row, bytes) else content(row) for row in rows)
        )
        return drawn("rocketchat-mongo", path, workspace="w")


@settings(deadline=None)
@given(st.permutations(ALL))
def test_the_order_of_documents_changes_nothing_that_stands(rows: list[Any]) -> None:
    assert standing(read_lines(rows).events) == standing(read_lines(ALL).events)


def test_a_second_reading_gives_the_same_again(tmp_path: Path) -> None:
    folder(tmp_path, message=[said(), quoting("x")], users=USERS, room=ROOMS)
    first, second = (list(dump.read(tmp_path, Report(), Given())) for _ in range(2))
    assert first == second


@settings(deadline=None)
@given(st.lists(st.sampled_from(ALL).flatmap(mutated), max_size=4))
def test_damaged_documents_never_cost_another(rows: list[bytes]) -> None:
    last = said("last", msg="after")
    read = read_lines([*rows, {**last, "rid": "unharmed"}])
    assert [m.text for m in read.messages if m.channel.id == "unharmed"] == ["after"]


def test_an_address_made_to_be_slow_is_not(rocket) -> None:
    began = time.process_time()
    written = "[](" + "?msg=" * 100_000
    assert rocket(said(msg=written)).messages[0].text.startswith("[](?msg=")
    assert time.process_time() - began < 10
