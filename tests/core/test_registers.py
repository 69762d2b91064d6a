"""The version rule: who wins, and what was seen when."""

from __future__ import annotations

from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import registers
from streammem.records import FOREVER, Version

tokens = st.from_regex(r"[0-9]{1,25}(\.[0-9]{1,12})?", fullmatch=True)


def version(number: str = "0", *, deleted: bool = False, hash: str = "a", since: int = 0) -> Version:  # noqa: A002
    return Version(
        uid="w/c/1", number=registers.number(number), deleted=deleted, hash=hash, workspace="w", channel="c", id="1",
        ts=0, since=since, user="u", text=f"{number}{hash}",
    )  # fmt: skip


versions = st.builds(version, tokens, deleted=st.booleans(), hash=st.sampled_from("abc"), since=st.integers(0, 50))


@given(tokens, tokens)
def test_versions_compare_as_numbers_of_any_length(a: str, b: str) -> None:
    assert (registers.number(a) < registers.number(b)) == (Decimal(a) < Decimal(b))
    assert (registers.number(a) == registers.number(b)) == (Decimal(a) == Decimal(b))


def test_versions_that_a_double_cannot_tell_apart_are_told_apart() -> None:
    assert registers.number("9007199254740993") > registers.number("9007199254740992")
    assert registers.number("1704190000.000101") > registers.number("1704190000.000100")


def test_at_equal_versions_a_delete_wins_and_then_the_greater_hash() -> None:
    assert registers.winner([version("1", hash="c"), version("1", deleted=True)]).deleted
    assert registers.winner([version("1", hash="a"), version("1", hash="b")]).hash == "b"
    assert not registers.winner([version("1", deleted=True), version("2")]).deleted


# A content hash names one content: two versions with the same key are the same version.
histories = st.lists(versions, min_size=1, max_size=6, unique_by=lambda v: v.key)


@given(histories, st.randoms())
def test_the_winner_and_the_timeline_do_not_depend_on_arrival(known: list[Version], random: object) -> None:
    shuffled = list(known)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert registers.winner(shuffled) == registers.winner(known)
    assert sorted(map(repr, registers.timeline(shuffled))) == sorted(map(repr, registers.timeline(known)))


@given(histories, versions)
def test_until_only_falls_as_versions_arrive(known: list[Version], late: Version) -> None:
    before = {v.key: until for v, _, until in registers.timeline(known)}
    after = {v.key: until for v, _, until in registers.timeline([*known, late])}
    assert all(after[key] <= until for key, until in before.items())


def test_as_of_a_day_the_version_of_that_day_is_seen() -> None:
    history = [version("0", since=10), version("5", since=50), version("9", since=90)]
    seen = {moment: registers.as_of(history, moment) for moment in (5, 10, 49, 50, 89, 90)}
    assert [v.text if v else None for v in seen.values()] == [None, "0a", "0a", "5a", "5a", "9a"]
    assert registers.as_of(history, None) == history[2]


def test_a_deleted_message_never_returns_for_past_days_too() -> None:
    history = [version("0", since=10), version("5", deleted=True, since=50)]
    assert registers.as_of(history, 20) is None
    assert registers.as_of(history, None) is None


def test_the_last_version_stands_for_ever() -> None:
    (_, _, until) = registers.timeline([version("3", since=3), version("0", since=0)])[-1]
    assert until == FOREVER


def test_keys_name_versions() -> None:
    one = version("1")
    assert one.key != msgspec.structs.replace(one, deleted=True).key
    assert one.key != msgspec.structs.replace(one, hash="b").key
