"""DiscordChatExporter's files: exact ids, replies that are no forwards, and nobody said who may read."""

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

from streammem.connectors.discord.export import read, recognises
from streammem.connectors.report import Report
from streammem.errors import SourceError
from streammem.records import Forwarded, MessageEvent
from tests.connectors.faults import check
from tests.connectors.sources import Drawn, drawn, zipped
from tests.connectors.test_any_input import mutated

SAMPLES = Path(__file__).parent.parent / "data" / "samples" / "discord"
ADA = {"id": "864655500791644223", "name": "ada", "nickname": "Ada", "isBot": False}
BRAM = {"id": "864655500791644224", "name": "bram", "nickname": "Bram", "isBot": False}
HOOK = {"id": "864655500791644299", "name": "Deploys", "isBot": True}


def message(id_: Any = "1084249090889613362", content: str = "hi", **more: Any) -> dict[str, Any]:
    return {"id": id_, "type": "Default", "timestamp": "2023-03-11T14:58:47.642-08:00", "content": content,
            "author": ADA} | more  # fmt: skip


def file(*messages: Any, **more: Any) -> dict[str, Any]:
    channel = {"id": "10", "type": "GuildTextChat", "categoryId": "9", "name": "general", "topic": "all"}
    return {
        "guild": {"id": "1", "name": "Acme"},
        "channel": channel | more.pop("channel", {}),
        "exportedAt": "2025-12-05T09:00:00-08:00",
        **more,
        "messages": list(messages),
        "messageCount": len(messages),
    }


def dce(folder: Path, *files: Any) -> Drawn:
    (folder / "export").mkdir(exist_ok=True)
    for number, value in enumerate(files):
        (folder / "export" / f"part {number}.json").write_text(json.dumps(value, ensure_ascii=False))
    return drawn("discord-dce", folder / "export")


def only(folder: Path, **more: Any) -> MessageEvent:
    (found,) = dce(folder, file(message(**more))).messages
    return found


def test_ids_are_exact_and_what_stands_before_a_cut_is_kept(tmp_path: Path) -> None:
    events, report = check("27", tmp_path, read)
    assert len({event.id for event in events if isinstance(event, MessageEvent)}) == 3
    (refusal,) = report.refusals
    assert refusal.reason == "truncated-file"
    assert "at byte" in refusal.detail
    assert report.gaps == {"truncated-file": 1}


def test_an_id_that_lost_digits_is_refused(tmp_path: Path) -> None:
    raw = json.dumps(file(message("ID"), message("2"))).replace('"ID"', "1.0842490908896134e18")
    (tmp_path / "export.json").write_text(raw)
    found = drawn("discord-dce", tmp_path / "export.json")
    assert [m.id for m in found.messages] == ["2"]
    assert found.report.rejected == {"no-id": 1}


def test_the_sample_reads_whole() -> None:
    found = drawn("discord-dce", SAMPLES)
    question, answer, thread, build = found.messages
    assert question.ts == datetime(2023, 3, 11, 22, 58, 47, 642000, tzinfo=UTC)
    assert (answer.reply_to, answer.version) == (question.id, "1678575780100")
    assert [(m.id, m.label) for m in answer.mentions] == [("864655500791644223", "Ada")]
    assert (thread.kind, thread.reply_to, thread.mentions) == ("system", None, ())
    assert (build.text, build.text_source) == (
        "Build 7 (https://example.com/7)\nfailed\nbranch: main",
        "attachments",
    )
    assert [(r.name, r.user) for r in found.reactions] == [("👀", "864655500791644223")]
    assert question.workspace == "844600078504951838"
    assert question.permalink is not None
    assert question.permalink.endswith(f"/844600078948630559/{question.id}")
    assert ("Ada", ("ada",)) in {(user.name, user.aliases) for user in found.users}


@pytest.mark.parametrize(
    ("kind", "reference", "answered"),
    [
        ("Reply", {"type": "Default", "messageId": 1, "channelId": 10}, "1"),
        ("Reply", {"messageId": "1", "channelId": "10"}, "1"),  # exports of before forwards
        ("Reply", {"type": "Default", "messageId": None, "channelId": "10"}, None),
        ("Reply", {"type": "Default", "messageId": "1", "channelId": "11"}, None),
        ("Default", {"type": "Forward", "messageId": "1", "channelId": "10"}, None),
        ("Default", {"type": "Default", "messageId": "1", "channelId": "10"}, None),
        ("ChannelPinnedMessage", {"type": "Default", "messageId": "1", "channelId": "10"}, None),
    ],
)
def test_only_a_reply_answers(tmp_path: Path, kind: str, reference: Any, answered: str | None) -> None:
    assert only(tmp_path, type=kind, reference=reference).reply_to == answered


