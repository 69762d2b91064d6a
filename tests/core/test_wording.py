"""When a node is worded, from what, which text stands for it, and which nodes share a call."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streammem.core import packing, prompts, wording
from streammem.core.numbers import Wording as Numbers
from streammem.core.prompts import Part
from streammem.core.wording import LAZILY, NONE, NOW, Told
from streammem.records import Leaf, NodeId, Redaction, Sequence, Summary, Wording

NODE = NodeId(Sequence("w", "channel", "c"), 2, 0)
NUMBERS = Numbers(quiet=600.0, growth=0.5)


def leaf(second: int) -> Leaf:
    return Leaf(second * 1_000_000, f"w/c/{second}")


def summary(first: int = 0, last: int = 100, count: int = 20, **rest: Any) -> Summary:
    known = {
        "node": NODE,
        "text": "<@u>: one …",
        "first": leaf(first),
        "last": leaf(last),
        "count": count,
        "made_from": "s",
        "channels": ("c",),
        "markers": (),
        "latest": last * 1_000_000,
        "serial": 3,
        "is_root": True,
        "vector": b"",
        "picks": ("w/c/1",),
    }
    return Summary(**{**known, **rest})


def worded(first: int = 0, last: int = 100, count: int = 20, **rest: Any) -> Wording:
    known = {
        "node": NODE,
        "key": "old/channel/m/1",
        "text": "They agreed.",
        "first": leaf(first),
        "last": leaf(last),
        "count": count,
        "made_from": "old",
        "channels": ("c",),
        "latest": last * 1_000_000,
        "serial": 3,
        "writer": "m/1",
    }
    return Wording(**{**known, **rest})


def verdict(s: Summary, w: Wording | None, **rest: Any) -> wording.Verdict:
    known = {"full": False, "pressing": True, "urgent": False, "now": 100.0, "k": 16, "numbers": NUMBERS}
    return wording.verdict(s, w, "new/channel/m/1", **{**known, **rest})


# -------------------------------------------------------------------------------------------------------- verdict


@given(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 1e5), st.booleans())
def test_nothing_is_done_where_the_words_stand_or_the_quotes_are_all_that_was_said(
    full: bool, pressing: bool, urgent: bool, now: float, has_words: bool
) -> None:
    how = {"full": full, "pressing": pressing, "urgent": urgent, "now": now}
    assert verdict(summary(), worded(key="new/channel/m/1"), **how) == NONE
    assert verdict(summary(), worded(key="new/channel/m/1", text="", fault="refused"), **how) == NONE
    whole = summary(count=2, text="a: b · c: d", picks=("w/c/1", "w/c/2"))
    assert verdict(whole, worded() if has_words else None, **how) == NONE


@given(st.floats(0, 1e5), st.booleans())
def test_a_full_node_without_words_or_with_others_is_worded_at_once(now: float, has_words: bool) -> None:
    assert verdict(summary(), worded() if has_words else None, full=True, now=now) == NOW


def test_what_is_only_shifted_is_renewed_lazily_unless_it_happened_there_or_always_is_wanted() -> None:
    shifted = worded(first=5)
    assert verdict(summary(), shifted, full=True, pressing=False) == LAZILY
    assert verdict(summary(), shifted, full=True, pressing=True) == NOW
    always = Numbers(renew="always")
    assert verdict(summary(), shifted, full=True, pressing=False, numbers=always) == NOW
    assert verdict(summary(), None, full=True, pressing=False) == NOW


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 2000))
def test_an_open_node_waits_until_it_has_grown_by_a_share_or_been_quiet(count: int, before: int, now: int) -> None:
    s = summary(count=count + 1)
    w = worded(count=before) if before else None
    found = verdict(s, w, now=float(now))
    grown = s.count >= before + 0.5 * (before or 16)
    assert found == (NOW if grown or now >= 100 + 600 else wording.Verdict("later", 700.0))


def test_an_open_node_over_a_change_is_worded_at_once() -> None:
    assert verdict(summary(count=18), worded(), urgent=True, pressing=True) == NOW
    assert verdict(summary(count=18), worded(), urgent=True, pressing=False).what == "later"


def test_each_verdict_is_one_state_and_a_fault_is_told() -> None:
    assert wording.state_of(NONE, summary(), None) == "quoted"
    assert wording.state_of(NONE, summary(), worded()) == "worded"
    assert wording.state_of(NONE, summary(), worded(fault="refused", text="")) == "failed"
    assert wording.state_of(NONE, summary(count=1), worded()) == "quoted"
    states = [wording.state_of(v, summary(), worded()) for v in (NOW, LAZILY, wording.Verdict("later", 1.0))]
    assert states == ["due", "shifted", "later"]
    assert {*states, "quoted", "worded", "failed"} == set(wording.STATES)


# ------------------------------------------------------------------------------------------------- texts and sources


def test_the_text_of_a_node_is_the_models_where_it_has_one_else_the_quotes() -> None:
    by_model = wording.told(summary(), worded(first=2, count=7))
    assert (by_model.text, by_model.sources, by_model.id) == ("They agreed.", ("old/channel/m/1",), "old/channel/m/1")
    assert (by_model.first, by_model.count) == (leaf(2), 7)
    for nothing in (None, worded(text="", fault="refused")):
        quoted = wording.told(summary(), nothing)
        assert (quoted.text, quoted.sources, quoted.id) == ("<@u>: one …", ("w/c/1",), "s")


times = st.integers(0, 50)
tolds = st.builds(
    lambda name, a, b, count, channel: Told(
        name, "text", (name, "x"), leaf(min(a, b)), leaf(max(a, b)), count, (channel,), max(a, b)
    ),
    name=st.text("abc", min_size=1, max_size=3),
    a=times,
    b=times,
    count=st.integers(1, 9),
    channel=st.sampled_from("cd"),
)


@given(st.lists(tolds, min_size=1, max_size=6))
def test_what_is_read_of_several_children_covers_them_all_and_names_each_text(children: list[Told]) -> None:
    together = wording.told_together(children)
    assert together.first == min(c.first for c in children)
    assert together.last == max(c.last for c in children)
    assert together.count == sum(c.count for c in children)
    assert set(together.sources) == {s for c in children for s in c.sources}
    assert together.channels == tuple(sorted({c.channels[0] for c in children}))
    assert together.latest == max(c.latest for c in children)
    other = wording.told_together([msgspec.structs.replace(c, text="?") for c in children])
    assert other.id == together.id
    assert wording.told_together([*children[:-1], msgspec.structs.replace(children[-1], id="zz")]).id != together.id


def test_a_key_tells_what_was_read_for_which_view_and_who_wrote() -> None:
    keys = {
        wording.key_of(made, view, writer)
        for made in ("a", "b")
        for view in ("channel", "actor")
        for writer in (wording.writer_of("m", 1), wording.writer_of("m", 2), wording.writer_of("m2", 1))
    }
    assert len(keys) == 12


# ------------------------------------------------------------------------------------------------ what may be shown


@given(times, times, times, times)
def test_words_fit_a_node_when_they_tell_of_some_of_its_time(a: int, b: int, c: int, d: int) -> None:
    s, w = summary(first=min(a, b), last=max(a, b)), worded(first=min(c, d), last=max(c, d))
    fits = wording.fits(w, s)
    assert fits == (max(min(a, b), min(c, d)) <= min(max(a, b), max(c, d)))
    shown = wording.in_words(s, w)
    assert shown == s if not fits else (shown.text, shown.first, shown.summarizer) == (w.text, w.first, "m/1")


@given(times, st.integers(0, 6), times, times)
def test_a_later_redaction_in_their_range_hides_words(at: int, serial: int, a: int, b: int) -> None:
    w = worded(first=min(a, b), last=max(a, b))
    hidden = serial > 3 and min(a, b) <= at <= max(a, b)
    assert wording.stands(w, [Redaction(leaf(at), serial)]) is not hidden
    assert not wording.stands(None, [])


def test_words_with_a_fault_leave_the_quotes_as_they_are() -> None:
    assert wording.in_words(summary(), worded(text="", fault="refused")) == summary()
    assert wording.in_words(summary(), None) == summary()


def test_a_summary_in_words_keeps_its_vector_and_place_and_tells_of_what_was_read() -> None:
    s, w = summary(vector=b"1234", markers=("merged",)), worded(first=3, count=7)
    shown = wording.in_words(s, w)
    assert (shown.node, shown.vector, shown.markers, shown.is_root) == (s.node, s.vector, s.markers, True)
    assert (shown.first, shown.last, shown.count, shown.channels, shown.latest) == (
        *(w.first, w.last, w.count),
        *(w.channels, w.latest),
    )


# -------------------------------------------------------------------------------------------------------- packing


def part(name: str, words: int) -> Part:
    return Part(name, "channel", "", 1, 0, 0, (), ("word " * words,))


parts = st.lists(st.integers(0, 900), max_size=30).map(
    lambda sizes: [part(f"k{n}", words) for n, words in enumerate(sizes)]
)
numbers = st.builds(Numbers, pack=st.integers(1, 8), pack_tokens=st.integers(50, 2000))


@given(parts, numbers)
def test_every_part_is_in_one_call_and_no_call_is_too_large(given_: list[Part], how: Numbers) -> None:
    groups = list(packing.groups(given_, how))
    assert sorted(p.key for g in groups for p in g) == sorted(p.key for p in given_)
    for group in groups:
        assert 1 <= len(group) <= how.pack
        if len(group) > 1:
            assert sum(map(prompts.tokens_of, group)) <= how.pack_tokens
            assert not any(packing.alone(p, how) for p in group)


@given(parts, numbers)
def test_two_calls_that_follow_one_another_could_not_have_been_one(given_: list[Part], how: Numbers) -> None:
    small = [p for p in given_ if not packing.alone(p, how)]
    groups = list(packing.groups(small, how))
    for one, other in pairwise(groups):
        assert not packing.fits(other[0], one, how)


def test_without_packing_everything_is_asked_for_alone() -> None:
    assert all(packing.alone(part("k", n), Numbers(pack=1)) for n in (0, 1, 1000))
    assert not packing.alone(part("k", 1), Numbers(pack=2))
