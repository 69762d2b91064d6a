"""A Slack export (zip or folder) to canonical events: the directory first, then channel by channel, day by day."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path

import msgspec

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, rows_of, text_of
from streammem.connectors.json_rows import first_sign, rows
from streammem.connectors.report import Report
from streammem.connectors.slack.directory import (
    bot_id_of,
    channel_of,
    given_name,
    group_of,
    listed_type,
    members_of,
    user_of,
)
from streammem.connectors.slack.known import Known, Root
from streammem.connectors.slack.message import Place, events_of, exact_ts
from streammem.connectors.slack.threads import Threads
from streammem.core.registers import number
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelEvent, ChannelType, Event

EXPECTED = "a Slack export: a .zip or folder with channels.json or users.json and <channel>/YYYY-MM-DD.json"
FORMAT = "slack-export"

_USER_LISTS = ("org_users.json", "users.json")
_CHANNEL_LISTS: dict[str, ChannelType] = {
    "channels.json": "public",
    "groups.json": "private",
    "dms.json": "dm",
    "mpims.json": "group_dm",
}
_GROUP_LISTS = ("usergroups.json",)
_MARKS = frozenset((*_USER_LISTS, *_CHANNEL_LISTS))
"""Lists that make a folder an export."""
_LISTS = _MARKS.union(_GROUP_LISTS)
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.json")
_ALMOST_DAY = re.compile(r"\s*\d{4}-\d\d-\d\d.*\.json\s*", re.IGNORECASE | re.DOTALL)
_JUNK = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini"})
_DOMAIN = re.compile(r"https://([a-z0-9-]+)\.slack\.com/(?:files|archives)/")
_PEEKED_FILES = 20
_PEEKED_ROWS = 50


def read(path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
    """The events of an export, in an order that depends on its content only. `report` is filled as they are drawn.

    Workspace and domain are looked for in the export when not given.
    Raises SourceError, at the first event, for a path that is no Slack export.
    """
    with opened(path, report) as archive:
        layout = Layout.of(archive, path, report)
        known = Known()
        peeked = _peek(layout)
        home = given.workspace or _home(layout) or peeked.team or path.stem
        yield from _directory(layout, known, home, report)
        _note_what_is_missing(layout, known, report)
        names = known.names
        for (root, folder), days in groupby(layout.days, key=lambda day: (day.root, day.entry.parts[-2])):
            place = Place(
                workspace=home,
                channel=known.place_of(root, folder),
                names=names,
                kinds=known.kinds,
                has_directory=layout.has_users,
                domain=given.domain or peeked.domain,
                source_format=FORMAT,
            )
            yield from _channel([day.entry for day in days], place, known, layout.label, report)


def recognises(path: Path) -> bool:
    """Whether the path looks like a Slack export. Never raises."""
    report = Report()
    try:
        with opened(path, report) as archive:
            lists = [placed.entry for some in Layout.of(archive, path, report).lists.values() for placed in some]
            # Pages of other products' channels are objects.
            return any(first_sign(entry) in ("[", "n", "") for entry in lists)
    except SourceError:
        return False


# ------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True)
class Placed:
    """A file and the export it belongs to."""

    root: Root
    entry: Entry


@dataclass(frozen=True)
class Layout:
    """The files of an export that mean something. An organisation's export holds one for each workspace."""

    label: str
    lists: defaultdict[str, list[Placed]]
    days: list[Placed]

    @classmethod
    def of(cls, archive: Archive, path: Path, report: Report) -> Layout:
        """Find the export inside the archive; everything else is counted by reason."""
        roots = _roots(archive)
        if not roots:
            held = "it has no channels.json or users.json" if archive.entries else "it is empty"
            raise SourceError(f"{path}: {held}; expected {EXPECTED}")
        layout = cls(archive.label, defaultdict(list), [])
        for entry in archive.entries:
            layout._take(entry, roots, report)
        layout.days.sort(key=lambda day: (day.root, day.entry.parts[-2:]))
        chosen = [*(placed for listed in layout.lists.values() for placed in listed), *layout.days]
        report.entries_total += len(chosen)
        report.bytes_total += sum(placed.entry.size for placed in chosen)
        return layout

    def _take(self, entry: Entry, roots: frozenset[Root], report: Report) -> None:
        root = next(
            (entry.parts[:depth] for depth in range(len(entry.parts) - 1, -1, -1) if entry.parts[:depth] in roots), None
        )
        if (reason := _reason_to_skip(entry.parts, root)) is not None:
            report.skipped[reason] += 1
        elif entry.swollen:
            report.reject("too-large", f"unpacks to {entry.size} bytes", self.origin(entry))
        elif len(entry.parts) == len(root or ()) + 1:
            self.lists[entry.parts[-1]].append(Placed(root or (), entry))
        else:
            self.days.append(Placed(root or (), entry))

    def origin(self, entry: Entry) -> str:
        return f"{self.label}!{entry.name}"

    @cached_property
    def last_day(self) -> str:
        """The start of the newest day with messages, as a version: the lists were written later than that."""
        newest = max((day.entry.parts[-1].removesuffix(".json") for day in self.days), default="")
        try:
            return str(int(datetime.fromisoformat(f"{newest}T00:00:00+00:00").timestamp()))
        except ValueError:
            return ""

    @cached_property
    def has_users(self) -> bool:
        return any(self.lists.get(name) for name in _USER_LISTS)


