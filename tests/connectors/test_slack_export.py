from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streammem.connectors import Report, recognise
from streammem.connectors.slack import export as slack_export
from streammem.core.events import TEXT_LIMIT
from streammem.core.registers import number
from streammem.errors import SourceError
from streammem.records import GroupEvent, MembershipEvent, UserEvent
from tests.benchmarks import slack_export as slack_benchmark
from tests.connectors.sources import CHANNELS, USERS, drawn, said, zipped

DAY = "ops/2024-01-02.json"


def test_an_empty_zip_is_refused_in_one_line_that_says_what_was_expected(tmp_path: Path) -> None:
    path = zipped(tmp_path / "empty.zip", {})
    with pytest.raises(SourceError, match=r"empty\.zip: it is empty; expected a Slack export: [^\n]+YYYY-MM-DD"):
        list(slack_export.read(path, Report()))


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.zip"
    path.write_text("not a zip")
    with pytest.raises(SourceError, match=r"notes\.zip: not a readable zip file"):
        list(slack_export.read(path, Report()))


def test_a_path_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.zip: no such file or folder"):
        list(slack_export.read(tmp_path / "absent.zip", Report()))


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(SourceError, match=r"no channels\.json or users\.json"):
        list(slack_export.read(tmp_path, Report()))


def test_a_zip_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "cut.zip", {"users.json": USERS, DAY: [said("hello")]})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SourceError, match="not a readable zip file"):
        list(slack_export.read(path, Report()))


def test_without_users_people_are_stubs_and_the_report_says_so(slack) -> None:
    files = {"channels.json": CHANNELS, DAY: [said("hello <@U0BRAM|bram>", user_profile={"real_name": "Ada Quill"})]}
    read = slack(files, bare=True)
    assert read.users == []
    assert (read.messages[0].sender.id, read.messages[0].sender.name) == ("U0ADA", "Ada Quill")
    assert read.texts == ["hello @bram"]
    assert any("no users.json" in note for note in read.report.notes)


def test_a_truncated_day_file_gives_its_whole_messages_and_one_rejection(slack) -> None:
    whole = json.dumps([said("one"), said("two", "1704190001.000100"), said("three", "1704190002.000100")])
    read = slack({DAY: whole[:-20], "ops/2024-01-03.json": [said("four", "1704276400.000100")]})
    assert read.texts == ["one", "two", "four"]
    assert read.report.rejected == {"truncated-file": 1}
    assert read.report.gaps == {"truncated-file": 1}
    assert read.report.refusals[0].origin == f"export.zip!{DAY}#2"


@pytest.mark.parametrize("text", ["", "   ", None])
def test_a_message_that_says_nothing_is_kept(slack, text) -> None:
    root = said(text)
    read = slack({DAY: [root, said("something", "1704190001.000100", thread_ts=root["ts"])]})
    assert [(m.text, m.text_source) for m in read.messages] == [("", "none"), ("something", "text")]
    assert read.messages[1].thread_id == read.messages[0].id


def test_a_message_with_nothing_but_a_file_is_kept(slack) -> None:
    file = {"id": "F1", "title": "Plan &amp; budget.pdf", "mimetype": "application/pdf", "size": 12, "mode": "hosted"}
    (message,) = slack({DAY: [said("", files=[file])]}).messages
    (attachment,) = message.attachments
    assert (attachment.name, attachment.size, message.text_source) == ("Plan & budget.pdf", 12, "none")


def test_the_token_that_opens_a_file_is_not_kept(slack) -> None:
    file = {
        "id": "F1",
        "name": "a.png",
        "mimetype": "image/png",
        "url_private": "https://files.slack.com/a.png?t=xoxe-1",
    }
    (message,) = slack({DAY: [said("look", files=[file])]}).messages
    assert message.attachments[0].url == "https://files.slack.com/a.png"


