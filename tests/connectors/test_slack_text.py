from __future__ import annotations

import pytest

from streammem.connectors.slack.blocks import BlockReading as Reading
from streammem.connectors.slack.text import Names

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


def mrkdwn(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": text}


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


BUTTON = {"type": "button", "text": plain("Approve"), "url": "https://a.example"}
RICH_CELL = {
    "type": "rich_text",
    "elements": [{"type": "rich_text_section", "elements": [{"type": "user", "user_id": "U1"}]}],
}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "header", "text": plain("Build &lt;7&gt;")}, "Build <7>"),
        (
            {"type": "section", "text": mrkdwn("owner <@U1>"), "fields": [mrkdwn("a"), plain("b")]},
            "owner @Ada Quill\na\nb",
        ),
        ({"type": "section", "text": mrkdwn("sign here"), "accessory": BUTTON}, "sign here\nApprove"),
        ({"type": "context", "elements": [mrkdwn("by"), {"type": "image", "alt_text": "x"}, plain("ada")]}, "by ada"),
        ({"type": "actions", "elements": [BUTTON, {"type": "button", "text": plain("Reject")}]}, "Approve | Reject"),
        ({"type": "actions", "elements": [{"type": "static_select", "initial_option": {"text": plain("low")}}]}, "low"),
        ({"type": "context_actions", "elements": [{"type": "feedback_buttons", "text": plain("Good")}]}, ""),
        ({"type": "input", "label": plain("Why?"), "element": {"type": "plain_text_input"}}, "Why?"),
        ({"type": "file", "source": "remote", "file": {"title": "plan.pdf"}}, "plan.pdf"),
        (
            {"type": "call", "call": {"v1": {"name": "Standup", "join_url": "https://c.example"}}},
            "Standup (https://c.example)",
        ),
        ({"type": "image", "title": plain("Chart"), "alt_text": "sales"}, "Chart\nsales"),
        ({"type": "markdown", "text": "**as** typed"}, "**as** typed"),
        ({"type": "markdown", "text": "**a** [b](https://c) <@U404|kim> a<b>"}, "**a** [b](https://c) @kim a<b>"),
        ({"type": "of next year", "title": "Task &amp; plan", "text": "said so"}, "Task & plan\nsaid so"),
        ({"type": "table", "rows": [[{"type": "raw_text", "text": "a"}, RICH_CELL], "x", [7]]}, "a | @Ada Quill"),
        ({"type": "card_of_next_year", "title": plain("T"), "body": mrkdwn("B")}, "T\nB"),
        ({"type": "divider"}, ""),
    ],
)
def test_blocks_read_as_the_words_in_them(block: dict[str, object], shown: str) -> None:
    assert Reading(NAMES).blocks([block]) == shown


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ({"type": "color", "value": "#F405B3"}, "#F405B3"),
        ({"type": "date", "timestamp": 1704190000, "format": "{date}", "fallback": "Jan 2"}, "Jan 2"),
        ({"type": "date", "timestamp": 1704190000, "format": "{date}"}, "2024-01-02"),
        ({"type": "date", "timestamp": "soon"}, ""),
        ({"type": "team", "team_id": "T1"}, "T1"),
        ({"type": "usergroup", "usergroup_id": "S1"}, "@ops-team"),
        ({"type": "channel", "channel_id": "C1"}, "#ops"),
    ],
)
def test_rich_text_has_small_things_in_it(word: dict[str, object], shown: str) -> None:
    names = Names(users={}, channels={"C1": "ops"}, groups={"S1": "ops-team"})
    block = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [word]}]}
    assert Reading(names).blocks([block]) == shown
