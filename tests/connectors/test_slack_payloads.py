from __future__ import annotations

import copy
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Given, Report
from streammem.connectors.slack.payloads import SlackPayloads, events, history
from streammem.core.events import content_hash, decode, encode
from streammem.core.registers import fact_key, fact_order, number
from streammem.records import (
    AttributeEvent,
    ChannelEvent,
    Event,
    GroupEvent,
    MembershipEvent,
    MessageEvent,
    ReactionEvent,
    TieEvent,
    UserEvent,
)
from tests.connectors.sources import Drawn
from tests.connectors.test_any_input import VALUES, replaced, spots

SAMPLES = Path(__file__).parent.parent / "data" / "samples" / "slack_events"
TS = "1704190000.000100"


def said(text: str = "hello", ts: str = TS, **more: Any) -> dict[str, Any]:
    return {"type": "message", "user": "U0ADA", "text": text, "ts": ts, "channel": "C0001", "event_ts": ts, **more}


def wrapped(event: dict[str, Any], team: str = "T0001", **more: Any) -> dict[str, Any]:
    return {"type": "event_callback", "team_id": team, "event": event, "event_id": "Ev1", "event_time": 1, **more}


def changed(inner: dict[str, Any], before: dict[str, Any], when: str = "1704190100.000100") -> dict[str, Any]:
    event = {"type": "message", "subtype": "message_changed", "channel": "C0001", "ts": when, "event_ts": when}
    return wrapped({**event, "message": inner, "previous_message": before})


def happened(kind: str, when: str = "1704190050.000000", **more: Any) -> dict[str, Any]:
    return wrapped({"type": kind, "event_ts": when, **more})


def page(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"ok": True, "messages": list(rows), "has_more": False, **more}


def drawn(*sent: Any, learn: bool = True, **options: Any) -> Drawn:
    """What the reader gives for payloads that were all learned first; every record in them is accounted for."""
    reader, report = SlackPayloads(Given(**options), "slack-events"), Report()
    for payload in sent if learn else ():
        reader.learn(payload)
    found = [event for n, payload in enumerate(sent) for event in reader.read(payload, report, f"raw@{n}")]
    assert [decode(encode(event)) for event in found] == found
    total = report.ignored.total() + report.rejected.total()
    assert report.read == report.accepted + report.duplicates + report.superseded + total
    assert len(report.refusals) == report.rejected.total()
    return Drawn(found, report)


def from_files(folder: Path, files: dict[str, Any], reader=history, **options: Any) -> Drawn:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    report = Report()
    return Drawn(list(reader.read(folder, report, Given(**options))), report)


# ---------------------------------------------------------------------------------------- what payloads are


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"type": "url_verification", "challenge": "x", "token": "t"}, "url-verification"),
        ({"type": "hello", "num_connections": 1}, "socket-control"),
        ({"type": "disconnect", "reason": "warning"}, "socket-control"),
        ({"envelope_id": "e", "type": "interactive", "payload": {"type": "block_actions"}}, "interaction"),
        ({"type": "block_actions", "actions": []}, "interaction"),
        ({"envelope_id": "e", "type": "slash_commands", "payload": {"command": "/x"}}, "slash-command"),
        ({"command": "/deploy", "response_url": "https://x.example", "text": "now"}, "slash-command"),
        ({"type": "app_rate_limited", "minute_rate_limited": 1, "team_id": "T1"}, "rate-limited"),
        ({"ok": True, "url": "https://acme.slack.com/"}, "other-page"),
        ({"ok": True, "users": ["U1"]}, "ids-only"),
        (happened("channel_archive", channel="C0001"), "channel-archived"),
        (happened("user_huddle_changed", user={"id": "U1"}), "presence"),
        (happened("pin_added", channel_id="C0001"), "other-event"),
        (happened("a_thing_of_next_year"), "other-event"),
        (happened("reaction_added", user="U1", reaction="x", item={"type": "file", "file": "F1"}), "other-item"),
        (wrapped(said("for you alone", is_ephemeral=True)), "ephemeral"),
        (changed(said("for you alone", is_ephemeral=True), {}), "ephemeral"),
        (wrapped(said(subtype="message_replied", message={})), "thread-notice"),
    ],
)
def test_what_states_nothing_is_ignored_by_its_reason(payload: Any, reason: str) -> None:
    read = drawn(payload, channel="C0001")
    assert (read.events, dict(read.report.ignored)) == ([], {reason: 1})


@pytest.mark.parametrize("payload", [said(""), said("", files=[None, {}]), said(" ", blocks=[{}], attachments=[])])
def test_a_message_that_says_nothing_is_kept(payload: dict[str, Any]) -> None:
    (message,) = drawn(wrapped(payload), channel="C0001").messages
    assert (message.op, message.kind, message.text, message.text_source) == ("upsert", "message", "", "none")


