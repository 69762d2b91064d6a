"""The command line: one command a file, each as thin as a worker; rendering, progress and endings beside them."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line; the exit status is returned. Every failure is one line on stderr, never a traceback."""
    from streammem.cli import app, endings

    status = app.run(sys.argv[1:])
    if status == endings.STOPPED:
        sys.stdout.flush()
        os._exit(status)  # a normal exit would wait for the texts that the model's thread still has in hand
    return status
