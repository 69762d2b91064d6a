"""What stands around a message and what belongs to it: utterances, answers, artifacts, people who are joined (S2, S3).

Most of the chat is noise here, and the places are few: what is found is found by the way that is tested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streammem.core.events import micros
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Retrieval
from streammem.core.retrieval import context
from streammem.flows import belonging, gathering, joining
from streammem.flows.ingest import ingest
from streammem.flows.structure import APPLIED as STRUCTURED
from streammem.flows.verify import replay
from streammem.records import Answer, Event, MessageEvent, TieEvent
from tests.flows.grouped import GroupedWorld
from tests.flows.scripts import GUEST, guest, member, people
from tests.flows.worlds import World
from tests.stories import at, deleted, edited, private, public, said

FEW = 4
"""Places in an answer."""


def closed(**numbers: Any) -> Retrieval:
    """Numbers with which no node is opened: a small memory has few, and they would open everything."""
    return Retrieval(**{"paths": 0, **numbers})


def noise(first: int, last: int, channel: str = "c") -> list[MessageEvent]:
    """What others say of other things, a quarter of an hour apart."""
    things = ("lunch", "weather", "parking", "holiday", "football", "printer", "coffee")
    return [
        said(
            str(n),
            f"{things[n % 7]} report number {n} from the lobby",
            user=f"x{n % 9}",
            channel=channel,
            minute=15 * n,
        )
        for n in range(first, last)
    ]


async def told(*events: Event, numbers: Retrieval | None = None, kind: type[World] = World) -> Any:
    world = kind(numbers=numbers or closed())
    await world.tell([*people, public(), public("d"), *events])
    return world


def found(answer: Answer) -> dict[str, dict[str, str]]:
    """Signal to path of each message, by its id."""
    return {e.id: {way.signal: way.path.partition(":")[0] for way in e.found_by} for e in answer.evidence}


def signals(answer: Answer) -> set[str]:
    return {way.signal for e in answer.evidence for way in e.found_by}


# ----------------------------------------------------------------------------------------------------- utterances

SPLIT = [
    said("100", "about the conveyor belt in hall seven", minute=2000),
    said("101", "please stop using it", minute=2001),
]


async def test_an_utterance_split_in_two_is_found_whole() -> None:
    world = await told(*noise(1, 60), *SPLIT, *noise(200, 230))
    question = "what of the conveyor belt in hall seven?"
    assert found(await world.ask(question, limit=FEW))["101"]["context"] == "utterance of 100"
    world.numbers = closed(stages=1)
    assert "101" not in found(await world.ask(question, limit=FEW))


async def test_what_somebody_else_says_in_between_divides_no_utterance() -> None:
    between = said("150", "coffee is ready", user="x1", minute=2000.5)
    world = await told(*noise(1, 60), *SPLIT, between, *noise(200, 230))
    ways = found(await world.ask("what of the conveyor belt in hall seven?", limit=FEW))
    assert ways["101"]["context"] == "utterance of 100"


# -------------------------------------------------------------------------------------------------------- answers

ASKED = said("100", "who keeps the key of the archive?", user="bo", minute=2000)
SAID_SO = said("300", "Dee, since Monday", user="cy", reply_to="100", minute=9000)


async def test_the_answer_to_a_question_is_found_by_the_question() -> None:
    world = await told(*noise(1, 60), ASKED, *noise(200, 230), SAID_SO)
    answer = await world.ask("who keeps the key of the archive?", limit=FEW)
    assert found(answer)["300"]["context"] == "question of 100"
    assert {e.id for e in answer.evidence if e.found_by[-1].rank <= 2} == {"100", "300"}


async def test_a_short_answer_to_a_question_counts_in_full_one_to_a_statement_does_not() -> None:
    stated = said("100", "Bo keeps the key of the archive", user="bo", minute=2000)
    scores = []
    for target in (ASKED, stated):
        world = await told(*noise(1, 60), target, *noise(200, 230), SAID_SO)
        (e,) = [e for e in (await world.ask("the key of the archive", limit=FEW)).evidence if e.id == "300"]
        scores.append(e.found_by[-1].score)
    assert scores[0] > 2 * scores[1]


async def test_the_question_is_found_by_its_answer() -> None:
    reply = said("300", "the spare key of the archive hangs in hall seven", user="cy", reply_to="100", minute=9000)
    world = await told(*noise(1, 60), said("100", "where?", user="bo", minute=2000), *noise(200, 230), reply)
    ways = found(await world.ask("where does the spare key of the archive hang?", limit=FEW))
    assert ways["100"]["context"] == "answer of 300"


async def test_a_deleted_or_edited_message_pulls_nothing() -> None:
    question = "what of the conveyor belt in hall seven?"
    world = await told(*noise(1, 60), *SPLIT, *noise(200, 230))
    await world.tell([edited(SPLIT[0], "never mind", 4000)])
    assert "utterance of 100" not in str(found(await world.ask(question)))
    await world.tell([deleted(SPLIT[0], 5000)])
    ways = found(await world.ask(question))
    assert "100" not in ways
    assert "of 100" not in str(ways)


# ------------------------------------------------------------------------------------------------------ artifacts

PLAN = said("100", "DOC-42 - harbour crane rollout plan, drafted", user="ana", minute=2000)
ALSO = said("101", "DOC-42 waits for the lawyers", user="bo", channel="d", minute=4000)
REPLY = said("102", "they want to see it on Friday", user="cy", channel="d", reply_to="101", minute=4100)
PATCH = said("103", "PR #9 implements DOC-42", user="bo", minute=5000)
MERGED = said("104", "PR #9 is merged", user="cy", channel="d", minute=6000)
NAMED = said("105", "read the harbour crane rollout plan before you leave", user="cy", minute=7000)
STORY = [*noise(1, 60), PLAN, ALSO, REPLY, PATCH, MERGED, NAMED, *noise(500, 540)]
DRAFT = "what became of the drafted harbour crane rollout?"


async def test_an_artifact_is_completed_from_one_anchor_by_identifier_and_thread() -> None:
    world = await told(*STORY)
    ways = found(await world.ask(DRAFT, limit=8))
    assert {ways[n].get("artifact") for n in ("100", "101", "102")} == {"DOC-42"}
    world.numbers = closed(views=("channel", "actor"))
    assert "artifact" not in signals(await world.ask(DRAFT))


async def test_what_is_grouped_belongs_to_an_artifact_and_what_is_not_grouped_does_not() -> None:
    world = await told(*STORY, kind=GroupedWorld)
    ways = found(await world.ask(DRAFT, limit=8))
    assert {ways[n].get("artifact") for n in ("100", "101", "102", "103", "104", "105")} == {"DOC-42"}
    alone = found(await (await told(*STORY)).ask(DRAFT, limit=8))
    assert not {"104"} & {n for n, way in alone.items() if "artifact" in way}
    assert "artifact" not in alone.get("105", {})


async def test_an_artifact_that_the_question_names_is_completed_without_an_anchor() -> None:
    world = await told(*STORY, numbers=closed(about_anchors=1), kind=GroupedWorld)
    assert applied(await world.ask("what about DOC-42?", limit=8)) == {"100", "101", "102", "103", "104", "105"}


async def test_an_answer_speaks_for_what_its_thread_is_about_and_a_joined_message_for_what_it_joins() -> None:
    world = await told(*STORY, numbers=closed(about_anchors=1), kind=GroupedWorld)
    for anchor, question in (("102", "who wants to see it on Friday?"), ("105", "what to read before you leave?")):
        answer = await world.ask(question, limit=12)
        assert answer.evidence[0].id == anchor
        assert {"100", "101", "103", "104"} <= applied(answer)


async def grouped_with(*sources: MessageEvent) -> GroupedWorld:
    """A story whose grouping rests on messages in a public channel, and lags behind whatever is told next."""
    rest = [e for e in STORY if e.id not in {s.id for s in sources}]
    world = await told(public("t"), *rest, *sources, kind=GroupedWorld)
    await world.keep_groups()
    assert {"104", "105"} <= applied(await world.ask("what about DOC-42?", limit=12))
    return world


def in_t(message: MessageEvent) -> MessageEvent:
    """The same message, said in channel t."""
    return said(message.id, message.text, user=message.sender.id, channel="t", minute=_minute(message))


def _minute(message: MessageEvent) -> float:
    assert message.ts is not None
    return (message.ts - at(0)).total_seconds() / 60


def applied(answer: Answer) -> set[str]:
    """The messages that are found as members of DOC-42."""
    return {n for n, way in found(answer).items() if way.get("artifact") == "DOC-42"}


TIE, ALIAS = in_t(PATCH), in_t(PLAN)


async def test_a_tie_that_rests_on_a_message_that_is_hidden_now_is_not_applied() -> None:
    world = await grouped_with(TIE)
    await world.tell(private("t", "bo", version="5"))
    assert {"103", "104"} <= applied(await world.ask("what about DOC-42?", limit=12, asker="bo"))
    assert applied(await world.ask("what about DOC-42?", limit=12, asker="cy")) == {"100", "101", "102", "105"}
    of_it = {
        asker: found(await world.ask("what about PR-9?", asker=asker))["104"]["artifact"] for asker in ("bo", "cy")
    }
    assert of_it == {"bo": "DOC-42", "cy": "PR-9"}


async def test_a_join_that_rests_on_a_message_that_is_hidden_now_is_not_applied() -> None:
    again = said("106", "the harbour crane rollout plan is DOC-42 - drafted", user="ana", minute=2500)
    world = await grouped_with(ALIAS)
    await world.tell([again, *private("t", "bo", version="5")])
    assert "105" in applied(await world.ask("what about DOC-42?", limit=12, asker="bo"))
    assert "105" not in applied(await world.ask("what about DOC-42?", limit=12, asker="cy"))


@pytest.mark.parametrize("change", [deleted(TIE, 8000), edited(TIE, "PR #9 has little to do with DOC-42", 8000)])
async def test_a_tie_that_rests_on_a_message_that_is_deleted_or_edited_is_not_applied(change: MessageEvent) -> None:
    world = await grouped_with(TIE)
    await world.tell([change])
    assert "104" not in applied(await world.ask("what about DOC-42?", limit=12))


async def test_a_tie_or_join_that_was_still_to_be_said_is_not_applied_as_of_a_moment() -> None:
    world = await told(PLAN, ALSO, MERGED, NAMED, in_later(PATCH), kind=GroupedWorld)
    assert "104" in applied(await world.ask("what about DOC-42?"))
    answer = await world.ask("what about DOC-42?", as_of=micros(at(7500)))
    assert applied(answer) == {"100", "101", "105"}
    assert "105" not in found(await world.ask("what about DOC-42?", as_of=micros(at(6500))))


def in_later(message: MessageEvent) -> MessageEvent:
    """The same message, said after everything else."""
    return said("900", message.text, user="bo", minute=8000)


async def test_a_deleted_message_is_in_no_artifact_and_neither_are_answers_to_it() -> None:
    world = await told(*STORY, kind=GroupedWorld)
    await world.tell([deleted(ALSO, 8000)])
    answer = await world.ask("what about DOC-42?", limit=12)
    assert "101" not in found(answer)
    assert {"100", "103"} <= applied(answer)
    assert "102" not in applied(answer)


async def test_a_message_edited_out_of_an_artifact_is_in_it_as_of_then_only() -> None:
    world = await told(*STORY)
    await world.tell([edited(ALSO, "the lawyers are slow", 8000)])
    assert not {"101", "102"} & applied(await world.ask("what about DOC-42?", limit=12))
    assert {"101", "102"} <= applied(await world.ask("what about DOC-42?", limit=12, as_of=micros(at(7900))))


async def test_an_artifact_is_no_reason_for_what_is_hidden_and_takes_no_place_for_it() -> None:
    secret = [said(str(n), "DOC-42 in secret", user="bo", channel="p", minute=4000 + n) for n in range(600, 700)]
    worlds = [await told(*STORY, *private("p", "bo"), *some, numbers=closed(pool_cap=3)) for some in ([], secret)]
    few, many = [found(await world.ask("what about DOC-42?", asker="cy")) for world in worlds]
    assert few == many
    assert {way.get("artifact") for way in few.values()} >= {"DOC-42"}


# ----------------------------------------------------------------------------------------------------------- joins

HANDOVER = said("100", "Bo takes the nimbus scheduler from Ana", user="cy", minute=2000)
LED_TO = said("101", "the nimbus scheduler runs on blue nodes", user="x1", channel="d", minute=5000)
GREETING = said("102", "thanks Ana! bye Bo!", user="cy", minute=3000)
HANDED = [*noise(1, 60), HANDOVER, GREETING, LED_TO, *noise(500, 540)]
WHAT = "on what does the thing run that went from Ana to Bo?"


async def test_a_question_of_two_people_finds_what_joins_them_and_where_its_words_lead() -> None:
    world = await told(*HANDED)
    answer = await world.ask(WHAT, limit=FEW)
    ways = found(answer)
    assert ways["100"]["placement join"] == "of two people"
    assert ways["101"]["placement join"] == "with 100"
    assert [e.id for e in answer.evidence].index("100") < FEW
    world.numbers = closed(joins=0)
    assert "placement join" not in signals(await world.ask(WHAT))


async def test_a_message_joins_also_whom_it_is_said_by_and_mentions() -> None:
    by_mention = said("100", "the nimbus scheduler is yours from Monday on", user="ana", mentions=("bo",), minute=2000)
    world = await told(*noise(1, 60), by_mention, LED_TO, *noise(500, 540))
    ways = found(await world.ask(WHAT, limit=FEW))
    assert ways["100"]["placement join"] == "of two people"
    assert ways["101"]["placement join"] == "with 100"


async def test_one_person_alone_is_joined_with_nobody() -> None:
    world = await told(*HANDED)
    for question in ("on what does the thing run that went to Bo?", "what did Ana, I mean Ana, hand over?"):
        assert "placement join" not in signals(await world.ask(question))


async def test_a_person_with_two_ids_is_one_when_joined() -> None:
    tie = TieEvent(workspace="w", entity="user", id="bo", same_as="bo-2", version="3")
    by_other_id = said("100", "the nimbus scheduler is mine now", user="bo-2", mentions=("ana",), minute=2000)
    world = await told(*noise(1, 60), by_other_id, LED_TO, *noise(500, 540))
    assert "placement join" not in signals(await world.ask(WHAT))
    await world.tell([tie])
    ways = found(await world.ask(WHAT, limit=FEW))
    assert ways["100"]["placement join"] == "of two people"
    assert ways["101"]["placement join"] == "with 100"


@pytest.mark.parametrize("change", [deleted(HANDOVER, 8000), edited(HANDOVER, "the nimbus scheduler moves", 8000)])
async def test_a_deleted_or_edited_message_joins_nobody(change: MessageEvent) -> None:
    world = await told(*HANDED)
    await world.tell([change])
    ways = found(await world.ask(WHAT))
    assert "with 100" not in str(ways)
    assert ways.get("100", {}).get("placement join") is None
    then = found(await world.ask(WHAT, limit=FEW, as_of=micros(at(7000))))
    assert ("100" in then) == (change.op == "upsert")


async def test_words_that_a_message_no_longer_says_lead_nowhere_though_the_index_is_behind() -> None:
    world = await told(*HANDED)
    assert found(await world.ask(WHAT, limit=FEW))["101"]["placement join"] == "with 100"
    await ingest([edited(LED_TO, "never mind, all is well", 8000)], world.log, world.store.forbidden)
    await replay(world.log, world.store, DEFAULT_RULES, after=await world.store.applied(STRUCTURED))
    assert "placement join" not in found(await world.ask(WHAT)).get("101", {})


async def test_what_joined_later_or_was_said_later_is_no_reason_as_of_a_moment() -> None:
    world = await told(*HANDED)
    before = found(await world.ask(WHAT, as_of=micros(at(1999))))
    assert "placement join" not in str(before)
    between = found(await world.ask(WHAT, as_of=micros(at(4999))))
    assert "101" not in between
    assert between["100"]["placement join"] == "of two people"


async def test_a_hidden_message_joins_nobody_for_whom_it_is_hidden() -> None:
    secret = said("100", HANDOVER.text, user="cy", channel="p", minute=2000)
    world = await told(*private("p", "cy"), *noise(1, 60), secret, LED_TO, *noise(500, 540))
    assert found(await world.ask(WHAT, asker="cy", limit=FEW))["101"]["placement join"] == "with 100"
    assert "placement join" not in signals(await world.ask(WHAT, asker="bo"))


async def test_words_that_the_question_says_itself_lead_nowhere() -> None:
    told_so = said("100", "Ana, Bo: the harbour?", user="cy", minute=2000)
    other = said("101", "the harbour is closed", user="x1", channel="d", minute=5000)
    world = await told(*noise(1, 60), told_so, other, *noise(500, 540))
    ways = found(await world.ask("what have Ana and Bo to do with the (harbour)?"))
    assert ways["100"]["placement join"] == "of two people"
    assert "placement join" not in ways["101"]


# ------------------------------------------------------------------------------------------------------- ablations

ALL = [
    *STORY,
    said("900", HANDOVER.text, user="cy", minute=11000),
    said("901", LED_TO.text, user="x1", channel="d", minute=14000),
    said("902", "who keeps the key?", user="bo", minute=19000),
    said("903", "Dee", user="cy", reply_to="902", minute=29000),
]
EVERYTHING = f"{DRAFT} And who keeps the key that went from Ana to Bo?"


async def ablated(**numbers: Any) -> set[tuple[str, str]]:
    """Stages and signals of an answer with these numbers."""
    world = await told(*ALL, numbers=Retrieval(bridge_floor=-1.0, **numbers), kind=GroupedWorld)
    answer = await world.ask(EVERYTHING)
    assert answer.evidence
    return {(way.stage, way.signal.partition(" #")[0]) for e in answer.evidence for way in e.found_by}


async def test_fewer_stages_find_by_fewer_ways() -> None:
    assert {stage for stage, _ in await ablated(stages=1)} == {"S1"}
    assert {stage for stage, _ in await ablated(stages=2)} == {"S1", "S2"}
    third = await ablated(stages=3)
    assert {stage for stage, _ in third} == {"S1", "S2", "S3"}
    assert {("S3", "artifact"), ("S3", "placement join")} <= third


async def test_a_view_that_is_off_gives_nothing() -> None:
    assert ("S2", "context") in await ablated()
    assert ("S2", "context") not in await ablated(views=("actor", "artifact"))
    assert ("S3", "artifact") not in await ablated(views=("channel", "actor"))
    assert ("S3", "placement join") not in await ablated(views=("channel", "artifact"))


async def test_where_a_message_stands_counts_for_nothing_without_the_view_of_channels() -> None:
    world = await told(*ALL, numbers=closed(views=("actor", "artifact"), artifacts=0, joins=0))
    with_votes, without = [], []
    for numbers, scores in ((world.numbers, with_votes), (replace(world.numbers, vote_channel=0.0), without)):
        world.numbers = numbers
        scores += [(e.uid, way.score) for e in (await world.ask(DRAFT)).evidence for way in e.found_by]
    assert with_votes == without
    world.numbers = closed(artifacts=0, joins=0)
    assert [(e.uid, way.score) for e in (await world.ask(DRAFT)).evidence for way in e.found_by] != without


@pytest.mark.parametrize("view", ["channel", "actor", "artifact"])
async def test_no_path_and_no_header_is_of_a_view_that_is_off(view: str) -> None:
    views = tuple(v for v in ("channel", "actor", "artifact") if v != view)
    world = await told(*ALL, numbers=Retrieval(views=views), kind=GroupedWorld)  # type: ignore[arg-type]
    answer = await world.ask(EVERYTHING)
    assert {header.view for header in answer.headers} <= {*views}
    paths = [way.path for e in answer.evidence for way in e.found_by if way.stage == "S1" or way.signal == "summary"]
    assert not [path for path in paths if path.startswith(f"{view}:")]


# ---------------------------------------------------------------------------------------------------------- guests


async def test_a_guest_is_not_steered_by_what_is_said_every_day_where_it_does_not_read() -> None:
    lines = [said(str(300 + n), "please sign the crane list today", user="bo", minute=3000 + n) for n in range(9)]
    here = [said("100", "what of the crane inspection?", user="cy", channel="d", minute=2000)]
    here += [said("101", "please sign the crane list today", user="bo", channel="d", reply_to="100", minute=2100)]
    joined = [guest, member("d", GUEST, 1)]
    answers = []
    for elsewhere in ([], lines):
        world = await told(*joined, *here, *elsewhere, kind=GroupedWorld)
        scores = {e.id: e.found_by for e in (await world.ask("the crane inspection", asker=GUEST)).evidence}
        answers.append(scores)
        assert scores.keys() == {"100", "101"}
    assert answers[0] == answers[1]


async def test_a_guest_is_not_steered_by_a_tie_that_others_see() -> None:
    joined = [guest, member("d", GUEST, 1)]
    here = [in_d(m) for m in (PLAN, PATCH, MERGED)]
    hubs = [said(str(400 + n), f"PR #{n} implements DOC-42", user="bo", minute=7000 + n) for n in range(20, 24)]
    answers = []
    for elsewhere in ([], hubs):  # so many make DOC-42 a container, which is one with none of them
        world = await told(*joined, *here, *elsewhere, kind=GroupedWorld)
        answers.append(found(await world.ask("what about DOC-42?", asker=GUEST)))
    assert answers[0] == answers[1]


def in_d(message: MessageEvent) -> MessageEvent:
    """The same message, said in channel d."""
    return said(message.id, message.text, user=message.sender.id, channel="d", minute=_minute(message))


# -------------------------------------------------------------------------------------- the tests catch faults


def stands_always(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(belonging, "stands", lambda fact, seen: True)
    patch.setattr("streammem.core.artifacts.stands", lambda fact, seen: True)


def stays_where_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streammem.flows.sight.Sight._stands", lambda self, uid, sequence: self.get(uid) is not None)


def pulls_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context, "utterances", lambda pool, numbers: [])
    patch.setattr(context, "pulls", lambda pool, numbers: [])


def joins_nobody(patch: pytest.MonkeyPatch) -> None:
    async def joined(found: Any, visible: Any, desk: Any) -> dict[str, tuple[float, str]]:
        return {}

    patch.setattr(gathering, "joined", joined)
    assert joining.joined is not joined


def _tie_edited() -> Any:
    return test_a_tie_that_rests_on_a_message_that_is_deleted_or_edited_is_not_applied(deleted(TIE, 8000))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (stands_always, test_a_tie_that_rests_on_a_message_that_is_hidden_now_is_not_applied),
        (stands_always, test_a_join_that_rests_on_a_message_that_is_hidden_now_is_not_applied),
        (stands_always, _tie_edited),
        (stands_always, test_a_tie_or_join_that_was_still_to_be_said_is_not_applied_as_of_a_moment),
        (stays_where_it_was, test_a_message_edited_out_of_an_artifact_is_in_it_as_of_then_only),
        (stays_where_it_was, test_a_deleted_message_is_in_no_artifact_and_neither_are_answers_to_it),
        (pulls_nobody, test_an_utterance_split_in_two_is_found_whole),
        (pulls_nobody, test_the_answer_to_a_question_is_found_by_the_question),
        (joins_nobody, test_a_question_of_two_people_finds_what_joins_them_and_where_its_words_lead),
    ],
)
async def test_a_planted_fault_is_caught(fault: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        await check()