def test_a_reaction_to_a_file_is_ignored_though_it_names_no_channel() -> None:
    payload = happened("reaction_added", user="U1", reaction="x", item={"type": "file", "file": "F1"})
    assert dict(drawn(payload).report.ignored) == {"other-item": 1}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "not-an-object"),
        ("words", "not-an-object"),
        ([17], "not-an-object"),
        ({}, "unknown-payload"),
        ({"type": "object", "title": "a schema"}, "unknown-payload"),
        ({"ok": False, "error": "not_in_channel"}, "error-page"),
        ({"type": "event_callback", "team_id": "T1"}, "no-event"),
        ({"envelope_id": "e", "type": "events_api"}, "no-event"),
        (page({"user": "U1", "text": "whose?", "ts": TS}), "no-channel"),
        (page("words", channel="C1"), "not-an-object"),
        (wrapped(said(ts="soon")), "no-timestamp"),
        (wrapped(said(subtype="message_deleted")), "no-timestamp"),
        (wrapped(said(subtype="message_changed")), "no-message"),
        (happened("channel_rename", channel={"id": "C1"}), "no-name"),
        (happened("channel_id_changed", new_channel_id="C1"), "no-id"),
        (happened("member_joined_channel", channel="C1"), "no-user"),
        (happened("team_join", user="U1"), "no-id"),
        (happened("subteam_updated", subteam={}), "no-id"),
    ],
)
def test_what_cannot_be_used_is_rejected_by_its_reason(payload: Any, reason: str) -> None:
    read = drawn(payload)
    assert (read.events, dict(read.report.rejected)) == ([], {reason: 1})


def test_an_event_reads_the_same_bare_wrapped_and_in_an_envelope() -> None:
    envelope = {"envelope_id": "e", "type": "events_api", "payload": wrapped(said()), "retry_attempt": 2}
    read = drawn(wrapped(said()), envelope, said(), [said()], workspace="acme")
    assert (read.report.accepted, read.report.duplicates) == (1, 3)
    (message,) = {msg.text for msg in read.messages}
    assert message == "hello"


def test_the_sample_envelope_is_a_reply_in_its_channel() -> None:
    (sample,) = SAMPLES.glob("*.json")
    (message,) = drawn(json.loads(sample.read_text())).messages
    assert (message.workspace, message.channel.id, message.channel.type) == ("T111", "C111", "public")
    assert (message.reply_to, message.broadcast) == ("1633663824.000500", True)
    assert (message.source, message.source_format) == ("slack", "slack-events")


def test_records_of_a_page_have_origins_of_their_own() -> None:
    read = drawn(page({"user": "U1", "text": "a", "ts": "1.5"}, {"text": "no ts"}, channel="C1"))
    assert read.messages[0].ingest.origin == "raw@0/0"
    assert [refusal.origin for refusal in read.report.refusals] == ["raw@0/1"]


def test_dropped_events_that_slack_admits_are_a_gap() -> None:
    assert drawn({"type": "app_rate_limited", "team_id": "T1"}).report.gaps == {"rate-limited": 1}


# ------------------------------------------------------------------------------------- messages and versions


def test_an_unfurl_is_no_edit() -> None:
    before, after = said("see"), said("see", attachments=[{"title": "a page", "from_url": "https://a.example"}])
    read = drawn(wrapped(said("see")), changed(after, before))
    assert [(m.version, m.edited_at) for m in read.messages] == [("0", None), ("0", None)]
    assert read.report.superseded == 1


def test_a_reaction_that_comes_as_a_change_is_no_edit_and_no_new_version() -> None:
    after = said("see", reactions=[{"name": "eyes", "users": ["U1"], "count": 1}])
    read = drawn(wrapped(said("see")), changed(after, said("see")))
    assert {m.version for m in read.messages} == {"0"}
    assert [(r.name, r.user) for r in read.reactions] == [("eyes", "U1")]
    assert len({content_hash(m) for m in read.messages}) == 1


def test_a_change_that_nobody_edited_stands_over_what_was_before() -> None:
    huddle = said("", subtype="huddle_thread", room={"created_by": "U1", "participant_history": ["U1"]})
    ended = said("", subtype="huddle_thread", room={"created_by": "U1", "participant_history": ["U1", "U2"]})
    first, last = drawn(wrapped(huddle), changed(ended, huddle)).messages
    assert (first.version, last.version, last.edited_at) == ("0", "1704190100.000100", None)
    assert last.participants == ("U1", "U2")


def test_an_edit_names_its_version_and_finds_its_message_by_what_was_before() -> None:
    inner = said("new", edited={"user": "U0ADA", "ts": "1704190060.000000"})
    del inner["ts"]
    (message,) = drawn(changed(inner, said("old"))).messages
    assert (message.id, message.version, message.text) == (TS, "1704190060.000000", "new")


@pytest.mark.parametrize(
    ("inner", "before", "version"),
    [
        (said("", edited={"user": "U0ADA", "ts": "1704190060.000000"}), said("secret"), "1704190060.000000"),
        (said(""), said("", files=[{"id": "F1", "name": "secret.txt"}]), "1704190100.000100"),
    ],
)
def test_a_change_that_leaves_nothing_deletes_the_message(
    inner: dict[str, Any], before: dict[str, Any], version: str
) -> None:
    (message,) = drawn(changed(inner, before)).messages
    assert (message.op, message.id, message.version) == ("delete", TS, version)


def test_a_deletion_has_the_version_of_its_time_and_finds_its_message_by_what_was_before() -> None:
    when = "1704190200.000100"
    gone = {"type": "message", "subtype": "message_deleted", "channel": "C0001", "ts": when, "event_ts": when}
    (message,) = drawn(wrapped({**gone, "previous_message": said()})).messages
    assert (message.op, message.id, message.version) == ("delete", TS, when)


