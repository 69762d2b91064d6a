"""The commands of the stream form as a person types them, with a worker at work on real servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from streammem.backends.kafka import AIOKafkaProducer
from streammem.cli import app
from streammem.core.topics import TOPICS
from streammem.records import DeadLetter
from streammem.workers.run import ROLES
from tests.cli.conftest import GENERAL, Cli, Ended, slack_files, write_zip
from tests.cli.stream_setting import Worker, needs_no_model, settings_of, start
from tests.servers import redis_server

BROKEN = [
    *GENERAL,
    {"type": "message", "user": "U1", "ts": "not a time", "text": "when?"},
    {"type": "message", "user": "U1", "ts": "1772442001.000100", "text": " "},
    17,
]
"""The small export with records that cannot be used."""


class Stream:
    """A memory with one worker of all roles, and what its import printed."""

    def __init__(self, settings: dict[str, str], worker: Worker, source: Path) -> None:
        self.settings, self.worker, self.source = settings, worker, source
        self.imported: Any = None

    def name(self, topic: str) -> str:
        return self.settings["STREAMMEM_KAFKA__PREFIX"] + topic

    def produce(self, topic: str, *records: tuple[bytes | None, bytes | None], headers: Any = ()) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.settings["STREAMMEM_KAFKA__BOOTSTRAP"])
            await producer.start()
            try:
                for key, value in records:
                    await producer.send_and_wait(self.name(topic), value, key=key, headers=list(headers))
            finally:
                await producer.stop()

        asyncio.run(work())


@pytest.fixture(scope="module")
def stream(kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    folder, prefix = tmp_path_factory.mktemp("stream"), f"t{uuid4().hex[:10]}."
    settings = settings_of(kafka, prefix, redis_url, folder / "vectors")
    made = Stream(settings, start(settings, "all"), write_zip(folder / "acme.zip", slack_files(general=BROKEN)))
    made.worker.end()  # it ended by itself: there were no topics
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings.items():
            patched.setenv(name, value)
        needs_no_model(patched)
        assert app.run(["topics", "create"]) == 0
        made.worker = start(settings, "all")
        made.worker.says('"event": "started"', len(ROLES))
    yield made
    assert made.worker.end() == 0, "".join(made.worker.lines)
    assert not [line for line in made.worker.lines if "Traceback" in line or "launch" in line or "budget" in line]
    redis_server.forget(redis_url, settings["STREAMMEM_REDIS__PREFIX"])


@pytest.fixture
def typed(stream: Stream, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Types a command with the settings of the stream."""
    for name, value in stream.settings.items():
        monkeypatch.setenv(name, value)
    needs_no_model(monkeypatch)
    return cli


@pytest.fixture
def imported(stream: Stream, typed: Cli) -> Any:
    """What the import of the small export said; after it, all is findable."""
    if stream.imported is None:
        said = typed("import", "slack-export", stream.source, "--to", "kafka", "--json")
        assert said.status == 0, said.err
        stream.imported = said.json
    found = typed("ask", "the launch", "--via", "kafka", "--all", "--wait-for", stream.imported["position"])
    assert found.status == 0, found.err
    return stream.imported


def until(check: Any, seconds: float = 30.0) -> Any:
    """The first outcome that is something."""
    ending = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < ending
        time.sleep(0.1)
    return found


# ------------------------------------------------------------------------------------------------------------ topics


def test_topics_that_are_there_are_left_alone(typed: Cli) -> None:
    again = typed("topics", "create")
    assert (again.status, again.err) == (0, "")
    assert [line.split()[1:] for line in again.out.splitlines()[1:]] == [["was", "there"]] * len(TOPICS)
    assert {topic["created"] for topic in typed("topics", "create", "--json").json} == {False}


def test_topics_that_are_otherwise_are_told(typed: Cli) -> None:
    said = typed("topics", "create", "--partitions", 3)
    assert said.out.count("was there: 2 partitions instead of 3") == len(TOPICS)


def test_topics_are_described_with_what_is_in_them(stream: Stream, typed: Cli, imported: Any) -> None:
    said = typed("topics", "describe")
    assert said.status == 0
    for name in ("chat.messages.v1", "memory.log.v1", "memory.dead-letter.v1"):
        assert f"\n{stream.name(name)}\n" in f"\n{said.out}"
    assert "MISSING" not in said.out
    log = next(each for each in typed("topics", "describe", "--json").json if each["topic"]["short"] == "log")
    assert (log["partitions"], log["records"] >= imported["accepted"]) == (2, True)


# ------------------------------------------------------------------------------------------------------------ import


