from __future__ import annotations

import pytest

from streammem.connectors.slack.text import Names, Reading

NAMES = Names(users={"U1": "Ada Quill"}, channels={"C1": "ops"})


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", "plain"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;", "&lt;"),
        ("<@U1|old name>", "@Ada Quill"),
        ("<@U9|bram>", "@bram"),
        ("<@U9>", "@U9"),
        ("<#C1|renamed>", "#ops"),
        ("<!subteam^S1^x|@team>", "@team"),
        ("<https://a.example|https://a.example>", "https://a.example"),
        ("<https://a.example|see &lt;this&gt;>", "see <this> (https://a.example)"),
        ("<mailto:ada@a.example>", "ada@a.example"),
        ("<div> and <> and < @U1>", "<div> and <> and < @U1>"),
        ("run `curl <https://a.example|a.example>`", "run `curl a.example`"),
        ("```unclosed <@U1>", "```unclosed @Ada Quill"),
        ("*bold* _it_ ~no~ :tada:", "*bold* _it_ ~no~ :tada:"),
    ],
)
def test_markup_reads_as_people_saw_it(written: str, shown: str) -> None:
    assert Reading(NAMES).mrkdwn(written) == shown


def test_nothing_inside_code_is_a_mention_and_links_in_code_are_links() -> None:
    reading = Reading(NAMES)
    reading.mrkdwn("`<@U1>` ```<!here> <https://a.example>``` &lt;@U1&gt;")
    assert reading.mentions == ()
    assert [link.url for link in reading.links] == ["https://a.example"]


def test_what_is_named_twice_is_mentioned_once_with_its_first_label() -> None:
    reading = Reading(NAMES)
    reading.mrkdwn("<@U9|bram> <@U9|bram o> <@U1>")
    assert [(mention.id, mention.label) for mention in reading.mentions] == [("U9", "bram"), ("U1", None)]


def test_rich_text_is_read_with_lists_quotes_code_and_names() -> None:
    def section(*elements):
        return {"type": "rich_text_section", "elements": list(elements)}

    def text(words, **style):
        return {"type": "text", "text": words, "style": style}

    block = {
        "type": "rich_text",
        "elements": [
            section(text("ask "), {"type": "user", "user_id": "U1"}, text(" & run "), text("<@U2>", code=True)),
            {"type": "rich_text_list", "style": "ordered", "elements": [section(text("one")), section(text("two"))]},
            {"type": "rich_text_quote", "elements": [text("said\nso")]},
            {"type": "rich_text_preformatted", "elements": [text("x = 1")]},
            section({"type": "emoji", "name": "tada"}, {"type": "link", "url": "https://a.example", "text": "docs"}),
            section({"type": "broadcast", "range": "here"}, {"type": "new_thing"}),
        ],
    }
    reading = Reading(NAMES)
    assert reading.blocks([block]) == (
        "ask @Ada Quill & run `<@U2>`\n1. one\n2. two\n> said\n> so\n```\nx = 1\n```\n:tada:docs (https://a.example)\n@here"
    )
    assert [mention.id for mention in reading.mentions] == ["U1", "here"]


def test_blocks_nested_without_end_are_read_to_a_fixed_depth() -> None:
    element: dict[str, object] = {"type": "text", "text": "deep"}
    for _ in range(500):
        element = {"type": "rich_text_list", "elements": [element]}
    assert Reading(NAMES).blocks([{"type": "rich_text", "elements": [element]}]) == ""
