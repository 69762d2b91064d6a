from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.connectors import Report, csv_rows
from streammem.core.events import TEXT_LIMIT
from streammem.errors import SourceError
from streammem.records import ChannelRef
from tests.connectors.sources import Drawn, drawn
from tests.connectors.standing import standing

SAMPLE = Path(__file__).parent.parent / "data" / "samples" / "generic" / "messages.csv"
HEADER = "id,channel,user,ts,text"
WHEN = "2024-03-01T10:00:00Z"


@pytest.fixture
def table(tmp_path: Path):
    """Read a table of messages, given as it stands in the file."""

    def read(written: str | bytes, name: str = "rows.csv", **options: Any) -> Drawn:
        path = tmp_path / name
        path.write_bytes(written if isinstance(written, bytes) else written.encode())
        return drawn("csv", path, **options)

    return read


def test_the_sample_is_read_whole() -> None:
    assert csv_rows.recognises(SAMPLE)
    read = drawn("csv", SAMPLE)
    assert [(m.id, m.text, m.reply_to, m.source_format) for m in read.messages] == [
        ("m1", 'line one\nline "two", x', None, "csv"),
        ("m2", "=2+2", "m1", "csv"),
    ]
    assert read.messages[0].channel == ChannelRef(id="ops", type="public")


