"""The files in schemas/ are what the code says, and they tell sound events from broken ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import jsonschema
import msgspec
import pytest

from streammem import schemas
from streammem.records import (
    Answer,
    Attachment,
    AttributeEvent,
    ChannelEvent,
    ChannelRef,
    ErasureEvent,
    Evidence,
    Found,
    GroupEvent,
    Ingest,
    Link,
    MembershipEvent,
    Mention,
    MessageEvent,
    Query,
    ReactionEvent,
    Sender,
    TieEvent,
    UserEvent,
)

NOW = datetime(2024, 1, 2, 10, 6, 40, 100, tzinfo=UTC)
SAMPLES = {
    "message": MessageEvent(
        workspace="T1",
        channel=ChannelRef(id="C1", name="ops", type="public"),
        id="1704190000.000100",
        version="1704190060.000000",
        ts=NOW,
        edited_at=NOW,
        sender=Sender(id="U1", name="Ada", kind="user"),
        reply_to="1704100000.000100",
        text="hello",
        mentions=(Mention(id="U2", label="bram"),),
        links=(Link(url="https://a.example"),),
        attachments=(Attachment(id="F1", name="a.png", kind="image", size=5),),
        ingest=Ingest(origin="export.zip!ops/2024-01-02.json#0", received_at=NOW),
    ),
    "reaction": ReactionEvent(workspace="T1", channel="C1", message="1.000000", name="wave", user="U1"),
    "user": UserEvent(workspace="T1", id="U1", name="Ada", aliases=("ada",), version="7"),
    "channel": ChannelEvent(workspace="T1", id="C1", name="ops", type="public", version="7.5"),
    "membership": MembershipEvent(workspace="T1", channel="C1", user="U1", present=False),
    "group": GroupEvent(workspace="T1", id="S1", name="ops-team", members=("U1",), version="7"),
    "attribute": AttributeEvent(workspace="T1", entity="channel", id="C1", attribute="name", value="ops", version="7"),
    "tie": TieEvent(workspace="T1", entity="user", id="U1", same_as="aad-1", version="7"),
    "erasure": ErasureEvent(workspace="T1", entity="message", channel="C1", id="1704190000.000100"),
    "query": Query(text="who approved DOC-042?", asker="U1", limit=5),
    "answer": Answer(
        question="who?",
        asker=None,
        as_of=None,
        evidence=(
            Evidence(
                uid="T1/C1/1",
                workspace="T1",
                id="1",
                channel="C1",
                channel_name="ops",
                user="U1",
                user_name="Ada",
                ts=1,
                text="hi",
                found_by=(Found(stage="S1", signal="bm25", rank=1),),
            ),
        ),
        headers=(),
        tokens=3,
        abstained=False,
        timings_ms={"all": 1.5},
    ),
}
BROKEN = {
    "message": [
        {"id": ""},
        {"version": "-1"},
        {"version": "1e5"},
        {"ts": 17},
        {"op": "change"},
        {"channel": {}},
        {"id": 5},
    ],
    "reaction": [{"name": ""}, {"count": "many"}],
    "user": [{"id": None}, {"aliases": "ada"}],
    "channel": [{"type": "secret"}, {"event": "message"}],
    "membership": [{"present": "yes"}, {"user": ""}],
    "group": [{"id": ""}, {"members": "ada"}],
    "attribute": [{"attribute": "shoe"}, {"entity": "message"}, {"value": None}],
    "tie": [{"same_as": ""}, {"present": 1}],
    "erasure": [{"entity": "channel"}, {"id": ""}],
    "query": [{"text": 5}, {"limit": "ten"}],
    "answer": [{"evidence": None}, {"tokens": "3"}],
}


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(schemas.files()[f"{name}.v1.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_files_are_what_the_code_says() -> None:
    assert schemas.differing(schemas.FOLDER) == [], "run python -m streammem.schemas"


def test_a_changed_an_absent_and_a_superfluous_file_differ(tmp_path) -> None:
    for name, content in schemas.files().items():
        (tmp_path / name).write_text(content)
    assert schemas.differing(tmp_path) == []
    (tmp_path / "user.v1.json").write_text("{}")
    (tmp_path / "query.v1.json").unlink()
    (tmp_path / "old.v1.json").write_text("{}")
    assert schemas.differing(tmp_path) == ["old.v1.json", "query.v1.json", "user.v1.json"]


def test_there_is_a_sample_of_every_record() -> None:
    assert SAMPLES.keys() == BROKEN.keys() == schemas.RECORDS.keys()


@pytest.mark.parametrize("name", schemas.RECORDS)
def test_a_sound_record_is_valid_with_properties_that_a_later_version_may_add(name: str) -> None:
    stated = json.loads(msgspec.json.encode(SAMPLES[name]))
    validator(name).validate(stated)
    validator(name).validate({**stated, "added_later": {"x": 1}})


@pytest.mark.parametrize(("name", "broken"), [(name, broken) for name, many in BROKEN.items() for broken in many])
def test_a_broken_record_is_not_valid(name: str, broken: dict[str, object]) -> None:
    stated = json.loads(msgspec.json.encode(SAMPLES[name]))
    assert not validator(name).is_valid({**stated, **broken})


@pytest.mark.parametrize("name", schemas.RECORDS)
def test_nothing_required_may_be_left_out(name: str) -> None:
    stated = json.loads(msgspec.json.encode(SAMPLES[name]))
    for required in schemas.schema_of(name)["required"]:
        assert not validator(name).is_valid({key: value for key, value in stated.items() if key != required})
