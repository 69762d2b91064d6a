from __future__ import annotations

import base64
import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Given, Report
from streammem.connectors.teams import payloads
from streammem.connectors.teams.payloads import TeamsPayloads
from streammem.records import GroupEvent
from tests.connectors.faults import state_of
from tests.connectors.standing import standing
from tests.connectors.teams_rows import (
    ADA,
    BRAM,
    CHAT,
    ID,
    ROOM,
    TEAM,
    TENANT,
    event,
    message,
    page,
    person,
    taken,
    taken_by,
)

SAMPLES = Path(__file__).parent.parent / "data" / "samples" / "teams_graph"
GRAPH = "https://graph.microsoft.com/v1.0/$metadata#"
REPLY = "1704189600009"


def of(address: str, *rows: Any, **more: Any) -> dict[str, Any]:
    return page(*rows, **{"@odata.context": GRAPH + address}, **more)


def member(user: str = BRAM, name: str = "Bram Osei", **more: Any) -> dict[str, Any]:
    kind = "#microsoft.graph.aadUserConversationMember"
    return {"@odata.type": kind, "id": "x", "userId": user, "displayName": name, "roles": [], **more}


TEAMS = of("teams", {"id": TEAM, "displayName": "Lemonade", "visibility": "public"})
CHANNELS = of(
    f"teams('{TEAM}')/channels",
    {"id": ROOM, "displayName": "General", "membershipType": "standard", "description": "all", "tenantId": TENANT},
    {"id": "19:p@thread.tacv2", "displayName": "board", "membershipType": "private"},
)
USERS = of(
    "users",
    {"id": ADA, "displayName": "Ada Quill", "givenName": "Ada", "surname": "Quill", "jobTitle": "Lead", "mail": None},
    {"id": "g", "displayName": "Guest", "userPrincipalName": "g_x#EXT#@y.example", "accountEnabled": False},
)
CHATS = of(
    "chats", {"id": CHAT, "chatType": "group", "topic": "Launch", "members": [member(), member(ADA, "Ada Quill")]}
)
MENTIONING = message(
    '<at id="0">Ada</at> in <at id="1">here</at>',
    mentions=[
        {"id": 0, "mentionText": "Ada", "mentioned": person(name="Ada")},
        {
            "id": 1,
            "mentionText": "here",
            "mentioned": {"conversation": {"id": ROOM, "conversationIdentityType": "channel"}},
        },
    ],
)
EVERYTHING = [
    TEAMS,
    CHANNELS,
    USERS,
    CHATS,
    of(f"teams('{TEAM}')/members", member()),
    of(f"teams('{TEAM}')/tags", {"id": "tag1", "teamId": TEAM, "displayName": "On call", "memberCount": 1}),
    of(f"teams('{TEAM}')/tags('tag1')/members", {"id": "m", "userId": BRAM, "displayName": "Bram Osei"}),
    page(MENTIONING, message("<p>two</p>", etag="1704189700000"), message("", etag="1704189800000")),
    page(
        message(chat=True),
        event("channelRenamed", channelId=ROOM, channelDisplayName="Lobby") | {"id": "1704189600002"},
    ),
    {"value": [{"changeType": "updated", "resource": f"chats('{CHAT}')/messages('{ID}')", "tenantId": TENANT}]},
    *(json.loads(path.read_text()) for path in sorted(SAMPLES.iterdir())),
]


# --------------------------------------------------------------------------------------------- directories


def test_names_of_lists_are_used_in_texts() -> None:
    (found,) = taken(page(MENTIONING), USERS, CHANNELS).messages
    assert found.text == "@Ada Quill in #General"
    assert found.sender.name is None


def test_a_user_is_described_with_every_name() -> None:
    ada, guest = taken(USERS).users
    assert (ada.name, ada.aliases, ada.title, ada.kind, ada.present) == ("Ada Quill", (), "Lead", "user", True)
    assert (guest.aliases, guest.kind, guest.present) == (("g_x#EXT#@y.example",), "external", False)


