"""Zulip's export: rows of tables, topics, quotes that are replies, and edits that remember what was said before."""

from __future__ import annotations

import json
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors.archive import Entry
from streammem.connectors.report import Report
from streammem.connectors.zulip import tables
from streammem.connectors.zulip.export import read, recognises
from streammem.errors import SourceError
from streammem.records import Forwarded, MessageEvent
from tests.connectors.faults import check
from tests.connectors.sources import Drawn, drawn, zipped
from tests.connectors.test_any_input import mutated

SAMPLES = Path(__file__).parent.parent / "data" / "samples" / "zulip"
NEAR = "https://acme.example.com/#narrow/channel/5-deploys/topic/release.204.2E2/near/90"
REALM: dict[str, Any] = {
    "zerver_realm": [{"id": 1, "string_id": "acme", "name": "Acme"}],
    "zerver_userprofile": [
        {"id": 9, "full_name": "Ada Quill", "is_bot": False, "is_active": True, "date_joined": 1600000000.5},
        {"id": 11, "full_name": "Bram Osei", "is_bot": False, "is_active": False, "timezone": "Europe/Oslo"},
        {"id": 12, "full_name": "Gus", "is_active": True, "role": 600},
        {"id": 13, "full_name": "Gus", "is_active": True},
    ],
    "zerver_userprofile_crossrealm": [{"id": 2, "email": "notification-bot@zulip.com"}],
    "zerver_stream": [
        {"id": 5, "name": "deploys", "description": "what ships", "invite_only": False},
        {"id": 6, "name": "leads", "invite_only": True},
    ],
    "zerver_recipient": [
        {"id": 20, "type": 2, "type_id": 5},
        {"id": 21, "type": 2, "type_id": 6},
        {"id": 31, "type": 1, "type_id": 11},
        {"id": 32, "type": 1, "type_id": 9},
        {"id": 40, "type": 3, "type_id": 7},
        {"id": 41, "type": 3, "type_id": 8},
    ],
    "zerver_subscription": [
        {"user_profile": 9, "recipient": 20, "active": True},
        {"user_profile": 12, "recipient": 20, "active": True},
        {"user_profile": 9, "recipient": 21, "active": True},
        {"user_profile": 11, "recipient": 21, "active": False},
        {"user_profile": 9, "recipient": 32, "active": True},
        *({"user_profile": user, "recipient": 40, "active": True} for user in (9, 11, 12)),
        *({"user_profile": user, "recipient": 41, "active": True} for user in (9, 11)),
    ],
    "zerver_namedusergroup": [
        {"usergroup_ptr": 70, "name": "support"},
        {"usergroup_ptr": 71, "name": "role:members", "is_system_group": True},
    ],
    "zerver_usergroupmembership": [{"user_group": 70, "user_profile": 9}],
    "zerver_reaction": [],
}


def message(id_: int = 100, content: str = "hi", **more: Any) -> dict[str, Any]:
    return {"id": id_, "sender": 9, "recipient": 20, "date_sent": 1700000000.123456, "subject": "release 4.2",
            "content": content, "last_edit_time": None, "edit_history": None} | more  # fmt: skip


def zulip(folder: Path, *messages: Any, realm: Any = REALM, **more: Any) -> Drawn:
    files = {"realm.json": realm, "messages-000001.json": {"zerver_message": list(messages)} | more}
    return drawn("zulip-export", zipped(folder / "zulip.zip", {f"zulip-export/{k}": v for k, v in files.items()}))


def only(folder: Path, content: str = "hi", **more: Any) -> MessageEvent:
    (found,) = zulip(folder, message(content=content, **more)).messages
    return found


def test_the_fault_and_the_sample_read_right(tmp_path: Path) -> None:
    check("35", tmp_path, read)
    found = drawn("zulip-export", SAMPLES)
    assert found.messages[0].text == "@Bram Osei see #deploys > rollback and PR (https://example.com/1)"
    assert found.messages[0].ts == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert [(c.id, c.type) for c in found.channels] == [("5", "public"), ("dm:10,11", "dm")]