def _roots(archive: Archive) -> frozenset[Root]:
    """The folders of the lists: the shallowest, for people zip the export with folders around it, and those below."""
    found = {entry.parts[:-1] for entry in archive.entries if entry.parts[-1] in _MARKS and not _is_junk(entry.parts)}
    top = min(found, key=lambda root: (len(root), root), default=())
    return frozenset(root for root in found if root[: len(top)] == top)


def _is_junk(parts: tuple[str, ...]) -> bool:
    return not _JUNK.isdisjoint(parts) or parts[-1].startswith("._")


def _reason_to_skip(parts: tuple[str, ...], root: Root | None) -> str | None:
    if _is_junk(parts):
        return "system-file"
    if root is None:
        return "outside-export"
    depth, name = len(parts) - len(root), parts[-1]
    if (depth == 1 and name in _LISTS) or (depth == 2 and _DAY.fullmatch(name)):
        return None
    return "odd-day-file-name" if depth == 2 and _ALMOST_DAY.fullmatch(name) else "not-a-day-file"


def _rows_of_file(entry: Entry, layout_label: str, report: Report) -> Iterator[tuple[str, Row]]:
    origin = f"{layout_label}!{entry.name}"
    for index, row in rows(entry, origin, report):
        yield f"{origin}#{index}", row
    report.entries_done += 1
    report.bytes_done += entry.size


# --------------------------------------------------------------------------------------------- the workspace


@dataclass
class _Peeked:
    team: str = ""
    domain: str = ""


def _home(layout: Layout) -> str:
    """The team that most users belong to."""
    teams: Counter[str] = Counter()
    for name in _USER_LISTS:
        for placed in layout.lists.get(name, ()):
            teams.update(team for _, row in rows(placed.entry, "", Report()) if (team := text_of(row, "team_id")))
    return _most_common(teams)


def _peek(layout: Layout) -> _Peeked:
    """What the first messages tell of their workspace: exports name neither it nor its address anywhere."""
    teams: Counter[str] = Counter()
    domains: Counter[str] = Counter()
    for day in layout.days[:_PEEKED_FILES]:
        for _, row in islice(rows(day.entry, "", Report()), _PEEKED_ROWS):
            teams.update(filter(None, (text_of(row, "team", "team_id"),)))
            links = (text_of(row, "permalink"), *(text_of(file, "permalink") for file in rows_of(row, "files")))
            domains.update(match[1] for link in links if (match := _DOMAIN.match(link)))
    return _Peeked(_most_common(teams), _most_common(domains))


def _most_common(counts: Counter[str]) -> str:
    return min(counts, key=lambda name: (-counts[name], name), default="")


# --------------------------------------------------------------------------------------------- the directory


def _directory(layout: Layout, known: Known, home: str, report: Report) -> Iterator[Event]:
    """People first: direct conversations are called by who is in them."""
    for name in _USER_LISTS:
        yield from _list(layout, name, partial(_user, home, known), known, report)
    for name, listed in _CHANNEL_LISTS.items():
        stated = partial(_channel_and_members, listed, home, layout.last_day, known)
        yield from _list(layout, name, stated, known, report)
    for name in _GROUP_LISTS:
        yield from _list(layout, name, partial(_group, home, layout.last_day), known, report)


