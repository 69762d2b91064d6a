from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streammem.cli import shown

HOSTILE = "\x1b[2J\x1b]0;owned\x07safe\x9b31m\x00\x7f\u202egnp.exe"


def test_plain_text_keeps_words_lines_and_tabs() -> None:
    assert shown.plain("a\tb\nc\r\nd é 漢字 👩‍🚀 [bold]") == "a\tb\nc\nd é 漢字 👩‍🚀 [bold]"


def test_plain_text_has_nothing_that_a_terminal_obeys() -> None:
    assert shown.plain(HOSTILE) == "[2J]0;ownedsafe31mgnp.exe"


@given(st.text())
def test_no_text_at_all_leaves_a_control_character_behind(text: str) -> None:
    assert not [c for c in shown.plain(text) if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_every_character_and_prints_none_that_acts(text: str) -> None:
    printed = shown.as_json({"text": text})
    assert json.loads(printed) == {"text": text}
    assert shown.plain(printed) == printed


def test_a_line_is_one_line() -> None:
    assert shown.line("a\n b\u2028c\x85d") == "a b cd"


def test_times_are_exact_and_end_in_z() -> None:
    assert shown.utc(1772442000000100) == "2026-03-02T09:00:00.000100Z"
    assert shown.utc(1772442000000000) == "2026-03-02T09:00:00Z"
