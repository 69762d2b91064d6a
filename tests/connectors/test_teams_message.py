from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from streammem.records import Attachment, AttributeEvent, Forwarded, Mention, MessageEvent
from tests.connectors.faults import state_of
from tests.connectors.teams_rows import ADA, BRAM, CHAT, ID, ROOM, TEAM, TENANT, event, message, page, person, taken


def one(row: dict[str, Any], **given: str) -> MessageEvent:
    (found,) = taken(page(row), **given).messages
    return found


def stands(*rows: dict[str, Any]) -> MessageEvent:
    (found,) = state_of(taken(page(*rows)).events).values()
    return found


# ---------------------------------------------------------------------------------------------- its versions


def test_the_etag_is_the_version_and_only_an_edit_is_an_edit() -> None:
    row = message(etag="1704189700000", lastModifiedDateTime="2024-01-02T10:01:40Z")
    assert (one(row).version, one(row).edited_at) == ("1704189700000", None)
    edited = one(row | {"lastEditedDateTime": "2024-01-02T10:01:40.1234567Z"})
    assert edited.edited_at == datetime(2024, 1, 2, 10, 1, 40, 123456, UTC)


@pytest.mark.parametrize(
    ("times", "version"),
    [
        ({"lastModifiedDateTime": "2024-01-02T10:00:01+00:00"}, "1704189601000"),
        ({"lastModifiedDateTime": "2024-01-02T11:00:01.36+01:00"}, "1704189601360"),
        ({"lastModifiedDateTime": "2024-01-02T10:01:+00:00"}, ID),
        ({"lastModifiedDateTime": None, "lastEditedDateTime": "2024-01-02T10:00:02Z"}, "1704189602000"),
        (
            {
                "lastModifiedDateTime": "2024-01-02T10:01:+00:00",
                "messageHistory": [{"modifiedDateTime": "2024-01-02T10:00:03Z"}],
            },
            "1704189603000",
        ),
        ({"lastModifiedDateTime": 7, "createdDateTime": None}, ID),
    ],
)
def test_without_an_etag_the_latest_time_is_the_version(times: dict[str, Any], version: str) -> None:
    assert one(message(etag=None) | times).version == version


@pytest.mark.parametrize("etag", ['W/"1704189700000"', 1704189700000, '"1704189700000"'])
def test_an_etag_may_be_written_in_other_ways(etag: Any) -> None:
    assert one(message(etag=etag)).version == "1704189700000"


def test_a_message_without_a_readable_time_is_dated_by_its_id() -> None:
    assert one(message(createdDateTime="2024-01-02T10:00:+00:00")).ts == datetime(2024, 1, 2, 10, tzinfo=UTC)
    assert one(message(createdDateTime="0001-01-01T00:00:00Z")).ts == datetime(2024, 1, 2, 10, tzinfo=UTC)


def test_a_message_whose_id_is_no_time_takes_another_time_it_tells() -> None:
    row = message(id="a1", createdDateTime=None, lastModifiedDateTime="2024-01-02T10:05:00Z")
    assert one(row).ts == datetime(2024, 1, 2, 10, 5, tzinfo=UTC)


# --------------------------------------------------------------------------------------------- its deletions


DELETED = {"etag": "1704189900500", "deletedDateTime": "2024-01-02T10:05:00.5Z", "body": {"content": ""}}
UNDONE = {"etag": "1704189960000", "lastModifiedDateTime": "2024-01-02T10:06:00Z"}


def test_a_deletion_ends_a_message_and_an_undo_brings_it_back_in_any_order() -> None:
    rows = [message(), message(**DELETED), message(**UNDONE)]
    assert stands(*rows[:2]).op == "delete"
    assert stands(*rows).text == stands(*reversed(rows)).text == "one"


def test_a_deletion_without_an_etag_counts_from_its_own_time() -> None:
    stale = {"etag": None, "lastModifiedDateTime": "2024-01-02T10:00:00Z"}
    found = one(message(**DELETED) | stale)
    assert (found.op, found.version) == ("delete", "1704189900500")


@pytest.mark.parametrize(
    "emptied",
    [
        {"etag": "1704189900500"},
        {"etag": None, "lastModifiedDateTime": "2024-01-02T10:05:00Z"},
        {"etag": None, "lastModifiedDateTime": "2024-01-02T10:05:00Z", "id": "not-a-time"},
        {"deletedDateTime": "2024-01-02T10:05:+00:00"},
    ],
)
def test_a_person_s_message_that_was_changed_into_nothing_is_deleted(emptied: dict[str, Any]) -> None:
    assert one(message("", **emptied)).op == "delete"