def test_a_forward_brings_words_and_files_of_the_original(tmp_path: Path) -> None:
    original = {
        "content": "",
        "attachments": [{"id": "7", "url": "https://cdn.example/a.png?ex=1&is=2&hm=3", "fileName": "a.png"}],
        "embeds": [{"title": "Plan", "description": "ship it"}],
    }
    reference = {"type": "Forward", "messageId": "5", "channelId": "11"}
    found = only(tmp_path, content="", reference=reference, forwardedMessage=original)
    assert found.forwarded == Forwarded(id="5", channel="11", text="Plan\nship it")
    assert [(a.name, a.kind, a.url) for a in found.attachments] == [
        ("a.png", "image", "https://cdn.example/a.png"),
        ("Plan", "card", None),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("Default", "message"), ("Reply", "message"), ("20", "message"), ("GuildMemberJoin", "system"), ("8", "system"),
     ("Call", "call"), ("21", "system")],
)  # fmt: skip
def test_discord_speaks_for_itself_in_other_types(tmp_path: Path, kind: str, expected: str) -> None:
    found = only(tmp_path, type=kind, mentions=[BRAM])
    assert found.kind == expected
    assert bool(found.mentions) is (expected == "message")
    assert found.participants == ((ADA["id"],) if expected == "call" else ())


def test_text_that_was_left_alone_reads_as_people_see_it(tmp_path: Path) -> None:
    text = "<@864655500791644224> <@!5> <@&6> <#7> <a:party:8> `<@9>` [docs](https://a.example/x)"
    found = only(tmp_path, content=text, mentions=[BRAM])
    assert found.text == "@Bram @5 @6 #7 :party: `<@9>` docs (https://a.example/x)"
    assert [(m.type, m.id) for m in found.mentions] == [
        ("user", BRAM["id"]),
        ("user", "5"),
        ("group", "6"),
        ("channel", "7"),
    ]
    assert [link.url for link in found.links] == ["https://a.example/x"]


def test_stickers_files_and_polls_are_content_and_a_message_without_any_is_kept(tmp_path: Path) -> None:
    sticker = {"id": "3", "name": "wave", "format": "Png", "sourceUrl": "https://cdn.example/3.png"}
    poll = {"question": {"text": "lunch?"}, "answers": [{"text": "yes"}, {"poll_media": {"text": "no"}}]}
    found = dce(
        tmp_path,
        file(message("1", "", stickers=[sticker]), message("2", "", poll=poll), message("3", "", stickers=[{}])),
    )
    assert [[(a.kind, a.name) for a in m.attachments] for m in found.messages] == [
        [("sticker", "wave")],
        [("card", "lunch?")],
        [],
    ]
    assert [(m.text, m.text_source) for m in found.messages] == [
        ("", "none"),
        ("lunch?\n- yes\n- no", "attachments"),
        ("", "none"),
    ]


def test_reactions_without_givers_are_counted(tmp_path: Path) -> None:
    reactions = [{"emoji": {"name": "👍", "code": "thumbsup"}, "count": 3, "users": [ADA]},
                 {"emoji": {"name": "x"}, "count": 2}]  # fmt: skip
    found = dce(tmp_path, file(message(reactions=reactions)))
    assert [(r.name, r.user, r.count) for r in found.reactions] == [("👍", ADA["id"], 1), ("👍", "", 2), ("x", "", 2)]


def test_no_channel_is_public_and_its_speakers_read_it(tmp_path: Path) -> None:
    found = dce(tmp_path, file(message("1"), message("2", author=BRAM), message("3", author=HOOK), message("4")))
    assert [(c.id, c.name, c.type, c.topic, c.parent_id) for c in found.channels] == [
        ("10", "general", "unknown", "all", "9")
    ]
    assert [member.user for member in found.members] == [ADA["id"], BRAM["id"]]
    assert [m.sender.kind for m in found.messages] == ["user", "user", "bot", "user"]