def test_an_import_to_kafka_gives_the_account_of_an_embedded_one_and_a_position(
    stream: Stream, typed: Cli, imported: Any, tmp_path: Path
) -> None:
    embedded = typed("import", "slack-export", stream.source, "--memory", tmp_path / "m", "--json").json
    same = ("read", "messages", "accepted", "duplicates", "rejected", "ignored", "skipped", "gaps", "notes")
    assert {name: imported[name] for name in same} == {name: embedded[name] for name in same}
    assert imported["rejected"]
    places = lambda report: sorted((e["reason"], e["origin"]) for e in report["examples"])  # noqa: E731
    assert places(imported) == places(embedded)
    assert (imported["to"], imported["position"].count("messages=")) == ("kafka", 1)


def test_an_import_says_what_to_type_next(stream: Stream, typed: Cli, imported: Any) -> None:
    said = typed("import", "slack-export", stream.source, "--to", "kafka")
    assert said.status == 0
    last = said.out.splitlines()[-1]
    assert last.startswith('Now ask it: streammem ask "..." --via kafka --wait-for "')
    position = last.rpartition("--wait-for ")[2].strip('"')
    assert typed("ask", "the launch", "--via", "kafka", "--wait-for", position).status == 0


def test_refused_records_are_written_where_it_is_asked_for(stream: Stream, typed: Cli, tmp_path: Path) -> None:
    rejects = tmp_path / "rejects.jsonl"
    said = typed("import", "slack-export", stream.source, "--to", "kafka", "--rejects", rejects, "--json")
    written = [json.loads(line)["reason"] for line in rejects.read_text().splitlines()]
    assert sorted(written) == sorted(r for r, count in said.json["rejected"].items() for _ in range(count))


def test_a_source_without_a_message_is_no_success(typed: Cli, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("17\n")
    assert "nothing was imported" in typed("import", "jsonl", tmp_path / "none.jsonl", "--to", "kafka").error
    assert "no such file" in typed("import", "jsonl", tmp_path / "absent", "--to", "kafka").error


# --------------------------------------------------------------------------------------------------------------- ask


def texts(said: Ended) -> list[str]:
    return [item["text"] for item in said.json["evidence"]]


def test_a_question_over_kafka_is_answered_as_the_asker_may_read(typed: Cli, imported: Any) -> None:
    public = typed("ask", "what is the budget of the launch?", "--via", "kafka", "--json")
    assert public.status == 0
    assert any("the launch moves to 27 March" in text for text in texts(public))
    assert not any("40k" in text for text in texts(public))
    own = typed("ask", "what is the budget of the launch?", "--via", "kafka", "--as", "mira", "--json")
    assert any("40k" in text for text in texts(own))
    shown = typed("ask", "what is the budget of the launch?", "--via", "kafka", "--explain")
    assert "the launch moves to 27 March, payments broke" in shown.out
    assert "1 private channel was not searched" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "nobody"), "nobody"),
        (("--channel", "nowhere"), "nowhere"),
        (("--workspace", "elsewhere"), "no workspace 'elsewhere'"),
        (("--wait-for", "messages"), "is no position"),
        (("--wait-for", "chat=0:1"), "there is no input topic 'chat'"),
        (("--as-of", "tomorrow"), "--as-of"),
    ],
)
def test_a_question_that_cannot_be_answered_ends_with_one_line(
    typed: Cli, imported: Any, arguments: tuple[str, ...], said: str
) -> None:
    ended = typed("ask", "the launch", "--via", "kafka", *arguments)
    assert said in ended.error
    assert ended.out == ""