@pytest.mark.parametrize(
    ("team", "kinds"),
    [(TEAMS, ["public", "private"]), (page(), ["unknown", "private"])],
)
def test_only_standard_channels_of_a_public_team_are_public(team: dict[str, Any], kinds: list[str]) -> None:
    found = taken(CHANNELS, team).channels
    assert [channel.type for channel in found] == kinds
    assert [(c.name, c.parent_id, c.topic, c.workspace) for c in found[:1]] == [("General", TEAM, "all", TENANT)]


def test_the_members_of_a_team_are_in_its_standard_channels() -> None:
    drawn = taken(of(f"teams('{TEAM}')/members", member()), CHANNELS)
    assert [(m.channel, m.user) for m in drawn.members] == [(ROOM, BRAM)]


def test_the_members_of_a_channel_are_in_that_channel() -> None:
    drawn = taken(of(f"teams('{TEAM}')/channels('19%3Ap%40thread.tacv2')/members", member()), CHANNELS)
    assert [(m.channel, m.user) for m in drawn.members] == [("19:p@thread.tacv2", BRAM)]


def test_the_id_of_a_membership_tells_where_it_is() -> None:
    packed = base64.b64encode(f"1##{TENANT}##{CHAT}##{BRAM}".encode()).decode()
    drawn = taken(page(member(id=packed)))
    assert [(m.workspace, m.channel, m.user) for m in drawn.members] == [(TENANT, CHAT, BRAM)]


def test_a_member_is_named_without_wiping_what_a_list_of_users_says() -> None:
    drawn = taken(of(f"chats('{CHAT}')/members", member(roles=["guest"])))
    assert [(u.name, u.kind, u.version) for u in drawn.users] == [("Bram Osei", "external", "0")]
    assert taken(of(f"chats('{CHAT}')/members", member(ADA)), page(*USERS["value"][:1])).users[0].title == "Lead"


def test_a_chat_has_a_kind_a_topic_and_members() -> None:
    drawn = taken(CHATS)
    assert [(c.id, c.type, c.name) for c in drawn.channels] == [(CHAT, "group_dm", "Launch")]
    assert [m.user for m in drawn.members] == [BRAM, ADA]


def test_tags_and_teams_are_groups_of_people() -> None:
    groups = [e for e in taken(*EVERYTHING).events if isinstance(e, GroupEvent)]
    assert [(g.id, g.name, g.members) for g in groups] == [
        (TEAM, "Lemonade", (BRAM,)),
        ("tag1", "On call", (BRAM,)),
    ]


def test_a_channel_keeps_the_names_it_had() -> None:
    renamed = page(event("channelRenamed", channelId=ROOM, channelDisplayName="Lobby"))
    assert taken(CHANNELS, renamed).channels[0].aliases == ("Lobby",)


# --------------------------------------------------------------------------------------------------- pages


def test_a_page_of_replies_tells_their_root_and_their_channel() -> None:
    row = message(id=REPLY, channelIdentity=None)
    (found,) = taken(of(f"teams('{TEAM}')/channels('19%3Aabc%40thread.tacv2')/messages('{ID}')/replies", row)).messages
    assert (found.channel.id, found.reply_to) == (ROOM, ID)


def test_replies_inside_a_message_are_messages_and_missing_ones_a_gap() -> None:
    root = message(replies=[message(id=REPLY, channelIdentity=None)]) | {"replies@odata.count": 3}
    drawn = taken(page(root))
    assert [(m.id, m.reply_to, m.channel.id) for m in drawn.messages] == [(ID, None, ROOM), (REPLY, ID, ROOM)]
    assert [m.ingest.origin for m in drawn.messages if m.ingest] == ["p0/0", "p0/0/0"]
    assert drawn.report.gaps == {"missing-replies": 2}


def test_one_message_is_a_payload_too() -> None:
    (found,) = taken(message()).messages
    assert found.ingest is not None
    assert found.ingest.origin == "p0"


def test_the_given_channel_stands_in_where_none_is_told() -> None:
    (found,) = taken(page(message(channelIdentity=None)), channel=ROOM).messages
    assert found.channel.id == ROOM