@pytest.mark.parametrize(
    ("stated", "kind"),
    [("DirectTextChat", "dm"), ("DirectGroupTextChat", "group_dm"), ("GuildPublicThread", "thread"),
     ("GuildPrivateThread", "thread"), ("GuildNews", "unknown"), (None, "unknown")],
)  # fmt: skip
def test_kinds_of_channels(tmp_path: Path, stated: str | None, kind: str) -> None:
    found = dce(tmp_path, file(message(), channel={"type": stated}, guild={"id": "0", "name": "Direct Messages"}))
    assert found.channels[0].type == kind
    assert found.messages[0].thread_id == ("10" if kind == "thread" else None)
    assert found.messages[0].permalink == "https://discord.com/channels/@me/10/1084249090889613362"


@pytest.mark.parametrize(
    ("stated", "name", "kept"),
    [
        ("DirectTextChat", "Ada Quill", None),
        ("DirectGroupTextChat", "Ada Quill, Bram", None),
        ("DirectGroupTextChat", "Launch", "Launch"),
        ("GuildTextChat", "one, two", "one, two"),
    ],
)
def test_a_name_that_the_exporter_makes_of_people_is_none(
    tmp_path: Path, stated: str, name: str, kept: str | None
) -> None:
    found = dce(tmp_path, file(message(), channel={"type": stated, "name": name}))
    assert found.channels[0].name == kept
    (told,) = (m.ingest for m in found.messages)
    assert told is not None
    assert (told.origin == "10#0") == stated.startswith("Direct")


def test_who_was_taken_out_of_a_group_reads_it_no_more(tmp_path: Path) -> None:
    removed = message("2", "Removed a recipient.", type="RecipientRemove", mentions=[BRAM])
    found = dce(tmp_path, file(removed, message("1", author=BRAM), channel={"type": "DirectGroupTextChat"}))
    last = max((m for m in found.members if m.user == BRAM["id"]), key=lambda m: float(m.version))
    assert not last.present


def test_parts_and_other_files_lie_side_by_side(tmp_path: Path) -> None:
    path = zipped(
        tmp_path / "acme.zip",
        {"general.json": file(message("1"), message("2")), "general [part 2].json": file(message("2"), message("3")),
         "general.json_Files/data.json": {"messages": "none"}, "general.json_Files/a.png": b"x",
         "bare.json": [1]},
    )  # fmt: skip
    assert recognises(path)
    found = drawn("discord-dce", path)
    assert sorted({m.id for m in found.messages}) == ["1", "2", "3"]
    assert found.report.duplicates == 2  # the channel and the message that both parts hold
    assert found.report.skipped == {"not-an-export-file": 3}


def test_other_json_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "rooms.json"
    path.write_text('{"messages": [], "room_name": "x"}')
    assert not recognises(path)
    with pytest.raises(SourceError, match=r"rooms\.json.*expected DiscordChatExporter"):
        list(read(path, Report()))


def test_a_file_cut_before_its_messages_is_refused(tmp_path: Path) -> None:
    found = dce(tmp_path, file(message()))
    whole = (tmp_path / "export" / "part 0.json").read_text()
    (tmp_path / "export" / "part 1.json").write_text(whole[: whole.index('"messages"') + 12])
    again = drawn("discord-dce", tmp_path / "export")
    assert again.messages == found.messages
    assert again.report.rejected.total() == 1


ROWS = [
    message("1", "one", mentions=[BRAM], reactions=[{"emoji": {"name": "x"}, "count": 2, "users": [BRAM]}]),
    message("2", "two", author=BRAM, type="Reply", reference={"messageId": "1", "channelId": "10"}),
    message("3", "three", timestampEdited="2023-03-11T15:58:47+00:00"),
    message("3", "three!", timestampEdited="2023-03-11T15:59:47+00:00"),
    message("4", "", author=HOOK, embeds=[{"title": "t", "url": "https://a.example", "fields": [{"name": "n"}]}]),
    message("5", "", type="RecipientRemove", mentions=[BRAM]),
]


def state(found: Drawn) -> set[Any]:
    return {msgspec.structs.replace(event, ingest=None) for event in found.events}


@settings(deadline=None, max_examples=40)
@given(st.permutations(ROWS), st.integers(0, len(ROWS)))
def test_the_order_of_messages_and_files_changes_nothing(rows: list[Any], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parts = dce(Path(folder), file(*rows[:cut]), file(*rows[cut:]))
        assert state(parts) == state(dce(Path(folder), file(*ROWS), file(*ROWS)))


@settings(deadline=None)
@given(mutated(file(*ROWS)))
def test_a_damaged_file_costs_no_other_file(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.json").write_bytes(raw)
        (Path(folder) / "b.json").write_text(json.dumps(file(message("99", "the last"))))
        assert drawn("discord-dce", Path(folder)).texts[-1:] == ["the last"]
