"""Who is meant by a name that several bear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streammem.core.ambiguity import AHEAD, Closeness, clearly_meant, closeness_of, settled
from streammem.core.directory import Directory
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.query_spec import QuerySpec, found, parse
from streammem.records import Ambiguity, Bearer, ChannelEvent, UserEvent

TWO = Directory(
    [
        UserEvent(workspace="w", id="U1", name="Wen Dimitrov", title="Lead"),
        UserEvent(workspace="w", id="U2", name="Wen Ito", title="Intern"),
        UserEvent(workspace="w", id="U3", name="Ana Ruiz"),
        ChannelEvent(workspace="w", id="C1", name="launch-plan", type="public"),
        ChannelEvent(workspace="w", id="C2", name="launch-plan", type="public"),
    ]
)
WENS = (Bearer(id="U1", name="Wen Dimitrov", title="Lead"), Bearer(id="U2", name="Wen Ito", title="Intern"))


def read(text: str, asker: str | None = "U3") -> QuerySpec:
    return parse(text, asker, TWO, DEFAULT_RULES, 0)


def test_a_name_stays_open_where_nothing_decides() -> None:
    asked = read("what did Wen promise?")
    spec, told = settled(asked, {}, TWO)
    assert spec.users == ("U1", "U2")
    assert told == (Ambiguity(name="Wen", candidates=WENS, meant=("U1", "U2")),)


def test_whoever_the_asker_has_far_more_to_do_with_is_meant() -> None:
    close = {"U1": Closeness(2, 9), "U2": Closeness(2, 4)}
    spec, told = settled(read("what did Wen promise?"), close, TWO)
    assert spec.users == ("U1",)
    assert "Wen Dimitrov" in spec.lexical
    assert told == (Ambiguity(name="Wen", candidates=WENS, meant=("U1",)),)
    spec, _ = settled(read("what did Wen promise?"), close | {"U2": Closeness(2, 5)}, TWO)
    assert spec.users == ("U1", "U2")


def test_people_call_others_by_a_name_not_themselves() -> None:
    spec, told = settled(read("what did Wen promise?", "U1"), {}, TWO)
    assert spec.users == ("U2",)
    assert told[0].meant == ("U2",)


def test_plain_names_are_told_of_nothing() -> None:
    asked = read("what did Wen Ito promise Ana?")
    assert settled(asked, {}, TWO) == (asked, ())


def test_two_channels_and_two_artifacts_of_one_name_are_told() -> None:
    asked = found(read("who closed doc 42 in #launch-plan?"), {"DOC-042", "DOC-0042"}, TWO)
    spec, told = settled(asked, {"C2": Closeness(1, 8)}, TWO)
    assert [(one.kind, one.name, one.meant) for one in told] == [
        ("channel", "#launch-plan", ("C2",)),
        ("artifact", "doc 42", ("DOC-042", "DOC-0042")),
    ]
    assert spec.channels == ("C2",)
    assert set(spec.identifiers) == {"DOC-042", "DOC-0042"}


def test_closeness_counts_where_both_speak() -> None:
    assert closeness_of({"a": 5, "b": 2, "c": 0}, {"a": 3, "c": 9, "d": 1}) == Closeness(1, 3)


closes = st.dictionaries(st.sampled_from("abcd"), st.builds(Closeness, st.integers(0, 5), st.integers(0, 20)))


@given(closes)
def test_only_one_who_is_far_ahead_of_everybody_is_meant(close: dict[str, Closeness]) -> None:
    meant = clearly_meant(close)
    assert meant == clearly_meant(dict(reversed(close.items())))
    for one, other in ((meant, other) for other in close if meant is not None and other != meant):
        far = close[one].messages >= AHEAD * close[other].messages
        assert far or not close[other].channels