@pytest.mark.parametrize(("reason", "undone"), [({"reason": "deleted"}, False), ({"reason": "changed"}, True)])
def test_what_a_delta_page_removed_is_deleted(reason: dict[str, str], *, undone: bool) -> None:
    removed = {"id": ID, "@removed": reason}
    delta = page(
        removed, **{"@odata.deltaLink": f"https://graph.microsoft.com/v1.0/teams/t/channels/{ROOM}/messages/delta"}
    )
    assert [m.op for m in state_of(taken(delta, page(message())).events).values()] == ["delete"]
    later = page(message(etag="1704189960000"))
    assert [m.op == "upsert" for m in state_of(taken(delta, later).events).values()] == [undone]


def test_what_was_removed_is_in_the_channel_of_its_neighbours() -> None:
    drawn = taken(page({"id": REPLY, "@removed": {"reason": "deleted"}}, message()))
    assert {m.channel.id for m in drawn.messages} == {ROOM}


def test_pages_with_keys_in_upper_case_read_the_same() -> None:
    def raised(value: Any) -> Any:
        if isinstance(value, dict):
            return {key[:1].upper() + key[1:]: raised(item) for key, item in value.items()}
        return [raised(item) for item in value] if isinstance(value, list) else value

    assert standing(taken(raised(page(MENTIONING))).events) == standing(taken(page(MENTIONING)).events)


@pytest.mark.parametrize(
    "payload", [None, 7, "text", [], [1], {"value": [None]}, {"error": {"code": "x"}}, {"value": {}}]
)
def test_what_is_no_page_states_nothing_and_is_counted(payload: Any) -> None:
    assert taken(payload).events == []


# -------------------------------------------------------------------------------------------- notifications


def notice(change: str, resource: str = f"chats('{CHAT}')/messages('{ID}')", **more: Any) -> dict[str, Any]:
    row = {
        "subscriptionId": "s",
        "changeType": change,
        "resource": resource,
        "tenantId": TENANT,
        "encryptedContent": None,
    }
    return page(row | more)


@pytest.mark.parametrize(
    "resource",
    [
        f"teams('{TEAM}')/channels('{ROOM}')/messages('{ID}')/replies('{REPLY}')",
        f"teams/{TEAM}/channels/19%3Aabc%40thread.tacv2/messages/{ID}/replies/{REPLY}",
        f"/teams('{TEAM}')/channels('19%3Aabc%40thread.tacv2')/messages('{ID}')/replies('{REPLY}')",
    ],
)
def test_a_pending_message_is_named_with_its_root(resource: str) -> None:
    drawn = taken(notice("created", resource))
    assert drawn.report.ignored == {"pending-fetch": 1}
    assert [gap.origin for gap in drawn.report.gap_examples] == [f"{ROOM}/{REPLY}?reply_to={ID}"]


def test_encrypted_content_is_ignored_and_pending() -> None:
    drawn = taken(notice("updated", encryptedContent={"data": "x"}))
    assert (drawn.report.ignored, drawn.report.gaps) == ({"encrypted-content": 1}, {"pending-fetch": 1})


def test_content_that_somebody_decrypted_is_a_message() -> None:
    content = json.dumps(message(chat=True))
    assert taken(notice("created", decryptedContent=content)).texts == ["one"]
    assert taken(notice("created", resourceData=message(chat=True))).texts == ["one"]


def test_a_deletion_ends_what_was_said_and_an_undo_is_later() -> None:
    gone = notice("deleted", encryptedContent={"data": "x"})
    before, undone = page(message(chat=True)), page(message(chat=True, etag="1704189960000"))
    assert [m.op for m in state_of(taken(before, gone, workspace="w").events).values()] == ["delete"]
    assert [m.op for m in state_of(taken(undone, gone, before, workspace="w").events).values()] == ["upsert"]
    assert taken(gone).report.gaps == {"undated-deletion": 1}