@pytest.mark.parametrize(
    "row",
    [
        message(""),
        message("", etag="1704189900500", **{"from": {"application": {"id": "app1"}}}),
        message("", etag="1704189900500", **{"from": None}),
        message("<p>&nbsp;</p>", deletedDateTime="0001-01-01T00:00:00Z"),
    ],
)
def test_an_empty_message_that_nobody_deleted_is_kept(row: dict[str, Any]) -> None:
    found = one(row)
    assert (found.op, found.text, found.text_source) == ("upsert", "", "none")


@pytest.mark.parametrize(
    "more",
    [
        {"attachments": [{"id": "f", "contentType": "reference", "name": "a.txt"}]},
        {"subject": "Release"},
        {"body": {"contentType": "html", "content": '<img src="https://graph.microsoft.com/hostedContents/1/$value">'}},
    ],
)
def test_a_changed_message_with_anything_left_is_not_deleted(more: dict[str, Any]) -> None:
    assert one(message("", etag="1704189900500") | more).op == "upsert"


# ------------------------------------------------------------------------------------------------ its sender


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        (person(), (ADA, "Ada Quill", "user")),
        (person(name=None), (ADA, None, "unknown")),
        (person(userIdentityType="anonymousGuest", name=None), (ADA, None, "external")),
        (person(userIdentityType="federatedUser"), (ADA, "Ada Quill", "external")),
        ({"application": {"id": "app1", "displayName": None}, "user": None}, ("app1", None, "bot")),
        ({"device": {"id": "d1", "displayName": "Room 4"}}, ("d1", "Room 4", "unknown")),
        ({"conversation": {"id": ROOM, "displayName": "ops"}}, (ROOM, "ops", "unknown")),
        (None, (None, None, "unknown")),
        ("somebody", (None, None, "unknown")),
    ],
)
def test_a_sender_is_a_person_an_app_a_device_or_nobody(sender: Any, expected: tuple[Any, ...]) -> None:
    found = one(message() | {"from": sender}).sender
    assert (found.id, found.name, found.kind) == expected


def test_somebody_at_home_in_another_tenant_than_the_message_is_a_guest() -> None:
    url = f"https://teams.microsoft.com/l/message/19%3Aabc/1?tenantId={TENANT}"
    row = message(webUrl=url) | {"from": person(tenantId="other")}
    assert one(row).sender.kind == "external"
    assert one(row).workspace == TENANT
    assert one(row | {"webUrl": None}).sender.kind == "user"


# --------------------------------------------------------------------------------------- where it stands


def test_the_workspace_is_the_given_one_else_the_tenant_that_most_of_the_source_tells() -> None:
    home = message(id="1704189600001", webUrl=f"https://teams.microsoft.com/l/message/x/1?tenantId={TENANT}")
    guest = message(chat=True) | {"from": person(tenantId="other")}
    assert {m.workspace for m in taken(page(guest), page(home)).messages} == {TENANT}
    assert {m.workspace for m in taken(page(guest), page(home), workspace="acme").messages} == {"acme"}
    assert one(guest).workspace == "other"
    assert one(message()).workspace == "teams"


def test_a_link_is_told_or_put_together_as_graph_does() -> None:
    url = f"https://teams.microsoft.com/l/message/19%3Aabc%40thread.tacv2/{ID}?groupId={TEAM}&tenantId={TENANT}"
    url += f"&createdTime={ID}&parentMessageId={ID}"
    assert one(message(webUrl=url)).permalink == url
    other = message(id="1704189600001", webUrl=url)
    untold = [m for m in taken(page(message(), other)).messages if m.id == ID]
    assert untold[0].permalink == url
    assert one(message(chat=True)).permalink == (
        f"https://teams.microsoft.com/l/message/19%3Adef%40thread.v2/{ID}?context=%7B%22contextType%22%3A%22chat%22%7D"
    )
    assert str(one(message(webUrl="https://evil.example/l/message/x")).permalink).startswith("https://teams.microsoft")


def test_replies_stand_in_the_thread_of_their_root() -> None:
    reply = one(message(id="1704189600009", replyToId=ID))
    root = one(message(replyToId=ID))
    assert (reply.reply_to, reply.thread_id) == (ID, ID)
    assert (root.reply_to, root.thread_id) == (None, None)