@pytest.mark.parametrize(
    "written",
    [
        f"Message ID;Room;Sender;Sent At;Body\r\nm1;ops;ada;{WHEN};hello\r\n",
        f"message_id\tchannel name\tAuthor\tTIMESTAMP\tContent\nm1\tops\tada\t{WHEN}\thello\n",
        f"sep=|\nid|chat|nick|date|msg\nm1|ops|ada|{WHEN}|hello",
        f"\n\nid,conversation,from,time,message\rm1,ops,ada,{WHEN},hello\r",
        f"text,ts,user,channel,id\n\nhello,{WHEN},ada,ops,m1\n\n,,,,\n",
        f'"id","channel","user","ts","text","",""\n"m1","ops","ada","{WHEN}","hello",,\n',
        "id,channel,user,ts,text\nm1,ops,ada,1709287200,hello",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_columns_dialects_and_encodings_are_told_apart(table, written: str, encoding: str) -> None:
    read = table(written.encode(encoding))
    (message,) = read.messages
    assert (message.id, message.channel.id, message.sender.id, message.text) == ("m1", "ops", "ada", "hello")
    assert message.ts is not None
    assert (message.ts.isoformat(), read.report.read) == ("2024-03-01T10:00:00+00:00", 1)


def test_every_column_means_what_the_key_of_a_plain_row_means(table) -> None:
    header = "id,channel_id,channel_name,user_id,user,display name,ts,text,reply to,thread,mentions,edited at,type,team"
    row = f"m1,C1,ops,U1,ada,Ada Quill,{WHEN},hi,m0,t1,@bram; cleo,2024-03-01T10:01:00Z,private,acme"
    (message,) = table(f"{header}\n{row}\n").messages
    assert (message.workspace, message.channel) == ("acme", ChannelRef(id="C1", name="ops", type="private"))
    assert (message.sender.id, message.sender.name) == ("U1", "Ada Quill")
    assert (message.reply_to, message.thread_id, message.version) == ("m0", "t1", "1709287260000")
    assert [m.id for m in message.mentions] == ["bram", "cleo"]


def test_a_row_may_be_the_systems_and_an_open_type_says_nothing_of_the_channel(table) -> None:
    rows = f"type,{HEADER}\nsystem,m1,ops,ada,{WHEN},ada joined\ntext,m2,ops,ada,{WHEN},hi\n"
    assert [(m.kind, m.channel.type) for m in table(rows).messages] == [("system", "public"), ("message", "public")]


def test_without_ids_the_same_row_has_the_same_id_wherever_it_stands(table) -> None:
    a, b = f"ops,ada,{WHEN},one", f"ops,ada,{WHEN},two"
    first = table(f"channel,user,ts,text\n{a}\n{b}\n{a}\n")
    second = table("channel,user,ts,text\n" + b + "\n" + a.replace(WHEN, "1709287200") + "\n")
    assert {m.id for m in first.messages} == {m.id for m in second.messages}
    assert all(m.id.startswith("syn:") for m in first.messages)
    assert (first.report.accepted, first.report.duplicates) == (2, 1)
    assert any("no column of ids" in note for note in first.report.notes)


def test_a_given_channel_stands_in_for_a_column(table) -> None:
    assert table(f"ts,text\n{WHEN},hi\n", channel="ops").messages[0].channel.id == "ops"


@pytest.mark.parametrize(
    ("header", "lacks"),
    [
        ("id,channel,user,text", "ts"),
        ("a,b,c", "text, ts, channel"),
        (f"ts,text\n{WHEN},x", "channel (or a given"),
        ("", "text"),
    ],
)
def test_a_missing_column_is_told_with_those_found(table, header: str, lacks: str) -> None:
    with pytest.raises(SourceError) as error:
        table(header)
    assert f"no column for {lacks}" in str(error.value)
    assert header.partition("\n")[0].replace(",", ", ") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (f"x,ops,ada,{WHEN},a,b", "bad-row"),
        ("x,ops,ada,yesterday,a", "bad-timestamp"),
        ("x,ops,ada,,a", "bad-timestamp"),
        (f"x,,ada,{WHEN},a", "no-channel"),
        (f"x,ops,ada,{WHEN}", "no-text"),
        (f'x,ops,ada,{WHEN},"never closed', "bad-row"),
        (f'x,ops,ada,{WHEN},"closed"oddly", at all', "bad-row"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_swallows_nothing(table, bad: str, reason: str) -> None:
    good = [f'm1,ops,ada,{WHEN},"two\nlines"', bad, f"m2,ops,ada,{WHEN},plain", f'm3,ops,ada,{WHEN},"quoted, too"']
    read = table("\n".join([HEADER, *good]))
    assert [m.id for m in read.messages] == ["m1", "m2", "m3"]
    assert [(r.reason, r.origin) for r in read.report.refusals] == [(reason, "rows.csv#4")]


def test_a_quote_out_of_place_does_not_cost_its_row(table) -> None:
    assert table(f'{HEADER}\nm1,ops,ada,{WHEN},"he said "hi" to me"\nm2,ops,ada,{WHEN},5" pipe').texts == [
        'he said hi" to me"',
        '5" pipe',
    ]


def test_huge_fields_nul_bytes_and_foreign_encodings_do_no_harm(table) -> None:
    rows = f"{HEADER}\nm1,ops,ada,{WHEN},{'=' * 3_000_000}\nm2,ops,ada,{WHEN},a\0b\nm3,ops,ada,{WHEN},".encode()
    read = table(rows + "café – naïve".encode("cp1252") + f"\nm4,ops,ada,{WHEN},café".encode())
    assert read.texts == ["=" * TEXT_LIMIT, "ab", "café – naïve", "café"]
    assert read.report.notes == ["rows.csv: 1 lines are not UTF-8 and were read as Windows-1252"]


def test_a_folder_gives_people_and_channels_before_messages(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("User ID,Display Name,Aliases,Title\nU1,Ada Quill,ada|aq,CTO\n,x,,\n")
    (tmp_path / "channels.csv").write_text('id,name,private,members\nC1,ops,true,"[""U1""]"\nC2,all,no,\n')
    (tmp_path / "messages.csv").write_text(f"{HEADER}\nm1,C1,U1,{WHEN},hi\nm2,C9,U9,{WHEN},hi\n")
    assert csv_rows.recognises(tmp_path)
    read = drawn("csv", tmp_path, workspace="acme")
    (user,) = read.users
    assert (user.name, user.aliases, user.title) == ("Ada Quill", ("ada", "aq"), "CTO")
    assert [(c.id, c.type) for c in read.channels] == [("C1", "private"), ("C2", "public")]
    assert [(m.channel, m.user) for m in read.members] == [("C1", "U1")]
    assert [m.channel.type for m in read.messages] == [None, "unknown"]
    assert read.report.rejected == {"no-id": 1}


def test_what_is_no_table_of_messages_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("sku,price\n1,2\n")
    (tmp_path / "notes.txt").write_text("hello")
    assert not csv_rows.recognises(tmp_path / "prices.csv")
    assert not csv_rows.recognises(tmp_path)
    with pytest.raises(SourceError, match=r"notes.txt: [^\n]+; expected CSV"):
        list(csv_rows.read(tmp_path / "notes.txt", Report()))


# ------------------------------------------------------------------------------------------------ any input

CELLS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", '"', "a,b", "x\ny", "\r\n", "\0", " "]
)
ROWS = st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3", ""]), CELLS, CELLS), max_size=6)


def read_rows(raw: bytes) -> Drawn:
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "rows.csv"
        path.write_bytes(raw)
        return drawn("csv", path)


def written(rows: list[tuple[str, str, str]], **dialect: Any) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, **dialect)
    writer.writerow(HEADER.split(","))
    writer.writerows((name, "ops", user, f"17092872{len(text):02d}", text) for name, user, text in rows)
    return out.getvalue().encode()


@settings(deadline=None)
@given(ROWS.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_the_order_of_rows_changes_nothing_that_stands(orders: Any) -> None:
    first, second = (standing(read_rows(written(rows)).events) for rows in orders)
    assert first == second


@settings(deadline=None)
@given(ROWS, st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]))
def test_what_was_written_is_read_in_every_dialect(rows: Any, delimiter: str, end: str) -> None:
    read = read_rows(written(rows, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL))
    said = [text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n") for *_, text in rows]
    assert (read.texts, read.report.rejected) == ([text if text.strip() else "" for text in said], {})


@settings(deadline=None)
@given(ROWS, st.data())
def test_a_damaged_table_is_accounted_for_and_its_end_is_read(rows: Any, data: st.DataObject) -> None:
    raw = written(rows)[len(HEADER) + 2 :]
    at = data.draw(st.integers(0, len(raw)))
    dirt = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b",", b"\n", b'",']))
    tail = f"\n\nlast,unharmed,ada,{WHEN},after\n".encode()
    read = read_rows(HEADER.encode() + b"\n" + raw[:at] + dirt + raw[at + len(dirt) :] + tail)
    assert [m.text for m in read.messages if m.channel.id == "unharmed"] == ["after"]


