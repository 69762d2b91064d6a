"""Messages that Teams writes itself: who came and went, what was renamed, who was in a call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from streammem.connectors.fields import Row, row_of, rows_of, text_of, words_of
from streammem.connectors.teams.identity import user_in
from streammem.connectors.teams.known import Known, Room
from streammem.connectors.teams.times import fact_version
from streammem.records import AttributeEvent, Event, MembershipEvent

_SUFFIX = "eventmessagedetail"
_BY_FIELD = {
    "visibleHistoryStartDateTime": "membersAdded",
    "callDuration": "callEnded",
    "callParticipants": "callEnded",
    "callRecordingUrl": "callRecording",
    "callRecordingDisplayName": "callRecording",
    "callTranscriptICalUid": "callTranscript",
    "chatDisplayName": "chatRenamed",
}
"""The tenant export leaves the event's name out: fields that one event alone has."""
_CAME = frozenset({"membersAdded", "membersJoined"})
_WENT = frozenset({"membersDeleted", "membersLeft"})


def event_of(row: Row) -> str:
    """The name of the event that a message tells, e.g. membersAdded; empty for none."""
    detail = row_of(row, "eventDetail")
    named = text_of(detail, "@odata.type", "odataType", "oDataType").rpartition(".")[2].removeprefix("#")
    if not named:
        return next((event for field, event in _BY_FIELD.items() if field in detail), "")
    named = named[: -len(_SUFFIX)] if named.casefold().endswith(_SUFFIX) else named
    return named[:1].lower() + named[1:]


def is_system(row: Row) -> bool:
    """Whether Teams speaks. Unless asked otherwise Graph calls that type `unknownFutureValue`."""
    kind = text_of(row, "messageType").casefold()
    if kind in ("systemeventmessage", "chatevent", "typing") or row_of(row, "eventDetail"):
        return True
    return kind != "message" and "<systemEventMessage" in words_of(row_of(row, "body"), "content")


def kind_of(row: Row) -> Literal["message", "system", "call"]:
    """Whether somebody speaks, or Teams tells of a call or of something else."""
    if not is_system(row):
        return "message"
    return "call" if event_of(row).startswith("call") else "system"


def participants_of(row: Row) -> tuple[str, ...]:
    """The ids of who was in a call, each once."""
    listed = rows_of(row_of(row, "eventDetail"), "callParticipants")
    found = (user_in(item, "participant") or text_of(row_of(item, "user"), "id") for item in listed)
    return tuple(dict.fromkeys(filter(None, found)))


def facts_of(row: Row, known: Known, workspace: str, channel: str, said: datetime) -> Iterator[Event]:
    """Who is in the channel since this message, and what it is called."""
    event, detail, version = event_of(row), row_of(row, "eventDetail"), fact_version(said)
    if event in _CAME | _WENT:
        for member in rows_of(detail, "members"):
            if user := user_in({"of": member}, "of"):
                for room in _reached(known, channel, came=event in _CAME):
                    yield MembershipEvent(
                        workspace=workspace, channel=room, user=user, version=version, present=event in _CAME
                    )
    elif event in ("channelRenamed", "chatRenamed"):
        named, name = text_of(detail, "channelId") or channel, text_of(detail, "channelDisplayName", "chatDisplayName")
        if name.strip():
            yield AttributeEvent(
                workspace=workspace, entity="channel", id=named, attribute="name", value=name.strip(), version=version
            )


def _reached(known: Known, channel: str, *, came: bool) -> list[str]:
    """The channels that coming or going is about: news of a team stands in one of its standard channels."""
    room = known.rooms.get(channel, Room())
    if room.membership != "standard":
        return [channel]
    rooms = known.open_to(room.team) if came else known.left_with(room.team)
    return sorted({channel, *rooms})
