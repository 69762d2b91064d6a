from __future__ import annotations

import time
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.connectors.teams.html import LIMIT, is_blank, read_html
from streammem.connectors.teams.mentions import Mentions, Names

NOBODY = Mentions({}, Names())


def person(at: int, user: str, label: str) -> dict[str, object]:
    return {"id": at, "mentionText": label, "mentioned": {"user": {"id": user, "displayName": label}}}


def shown(html: str, *mentions: dict[str, object], **names: str) -> str:
    return read_html(html, Mentions({"mentions": [*mentions]}, Names(users=names))).text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a</p><p>b</p>", "a\nb"),
        ("<div><div>a</div>\n<div>b</div></div>", "a\nb"),
        ("a<br>b<br/><br>c", "a\nb\n\nc"),
        ("<p>one</p>\n<p>&nbsp;</p>\n<p>&nbsp;</p><p>two</p>", "one\n\ntwo"),
        ("  a \n b <b> c</b>", "a b c"),
        ("<h1>Title</h1>text<hr>more", "Title\ntext\nmore"),
        ("<ul><li>x<ul><li>y</li></ul></li><li>z</li></ul>", "- x\n  - y\n- z"),
        ("<ol><li>one<li>two</ol>", "1. one\n2. two"),
        ('<ol start="3"><li>three<li>four</ol>', "3. three\n4. four"),
        ('<ol start="-x"><li>one</ol>', "1. one"),
        ("<table><tr><td>a</td><td>b&nbsp;</td></tr><tr><th>c<td>d</table>", "a | b\nc | d"),
        ("<blockquote><p>q1</p><p>q2</p></blockquote>mine", "> q1\n> q2\nmine"),
        ("see <code>a &lt;b&gt;</code>", "see `a <b>`"),
        ("x<pre>l1\n  l2<br>l3</pre>y", "x\n```\nl1\n  l2\nl3\n```\ny"),
        ('<codeblock class="Python"><code>a<br>  b</code></codeblock>', "```\na\n  b\n```"),
        ("a<script>evil()</script><style>p{}</style>b<!-- c -->", "ab"),
        ("<unknown>kept</unknown>", "kept"),
        ("bold&nbsp;<i>and</i> more", "bold and more"),
        ("", ""),
    ],
)
def test_html_reads_as_its_reader_saw_it(html: str, text: str) -> None:
    assert read_html(html, NOBODY).text == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("&amp;lt;b&amp;gt;", "&lt;b&gt;"),
        ("&lt;b&gt; &#x41; &eacute;", "<b> A é"),
        ("3 < 4 and <3 & so", "3 < 4 and <3 & so"),
        ("&#" + "9" * 5000 + ";", "&#" + "9" * 5000 + ";"),
    ],
)
def test_entities_are_decoded_once_and_what_is_no_tag_is_text(html: str, text: str) -> None:
    assert read_html(html, NOBODY).text == text


@pytest.mark.parametrize(
    ("html", "text", "url"),
    [
        ('<a href="https://x.example/?a=1&amp;b=2">the PR</a>', "the PR (https://x.example/?a=1&b=2)", True),
        ('<a href="https://x.example/">x.example</a>', "https://x.example/", True),
        ('<a href="https://x.example"></a>', "https://x.example", True),
        ('<a href="mailto:ada@x.example">Ada</a>', "Ada", True),
        ('<a href="javascript:alert(1)">run</a>', "run", False),
    ],
)
def test_a_link_keeps_label_and_address(html: str, text: str, *, url: bool) -> None:
    markup = read_html(html, NOBODY)
    assert markup.text == text
    assert bool(markup.links) is url


def test_emoji_read_as_what_stands_for_them() -> None:
    html = '<emoji alt="👀"></emoji><customemoji alt="party"></customemoji>'
    html += '<img itemtype="http://schema.skype.com/Emoji" alt="😉" src="https://x.example/e.png">'
    markup = read_html(html, NOBODY)
    assert (markup.text, markup.media) == ("👀party😉", [])


def test_an_image_in_the_text_is_an_attachment() -> None:
    src = "https://graph.microsoft.com/v1.0/chats/c/messages/1/hostedContents/aWQ9/$value"
    (image,) = read_html(f'<p><img alt="shot.png" src="{src}" width="3"></p>', NOBODY).media
    assert (image.id, image.name, image.kind, image.url) == ("aWQ9", "shot.png", "image", src)


