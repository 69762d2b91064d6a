"""What comes with a message is found and shown beside its words, which stay as they were said."""

from __future__ import annotations

from streammem.core.retrieval import assemble
from streammem.records import Attachment, Forwarded
from tests.flows.worlds import World
from tests.stories import public, said

NOISE = [said(str(n), f"something else {n}") for n in range(20, 50)]


async def test_a_message_is_found_by_what_is_attached_to_it() -> None:
    world = World()
    file = Attachment(id="F1", name="gantry-drawing.pdf")
    card = Attachment(kind="card", name="Build 412", text="pelican pipeline failed on DOC-7")
    preview = Attachment(kind="unfurl", text="ten facts about herons")
    told = [
        said("1", "here it is", attachments=(file,)),
        said("2", "again", attachments=(card, preview)),
        said("3", "what do you think?", forwarded=Forwarded(id="9", channel="d", text="the ferry sinks at noon")),
    ]
    await world.tell([public(), *NOISE, *told])
    for question, message in (("gantry-drawing.pdf", "1"), ("pelican pipeline", "2"), ("the ferry sinks", "3")):
        first = (await world.ask(question)).evidence[0]
        assert (first.id, first.text) == (message, next(e.text for e in told if e.id == message))
    assert (await world.ask("gantry-drawing.pdf")).evidence[0].attached == "gantry-drawing.pdf"
    assert (await world.ask("pelican pipeline")).evidence[0].attached == "pelican pipeline failed on DOC-7"
    assert "heron" not in str(await world.ask("pelican pipeline"))
    assert await world.store.sizes([*await world.store.sequences("w", "artifact", "DOC-7")]) == [1]


async def test_a_name_that_stands_in_the_words_is_not_shown_twice() -> None:
    world = World()
    await world.tell([public(), said("1", "see plan.pdf", attachments=(Attachment(name="plan.pdf"),))])
    assert (await world.ask("plan.pdf")).evidence[0].attached == ""


async def test_an_answer_model_reads_what_is_attached() -> None:
    world = World()
    await world.tell([public(), said("1", "here", attachments=(Attachment(name="a.pdf"), Attachment(name="b.pdf")))])
    ((version,),) = await world.store.versions(["w/c/1"])
    assert assemble.line(version, "c", "Ana").endswith("Ana: here [with: a.pdf · b.pdf]")
