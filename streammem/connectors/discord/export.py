"""DiscordChatExporter's JSON files (one, or a folder or zip of them) to canonical events.

An export does not say who may read a channel, and the one who made it may read more than others: so no channel is
public, and those who are seen to speak in one may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streammem.connectors.archive import Archive, Entry, chunks, opened, unpacked
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.discord.message import Place, events_of, id_of, name_of
from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, row_of, rows_of, text_of
from streammem.connectors.json_rows import listed
from streammem.connectors.jsonl_rows import time_of
from streammem.connectors.report import Report
from streammem.core.events import micros
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelEvent, ChannelType, Event, MembershipEvent, UserEvent

EXPECTED = "DiscordChatExporter JSON: a .json file with guild, channel and messages, or a .zip or folder of them"

_FILES = (".json", ".json.gz")
_HEAD = 1 << 16
_TYPES: dict[str, ChannelType] = {"DirectTextChat": "dm", "DirectGroupTextChat": "group_dm"}
_ADDED = {"RecipientAdd": True, "1": True, "RecipientRemove": False, "2": False}


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of all files; the workspace is the guild when none is given.

    Raises SourceError, at the first event, for a path that holds no such file.
    """
    with opened(path, report, single=True) as archive:
        files = _files(archive, path, report)
        reader = _Reader(report, given, path.stem)
        for entry in files:
            yield from reader.file(unpacked(entry), archive.origin(entry))
            report.entries_done += 1
            report.bytes_done += entry.size


def recognises(path: Path) -> bool:
    """Whether the path holds such a file. Never raises."""
    try:
        with opened(path, Report(), single=True) as archive:
            _files(archive, path, Report())
    except SourceError:
        return False
    return True


def _files(archive: Archive, path: Path, report: Report) -> list[Entry]:
    named = [entry for entry in archive.entries if archive.is_file or entry.name.lower().endswith(_FILES)]
    looks = [(entry, None if entry.swollen else _looks(entry)) for entry in named]
    if not any(looked for _, looked in looks):
        raise SourceError(f"{path}: no file with guild, channel and messages; expected {EXPECTED}")
    # One that cannot be looked at may have been an export: it is counted as lost and not passed over.
    return archive.taken([entry for entry, looked in looks if looked is not False], report, "not-an-export-file")


def _looks(entry: Entry) -> bool | None:
    """Whether a file begins as the exporter begins its files; None where its beginning is damaged."""
    try:
        head = next(chunks(unpacked(entry)), b"")[:_HEAD]
    except EOFError:
        return None
    return b'"channel"' in head and b'"messages"' in head and (b'"guild"' in head or b'"exportedAt"' in head)


class _Reader:
    """Reads file after file. Remembers who was introduced, and who was seen to read which channel."""

    def __init__(self, report: Report, given: Given, stem: str) -> None:
        self._report = report
        self._given = given
        self._stem = stem
        self._told: set[Event] = set()

    def file(self, entry: Entry, origin: str) -> Iterator[Event]:
        """A file that was cut short gives what stands before the cut."""
        try:
            head, rows = listed(entry, "messages", origin, self._report)
        except RejectedError as error:
            self._report.reject(error.reason, error.detail, origin)
            if error.reason == "truncated-file":
                self._report.gap(error.reason, origin)
            return
        place, known_at = self._place(head), _known_at(head)
        if place.channel:
            yield from self._report.counted(lambda: [_channel(head, place, known_at)], origin)
        # The exporter calls the file of a direct conversation by its people too.
        is_direct = text_of(row_of(head, "channel"), "type") in _TYPES
        kept = place.channel if is_direct else origin
        for index, row in rows:
            yield from self._message(row, place, known_at, f"{origin}#{index}", f"{kept}#{index}")

    def _place(self, head: Row) -> Place:
        guild, channel = id_of(row_of(head, "guild").get("id")), row_of(head, "channel")
        return Place(
            workspace=self._given.workspace or guild or self._stem,
            channel=id_of(channel.get("id")) or self._given.channel,
            guild="@me" if guild == "0" else guild,
            is_thread=text_of(channel, "type").endswith("Thread"),
        )

    def _message(self, row: Row, place: Place, known_at: str, origin: str, kept: str) -> Iterator[Event]:
        events = self._report.counted(lambda: [*events_of(row, place, kept), *self._news(row, place, known_at)], origin)
        self._told.update(event for event in events if isinstance(event, UserEvent | MembershipEvent))
        yield from events

    def _news(self, row: Row, place: Place, known_at: str) -> Iterator[Event]:
        """What a message tells of people that no earlier one did."""
        facts: tuple[UserEvent | MembershipEvent, ...] = (*_people(row, place, known_at), *_readers(row, place))
        yield from (fact for fact in dict.fromkeys(facts) if fact not in self._told)


def _known_at(head: Row) -> str:
    try:
        at = micros(time_of(head.get("exportedAt")))
    except RejectedError:
        return version_of()
    return version_of(at // 1000)


def _channel(head: Row, place: Place, known_at: str) -> ChannelEvent:
    """The channel of a file. What the exporter calls its category is the parent: of a thread the channel it is in."""
    row = row_of(head, "channel")
    stated = text_of(row, "type")
    return ChannelEvent(
        workspace=place.workspace,
        id=place.channel,
        version=known_at,
        name=_given_name(text_of(row, "name"), stated) or None,
        type="thread" if place.is_thread else _TYPES.get(stated, "unknown"),
        parent_id=id_of(row.get("categoryId")) or None,
        topic=text_of(row, "topic") or None,
    )


def _given_name(name: str, stated: str) -> str:
    """The name that people gave a channel: without one the exporter calls a direct one by who is in it, in a row."""
    is_made = stated == "DirectTextChat" or (stated == "DirectGroupTextChat" and ", " in name)
    return "" if is_made else name


def _people(row: Row, place: Place, known_at: str) -> Iterator[UserEvent]:
    """Everybody whom a message introduces: the exporter writes the whole account each time, as of the export."""
    given = (user for reaction in rows_of(row, "reactions") for user in rows_of(reaction, "users"))
    for user in (row_of(row, "author"), *rows_of(row, "mentions"), *given):
        name, account = name_of(user), text_of(user, "name")
        if (known := id_of(user.get("id"))) and name:
            yield UserEvent(
                workspace=place.workspace,
                id=known,
                version=known_at,
                name=name,
                aliases=(account,) if account not in ("", name) else (),
                kind="bot" if user.get("isBot") is True else "user",
            )


def _readers(row: Row, place: Place) -> Iterator[MembershipEvent]:
    """Who speaks in a channel may read it, unless taken out of it later."""
    author = row_of(row, "author")
    if (user := id_of(author.get("id"))) and author.get("isBot") is not True:
        yield MembershipEvent(workspace=place.workspace, channel=place.channel, user=user, version="1")
    present = _ADDED.get(text_of(row, "type"))
    for other in rows_of(row, "mentions") if present is not None else ():
        if user := id_of(other.get("id")):
            yield MembershipEvent(
                workspace=place.workspace,
                channel=place.channel,
                user=user,
                version=_version(row.get("timestamp")),
                present=bool(present),
            )


def _version(value: Any) -> str:
    return version_of(micros(time_of(value)) // 1000)
