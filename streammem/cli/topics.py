"""`streammem topics`: make and describe the Kafka topics of the stream form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streammem.cli import opening, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import JsonOption
from streammem.cli.running import run

if TYPE_CHECKING:
    from streammem.backends.kafka_topics import Described, Made
    from streammem.settings import Settings

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create(
    partitions: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Partitions: the most processes a role can use. [default: 6]")
    ] = None,
    replication: Annotated[
        int | None, typer.Option(min=1, help="Copies of each; 3 on a cluster that must not lose any. [default: 1]")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Make the topics that are not there. Those that are there are left alone, and differences are told."""
    settings = opening.settings()
    made = run(_create(settings, partitions, replication))
    if as_json:
        shown.put_json([{"name": m.name, "created": m.created, "differences": m.differences} for m in made])
        return 0
    shown.put_counts("Topics", {m.name: _said(m) for m in made})
    return 0


def _said(made: Made) -> str:
    if made.created:
        return f"created, {made.partitions} partitions"
    return f"was there: {'; '.join(made.differences)}" if made.differences else "was there"


async def _create(settings: Settings, partitions: int | None, replication: int | None) -> list[Made]:
    from streammem.wiring import stream

    kafka = settings.kafka
    return await stream.topics(settings).create(partitions or kafka.partitions, replication or kafka.replication)


@app.command("describe")
def describe(as_json: JsonOption = False) -> int:
    """Show every topic: what is in it, who writes and reads it, how it is kept. Ends with 1 when one is missing."""
    import msgspec

    found = run(_describe(opening.settings()))
    if as_json:
        shown.put_json([msgspec.to_builtins(topic) for topic in found])
    else:
        for topic in found:
            _put(topic)
    return FAILED if any(not topic.exists for topic in found) else 0


def _put(found: Described) -> None:
    topic = found.topic
    kept = "for ever, compacted" if topic.retention is None else f"{topic.retention / 86_400_000:g} days"
    there = f"{found.partitions} partitions, {found.replication} copies, about {found.records:,} records"
    shown.put_counts(
        found.name,
        {
            "state": there if found.exists else "MISSING: run `streammem topics create`",
            "holds": topic.holds,
            "key": topic.key,
            "kept": kept,
            "written by": topic.writers,
            "read by": topic.readers,
        },
    )


async def _describe(settings: Settings) -> list[Described]:
    from streammem.wiring import stream

    return await stream.topics(settings).describe()
