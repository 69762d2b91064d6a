"""`streammem worker`: one or several roles of the stream form in this process, until SIGTERM."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from streammem.cli import opening
from streammem.cli.running import run

RolesArgument = Annotated[
    list[str], typer.Argument(metavar="ROLE...", help="ingest, structure, index, summarize, query, or all.")
]


def worker(roles: RolesArgument) -> int:
    """Work in one or several roles until SIGTERM or Ctrl-C. More processes of a role share its work.

    \b
    ingest     validates what arrives and appends it to the log
    structure  log to sequences, placements and bridges in Redis
    index      log to vectors in Qdrant
    summarize  due sequences to node summaries
    query      questions to answers

    Servers are named by settings: STREAMMEM_KAFKA__BOOTSTRAP, STREAMMEM_REDIS__URL, STREAMMEM_VECTORS__URL. Without a
    Qdrant server the vectors are in the directory STREAMMEM_VECTORS__PATH, and index, summarize and query have to be
    one process: `streammem worker index summarize query`. A server that is away is waited for.
    """  # noqa: D301 - click wants the backspace
    from streammem.cli import logs
    from streammem.workers import run as workers

    chosen = list(dict.fromkeys(workers.ROLES if "all" in roles else roles))
    if unknown := [role for role in chosen if role not in workers.ROLES]:
        raise typer.BadParameter(f"there is no role {unknown[0]!r}: it can be {', '.join(workers.ROLES)} or all")
    settings = opening.settings()
    logs.configure(settings, at_least="info")

    async def until_stopped() -> NoReturn:
        try:
            await workers.run(chosen, settings)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing that still runs must be waited for
            _end(error)
        _end(None)

    return run(until_stopped())


def _end(error: BaseException | None) -> NoReturn:
    """Leave at once: a thread that embeds may be in the middle of a batch, which will be done again."""
    from streammem.cli import endings

    status = 0
    if isinstance(error, Exception):
        status = endings.ending(error)
    elif error is not None:
        status = endings.STOPPED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