def test_a_forwarded_message_is_kept_apart_from_the_words_of_its_sender() -> None:
    shared = {
        "is_share": True,
        "is_msg_unfurl": True,
        "ts": "1700000000.000100",
        "channel_id": "C0009",
        "from_url": "https://acme.slack.com/archives/C0009/p1700000000000100",
        "text": "ask <@U0BRAM>",
        "files": [{"id": "F1", "name": "plan.pdf"}],
    }
    (silent,) = drawn(wrapped(said("", attachments=[shared]))).messages
    (with_words,) = drawn(wrapped(said("look", attachments=[shared]))).messages
    assert (silent.text, silent.text_source, silent.mentions) == ("", "none", ())
    assert (silent.forwarded.id, silent.forwarded.channel) == ("1700000000.000100", "C0009")
    assert silent.forwarded.text == "ask @U0BRAM"
    assert [(a.kind, a.text) for a in silent.attachments] == [("file", None), ("unfurl", None)]
    assert with_words.forwarded is None
    assert [a.text for a in with_words.attachments] == [None, "ask @U0BRAM"]


def test_a_quoted_message_may_stand_in_blocks_only() -> None:
    words = {"type": "rich_text_section", "elements": [{"type": "text", "text": "in blocks"}]}
    blocks = [{"type": "rich_text", "elements": [words]}]
    shared = {"is_share": True, "message_blocks": [{"ts": "1.5", "message": {"blocks": blocks}}]}
    (message,) = drawn(wrapped(said("", attachments=[shared]))).messages
    assert message.forwarded.text == "in blocks"
    linked = shared | {"from_url": "https://acme.slack.com/archives/C0009/p1700000000000100?thread_ts=1.5"}
    (message,) = drawn(wrapped(said("", attachments=[linked]))).messages
    assert (message.forwarded.id, message.forwarded.channel) == ("1700000000.000100", "C0009")


@pytest.mark.parametrize(
    ("file", "kind", "state", "text"),
    [
        ({"mode": "hosted", "mimetype": "image/png"}, "image", "available", None),
        ({"mode": "external", "external_url": "https://d.example"}, "file", "available", None),
        ({"mode": "snippet", "preview": "x &lt; 1"}, "file", "available", "x < 1"),
        ({"mode": "quip", "filetype": "quip"}, "canvas", "available", None),
        ({"mode": "canvas", "filetype": "canvas"}, "canvas", "available", None),
        ({"mode": "list", "filetype": "list"}, "other", "available", None),
        ({"mode": "email", "subject": "Re: plan", "plain_text": "words"}, "file", "available", "words"),
        ({"mode": "tombstone"}, "file", "deleted", None),
        ({"mode": "hidden_by_limit"}, "file", "unavailable", None),
        ({"mode": "hosted", "file_access": "check_file_info"}, "file", "unavailable", None),
        ({"mode": "hosted", "transcription": {"preview": {"content": "said"}}}, "file", "available", "said"),
    ],
)
def test_files_are_listed_in_every_mode(file: dict[str, Any], kind: str, state: str, text: str | None) -> None:
    (message,) = drawn(wrapped(said("", files=[{"id": "F1", **file}]))).messages
    assert [(a.kind, a.state, a.text) for a in message.attachments] == [(kind, state, text)]


def test_a_call_that_an_app_announced_names_who_was_in_it() -> None:
    people = [{"slack_id": "U1"}, {"external_id": "x"}, {"slack_id": "U2"}]
    call = {
        "type": "call",
        "call": {"v1": {"name": "Standup", "join_url": "https://c.example", "all_participants": people}},
    }
    (message,) = drawn(wrapped(said("", blocks=[call]))).messages
    assert (message.text, message.participants) == ("Standup (https://c.example)", ("U1", "U2"))
    del call["call"]["v1"]["name"], call["call"]["v1"]["join_url"]
    (silent,) = drawn(wrapped(said("", blocks=[call]))).messages
    assert (silent.kind, silent.participants) == ("call", ("U1", "U2"))


def test_a_permalink_to_a_reply_names_its_thread() -> None:
    (message,) = drawn(wrapped(said(ts="1704190005.000100", thread_ts=TS)), domain="acme").messages
    assert message.permalink == (
        "https://acme.slack.com/archives/C0001/p1704190005000100?thread_ts=1704190000.000100&cid=C0001"
    )


# ---------------------------------------------------------------------------------------------- facts


def test_reactions_are_given_and_taken_back() -> None:
    what = {"user": "U1", "reaction": "eyes", "item": {"type": "message", "channel": "C0001", "ts": TS}}
    added, again, removed = (
        happened("reaction_added", **what),
        happened("reaction_added", **what),
        happened("reaction_removed", "1704190060.000000", **what),
    )
    read = drawn(added, again, removed)
    assert read.report.duplicates == 1
    assert [(r.message, r.present, r.version) for r in read.reactions] == [
        (TS, True, "1704190050.000000"),
        (TS, True, "1704190050.000000"),
        (TS, False, "1704190060.000000"),
    ]


def test_membership_follows_joins_and_leaves_and_slacks_own_messages() -> None:
    read = drawn(
        happened("member_joined_channel", user="U1", channel="C0001"),
        happened("member_left_channel", "1704190060.000000", user="U1", channel="C0001"),
        page({"subtype": "channel_join", "user": "U2", "text": "<@U2> joined", "ts": "5.5"}, channel="C0001"),
        page({"subtype": "group_leave", "user": "U3", "text": "<@U3> left", "ts": "6.5"}, channel="C0001"),
        {"ok": True, "members": ["U4"], "channel": "C0001"},
    )
    assert [(m.user, m.present, m.version) for m in read.members] == [
        ("U1", True, "1704190050.000000"),
        ("U1", False, "1704190060.000000"),
        ("U2", True, "5.500000"),
        ("U3", False, "6.500000"),
        ("U4", True, "1"),
    ]


