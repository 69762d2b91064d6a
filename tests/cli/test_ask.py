from __future__ import annotations

import json
from pathlib import Path

import pytest

from streammem.cli.ask import answer_to_json, put_answer
from streammem.records import Ambiguity, Answer, Bearer, Evidence
from tests.cli.conftest import GENERAL, Cli, slack_files, write_zip


def texts(ended: object) -> list[str]:
    return [item["text"] for item in ended.json["evidence"]]  # type: ignore[attr-defined]


def test_the_json_has_the_keys_of_the_contract(cli: Cli, team: Path) -> None:
    answer = cli("ask", "who approved DOC-042?", "--memory", team, "--json").json
    keys = {"question", "asker", "as_of", "evidence", "headers", "tokens", "abstained", "timings_ms"}
    assert keys <= set(answer)
    assert answer["question"] == "who approved DOC-042?"
    assert answer["asker"] is answer["as_of"] is None
    assert answer["abstained"] is False
    item = next(item for item in answer["evidence"] if "approved" in item["text"])
    assert {"id", "channel", "user", "ts", "text", "reply_to", "stage", "found_by"} <= set(item)
    assert item["id"] == "1772445600.000200"
    assert (item["channel"], item["channel_name"]) == ("C1", "general")
    assert (item["user"], item["user_name"]) == ("U2", "Jonas Lind")
    assert item["ts"] == "2026-03-02T10:00:00.000200Z"
    assert item["reply_to"] is None
    assert all({"stage", "signal"} <= set(found) for found in item["found_by"])
    assert item["found_by"]
    for header in answer["headers"]:
        assert {"view", "tree", "level", "text", "first", "last"} <= set(header)
        assert header["first"].endswith("Z")


def test_people_read_speaker_channel_time_and_the_words(cli: Cli, team: Path) -> None:
    said = cli("ask", "who approved DOC-042?", "--memory", team).out
    assert "Jonas Lind  #general  2026-03-02 10:00 UTC" in said
    assert "    DOC-042 approved, the launch is on 20 March\n" in said


def test_without_an_asker_private_channels_stay_hidden_and_this_is_said(cli: Cli, team: Path) -> None:
    answer = cli("ask", "what is the budget of the launch?", "--memory", team, "--json")
    assert "the budget of the launch is 40k" not in texts(answer)
    assert answer.json["hidden_channels"] == 1
    said = cli("ask", "what is the budget of the launch?", "--memory", team).out
    assert "1 private channel was not searched: use --as USER or --all" in said


@pytest.mark.parametrize("asker", ["U1", "Mira Okafor", "mira"])
def test_a_member_asks_by_id_or_name_and_sees_the_private_channel(cli: Cli, team: Path, asker: str) -> None:
    answer = cli("ask", "what is the budget of the launch?", "--memory", team, "--as", asker, "--json")
    assert "the budget of the launch is 40k" in texts(answer)
    assert answer.json["asker"] == "U1"


def test_everything_is_searched_when_all_is_said(cli: Cli, team: Path) -> None:
    answer = cli("ask", "what is the budget of the launch?", "--memory", team, "--all", "--json")
    assert "the budget of the launch is 40k" in texts(answer)
    assert answer.json["hidden_channels"] == 0


def test_as_of_a_day_knows_nothing_later(cli: Cli, team: Path) -> None:
    answer = cli("ask", "when is the launch?", "--memory", team, "--as-of", "2026-03-02", "--json")
    assert answer.json["as_of"] == "2026-03-02T23:59:59.999999Z"
    assert texts(answer)
    assert not [text for text in texts(answer) if "27 March" in text or "coffee" in text]


def test_since_and_until_bound_the_messages(cli: Cli, team: Path) -> None:
    answer = cli("ask", "launch", "--memory", team, "--since", "2026-03-03", "--until", "2026-03-03", "--json")
    assert texts(answer) == ["the coffee machine is broken again"]


@pytest.mark.parametrize("channel", ["C1", "general", "#general"])
def test_a_channel_is_named_by_id_or_name(cli: Cli, team: Path, channel: str) -> None:
    answer = cli("ask", "the launch", "--memory", team, "--all", "--channel", channel, "--json").json
    assert {item["channel"] for item in answer["evidence"]} == {"C1"}


def test_the_limit_is_kept(cli: Cli, team: Path) -> None:
    assert len(cli("ask", "the launch", "--memory", team, "--limit", "1", "--json").json["evidence"]) == 1


def test_explain_shows_how_each_message_was_found(cli: Cli, team: Path) -> None:
    said = cli("ask", "who approved DOC-042?", "--memory", team, "--explain").out
    assert "found: S1 by " in said
    assert "time: " in said


