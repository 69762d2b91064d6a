"""How commands open a memory: by the settings, with the model fetched when it is not there yet."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streammem.memory import Memory
    from streammem.settings import Settings

MemoryOption = Annotated[Path, typer.Option("--memory", metavar="DIR", help="The directory of the memory.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout; progress stays on stderr.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="W", help="The workspace, needed only when a memory has several.")
]

BUILDING = {"log": "placing", "index": "embedding", "summaries": "summarising sequences"}
IMPORTING = {"read": "reading", "index": "embedding", "summaries": "summarising sequences"}
"""What people read for the stages of building a memory, from its log and from a source."""


def settings() -> Settings:
    """The settings of this process; logging is set up by them."""
    from streammem import settings as configuration  # noqa: PLC0415 - `streammem --help` needs none of it
    from streammem.cli import logs  # noqa: PLC0415

    read = configuration.load()
    logs.configure(read)
    return read


def open_(
    path: Path, chosen: Settings, *, create: bool = False, rebuild: bool = False
) -> AbstractAsyncContextManager[Memory]:
    """Open a memory. Tests put an opening with a small embedder in the place of this one."""
    from streammem.cli.models import fetching_embedder  # noqa: PLC0415
    from streammem.memory import open_memory  # noqa: PLC0415

    return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=fetching_embedder)