@pytest.mark.parametrize(
    ("column", "cell", "kind"),
    [
        ("private", "Y", "private"),
        ("private", "maybe", "private"),
        ("is_private", "TRUE", "private"),
        ("private", "n", "public"),
        ("private", "", "public"),
        ("channel_type", "Direct", "private"),
        ("visibility", "team only", "unknown"),
        ("visibility", "Public", "public"),
    ],
)
def test_a_cell_that_does_not_plainly_say_public_makes_no_channel_public(table, column: str, cell: str, kind) -> None:
    read = table(f"{HEADER},{column}\nm1,C1,ada,{WHEN},hi,{cell}\n")
    assert read.messages[0].channel.type == kind


@pytest.mark.parametrize("turned", [False, True])
def test_an_empty_cell_opens_no_channel_that_another_row_calls_private(table, turned: bool) -> None:
    stated = (("a", "C1", ""), ("b", "C1", "yes"), ("c", "C2", ""))
    rows = [f"{name},{channel},ada,{WHEN},hi,{cell}" for name, channel, cell in stated]
    read = table("\n".join((f"{HEADER},private", *(rows[::-1] if turned else rows))))
    kinds = {message.id: message.channel.type for message in read.messages}
    assert kinds == {"a": "unknown", "b": "private", "c": "public"}
