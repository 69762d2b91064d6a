"""Whom a text names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core.directory import Directory
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.people_in_text import people
from streammem.core.spelling import distance, forgiven, nearest
from streammem.core.things_in_text import channels, loose_identifiers
from streammem.records import ChannelEvent, MembershipEvent, UserEvent


def user(name: str, called: str, title: str = "", **more: object) -> UserEvent:
    return UserEvent(workspace="w", id=name, name=called, title=title, **more)  # type: ignore[arg-type]


ORG = Directory(
    [
        user("U1", "Mira Young", "Mobile QA Lead"),
        user("U2", "Mira Dimitrov", "Data Director"),
        user("U3", "Wen Dimitrov", "Payments Tech Lead"),
        user("U4", "Konstantin Weber", "CTO"),
        user("U5", "José Álvarez", "Engineer"),
        user("U6", "Jon Hale", "Engineer"),
        user("U7", "王小明", "Head of Platform"),
        user("U8", "김민수"),
        user("U9", "Mark Dale", aliases=("mark.d",)),
        user("B1", "Merge Bot", "Bot", kind="bot"),
        ChannelEvent(workspace="w", id="C1", name="payments-eng", type="public", aliases=("money",)),
        ChannelEvent(workspace="w", id="C2", name="leads", type="public"),
        ChannelEvent(workspace="w", id="C3", name="mirror-lab", type="public"),
    ]
)


def named(text: str) -> list[tuple[str, str]]:
    """Ids and how they were read, of each place."""
    return [(" ".join(n.ids), n.how) for n in people(text, ORG)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did Mira Young say?", [("U1", "name")]),
        ("what did mira young say?", [("U1", "name")]),
        ("what did Mira say?", [("U1 U2", "name")]),
        ("Konstantin's plan", [("U4", "name")]),
        ("did @mark.d answer?", [("U9", "name")]),
        ("Mark the ticket as done", []),
        ("ask Mark", [("U9", "name")]),
        ("Mira, Young people ask", [("U1 U2", "name")]),
        ("Jose Alvarez said so", [("U5", "name")]),
        ("王小明说了什么?", [("U7", "name")]),
        ("어제 김민수가 뭐라고 했어?", [("U8", "name")]),
    ],
)
def test_people_are_called_by_their_whole_name_or_their_first(text: str, expected: list[tuple[str, str]]) -> None:
    assert named(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did Konstantn say?", [("U4", "typo")]),
        ("what did Kosntantin say?", [("U4", "typo")]),
        ("what did Mira Yuong say?", [("U1", "typo")]),
        ("what did Mria say?", [("U1 U2", "typo")]),
        ("@konstantn said so", [("U4", "typo")]),
        ("what did konstantn say?", []),
        ("what about Joh?", []),
        ("Mirra is out", []),
        ("the Mirror is out", []),
        ("on March the MIRO board", []),
        ("what did Wen Dimitrof say?", [("U3", "typo")]),
        ("ask Tira", []),
        ("who is at Konstantn Lodge?", []),
        ("who knows New Konstantn?", []),
    ],
)
def test_a_typo_is_forgiven_where_a_word_looks_like_a_name(text: str, expected: list[tuple[str, str]]) -> None:
    assert named(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did the Mobile QA Lead say?", [("U1", "title")]),
        ("what did the mobile qa lead say?", [("U1", "title")]),
        ("the head of platform", [("U7", "title")]),
        ("did the CTO agree?", [("U4", "title")]),
        ("a CTO is missing", []),
        ("the engineer", []),
        ("the bot", []),
        ("Mira (Mobile QA Lead, not the namesake)", [("U1", "name"), ("U1", "title")]),
        ("the Data Director Mira", [("U2", "title"), ("U2", "name")]),
        ("Mira - the Data Director - said", [("U2", "name"), ("U2", "title")]),
        ("Mira asked the CTO", [("U1 U2", "name"), ("U4", "title")]),
        ("Did Mira from mobile answer?", [("U1", "name")]),
        ("Did Mira from sales answer?", [("U1 U2", "name")]),
    ],
)
def test_a_title_names_who_has_it_and_tells_namesakes_apart(text: str, expected: list[tuple[str, str]]) -> None:
    assert named(text) == expected


def test_a_date_is_nobody_s_name() -> None:
    directory = Directory([user("U1", "April Monday"), user("U2", "May Long")])
    assert [n.ids for n in people("what did April say?", directory)] == [("U1",)]
    assert people("what was said in April?", directory, (16, 24)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in #payments-eng", ["C1"]),
        ("in payments-eng", ["C1"]),
        ("in the payments eng channel", ["C1"]),
        ("in #paymnets-eng", ["C1"]),
        ("in the leads channel", ["C2"]),
        ("in channel leads", ["C2"]),
        ("our leads are few", []),
        ("payments eng people", []),
        ("in #money", ["C1"]),
    ],
)
def test_a_channel_is_named_with_its_sign_without_it_or_beside_the_word(text: str, expected: list[str]) -> None:
    assert [i for n in channels(text, ORG) for i in n.ids] == expected


def test_a_typo_shows_nothing_of_a_channel_that_the_asker_does_not_read() -> None:
    facts = [ChannelEvent(workspace="w", id=name, name=name, type=kind) for name, kind in SECRET]  # type: ignore[arg-type]
    directory = Directory([*facts, MembershipEvent(workspace="w", channel="launch-planes", user="U1")])
    for asker, meant in ((None, "launch-plan"), ("U2", "launch-plan"), ("U1", "launch-planes")):
        assert [i for n in channels("in #launch-planez", directory, asker) for i in n.ids] == [meant]
    assert "planes" not in directory.vocabulary


SECRET = (("launch-plan", "public"), ("launch-planes", "private"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("doc 42", "DOC-042"),
        ("doc-42", "DOC-42"),
        ("DOC42", "DOC-42"),
        ("Doc_042", "DOC-42"),
        ("doc 0042", "DOC-042"),
        ("version 2.1", "v2.1"),
        ("release 2.1.3", "v2.1.3"),
        ("DOC-42", "DOC-042"),
    ],
)
def test_an_identifier_may_be_spelled_loosely(text: str, expected: str) -> None:
    (found,) = loose_identifiers(f"who approved {text}?", DEFAULT_RULES)
    assert expected in found.ids
    assert found.words == text


def test_what_is_spelled_as_in_the_memory_is_not_loose() -> None:
    assert loose_identifiers("PR 7, v2.1 and #5 in file report-12.pdf", DEFAULT_RULES) == []
    assert loose_identifiers("on March 3", DEFAULT_RULES, (3, 10)) == []


# --------------------------------------------------------------------------------------------------- spelling

letters = st.text("abcde ", min_size=1, max_size=9).map(str.strip).filter(bool)


@given(letters, letters)
def test_a_distance_is_the_same_both_ways_and_nothing_only_between_equals(one: str, other: str) -> None:
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))


def test_a_swap_of_neighbours_is_one_typo() -> None:
    assert distance("mira", "mria") == 1
    assert distance("konstantin", "kosntantni") == 2


@given(st.lists(letters, unique=True, min_size=1, max_size=12), st.data())
def test_the_bearer_of_an_exact_name_is_never_taken_for_another(names: list[str], data: st.DataObject) -> None:
    asked = data.draw(st.sampled_from(names))
    assert nearest(asked, names) == ()
    called = [user(f"U{i}", f"{name.title()} X") for i, name in enumerate(names)]
    directory = Directory(called)
    text = f"what did {asked.title()} X say?"
    meant = {i for n in people(text, directory) for i in n.ids}
    same = {u.id for u in called if (u.name or "").casefold() == f"{asked} x"}
    assert not meant or meant == same or len(asked.split()) > 3


@given(letters, st.lists(letters, unique=True, max_size=12))
def test_only_names_within_the_forgiven_typos_are_meant_and_all_of_the_nearest(word: str, names: list[str]) -> None:
    found = nearest(word, names)
    assert list(found) == sorted(found)
    assert all(0 < distance(word, name) <= forgiven(word) for name in found)
    assert len({distance(word, name) for name in found}) <= 1
    if found:
        closer = [n for n in names if distance(word, n) < distance(word, found[0]) and n[:1] == word[:1]]
        assert not [n for n in closer if nearest(word, [n])]


def test_typos_add_up_over_the_words_of_a_name() -> None:
    assert nearest("abxd efxh ijkl", ["abcd efgh ijkl"]) == ("abcd efgh ijkl",)
    assert nearest("abxd efxh ijxl", ["abcd efgh ijkl"]) == ()