def test_the_words_of_an_answered_message_are_not_those_of_the_answer() -> None:
    html = '<blockquote itemtype="http://schema.skype.com/Reply" itemid="1700000000000">theirs</blockquote><p>mine</p>'
    markup = read_html(html, NOBODY)
    assert (markup.text, markup.quoted) == ("mine", "1700000000000")


def test_a_name_cut_into_words_is_one_mention() -> None:
    html = '<at id="0">Bram</at>&nbsp;<at id="1">Osei</at> and <at id="2">Ada</at>'
    mentions = (person(0, "b", "Bram"), person(1, "b", "Osei"), person(2, "a", "Ada"))
    assert shown(html, *mentions) == "@Bram Osei and @Ada"
    assert shown(html, *mentions, b="Bram J. Osei") == "@Bram J. Osei and @Ada"


def test_the_same_name_twice_is_said_twice() -> None:
    html = '<at id="0">Bram</at> <at id="1">Bram</at>'
    assert shown(html, person(0, "b", "Bram"), person(1, "b", "Bram")) == "@Bram @Bram"


def test_a_mention_without_an_entry_keeps_its_words() -> None:
    assert shown('<at id="7">Somebody</at> hi') == "@Somebody hi"


def test_channels_read_with_a_hash_and_groups_with_an_at() -> None:
    room = {"id": "19:x@thread.tacv2", "displayName": "ops", "conversationIdentityType": "channel"}
    team = {"id": "t", "displayName": "Lemonade", "conversationIdentityType": "team"}
    row = {
        "mentions": [
            {"id": 0, "mentionText": "ops", "mentioned": {"conversation": room}},
            {"id": 1, "mentionText": "Lemonade", "mentioned": {"conversation": team}},
            {"id": 2, "mentionText": "On call", "mentioned": {"tag": {"id": "tag1"}}},
            {"id": 3, "mentionText": "BuildBot", "mentioned": {"application": {"id": "app1"}}},
        ]
    }
    mentions = Mentions(row, Names())
    html = "".join(f'<at id="{at}"></at> ' for at in range(4))
    markup = read_html(html, mentions)
    assert markup.text == "#ops @Lemonade @On call @BuildBot"
    kinds = [(m.type, m.id) for m in mentions.of(markup.mentioned)]
    assert kinds == [("channel", "19:x@thread.tacv2"), ("special", "t"), ("group", "tag1"), ("user", "app1")]


@pytest.mark.parametrize(
    ("html", "blank"),
    [
        ("", True),
        ("<p>&nbsp;</p><br>", True),
        ("<p>x</p>", False),
        ('<img src="x">', False),
        ("<custom></custom>", False),
    ],
)
def test_only_html_without_anything_to_see_is_blank(html: str, *, blank: bool) -> None:
    assert is_blank(html) is blank


PIECES = [
    "<!",
    "<![a",
    "<a ",
    "&#",
    "<a b='",
    "<table><tr><td>",
    "<ul><li>",
    '<at id="1">x</at> ',
    "<p <p ",
    '<a b="<" ',
]


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_html_takes_no_time(piece: str) -> None:
    began = time.process_time()
    read_html(piece * (LIMIT // len(piece)), NOBODY)
    assert time.process_time() - began < 5


TAGS = st.sampled_from(
    ["a", "at", "p", "br", "pre", "code", "ul", "li", "table", "tr", "td", "blockquote", "img", "script"]
)
TOKENS = st.one_of(
    st.text(max_size=5),
    st.builds("<{}>".format, TAGS),
    st.builds("</{}>".format, TAGS),
    st.builds('<{} id="0" href="https://x" src=\'y\'>'.format, TAGS),
    st.sampled_from(["<", ">", "&", "&lt;", "<!--", "-->", '"', "\x1e", "\x1f", "\xa0"]),
)


@given(st.lists(TOKENS, max_size=30).map("".join))
def test_no_html_raises_and_reading_again_gives_the_same(html: str) -> None:
    mentions = Mentions({"mentions": [person(0, "a", "Ada")]}, Names())
    assert read_html(html, mentions) == read_html(html, mentions)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1)))
def test_words_come_through_whole(words: list[str]) -> None:
    source = "".join(f"<p>{escape(word)}</p>" for word in words)
    assert read_html(source, NOBODY).text.split("\n") == (words or [""])
