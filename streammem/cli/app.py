"""The commands together: what `streammem` is when it is typed."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from streammem import __version__
from streammem.cli import (
    ask,
    convert,
    dead_letters,
    demo,
    endings,
    eval_,
    forget,
    import_,
    models,
    rebuild,
    stats,
    status,
    summaries,
    topics,
    verify,
    worker,
)

app = typer.Typer(
    name="streammem",
    help="""An organisation's group chat as a memory that answers with the messages themselves.

    \b
    Start here:
      streammem demo                                          see it work on a bundled sample
      streammem import slack-export export.zip --memory team  make a memory of your own
      streammem ask "who approved DOC-042?" --memory team     ask it

    A memory is one directory. Nothing leaves this machine; the embedding model is fetched once, from your package
    index. Settings are environment variables, e.g. STREAMMEM_LOG_LEVEL=debug or STREAMMEM_FOREST__K=8.""",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)
app.command("demo", short_help="See it work on a bundled sample.")(demo.demo)
app.command("import", short_help="Make a memory of a chat export, or add to one.")(import_.import_)
app.command("convert", short_help="Write the events of a chat export as JSON lines.")(convert.convert)
app.command("ask", short_help="Ask a question; the messages themselves answer.")(ask.ask)
app.command("stats", short_help="Count what a memory holds.")(stats.stats)
app.command("verify", short_help="Prove that a memory is what its log says.")(verify.verify)
app.command("rebuild", short_help="Build everything but the log anew.")(rebuild.rebuild)
app.command("forget", short_help="Forget messages and people for good.")(forget.forget)
app.command("eval", short_help="Measure recall on a data set.")(eval_.eval_)
app.add_typer(summaries.app, name="summaries", short_help="What a language model writes, and what it costs.")
app.add_typer(topics.app, name="topics", short_help="Stream: make and describe the Kafka topics.")
app.command("worker", short_help="Stream: work in one or several roles.")(worker.worker)
app.command("status", short_help="Stream: lag, freshness, and what is wrong.")(status.status)
app.add_typer(dead_letters.app, name="dead-letters", short_help="Stream: what could not be used, and why.")
app.add_typer(models.app, name="models", short_help="List, fetch and find embedding models.")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"streammem {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run one command; every failure ends as one line on stderr and a status that is not zero."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # chat has characters that a terminal may not
    command = typer.main.get_command(app)
    try:
        status = command.main(arguments or ["--help"], prog_name="streammem", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = endings.STOPPED
    except Exception as error:  # noqa: BLE001 - the one place where any error becomes a line
        status = endings.ending(error)
    if status == endings.STOPPED:
        endings.stopped()
    return status if isinstance(status, int) else 0
