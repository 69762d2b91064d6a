"""Run the work of a command in an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C cancels the work, which closes what it opened, and raises KeyboardInterrupt."""
    import asyncio

    runner = asyncio.Runner()
    try:
        result = runner.run(work)
    except KeyboardInterrupt:
        raise  # closing the runner would wait for the model's thread
    except BaseException:
        runner.close()
        raise
    runner.close()
    return result


def heed_cancelling() -> None:
    """Raise CancelledError if Ctrl-C was pressed: for work that computes for long without waiting for anything."""
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # in a thread beside the loop: the loop itself notices
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