@pytest.mark.parametrize(
    ("text", "shown", "mentions"),
    [
        ("@**Bram Osei** and @**Gus**", "@Bram Osei and @Gus", [("user", "11")]),  # two are called Gus
        ("@**Gus|13** @**|12**", "@Gus @Gus", [("user", "13"), ("user", "12")]),
        ("@_**Bram Osei|11** said", "@Bram Osei said", []),
        ("@**all** @**topic** @*support* @_*support*", "@all @topic @support @support",
         [("special", "all"), ("special", "topic"), ("group", "70")]),
        ("(@**Gus|12**) x@**Gus|13**", "(@Gus) x@**Gus|13**", [("user", "12")]),
        ("#**leads** #**deploys>a b@90** #**nowhere**", "#leads #deploys > a b #nowhere",
         [("channel", "6"), ("channel", "5")]),
        ("`@**Gus|12**`\n```py\n@**Gus|12**\n```", "`@**Gus|12**`\n```py\n@**Gus|12**\n```", []),
        ("> @**Gus|12** hi\nno", "> @Gus hi\nno", []),
        ("```quote\n@**Gus|12**\n```\nno", "> @Gus\nno", []),
        ("````quote\n```py\nx\n```\ny\n````\nz", "> ```py\n> x\n> ```\n> y\nz", []),
        ("```spoiler The end\nit was @**Gus|12**\n```", "The end\nit was @Gus", [("user", "12")]),
        ("```math\nopen", "```math\nopen\n```", []),
    ],
)  # fmt: skip
def test_names_and_blocks_read_as_people_see_them(
    tmp_path: Path, text: str, shown: str, mentions: list[tuple[str, str]]
) -> None:
    found = only(tmp_path, text)
    assert found.text == shown
    assert [(m.type, m.id) for m in found.mentions] == mentions


@pytest.mark.parametrize(
    ("text", "shown", "answered", "forwarded"),
    [
        (f"@_**Gus|12** [said]({NEAR}):\n```quote\ngo\n```\nok", "ok", "90", None),
        (f"@_**Gus|12** [said]({NEAR}):\n````quote\n```\ngo\n```\n````\n\nok", "ok", "90", None),
        (f"@_**Gus|12** [said]({NEAR}):\n```quote\ngo\n```", "> go", "90", None),
        (f"so:\n@_**Gus|12** [said]({NEAR}):\n```quote\ngo\n```\nok", "so:\nok", "90", None),
        (f"@_**Gus|12** [said]({NEAR.partition('/near')[0]}):\n```quote\ngo\n```\nok",
         f"@Gus said ({NEAR.partition('/near')[0]}):\n> go\nok", None, None),
        (f"see [this]({NEAR})", f"see this ({NEAR})", None, None),
        (f"@_**Gus|12** [said]({NEAR.replace('/5-', '/6-')}):\n```quote\ngo\n```\nok", "ok", None,
         Forwarded(id="90", channel="6", text="go")),
        ("@_**Gus|12** [said](https://acme.example.com/#narrow/dm/9,12-dm/near/3):\n```quote\ngo\n```\nok", "ok",
         None, Forwarded(id="3", text="go")),
    ],
)  # fmt: skip
def test_who_quotes_a_message_of_the_channel_answers_it(
    tmp_path: Path, text: str, shown: str, answered: str | None, forwarded: Forwarded | None
) -> None:
    found = only(tmp_path, text)
    assert (found.text, found.reply_to, found.forwarded) == (shown, answered, forwarded)
    assert not found.mentions


def test_a_quote_in_a_direct_conversation_answers_there(tmp_path: Path) -> None:
    quote = "@_**Bram Osei|11** [said](https://acme.example.com/#narrow/dm/9,11-dm/near/3):\n```quote\ngo\n```\nok"
    found = only(tmp_path, quote, recipient=31, subject="\x07")
    assert (found.channel.id, found.topic, found.reply_to, found.text) == ("dm:9,11", None, "3", "ok")


