"""Which identifiers are one artifact, which messages join, and that no order matters."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.core import artifacts
from streammem.core.artifacts import Reading, grouped, stands
from streammem.core.identifiers import DEFAULT_RULES as RULES
from streammem.core.numbers import Grouping
from streammem.core.phrases import phrases, runs, stem
from streammem.records import Version

NUMBERS = Grouping()


def said(
    id_: str, text: str, *, minute: int = 0, user: str = "ann", channel: str = "c", reply_to: str = "", digest: str = ""
) -> Version:
    return Version(
        *(f"w/{channel}/{id_}", "1", False, digest or f"h{id_}", "w", channel, id_),
        *(minute * 60_000_000, minute * 60_000_000, user, text),
        reply_to=f"w/{channel}/{reply_to}" if reply_to else "",
        identifiers=RULES.identifiers(text),
        markers=RULES.markers(text),
    )


def group(*versions, vectors=None, verdicts=None):
    return grouped("w", versions, vectors or {}, RULES, NUMBERS, verdicts=verdicts)


def joins(made) -> dict[str, tuple[str, str]]:
    return {j.uid.rsplit("/", 1)[1]: (j.identifier, j.why) for j in made.joined}


def pairs(ties) -> list[tuple[str, str, str]]:
    return [(tie.one, tie.other, tie.why) for tie in ties]


def named(text: str) -> list[tuple[str, str]]:
    return [(p.identifier, text[p.start : p.stop]) for p in phrases(text, RULES.spans(text), RULES)]


# ---------------------------------------------------------------------------------------------------------- phrases


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("drafted DOC-42 (payout ledger rollout plan, for Umbra)", "payout ledger rollout plan"),
        ("DOC-42, the payout ledger rollout plan for Umbra, is up", "payout ledger rollout plan"),
        ("the payout ledger rollout plan for Umbra (DOC-42) is up", "payout ledger rollout plan"),
        ("DOC-42 - payout ledger rollout plan / Umbra - is up", "payout ledger rollout plan"),
        ("DOC-42 is the payout ledger rollout plan", "payout ledger rollout plan"),
        ("merged the payout ledger rollout plan DOC-42", "payout ledger rollout plan"),
        ("DOC-42 - push-gateway rotation write-up / Umbra -", "push-gateway rotation write-up"),
        ("reworked DOC-42, the payout ledger rollout one", "payout ledger rollout"),
    ],
)
def test_what_stands_beside_an_identifier_is_what_people_call_it(text, phrase):
    assert named(text) == [("DOC-42", phrase)]


@pytest.mark.parametrize(
    "text",
    [
        "DOC-42 - could you have a look",
        "DOC-42 (not sure that we need it)",
        "pushed a first cut of DOC-42",
        "DOC-42 (approved)",
        "DOC-42, it is done",
        "DOC-42 (3 of 5)",
        "who knows DOC-42?",
    ],
)
def test_what_says_something_of_an_identifier_is_no_name_of_it(text):
    assert named(text) == []


def test_places_of_a_phrase_cut_it_out_of_its_text():
    text = "see PR #7 (currency converter canary check) and DOC-1 (audit trail)"
    assert named(text) == [("PR-7", "currency converter canary check"), ("DOC-1", "audit trail")]


def test_stop_words_names_and_punctuation_part_runs_and_hyphens_do_not():
    text = "@bob.k merged the push-gateway rotation doc, for real: ship now it"
    assert runs(text) == [["push", "gateway", "rotation", "doc"]]


def test_forms_of_a_word_have_one_stem():
    assert stem("retries") == stem("retry")
    assert stem("logging") == stem("logs") == stem("log")
    assert stem("pass") != stem("pas")


# --------------------------------------------------------------------------------------------------- joined by name

PLAN = said("1", "drafted DOC-42 - payout ledger rollout plan", minute=1)
OTHERS = (
    said("o1", "DOC-50 - search indexer retention plan", minute=1, user="zoe", channel="z"),
    said("o2", "DOC-51 - image resizer failover plan", minute=1, user="zoe", channel="z"),
    said("o3", "RFC-7 - session cache alerts proposal", minute=1, user="zoe", channel="z"),
)


def test_a_message_that_says_the_name_joins():
    made = group(PLAN, *OTHERS, said("2", "merged the payout ledger rollout plan", minute=9, user="bob"))
    assert joins(made) == {"2": ("DOC-42", "named")}
    assert made.joined[0].sources == (("w/c/2", "h2"), ("w/c/1", "h1"))


def test_people_write_names_in_short():
    made = group(PLAN, *OTHERS, said("2", "the ledger rollout plan is fine", minute=9, user="bob"))
    assert joins(made) == {"2": ("DOC-42", "named")}


def test_part_of_a_name_beside_other_words_is_another_thing():
    made = group(PLAN, *OTHERS, said("2", "the payout ledger spend cap is 33k", minute=9, user="bob"))
    assert joins(made) == {}


def test_what_a_family_is_called_is_learnt_and_counts_as_one_word():
    more = (
        said("p1", "DOC-60 - audit trail paging write-up", minute=1, user="zoe", channel="z"),
        said("p2", "DOC-61 - cron caching write-up", minute=1, user="zoe", channel="z"),
    )
    later = said("2", "the payout ledger rollout write-up is good to go", minute=9, user="bob")
    assert joins(group(PLAN, *OTHERS, *more, later)) == {"2": ("DOC-42", "named")}


def test_a_thing_of_another_kind_with_the_same_name_is_not_meant():
    kinds = (
        said("k1", "PR #8 (fraud scorer logging patch)", minute=1, user="zoe", channel="z"),
        said("k2", "PR #9 (fraud scorer slo patch)", minute=1, user="zoe", channel="z"),
    )
    made = group(PLAN, *OTHERS, *kinds, said("2", "merged the payout ledger rollout patch", minute=9, user="bob"))
    assert joins(made) == {}


def test_two_artifacts_of_one_name_that_are_equally_near_mean_none():
    twin = said("t", "drafted DOC-43 - payout ledger rollout plan", minute=2)
    made = group(PLAN, twin, *OTHERS, said("2", "merged the payout ledger rollout plan", minute=9, user="bob"))
    assert joins(made) == {}


def test_of_two_artifacts_of_one_name_the_one_of_the_speaker_and_the_channel_is_meant():
    twin = said("t", "drafted DOC-43 - payout ledger rollout plan", minute=2, user="eve", channel="d")
    later = said("2", "merged the payout ledger rollout plan", minute=9, user="eve", channel="d")
    assert joins(group(PLAN, twin, *OTHERS, later)) == {"2": ("DOC-43", "named")}


def test_nothing_joins_before_it_has_an_identifier_or_long_after():
    early = said("2", "the payout ledger rollout plan is next", minute=0, user="bob")
    late = said("3", "the payout ledger rollout plan, remember?", minute=1 + 31 * 24 * 60, user="bob")
    assert joins(group(PLAN, *OTHERS, early, late)) == {}


def test_a_phrase_that_often_stands_beside_other_identifiers_is_no_name():
    strangers = [said(f"s{n}", f"DOC-{n}: two flaky test suites again", minute=n) for n in range(70, 74)]
    blocked = said("b", "PR #5 - two flaky test suites", minute=2)
    again = said("f", "PR #5 (flaky test suites)", minute=3)
    made = group(blocked, again, *strangers, *OTHERS, said("2", "flaky test suites today", minute=90, user="bob"))
    assert joins(made) == {}


# --------------------------------------------------------------------------------------- going on, and answering


def test_who_goes_on_from_a_message_that_names_it_still_speaks_of_it():
    lead = said("2", "those waiting for DOC-42:", minute=10, user="bob")
    made = group(PLAN, lead, said("3", "legal hates clause 4", minute=12, user="bob"))
    assert joins(made) == {"3": ("DOC-42", "continued")}


def test_a_message_that_points_at_what_was_just_said_goes_on():
    lead = said("2", "looking at DOC-42 now", minute=10, user="bob")
    made = group(PLAN, lead, said("3", "had to send it back", minute=12, user="bob"))
    assert joins(made) == {"3": ("DOC-42", "continued")}


@pytest.mark.parametrize(
    "after",
    [
        said("3", "had to send it back", minute=30, user="bob"),
        said("3", "had to send it back", minute=12, user="eve"),
        said("3", "had to send it back", minute=12, user="bob", channel="d"),
        said("3", "had to send it back", minute=12, user="bob", reply_to="x"),
        said("3", "is it lunch yet?", minute=12, user="bob"),
        said("3", "lunch anyone", minute=12, user="bob"),
    ],
)
def test_what_comes_late_from_others_elsewhere_or_points_nowhere_does_not_go_on(after):
    assert joins(group(PLAN, said("2", "looking at DOC-42 now", minute=10, user="bob"), after)) == {}


def test_answers_to_what_joined_join_unless_they_are_about_something_themselves():
    later = said("2", "merged the payout ledger rollout plan", minute=9, user="bob")
    answer = said("3", "thanks!", minute=10, reply_to="2")
    other = said("4", "and DOC-50?", minute=11, reply_to="2")
    made = group(PLAN, *OTHERS, later, answer, other)
    assert joins(made) == {"2": ("DOC-42", "named"), "3": ("DOC-42", "answer")}
    assert [uid for uid, _ in Reading(made).joins_of("w/c/3")[0].sources] == ["w/c/3", "w/c/2", "w/c/1"]


# ------------------------------------------------------------------------------------------------------------ ties


def test_what_a_message_says_is_one_is_one():
    made = group(
        said("1", "PR #12 implements DOC-42"), said("2", "ISSUE-3 is tracked in PROJ-9"), said("3", "PR-1 (RFC-2)")
    )
    assert pairs(made.ties) == [
        ("DOC-42", "PR-12", "said"),
        ("ISSUE-3", "PROJ-9", "said"),
        ("PR-1", "RFC-2", "said"),
    ]
    assert Reading(made).artifact_of("PR-12") == "DOC-42"


def test_what_waits_for_another_or_was_caused_by_it_is_not_one_with_it():
    made = group(
        said("1", "PR #12 is blocked by DOC-42"), said("2", "INC-5 comes from PR #7"), said("3", "DOC-1, DOC-2")
    )
    assert made.ties == ()


def test_what_many_are_said_to_be_for_is_a_container_and_ties_none():
    made = group(*(said(str(n), f"PR #{n} for PROJ-9") for n in range(1, 4)), said("9", "PR #50 for v2.0"))
    assert made.ties == ()


def close(*texts: str):
    """Messages that carry identifiers, twice each, with one vector for all."""
    versions = [said(f"{n}", text, minute=n) for n, text in enumerate((*texts, *texts))]
    return versions, {v.uid: np.ones(4, np.float32) / 2 for v in versions}


def test_close_centroids_merge_what_is_mentioned_together_and_nothing_else():
    versions, vectors = close("DOC-41 template wording", "DOC-42 template wording", "PR #9 template wording")
    both = said("b", "DOC-42 and PR #9 again", minute=50)
    made = group(*versions, both, vectors=vectors)
    assert pairs(made.ties) == [("DOC-42", "PR-9", "alike")]
    assert ("DOC-41", "DOC-42", "close") in pairs(made.apart)


def test_without_vectors_nothing_is_close():
    versions, _ = close("DOC-42 template wording", "PR #9 template wording")
    assert group(*versions, said("b", "DOC-42 and PR #9 again", minute=50)).ties == ()


def test_a_borderline_pair_is_one_only_when_a_judge_says_so():
    versions, vectors = close("DOC-41 template wording", "DOC-42 template wording")
    pair = ("DOC-41", "DOC-42")
    assert pairs(group(*versions, vectors=vectors).apart) == [(*pair, "close")]
    judged = group(*versions, vectors=vectors, verdicts={pair: True})
    assert (pairs(judged.ties), judged.apart) == ([(*pair, "judged")], ())
    assert judged.ties[0].sources
    refused = group(*versions, vectors=vectors, verdicts={pair: False})
    assert (refused.ties, refused.apart) == ((), ())


def test_one_name_in_two_families_is_one_artifact_only_when_they_are_mentioned_together():
    document = said("1", "DOC-42 - payout ledger rollout plan", minute=1)
    patch = said("2", "PR #9 (payout ledger rollout plan)", minute=2)
    assert pairs(group(document, patch, *OTHERS).apart) == [("DOC-42", "PR-9", "named")]
    answer = msgspec.structs.replace(patch, reply_to=document.uid)
    assert pairs(group(document, answer, *OTHERS).ties) == [("DOC-42", "PR-9", "named")]


def test_an_artifact_shows_the_markers_of_all_that_belongs_to_it():
    made = group(
        said("1", "drafted DOC-42"),
        said("2", "PR #12 implements DOC-42", minute=1),
        said("3", "merged PR #12:", minute=2, user="bob"),
        said("4", "and released", minute=3, user="bob"),
    )
    assert made.markers == (("DOC-42", ("drafted", "merged", "released")),)


# ----------------------------------------------------------------------------------------------- what it rests on


def test_a_join_stands_only_while_all_that_it_rests_on_is_seen_as_it_was():
    later = said("2", "merged the payout ledger rollout plan", minute=9, user="bob")
    (join,) = group(PLAN, *OTHERS, later).joined
    everything = {v.uid: v for v in (PLAN, later)}
    assert stands(join, everything.get)
    for uid, version in everything.items():
        hidden = {u: v for u, v in everything.items() if u != uid}
        edited = everything | {uid: msgspec.structs.replace(version, hash="new")}
        assert not stands(join, hidden.get)
        assert not stands(join, edited.get)


def test_identifiers_are_one_by_ties_that_stand_for_who_sees():
    one, two = said("1", "PR #12 implements DOC-42"), said("2", "TKT-1 tracks PR #12", channel="d")
    reading = Reading(group(one, two))
    assert reading.identifiers_of("DOC-42") == ("DOC-42", "PR-12", "TKT-1")
    assert reading.identifiers_of("DOC-42", {one.uid: one}.get) == ("DOC-42", "PR-12")
    assert reading.artifact_of("TKT-1", {one.uid: one}.get) == "TKT-1"
    assert [tie.one for tie in reading.ties_around("TKT-1")] == ["DOC-42", "PR-12"]


def test_no_word_of_a_message_is_kept():
    later = said("2", "merged the payout ledger rollout plan", minute=9, user="bob")
    packed = msgspec.msgpack.encode(group(PLAN, *OTHERS, later))
    assert b"ledger" not in packed
    assert b"payout" not in packed


# ---------------------------------------------------------------------------------------------------- convergence

_TEXTS = st.sampled_from(
    (
        "drafted DOC-42 - payout ledger rollout plan",
        "PR #9 (payout ledger rollout patch) is up",
        "PR #9 implements DOC-42",
        "merged the payout ledger rollout plan",
        "the ledger rollout patch again",
        "looking at DOC-42:",
        "looking at PR #9 now",
        "had to send it back",
        "DOC-42 and PR #9 and DOC-43",
        "DOC-43, the payout ledger rollout plan",
        "lunch?",
        "",
    )
)
_versions = st.lists(
    st.builds(
        lambda n, text, minute, user, channel, answers: said(
            str(n), text, minute=minute, user=user, channel=channel, reply_to=str(answers) if answers != n else ""
        ),
        st.integers(0, 40),
        _TEXTS,
        st.integers(0, 6),
        st.sampled_from(("ann", "bob")),
        st.sampled_from(("c", "d")),
        st.integers(0, 12),
    ),
    max_size=30,
    unique_by=lambda v: v.uid,
)


def _vectors(versions) -> dict[str, np.ndarray]:
    found = {}
    for version in versions:
        draw = np.random.default_rng(len(version.text) * 31 + version.ts // 60_000_000)
        vector = draw.normal(size=8) + 2.0
        found[version.uid] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return found


@settings(max_examples=60, deadline=None)
@given(versions=_versions, seed=st.integers(0, 9))
def test_a_grouping_is_a_function_of_the_set_of_messages(versions, seed):
    vectors = _vectors(versions)
    shuffled = list(versions)
    random.Random(seed).shuffle(shuffled)
    turned = dict(reversed(list(vectors.items())))
    assert group(*versions, vectors=vectors) == group(*shuffled, vectors=turned)


@settings(max_examples=60, deadline=None)
@given(versions=_versions)
def test_everything_in_a_grouping_stands_for_who_sees_what_it_was_made_from(versions):
    made = group(*versions, vectors=_vectors(versions))
    known = {v.uid: v for v in versions}
    for fact in (*made.ties, *made.joined, *made.apart):
        assert fact.sources
        assert stands(fact, known.get)
    assert set(artifacts.named_in(made)) <= set(known)
    assert {v.channel for v in versions} == set(made.channels)
    for join in made.joined:
        assert not known[join.uid].identifiers
        assert join.sources[0][0] == join.uid


@settings(max_examples=40, deadline=None)
@given(versions=_versions, more=st.text(max_size=40))
def test_any_text_can_be_grouped(versions, more):
    made = group(*versions, said("x", more), said("y", f"DOC-42 - {more}"), said("z", f"{more} (DOC-42)"))
    for name in made.aliases:
        assert name.start < name.stop
