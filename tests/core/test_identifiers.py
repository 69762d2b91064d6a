"""The rule table on what people write."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import identifiers
from streammem.core.identifiers import DEFAULT_RULES, Rules


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("PR for DOC-042 is merged", ("DOC-042",)),
        ("see #218 and PR-218, also pr #218", ("#218", "PR-218")),
        ("v2.4.0 is out, v2.4 was not, v1 never", ("v2.4", "v2.4.0")),
        ("read plan_final.pdf and Plan_Final.PDF", ("plan_final.pdf",)),
        ("https://example.com/acme/app/pull/12#discussion.", ("https://example.com/acme/app/pull/12",)),
        ("UTF-8 at 10-12 on 2026-03-02, 3.14 and e.g. a.b", ("UTF-8",)),
        ("no identifier here", ()),
    ],
)
def test_identifiers_come_in_one_spelling(text: str, identifiers: tuple[str, ...]) -> None:
    assert DEFAULT_RULES.identifiers(text) == identifiers


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("Merged and released after Bob's approval", ("approved", "merged", "released")),
        ("we rolled back the release", ("reverted",)),
        ("QA passed", ("tested",)),
        ("it is blocked, waiting for legal", ("blocked",)),
        ("unmerged and emergency are other words", ()),
    ],
)
def test_markers_are_whole_words(text: str, markers: tuple[str, ...]) -> None:
    assert DEFAULT_RULES.markers(text) == markers


@given(st.text(max_size=300))
def test_any_text_gives_sorted_identifiers_without_repeats(text: str) -> None:
    found = DEFAULT_RULES.identifiers(text)
    assert list(found) == sorted(set(found))


def test_another_table_has_another_digest() -> None:
    assert Rules({"code": "X-1"}, {}).digest != DEFAULT_RULES.digest == Rules().digest


@pytest.mark.parametrize("kind", sorted(identifiers.IDENTIFIER_RULES))
@given(data=st.data())
def test_the_sign_of_a_rule_stands_in_all_that_it_finds(kind: str, data: st.DataObject) -> None:
    pattern = re.compile(identifiers.IDENTIFIER_RULES[kind], re.IGNORECASE if kind != "code" else 0)
    text = data.draw(st.from_regex(pattern))
    assert re.search(identifiers.IDENTIFIER_SIGNS[kind], text.lower())


@pytest.mark.parametrize("name", sorted(identifiers.MARKER_RULES))
@given(data=st.data())
def test_a_stem_of_a_marker_stands_in_all_that_shows_it(name: str, data: st.DataObject) -> None:
    pattern = identifiers.MARKER_RULES[name]
    stems = identifiers._stems(pattern)
    text = data.draw(st.from_regex(pattern))
    assert all(stems)
    assert any(stem in text for stem in stems)
