"""Runs a server for another process and ends it when that process ends, however it ends.

    python keeper.py OWNER_PID PID_FILE COMMAND...

The server's process id is written to PID_FILE. The server dies with this process too (Linux: parent-death signal).
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(owner: int, pid_file: Path, command: list[str]) -> int:
    """Start the command; return its exit code, or end it when the owner is gone."""
    watched = os.pidfd_open(owner)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)  # noqa: PLW1509 (one thread)
    ended = os.pidfd_open(child.pid)
    fresh = pid_file.with_suffix(".new")
    fresh.write_text(str(child.pid))
    fresh.rename(pid_file)
    ready, _, _ = select.select([watched, ended], [], [])
    if ended not in ready:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
