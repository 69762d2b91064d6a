"""`streammem ask`: a question to a memory, answered with messages as they were said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streammem.cli import opening, shown
from streammem.cli.opening import JsonOption, OptionalMemory, ViaOption, WorkspaceOption
from streammem.cli.progress import Progress
from streammem.cli.running import run
from streammem.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from streammem.records import Ambiguity, Answer, Generated, Query
    from streammem.settings import Settings

HEADERS = 3
"""Headers that people see without asking for an explanation."""


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in your own words.")],
    memory: OptionalMemory = None,
    asker: Annotated[
        str | None,
        typer.Option("--as", metavar="USER", help="Who asks, by id or name: their private channels are searched too."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="Answer with what had been said by then (a date: its end)."),
    ] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="C", help="Only this channel, by id or name. May be given more than once."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only messages from then on.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only messages up to then (a date: its end).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=200, help="Most messages to return. [default: 20]")] = None,
    budget: Annotated[int | None, typer.Option(min=100, help="Most tokens to return. [default: 3000]")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Search every channel, private ones too: for whoever may read them all.")
    ] = False,
    workspace: WorkspaceOption = None,
    via: ViaOption = None,
    wait_for: Annotated[
        str | None,
        typer.Option("--wait-for", metavar="POSITION", help="Answer when that is findable, as `import` printed it."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each message was found, and where the time went.")
    ] = False,
    answer: Annotated[
        bool,
        typer.Option("--answer", help="Let a language model write a reply from the messages, citing them by number."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Ask a question; the answer is messages as they were said, with speaker, channel and time.

    Without --as only public channels are searched, and the answer says how many others there are.

    With --answer the question and the messages found are sent to the model that STREAMMEM_OPENAI__ANSWER_MODEL or
    STREAMMEM_OPENAI__MODEL names. What it writes is checked against the messages it cites, and marked where they do not
    carry it. A reply that is refused, marked or not written is no failure: the messages are the answer.

    TIME is a date (2026-03-01) or a date-time (2026-03-01T14:30), UTC unless it ends in a zone (+02:00).

    \b
    streammem ask "who approved DOC-042?" --memory team --as mira
    streammem ask "what was the launch date?" --memory team --as-of 2026-03-01 --explain
    streammem ask "who approved DOC-042?" --via kafka --wait-for "messages=0:17,1:3"
    """  # noqa: D301 - click wants the backspace
    from streammem.cli import times
    from streammem.core import positions
    from streammem.records import Query

    opening.one_of(memory, via is not None, "--via kafka")
    if not question.strip():
        raise QueryError("the question is empty: say what you want to know")
    query = Query(
        text=question,
        workspace=workspace or "",
        asker=asker,
        everything=everything,
        as_of=times.end("--as-of", as_of),
        channels=tuple(channels or ()),
        since=times.start("--since", since),
        until=times.end("--until", until),
        limit=limit,
        budget=budget,
        wait_for=positions.parse(wait_for) if wait_for else None,
        answer=answer,
    )
    settings = opening.settings()
    found = run(_answer_via_kafka(query, settings) if memory is None else _answer(memory, query, settings))
    if as_json:
        shown.put_json(answer_to_json(found))
    else:
        put_answer(found, explain=explain)
    return 0


async def _answer(path: Path, query: Query, settings: Settings) -> Answer:
    if query.answer:
        from streammem.wiring.language import answering_model, language_model

        name, _ = answering_model(settings)  # what is wrong with it is told before the memory is opened
        await language_model(settings, name).close()
    with Progress(opening.BUILDING) as progress:
        async with opening.open_(path, settings, progress=progress) as memory:
            await memory.settle(progress)  # what an import that was stopped has left to do
            return await memory.ask(query)


async def _answer_via_kafka(query: Query, settings: Settings) -> Answer:
    from streammem.client import SCHEME, connect

    async with connect(SCHEME, settings) as memory:
        return await memory.ask(query)


