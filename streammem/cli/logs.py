"""Logs go to stderr: lines for people on a terminal, JSON otherwise. They carry counts and ids, never message text."""

from __future__ import annotations

import logging
import sys

from streammem.settings import Settings


def configure(settings: Settings) -> None:
    """Set up structlog, and the loggers that libraries bring, once at the start of a command."""
    import structlog

    level = getattr(logging, settings.log_level.upper())
    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(level, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s")