@pytest.mark.parametrize(
    ("payload", "attribute", "value"),
    [
        (happened("channel_rename", channel={"id": "C0001", "name": "a &amp; b"}), "name", "a & b"),
        (happened("group_rename", channel={"id": "C0001", "name": "new"}), "name", "new"),
        (wrapped(said("renamed", subtype="channel_name", name="new", old_name="old")), "name", "new"),
        (wrapped(said("set the topic", subtype="channel_topic", topic="")), "topic", ""),
        (wrapped(said("made private", subtype="channel_convert_to_private")), "type", "private"),
        (happened("im_created", user="U1", channel={"id": "C0001"}), "type", "dm"),
        ({"ok": True, "channel": {"id": "C0001", "name": "new"}}, "name", "new"),
    ],
)
def test_a_change_states_one_attribute_and_wipes_nothing(payload: Any, attribute: str, value: str) -> None:
    read = drawn(payload)
    (fact,) = read.of(AttributeEvent)
    assert (fact.entity, fact.id, fact.attribute, fact.value) == ("channel", "C0001", attribute, value)
    assert all(number(hint.version) < number("1") for hint in read.channels)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"is_channel": True, "is_private": False}, "public"),
        ({"is_channel": True, "is_private": True}, "private"),
        ({"is_group": True}, "private"),
        ({"is_mpim": True, "is_group": True, "name": "mpdm-ada--bram-1"}, "group_dm"),
        ({"is_im": True, "user": "U1"}, "dm"),
    ],
)
def test_a_list_states_channels_whole(row: dict[str, Any], kind: str) -> None:
    read = drawn({"ok": True, "channels": [{"id": "C1", "name": "ops", "created": 5, "updated": 1700000000123, **row}]})
    (channel,) = read.channels
    assert (channel.type, channel.version) == (kind, "1700000000.123")


def test_a_rename_that_slack_told_in_a_message_leaves_the_old_name_as_an_alias() -> None:
    told = wrapped(said("renamed", subtype="channel_name", name="new", old_name="old", channel_type="channel"))
    listed = {"ok": True, "channels": [{"id": "C0001", "name": "new", "is_channel": True, "created": 5}]}
    hint, state = drawn(told, listed, workspace="acme").channels
    assert (hint.version, hint.type, hint.aliases) == ("0.01704190000000100", "unknown", ("old",))
    assert (state.version, state.name, state.type, state.aliases) == ("5", "new", "public", ("old",))
    (hint,) = drawn(told).channels
    assert hint.type == "public"


def test_a_channel_that_is_made_is_public_and_one_that_is_deleted_is_gone() -> None:
    made = happened("channel_created", channel={"id": "C1", "name": "new", "created": 1704190050})
    read = drawn(made, happened("channel_deleted", "1704190090.000000", channel="C1"))
    assert [(c.id, c.type, c.present) for c in read.channels] == [("C1", "public", True), ("C1", "unknown", False)]


def test_people_come_whole_from_lists_and_changes() -> None:
    row = {"id": "U1", "name": "ada", "updated": 1700000000, "profile": {"display_name": "Ada"}}
    read = drawn(
        {"ok": True, "members": [row]},
        {"ok": True, "user": row},
        happened("user_change", user=row),
        happened("user_profile_changed", user={**row, "updated": 1700000001, "deleted": True}),
        happened("bot_added", bot={"id": "B1", "name": "ci"}),
        workspace="acme",
    )
    assert [(u.id, u.name, u.version, u.present, u.kind) for u in read.users] == [
        *[("U1", "Ada", "1700000000", True, "user")] * 3,
        ("U1", "Ada", "1700000001", False, "user"),
        ("B1", "ci", "1704190050.000000", True, "bot"),
    ]
    assert read.report.duplicates == 2


def test_user_groups_come_whole_or_as_hints_or_are_followed_from_a_whole_state() -> None:
    group = {"id": "S1", "handle": "ops", "name": "Operations", "date_update": 100, "users": ["U1", "U2"]}
    moved = {"subteam_id": "S1", "date_update": 200, "added_users": ["U3"], "removed_users": ["U1"]}
    read = drawn(
        happened("subteam_members_changed", **moved),
        happened("subteam_updated", subteam=group),
        {"ok": True, "usergroups": [{"id": "S2", "handle": "dev", "user_count": 4, "date_update": 100}]},
        happened("subteam_members_changed", subteam_id="S2", date_update=300, added_users=["U1"]),
        wrapped(said("<!subteam^S1> <!subteam^S2|@old>")),
    )
    assert [(g.id, g.name, g.version, g.members) for g in read.of(GroupEvent)] == [
        ("S1", "ops", "200", ("U2", "U3")),
        ("S1", "ops", "100", ("U1", "U2")),
        ("S2", "dev", "0.00000000000000100", ()),
    ]
    assert read.report.ignored == {"partial-group": 1}
    assert read.texts == ["@ops @dev"]


def test_ids_of_a_channel_that_changed_twice_are_read_under_the_last_whatever_the_order() -> None:
    sent = [
        wrapped(said("one", channel="G0001")),
        happened("channel_id_changed", "1704190002.000000", old_channel_id="C0005", new_channel_id="C0009"),
        happened("channel_id_changed", "1704190001.000000", old_channel_id="G0001", new_channel_id="C0005"),
        happened("reaction_added", user="U1", reaction="x", item={"type": "message", "channel": "C0005", "ts": TS}),
    ]
    for order in (sent, sent[::-1]):
        read = drawn(*order)
        assert {m.channel.id for m in read.messages} == {"C0009"} == {r.channel for r in read.reactions}
        assert {(t.id, t.same_as) for t in read.of(TieEvent)} == {("C0009", "C0005"), ("C0005", "G0001")}


