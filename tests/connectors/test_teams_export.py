from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Given, Report
from streammem.connectors.slack import export as slack_export
from streammem.connectors.teams import payloads, tenant_export
from streammem.core.events import decode, encode
from streammem.errors import SourceError
from streammem.records import AttributeEvent
from tests.connectors.sources import Drawn, content, zipped
from tests.connectors.standing import standing
from tests.connectors.teams_rows import ADA, BRAM, CHAT, ID, ROOM, TEAM, TENANT, event, message

SAMPLE = Path(__file__).parent.parent / "data" / "samples" / "teams_tenant_export" / "TeamsDataExport"
OF_TEAM = f"teams/{TEAM}/messages_{TEAM}.json"


def raised(value: Any) -> Any:
    """The value with its keys written as the export writes them."""
    if isinstance(value, dict):
        return {key[:1].upper() + key[1:]: raised(item) for key, item in value.items()}
    return [raised(item) for item in value] if isinstance(value, list) else value


def exported(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return raised({key: value for key, value in (row | more).items() if key != "etag"})


def chats_of(user: str, *rows: Any) -> dict[str, Any]:
    return {f"users/{user}/messages_{user}.json": [*rows]}


USERS = {"users/usersList.json": [{"Id": ADA, "DisplayName": "Ada Quill", "UserPrincipalName": "ada@x.example"}]}
LISTS = {
    **USERS,
    "teams/teamsList.json": [{"GroupsId": TEAM, "Name": "Lemonade", "Visibility": "private"}],
    f"teams/{TEAM}/channels_{TEAM}.json": [
        {"Id": ROOM, "DisplayName": "General", "MembershipType": "standard", "TenantId": TENANT}
    ],
    f"teams/{TEAM}/teamMembers_{TEAM}.json": [{"UserId": ADA, "Role": "owner"}, {"UserId": BRAM, "Role": "member"}],
}
WHOLE: dict[str, Any] = {
    **LISTS,
    OF_TEAM: [
        exported(message()),
        exported(message("", id="1704189600001", lastModifiedDateTime="2024-01-02T11:00:00Z")),
        exported(event("channelRenamed", channelId=ROOM, channelDisplayName="Lobby"), id="1704189600002"),
    ],
    **chats_of(ADA, exported(message("<p>chat</p>", chat=True))),
    **chats_of(BRAM, exported(message("<p>chat</p>", chat=True))),
}


def drawn(path: Path, **given: str) -> Drawn:
    """Read an export and hold it to what every source must keep."""
    report = Report()
    events = [*tenant_export.read(path, report, Given(**given))]
    assert [decode(encode(event)) for event in events] == events
    outcomes = report.accepted + report.duplicates + report.superseded
    assert report.read == outcomes + report.ignored.total() + report.rejected.total()
    assert len(report.refusals) == report.rejected.total()
    assert (report.bytes_done, report.entries_done) == (report.bytes_total, report.entries_total)
    return Drawn(events, report)


def read(files: Mapping[str, Any], **given: str) -> Drawn:
    with tempfile.TemporaryDirectory() as folder:
        return drawn(zipped(Path(folder) / "export.zip", files), **given)


def test_the_sample_is_read_whole() -> None:
    found = drawn(SAMPLE)
    assert len(found.messages) == 13
    assert found.report.rejected == found.report.ignored == {}
    assert {m.workspace for m in found.messages} == {TENANT}
    review = next(m for m in found.messages if m.id == "1606691795113")
    assert review.text == "@Bram Osei please review the PR (https://example.com/pr?a=1&b=2) <soon>"
    # Its last change is written as 23:20:+00:00; the reaction of that minute tells the same.
    assert review.version == "1606692000000"


def test_an_export_and_a_page_tell_the_same_versions() -> None:
    page = Report()
    graph = [*payloads.graph.read(SAMPLE.parent.parent / "teams_graph", page)]
    exports = {m.id: m.version for m in drawn(SAMPLE).messages}
    pages = {m.id: m.version for m in Drawn(graph).messages}
    assert {name: pages[name] for name in exports if name in pages} == {
        name: version for name, version in exports.items() if name in pages
    }


def test_a_message_in_the_folders_of_two_members_is_one_message() -> None:
    found = read(WHOLE)
    assert found.report.duplicates == 1
    assert [(m.channel, m.user) for m in found.members if m.channel == CHAT] == [(CHAT, ADA), (CHAT, BRAM)]


def test_a_team_without_a_list_of_members_is_noted_and_closed() -> None:
    found = read({name: rows for name, rows in WHOLE.items() if "teamMembers" not in name})
    assert [m.channel for m in found.members] == [CHAT, CHAT]
    assert [note for note in found.report.notes if "teamMembers" in note]
    assert [c.type for c in found.channels] == ["private"]


def test_members_of_a_team_are_in_its_standard_channels() -> None:
    found = read(LISTS)
    assert [(m.channel, m.user) for m in found.members] == [(ROOM, ADA), (ROOM, BRAM)]
    assert [(c.name, c.type, c.parent_id) for c in found.channels] == [("General", "private", TEAM)]


def test_a_deletion_without_an_etag_is_found() -> None:
    assert [(m.id, m.op) for m in read(WHOLE).messages if m.op == "delete"] == [("1704189600001", "delete")]


def test_a_rename_is_a_fact_and_the_old_name_an_alias() -> None:
    found = read(WHOLE)
    assert [e.value for e in found.of(AttributeEvent)] == ["Lobby"]
    assert found.channels[0].aliases == ("Lobby",)


def test_the_workspace_is_given_or_the_tenant_or_the_name_of_the_file() -> None:
    assert {m.workspace for m in read(WHOLE).messages} == {TENANT}
    assert {m.workspace for m in read(WHOLE, workspace="acme").messages} == {"acme"}
    assert {m.workspace for m in read(chats_of(ADA, exported(message(chat=True)))).messages} == {"export"}


def test_a_zip_made_by_hand_has_folders_around_and_files_beside() -> None:
    files = {f"Desk/TeamsDataExport/{name}": rows for name, rows in WHOLE.items()}
    junk = {"__MACOSX/TeamsDataExport/users/usersList.json": [], "Desk/readme.txt": "x", "Desk/.DS_Store": "x"}
    found = read(files | junk)
    assert standing(found.events) == standing(read(WHOLE).events)
    assert found.report.skipped == {"system-file": 2, "not-an-export-file": 1}


@pytest.mark.parametrize("files", [{}, {"a.json": []}, {"channels.json": [], "users.json": []}])
def test_other_folders_are_no_tenant_export(files: dict[str, Any], tmp_path: Path) -> None:
    path = zipped(tmp_path / "export.zip", files)
    assert not tenant_export.recognises(path)
    with pytest.raises(SourceError, match="expected a Teams tenant export"):
        list(tenant_export.read(path, Report()))


def test_a_tenant_export_is_recognised_and_no_other_connector_takes_it(tmp_path: Path) -> None:
    assert tenant_export.recognises(SAMPLE)
    assert tenant_export.recognises(zipped(tmp_path / "export.zip", WHOLE))
    assert not slack_export.recognises(SAMPLE)
    assert not tenant_export.recognises(tmp_path / "missing")


@settings(deadline=None, max_examples=15)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing_that_stands(random_: random.Random) -> None:
    shuffled = copy.deepcopy(WHOLE)
    for rows in shuffled.values():
        random_.shuffle(rows)
    assert standing(read(shuffled).events) == standing(read(WHOLE).events)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_a_damaged_file_never_costs_another_one(name: str, data: st.DataObject) -> None:
    raw = content(WHOLE[name])
    at = data.draw(st.integers(0, len(raw)))
    broken = data.draw(
        st.sampled_from([raw[:at], raw[:at] + b"]}" + raw[at:], b"null", b"{}", json.dumps([1]).encode()])
    )
    extra = "teams/zz/messages_zz.json"
    kept = exported(message("<p>kept</p>", id="1704189600777"))
    assert "kept" in read(WHOLE | {name: broken, extra: [kept]}).texts


def test_reading_again_gives_the_same_events() -> None:
    assert read(WHOLE).events == read(WHOLE).events
    assert ID in {m.id for m in read(WHOLE).messages}