def _list(
    layout: Layout, name: str, stated: Callable[[Row], list[Event]], known: Known, report: Report
) -> Iterator[Event]:
    for placed in layout.lists.get(name, ()):
        for origin, row in _rows_of_file(placed.entry, layout.label, report):
            yield from known.learned(report.counted(partial(stated, row), origin), placed.root)


def _user(home: str, known: Known, row: Row) -> list[Event]:
    if user := user_of(row, home):
        known.name_bot(bot_id_of(row), user.name)
        return [user]
    raise RejectedError("no-id", "a user has no id")


def _channel_and_members(listed: ChannelType, home: str, known_at: str, known: Known, row: Row) -> list[Event]:
    channel = channel_of(row, listed_type(row, listed), home, known_at)
    if channel is None:
        raise RejectedError("no-id", "a channel has no id")
    known.name_folder(channel.id, text_of(row, "name"))
    earlier = known.channels.get(channel.id)
    if earlier is not None and earlier.type != channel.type:  # lists of closed channels come later and stand
        latest = version_of(earlier.version, channel.version)
        channel = msgspec.structs.replace(channel, version=_just_after(latest))
    return [channel, *members_of(row, channel, known.kinds)]


def _group(home: str, known_at: str, row: Row) -> list[Event]:
    if group := group_of(row, home, known_at):
        return [group]
    raise RejectedError("no-id", "a user group has no id")


def _note_what_is_missing(layout: Layout, known: Known, report: Report) -> None:
    if not layout.has_users:
        report.notes.append("no users.json: people appear under their ids until a directory names them")
    folders = {(day.root, day.entry.parts[-2]) for day in layout.days}
    unlisted = sorted(folder for root, folder in folders if known.place_of(root, folder).type == "unknown")
    if unlisted:
        shown = ", ".join(unlisted[:5]) + (", …" if len(unlisted) > 5 else "")
        report.notes.append(f"{len(unlisted)} folders are in no channel list and count as private: {shown}")
    if not layout.days:
        report.notes.append("no day files (<channel>/YYYY-MM-DD.json): the export holds no messages")


# ---------------------------------------------------------------------------------------------- the messages


def _channel(days: list[Entry], place: Place, known: Known, label: str, report: Report) -> Iterator[Event]:
    threads = Threads()
    renames: dict[str, str] = {}
    folder = days[0].parts[-2]
    for day in days:
        for origin, row in _rows_of_file(day, label, report):
            threads.see(row)
            _note_rename(row, renames)
            kept = _without_handles(origin, folder, place.channel.id)
            yield from report.counted(partial(events_of, row, place, kept), origin)
    threads.settle(f"{label}!{folder}", report)
    if (channel := known.channels.get(place.channel.id)) and renames:
        yield _with_old_names(channel, renames)


def _without_handles(origin: str, folder: str, channel: str) -> str:
    """Where a message stood, as it is kept with it: a folder called by its members' handles by the channel's id."""
    return origin if given_name(folder) else origin.replace(folder, channel)


def _note_rename(row: Row, renames: dict[str, str]) -> None:
    if row.get("subtype") in ("channel_name", "group_name") and (old := given_name(text_of(row, "old_name"))):
        renames[old] = max(exact_ts(row.get("ts")) or "1", renames.get(old, "1"), key=number)


def _with_old_names(channel: ChannelEvent, renames: dict[str, str]) -> ChannelEvent:
    """The channel once more, with the names it had. An export is later than its messages, so this beats its list."""
    aliases = {*channel.aliases, *renames} - {channel.name}
    return ChannelEvent(
        workspace=channel.workspace,
        id=channel.id,
        version=_just_after(version_of(channel.version, *renames.values())),
        name=channel.name,
        type=channel.type,
        aliases=tuple(sorted(aliases)),
        topic=channel.topic,
    )


def _just_after(version: str) -> str:
    whole, _, fraction = version.partition(".")
    return f"{whole}.{fraction.ljust(9, '0')}1"