def test_a_deletion_that_tells_its_time_counts_from_it() -> None:
    content = {"deletedDateTime": "2024-01-02T10:05:00.5Z", "etag": "1704189900500"}
    drawn = taken(notice("deleted", resourceData=content))
    assert [m.version for m in drawn.messages] == ["1704189900500"]
    assert not drawn.report.gaps


@pytest.mark.parametrize(
    ("told", "gaps"),
    [
        ("missed", {"missed-notifications": 1}),
        ("subscriptionRemoved", {"subscription-removed": 1}),
        ("reauthorizationRequired", {}),
        (None, {}),
    ],
)
def test_the_life_of_a_subscription_states_nothing(told: Any, gaps: dict[str, int]) -> None:
    drawn = taken(page({"lifecycleEvent": told, "subscriptionId": "s"}))
    assert (drawn.events, drawn.report.ignored, drawn.report.gaps) == ([], {"lifecycle-event": 1}, gaps)


def test_news_of_other_things_and_of_nothing_is_counted() -> None:
    drawn = taken(notice("created", f"chats('{CHAT}')/members('x')"), notice("created", "", resourceData=None))
    assert drawn.report.ignored == {"other-resource": 1}
    assert drawn.report.rejected == {"no-id": 1}


# ---------------------------------------------------------------------------------------- whatever the order


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False))
def test_the_order_of_pages_and_rows_changes_nothing_that_stands(random_: random.Random) -> None:
    shuffled = copy.deepcopy(EVERYTHING)
    random_.shuffle(shuffled)
    for payload in shuffled:
        random_.shuffle(payload["value"])
    assert standing(taken(*shuffled).events) == standing(taken(*EVERYTHING).events)


def test_reading_a_second_time_adds_nothing() -> None:
    reader = TeamsPayloads(Given())
    once = taken_by(reader, EVERYTHING, EVERYTHING)
    twice = taken_by(reader, EVERYTHING, [*EVERYTHING, *EVERYTHING])
    assert standing(twice.events) == standing(once.events)
    assert twice.report.accepted == once.report.accepted
    assert taken_by(reader, (), EVERYTHING).events == once.events


