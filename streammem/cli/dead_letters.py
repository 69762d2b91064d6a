"""`streammem dead-letters`: what could not be used, why, and another try."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, shown
from streammem.cli.endings import FAILED
from streammem.cli.opening import JsonOption
from streammem.cli.running import run
from streammem.errors import QueryError

if TYPE_CHECKING:
    from streammem.backends.kafka_exchange import KafkaExchange
    from streammem.records import DeadLetter
    from streammem.settings import Settings

app = typer.Typer(no_args_is_help=True)

Letters = list[tuple[str, "DeadLetter"]]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="R", help="Only those with this reason.")]


@app.command("list")
def list_(
    reason: ReasonOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Show at most so many, the newest.")] = 20,
    as_json: JsonOption = False,
) -> int:
    """Count the records that could not be used, by reason, and name the newest."""
    letters = run(_letters(opening.settings(), reason))
    if as_json:
        shown.put_json([_plain(name, letter) for name, letter in letters[-most:]])
        return 0
    shown.put_counts("Dead letters", Counter(letter.reason for _, letter in letters) | {"all": len(letters)})
    for name, letter in letters[-most:]:
        where = f"from {letter.topic} {letter.partition}:{letter.offset}"
        told = (name, letter.reason, where, letter.detail)
        shown.console().print("".join(f"  {shown.line(part)}" for part in told), soft_wrap=True)
    return 0


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="A dead letter, as `list` names it.")],
) -> int:
    """Show one dead letter: reason, origin, headers and the first KiB of what it was."""
    letters = [(known, letter) for known, letter in run(_letters(opening.settings(), None)) if known == name]
    if not letters:
        raise QueryError(f"there is no dead letter {name!r}: `streammem dead-letters list` names them")
    shown.put_json(_plain(*letters[0]))
    return 0


@app.command("dismiss")
def dismiss(
    names: Annotated[list[str], typer.Argument(metavar="PARTITION:OFFSET...", help="As `list` names them.")],
) -> int:
    """Say of dead letters that they are done with: they are not listed and not replayed any more."""
    run(_dismiss(opening.settings(), names))
    shown.put_counts("Dismissed", {"dead letters": len(names)})
    return 0


async def _dismiss(settings: Settings, names: list[str]) -> None:
    from streammem.wiring import stream

    exchange = stream.exchange(settings)
    try:
        known = {name async for name, _ in exchange.letters()}
        if unknown := sorted(set(names) - known):
            raise QueryError(f"there is no dead letter {unknown[0]!r}: `streammem dead-letters list` names them")
        await exchange.close(names)
    finally:
        await exchange.stop()


@app.command("replay")
def replay(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PARTITION:OFFSET]...", help="Dead letters, as `list` names them.")
    ] = None,
    reason: ReasonOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Send records to their topics again, after what was wrong has been mended. Ends with 1 when one is gone.

    The record is taken from its own topic while that keeps it; after that only a record of at most 1 KiB is whole.
    """
    if not (names or reason or everything):
        raise typer.BadParameter("say which: names, --reason R or --all")
    told = run(_replay(opening.settings(), set(names or ()), reason, everything=everything))
    if as_json:
        shown.put_json(told)
    else:
        shown.put_counts("Replayed", {"sent again": len(told["sent"]), "gone": len(told["gone"])})
        for name in told["gone"]:
            shown.say(
                f"{name}: its topic keeps it no more, or is none to be written to, and only the first KiB is here"
            )
    return FAILED if told["gone"] or not told["sent"] else 0


def _plain(name: str, letter: DeadLetter) -> dict[str, Any]:
    fields = {field: getattr(letter, field) for field in letter.__struct_fields__}
    shown_bytes = {
        field: value.decode("utf-8", "replace") for field in ("key", "value") if (value := fields[field]) is not None
    }
    return {"name": name, **fields, **shown_bytes, "at": shown.utc(letter.at)}


async def _letters(settings: Settings, reason: str | None) -> Letters:
    from streammem.wiring import stream

    exchange = stream.exchange(settings)
    try:
        found = [(name, letter) async for name, letter in exchange.letters() if reason in (None, letter.reason)]
    finally:
        await exchange.stop()
    return sorted(found, key=lambda pair: pair[1].at)


async def _replay(settings: Settings, names: set[str], reason: str | None, *, everything: bool) -> dict[str, list[str]]:
    from streammem.wiring import stream

    told: dict[str, list[str]] = {"sent": [], "gone": []}
    exchange = stream.exchange(settings)
    try:
        letters = {name: letter async for name, letter in exchange.letters()}
        if unknown := sorted(names - letters.keys()):
            raise QueryError(f"there is no dead letter {unknown[0]!r}: `streammem dead-letters list` names them")
        for name, letter in letters.items():
            if everything or name in names or (reason is not None and reason == letter.reason):
                told["sent" if await _again(letter, exchange) else "gone"].append(name)
        await exchange.close(told["sent"])
    finally:
        await exchange.stop()
    return told


async def _again(letter: DeadLetter, exchange: KafkaExchange) -> bool:
    from streammem.core.topics import REPLAYED

    topic = next((t for t in REPLAYED if t.name == letter.topic), None)
    if topic is None:
        return False  # only ingest writes to the log
    original = await exchange.original(letter)
    if original is not None:
        await exchange.send(topic, original.key, original.value, original.headers)
        return True
    if letter.value is None or letter.size != len(letter.value):
        return False
    headers = [(name, value.encode()) for name, value in letter.headers.items()]
    await exchange.send(topic, letter.key, letter.value, headers)
    return True
