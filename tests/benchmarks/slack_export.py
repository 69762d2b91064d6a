"""A large Slack export, made up, and how fast it is read.

    python -m tests.benchmarks.slack_export OUT.zip --messages 200000 --files 20000
    python -m tests.benchmarks.slack_export OUT.zip --read

Reading prints messages a second and the peak of this process's memory, beside the floor: unzip the same files and
decode their JSON, nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streammem.connectors import Report
from streammem.connectors.json_rows import loads
from streammem.connectors.slack import export

PEOPLE = 300
CHANNELS = 200
START = datetime(2024, 1, 1, 9, tzinfo=UTC)
TALK = """
deploy release rollback ticket review merge branch build failed passed customer invoice staging production the a we it
this that on for with after before please can could should done later today tomorrow metrics alert
"""
WORDS = TALK.split()


def sentence(dice: random.Random) -> str:
    words = dice.choices(WORDS, k=dice.randint(5, 40))
    if dice.random() < 0.25:
        words.insert(dice.randrange(len(words)), f"<@U{dice.randrange(PEOPLE):04d}>")
    if dice.random() < 0.2:
        words.append(f"<https://tracker.example/T-{dice.randrange(9999)}|T-{dice.randrange(9999)}>")
    if dice.random() < 0.1:
        words.append("R&amp;D &lt;soon&gt; `x = 1`")
    return " ".join(words)


def message(dice: random.Random, second: int, root: str) -> dict[str, Any]:
    ts, user, text = f"{second}.{dice.randrange(10**6):06d}", f"U{dice.randrange(PEOPLE):04d}", sentence(dice)
    words = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    row: dict[str, Any] = {
        "client_msg_id": f"{dice.getrandbits(128):032x}",
        "type": "message",
        "user": user,
        "text": text,
        "ts": ts,
        "team": "T0001",
        "blocks": [{"type": "rich_text", "block_id": "b1", "elements": [words]}],
        "user_profile": {"real_name": f"Person {user}", "display_name": user.lower(), "name": user.lower()},
    }
    if root and dice.random() < 0.4:
        row["thread_ts"] = root
    if dice.random() < 0.15:
        givers = [f"U{dice.randrange(PEOPLE):04d}" for _ in range(dice.randint(1, 4))]
        row["reactions"] = [{"name": "eyes", "users": givers, "count": len(givers)}]
    if dice.random() < 0.05:
        row["edited"] = {"user": user, "ts": f"{second + 60}.000000"}
    return row


def day(dice: random.Random, date: datetime, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for index in range(count):
        rows.append(message(dice, int(date.timestamp()) + 120 * index, rows[0]["ts"] if rows else ""))
    if any("thread_ts" in row for row in rows):
        replies = sum("thread_ts" in row for row in rows)
        rows[0] |= {"thread_ts": rows[0]["ts"], "reply_count": replies}
    return rows


def files(messages: int, count: int) -> Iterator[tuple[str, Any]]:
    """The files of an export of so many messages in so many day files."""
    dice = random.Random(7)
    channels = min(CHANNELS, count)
    profile = [(f"U{n:04d}", f"Person {n}") for n in range(PEOPLE)]
    yield "users.json", [{"id": user, "name": user, "team_id": "T0001", "real_name": name} for user, name in profile]
    yield "channels.json", [{"id": f"C{n:04d}", "name": f"room-{n}", "created": 1} for n in range(channels)]
    for number in range(count):
        date = START + timedelta(days=number // channels)
        rows = day(dice, date, messages // count + (number < messages % count))
        yield f"room-{number % channels}/{date:%Y-%m-%d}.json", rows


def write(path: Path, messages: int, count: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name, value in files(messages, count):
            packed.writestr(name, json.dumps(value, indent=4))


def floor(path: Path) -> float:
    """Seconds to unzip and decode every file."""
    start = time.perf_counter()
    with zipfile.ZipFile(path) as packed:
        for name in packed.namelist():
            loads(packed.read(name))
    return time.perf_counter() - start


def read(path: Path) -> None:
    report, start = Report(), time.perf_counter()
    events = sum(1 for _ in export.read(path, report))
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    least = floor(path)
    print(
        f"{report.messages} messages, {events} events in {seconds:.1f} s: {report.messages / seconds:,.0f} messages/s"
    )
    print(f"peak {memory:.0f} MB; floor (unzip, decode) {least:.1f} s: {report.messages / least:,.0f} messages/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--read", action="store_true", help="read it instead of making it")
    asked = parser.parse_args()
    if asked.read:
        read(asked.path)
    else:
        write(asked.path, asked.messages, asked.files)


if __name__ == "__main__":
    main()