def test_direct_conversations_are_known_by_their_members(tmp_path: Path) -> None:
    found = zulip(
        tmp_path,
        message(1, recipient=31),
        message(2, recipient=32, sender=11),
        message(3, recipient=32),
        message(4, recipient=40),
        message(5, recipient=41),
        message(6, recipient=99),
    )
    assert [m.channel.id for m in found.messages] == ["dm:9,11", "dm:9,11", "dm:9", "dm:9,11,12", "dm:9,11"]
    kinds = {c.id: c.type for c in found.channels if c.id.startswith("dm:")}
    assert kinds == {"dm:9,11": "dm", "dm:9": "dm", "dm:9,11,12": "group_dm"}
    assert {m.user for m in found.members if m.channel == "dm:9,11,12"} == {"9", "11", "12"}
    assert found.report.rejected == {"no-channel": 1}


def test_private_channels_are_their_subscribers_and_guests_are_listed_everywhere(tmp_path: Path) -> None:
    found = zulip(tmp_path)
    assert {c.id: (c.type, c.topic) for c in found.channels} == {"5": ("public", "what ships"), "6": ("private", None)}
    assert {(m.channel, m.user, m.present) for m in found.members} == {
        ("5", "12", True),
        ("6", "9", True),
        ("6", "11", False),
    }


@pytest.mark.parametrize(
    ("row", "kind"),
    [({"invite_only": False}, "public"), ({"invite_only": True}, "private"), ({}, "private"),
     ({"is_web_public": True}, "public"), ({"is_web_public": True, "invite_only": True}, "private"),
     ({"invite_only": None}, "private"), ({"invite_only": 0}, "private")],
)  # fmt: skip
def test_a_channel_is_public_only_when_the_export_says_so(tmp_path: Path, row: Any, kind: str) -> None:
    found = zulip(tmp_path, realm=REALM | {"zerver_stream": [{"id": 5, "name": "deploys"} | row]})
    assert [c.type for c in found.channels] == [kind]


def test_people_bots_and_groups(tmp_path: Path) -> None:
    found = zulip(tmp_path, message(1, "#**deploys** was renamed", sender=2))
    assert {u.id: (u.name, u.kind, u.present, u.timezone) for u in found.users} == {
        "9": ("Ada Quill", "user", True, None),
        "11": ("Bram Osei", "user", False, "Europe/Oslo"),
        "12": ("Gus", "external", True, None),
        "13": ("Gus", "user", True, None),
        "2": ("Notification Bot", "system", True, None),
    }
    (notice,) = found.messages
    assert (notice.kind, notice.sender.kind, notice.mentions) == ("system", "system", ())
    groups = [e for e in found.events if type(e).__name__ == "GroupEvent"]
    assert [(g.id, g.name, g.members) for g in groups] == [("70", "support", ("9",))]  # type: ignore[union-attr]
    assert {u.version for u in found.users} == {"1600000000.5"}


def test_what_was_said_before_an_edit_is_an_earlier_version(tmp_path: Path) -> None:
    history = [
        {"prev_content": "two", "timestamp": 1700000090, "user_id": 9},
        {"prev_topic": "old", "topic": "release 4.2", "timestamp": 1700000080},
        {"prev_content": "one", "timestamp": 1700000060, "user_id": 9},
    ]
    row = message(content="three", last_edit_time=1700000090.5, edit_history=json.dumps(history))
    found = zulip(tmp_path, row)
    assert [(m.text, m.version) for m in found.messages] == [
        ("three", "1700000090500"),
        ("two", "1700000060000"),
        ("one", "0"),
    ]
    assert [m.edited_at for m in found.messages] == [
        datetime(2023, 11, 14, 22, 14, 50, 500000, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC),
        None,
    ]
    assert found.report.accepted == len(REALM["zerver_userprofile"]) + 1 + 2 + 10 + 2 + 1


