"""How sure it is that a question was answered: what was never said together, said of others, or never said at all."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streammem.core.query_spec import QuerySpec
from streammem.core.retrieval import confidence
from streammem.core.retrieval.confidence import apart, behind, clear, strange
from streammem.core.retrieval.context import Member
from streammem.core.words_in_text import Named
from tests.core.retrieval.pools import member, pool, pools

FLOOR = 0.5


def spec(text: str, *, people: dict[str, str] | None = None, **rest: Any) -> QuerySpec:
    """A question; `people` are the names in it with the id of whom each means."""
    named = tuple(
        Named("user", name, (who,), (text.index(name), text.index(name) + len(name)))
        for name, who in (people or {}).items()
    )
    given = {"asker": None, "first_person": False, "users": (), "channels": (), "identifiers": (), "cue": ""} | rest
    return QuerySpec(text=text, lexical=text, named=named, **given)


def said(*texts: str, **rest: object) -> dict[str, Member]:
    """A pool of these texts, m0 and on."""
    return pool(*(member(f"m{i}", i, i, text=text, **rest) for i, text in enumerate(texts)))


TALK = (
    "the retry cap of the cron scheduler is 24",
    "is the retry cap high enough?",
    "webhook relay is down",
    "who owns the webhook relay",
)


# ----------------------------------------------------------------------------------------------- never together


def test_two_things_that_were_each_said_but_never_together_are_apart() -> None:
    assert apart(spec("What is the retry cap of the webhook relay?"), said(*TALK))


def test_two_things_in_one_message_are_not_apart() -> None:
    together = said(*TALK, "the webhook relay has a retry cap of 3")
    assert not apart(spec("What is the retry cap of the webhook relay?"), together)


def test_an_answer_is_read_with_what_it_answers() -> None:
    asked = pool(
        *said(*TALK).values(),
        member("q", 8, text="any news of the webhook relay?"),
        member("a", 9, text="yes, its retry cap is 3 now", reply_to="q"),
    )
    assert not apart(spec("What is the retry cap of the webhook relay?"), asked)


def test_a_thing_that_the_memory_calls_otherwise_proves_nothing() -> None:
    assert not apart(spec("What is the repetition limit of the webhook relay?"), said(*TALK))


def test_words_that_stand_side_by_side_only_once_are_no_phrase_of_the_memory() -> None:
    assert not apart(spec("What is the retry cap of the webhook relay?"), said(*TALK[1:]))


def test_a_list_of_things_may_be_told_one_by_one() -> None:
    assert not apart(spec("What are the retry cap, and the webhook relay?"), said(*TALK))
    assert not apart(spec("What about the retry cap and the webhook relay?"), said(*TALK))


def test_plurals_case_and_accents_hide_no_phrase() -> None:
    loud = said("RETRY CAPS are low", "the rétry cap", *TALK[2:])
    assert apart(spec("What is the retry cap of the Webhook Relays?"), loud)


def test_the_name_of_a_person_is_no_part_of_a_phrase() -> None:
    names = said("mira frost is ill", "mira frost is back", *TALK[2:])
    question = "When did Mira Frost leave the webhook relay?"
    assert apart(spec(question), names)
    assert not apart(spec(question, people={"Mira Frost": "mira"}), names)


# -------------------------------------------------------------------------------------------- said of somebody else


def test_what_others_say_ahead_of_whom_the_question_names_counts_against_it() -> None:
    heard = pool(member("a", 1, user="ann", text="hello"), member("b", 2, user="bo", text="the race was great"))
    question = spec("What did Ann say about the race?", people={"Ann": "ann"})
    assert behind(question, heard, {"a": 0.5, "b": 1.5}) == 1.0
    assert behind(question, heard, {"a": 1.5, "b": 0.5}) == 0.0


def test_what_names_mentions_or_answers_the_person_is_of_the_person() -> None:
    question = spec("What did Ann say about the race?", people={"Ann": "ann"})
    for rest in ({"text": "ann ran the race"}, {"mentions": ("ann",)}, {"reply_to": "a"}):
        heard = pool(member("a", 1, user="ann", text="hello"), member("b", 2, user="bo", **rest))
        assert behind(question, heard, {"a": 0.5, "b": 1.5}) == 0.0


def test_of_several_people_each_may_be_spoken_of_by_itself() -> None:
    question = spec("Who took over from Ann and Cy?", people={"Ann": "ann", "Cy": "cy"})
    assert behind(question, said("the race"), {"m0": 1.0}) == 0.0


def test_a_question_that_names_nobody_or_its_asker_has_nobody_to_be_behind() -> None:
    heard = said("the race")
    assert behind(spec("What about the race?"), heard, {"m0": 1.0}) == 0.0
    mine = spec("What did Ann say?", people={"Ann": "ann"}, asker="ann")
    assert behind(mine, heard, {"m0": 1.0}) == 0.0


# -------------------------------------------------------------------------------------------------------- in all


def test_an_identifier_that_nothing_has_is_strange() -> None:
    known = said("started DOC-042", identifiers=("DOC-042",))
    assert not strange(spec("Who wrote DOC-042?", identifiers=("DOC-042",)), known)
    assert strange(spec("Who wrote DOC-999?", identifiers=("DOC-999",)), known)


def test_the_best_stands_out_by_its_lead_over_the_sixth() -> None:
    assert clear({"a": 1.0}) == 0.0
    assert clear({**dict.fromkeys("abcde", 1.0), "f": 0.75, "g": 0.0}) == 0.5
    assert clear({"a": 2.0, **dict.fromkeys("bcdefg", 1.0)}) == 1.0


def test_each_sign_alone_lets_a_question_fall_under_the_floor() -> None:
    talk, even = said(*TALK), dict.fromkeys(("m0", "m1", "m2", "m3"), 1.0)
    good = spec("What is the retry cap of the cron scheduler?")
    assert confidence.confidence(good, talk, even, 0.6) >= FLOOR
    assert confidence.confidence(good, talk, even, 0.1) < FLOOR
    assert confidence.confidence(spec("What is the retry cap of the webhook relay?"), talk, even, 0.6) < FLOOR
    assert confidence.confidence(spec("Who wrote DOC-9?", identifiers=("DOC-9",)), talk, even, 0.6) < FLOOR
    other = spec("What did Ann say?", people={"Ann": "ann"})
    assert confidence.confidence(other, talk, even, 0.6) < FLOOR


def test_a_post_of_many_words_may_speak_of_things_that_were_never_said_together() -> None:
    talk, question = said(*TALK), "What is the retry cap of the webhook relay?"
    scores = dict.fromkeys(talk, 1.0)
    post = f"{question} {'and so on ' * confidence.LONGEST}"
    assert confidence.confidence(spec(question), talk, scores) < FLOOR
    assert confidence.confidence(spec(post), talk, scores) >= FLOOR


def test_a_best_message_that_stands_out_outweighs_a_sign() -> None:
    out = {"m0": 1.0, **dict.fromkeys(("m1", "m2", "m3"), 0.0)}
    assert confidence.confidence(spec("What is the retry cap of the webhook relay?"), said(*TALK), out) == FLOOR


def test_without_a_message_there_is_no_confidence() -> None:
    assert confidence.confidence(spec("What?"), {}, {}) == 0.0


@given(pools(), st.text(max_size=60), st.floats(-1, 3), st.floats(-1, 1))
def test_any_question_gets_a_number_between_0_and_1(
    found: dict[str, Member], text: str, score: float, nearest: float
) -> None:
    scores = {uid: score + i / 7 for i, uid in enumerate(found)}
    value = confidence.confidence(spec(text), found, scores, nearest)
    assert 0.0 <= value <= 1.0
    assert value == confidence.confidence(spec(text), dict(reversed(found.items())), scores, nearest)