@pytest.mark.parametrize("ts", [None, "", "soon", True, "1e5", {}, "-1.0", "１２３"])
def test_a_message_without_a_timestamp_is_rejected_with_its_place(slack, ts) -> None:
    read = slack({DAY: [said("hello", ts), said("kept", "1704190001.000100")]})
    assert read.texts == ["kept"]
    assert [(r.reason, r.origin) for r in read.report.refusals] == [("no-timestamp", f"export.zip!{DAY}#0")]


def test_paths_that_leave_the_export_are_refused(slack) -> None:
    day = [said("evil")]
    read = slack({"../ops/2024-01-02.json": day, "/ops/2024-01-02.json": day, "..\\ops\\2024-01-02.json": day})
    assert read.messages == []
    assert read.report.skipped == {"unsafe-path": 3}


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    export = tmp_path / "export"
    outside = tmp_path / "outside"
    for folder in (export, outside):
        folder.mkdir()
    (export / "channels.json").write_text(json.dumps(CHANNELS))
    (outside / "2024-01-02.json").write_text(json.dumps([said("secret")]))
    (export / "ops").symlink_to(outside)
    read = drawn("slack-export", export)
    assert read.messages == []
    assert read.report.skipped == {"link": 1}


def test_a_file_that_unpacks_out_of_all_proportion_is_refused_unread(slack) -> None:
    bomb = b"[" + b" " * 20_000_000 + b"]"
    read = slack({DAY: bomb, "ops/2024-01-03.json": [said("kept")]})
    assert read.texts == ["kept"]
    assert read.report.rejected == {"too-large": 1}


@pytest.mark.parametrize(
    "name", ["2024-01-02.JSON", "2024-01-02 .json", "2024-01-02\u202f.json", "2024-01-02 (1).json"]
)
def test_day_files_under_odd_names_are_counted_and_not_read(slack, name: str) -> None:
    read = slack({f"ops/{name}": [said("odd")]})
    assert read.messages == []
    assert read.report.skipped == {"odd-day-file-name": 1}


@pytest.mark.parametrize("content", [b"null", b"null\r\n", b"", b"\xef\xbb\xbf[]\r\n", b"[]"])
def test_an_empty_list_may_be_written_in_many_ways(slack, content: bytes) -> None:
    read = slack({"groups.json": content, "dms.json": content, "mpims.json": content, DAY: content})
    assert read.report.rejected == {}


@pytest.mark.parametrize("content", [b"{}", b'"words"', b"17", b"words"])
def test_a_file_that_holds_no_list_is_one_rejection(slack, content: bytes) -> None:
    assert slack({DAY: content}).report.rejected == {"not-a-list": 1}


def test_a_broken_record_does_not_take_its_neighbours_with_it(slack) -> None:
    broken = [
        '{"text": oops}',
        '{"a": [1}',
        '{"a": ]}',
        "17",
        '{"type":"message","user":"U0ADA","text":"nan","ts":NaN}',
    ]
    rows = [json.dumps(said("first")), *broken, json.dumps(said("last", "1704190009.000100"))]
    read = slack({DAY: f"[{', '.join(rows)}]"})
    assert read.texts == ["first", "last"]
    assert read.report.rejected == {"not-json": 3, "not-an-object": 1, "no-timestamp": 1}


def test_text_that_strict_decoders_refuse_is_mended(slack) -> None:
    rows = b'[{"user":"U0ADA\\ud800","ts":1.5,"text":"half \\ud83d, bad \xff, whole \\ud83d\\ude00\ttab"}]'
    (message,) = slack({DAY: rows}).messages
    assert message.text == "half \ufffd, bad \ufffd, whole \N{GRINNING FACE}\ttab"
    assert message.id == "1.500000"