def test_an_answer_in_a_chat_names_the_message_it_quotes() -> None:
    quote = {
        "id": ID,
        "contentType": "messageReference",
        "content": json.dumps({"messageId": ID, "messagePreview": "x"}),
    }
    row = message(
        f'<attachment id="{ID}"></attachment><p>agreed</p>', id="1704189600009", attachments=[quote], chat=True
    )
    found = one(row)
    assert (found.reply_to, found.thread_id, found.text, found.attachments) == (ID, None, "agreed", ())


def test_a_forwarded_message_is_no_reply() -> None:
    original = {
        "originalMessageId": ID,
        "originalMessageContent": "<p>launch&nbsp;notes</p>",
        "originalConversationId": ROOM,
    }
    passed_on = {"id": ID, "contentType": "forwardedMessageReference", "content": json.dumps(original)}
    found = one(message("<p>look</p>", id="1704189600009", attachments=[passed_on], chat=True))
    assert found.forwarded == Forwarded(id=ID, channel=ROOM, text="launch notes")
    assert (found.reply_to, found.text) == (None, "look")


def test_a_picture_passed_on_without_words_is_listed_and_a_forward_of_nothing_says_of_what() -> None:
    address = "https://graph.microsoft.com/v1.0/chats/19:x/messages/1/hostedContents/2/$value"
    contents = (f'<p><img src="{address}" alt="plan"></p>', "")
    rows = [
        message(
            f"<attachment id='{number}'></attachment>", id=f"170418960000{number}", chat=True, attachments=[passed_on]
        )
        for number, words in enumerate(contents)
        for original in [json.dumps({"originalMessageId": ID, "originalMessageContent": words})]
        for passed_on in [{"id": str(number), "contentType": "forwardedMessageReference", "content": original}]
    ]
    drawn = taken(page(*rows))
    assert [(m.id, m.forwarded, [a.kind for a in m.attachments]) for m in drawn.messages] == [
        ("1704189600000", Forwarded(id=ID), ["image"]),
        ("1704189600001", Forwarded(id=ID), []),
    ]


def test_the_two_people_of_a_conversation_of_two_are_told_by_its_id() -> None:
    chat = f"19:{ADA}_{BRAM}@unq.gbl.spaces"
    drawn = taken(page(message(chat=True, chatId=chat)))
    assert drawn.messages[0].channel.type == "dm"
    assert [m.user for m in drawn.members] == [ADA, BRAM]


# ------------------------------------------------------------------------------------------- what it says


def test_the_subject_is_the_first_line() -> None:
    assert one(message("<p>body</p>", subject="Release 4")).text == "Release 4\nbody"


def test_plain_text_is_taken_as_it_is() -> None:
    found = one(message() | {"body": {"contentType": "text", "content": "a &lt; <b>"}})
    assert (found.text, found.text_source) == ("a &lt; <b>", "text")


def test_mentions_keep_their_order_and_everybody_is_special() -> None:
    everybody = {"conversation": {"id": CHAT, "displayName": "Everyone", "conversationIdentityType": "chat"}}
    mentions = [
        {"id": 0, "mentionText": "Everyone", "mentioned": everybody},
        {"id": 1, "mentionText": "Bram", "mentioned": person(BRAM, "Bram Osei")},
    ]
    found = one(message('<at id="1">Bram</at>, <at id="0">Everyone</at>', mentions=mentions, chat=True))
    assert found.text == "@Bram, @Everyone"
    assert found.mentions == (
        Mention(id=BRAM, label="Bram"),
        Mention(type="special", id=CHAT, label="Everyone"),
    )


def test_files_and_voice_notes_are_listed_without_the_tokens_that_open_them() -> None:
    url = "https://contoso.sharepoint.com/spec.docx"
    files = [
        {"id": "f1", "contentType": "reference", "contentUrl": f"{url}?tempauth=secret", "name": "spec.docx"},
        {"id": "f2", "contentType": "audio/mp4", "contentUrl": "https://x.example/v.m4a", "name": "Voice"},
        {"id": "f3", "contentType": "meetingReference", "name": "Planning", "content": "{}"},
        {"id": "f4", "contentType": "text/html", "content": "<p>one</p>"},
        "junk",
    ]
    assert one(message("", attachments=files)).attachments == (
        Attachment(id="f1", name="spec.docx", url=url),
        Attachment(id="f2", name="Voice", kind="other", url="https://x.example/v.m4a", mime="audio/mp4"),
        Attachment(id="f3", name="Planning", kind="other"),
    )


# ---------------------------------------------------------------------------------------- what Teams says