def test_a_message_that_was_moved_was_not_edited(tmp_path: Path) -> None:
    history = [{"prev_topic": "old", "topic": "release 4.2", "timestamp": 1700000090}]
    found = only(tmp_path, last_edit_time=1700000090.5, edit_history=json.dumps(history))
    assert (found.version, found.edited_at, found.topic) == ("1700000090500", None, "release 4.2")


@pytest.mark.parametrize("history", ["nonsense", "[1]", "{}", 5, '[{"prev_content": 1, "timestamp": "x"}]'])
def test_an_unreadable_history_costs_nothing(tmp_path: Path, history: Any) -> None:
    assert only(tmp_path, last_edit_time=1700000090.5, edit_history=history).version == "1700000090500"


def test_uploads_commands_and_polls_are_words_and_a_message_without_any_is_kept(tmp_path: Path) -> None:
    found = zulip(
        tmp_path,
        message(1, "see [plan.png](/user_uploads/2/ab/plan.png)"),
        message(2, "/me waves"),
        message(3, "/poll Lunch?\nyes\n- no"),
        message(4, "/polling is fine"),
        message(5, ""),
    )
    assert [(m.text, m.subtype) for m in found.messages] == [
        ("see plan.png", None),
        ("waves", "me"),
        ("Lunch?\n- yes\n- no", "poll"),
        ("/polling is fine", None),
        ("", None),
    ]
    assert found.messages[-1].text_source == "none"
    assert [(a.name, a.kind, a.url) for a in found.messages[0].attachments] == [
        ("plan.png", "image", "/user_uploads/2/ab/plan.png")
    ]
    assert not found.messages[0].links


@pytest.mark.parametrize("beside", [False, True])
def test_reactions_find_their_message_wherever_they_are_listed(tmp_path: Path, beside: bool) -> None:
    rows = [
        {"id": 1, "message": 100, "user_profile": 11, "emoji_name": "tada"},
        {"id": 2, "message": 999, "user_profile": 11, "emoji_name": "tada"},
        5,
    ]
    realm = REALM | ({} if beside else {"zerver_reaction": rows})
    found = zulip(tmp_path, message(), realm=realm, **({"zerver_reaction": rows} if beside else {}))
    assert [(r.channel, r.message, r.user, r.name) for r in found.reactions] == [("5", "100", "11", "tada")]
    assert found.report.rejected == {"no-message": 1, "not-an-object": 1}


def test_other_files_of_the_export_are_passed_over(tmp_path: Path) -> None:
    path = zipped(
        tmp_path / "z.zip",
        {"x/realm.json": REALM, "x/messages-000001.json": {"zerver_message": [message()]}, "x/attachment.json": {},
         "x/uploads/realm.json": {}, "x/uploads/messages-000001.json": {"zerver_message": [message(5)]}},
    )  # fmt: skip
    assert recognises(path)
    found = drawn("zulip-export", path)
    assert [m.id for m in found.messages] == ["100"]
    assert found.report.skipped == {"not-a-table-file": 3}


def test_what_is_no_export_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, content in (("x.tar.gz", b"x"), ("x.zip", b"x")):
        (tmp_path / name).write_bytes(content)
        assert not recognises(tmp_path / name)
        with pytest.raises(SourceError, match=name):
            list(read(tmp_path / name, Report()))
    assert not recognises(zipped(tmp_path / "y.zip", {"realm.json": {"realm": "keycloak"}}))
    assert recognises(zipped(tmp_path / "y.zip", {"realm.json": REALM}))
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match=r"no realm\.json"):
        list(read(tmp_path / "folder", Report()))