def test_messages_come_channel_by_channel_and_day_by_day_whatever_the_order_in_the_zip(slack, tmp_path: Path) -> None:
    files = {
        "users.json": USERS,
        "channels.json": [*CHANNELS, {"id": "C0002", "name": "dev"}],
        "ops/2024-01-03.json": [said("3", "1704276400.000100")],
        "dev/2024-01-04.json": [said("1", "1704362800.000100")],
        DAY: [said("2")],
    }
    read = slack(files, bare=True)
    assert read.texts == ["1", "2", "3"]
    backwards = (
        zipped(tmp_path / "again" / "export.zip", dict(reversed(files.items())))
        if (tmp_path / "again").mkdir()
        else None
    )
    assert backwards is None or drawn("slack-export", backwards).events == read.events


def test_the_type_of_a_channel_is_the_list_it_stands_in_or_something_narrower(slack) -> None:
    read = slack(
        {
            "channels.json": [*CHANNELS, {"id": "C0002", "name": "board", "is_private": True}],
            "groups.json": [{"id": "G1", "name": "leads"}, {"id": "G2", "name": "mpdm-ada--bram-1"}],
            "dms.json": [{"id": "D1", "created": 1}],
            "mpims.json": [{"id": "G3", "name": "mpdm-ada--cleo-1"}],
        }
    )
    types = {"C0001": "public", "C0002": "private", "G1": "private", "G2": "group_dm", "D1": "dm", "G3": "group_dm"}
    assert {channel.id: channel.type for channel in read.channels} == types


def test_only_channels_that_not_everybody_reads_state_their_members(slack) -> None:
    read = slack(
        {"groups.json": [{"id": "G1", "name": "leads", "members": ["U0ADA", "U0BRAM"], "created": 1650000000}]}
    )
    assert {(fact.channel, fact.user, fact.version) for fact in read.members} == {
        ("G1", "U0ADA", "1650000000"),
        ("G1", "U0BRAM", "1650000000"),
    }


def test_a_folder_in_no_list_is_of_unknown_type_and_the_report_says_so(slack) -> None:
    read = slack({"attic/2024-01-02.json": [said("old")], DAY: [said("new")]})
    attic, ops = (message.channel for message in read.messages)
    assert (attic.id, attic.name, attic.type) == ("attic", "attic", "unknown")
    assert (ops.id, ops.name, ops.type) == ("C0001", None, None)
    assert any("count as private: attic" in note for note in read.report.notes)


def test_a_folder_that_two_channels_claim_belongs_to_the_one_that_fewer_people_read(slack) -> None:
    read = slack({"groups.json": [{"id": "G1", "name": "ops"}], DAY: [said("hello")]})
    assert read.messages[0].channel.id == "G1"


@pytest.mark.parametrize(
    ("times", "version"),
    [
        ({"created": 1600000000, "updated": 1678229664302}, "1678229664.302"),
        ({"created": "1600000000"}, "1704153600"),
        ({"created": 0}, "1704153600"),
        ({}, "1704153600"),
    ],
)
def test_a_channel_stands_as_of_its_last_change_or_of_the_last_day_of_the_export(slack, times, version) -> None:
    read = slack({"channels.json": [{"id": "C0001", "name": "ops", **times}], DAY: [said("hello")]})
    assert read.channels[0].version == version


def test_directory_facts_always_beat_what_messages_say_in_passing(slack) -> None:
    read = slack({"users.json": [{"id": "U0ADA", "name": "ada"}], "dms.json": [{"id": "D1", "created": 1}]})
    assert all(number(fact.version) >= number("1") for fact in (*read.users, *read.channels))


def test_a_user_keeps_every_name_and_is_absent_once_deactivated(slack) -> None:
    profile = {"display_name": "cleo", "real_name": "Cleo Marsh", "title": "R&amp;D lead"}
    row = {
        "id": "U0CLEO",
        "name": "cmarsh",
        "deleted": True,
        "tz": "Europe/Oslo",
        "updated": 1700000001,
        "profile": profile,
    }
    (user,) = slack({"users.json": [row]}).users
    assert (user.name, user.aliases, user.title) == ("cleo", ("Cleo Marsh", "cmarsh"), "R&D lead")
    assert (user.present, user.timezone, user.version) == (False, "Europe/Oslo", "1700000001")


