from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.connectors.teams.cards import content_of, read_card
from tests.connectors.teams_rows import message, page, taken

ADAPTIVE = {
    "type": "AdaptiveCard",
    "body": [
        {"type": "TextBlock", "text": "Build <at>Ada</at> & 412"},
        {"type": "FactSet", "facts": [{"title": "Branch:", "value": "main"}, {"title": "", "value": "red"}]},
        {"type": "ColumnSet", "columns": [{"items": [{"type": "TextBlock", "text": w}]} for w in ("left", "right")]},
        {"type": "RichTextBlock", "inlines": ["a", {"type": "TextRun", "text": "b"}]},
        {"type": "Table", "rows": [{"cells": [{"items": [{"type": "TextBlock", "text": w}]} for w in ("1", "2")]}]},
    ],
    "actions": [
        {"type": "Action.OpenUrl", "title": "Open", "url": "https://x.example/412"},
        {"type": "Action.Submit", "title": "Retry"},
        {"type": "Action.ShowCard", "title": "More", "card": {"body": [{"type": "TextBlock", "text": "log"}]}},
    ],
}
POLL = {
    "type": "AdaptiveCard",
    "body": [
        {"type": "TextBlock", "text": "Lunch?"},
        {
            "type": "Input.ChoiceSet",
            "id": "c",
            "choices": [{"title": "Soup", "value": "1"}, {"title": "Rice", "value": "2"}],
        },
    ],
}
CONNECTOR = {
    "@type": "MessageCard",
    "summary": "not shown",
    "title": "Alert",
    "text": "<b>CPU</b> high &amp; rising",
    "sections": [{"activityTitle": "db-1", "facts": [{"name": "load", "value": "9"}]}],
    "potentialAction": [
        {"@type": "OpenUri", "name": "View", "targets": [{"os": "default", "uri": "https://x.example/a"}]},
        {"@type": "HttpPOST", "name": "Mute"},
    ],
}
HERO = {
    "title": "Trip",
    "subtitle": "Oslo",
    "text": "Two days",
    "images": [{"url": "https://x.example/i.png", "alt": "a fjord"}],
    "buttons": [
        {"type": "openUrl", "title": "Book", "value": "https://x.example/b"},
        {"type": "imBack", "title": "No"},
    ],
}


@pytest.mark.parametrize(
    ("card", "text"),
    [
        (
            ADAPTIVE,
            "Build @Ada & 412\nBranch: main\nred\nleft | right\na b\n1 | 2\nOpen (https://x.example/412)\nMore\nlog",
        ),
        (POLL, "Lunch?\n- Soup\n- Rice"),
        (CONNECTOR, "Alert\nCPU high & rising\ndb-1\nload: 9\nView (https://x.example/a)"),
        (HERO, "Trip\nOslo\nTwo days\na fjord\nBook (https://x.example/b)"),
        ({"type": "AdaptiveCard", "fallbackText": "old client"}, "old client"),
        ({"type": "FromTheFuture", "items": [{"text": "kept"}]}, "kept"),
    ],
)
def test_a_card_reads_line_by_line(card: dict[str, Any], text: str) -> None:
    assert read_card(card).text == text


def carried(card: Any, kind: str = "adaptive") -> dict[str, Any]:
    return {"id": "c1", "contentType": f"application/vnd.microsoft.card.{kind}", "content": json.dumps(card)}


def test_a_message_that_is_a_card_says_what_the_card_says() -> None:
    (found,) = taken(page(message('<attachment id="c1"></attachment>', attachments=[carried(POLL)]))).messages
    assert (found.text, found.text_source) == ("Lunch?\n- Soup\n- Rice", "attachments")
    assert [(a.kind, a.name, a.text) for a in found.attachments] == [("card", "Lunch?", None)]


def test_beside_words_a_card_keeps_its_own() -> None:
    (found,) = taken(page(message("<p>vote</p>", attachments=[carried(POLL)]))).messages
    assert found.text == "vote"
    assert [a.text for a in found.attachments] == ["Lunch?\n- Soup\n- Rice"]


def test_a_code_snippet_is_listed_by_its_address() -> None:
    snippet = carried({"language": "go", "codeSnippetUrl": "https://graph.microsoft.com/x/$value"}, "codesnippet")
    (found,) = taken(page(message("<p>see</p>", attachments=[snippet]))).messages
    assert [a.url for a in found.attachments] == ["https://graph.microsoft.com/x/$value"]


@pytest.mark.parametrize("content", [None, "", "not json", "[1]", "{", 7, ["x"], "{" * 5000])
def test_content_that_is_no_card_is_no_card(content: Any) -> None:
    assert content_of({"content": content}) == {}


KEYS = st.sampled_from(
    ["type", "body", "items", "text", "facts", "title", "value", "actions", "card", "columns", "choices"]
)
PARTS = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["Action.ShowCard", "Input.ChoiceSet", "<at>x</at>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(st.dictionaries(KEYS, PARTS))
def test_no_card_raises(card: dict[str, Any]) -> None:
    assert isinstance(read_card(card).text, str)
