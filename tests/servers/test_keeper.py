"""A server that tests start ends with them, however they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")


def started(owner: int, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A keeper and the process id of what it keeps."""
    pid_file = folder / "server.pid"
    keeper = subprocess.Popen([sys.executable, str(KEEPER), str(owner), str(pid_file), "sleep", "300"])
    until = time.monotonic() + 30
    while not pid_file.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return keeper, int(pid_file.read_text())


def gone(pid: int) -> bool:
    """Whether the process ends within a while."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_the_server_ends_when_its_owner_is_killed(tmp_path):
    owner = subprocess.Popen(["sleep", "300"])
    keeper, pid = started(owner.pid, tmp_path)
    owner.kill()
    owner.wait()
    assert keeper.wait(30) == -signal.SIGTERM % 256
    assert gone(pid)


def test_the_server_ends_when_its_keeper_is_killed(tmp_path):
    keeper, pid = started(os.getpid(), tmp_path)
    keeper.kill()
    keeper.wait()
    assert gone(pid)


def test_the_keeper_ends_when_its_server_does(tmp_path):
    keeper, pid = started(os.getpid(), tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert keeper.wait(30) == -signal.SIGKILL % 256