def test_a_name_of_blanks_is_none(slack) -> None:
    row = {"id": "U0CLEO", "name": "cleo", "profile": {"display_name": " ", "real_name": "\u3000"}}
    read = slack({"users.json": [row], DAY: [said("<@U0CLEO>")]})
    assert (read.users[0].name, read.texts) == ("cleo", ["@cleo"])


def test_an_edited_message_is_a_version_named_by_the_edit(slack) -> None:
    (message,) = slack({DAY: [said("better", edited={"user": "U0ADA", "ts": "1704190060.000000"})]}).messages
    assert message.version == "1704190060.000000"
    assert message.edited_at == datetime(2024, 1, 2, 10, 7, 40, tzinfo=UTC)
    assert message.ts == datetime(2024, 1, 2, 10, 6, 40, 100, tzinfo=UTC)


def test_a_tombstone_deletes_whatever_edit_came_before(slack) -> None:
    row = said("This message was deleted.", subtype="tombstone", user="USLACKBOT")
    (message,) = slack({DAY: [row]}).messages
    assert (message.op, message.text, message.id) == ("delete", "", "1704190000.000100")
    assert number(message.version) > number("1704190060.000000")


def test_replies_that_a_root_announces_and_the_export_lacks_are_a_gap(slack) -> None:
    root = said("root", thread_ts="1704190000.000100", reply_count=3)
    reply = said("reply", "1704190001.000100", thread_ts="1704190000.000100")
    report = slack({DAY: [root, reply]}).report
    assert report.gaps == {"missing-replies": 2}
    assert report.gap_examples[0].origin == "export.zip!ops#1704190000.000100"


def test_a_permalink_is_made_only_where_the_address_of_the_workspace_is_known(slack) -> None:
    assert slack({DAY: [said("hello")]}).messages[0].permalink is None
    shared = said("file", "1704190001.000100", files=[{"id": "F1", "permalink": "https://acme.slack.com/files/U/F1/a"}])
    link = "https://acme.slack.com/archives/C0001/p1704190000000100"
    assert slack({DAY: [said("hello"), shared]}).messages[0].permalink == link
    assert slack({DAY: [said("hello")]}, domain="acme").messages[0].permalink == link
    assert slack({DAY: [said("hello", permalink=link)]}).messages[0].permalink == link


def test_the_workspace_is_the_given_one_or_the_users_team_or_the_messages_team_or_the_name_of_the_file(slack) -> None:
    nameless = {"users.json": [{"id": "U0ADA"}], DAY: [said("hello", team="T0002")]}
    assert slack({DAY: [said("hello", team="T0002")]}, workspace="acme").messages[0].workspace == "acme"
    assert slack({DAY: [said("hello", team="T0002")]}).messages[0].workspace == "T0001"
    assert slack(nameless).messages[0].workspace == "T0002"
    assert slack({**nameless, DAY: [said("hello")]}).messages[0].workspace == "export"


def test_names_lost_to_an_old_code_page_are_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "old.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("channels.json", json.dumps(CHANNELS))
        info = zipfile.ZipInfo("ops\u00e9/2024-01-02.json")
        packed.writestr(info, json.dumps([said("hello")]))
    raw = path.read_bytes().replace("ops\u00e9".encode(), b"ops\x82\x20")
    path.write_bytes(raw.replace(b"\x00\x08", b"\x00\x00"))
    assert drawn("slack-export", path).texts == ["hello"]


def test_an_export_is_recognised_and_other_things_are_not(tmp_path: Path) -> None:
    assert recognise(zipped(tmp_path / "export.zip", {"channels.json": CHANNELS})) == "slack-export"
    assert recognise(zipped(tmp_path / "other.zip", {"readme.txt": "hello"})) is None
    assert recognise(tmp_path / "absent") is None


