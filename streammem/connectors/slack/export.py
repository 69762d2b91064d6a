"""A Slack export (zip or folder) to canonical events: the directory first, then channel by channel, day by day."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path

from streammem.connectors.archive import Archive, Entry, opened
from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.facts import version_of
from streammem.connectors.fields import Row, count_of, rows_of, text_of
from streammem.connectors.json_rows import rows
from streammem.connectors.report import Report
from streammem.connectors.slack.directory import (
    CHANNEL_LISTS,
    USER_LISTS,
    Known,
    channel_of,
    members_of,
    user_of,
)
from streammem.connectors.slack.message import Place, events_of, exact_ts
from streammem.core.registers import number
from streammem.errors import RejectedError, SourceError
from streammem.records import ChannelEvent, ChannelType, Event

EXPECTED = "a Slack export: a .zip or folder with channels.json or users.json and <channel>/YYYY-MM-DD.json"

_LISTS = (*USER_LISTS, *CHANNEL_LISTS)
_ROOT_MARKS = frozenset(_LISTS)
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
        yield from _users(layout, known, home, report)
        yield from _channels(layout, known, home, report)
        _note_what_is_missing(layout, known, report)
        names = known.names
        for folder, days in groupby(layout.days, key=lambda day: day.parts[-2]):
            place = Place(
                workspace=home,
                channel=known.place_of(folder),
                names=names,
                kinds=known.kinds,
                has_directory=layout.has_users,
                domain=given.domain or peeked.domain,
            )
            yield from _channel(list(days), place, known, layout.label, report)


def recognises(path: Path) -> bool:
    """Whether the path looks like a Slack export. Never raises."""
    report = Report()
    try:
        with opened(path, report) as archive:
            Layout.of(archive, path, report)
    except SourceError:
        return False
    return True


# ------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True)
class Layout:
    """The files of an export that mean something."""

    label: str
    lists: dict[str, Entry]
    days: list[Entry]

    @classmethod
    def of(cls, archive: Archive, path: Path, report: Report) -> Layout:
        """Find the export inside the archive; everything else is counted by reason."""
        root = _root(archive)
        if root is None:
            held = "it has no channels.json or users.json" if archive.entries else "it is empty"
            raise SourceError(f"{path}: {held}; expected {EXPECTED}")
        layout = cls(archive.label, {}, [])
        for entry in archive.entries:
            layout._take(entry, root, report)
        layout.days.sort(key=lambda day: day.parts[-2:])
        chosen = [*layout.lists.values(), *layout.days]
        report.entries_total += len(chosen)
        report.bytes_total += sum(entry.size for entry in chosen)
        return layout

    def _take(self, entry: Entry, root: tuple[str, ...], report: Report) -> None:
        below = entry.parts[len(root) :]
        if (reason := _reason_to_skip(entry, root)) is not None:
            report.skipped[reason] += 1
        elif entry.swollen:
            report.reject("too-large", f"unpacks to {entry.size} bytes", self.origin(entry))
        elif len(below) == 1:
            self.lists[below[0]] = entry
        else:
            self.days.append(entry)

    def origin(self, entry: Entry) -> str:
        return f"{self.label}!{entry.name}"

    @cached_property
    def last_day(self) -> str:
        """The start of the newest day with messages, as a version: the lists were written later than that."""
        newest = max((day.parts[-1].removesuffix(".json") for day in self.days), default="")
        try:
            return str(int(datetime.fromisoformat(f"{newest}T00:00:00+00:00").timestamp()))
        except ValueError:
            return ""

    @cached_property
    def has_users(self) -> bool:
        return any(name in self.lists for name in USER_LISTS)


def _root(archive: Archive) -> tuple[str, ...] | None:
    """The folder of the lists: the shallowest, for people zip the export with folders around it."""
    roots = {
        entry.parts[:-1] for entry in archive.entries if entry.parts[-1] in _ROOT_MARKS and not _is_junk(entry.parts)
    }
    return min(roots, key=lambda root: (len(root), root), default=None)


def _is_junk(parts: tuple[str, ...]) -> bool:
    return bool(_JUNK.intersection(parts)) or parts[-1].startswith("._")


def _reason_to_skip(entry: Entry, root: tuple[str, ...]) -> str | None:
    parts = entry.parts
    below = parts[len(root) :]
    if _is_junk(parts):
        return "system-file"
    if parts[: len(root)] != root:
        return "outside-export"
    if below in {(name,) for name in _LISTS} or (len(below) == 2 and _DAY.fullmatch(below[1])):
        return None
    return "odd-day-file-name" if len(below) == 2 and _ALMOST_DAY.fullmatch(below[1]) else "not-a-day-file"


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
    for name in USER_LISTS:
        if entry := layout.lists.get(name):
            teams.update(team for _, row in rows(entry, "", Report()) if (team := text_of(row, "team_id")))
    return min(teams, key=lambda team: (-teams[team], team), default="")


def _peek(layout: Layout) -> _Peeked:
    """What the first messages tell of their workspace: exports name neither it nor its address anywhere."""
    teams: Counter[str] = Counter()
    domains: Counter[str] = Counter()
    for entry in layout.days[:_PEEKED_FILES]:
        for _, row in islice(rows(entry, "", Report()), _PEEKED_ROWS):
            teams.update(filter(None, (text_of(row, "team", "team_id"),)))
            links = (text_of(row, "permalink"), *(text_of(file, "permalink") for file in rows_of(row, "files")))
            domains.update(match[1] for link in links if (match := _DOMAIN.match(link)))
    return _Peeked(_most_common(teams), _most_common(domains))


def _most_common(counts: Counter[str]) -> str:
    return min(counts, key=lambda name: (-counts[name], name), default="")


# --------------------------------------------------------------------------------------------- the directory


def _users(layout: Layout, known: Known, home: str, report: Report) -> Iterator[Event]:
    for name in USER_LISTS:
        if (entry := layout.lists.get(name)) is not None:
            for origin, row in _rows_of_file(entry, layout.label, report):
                yield from known.learned(report.counted(partial(_user, row, home), origin))


def _user(row: Row, home: str) -> list[Event]:
    if user := user_of(row, home):
        return [user]
    raise RejectedError("no-id", "a user has no id")


def _channels(layout: Layout, known: Known, home: str, report: Report) -> Iterator[Event]:
    for name, listed in CHANNEL_LISTS.items():
        if (entry := layout.lists.get(name)) is not None:
            for origin, row in _rows_of_file(entry, layout.label, report):
                stated = partial(_channel_and_members, row, listed, home, layout.last_day)
                yield from known.learned(report.counted(stated, origin))


def _channel_and_members(row: Row, listed: ChannelType, home: str, known_at: str) -> list[Event]:
    if channel := channel_of(row, listed, home, known_at):
        return [channel, *members_of(row, channel)]
    raise RejectedError("no-id", "a channel has no id")


def _note_what_is_missing(layout: Layout, known: Known, report: Report) -> None:
    if not layout.has_users:
        report.notes.append("no users.json: people appear under their ids until a directory names them")
    folders = {day.parts[-2] for day in layout.days}
    if unlisted := sorted(folder for folder in folders if known.place_of(folder).type == "unknown"):
        shown = ", ".join(unlisted[:5]) + (", …" if len(unlisted) > 5 else "")
        report.notes.append(f"{len(unlisted)} folders are in no channel list and count as private: {shown}")
    if not layout.days:
        report.notes.append("no day files (<channel>/YYYY-MM-DD.json): the export holds no messages")


# ---------------------------------------------------------------------------------------------- the messages


@dataclass
class _Threads:
    """Replies that roots of one channel announce, against those that came."""

    announced: dict[str, int] = field(default_factory=dict)
    came: Counter[str] = field(default_factory=Counter)

    def see(self, row: Row) -> None:
        ts, root = exact_ts(row.get("ts")), exact_ts(row.get("thread_ts"))
        if root and root == ts:
            self.announced[root] = count_of(row, "reply_count")
        elif root:
            self.came[root] += 1

    def settle(self, origin: str, report: Report) -> None:
        for root, announced in self.announced.items():
            if (missing := announced - self.came[root]) > 0:
                report.gap("missing-replies", f"{origin}#{root}", missing)
        for root in sorted(self.came.keys() - self.announced.keys()):
            report.gap("missing-root", f"{origin}#{root}")


def _channel(days: list[Entry], place: Place, known: Known, label: str, report: Report) -> Iterator[Event]:
    threads = _Threads()
    renames: dict[str, str] = {}
    for day in days:
        for origin, row in _rows_of_file(day, label, report):
            threads.see(row)
            _note_rename(row, renames)
            yield from report.counted(partial(events_of, row, place, origin), origin)
    threads.settle(f"{label}!{days[0].parts[-2]}", report)
    if (channel := known.channels.get(place.channel.id)) and renames:
        yield _with_old_names(channel, renames)


def _note_rename(row: Row, renames: dict[str, str]) -> None:
    if row.get("subtype") in ("channel_name", "group_name") and (old := text_of(row, "old_name")):
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
