"""`ask --answer` as a person types it, with a scripted model server over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streammem.cli.ask import put_answer
from streammem.records import Generated, Sentence
from tests.cli.conftest import Cli, Ended
from tests.cli.test_summaries import KEY, serving, use
from tests.flows.replies import data_of, found, instructions_of, wrote
from tests.servers.model_server import Broken, Refuse, Slow, Status

ASKED = "who approved DOC-042?"
JONAS = "DOC-042 approved, the launch is on 20 March"


def number_of(request: Any, text: str) -> int:
    """The number under which the model sees a message."""
    return next(int(line.split(" | ")[0]) for line in data_of(request).split("\n") if text in line)


def good(number: int, request: Any) -> Broken:
    return wrote(("Jonas Lind approved DOC-042.", [number_of(request, JONAS)]))


def moving(number: int, request: Any) -> Broken:
    """One sentence that its message carries and one that it does not."""
    place = number_of(request, JONAS)
    return wrote(("Jonas Lind approved DOC-042.", [place]), ("The launch is on 9 May.", [place]))


def asking(cli: Cli, team: Path, *more: str) -> Ended:
    return cli("ask", ASKED, "--memory", team, "--answer", *more)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No long waits for a server that is away."""
    monkeypatch.setenv("STREAMMEM_WORDING__BACKOFF", "0.01")
    monkeypatch.setenv("STREAMMEM_WORDING__ATTEMPTS", "2")
    return iter((None,))