def test_a_long_message_is_cut_at_a_character_with_a_mark_and_its_full_size(slack) -> None:
    text = "\N{GRINNING FACE}" * 300_000
    (kept,) = slack({DAY: json.dumps([said(text)], ensure_ascii=False)}).messages
    assert (kept.text, kept.text_truncated, kept.text_bytes) == (text[:TEXT_LIMIT], True, 1_200_000)


def test_a_permalink_to_a_reply_names_its_thread(slack) -> None:
    reply = said("reply", "1704190001.000100", thread_ts="1704190000.000100")
    assert slack({DAY: [reply]}, domain="acme").messages[0].permalink == (
        "https://acme.slack.com/archives/C0001/p1704190001000100?thread_ts=1704190000.000100&cid=C0001"
    )


def test_a_direct_conversation_states_its_members_and_no_name_made_of_theirs(slack) -> None:
    users = [*USERS, {"id": "U0BRAM", "name": "bram"}]
    read = slack(
        {
            "users.json": users,
            "dms.json": [
                {"id": "D1", "created": 1, "members": ["U0ADA", "U0BRAM"]},
                {"id": "D2", "created": 1, "members": ["U0ADA", "USLACKBOT"]},
                {"id": "D3", "created": 1, "members": ["U0ADA", "U0ADA"]},
                {"id": "D4", "created": 1, "members": ["U0X", "U0Y"]},
            ],
            "mpims.json": [
                {"id": "G1", "name": "mpdm-ada--bram-1", "members": ["U0ADA", "U0BRAM"]},
                {"id": "G2", "name": "mpdm-cleo--dov-1"},
            ],
            "groups.json": [{"id": "G3", "name": "launch", "previous_names": ["mpdm-ada--cleo-1", "go"]}],
            "launch/2024-01-02.json": [
                said("renamed", subtype="group_name", name="launch", old_name="mpdm-ada--cleo-1")
            ],
            "mpdm-ada--bram-1/2024-01-02.json": [said("hello")],
        }
    )
    names = {channel.id: (channel.name, channel.aliases) for channel in read.channels}
    assert names == {
        **dict.fromkeys(["D1", "D2", "D3", "D4", "G1", "G2"], (None, ())),
        "G3": ("launch", ("go",)),
        "C0001": ("ops", ()),
    }
    assert {(m.channel.id, m.channel.name) for m in read.messages} == {("G1", None), ("G3", None)}
    assert {m.user for m in read.members if m.channel == "G1"} == {"U0ADA", "U0BRAM"}
    (told,) = (m.ingest for m in read.messages if m.channel.id == "G1")
    assert told is not None
    assert str(told.origin).endswith("!G1/2024-01-02.json#0")


def test_user_groups_are_read_where_an_export_carries_them(slack) -> None:
    groups = [
        {"id": "S1", "handle": "ops-team", "name": "Operations", "users": ["U0ADA"], "date_update": 1700000000},
        {"id": "S2", "handle": "old", "users": [], "date_update": 5, "date_delete": 1700000001},
    ]
    read = slack({"usergroups.json": groups, DAY: [said("<!subteam^S1> <!subteam^S9|@else>")]})
    assert [(g.id, g.name, g.aliases, g.members, g.present, g.version) for g in read.of(GroupEvent)] == [
        ("S1", "ops-team", ("Operations",), ("U0ADA",), True, "1700000000"),
        ("S2", "old", (), (), False, "1700000001"),
    ]
    assert read.texts == ["@ops-team @else"]


def test_the_workspaces_of_an_organisation_are_read_together(slack) -> None:
    def listed(channel: str) -> list[dict[str, object]]:
        return [{"id": channel, "name": "general", "created": 1}]

    files = {
        "org_users.json": USERS,
        "channels.json": listed("C0ORG"),
        "groups.json": [{"id": "G0ORG", "name": "leads"}],
        "general/2024-01-02.json": [said("of all")],
        "teams/east/channels.json": listed("C0EAST"),
        "teams/east/general/2024-01-02.json": [said("of the east")],
        "teams/east/leads/2024-01-02.json": [said("of the leads")],
        "teams/west/channels.json": listed("C0WEST"),
        "teams/west/general/2024-01-02.json": [said("of the west")],
    }
    read = slack(files, bare=True)
    assert {message.text: message.channel.id for message in read.messages} == {
        "of all": "C0ORG",
        "of the east": "C0EAST",
        "of the leads": "G0ORG",
        "of the west": "C0WEST",
    }
    assert {message.workspace for message in read.messages} == {"T0001"}
    assert read.report.skipped == {}