def test_a_cut_file_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    rows = json.dumps({"zerver_message": [message(1), message(2), message(3)]})
    path = zipped(tmp_path / "z.zip", {"realm.json": REALM, "messages-000001.json": rows[:-30].encode()})
    found = drawn("zulip-export", path)
    assert [m.id for m in found.messages] == ["1", "2"]
    assert found.report.rejected == {"truncated-file": 1}
    assert f"at byte {rows.index(json.dumps(message(3)))}" in found.report.refusals[0].detail


@settings(deadline=None)
@given(st.integers(1, 60), st.booleans())
def test_a_large_file_reads_as_a_small_one_in_pieces_of_any_size(size: int, indented: bool) -> None:
    whole = json.dumps(REALM | {"zerver_empty": [], "odd": {"a": [{"b": 1}]}}, indent=2 if indented else None).encode()
    entry = Entry("realm.json", tables.WHOLE + 1, lambda: None)  # type: ignore[arg-type,return-value]
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "chunks", lambda _: iter(pieces))
        report = Report()
        found = [(table, row) for table, _, row in tables.rows(entry, REALM, "", report)]
    assert found == [
        (table, json.loads(json.dumps(row), parse_float=str)) for table, rows in REALM.items() for row in rows
    ]
    assert report.read == 0


ROWS = [
    message(1, "one @**Gus|12**"),
    message(2, "two", recipient=31),
    message(3, "three", recipient=40, last_edit_time=1700000090.5,
            edit_history='[{"prev_content": "3", "timestamp": 1700000090}]'),
    message(4, f"@_**Gus|12** [said]({NEAR}):\n```quote\ngo\n```\nok", recipient=32, sender=11),
]  # fmt: skip
REACTIONS = [{"id": n, "message": n, "user_profile": 9, "emoji_name": "x"} for n in (1, 2, 3)]


def state(found: Drawn) -> set[Any]:
    return {msgspec.structs.replace(event, ingest=None) for event in found.events}


@settings(deadline=None, max_examples=40)
@given(st.permutations(ROWS), st.permutations(REACTIONS), st.randoms(use_true_random=False), st.integers(0, 4))
def test_the_order_of_rows_tables_and_files_changes_nothing(rows: Any, given_: Any, chance: Any, cut: int) -> None:
    realm = {table: chance.sample(listed, len(listed)) for table, listed in REALM.items()}
    shuffled = {table: realm[table] for table in chance.sample(list(realm), len(realm))} | {"zerver_reaction": given_}
    with tempfile.TemporaryDirectory() as folder:
        ordered = zulip(Path(folder), *ROWS, realm=REALM | {"zerver_reaction": REACTIONS})
        files = {"realm.json": shuffled, "messages-000001.json": {"zerver_message": rows[:cut]},
                 "messages-000002.json": {"zerver_message": rows[cut:] + rows[:1]}}  # fmt: skip
        assert state(drawn("zulip-export", zipped(Path(folder) / "z.zip", files))) == state(ordered)


@settings(deadline=None)
@given(mutated(REALM | {"zerver_reaction": REACTIONS}), mutated({"zerver_message": ROWS}))
def test_damage_never_raises_and_costs_no_other_file(realm: bytes, rows: bytes) -> None:
    good = {"zerver_message": [message(99, "the last")]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "z.zip"
        files = {"realm.json": REALM, "messages-000001.json": rows, "messages-000002.json": good}
        assert drawn("zulip-export", zipped(path, files)).texts[-1:] == ["the last"]
        drawn("zulip-export", zipped(path, files | {"realm.json": realm}))


def test_a_packed_export_is_read_as_its_folder_and_paths_that_lead_out_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "zulip-export.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        packed.add(SAMPLES, "zulip-export")
        packed.add(SAMPLES / "realm.json", "../../evil.json")
    report = Report()
    events = [msgspec.structs.replace(event, ingest=None) for event in read(path, report)]
    assert events == [msgspec.structs.replace(event, ingest=None) for event in read(SAMPLES, Report())]
    assert report.skipped == {"unsafe-path": 1}
    assert recognises(path)
    assert not (tmp_path.parent / "evil.json").exists()
