"""`streammem worker`: one or several roles of the stream form in this process, until SIGTERM."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from streammem.cli import opening
from streammem.cli.running import run

RolesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ROLE...", help="receive, connect, ingest, structure, index, summarize, query; or all, but receive."
    ),
]


def worker(roles: RolesArgument) -> int:
    """Work in one or several roles until SIGTERM or Ctrl-C. More processes of a role share its work.

    \b
    receive    listens for what Slack and Microsoft Graph post; not one of `all`
    connect    what products send, raw and wrapped, to messages and directory
    ingest     validates what arrives and appends it to the log
    structure  log to sequences, placements and bridges in Redis
    index      log to vectors in Qdrant
    summarize  due sequences to node summaries
    query      questions to answers

    Servers are named by settings: STREAMMEM_KAFKA__BOOTSTRAP, STREAMMEM_REDIS__URL, STREAMMEM_VECTORS__URL. Without a
    Qdrant server the vectors are in the directory STREAMMEM_VECTORS__PATH, and index, summarize and query have to be
    one process: `streammem worker index summarize query`. A server that is away is waited for. `receive` needs
    STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET or STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE, or both.
    """  # noqa: D301 - click wants the backspace
    from streammem.cli import logs
    from streammem.workers import run as workers

    known = (workers.RECEIVE, *workers.ROLES)
    chosen = list(dict.fromkeys(each for role in roles for each in (workers.ROLES if role == "all" else (role,))))
    if unknown := [role for role in chosen if role not in known]:
        raise typer.BadParameter(f"there is no role {unknown[0]!r}: it can be {', '.join(known)} or all")
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