# ---------------------------------------------------------------------------------------------- for programs


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """The answer with times as ISO 8601."""
    import msgspec

    plain: dict[str, Any] = {name: msgspec.to_builtins(getattr(answer, name)) for name in answer.__struct_fields__}
    plain["as_of"] = None if answer.as_of is None else shown.utc(answer.as_of)
    plain["ambiguous"] = [
        {**_all_fields(one), "candidates": [_all_fields(bearer) for bearer in one.candidates]}
        for one in answer.ambiguous
    ]
    plain["evidence"] = [_evidence_to_json(item) for item in answer.evidence]
    plain["headers"] = [
        {**_all_fields(h), "first": shown.utc(h.first), "last": shown.utc(h.last)} for h in answer.headers
    ]
    return plain


def _evidence_to_json(item: Any) -> dict[str, Any]:
    fields = _all_fields(item)
    return {**fields, "ts": shown.utc(item.ts), "found_by": [_all_fields(found) for found in item.found_by]}


def _all_fields(record: Any) -> dict[str, Any]:
    """Every field, defaults too: programs should not have to know those."""
    import msgspec

    return {name: msgspec.to_builtins(getattr(record, name)) for name in record.__struct_fields__}


# ------------------------------------------------------------------------------------------------ for people


def put_answer(answer: Answer, *, explain: bool, most: int | None = None) -> None:
    """Print evidence (`most` of it), headers and the honest account."""
    from rich.text import Text

    out = shown.console()
    if answer.reply is not None:
        _put_reply(answer.reply, {item.uid: number for number, item in enumerate(answer.evidence, 1)})
    if answer.abstained:
        weak = "Nothing that was said answers this. The nearest messages, not an answer:"
        out.print(Text(weak if answer.evidence else "You may read nothing that fits.", style="bold"), soft_wrap=True)
    for number, item in enumerate(answer.evidence[:most], 1):
        _put_evidence(number, item, explain=explain)
    if most is not None and len(answer.evidence) > most:
        out.print(Text(f"and {len(answer.evidence) - most} more messages\n", style="dim"))
    headers = answer.headers if explain else answer.headers[:HEADERS]
    if headers:
        out.print(Text("Around it (generated summaries, for orientation only)", style="bold"), soft_wrap=True)
    for header in headers:
        _put_header(header)
    if headers:
        out.print()
    for sentence in _account(answer, explain=explain):
        out.print(Text(shown.line(sentence), style="dim"), soft_wrap=True)


UNSUPPORTED = "not supported by the evidence"


def _put_reply(reply: Generated, numbers: Mapping[str, int]) -> None:
    """A generated reply, with the numbers of the messages that it cites and what they do not carry marked."""
    from rich.text import Text

    out, model = shown.console(), shown.line(reply.model)
    if not model:  # none was asked, and why is said below
        return
    if reply.sentences:
        out.print(
            Text(f"{model} wrote, from the messages below (generated, no evidence)", style="bold"), soft_wrap=True
        )
        sentences = Text(" ").join(_sentence(one, numbers) for one in reply.sentences)
        out.print(Text.assemble("    ", sentences), soft_wrap=True)
    if reply.refused:
        out.print(Text(shown.line(reply.note), style="bold"), soft_wrap=True)
    elif not reply.supported:
        wrong = f"    {UNSUPPORTED}" if reply.sentences else f"{model} wrote nothing that may be shown"
        out.print(Text(f"{wrong}: {shown.line(reply.note)}", style="bold red"), soft_wrap=True)
    out.print()


def _sentence(sentence: Any, numbers: Mapping[str, int]) -> Text:
    from rich.text import Text

    cited = "".join(f"[{numbers[uid]}]" for uid in sentence.cites if uid in numbers)
    return Text.assemble(
        shown.line(sentence.text),
        (f" {cited}" if cited else "", "cyan"),
        (f" ({UNSUPPORTED})" if sentence.fault else "", "bold red"),
    )


