"""Places in the log: compared, joined and written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import positions
from streammem.errors import QueryError
from streammem.records import Awaited, ChannelEvent, LogEntry, Position

places: st.SearchStrategy[Position] = st.dictionaries(st.integers(0, 5), st.integers(1, 10**17), max_size=4)
some = places.filter(bool)
awaits = st.builds(
    Awaited, log=places, inputs=st.dictionaries(st.sampled_from(("messages", "directory")), some, max_size=2)
).filter(lambda awaited: bool(awaited.log or awaited.inputs))


@given(awaits)
def test_what_is_written_is_read_again(awaited: Awaited) -> None:
    assert positions.parse(positions.awaited_text(awaited)) == awaited


@given(awaits)
def test_blanks_between_the_parts_do_not_matter(awaited: Awaited) -> None:
    spread = positions.awaited_text(awaited).replace(",", " , ").replace(";", " ; ")
    assert positions.parse(f" {spread} ; ") == awaited


@given(some)
def test_the_log_may_be_named(position: Position) -> None:
    assert positions.parse("log=" + positions.written(position)) == Awaited(log=position)


@given(some, some)
def test_parts_of_the_same_topic_are_joined(one: Position, other: Position) -> None:
    text = ";".join(positions.written(position) for position in (one, other))
    assert positions.parse(text).log == positions.joined(one, other)


@pytest.mark.parametrize(
    "text",
    ["", ";", " ; ;", "0", "0:", ":1", "a:1", "0:-1", "0:1,", "messages=", "messages", "0:1:2", "0;1", "0:1 2", "٣:x"],
)
def test_anything_else_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(QueryError, match="PARTITION:POSITION") as caught:
        positions.parse(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = positions.parse(text)
    except QueryError:
        return
    assert positions.parse(positions.awaited_text(found)) == found


@given(st.lists(places, min_size=1, max_size=4))
def test_joining_gives_the_least_position_that_covers_all(given_: list[Position]) -> None:
    joined = positions.joined(*given_)
    assert all(positions.covers(joined, position) for position in given_)
    for partition, place in joined.items():
        less = {**joined, partition: place - 1}
        assert not all(positions.covers(less, position) for position in given_)


@given(places, places)
def test_a_position_covers_another_when_nothing_lies_between(one: Position, other: Position) -> None:
    assert positions.covers(one, other) == (positions.between(one, other) == 0) == (positions.joined(one, other) == one)


def test_the_empty_position_lies_before_everything() -> None:
    assert positions.covers({}, {})
    assert positions.covers({0: 1}, {})
    assert not positions.covers({}, {0: 1})
    assert positions.joined() == {}


def test_after_entries_is_behind_the_last_of_each_partition() -> None:
    event = ChannelEvent(workspace="w", id="c")
    entries = [LogEntry(position=p, key="k", event=event, partition=n) for n, p in ((0, 3), (1, 9), (0, 2))]
    assert positions.after(entries) == {0: 3, 1: 9}