def test_a_workspace_that_keeps_edits_tells_them_in_its_day_files(slack) -> None:
    when = "1704190100.000100"
    edited = {"ts": "1704190060.000000"}
    change = {"type": "message", "subtype": "message_changed", "ts": when, "message": said("new", edited=edited)}
    gone = {"type": "message", "subtype": "message_deleted", "ts": when, "original": said("old", "1704190001.000100")}
    read = slack({DAY: [said("old"), change | {"original": said("old")}, gone]})
    assert [(m.op, m.id, m.version, m.text) for m in read.messages] == [
        ("upsert", "1704190000.000100", "0", "old"),
        ("upsert", "1704190000.000100", "1704190060.000000", "new"),
        ("delete", "1704190001.000100", when, ""),
    ]


def test_a_large_export_of_the_benchmark_is_read_whole(tmp_path: Path) -> None:
    slack_benchmark.write(tmp_path / "large.zip", messages=120, count=12)
    report = drawn("slack-export", tmp_path / "large.zip").report
    assert (report.messages, report.rejected.total(), report.ignored.total(), report.gaps.total()) == (120, 0, 0, 0)


def test_guests_are_known_as_such_and_as_members_of_the_public_channels_they_are_in(slack) -> None:
    users = [{"id": "U1", "name": "ada"}, {"id": "U2", "name": "eve", "is_restricted": True}]
    channels = [{"id": "C1", "name": "ops", "members": ["U1", "U2"]}, {"id": "C2", "name": "all", "members": ["U1"]}]
    read = slack({"users.json": users, "channels.json": channels, DAY: [said("hello")]})
    assert [u.kind for u in read.of(UserEvent)] == ["user", "external"]
    assert [(m.channel, m.user) for m in read.of(MembershipEvent)] == [("C1", "U2")]


@pytest.mark.parametrize("ts", ["1704190000.000100136", "1.7041900000001E9", "1704190000.0001"])
def test_a_timestamp_that_passed_through_a_double_is_the_one_it_was(slack, ts: str) -> None:
    assert [m.id for m in slack({DAY: [said("hello", ts)]}).messages] == ["1704190000.000100"]


def test_a_private_channel_among_the_public_ones_is_private_however_it_says_so(slack) -> None:
    rows = [{"id": "C1", "name": "a", "is_private": "true"}, {"id": "C2", "name": "b", "is_private": 1}]
    assert [channel.type for channel in slack({"channels.json": rows}).channels] == ["private", "private"]


def test_a_bot_without_a_name_in_its_message_has_that_of_its_user(slack) -> None:
    users = [*USERS, {"id": "U7", "is_bot": True, "profile": {"real_name": "Deploy", "bot_id": "B7"}}]
    row = {**said("done"), "user": None, "bot_id": "B7", "subtype": "bot_message"}
    (message,) = slack({"users.json": users, DAY: [row]}).messages
    assert (message.sender.id, message.sender.name) == ("B7", "Deploy")


def test_a_channel_in_two_lists_is_read_by_those_whom_the_narrower_one_names(slack) -> None:
    row = {"id": "C0001", "name": "ops", "members": ["U0ADA"]}
    read = slack({"channels.json": [{**row, "updated": 1700000000}], "groups.json": [row]})
    public, private = sorted(read.channels, key=lambda channel: number(channel.version))
    assert (public.type, private.type) == ("public", "private")
    assert [member.user for member in read.members] == ["U0ADA"]
