"""How commands open a memory: by the settings, with the model fetched when it is not there yet."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from streammem.cli.progress import Progress
    from streammem.memory import Memory
    from streammem.ports import Embedder
    from streammem.settings import Settings

MemoryOption = Annotated[Path, typer.Option("--memory", metavar="DIR", help="The directory of the memory.")]
OptionalMemory = Annotated[Path | None, typer.Option("--memory", metavar="DIR", help="The directory of the memory.")]
ViaOption = Annotated[
    Literal["kafka"] | None,
    typer.Option("--via", help="Ask the workers over Kafka, at STREAMMEM_KAFKA__BOOTSTRAP."),
]
DistributedOption = Annotated[
    bool, typer.Option("--distributed", help="The memory in Kafka, Redis and Qdrant that the settings name.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout; progress stays on stderr.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="W", help="The workspace, needed only when a memory has several.")
]

FETCHING = {"model": "fetching the model (MB)"}
BUILDING = FETCHING | {"log": "placing", "index": "embedding", "summaries": "summarising sequences"}
IMPORTING = FETCHING | {"read": "reading", "index": "embedding", "summaries": "summarising sequences"}
"""What people read for the stages of building a memory, from its log and from a source."""


def one_of(memory: Path | None, other: bool, name: str) -> None:
    """Refuse both and neither of --memory and another way to name a memory."""
    if (memory is None) == (not other):
        raise typer.BadParameter(f"name the memory: either --memory DIR or {name}")


def settings() -> Settings:
    """The settings of this process; logging is set up by them."""
    from streammem import settings as configuration
    from streammem.cli import logs

    read = configuration.load()
    logs.configure(read)
    return read


def open_(
    path: Path, chosen: Settings, *, create: bool = False, rebuild: bool = False, progress: Progress | None = None
) -> AbstractAsyncContextManager[Memory]:
    """Open a memory, with `progress` for work that embeds: the model is then fetched when it is not here.

    Tests put an opening with a small embedder in the place of this one.
    """
    from streammem.cli import models
    from streammem.memory import open_memory
    from streammem.wiring import embedded

    def embedder(settings: Settings) -> Embedder:
        if progress is not None:
            models.ensure(settings.embedding, progress)
        return embedded.fastembed(settings)

    return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=embedder)
