"""A Teams tenant export (folder or zip, TeamsDataExport): lists of people and teams, then the messages.

The messages of a chat stand in the folder of each of its members. All of it is read twice, names first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import Row, text_of
from streammem.connectors.json_rows import rows
from streammem.connectors.report import Report
from streammem.connectors.teams.known import Known
from streammem.connectors.teams.message import Setting
from streammem.connectors.teams.payloads import learn_row, read_row
from streammem.connectors.teams.place import Place
from streammem.connectors.teams.rows import lowered
from streammem.errors import SourceError
from streammem.records import Event, MembershipEvent

EXPECTED = "a Teams tenant export: a .zip or folder with users/usersList.json and teams/<id>/messages_<id>.json"

_FORMAT = "teams-tenant-export"
_FILE = re.compile(
    r"(?P<root>(?:.*/)?)(?:users/usersList\.json|teams/teams(?:List|Settings)\.json"
    r"|(?P<of>teams|users)/(?P<id>[^/]+)/(?P<what>channels|teamMembers|messages)_[^/]+\.json)",
    re.IGNORECASE,
)
_JUNK = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini"})
_THINGS = {"channels": "channels", "teammembers": "members", "messages": "messages"}


@dataclass(frozen=True)
class File:
    """A file of an export. `owner` is the user whose chats it holds."""

    entry: Entry
    order: tuple[int, str]
    place: Place
    owner: str = ""


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of an export, in an order that depends on its content only. `report` is filled as they are drawn.

    The workspace is the tenant that the export names, when none is given.
    Raises SourceError, at the first event, for a path that is no tenant export.
    """
    with opened(path, report) as archive:
        files = _files(archive, path, report)
        known = Known()
        for file in files:
            for _, row in _rows(file, "", Report()):
                learn_row(row, known, file.place)
        setting = Setting(known, given.workspace or known.tenant() or path.stem, given.channel, _FORMAT)
        chats: set[tuple[str, str]] = set()
        for file in files:
            origin = archive.origin(file.entry)
            for index, row in _rows(file, origin, report):
                yield from _owners(row, file.owner, chats, setting.workspace)
                yield from read_row(row, setting, report, f"{origin}#{index}", file.place)
            report.entries_done += 1
            report.bytes_done += file.entry.size
        _note_what_is_missing(files, report)


def recognises(path: Path) -> bool:
    """Whether the path looks like a tenant export. Never raises."""
    report = Report()
    try:
        with opened(path, report) as archive:
            files = _files(archive, path, report)
            return any(_is_teams(row) for file in files[:20] for _, row in islice(_rows(file, "", Report()), 5))
    except SourceError:
        return False


def _is_teams(row: Row) -> bool:
    known = {"messageType", "userPrincipalName", "groupsId", "membershipType", "userId", "visibility"}
    return bool(known & row.keys())


def _rows(file: File, origin: str, report: Report) -> Iterator[tuple[int, Row]]:
    for index, row in rows(file.entry, origin, report):
        yield index, lowered(row)


def _owners(row: Row, owner: str, told: set[tuple[str, str]], workspace: str) -> Iterator[Event]:
    """Whose folder holds a message of a chat is in that chat; said once for each chat."""
    chat = text_of(row, "chatId")
    if owner and chat and (chat, owner) not in told:
        told.add((chat, owner))
        yield MembershipEvent(workspace=workspace, channel=chat, user=owner, version="1")


# ------------------------------------------------------------------------------------------------- the files


def _files(archive: Archive, path: Path, report: Report) -> list[File]:
    """The files of the export inside the archive, lists first; everything else is counted by reason."""
    matched = {entry.name: _FILE.fullmatch(entry.name) for entry in archive.entries if not _is_junk(entry)}
    roots = {match["root"] for match in matched.values() if match}
    if not roots:
        held = "nothing in it is named like one" if archive.entries else "it is empty"
        raise SourceError(f"{path}: {held}; expected {EXPECTED}")
    root = min(roots, key=lambda name: (name.count("/"), name))
    files = []
    for entry in archive.entries:
        match = matched.get(entry.name)
        if match is None or match["root"] != root:
            report.skipped["system-file" if _is_junk(entry) else "not-an-export-file"] += 1
        elif entry.swollen:
            report.reject("too-large", f"unpacks to {entry.size} bytes", archive.origin(entry))
        else:
            files.append(_file(entry, match))
    report.entries_total += len(files)
    report.bytes_total += sum(file.entry.size for file in files)
    return sorted(files, key=lambda file: file.order)


def _file(entry: Entry, match: re.Match[str]) -> File:
    what, owner = (match["what"] or "").casefold(), match["id"] or ""
    if not what:
        thing = "users" if "users" in entry.parts[-1].casefold() else "teams"
        return File(entry, (0, entry.name), Place(thing=thing))
    order = (("channels", "teammembers", "messages").index(what) + 1, entry.name)
    is_team = match["of"].casefold() == "teams"
    place = Place(team=owner if is_team else "", thing=_THINGS[what])
    return File(entry, order, place, owner if what == "messages" and not is_team else "")


def _is_junk(entry: Entry) -> bool:
    return bool(_JUNK.intersection(entry.parts)) or entry.parts[-1].startswith("._")


def _note_what_is_missing(files: list[File], report: Report) -> None:
    if not any(file.place.thing == "users" for file in files):
        report.notes.append("no users/usersList.json: people appear under the names in their messages")
    with_channels = {file.place.team for file in files if file.place.team and file.place.thing == "channels"}
    with_members = {file.place.team for file in files if file.place.team and file.place.thing == "members"}
    if unlisted := sorted(with_channels - with_members):
        shown = ", ".join(unlisted[:5]) + (", …" if len(unlisted) > 5 else "")
        report.notes.append(
            f"no teamMembers list for {len(unlisted)} teams: their members are those seen coming: {shown}"
        )