def test_chat_text_cannot_act_on_the_terminal(cli: Cli, tmp_path: Path) -> None:
    hostile = "launch \x1b[2J\x1b]0;owned\x07 \x9b31m [bold red]not markup[/] :smile: \u202egnp.exe"
    message = {"type": "message", "user": "U1", "ts": "1774000001.000000", "text": hostile}
    users = [{"id": "U1", "name": "eve", "real_name": "Eve\x1b[31m\n[blink]Evil", "profile": {}}]
    source = write_zip(tmp_path / "acme.zip", slack_files(users=users, general=[*GENERAL, message]))
    cli("import", "slack-export", source, "--memory", tmp_path / "m")
    said = cli("ask", "launch", "--memory", tmp_path / "m", "--explain").out
    assert not [c for c in said if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")]
    assert "[bold red]not markup[/] :smile:" in said
    printed = cli("ask", "launch", "--memory", tmp_path / "m", "--json").out
    assert not [c for c in printed if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    assert any("\x9b31m" in item["text"] for item in json.loads(printed)["evidence"])


# ------------------------------------------------------------------------------------------- what goes wrong


def test_asking_before_any_import_says_how_to_import(cli: Cli, tmp_path: Path) -> None:
    said = cli("ask", "why?", "--memory", tmp_path / "nowhere").error
    assert "streammem import FORMAT PATH --memory" in said
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--as", "nobody"),
        ("--channel", "nowhere"),
        ("--workspace", "other"),
        ("--as-of", "soon"),
        ("--since", "1/2/26"),
    ],
)
def test_what_is_not_known_is_named(cli: Cli, team: Path, option: str, value: str) -> None:
    assert value in cli("ask", "why?", "--memory", team, option, value).error


def test_an_empty_question_is_refused(cli: Cli, team: Path) -> None:
    assert "question" in cli("ask", "  ", "--memory", team).error.lower()


def test_a_question_in_bytes_that_are_no_text_is_asked_with_what_is_text(cli: Cli, team: Path) -> None:
    ended = cli("ask", "what about the launch \udcff?", "--memory", team, "--json")  # how Python hands on a byte 0xff
    assert (ended.status, ended.json["question"]) == (0, "what about the launch \ufffd?")


def told(meant: tuple[str, ...], bearers: int = 2) -> Answer:
    """An answer to a question about Wen, of whom there are several."""
    wens = (
        Bearer(id="U1", name="Wen Dimitrov", title="Lead"),
        Bearer(id="U2", name="Wen Ito", title="Intern"),
        Bearer(id="U3", name="Wen"),
    )
    several = Ambiguity(name="Wen", candidates=wens[:bearers], meant=meant)
    said = Evidence(
        uid="w/c/1",
        id="1",
        workspace="w",
        channel="c",
        channel_name="general",
        user="U1",
        user_name="Wen Dimitrov",
        ts=0,
        text="hello",
        title="Lead\x1b[31m",
    )
    return Answer(
        question="what did Wen say?",
        asker=None,
        as_of=None,
        evidence=(said,),
        headers=(),
        tokens=3,
        abstained=False,
        timings_ms={},
        ambiguous=(several,),
    )


@pytest.mark.parametrize(
    ("meant", "bearers", "line"),
    [
        (("U1", "U2"), 2, "Wen may be Wen Dimitrov (Lead) or Wen Ito (Intern): both were searched"),
        (("U1", "U2", "U3"), 3, "Wen may be Wen Dimitrov (Lead), Wen Ito (Intern) or Wen: all 3 were searched"),
        (("U1",), 2, "Wen was taken to be Wen Dimitrov (Lead), not Wen Ito (Intern)"),
    ],
)
def test_of_a_name_that_several_bear_it_is_said_who_was_meant(
    meant: tuple[str, ...], bearers: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put_answer(told(meant=meant, bearers=bearers), explain=False)
    assert line in capsys.readouterr().out.splitlines()


def test_a_speaker_is_shown_with_the_title_and_nothing_in_it_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    put_answer(told(meant=("U1",)), explain=False)
    out = capsys.readouterr().out
    assert "Wen Dimitrov (Lead" in out
    assert "\x1b" not in out


def test_programs_read_who_bears_a_name_with_every_field() -> None:
    (several,) = answer_to_json(told(meant=("U3",), bearers=3))["ambiguous"]
    assert (several["name"], several["kind"], several["meant"]) == ("Wen", "user", ("U3",))
    assert several["candidates"][2] == {"id": "U3", "name": "Wen", "title": ""}