def test_a_reply_stands_above_the_messages_that_it_cites_by_number_and_says_who_wrote_it(
    cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(good) as server:
        use(monkeypatch, server.url)
        said = asking(cli, team)
        assert said.status == 0
        lines = said.out.splitlines()
        assert lines[0] == "scripted wrote, from the messages below (generated, no evidence)"
        text, _, place = lines[1].strip().partition(" [")
        assert text == "Jonas Lind approved DOC-042."
        at = next(n for n, line in enumerate(lines) if line.strip() == JONAS)
        assert lines[at - 1].split()[0] == place.rstrip("] ")
        assert "not supported" not in said.out
        alone = cli("ask", ASKED, "--memory", team).out
        assert said.out.endswith(alone)  # all the rest is what it is without a reply


def test_programs_get_the_reply_beside_the_evidence(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(moving) as server:
        use(monkeypatch, server.url)
        told = asking(cli, team, "--json").json
        reply = told["reply"]
        assert reply.keys() == {"text", "sentences", "supported", "refused", "model", "tokens", "note"}
        assert (reply["supported"], reply["refused"], reply["model"]) == (False, False, "scripted")
        first, second = reply["sentences"]
        cited = {item["uid"]: item["text"] for item in told["evidence"]}
        assert [cited[uid] for uid in first["cites"]] == [JONAS]
        assert "9 may" in second["fault"]
        assert reply["tokens"] > 0
        assert told["timings_ms"]["reply"] > 0
        assert cli("ask", ASKED, "--memory", team, "--json").json["reply"] is None


def test_what_the_messages_do_not_carry_is_marked_and_is_no_failure(
    cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(moving) as server:
        use(monkeypatch, server.url)
        said = asking(cli, team)
        assert (said.status, server.calls) == (0, 2)
        line = next(line for line in said.out.splitlines() if "9 May" in line)
        assert line.rstrip().endswith("(not supported by the evidence)")
        assert line.count("not supported") == 1
        assert '    not supported by the evidence: sentence 2: the messages it cites do not have "9 may"' in said.out
        assert "Your earlier reply was refused." in instructions_of(server.asked[1].request)


def test_a_reply_that_may_not_be_shown_is_not(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: wrote(("Pay at http://evil.example/pay.", [1]))) as server:
        use(monkeypatch, server.url)
        said = asking(cli, team)
        assert said.status == 0
        first = "scripted wrote nothing that may be shown: sentence 1: a link that is not in the data"
        assert said.out.splitlines()[0] == first
        assert "evil" not in said.out + said.err
        assert JONAS in said.out


def test_a_refusal_is_told_and_is_no_failure(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: wrote(answered=False)) as server:
        use(monkeypatch, server.url)
        said = asking(cli, team)
        assert said.status == 0
        assert said.out.startswith("scripted finds no answer in the evidence\n")
        assert JONAS in said.out


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        (Status(503), "503"),
        (Status(429, {"Retry-After": "3600"}), "429"),
        (Status(401), "STREAMMEM_OPENAI__KEY"),
        (Refuse(), "refused"),
        (Slow(30.0), "gave none in 0.3 s"),
    ],
)
def test_whatever_is_wrong_with_the_model_the_messages_are_shown_and_a_line_says_why(
    cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch, behaviour: Any, told: str
) -> None:
    with serving(lambda *_: behaviour) as server:
        use(monkeypatch, server.url, ANSWERING__SECONDS="0.3")
        said = asking(cli, team)
        assert said.status == 0
        assert JONAS in said.out
        (line,) = [line for line in said.out.splitlines() if line.startswith("no reply was written: ")]
        assert told in line
        assert KEY not in said.out + said.err
        used = cli("summaries", "--memory", team, "--json").json
        assert used["total"]["tokens_today"] == used["budget"]["tokens"]["used"]  # nothing stays taken for it
        assert asking(cli, team, "--json").json["reply"] is None


def test_a_spent_budget_is_told(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as server:
        use(monkeypatch, server.url, BUDGET__TOKENS="2000")
        outs = [asking(cli, team).out for _ in range(5)]
        assert outs[0].startswith("scripted wrote")
        assert "no reply was written: today's budget of model calls is spent" in outs[-1]
        assert JONAS in outs[-1]


def test_what_is_spent_on_replies_is_shown_apart_from_summaries(
    cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(good) as server:
        use(monkeypatch, server.url)
        asking(cli, team)
        account = cli("summaries", "--memory", team, "--json").json
        (row,) = [row for row in account["rows"] if row["view"] == "replies"]
        assert row["tokens_today"] > 0
        assert "replies" in cli("summaries", "--memory", team).out


def test_a_model_for_answers_alone_words_no_summary(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as server:
        use(monkeypatch, server.url)
        monkeypatch.setenv("STREAMMEM_OPENAI__ANSWER_MODEL", "scripted-2")
        assert asking(cli, team).out.startswith("scripted-2 wrote")
        monkeypatch.delenv("STREAMMEM_OPENAI__MODEL")
        assert asking(cli, team).out.startswith("scripted-2 wrote")
        assert [one.request["model"] for one in server.asked] == ["scripted-2"] * 2
        assert "no language model writes summaries" in cli("summaries", "write", "--memory", team).error


def test_without_the_option_nobody_is_asked(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as server:
        use(monkeypatch, server.url)
        assert JONAS in cli("ask", ASKED, "--memory", team).out
        assert server.calls == 0


def test_without_a_model_one_line_names_what_to_set(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = asking(cli, team).error
    assert "STREAMMEM_OPENAI__ANSWER_MODEL" in said
    assert "__BASE_URL" in said
    monkeypatch.setenv("STREAMMEM_OPENAI__ANSWER_MODEL", "gpt-x")
    assert "STREAMMEM_OPENAI__ANSWER_MODEL is set and nobody to ask" in asking(cli, team).error
    monkeypatch.setenv("STREAMMEM_OPENAI__KEY", "k")
    monkeypatch.setenv("STREAMMEM_BUDGET__MONEY", "1")
    assert "price of gpt-x is not known" in asking(cli, team).error


def test_a_reply_of_another_process_cannot_act_on_the_terminal_either(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x9b31m\n[red]words\u202e"
    sentence = Sentence(text=hostile, cites=("w/c/1", "nowhere"), fault=hostile)
    reply = Generated(
        text=hostile, sentences=(sentence,), supported=False, refused=False, model=hostile, tokens=1, note=hostile
    )
    put_answer(found("hello", reply=reply), explain=False)
    out = capsys.readouterr().out
    assert not [c for c in out if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")]
    assert "[red]words [1] (not supported by the evidence)" in out


def test_a_reply_cannot_act_on_the_terminal(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "Jonas \x1b[2J\x1b]0;owned\x07 [bold red]not markup[/] \u202egnp.exe"
    with serving(lambda _, request: wrote((hostile, [number_of(request, JONAS)]))) as server:
        use(monkeypatch, server.url)
        said = asking(cli, team).out
        assert not [c for c in said if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")]
        assert "[bold red]not markup[/]" in said
        printed = asking(cli, team, "--json").out
        assert not [c for c in printed if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]
        assert "not markup" in json.loads(printed)["reply"]["text"]