def test_a_channel_that_got_its_old_id_back_is_read_under_it() -> None:
    there = happened("channel_id_changed", "1704190001.000000", old_channel_id="G1", new_channel_id="C1")
    back = happened("channel_id_changed", "1704190002.000000", old_channel_id="C1", new_channel_id="G1")
    read = drawn(there, back, wrapped(said("a", channel="G1")), wrapped(said("b", "2.5", channel="C1")))
    assert {m.channel.id for m in read.messages} == {"G1"}


# ----------------------------------------------------------------------------------------- names and places


def test_names_are_known_whatever_comes_first() -> None:
    sent = [
        wrapped(said("<@U1|old> in <#C2> <@U9> <@U8|label>")),
        happened("user_change", user={"id": "U1", "updated": 2, "profile": {"display_name": "Ada"}}),
        {"ok": True, "members": [{"id": "U1", "updated": 1, "profile": {"display_name": "Before"}}]},
        {"ok": True, "channels": [{"id": "C2", "name": "ops", "is_channel": True, "created": 1}]},
    ]
    for order in (sent, sent[::-1]):
        assert drawn(*order).texts == ["@Ada in #ops @U9 @label"]


def test_a_profile_in_a_message_is_a_hint_for_its_sender_only() -> None:
    profile = {"display_name": "ada", "real_name": "Ada Quill"}
    first, second = drawn(wrapped(said("hi", user_profile=profile)), wrapped(said("<@U0ADA>", "2.5"))).messages
    assert (first.sender.name, second.sender.name, second.text) == ("ada", None, "@U0ADA")


def test_a_channel_has_one_workspace_whichever_installation_delivered_its_events() -> None:
    def seen_by(team: str, ts: str) -> dict[str, Any]:
        installed = [{"team_id": team, "enterprise_id": None, "is_enterprise_install": False}]
        return wrapped(said(ts=ts), team="T-author", authorizations=installed)

    assert {m.workspace for m in drawn(seen_by("T2", "1.5"), seen_by("T1", "2.5")).messages} == {"T1"}
    assert {m.workspace for m in drawn(seen_by("T2", "1.5"), workspace="acme").messages} == {"acme"}


def test_an_app_of_a_whole_organisation_reads_one_workspace() -> None:
    installed = [{"team_id": "T7", "enterprise_id": "E1", "is_enterprise_install": True}]
    assert drawn(wrapped(said(), team="T7", authorizations=installed)).messages[0].workspace == "E1"


def test_what_search_finds_is_of_the_channels_it_names() -> None:
    match = {
        "channel": {"id": "C5", "name": "ops", "is_private": True},
        "username": "ada",
        "user": None,
        "text": "found",
        "ts": TS,
        "permalink": "https://acme.slack.com/archives/C5/p1704190000000100",
    }
    (message,) = drawn({"ok": True, "query": "x", "messages": {"matches": [match], "paging": {}}}).messages
    assert (message.channel.id, message.channel.name, message.channel.type) == ("C5", "ops", "private")
    assert (message.sender.name, message.permalink) == ("ada", match["permalink"])


def test_a_bare_row_of_a_pipeline_is_a_message() -> None:
    row = {"type": "message", "channel_id": "C1", "float_ts": 1704190000.0001, "ts": TS, "user": "U1", "text": "hi"}
    (message,) = drawn(row).messages
    assert (message.channel.id, message.id) == ("C1", TS)


# ------------------------------------------------------------------------------------------------- files


def test_pages_and_lists_in_any_files_are_read_together(tmp_path: Path) -> None:
    root = {"user": "U1", "text": "root", "ts": "1704190000.000100", "thread_ts": "1704190000.000100", "reply_count": 3}
    reply = {"user": "U2", "text": "<@U1>", "ts": "1704190001.000100", "thread_ts": "1704190000.000100"}
    read = from_files(
        tmp_path,
        {
            "C0001/history.json": page(root),
            "C0001/replies.json": page(root, reply, has_more=True),
            "C0001/again.json": page(reply, is_limited=True),
            "users.json": {"ok": True, "members": [{"id": "U1", "team_id": "T1", "profile": {"real_name": "Ada"}}]},
        },
    )
    assert {m.workspace for m in read.messages} == {"T1"}
    assert {m.text for m in read.messages} == {"root", "@Ada"}
    assert read.report.duplicates == 2
    assert read.report.gaps == {"missing-replies": 2, "limited-history": 1}


@pytest.mark.parametrize(
    ("pages", "gaps"),
    [
        ([page(said(), has_more=True)], {"more-pages": 1}),
        ([page(said(), has_more=True), page(said("b", "2.5"), has_more=False)], {}),
        ([page(said(), has_more=False), page(said("b", "2.5"), has_more=True)], {}),
        ([{"ok": True, "members": [{"id": "U1"}], "response_metadata": {"next_cursor": "x"}}], {"more-pages": 1}),
        ([{"ok": True, "members": [{"id": "U1"}], "response_metadata": {"next_cursor": ""}}], {}),
        ([page(said("r", "2.5", thread_ts="1.500000"))], {"missing-root": 1}),
        (
            [page(said(thread_ts=TS)), page(said(thread_ts=TS), said("r", "2.5", thread_ts=TS), has_more=True)],
            {"more-pages": 1},
        ),
    ],
)
def test_what_pages_announce_and_do_not_hold_is_a_gap(tmp_path: Path, pages: list[Any], gaps: dict[str, int]) -> None:
    read = from_files(tmp_path, {f"{n}.json": value for n, value in enumerate(pages)}, channel="C0001")
    assert read.report.gaps == gaps


