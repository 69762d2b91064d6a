"""A source of chat on the command line: its format, its path, and what the caller knows beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import shown
from streammem.errors import SettingsError, SourceError

if TYPE_CHECKING:
    from streammem.connectors import Report
    from streammem.records import Event


def _list_formats(wanted: bool) -> None:
    if not wanted:
        return
    from streammem.connectors import CONNECTORS

    shown.put_counts(
        "Formats",
        {name: connector.description for name, connector in CONNECTORS.items()} | {"auto": "look at PATH and choose"},
    )
    raise typer.Exit


FormatArgument = Annotated[
    str, typer.Argument(metavar="FORMAT", help="A format of --list-formats, or auto to look at PATH.")
]
PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="The export: a .zip, a folder or a file.")]
WorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", metavar="W", help="The workspace to import into. [default: the source's]"),
]
ChannelOption = Annotated[
    str | None,
    typer.Option("--channel", metavar="C", help="The channel of messages that name none (conversations.history)."),
]
DomainOption = Annotated[
    str | None,
    typer.Option("--domain", metavar="D", help="For permalinks: acme in acme.slack.com. [default: the source's]"),
]
RejectsOption = Annotated[
    Path | None,
    typer.Option("--rejects", metavar="FILE", help="Write every record that was refused, and why, as JSON lines."),
]
ListOption = Annotated[
    bool,
    typer.Option("--list-formats", callback=_list_formats, is_eager=True, help="Show the formats and exit."),
]


def _open(path: Path) -> None:
    """Raise what keeps every format from being read: nothing there, a password, damage, no room."""
    from streammem.connectors import Report
    from streammem.connectors.archive import opened

    with opened(path, Report(), single=True):
        pass


class Source:
    """An export about to be read."""

    def __init__(
        self, format_: str, path: Path, workspace: str | None, channel: str | None = None, domain: str | None = None
    ) -> None:
        from streammem.connectors import ALIASES, CONNECTORS, Given, Report, recognise

        self.format = (recognise(path) if format_ == "auto" else ALIASES.get(format_, format_)) or "auto"
        if self.format not in CONNECTORS:
            known = ", ".join(CONNECTORS)
            if format_ != "auto":
                raise SettingsError(f"there is no format {format_!r}: it can be {known} or auto")
            _open(path)
            raise SourceError(
                f"{path}: no known format (known are {known}; streammem import --list-formats tells what each is)"
            )
        self.path = path
        self.report: Report = Report()
        self._read = CONNECTORS[self.format].read
        self.in_pieces = CONNECTORS[self.format].in_pieces
        self._given = Given(workspace=workspace or "", channel=channel or "", domain=domain or "")

    def spare(self, rejects: Path | None) -> None:
        """Refuse to write refusals over the export, or into it, where they would be read as a part of it."""
        if rejects is None:
            return
        here, there = self.path.resolve(), rejects.resolve()
        is_same = rejects.is_file() and self.path.is_file() and rejects.samefile(self.path)
        if is_same or here in (there, *there.parents):
            raise SettingsError(f"--rejects {rejects} would be written into the export {self.path}: name another place")

    def events(self) -> Iterator[Event]:
        """Draw the events; the first one raises SourceError when the source cannot be read at all."""
        return self._read(self.path, self.report, self._given)
