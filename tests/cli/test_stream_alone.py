"""The commands of the stream form when something is not there, or is not what it should be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from streammem import settings as configuration
from streammem.backends.kafka import AIOKafkaProducer, Connection
from streammem.backends.kafka_topics import KafkaTopics
from streammem.cli import app
from streammem.core.topics import TOPICS
from streammem.records import DeadLetter
from streammem.wiring import stream
from streammem.wiring.stream import open_streaming
from streammem.workers.run import ROLES
from streammem.workers.status import OPTIONAL
from tests.cli.conftest import Cli, slack_files, write_zip
from tests.cli.stream_setting import needs_no_model, settings_of, start
from tests.servers import redis_server
from tests.servers.kafka_server import KafkaServer, free_port

Set = Callable[..., dict[str, str]]
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def set_(monkeypatch: pytest.MonkeyPatch, kafka_prefix: str, tmp_path: Path) -> Set:
    """Gives commands of this process the settings of a small memory."""
    needs_no_model(monkeypatch)

    def put(
        bootstrap: str = NOWHERE, redis_url: str = f"redis://:pw-secret@{NOWHERE}/0", **more: str
    ) -> dict[str, str]:
        named = settings_of(
            bootstrap, kafka_prefix, redis_url, tmp_path / "vectors", **{"WORKER__TIMEOUT": "0.5", **more}
        )
        for name, value in named.items():
            monkeypatch.setenv(name, value)
        return named

    return put


def create(bootstrap: str, prefix: str) -> None:
    asyncio.run(KafkaTopics(Connection(bootstrap=bootstrap), prefix).create(2, 1))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_zip(tmp_path / "acme.zip", slack_files())


COMMANDS = {
    "topics create": ("topics", "create"),
    "topics describe": ("topics", "describe"),
    "import": ("import", "slack-export", "SOURCE", "--to", "kafka"),
    "ask": ("ask", "the launch", "--via", "kafka"),
    "dead-letters list": ("dead-letters", "list"),
    "dead-letters show": ("dead-letters", "show", "0:0"),
    "dead-letters replay": ("dead-letters", "replay", "--all"),
    "verify": ("verify", "--distributed"),
    "rebuild": ("rebuild", "--distributed"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_where_no_kafka_and_no_redis_are_every_command_ends_with_one_line(
    cli: Cli, set_: Set, source: Path, name: str
) -> None:
    set_()
    ended = cli(*(source if part == "SOURCE" else part for part in COMMANDS[name]))
    assert NOWHERE in ended.error
    assert "pw-secret" not in ended.err + ended.out
    assert ended.out == ""


def test_status_says_what_is_away_and_gives_no_secret_away(cli: Cli, set_: Set) -> None:
    set_()
    ended = cli("status", "--json")
    assert ended.status == 1
    assert {name for name, said in ended.json["stores"].items() if said != "ok"} == {"kafka", "redis"}
    assert ended.err == ""
    assert "pw-secret" not in ended.out
    assert cli("status").status == 1


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("topics")])
def test_where_there_are_no_topics_every_command_names_the_mend(  # noqa: PLR0917
    cli: Cli, set_: Set, source: Path, kafka: str, redis_url: str, name: str
) -> None:
    named = set_(kafka, redis_url)
    ended = cli(*(source if part == "SOURCE" else part for part in COMMANDS[name]))
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])
    assert "streammem topics create" in ended.error


def test_topics_are_made_once_and_described_as_missing_before(cli: Cli, set_: Set, kafka: str) -> None:
    set_(kafka)
    before = cli("topics", "describe")
    assert (before.status, before.out.count("MISSING: run `streammem topics create`")) == (1, len(TOPICS))
    made = cli("topics", "create", "--json")
    assert (made.status, [topic["created"] for topic in made.json]) == (0, [True] * len(TOPICS))
    assert cli("topics", "describe").status == 0
    assert "replication" in cli("topics", "create", "--replication", 3).err + cli("topics", "describe", "--json").out


def test_more_copies_than_brokers_are_refused_in_one_line(cli: Cli, set_: Set, kafka: str) -> None:
    set_(kafka)
    assert "replication" in cli("topics", "create", "--replication", 30).error.lower()


def test_status_where_nothing_runs_says_what_to_start_and_leaves_no_mark(
    cli: Cli, set_: Set, kafka: str, redis_url: str, kafka_prefix: str
) -> None:
    named = set_(kafka, redis_url)
    missing = cli("status", "--json")
    assert missing.status == 1
    assert any("run `streammem topics create`" in problem for problem in missing.json["problems"])
    create(kafka, kafka_prefix)
    found = cli("status", "--json")
    assert (found.status, found.json["healthy"]) == (1, False)
    needed = [role for role in ROLES if role not in OPTIONAL]
    assert found.json["problems"] == [f"no process works as {role}: start `streammem worker {role}`" for role in needed]
    with Redis.from_url(redis_url) as redis:
        assert redis.get(f"{named['STREAMMEM_REDIS__PREFIX']}:card") is None  # another k may still be chosen
    assert "there is no role 'cook'" in cli("status", "--role", "cook").error
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])


def test_status_of_the_receiver_names_who_speaks_for_it(cli: Cli, set_: Set) -> None:
    set_()
    ended = cli("status", "--role", "receive")
    assert (ended.status, "GET /health" in ended.error) == (2, True)
    assert "GET /health speaks for it" in " ".join(cli("status", "--help").out.split())


def test_status_counts_the_dead_letters_that_are_listed(
    cli: Cli, set_: Set, kafka: str, redis_url: str, kafka_prefix: str
) -> None:
    named = set_(kafka, redis_url)
    create(kafka, kafka_prefix)

    async def bury() -> None:
        exchange = stream.exchange(configuration.load())
        topic = "chat.messages.v1"
        await exchange.bury(
            [
                DeadLetter(
                    role="ingest", reason="not-json", topic=topic, partition=0, offset=n, at=n, value=b"x", size=1
                )
                for n in range(3)
            ]
        )
        await exchange.stop()

    asyncio.run(bury())
    listed = [each["name"] for each in cli("dead-letters", "list", "--json").json]
    assert cli("status", "--json").json["dead_letters"] == len(listed) == 3
    assert cli("dead-letters", "dismiss", listed[0]).status == 0
    assert cli("status", "--json").json["dead_letters"] == 2
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])


def test_a_question_that_no_worker_takes_ends_with_one_line(cli: Cli, set_: Set, kafka: str, kafka_prefix: str) -> None:
    set_(kafka)
    create(kafka, kafka_prefix)
    assert "no answer within 5.5 s: is a query worker running?" in cli("ask", "the launch", "--via", "kafka").error


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "q"),
        ("ask", "q", "--memory", "m", "--via", "kafka"),
        ("import", "slack-export", "SOURCE"),
        ("import", "slack-export", "SOURCE", "--memory", "m", "--to", "kafka"),
        ("verify",),
        ("verify", "--memory", "m", "--distributed"),
        ("rebuild",),
        ("rebuild", "--memory", "m", "--distributed"),
    ],
)
def test_neither_and_both_ways_to_name_a_memory_are_refused_in_one_line(
    cli: Cli, set_: Set, source: Path, arguments: tuple[str, ...]
) -> None:
    set_()
    ended = cli(*(source if part == "SOURCE" else part for part in arguments))
    assert "name the memory: either --memory DIR or --" in ended.error
    assert ended.status == 2


def test_a_wrong_setting_is_named(cli: Cli, set_: Set) -> None:
    set_(KAFKA__PREFIX="a prefix with blanks")
    assert "STREAMMEM_KAFKA__PREFIX" in cli("topics", "describe").error


@pytest.mark.parametrize(
    "command", ["worker", "status", "topics", "dead-letters", "import", "ask", "verify", "rebuild"]
)
def test_every_command_of_the_stream_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: streammem {command}")
    assert all(len(line) <= 110 for line in said.splitlines())


@pytest.mark.parametrize(
    "command",
    [("topics", "create"), ("topics", "describe"), *[("dead-letters", c) for c in ("list", "show", "replay")]],
)
def test_every_command_below_them_too(command: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: streammem {' '.join(command)}")


def test_an_unknown_role_is_refused_with_those_that_there_are(cli: Cli, set_: Set) -> None:
    set_()
    ended = cli("worker", "index", "cook")
    assert ended.status == 2
    assert (
        "there is no role 'cook': it can be receive, connect, ingest, structure, index, summarize, query or all"
        in ended.error
    )
    assert cli("worker").status == 2


# ------------------------------------------------------------------------------------------------------------ workers


def error_of(lines: list[str]) -> str:
    """The one line that a worker ended with."""
    (last,) = [line for line in lines if line.startswith("error: ")]
    assert lines[-1] == last
    assert not [line for line in lines if "Traceback" in line]
    return last


def test_a_worker_where_there_are_no_topics_names_the_mend(
    set_: Set, kafka: str, redis_url: str, kafka_prefix: str
) -> None:
    worker = start(set_(kafka, redis_url), "ingest")
    assert worker.ended() == 1
    assert f"topics are missing: {kafka_prefix}chat.messages.v1" in error_of(worker.lines)
    assert "run `streammem topics create`" in error_of(worker.lines)


def test_a_receiver_listens_without_redis_and_is_not_one_of_all(set_: Set, kafka: str, kafka_prefix: str) -> None:
    create(kafka, kafka_prefix)
    named = set_(kafka, RECEIVE__PORT="0", RECEIVE__SLACK_SIGNING_SECRET="shh-secret")
    worker = start(named, "receive")
    worker.says('"event": "listens"')
    assert worker.end() == 0
    assert not [line for line in worker.lines if "shh-secret" in line or "Traceback" in line]
    assert "receive" not in ROLES


def test_a_receiver_to_which_nobody_may_post_does_not_start_and_names_both_settings(set_: Set) -> None:
    worker = start(set_(), "receive")
    assert worker.ended() == 1
    assert "STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET or STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE" in error_of(worker.lines)


def test_a_receiver_whose_address_is_taken_ends_with_one_line(set_: Set, kafka: str, kafka_prefix: str) -> None:
    create(kafka, kafka_prefix)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = set_(kafka, RECEIVE__PORT=str(taken.getsockname()[1]), RECEIVE__TEAMS_CLIENT_STATE="shh-secret")
        worker = start(named, "receive")
        assert worker.ended() == 1
    assert "STREAMMEM_RECEIVE__PORT" in error_of(worker.lines)


@pytest.mark.parametrize("made", ["k", "version"])
def test_a_worker_refuses_a_redis_of_another_making_and_names_the_mend(
    set_: Set, kafka: str, kafka_prefix: str, redis_url: str, made: str
) -> None:
    named = set_(kafka, redis_url)
    create(kafka, kafka_prefix)

    async def check() -> None:
        async with open_streaming(configuration.load()) as parts:
            await parts.check()

    asyncio.run(check())
    if made == "version":
        with Redis.from_url(redis_url) as redis:
            redis.set(f"{named['STREAMMEM_REDIS__PREFIX']}:format", 99)
    worker = start({**named, "STREAMMEM_FOREST__K": "16" if made == "version" else "8"}, "structure")
    assert worker.ended() == 1
    assert {"k": "k=16, the settings say 8", "version": "format 99"}[made] in error_of(worker.lines)
    assert "streammem rebuild" in error_of(worker.lines)
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])


def test_sigterm_ends_a_worker_that_waits_with_status_0(set_: Set, kafka: str, kafka_prefix: str) -> None:
    named = set_(kafka, f"redis://127.0.0.1:{free_port()}/0")
    create(kafka, kafka_prefix)
    worker = start(named, "structure", "index", "query")
    worker.says("waits", 3)
    assert worker.end(seconds=10.0) == 0
    assert '"event": "stopped"' in worker.lines[-1]


def test_a_burst_of_junk_stops_a_worker_with_nothing_acknowledged_and_the_next_one_goes_on(
    cli: Cli, set_: Set, kafka: str, kafka_prefix: str, redis_url: str
) -> None:
    named = set_(kafka, redis_url, WORKER__BURST="5", WORKER__WITHIN="3")  # all of it in one batch
    create(kafka, kafka_prefix)

    async def junk() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        await asyncio.gather(*[await producer.send(f"{kafka_prefix}chat.messages.v1", b"junk", b"k") for _ in range(9)])
        await producer.stop()

    asyncio.run(junk())
    first = start(named, "ingest")
    assert first.ended() == 1
    assert "records in a row cannot be used, the last one (not-json)" in error_of(first.lines)
    assert cli("dead-letters", "list", "--json").json == []
    second = start({**named, "STREAMMEM_WORKER__BURST": "100"}, "ingest")
    second.says('"refused"', 9)
    for _ in range(100):
        if len(cli("dead-letters", "list", "--json").json) == 9:
            break
    assert len(cli("dead-letters", "list", "--json").json) == 9
    assert second.end() == 0
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])


def test_a_worker_waits_for_a_kafka_that_is_away_when_it_starts_and_works_when_it_comes(  # noqa: PLR0917
    cli: Cli, set_: Set, own_kafka: KafkaServer, redis_url: str, kafka_prefix: str, source: Path
) -> None:
    if not own_kafka.restartable:
        pytest.skip("the named broker is not ours to stop")
    create(own_kafka.bootstrap, kafka_prefix)
    named = set_(own_kafka.bootstrap, redis_url, WORKER__TIMEOUT="30")
    assert cli("import", "slack-export", source, "--to", "kafka").status == 0
    own_kafka.stop()
    worker = start(named, "all")
    worker.says("waits", 5)
    assert worker.process.poll() is None
    own_kafka.start()
    worker.says('"event": "started"', len(ROLES))
    again = cli("import", "slack-export", source, "--to", "kafka", "--json")
    found = cli("ask", "the launch", "--via", "kafka", "--json", "--wait-for", again.json["position"])
    assert any("27 March" in item["text"] for item in found.json["evidence"])
    assert worker.end() == 0
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])


def test_a_memory_is_built_anew_from_its_log_when_its_worker_has_ended(  # noqa: PLR0917
    cli: Cli, set_: Set, kafka: str, redis_url: str, kafka_prefix: str, source: Path
) -> None:
    named = set_(kafka, redis_url, WORKER__TIMEOUT="15")
    create(kafka, kafka_prefix)
    imported = cli("import", "slack-export", source, "--to", "kafka", "--json").json
    worker = start(named, "all")
    worker.says('"event": "started"', len(ROLES))
    waiting = ("--via", "kafka", "--all", "--json", "--wait-for", imported["position"])
    before = cli("ask", "the launch", *waiting).json
    assert worker.end() == 0
    whole = cli("verify", "--distributed", "--json").json
    assert whole["same"]
    with Redis.from_url(redis_url) as redis:  # a fault: a sequence is lost
        lost = next(iter(redis.scan_iter(f"{named['STREAMMEM_REDIS__PREFIX']}:*}}s*")))
        redis.delete(lost)
    harmed = cli("verify", "--distributed")
    assert harmed.status == 1
    assert "run `streammem rebuild --distributed`" in harmed.err
    rebuilt = cli("rebuild", "--distributed", "--json")
    assert (rebuilt.status, rebuilt.json["written"] > 0) == (0, True)
    assert cli("verify", "--distributed", "--json").json["checksum"] == whole["checksum"]
    worker = start(named, "query")
    worker.says('"event": "started"')
    after = cli("ask", "the launch", *waiting).json
    assert worker.end() == 0
    assert [item["id"] for item in after["evidence"]] == [item["id"] for item in before["evidence"]]
    redis_server.forget(redis_url, named["STREAMMEM_REDIS__PREFIX"])
