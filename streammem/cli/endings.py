"""How commands end when they do not end well: one line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
import traceback

from streammem.cli.shown import line, say
from streammem.errors import SettingsError, StreammemError

FAILED = 1
MISUSED = 2
STOPPED = 130


def ending(error: Exception) -> int:
    """Say what went wrong; return the exit status."""
    if isinstance(error, BrokenPipeError):
        _close_stdout()
        return FAILED
    if type(error).__name__ == "Abort":  # what older typers make of Ctrl-C
        return STOPPED
    if isinstance(error, StreammemError):
        say(f"error: {error}")
        return FAILED
    if misuse := _misuse(error):
        say(f"error: {misuse}")
        return MISUSED
    _unexpected(error)
    return FAILED


def stopped() -> None:
    """The line after Ctrl-C."""
    say("stopped: what was acknowledged is kept, run the same command again to resume")


def _misuse(error: Exception) -> str | None:
    """What typer says of arguments it cannot take. Its exceptions moved between versions; their shape did not."""
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    context = getattr(error, "ctx", None)
    hint = f" (`{context.command_path} --help` says how to use it)" if context else ""
    return f"{line(message()).rstrip('.')}{hint}"


def _unexpected(error: Exception) -> None:
    if _debugging():
        traceback.print_exception(error)
    first = line(str(error)) or "no message"
    say(f"error: {type(error).__name__}: {first} (not expected: STREAMMEM_LOG_LEVEL=debug shows where it comes from)")


def _debugging() -> bool:
    from streammem import settings

    try:
        return settings.load().log_level == "debug"
    except SettingsError:
        return False


def _close_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining about it when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