def test_a_page_may_be_a_bare_list_of_messages(tmp_path: Path) -> None:
    read = from_files(tmp_path, {"page.json": [said("one"), said("two", "2.5")]}, channel="C0001")
    assert [(m.channel.id, m.text) for m in read.messages] == [("C0001", "one"), ("C0001", "two")]


def test_a_page_that_was_cut_short_gives_its_whole_messages(tmp_path: Path) -> None:
    whole = json.dumps(page(said("one"), said("two", "2.5"), said("three", "3.5"), channel="C1"))
    read = from_files(tmp_path, {"page.json": whole[: whole.index("three")]})
    assert [m.text for m in read.messages] == ["one", "two"]
    assert read.report.rejected == {"truncated-file": 1}


def test_files_of_events_and_pages_are_recognised_as_what_they_are(tmp_path: Path) -> None:
    from_files(tmp_path / "e", {"raw.jsonl": json.dumps(wrapped(said())) + "\n"})
    from_files(tmp_path / "h", {"C1.json": page(said())})
    from_files(tmp_path / "u", {"users.json": {"ok": True, "user": {"id": "U1"}}})
    from_files(tmp_path / "x", {"other.json": {"value": [{"id": "1"}]}})
    seen = [(events.recognises(tmp_path / name), history.recognises(tmp_path / name)) for name in "ehux"]
    assert seen == [(True, False), (False, True), (False, True), (False, False)]


# ------------------------------------------------------------------------------------------------ properties


def standing(found: list[Event]) -> dict[Any, str]:
    """Which statement of each register stands when all are in."""
    state: dict[Any, tuple[Any, str]] = {}
    for event in found:
        digest = content_hash(event)
        if isinstance(event, MessageEvent):
            key: Any = (event.workspace, event.channel.id, event.id)
            order: Any = (number(event.version), event.op == "delete", digest)
        else:
            key, order = fact_key(event), fact_order(event, digest)
        state[key] = max(state.get(key, (order, digest)), (order, digest))
    return {key: digest for key, (_, digest) in state.items()}


CHANNELS = st.sampled_from(["C1", "C2", "G1"])
USERS = st.sampled_from(["U1", "U2"])
TIMES = st.integers(1, 4).map(lambda n: f"170419000{n}.000100")
TEXTS = st.sampled_from(["a", "<@U1> <@U2> <#C1> <#C2> <!subteam^S1>"])
DATES = st.integers(1, 2)
ROWS = st.builds(said, TEXTS, TIMES, channel=CHANNELS, user=USERS)


def edit(row: dict[str, Any], when: str) -> dict[str, Any]:
    event = {"type": "message", "subtype": "message_changed", "channel": row["channel"], "ts": when, "event_ts": when}
    return wrapped({**event, "message": {**row, "edited": {"ts": when}}, "previous_message": row})


def delete(row: dict[str, Any], when: str) -> dict[str, Any]:
    event = {"type": "message", "subtype": "message_deleted", "channel": row["channel"], "ts": when, "event_ts": when}
    return wrapped({**event, "deleted_ts": row["ts"]})


def react(kind: str, row: dict[str, Any], user: str, when: str) -> dict[str, Any]:
    item = {"type": "message", "channel": row["channel"], "ts": row["ts"]}
    return happened(kind, when, user=user, reaction="x", item=item)


def people(user: str, name: str, updated: int) -> dict[str, Any]:
    return {"ok": True, "members": [{"id": user, "updated": updated, "profile": {"display_name": name}}]}


def state_of_group(user: str, date: int) -> dict[str, Any]:
    return happened("subteam_updated", subteam={"id": "S1", "handle": "ops", "date_update": date, "users": [user]})


def change_of_group(user: str, date: int) -> dict[str, Any]:
    return happened("subteam_members_changed", subteam_id="S1", date_update=date, added_users=[user])


def rename(channel: str, name: str, when: str) -> dict[str, Any]:
    return happened("channel_rename", when, channel={"id": channel, "name": name})


def move(old: str, new: str, when: str) -> dict[str, Any]:
    return happened("channel_id_changed", when, old_channel_id=old, new_channel_id=new)


SENT = st.one_of(
    st.builds(wrapped, ROWS, st.sampled_from(["T1", "T2"])),
    st.builds(edit, ROWS, TIMES),
    st.builds(delete, ROWS, TIMES),
    st.builds(react, st.sampled_from(["reaction_added", "reaction_removed"]), ROWS, USERS, TIMES),
    st.builds(page, ROWS, ROWS),
    st.builds(people, USERS, st.sampled_from(["Ada", "Bram"]), DATES),
    st.builds(state_of_group, USERS, DATES),
    st.builds(change_of_group, USERS, DATES),
    st.builds(rename, CHANNELS, st.sampled_from("pq"), TIMES),
    st.builds(move, CHANNELS, CHANNELS, TIMES),
)
"""Payloads about few channels, people and moments, so that many are about the same things."""