KEYS = st.sampled_from(
    [
        *(
            "id",
            "etag",
            "value",
            "body",
            "content",
            "contentType",
            "from",
            "user",
            "displayName",
            "mentions",
            "mentioned",
        ),
        *("reactions", "user", "messageHistory", "attachments", "eventDetail", "members", "replies", "resource"),
        *("changeType", "lifecycleEvent", "resourceData", "@removed", "@odata.type", "@odata.context", "userId"),
        *("chatType", "membershipType", "Id", "Value", "createdDateTime", "deletedDateTime", "webUrl", "tenantId"),
    ]
)
WORDS = st.sampled_from(
    [
        *("", "0", "1", ID, ROOM, CHAT, "html", "messageReference", "deleted", "callEnded", 'W/"1"'),
        *("#microsoft.graph.chatMessage", "<at id=0>x</at>", f"chats('{CHAT}')/messages('1')"),
        *("2024-01-02T10:00:00Z", "9999-12-31T23:59:59+23:59"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, item in inside for spot in spots(item, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A payload with values exchanged anywhere."""
    payload = copy.deepcopy(draw(st.sampled_from(EVERYTHING)))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(spots(payload)))
        if not path:
            return draw(VALUES)
        holder = payload
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = draw(VALUES)
    return payload


@settings(deadline=None, max_examples=200)
@given(st.lists(damaged(), min_size=1, max_size=2))
def test_damaged_payloads_never_raise_and_never_cost_another_message(broken: list[Any]) -> None:
    good = page(message("<p>kept</p>", id="1704189612345"))
    assert "kept" in taken(*broken, good, workspace="w").texts


# --------------------------------------------------------------------------------------------------- files


def test_samples_are_read_from_files() -> None:
    report = Report()
    events = [*payloads.graph.read(SAMPLES, report)]
    assert report.accepted == 13
    assert report.ignored == {"pending-fetch": 1, "encrypted-content": 1}
    assert (report.entries_done, report.bytes_done) == (report.entries_total, report.bytes_total)
    state = state_of(events)
    said = state[("19:00000000000000000000000000000abc@thread.tacv2", "1606691795113")]
    assert said.text == "@Bram Osei please review the PR (https://example.com/pr?a=1&b=2) <soon>"
    assert [(m.id, m.label) for m in said.mentions] == [(BRAM, "Bram Osei")]


def test_a_page_that_was_cut_short_keeps_its_whole_messages(tmp_path: Path) -> None:
    raw = json.dumps(page(message(), message("<p>two</p>", id=REPLY)))
    (tmp_path / "page.json").write_text(raw[:-40])
    report = Report()
    events = [*payloads.graph.read(tmp_path / "page.json", report)]
    assert [event.id for event in state_of(events).values()] == [ID]
    assert report.rejected == {"truncated-file": 1}


@pytest.mark.parametrize(
    "raw", ["", "[]", "{}", '{"value": []}', '{"messages": [{"type": "message", "ts": "1.2"}]}', "x"]
)
def test_other_files_are_not_recognised(raw: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(raw)
    assert not payloads.graph.recognises(tmp_path)
    assert not payloads.notifications.recognises(tmp_path)


def test_a_page_that_is_an_error_is_refused_with_its_code() -> None:
    read = taken({"error": {"code": "Forbidden", "message": "Missing scope"}})
    assert [(refusal.reason, refusal.detail) for refusal in read.report.refusals] == [("error-page", "Forbidden")]


@pytest.mark.parametrize("turn", [1, -1])
def test_where_two_pages_differ_the_one_that_lets_fewer_people_in_stands(turn: int) -> None:
    rooms = [
        of(f"teams('{TEAM}')/channels", {"id": ROOM, "displayName": "a", "membershipType": "standard"}),
        of(f"teams('{TEAM}')/channels", {"id": "19:p@thread.tacv2", "displayName": "p", "membershipType": "private"}),
        of(f"teams('{TEAM}')/channels", {"id": "19:p@thread.tacv2", "displayName": "p", "membershipType": "standard"}),
    ]
    teams = [of("teams", {"id": TEAM, "displayName": "T", "visibility": seen}) for seen in ("public", "private")]
    guest = {"id": ADA, "displayName": "Ada", "userPrincipalName": "ada_x#EXT#@y"}
    people = [of("users", guest), of("users", {"id": ADA, "displayName": "Ada", "mail": "ada@x"})]
    read = taken(*rooms[::turn], teams[0], *people[::turn])
    types = {channel.id: channel.type for channel in read.channels}
    assert types == {ROOM: "public", "19:p@thread.tacv2": "private"}
    assert {user.kind for user in read.users} == {"external"}
    assert {channel.type for channel in taken(*rooms, *teams[::turn]).channels} == {"private"}


def test_a_guest_is_known_by_his_role_where_the_list_of_users_does_not_say() -> None:
    users, members = of("users", {"id": BRAM, "displayName": "Bram"}), of(f"teams('{TEAM}')/members")
    members["value"] = [member(BRAM, roles=["guest"])]
    assert [user.kind for user in taken(users, members).users] == ["external"]
    assert taken(page(message(**{"from": person(BRAM)})), users, members).messages[0].sender.kind == "external"


def test_a_list_whose_last_page_is_missing_is_a_gap_whatever_the_order_of_pages(tmp_path: Path) -> None:
    def gaps(name: str, *pages: Any) -> list[tuple[str, str]]:
        (tmp_path / name).write_text(json.dumps(pages))
        report = Report()
        list(payloads.graph.read(tmp_path / name, report))
        return [(gap.reason, gap.origin) for gap in report.gap_examples]

    listing = f"chats('{CHAT}')/messages"
    first = of(listing, message(chat=True), **{"@odata.nextLink": "https://graph.microsoft.com/more"})
    last = of(listing, message(chat=True, id=REPLY))
    assert gaps("first.json", first) == [("more-pages", listing)]
    assert gaps("whole.json", first, last) == gaps("turned.json", last, first) == []
