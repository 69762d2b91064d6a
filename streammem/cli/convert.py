"""`streammem convert`: a chat export to canonical events on standard output."""

from __future__ import annotations

import sys

from streammem.cli import shown
from streammem.cli.account import Account
from streammem.cli.opening import JsonOption
from streammem.cli.progress import Progress, duration
from streammem.cli.source import (
    ChannelOption,
    DomainOption,
    FormatArgument,
    ListOption,
    PathArgument,
    RejectsOption,
    Source,
    WorkspaceOption,
)
from streammem.errors import SettingsError


def convert(
    format_: FormatArgument,
    path: PathArgument,
    workspace: WorkspaceOption = None,
    channel: ChannelOption = None,
    domain: DomainOption = None,
    rejects: RejectsOption = None,
    as_json: JsonOption = False,
    list_formats: ListOption = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Write the canonical events of an export as JSON lines to standard output, for a producer of your own.

    The report goes to standard error (with --json as JSON). Nothing is stored anywhere.

    \b
    streammem convert slack-export export.zip > events.jsonl
    streammem convert slack-history page.json --channel C0123 --workspace T0123 | my-producer
    streammem import jsonl events.jsonl --memory team
    """  # noqa: D301 - click wants the backspace
    source = Source(format_, path, workspace, channel, domain)
    source.spare(rejects)
    account = Account(source.report, rejects)
    with account:
        _convert(source, account)
    if as_json:
        told = {"source": str(path), "format": source.format, **account.to_json()}
        sys.stderr.write(shown.as_json(told) + "\n")
    else:
        account.put(f"Converted {path} in {duration(account.seconds)}", err=True)
    account.check(path, in_pieces=source.in_pieces)
    return 0


def _convert(source: Source, account: Account) -> None:
    from streammem.core.events import encode

    with Progress({"read": "reading"}) as progress:
        for event in account.count(source.events()):
            _put(encode(event) + b"\n")
            account.accepted += 1
            progress("read", 1)
            progress.expect("read", account.whole(account.accepted))
    _put(b"")


def _put(line: bytes) -> None:
    """Write a line; nothing stands for the end."""
    try:
        sys.stdout.buffer.write(line)
        if not line:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # who reads has read enough
    except OSError as error:
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None
