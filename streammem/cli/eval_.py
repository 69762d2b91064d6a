"""`streammem eval`: recall and precision on a data set with known evidence, beside flat baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streammem.cli.opening import JsonOption


def eval_(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET_DIR", help="A folder with messages and questions.")],
    as_json: JsonOption = False,
) -> int:
    """Measure on a data set."""
    return 0