@settings(deadline=None, max_examples=300)
@given(st.lists(SENT, min_size=6, max_size=14), st.randoms(use_true_random=False))
def test_the_order_of_payloads_changes_nothing(payloads: list[Any], dice: random.Random) -> None:
    shuffled = dice.sample(payloads, len(payloads))
    first, second = drawn(*payloads), drawn(*shuffled)
    assert standing(first.events) == standing(second.events)
    assert first.report.rejected == second.report.rejected


@settings(deadline=None)
@given(st.permutations([f(user, date) for f in (state_of_group, change_of_group) for user in "ab" for date in (1, 2)]))
def test_the_order_of_statements_about_a_group_changes_nothing(payloads: list[Any]) -> None:
    assert standing(drawn(*payloads[:6]).events) == standing(drawn(*sorted(payloads[:6], key=json.dumps)).events)


@settings(deadline=None, max_examples=50)
@given(st.lists(SENT, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_names_of_files_and_what_shares_one_change_nothing(payloads: list[Any], dice: random.Random) -> None:
    shuffled = dice.sample(payloads, len(payloads))
    cut = dice.randint(0, len(payloads))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first = from_files(Path(one), {f"{n}.json": payload for n, payload in enumerate(payloads)}, workspace="acme")
        lines = "".join(json.dumps(payload) + "\n" for payload in shuffled[cut:])
        second = from_files(Path(other), {"list.json": shuffled[:cut], "rest.jsonl": lines}, workspace="acme")
    assert standing(first.events) == standing(second.events)
    assert first.report.gaps == second.report.gaps


SEEDS: list[Any] = [
    wrapped(said("<@U1>", blocks=[{"type": "call", "call": {"v1": {"all_participants": [{"slack_id": "U1"}]}}}])),
    changed(said("b", edited={"ts": "2.5"}, files=[{"id": "F1", "mode": "hosted"}]), said("a")),
    happened("reaction_added", user="U1", reaction="x", item={"type": "message", "channel": "C1", "ts": TS}),
    happened("channel_id_changed", old_channel_id="C1", new_channel_id="C2"),
    happened("channel_rename", channel={"id": "C1", "name": "x"}),
    happened("user_change", user={"id": "U1", "updated": 1, "profile": {"display_name": "a"}}),
    happened("subteam_updated", subteam={"id": "S1", "handle": "x", "users": ["U1"], "date_update": 1}),
    happened("subteam_members_changed", subteam_id="S1", date_update=2, added_users=["U1"], removed_users=[]),
    {"envelope_id": "e", "type": "events_api", "payload": wrapped(said())},
    page(said(attachments=[{"is_share": True, "message_blocks": [{"message": {"blocks": []}}]}]), channel="C1"),
    {"ok": True, "channels": [{"id": "C1", "name": "x", "is_mpim": True, "members": ["U1"]}]},
    {"ok": True, "members": [{"id": "U1"}], "response_metadata": {"next_cursor": ""}},
    {
        "ok": True,
        "query": "x",
        "messages": {"matches": [{"channel": {"id": "C1"}, "ts": TS, "text": "x"}], "paging": {}},
    },
]


@st.composite
def mangled(draw: st.DrawFn) -> Any:
    value = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        value = replaced(value, draw(st.sampled_from(spots(value))), draw(VALUES | st.sampled_from(SEEDS)))
    return json.loads(json.dumps(value), parse_float=str, parse_constant=lambda _: None)


@settings(deadline=None, max_examples=300)
@given(st.lists(mangled(), max_size=4))
def test_no_payload_raises_and_each_record_is_accounted_for(payloads: list[Any]) -> None:
    read = drawn(*payloads)
    assert read.report.read >= 0
    for payload in payloads:
        events.looks(payload), history.looks(payload)


def test_every_kind_of_fact_was_looked_at() -> None:
    kinds = {
        MessageEvent,
        ReactionEvent,
        UserEvent,
        ChannelEvent,
        MembershipEvent,
        GroupEvent,
        AttributeEvent,
        TieEvent,
    }
    row = {"id": "C1", "name": "x", "is_mpim": True, "members": ["U1"]}
    assert {type(event) for event in drawn(*SEEDS, {"ok": True, "channels": [row]}).events} == kinds


# ------------------------------------------------------------------------------------- what reviewers brought


def card(**more: Any) -> dict[str, Any]:
    return said("", bot_id="B1", subtype="bot_message", attachments=[more])


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (card(text="Accepted"), card(text="Accept?")),
        (
            said("", blocks=[{"type": "header", "text": {"type": "plain_text", "text": "done"}}]),
            said("", blocks=[{"type": "header", "text": {"type": "plain_text", "text": "running"}}]),
        ),
    ],
)
def test_a_card_that_an_app_replaced_stands_over_what_was_before(after: dict[str, Any], before: dict[str, Any]) -> None:
    (now,) = drawn(changed(after, before)).messages
    assert number(now.version) > number(drawn(wrapped(before)).messages[0].version)


def test_a_preview_that_slack_added_beside_a_card_is_no_change() -> None:
    preview = {"from_url": "https://a.example", "text": "A"}
    after = {**card(text="see"), "attachments": [{"text": "see"}, preview]}
    assert drawn(changed(after, card(text="see"))).messages[0].version == "0"