def test_a_position_that_never_comes_is_waited_for_and_then_told(
    typed: Cli, imported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMEM_WORKER__TIMEOUT", "0.5")  # the asker waits 5 s more than this, the worker 15
    assert "no answer within 5.5 s" in typed("ask", "x", "--via", "kafka", "--wait-for", "0:99999999").error


# ------------------------------------------------------------------------------------------------------- dead letters


def letters(typed: Cli, *more: object) -> list[dict[str, Any]]:
    return list(typed("dead-letters", "list", "--json", "--most", 1000, *more).json)


def test_what_cannot_be_used_is_listed_shown_and_sent_again(stream: Stream, typed: Cli, imported: Any) -> None:
    mark = uuid4().hex
    junk, large = f"junk {mark}".encode(), b"{" + mark.encode() * 100
    stream.produce("chat.messages.v1", (b"k", junk), (None, large), headers=[("from", mark.encode())])
    mine = until(
        lambda: found if len(found := [each for each in letters(typed) if mark in str(each["value"])]) == 2 else None
    )
    assert {each["reason"] for each in mine} == {"not-json"}
    small = next(each for each in mine if each["value"] == junk.decode())
    shown = typed("dead-letters", "show", small["name"])
    assert shown.status == 0
    assert shown.json["headers"] == {"from": mark}
    assert (shown.json["key"], shown.json["size"], shown.json["role"]) == ("k", len(junk), "ingest")
    listed = typed("dead-letters", "list", "--reason", "not-json").out
    assert "  not-json " in listed
    assert f"  {small['name']}  not-json  from chat.messages.v1 " in listed
    assert letters(typed, "--reason", "no-such-reason") == []
    again = typed("dead-letters", "replay", *[each["name"] for each in mine], "--json")
    assert (again.status, sorted(again.json["sent"]), again.json["gone"]) == (0, sorted(e["name"] for e in mine), [])
    before = {each["name"] for each in mine}
    until(
        lambda: len([each for each in letters(typed) if mark in str(each["value"]) and each["name"] not in before]) == 2
    )
    assert before.isdisjoint(each["name"] for each in letters(typed))
    (first, *rest) = [each["name"] for each in letters(typed) if mark in str(each["value"])]
    assert typed("dead-letters", "dismiss", first).status == 0
    assert [each["name"] for each in letters(typed) if mark in str(each["value"])] == rest
    assert "there is no dead letter" in typed("dead-letters", "dismiss", first).error


def test_a_null_value_is_given_up_and_can_be_sent_again(stream: Stream, typed: Cli, imported: Any) -> None:
    stream.produce("chat.directory.v1", (b"gone", None))
    (name, *_) = until(lambda: [each["name"] for each in letters(typed, "--reason", "null-value")])
    assert typed("dead-letters", "show", name).json["value"] is None
    assert typed("dead-letters", "replay", name).status == 0


def test_what_is_no_entry_of_the_log_is_never_sent_to_it_again(stream: Stream, typed: Cli) -> None:
    letter = DeadLetter(
        role="index", reason="not-a-log-entry", topic="memory.log.v1", partition=0, offset=0, at=7, value=b"x", size=1
    )
    stream.produce("memory.dead-letter.v1", (b"k", msgspec.json.encode(letter)))
    (name, *_) = [each["name"] for each in letters(typed, "--reason", "not-a-log-entry")]
    again = typed("dead-letters", "replay", name)
    assert again.status == 1
    assert "is none to be written to" in again.err


def test_a_dead_letter_that_there_is_not_and_a_replay_of_nothing_in_particular_are_refused(typed: Cli) -> None:
    assert "there is no dead letter '9:99'" in typed("dead-letters", "show", "9:99").error
    assert "there is no dead letter '9:99'" in typed("dead-letters", "replay", "9:99").error
    nothing = typed("dead-letters", "replay")
    assert (nothing.status, "--reason R or --all" in nothing.error) == (2, True)
    assert typed("dead-letters", "replay", "--reason", "no-such-reason").status == 1


# ------------------------------------------------------------------------------------------------------ status and care


def test_status_tells_of_every_role_and_that_all_is_well(typed: Cli, imported: Any) -> None:
    def well() -> Any:
        said = typed("status", "--json")
        return said.json if said.status == 0 else None

    found = until(well)
    assert (found["healthy"], found["problems"]) == (True, [])
    assert {role["role"]: role["processes"] for role in found["roles"]} == dict.fromkeys(ROLES, 1)
    assert found["stores"] == {"kafka": "ok", "redis": "ok", "vectors": "ok"}
    shown = typed("status")
    assert "findable" in shown.out
    assert shown.out.splitlines()[-1] == "healthy"
    assert [role["role"] for role in typed("status", "--role", "query", "--json").json["roles"]] == ["query"]


def test_a_memory_in_servers_is_what_its_log_says(typed: Cli, imported: Any) -> None:
    said = typed("verify", "--distributed", "--json")
    assert (said.status, said.json["same"], said.json["entries"] >= imported["accepted"]) == (0, True, True)


def test_an_index_that_the_worker_holds_is_not_rebuilt_beside_it(typed: Cli, imported: Any) -> None:
    assert "in use by process" in typed("rebuild", "--distributed").error
    assert typed("ask", "the launch", "--via", "kafka").status == 0


def test_the_worker_writes_json_lines_and_nothing_that_people_said(stream: Stream, typed: Cli, imported: Any) -> None:
    assert stream.worker.lines
    for line in stream.worker.lines:
        assert json.loads(line)["event"]