def _put_evidence(number: int, item: Any, *, explain: bool) -> None:
    from rich.text import Text

    out = shown.console()
    head = Text.assemble(
        (f"{number:>2}  ", "dim"),
        (shown.line(item.user_name or item.user or "somebody unknown"), "bold"),
        (f" ({shown.line(item.title)})" if item.title else "", "dim"),
        (f"  {'' if item.direct else '#'}{shown.line(item.channel_name or item.channel)}", "cyan"),
        f"  {shown.minute(item.ts)}",
        ("  edited" if item.edited else "", "dim"),
        (f"  [{', '.join(item.markers)}]" if item.markers else "", "green"),
        (f"  {_signals(item)}", "dim"),
    )
    out.print(head, soft_wrap=True)
    for text in shown.plain(item.text).split("\n"):
        out.print(Text(f"    {text}"), soft_wrap=True)
    for text in shown.plain(item.attached).splitlines():
        out.print(Text(f"    | {text}", style="dim"), soft_wrap=True)
    for found in item.found_by if explain else ():
        out.print(Text(f"      found: {_found(found)}", style="dim"), soft_wrap=True)
    if explain and item.permalink:
        out.print(Text(f"      {shown.line(item.permalink)}", style="dim"), soft_wrap=True)
    out.print()


def _signals(item: Any) -> str:
    """The stages that found it, each with its signals, in short."""
    by_stage: dict[str, dict[str, None]] = {}
    for found in item.found_by:
        by_stage.setdefault(found.stage, {})[shown.line(found.signal)] = None
    return " · ".join(f"{stage} {', '.join(signals)}" for stage, signals in by_stage.items()) or str(item.stage)


def _found(found: Any) -> str:
    rank = f", rank {found.rank}" if found.rank is not None else ""
    score = f", score {found.score:.3f}" if found.score is not None else ""
    return f"{found.stage} by {shown.line(found.signal)}{rank}{score}" + (
        f", {shown.line(found.path)}" if found.path else ""
    )


def _put_header(header: Any) -> None:
    from rich.text import Text

    spell = f"{shown.minute(header.first)[:10]} to {shown.minute(header.last)[:10]}"
    head = f"  {header.view} {shown.line(header.label or header.tree)}, level {header.level}, {spell}"
    head += f", written by {shown.line(header.by.rpartition('/')[0])}" if header.by else ""
    out = shown.console()
    out.print(Text(head, style="dim"), soft_wrap=True)
    out.print(Text(f"    {shown.line(header.text)}"), soft_wrap=True)


def _account(answer: Answer, *, explain: bool) -> list[str]:
    """What stands behind the answer: how much, as of when, what was not searched, how long it took, how fresh it is."""
    from streammem.core import positions

    said = f"{len(answer.evidence)} messages, {answer.tokens} tokens"
    asked = f", as of {shown.minute(answer.as_of)}" if answer.as_of is not None else ""
    account = [*map(_meaning, answer.ambiguous), said + asked, *answer.notes]
    if answer.asker is None and answer.hidden_channels and not any("not searched" in note for note in answer.notes):
        account.append(hidden(answer.hidden_channels))
    if explain:
        account.append("time: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in answer.timings_ms.items()))
        reached = (f"{name} {positions.written(place)}" for name, place in answer.position.items() if place)
        account.append("the memory had come to: " + "; ".join(reached))
    return account


def _meaning(several: Ambiguity) -> str:
    """Who bears a name of the question, and which of them were searched for."""
    names = {c.id: f"{c.name} ({c.title})" if c.title else c.name for c in several.candidates}
    meant, others = ([n for one, n in names.items() if (one in several.meant) is yes] for yes in (True, False))
    if len(meant) == 1:
        return f"{several.name} was taken to be {meant[0]}, not {' or '.join(others)}"
    searched = "both were" if len(meant) == 2 else f"all {len(meant)} were"
    return f"{several.name} may be {', '.join(meant[:-1])} or {meant[-1]}: {searched} searched"


def hidden(channels: int) -> str:
    """How many channels the answer could not use, and what to do about it."""
    what = "1 private channel was" if channels == 1 else f"{channels} private channels were"
    return f"{what} not searched: use --as USER or --all"
