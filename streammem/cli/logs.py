"""Logs go to stderr: lines for people on a terminal, JSON otherwise. They carry counts and ids, never message text."""

from __future__ import annotations

import logging
import sys
from typing import Any

from streammem.settings import Settings


def configure(settings: Settings, at_least: str | None = None) -> None:
    """Set up structlog, and the loggers that libraries bring, at the start of a command.

    `at_least` is a level that is told whatever the settings say, unless they ask for more.
    """
    import structlog

    level = getattr(logging, settings.log_level.upper())
    if at_least is not None:
        level = min(level, getattr(logging, at_least.upper()))
    terminal = sys.stderr.isatty()
    # Plain tracebacks: the rich ones show the values of variables, and with them what people said.
    plain = structlog.dev.plain_traceback
    renderer = (
        structlog.dev.ConsoleRenderer(exception_formatter=plain) if terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # what stderr is then, not now
        cache_logger_on_first_use=False,
    )
    brought = _ToStderr()
    brought.setFormatter(logging.Formatter("%(name)s: %(message)s") if terminal else _json_formatter())
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[brought])
    if at_least is None and level > logging.DEBUG:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a command ends with one line of its own


class _ToStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what stderr is when something is told."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        """It cannot be another."""


def _json_formatter() -> logging.Formatter:
    """What libraries log, in the form of our own lines."""
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )
