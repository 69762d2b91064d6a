"""Summaries by a language model, as a person types them, with a scripted model server over real HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streammem import open_memory
from streammem.backends.redis import RedisStructure
from streammem.cli import rungs
from streammem.cli.progress import Progress
from streammem.cli.write import WRITING
from streammem.cli.written import Written
from streammem.connectors import Given, Report
from streammem.connectors.jsonl import read as read_rows
from streammem.core.numbers import Forest
from streammem.flows.outlook import Outlook, Rung
from streammem.flows.sheet import Worded
from streammem.records import Limits, Taken
from streammem.settings import Settings
from tests.cli.conftest import Cli, Ended
from tests.embedding import HashingEmbedder
from tests.flows.worlds import World
from tests.servers.model_server import Answer, Broken, ModelServer, Slow, Status

ALONE = """
import sys
for name in ("aiokafka", "faust", "redis", "qdrant_client"):
    sys.modules[name] = None
sys.argv, memory, commands = ["-c"], sys.argv[1], sys.argv[2:]
from streammem.cli import app, opening
from streammem.memory import open_memory
from tests.embedding import HashingEmbedder

def open_(path, chosen, *, create=False, rebuild=False, progress=None):
    return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=lambda _: HashingEmbedder())

opening.open_ = open_
print([app.run(["summaries", command, "--memory", memory]) for command in commands])
"""
ROOT = Path(__file__).parents[2]
KEY = "sk-nobody-may-see-this"
TYPICAL = Answer("word " * 132)
"""As long as the estimate takes replies to be."""
PRICES = '{"scripted": [0.5, 1.5]}'
WORDS = "the launch payment review budget of DOC-042 approved moved broken server deploy please check late customer"

HOLDER = """
import sys, time
from pathlib import Path
from streammem.wiring.embedded import hold
lock = hold(Path(sys.argv[1]), 1.0)
print("held", flush=True)
time.sleep(60)
"""
TYPED = """
import sys
from streammem import cli, open_memory
from streammem.cli import opening
from tests.embedding import HashingEmbedder

def open_(path, chosen, *, create=False, rebuild=False, progress=None):
    return open_memory(path, chosen, create=create, rebuild=rebuild, embedder=lambda _: HashingEmbedder())

opening.open_ = open_
sys.exit(cli.main())
"""


def write_rows(path: Path, count: int = 120) -> Path:
    """Messages that are too long to be quoted whole, of two channels and three people, long ago."""
    chance = random.Random(1)
    with path.open("w") as out:
        for n in range(count):
            text = " ".join(chance.choices(WORDS.split(), k=25))
            row = {"id": str(n), "channel": f"c{n % 2}", "user": f"u{n % 3}", "ts": 1772442000 + n * 600, "text": text}
            out.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="session")
def worded_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with nodes on several levels, made once."""
    folder = tmp_path_factory.mktemp("long")
    source = write_rows(folder / "rows.jsonl")

    async def build() -> None:
        settings = Settings(forest=Forest(k=4))
        async with open_memory(folder / "m", settings, embedder=lambda _: HashingEmbedder()) as memory:
            await memory.append(read_rows(source, Report(), Given(workspace="w")))

    asyncio.run(build())
    return folder / "m"


@pytest.fixture
def memory(tmp_path: Path, worded_memory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory that no model has worded yet."""
    subprocess.run(["cp", "-R", worded_memory, tmp_path / "m"], check=True)
    monkeypatch.setenv("STREAMMEM_FOREST__K", "4")
    monkeypatch.setenv("STREAMMEM_WAIT", "0.2")
    return tmp_path / "m"


@contextmanager
def serving(script: Any = None, **options: Any) -> Iterator[ModelServer]:
    """A model server in a thread, for commands have the event loop of this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ModelServer(script or (lambda number, request: TYPICAL), **options)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def use(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> dict[str, str]:
    """Set a model, and whatever else."""
    chosen = {"OPENAI__MODEL": "scripted", "OPENAI__BASE_URL": url, "OPENAI__KEY": KEY, **more}
    named = {f"STREAMMEM_{name}": value for name, value in chosen.items()}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    return named


@contextmanager
def held(memory: Path) -> Iterator[None]:
    """Another process holds the memory."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(memory)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def total(said: Ended, name: str) -> Any:
    return said.json["total"][name]


# -------------------------------------------------------------------------------------------------------------- show


def test_without_a_model_it_says_that_summaries_quote_and_how_to_set_one(cli: Cli, memory: Path) -> None:
    for command in (("summaries",), ("summaries", "show")):
        said = cli(*command, "--memory", memory)
        assert (said.status, said.err) == (0, "")
        assert "summaries quote messages: set STREAMMEM_OPENAI__MODEL" in said.out
    assert cli("summaries", "--memory", memory, "--json").json["model"] is None
    for command in ("estimate", "write"):
        assert "set STREAMMEM_OPENAI__MODEL" in cli("summaries", command, "--memory", memory).error


def test_what_is_due_is_shown_by_view_and_level(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1")
    plain, shown = cli("summaries", "--memory", memory), cli("summaries", "show", "--memory", memory)
    assert (plain.status, plain.out) == (0, shown.out)
    found = cli("summaries", "show", "--memory", memory, "--json").json
    assert {row["view"] for row in found["rows"]} == {"channel", "actor", "artifact"}
    assert {0, 1, 2} <= {row["level"] for row in found["rows"] if row["view"] == "actor"}
    for row in [*found["rows"], found["total"]]:
        assert row["nodes"] == sum(row[name] for name in ("quoted", "worded", "due", "later", "shifted", "failed"))
    due = found["total"]["due"]
    assert due > 0
    assert f"  due             {due} nodes: `streammem summaries estimate --memory {memory}`" in plain.out
    assert "0 of 1,000,000 tokens" in plain.out
    assert found["budget"]["tokens"] == {"used": 0, "limit": 1_000_000}
    assert found["calls"] == {"made": True, "why": "", "said": "", "wait": 0.0}


@pytest.mark.parametrize("command", ["show", "estimate", "write", "pause", "resume", "retry"])
def test_no_memory_and_no_place_are_one_line(cli: Cli, tmp_path: Path, command: str, monkeypatch: Any) -> None:
    assert "either --memory DIR or --distributed" in cli("summaries", command).error
    for model in (False, True):
        if model:
            use(monkeypatch, "http://127.0.0.1:9/v1")
        missing = cli("summaries", command, "--memory", tmp_path / "nowhere")
        assert model or "no memory at" in missing.error or "STREAMMEM_OPENAI__MODEL" in missing.error
    assert "no memory at" in missing.error
    assert not (tmp_path / "nowhere").exists()


def test_options_before_a_command_count_as_those_after_it(cli: Cli, memory: Path, tmp_path: Path) -> None:
    assert cli("summaries", "--memory", memory, "--json", "pause", "--because", "x").json["because"] == "x"
    assert cli("summaries", "--json", "resume", "--memory", memory).json == {"paused": False}
    assert "no memory at" in cli("summaries", "--memory", memory, "pause", "--memory", tmp_path / "other").error
    both = cli("summaries", "--distributed", "pause", "--memory", memory)
    assert (both.status, "either --memory DIR or --distributed" in both.error) == (2, True)
    assert "here `streammem worker summarize` writes" in cli("summaries", "--distributed", "write").error


def test_a_memory_needs_no_client_of_a_server_but_the_model_s(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        env = use(monkeypatch, server.url)
        done = subprocess.run(
            [sys.executable, "-c", ALONE, str(memory), "show", "estimate", "pause", "resume", "write", "retry"],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env},
        )
        assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 0]", done.stderr
        assert server.calls > 0


# ---------------------------------------------------------------------------------------------------------- estimate


@pytest.mark.parametrize("pack", ["1", "8"])
def test_as_many_calls_are_made_as_were_estimated(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch, pack: str
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, WORDING__PACK=pack, WORDING__LINGER="0.5", BUDGET__PRICES=PRICES)
        estimate = cli("summaries", "estimate", "--memory", memory, "--json").json
        assert server.calls == 0
        done = cli("summaries", "write", "--memory", memory, "--json")
        assert done.status == 0, done.err
        assert (estimate["calls"], estimate["total"]["due"]) == (server.calls, done.json["worded"])
        assert estimate["calls"] == sum(row["calls"] for row in estimate["rows"])
        # What the server counts is another way to count, and replies were as long as they usually are.
        assert estimate["total"]["tokens_out"] == pytest.approx(done.json["tokens_out"], rel=0.4)
        assert estimate["total"]["tokens_in"] == pytest.approx(done.json["tokens_in"], rel=0.4)
        assert cli("summaries", "estimate", "--memory", memory).out == "Nothing is due: no call is needed.\n"
        again = cli("summaries", "write", "--memory", memory, "--json")
        assert (again.json["worded"], again.json["calls"]) == (0, 0)
        assert server.calls == estimate["calls"]


def test_shifted_nodes_are_in_the_estimate_as_they_are_renewed(
    cli: Cli, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, WORDING__PACK="1")
        assert cli("summaries", "write", "--memory", memory).status == 0
        late = tmp_path / "late.jsonl"
        late.write_text(
            json.dumps({"id": "late", "channel": "c0", "user": "u0", "ts": 1772442000 - 60, "text": "x " * 90})
        )
        said = cli("import", "jsonl", late, "--memory", memory, "--workspace", "w")
        assert "due for scripted" in said.out
        estimate, before = cli("summaries", "estimate", "--memory", memory, "--json").json, server.calls
        assert estimate["total"]["shifted"] > 0
        done = cli("summaries", "write", "--memory", memory, "--json").json
        assert server.calls - before == done["calls"]
        assert done["calls"] == pytest.approx(estimate["calls"], abs=2)  # a parent may be worded before and after


def test_jobs_are_estimated_at_their_price_and_hand_in_as_many_prompts(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, BUDGET__PRICES=PRICES, WORDING__PACK="1", WORDING__POLL="0.01")
        alone = cli("summaries", "estimate", "--memory", memory, "--json").json
        jobs = cli("summaries", "estimate", "--memory", memory, "--batch", "--json").json
        assert jobs["calls"] == alone["calls"]
        assert jobs["total"]["money"] == pytest.approx(alone["total"]["money"] / 2, rel=1e-6)
        done = cli("summaries", "write", "--memory", memory, "--batch", "--json")
        assert done.status == 0, done.err
        assert (server.calls, len(server.items)) == (0, jobs["calls"])
        assert done.json["worded"] == jobs["total"]["due"]
        assert "with the server, in jobs" in done.err


def test_an_estimate_says_what_today_allows_and_how_many_days_it_takes(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", BUDGET__TOKENS="20000", BUDGET__PRICES=PRICES)
    found = cli("summaries", "estimate", "--memory", memory, "--json").json
    tokens = found["total"]["tokens_in"] + found["total"]["tokens_out"]
    assert found["days"] == -(-tokens // 20_000)
    assert found["calls_today"] == 20_000 * found["calls"] // tokens
    said = cli("summaries", "estimate", "--memory", memory).out
    assert f"today's allows {found['calls_today']} calls; all of it takes {found['days']} days" in said
    assert "(replies are estimated)" in said
    monkeypatch.setenv("STREAMMEM_BUDGET__TOKENS", "100")
    assert "does not allow a single call" in cli("summaries", "estimate", "--memory", memory).out


def test_without_a_price_no_money_is_told_but_how_to_set_one(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1")
    said = cli("summaries", "estimate", "--memory", memory)
    assert """no price is set: STREAMMEM_BUDGET__PRICES='{"scripted": [0.15, 0.6]}'""" in said.out
    assert cli("summaries", "estimate", "--memory", memory, "--json").json["priced"] is False


# ------------------------------------------------------------------------------------------------------------- write


def test_what_was_written_is_told_and_stands_in_the_table(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, BUDGET__PRICES=PRICES)
        due = total(cli("summaries", "--memory", memory, "--json"), "due")
        done = cli("summaries", "write", "--memory", memory)
        assert done.status == 0
        assert done.out.startswith("Written\n  nodes worded  ")
        assert f"\n  calls         {server.calls}\n" in done.out
        found = cli("summaries", "--memory", memory, "--json").json
        assert found["total"]["due"] == 0
        assert found["total"]["worded"] == due >= len(server.paid)  # a node with one child takes its words
        assert found["total"]["tokens_today"] == found["total"]["tokens_30_days"] == found["budget"]["tokens"]["used"]
        assert found["total"]["money_today"] == found["budget"]["money"]["used"] > 0
        assert "  due             nothing is due\n" in cli("summaries", "--memory", memory).out


@pytest.mark.parametrize(("typed", "status"), [("n\n", 1), ("y\n", 0)])
def test_on_a_terminal_it_asks_before_it_costs_money(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch, typed: str, status: int
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, BUDGET__PRICES=PRICES)
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        said = cli("summaries", "write", "--memory", memory)
        assert said.status == status
        assert "USD; today's budget allows all of it" in said.err
        assert (server.calls > 0) == (status == 0)
        assert ("nothing was asked of the model" in said.err) == (status == 1)


@pytest.mark.parametrize(("more", "arguments"), [({}, ()), ({"BUDGET__PRICES": PRICES}, ("--yes",))])
def test_a_few_free_calls_and_a_yes_need_no_question(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], arguments: tuple[str, ...]
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, **more)
        monkeypatch.setattr(sys, "stdin", Terminal(""))
        said = cli("summaries", "write", "--memory", memory, *arguments)
        assert (said.status, "Go on?" in said.err) == (0, False)
        assert 0 < server.calls <= 100


def test_many_free_calls_are_asked_about(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", WORDING__PACK="1")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    said = cli("summaries", "write", "--memory", memory)
    assert (said.status, "Go on?" in said.err) == (1, True)


def test_a_spent_budget_stops_it_and_a_larger_one_lets_it_go_on(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(monkeypatch, server.url, WORDING__PACK="1", WORDING__IN_FLIGHT="1", BUDGET__TOKENS="5000")
        due = total(cli("summaries", "--memory", memory, "--json"), "due")
        stopped = cli("summaries", "write", "--memory", memory, "--json")
        assert "today's budget of model calls is spent" in stopped.error
        assert stopped.error.endswith("what was written is kept, the same command goes on")
        assert 0 < stopped.json["worded"] < due
        assert "budget" in stopped.json["stopped"]
        found = cli("summaries", "--memory", memory, "--json").json
        assert found["budget"]["tokens"]["used"] <= 5000
        assert found["total"]["worded"] == stopped.json["worded"]
        shown = cli("summaries", "--memory", memory).out
        assert ("budget of model calls is spent" in shown) == (found["calls"]["why"] == "budget")
        monkeypatch.setenv("STREAMMEM_BUDGET__TOKENS", "none")
        rest = cli("summaries", "write", "--memory", memory, "--json")
        assert (rest.status, rest.json["worded"]) == (0, due - stopped.json["worded"])
        assert max(server.paid.values()) == 1


def test_where_the_model_failed_it_may_try_again(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = True
    with serving(lambda number, request: Broken() if broken else TYPICAL) as server:
        use(monkeypatch, server.url)
        first = cli("summaries", "write", "--memory", memory, "--json")
        assert (first.status, first.json["worded"]) == (1, 0)
        assert f"the model failed at {first.json['failed']} nodes: `streammem summaries retry" in first.error
        assert sum(first.json["faults"].values()) == first.json["failed"]
        found = cli("summaries", "--memory", memory, "--json").json
        assert found["faults"] == first.json["faults"]
        (fault,) = found["faults"]
        assert f"The model failed at\n  {first.json['failed']} nodes  {fault}\n" in (
            cli("summaries", "--memory", memory).out
        )
        assert first.json["failed"] == total(cli("summaries", "--memory", memory, "--json"), "failed") > 0
        assert "`streammem summaries retry" in cli("summaries", "--memory", memory).out
        calls = server.calls
        assert cli("summaries", "write", "--memory", memory, "--json").json["calls"] == 0
        assert server.calls == calls
        broken = False
        assert cli("summaries", "retry", "--memory", memory, "--json").json == {"retried": first.json["failed"]}
        again = cli("summaries", "write", "--memory", memory, "--json").json
        assert (again["worded"] >= first.json["failed"], again["failed"]) == (True, 0)
        assert total(cli("summaries", "--memory", memory, "--json"), "failed") == 0
        assert cli("summaries", "retry", "--memory", memory).out == "0 nodes to be tried again.\n"


def test_why_the_model_failed_is_told_where_it_did_most_often_first(capsys: pytest.CaptureFixture[str]) -> None:
    rungs.put_faults({})
    assert capsys.readouterr().out == ""
    rungs.put_faults({"rare": 1, "c": 3, "b_b\x1b[2J": 3, "often": 1000, "d": 2, "e": 2, "rarest": 1})
    assert capsys.readouterr().out == (
        "The model failed at\n"
        "  1,000 nodes  often\n"
        "      3 nodes  b_b[2J\n"
        "      3 nodes  c\n"
        "      2 nodes  d\n"
        "      2 nodes  e\n"
        "      2 nodes  for 2 other reasons\n"
    )


def test_no_more_nodes_are_counted_than_were_expected(memory: Path) -> None:
    found = Outlook(
        writer="",
        standing=Taken(granted=True),
        used=(0, 0),
        limits=Limits(window=60.0),
        rungs=(Rung(view="channel", level=1, nodes=4, due=3),),
        in_flight=(),
        spent=(),
        jobs=0,
    )
    done, progress = Written(found, Settings()), Progress(WRITING)
    done.begin(progress, [])
    for more in (Worded(worded=2), Worded(worded=1, failed=1), Worded(worded=1)):
        done.told(more)
    assert (progress.done("word"), done.worded, done.failed) == (3, 4, 1)


def test_it_says_why_calls_are_kept_back_and_goes_on(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda number, request: Status(503) if number == 1 else TYPICAL) as server:
        use(monkeypatch, server.url, WORDING__BACKOFF="0.01", WORDING__IN_FLIGHT="1")
        said = cli("summaries", "write", "--memory", memory)
        assert said.status == 0
        assert "kept back: the model server is busy" in said.err
        assert f"{server.url.removesuffix('/v1')} answers 503" in said.err
        assert "1 of them failed" in said.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_tells_and_keeps_what_was_written_and_the_next_one_goes_on(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with serving(lambda number, request: TYPICAL if number < 20 else Slow(30.0, TYPICAL)) as server:
        env = use(monkeypatch, server.url, WORDING__PACK="1", WORDING__IN_FLIGHT="4")
        process = subprocess.Popen(
            [sys.executable, "-c", TYPED, "summaries", "write", "--memory", str(memory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env},
        )
        until = time.monotonic() + 60
        while server.calls < 20 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert err.splitlines()[-1] == "stopped: what was written is kept, the same command goes on"
        assert "Traceback" not in err
        worded = total(cli("summaries", "--memory", memory, "--json"), "worded")
        assert worded > 0
        assert out.startswith("Written until it was stopped\n  nodes worded  ")
        assert f"  {worded}\n" in out
        server.script = lambda number, request: TYPICAL
        done = cli("summaries", "write", "--memory", memory, "--json")
        assert (done.status, done.err.count("error")) == (0, 0)
        assert total(cli("summaries", "--memory", memory, "--json"), "worded") == worded + done.json["worded"]
        assert max(server.paid.values()) == 1


# ----------------------------------------------------------------------------------------------------- pause, resume


def test_calls_are_paused_and_resumed_while_another_process_holds_the_memory(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(monkeypatch, server.url)
        with held(memory):
            assert cli("summaries", "pause", "--memory", memory, "--because", "too\x1b[2J dear").status == 0
            shown = cli("summaries", "--memory", memory)
            assert shown.status == 0
            assert f"(too[2J dear): run `streammem summaries resume --memory {memory}`" in shown.out
            assert "not counted: the memory at" in shown.out
            found = cli("summaries", "--memory", memory, "--json").json
            assert (found["calls"]["why"], found["calls"]["said"], found["rows"]) == ("paused", "too[2J dear", [])
            assert "in use by process" in found["held"]
        stopped = cli("summaries", "write", "--memory", memory)
        assert "model calls are paused (too[2J dear)" in stopped.error
        assert f"`streammem summaries resume --memory {memory}`" in stopped.error
        assert server.calls == 0
        with held(memory):
            assert cli("summaries", "resume", "--memory", memory, "--json").json == {"paused": False}
        assert cli("summaries", "write", "--memory", memory).status == 0
        assert server.calls > 0


def test_a_pause_stops_a_command_that_is_writing(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(delay=0.05) as server:
        env = use(monkeypatch, server.url, WORDING__PACK="1", WORDING__IN_FLIGHT="1")
        process = subprocess.Popen(
            [sys.executable, "-c", TYPED, "summaries", "write", "--memory", str(memory), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env},
        )
        until = time.monotonic() + 60
        while server.calls < 5 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert cli("summaries", "pause", "--memory", memory).status == 0
        out, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "error: model calls are paused: run `streammem summaries resume" in err.splitlines()[-1]
        assert json.loads(out)["worded"] >= 5


# ------------------------------------------------------------------------------------------------- what may be wrong


def test_a_key_that_is_refused_is_one_line_without_the_key(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(key="another") as server:
        use(monkeypatch, server.url)
        said = cli("summaries", "write", "--memory", memory)
        assert "the server refuses the key: mend STREAMMEM_OPENAI__KEY" in said.error
        assert KEY not in said.out + said.err


def test_a_model_that_the_server_has_not_is_one_line(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(model="other") as server:
        use(monkeypatch, server.url)
        assert (
            "no model 'scripted': mend STREAMMEM_OPENAI__MODEL" in cli("summaries", "write", "--memory", memory).error
        )


def test_a_server_that_is_away_is_one_line_that_says_how_to_go_on(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", WORDING__ATTEMPTS="2", WORDING__BACKOFF="0.01", WORDING__COOLING="0.01")
    said = cli("summaries", "write", "--memory", memory)
    assert said.error.startswith("http://127.0.0.1:9 is away")
    assert said.error.endswith("what was written is kept, the same command goes on")
    assert "kept back: http://127.0.0.1:9 is away" in said.err


def test_an_extra_that_is_not_installed_is_named_before_anything_else(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1")
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "streammem.backends.openai", raising=False)
    assert "pip install 'streammem[openai]'" in cli("summaries", "write", "--memory", memory).error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUDGET__PRICES", "{bad"),
        ("BUDGET__PRICES", '{"scripted": [0.1]}'),
        ("BUDGET__PRICES", '{"scripted": [NaN, 1]}'),
        ("BUDGET__PRICES", '{"scripted": [-1, 1]}'),
        ("OPENAI__HEADERS", f"x-key: {KEY}"),
        ("BUDGET__TOKENS", "many"),
        ("BUDGET__TOKENS", ""),  # no limit must be meant
        ("BUDGET__MONEY", "0"),
        ("WORDING__PACK", "0"),
        ("OPENAI__BASE_URL", "127.0.0.1:8000"),
        ("OPENAI__STRUCTURED", "yes"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_its_variable(
    cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", **{name: value})
    said = cli("summaries", "--memory", memory)
    assert said.error.startswith(f"STREAMMEM_{name} is wrong")
    assert KEY not in said.err


def test_a_budget_in_money_needs_the_price(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", BUDGET__MONEY="5")
    for command in ("show", "estimate", "write"):
        assert "STREAMMEM_BUDGET__PRICES=" in cli("summaries", command, "--memory", memory).error


def test_no_limit_and_an_empty_model_can_be_said(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:9/v1", BUDGET__TOKENS="none", OPENAI__TEMPERATURE="none")
    assert "0 tokens, no limit" in cli("summaries", "--memory", memory).out
    monkeypatch.setenv("STREAMMEM_OPENAI__MODEL", "")
    assert cli("summaries", "--memory", memory, "--json").json["model"] is None


def test_no_secret_is_in_any_output(cli: Cli, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"error": {"message": f"you sent {KEY} and another-secret-header", "type": "server_error"}}
    with serving(lambda number, request: Status(500, body=told)) as server:
        headers = '{"x-own": "another-secret-header"}'
        use(
            monkeypatch,
            server.url,
            OPENAI__HEADERS=headers,
            WORDING__ATTEMPTS="1",
            WORDING__COOLING="0.01",
            LOG_LEVEL="debug",
        )
        for command in ("show", "estimate", "write", "retry", "pause", "resume"):
            for more in ((), ("--json",)):
                said = cli("summaries", command, "--memory", memory, *more)
                assert KEY not in said.out + said.err
                assert "another-secret-header" not in said.out + said.err


# ------------------------------------------------------------------------------------------------------------ import


def test_an_import_says_how_much_is_due_for_the_model_and_calls_nobody(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, place = write_rows(tmp_path / "rows.jsonl"), tmp_path / "m"
    typed = ("import", "jsonl", rows, "--memory", place, "--workspace", "w")
    assert "summaries" not in cli(*typed).out
    with serving() as server:
        use(monkeypatch, server.url)
        said = cli("import", "jsonl", rows, "--memory", tmp_path / "other", "--workspace", "w")
        assert f"`streammem summaries write --memory {tmp_path / 'other'}` has them written" in said.out
        assert "due for scripted" in said.out
        assert server.calls == 0


# ------------------------------------------------------------------------------------------------------- distributed


@pytest.fixture
def stream(redis_url: str, redis_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same messages in Redis, as workers would have placed and summarised them."""
    events = list(read_rows(write_rows(tmp_path / "rows.jsonl"), Report(), Given(workspace="w")))

    async def build() -> None:
        store: Any = RedisStructure(redis_url, redis_prefix)
        await World(4, store=store).tell(events)
        await store.close()

    asyncio.run(build())
    for name, value in {"REDIS__URL": redis_url, "REDIS__PREFIX": redis_prefix, "FOREST__K": "4"}.items():
        monkeypatch.setenv(f"STREAMMEM_{name}", value)


def test_summaries_of_a_stream_are_shown_estimated_and_written_in_jobs(
    cli: Cli, stream: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "summaries quote messages" in cli("summaries", "--distributed").out
    with serving() as server:
        use(monkeypatch, server.url, WORDING__POLL="0.01", BUDGET__PRICES=PRICES)
        assert "are made by `streammem worker summarize`" in cli("summaries", "--distributed").out
        estimate = cli("summaries", "estimate", "--distributed", "--batch", "--json").json
        assert estimate["total"]["due"] > 0
        misused = cli("summaries", "write", "--distributed")
        assert (misused.status, "`streammem worker summarize` writes" in misused.error) == (2, True)
        assert cli("summaries", "pause", "--distributed", "--because", "audit").status == 0
        assert "paused (audit): run `streammem summaries resume --distributed`" in (
            cli("summaries", "write", "--distributed", "--batch").error
        )
        assert cli("summaries", "resume", "--distributed").status == 0
        done = cli("summaries", "write", "--distributed", "--batch", "--json")
        assert done.status == 0, done.err
        assert (done.json["worded"], len(server.items)) == (estimate["total"]["due"], estimate["calls"])
        assert total(cli("summaries", "--distributed", "--json"), "due") == 0
        assert cli("summaries", "retry", "--distributed", "--json").json == {"retried": 0}


def test_a_redis_that_is_away_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMMEM_REDIS__URL", "redis://127.0.0.1:9/0")
    for command in ("show", "pause", "resume", "retry"):
        assert "127.0.0.1:9" in cli("summaries", command, "--distributed").error