def test_who_came_and_went_are_facts_of_the_channel() -> None:
    came = event("membersAdded", members=[{"id": BRAM, "displayName": None}])
    went = event("membersDeleted", members=[{"id": BRAM}]) | {
        "id": "1704189700000",
        "createdDateTime": "2024-01-02T11:00:00Z",
    }
    drawn = taken(page(came, went))
    assert [(m.kind, m.subtype, m.text, m.sender.id, m.sender.kind) for m in drawn.messages] == [
        ("system", "membersAdded", "", ADA, "user"),
        ("system", "membersDeleted", "", ADA, "user"),
    ]
    assert [(m.channel, m.user, m.present) for m in drawn.members] == [(ROOM, BRAM, True), (ROOM, BRAM, False)]


def test_who_leaves_a_team_leaves_its_channels() -> None:
    rooms = page(
        {"id": ROOM, "displayName": "General", "membershipType": "standard"},
        {"id": "19:p@thread.tacv2", "displayName": "board", "membershipType": "private"},
        {"id": "19:s@thread.tacv2", "displayName": "shared", "membershipType": "shared"},
        **{"@odata.context": f"https://graph.microsoft.com/v1.0/$metadata#teams('{TEAM}')/channels"},
    )
    facts = taken(rooms, page(event("membersDeleted", members=[{"id": BRAM}]))).members
    gone = {fact.channel for fact in facts if not fact.present}
    assert gone == {ROOM, "19:p@thread.tacv2"}


def test_a_rename_is_a_fact_about_a_name() -> None:
    drawn = taken(page(event("channelRenamed", channelId=ROOM, channelDisplayName="ops-new")))
    (fact,) = [e for e in drawn.events if isinstance(e, AttributeEvent)]
    assert (fact.entity, fact.id, fact.attribute, fact.value) == ("channel", ROOM, "name", "ops-new")


def test_a_call_tells_who_took_part() -> None:
    people = [{"participant": person(ADA)}, {"participant": person(BRAM, None)}, {"participant": None}]
    found = one(event("callEnded", callParticipants=people, callDuration="PT59S"))
    assert (found.kind, found.subtype, found.participants) == ("call", "callEnded", (ADA, BRAM))


def test_an_event_is_known_by_its_detail_where_its_type_is_not_told() -> None:
    row = event("membersAdded") | {"messageType": "unknownFutureValue"}
    row["eventDetail"] = {"visibleHistoryStartDateTime": "0001-01-01T00:00:00Z", "members": [{"id": BRAM}]}
    found = one(row)
    assert (found.kind, found.subtype, found.sender.kind) == ("system", "membersAdded", "system")


# --------------------------------------------------------------------------------------------- reactions


def reaction(name: str, user: str | None, at: str = "2024-01-02T10:01:40Z") -> dict[str, Any]:
    return {"reactionType": name, "createdDateTime": at, "user": {"user": {"id": user}}}


def history(action: str, name: str, user: str, at: str) -> dict[str, Any]:
    return {
        "modifiedDateTime": at,
        "actions": action,
        "reaction": {"reactionType": name, "user": {"user": {"id": user}}},
    }


def test_a_reaction_taken_back_is_gone_though_an_old_page_still_has_it() -> None:
    old = message(etag="1704189700000", reactions=[reaction("like", BRAM)])
    past = [history("reactionAdded", "like", BRAM, "2024-01-02T10:01:40Z")]
    new = message(etag="1704189800000", reactions=[], messageHistory=past)
    facts = taken(page(new), page(old)).reactions
    assert [(f.name, f.user, f.present, f.version) for f in facts] == [
        ("like", BRAM, False, "1704189800"),
        ("like", BRAM, True, "1704189700"),
    ]


def test_reactions_keep_their_givers_and_count_those_that_are_not_told() -> None:
    custom = reaction("custom", ADA) | {"displayName": "party-parrot"}
    row = message(reactions=[reaction("👍", None), reaction("👍", None), reaction("👍", BRAM), custom, "junk"])
    assert [(f.name, f.user, f.count) for f in taken(page(row)).reactions] == [
        ("👍", "", 2),
        ("👍", BRAM, 1),
        ("party-parrot", ADA, 1),
    ]


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (message(id=None), "no-id"),
        (message(channelIdentity=None), "no-channel"),
        (message(id="x", createdDateTime=None, lastModifiedDateTime=None, etag=None), "no-timestamp"),
    ],
)
def test_a_message_without_identity_or_time_is_refused(row: dict[str, Any], reason: str) -> None:
    drawn = taken(page(row))
    assert (drawn.events, drawn.report.rejected) == ([], {reason: 1})