def test_what_search_finds_in_closed_conversations_is_a_message_with_its_thread() -> None:
    people = {"ok": True, "members": [{"id": "U9", "profile": {"real_name": "Joe Kim"}}]}
    address = "https://acme.slack.com/archives/D1/p1704190000000100?thread_ts=1704180000.000100&cid=D1"
    direct = {"type": "im", "user": "U9", "ts": TS, "text": "hi", "permalink": address}
    found = [
        {**direct, "channel": {"id": "D1", "name": "U9", "is_im": True, "user": "U9"}},
        {**direct, "type": "group", "channel": {"id": "G1", "name": "closed", "is_private": True}, "permalink": ""},
        {**direct, "channel": {"id": "D2", "name": "U8", "is_im": True, "user": "U8"}, "permalink": None},
    ]
    read = drawn({"ok": True, "query": "hi", "messages": {"matches": found}}, people, workspace="T1")
    shown = [(m.channel.id, m.channel.name, m.channel.type, m.reply_to) for m in read.messages]
    assert shown == [
        ("D1", None, "dm", "1704180000.000100"),
        ("G1", "closed", "private", None),
        ("D2", None, "dm", None),
    ]


def test_a_name_made_of_handles_is_no_name_wherever_it_is_told() -> None:
    handles = "mpdm-ada--joe-1"
    closed = {"id": "G1", "name": handles, "is_mpim": True, "members": ["U1", "U9"]}
    found = {"type": "message", "user": "U9", "ts": TS, "text": "hi", "channel": {"id": "G2", "name": handles}}
    turned = wrapped(said("turned", subtype="group_name", name="launch", old_name=handles))
    read = drawn({"channels": [closed]}, {"messages": {"matches": [found]}}, turned, workspace="T1")
    named = happened("channel_rename", channel={"id": "G2", "name": handles})
    assert drawn(named).report.ignored == {"no-state": 1}
    assert handles not in "".join(map(repr, (*read.events, *drawn(named).events)))
    assert {m.user for m in read.members if m.channel == "G1"} == {"U1", "U9"}


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ({"is_private": "true"}, "private"),
        ({"is_private": 1}, "private"),
        ({"is_private": "false"}, "public"),
        ({"is_private": None}, "public"),
        ({"is_mpim": "true"}, "group_dm"),
        ({"is_im": "1"}, "dm"),
    ],
)
def test_flags_that_a_table_wrote_in_words_open_no_closed_channel(flags: dict[str, Any], kind: str) -> None:
    row = {"id": "C1", "name": "ops", "is_channel": True, **flags}
    assert [channel.type for channel in drawn({"ok": True, "channels": [row]}).channels] == [kind]


@pytest.mark.parametrize(
    ("sign", "kind"), [("is_restricted", "external"), ("is_stranger", "external"), ("is_bot", "bot")]
)
def test_a_guest_that_a_table_tells_of_in_words_is_a_guest(sign: str, kind: str) -> None:
    row = {"id": "U1", "profile": {"real_name": "Gu"}, sign: "true", "deleted": "false"}
    (user,) = drawn({"ok": True, "members": [row]}).users
    assert (user.kind, user.present) == (kind, True)


def test_a_channel_whose_flag_nobody_can_read_has_no_stated_type() -> None:
    row = {"id": "C1", "name": "ops", "is_channel": True, "is_private": "perhaps"}
    assert drawn({"ok": True, "channels": [row]}).channels == []


def test_who_adds_a_bot_or_speaks_through_an_app_stays_a_person() -> None:
    people = {"ok": True, "members": [{"id": "U0ADA", "profile": {"real_name": "Ada"}}]}
    added = page(said("added an integration", subtype="bot_add", bot_id="B1"), said("via an app", "2.0", bot_id="B1"))
    assert [m.sender.kind for m in drawn(people, added).messages] == ["user", "user"]
    assert [m.sender.kind for m in drawn(added).messages] == ["user", "bot"]


def test_a_bot_is_called_by_the_name_of_its_user() -> None:
    people = {"ok": True, "members": [{"id": "U7", "is_bot": True, "profile": {"real_name": "Deploy", "bot_id": "B7"}}]}
    (message,) = drawn(page(said("<@B7> is here", user=None, bot_id="B7")), people).messages
    assert (message.sender.id, message.sender.name, message.text) == ("B7", "Deploy", "@Deploy is here")


def test_a_chain_of_changed_ids_takes_no_time() -> None:
    reader, report = SlackPayloads(Given()), Report()
    for n in range(3000):
        moved = happened("channel_id_changed", old_channel_id=f"C{n}", new_channel_id=f"C{n + 1}")
        reader.learn(moved)
    found = [e for n in range(3000) for e in reader.read(wrapped({**said(), "channel": f"C{n}"}), report, "raw")]
    assert {m.channel.id for m in found if isinstance(m, MessageEvent)} == {"C3000"}


def test_a_group_that_changed_a_thousand_times_is_followed_in_no_time_in_any_order() -> None:
    whole = {"id": "S1", "handle": "ops", "users": ["U0"], "date_update": 1}
    sent = [happened("subteam_created", subteam=whole)]
    for n in range(1, 1500):
        came, went = [f"U{n}"], [f"U{n - 5}"] if n > 5 else []
        sent.append(
            happened(
                "subteam_members_changed", subteam_id="S1", added_users=came, removed_users=went, date_update=n + 1
            )
        )
    ways = [{e.version: e.members for e in drawn(*way).of(GroupEvent)} for way in (sent, sent[::-1])]
    assert ways[0] == ways[1]
    assert ways[0]["1500"] == ("U0", "U1495", "U1496", "U1497", "U1498", "U1499")


def test_a_sender_that_a_pipeline_wrote_as_an_object_is_known_by_its_id() -> None:
    assert drawn(page(said(user={"id": "U0ADA", "name": "ada"}))).messages[0].sender.id == "U0ADA"
