"""Whom and what the names of a question mean, by what the asker sees of the memory."""

from __future__ import annotations

from typing import Any

from streammem.core.query_spec import QuerySpec, parse, within
from streammem.flows.bearers import settled
from streammem.flows.sight import resolve, visible_to
from streammem.records import Ambiguity, MembershipEvent, Query, UserEvent
from tests.flows.worlds import World
from tests.stories import at, deleted, private, public, said

WENS = [
    UserEvent(workspace="w", id="wen1", name="Wen Dimitrov", title="Lead"),
    UserEvent(workspace="w", id="wen2", name="Wen Ito", title="Intern"),
    UserEvent(workspace="w", id="kon", name="Konstantin Weber"),
]


async def read(world: World, text: str, **query: Any) -> tuple[QuerySpec, tuple[Ambiguity, ...]]:
    desk = await world.desk()
    asked = await resolve(Query(text=text, workspace="w", **query), desk)
    visible = visible_to(asked, desk.directory)
    spec = within(parse(text, asked.asker, desk.directory, desk.rules, 0), visible.channels)
    (vector,) = desk.embedder.encode([text])
    return await settled(spec, asked, visible, vector, desk)


async def two_teams() -> World:
    """Ana speaks with one Wen in c all day, the other Wen is heard in d, once in c, and in the private p."""
    world = World()
    names = iter(range(1, 99))
    talk = [said(str(next(names)), "ok", user=u, channel="c") for u in ("ana", "wen1") * 4]
    talk += [said(str(next(names)), "ok", user="wen2", channel="d") for _ in range(9)]
    talk += [said(str(next(names)), "ok", user="wen2", channel="c")]
    talk += [said(str(next(names)), "ok", user=u, channel="p") for u in ("bo", "wen2") * 4]
    await world.tell([*WENS, public("c"), public("d"), *private("p", "bo", "wen2"), *talk])
    return world


async def test_a_namesake_is_the_one_whom_the_asker_speaks_with() -> None:
    world = await two_teams()
    for asker, meant in (("ana", ("wen1",)), ("bo", ("wen2",)), (None, ("wen1", "wen2"))):
        spec, (told,) = await read(world, "what did Wen promise?", asker=asker)
        assert spec.users == told.meant == meant
        assert [(c.name, c.title) for c in told.candidates] == [("Wen Dimitrov", "Lead"), ("Wen Ito", "Intern")]


async def test_what_the_asker_does_not_see_decides_nothing() -> None:
    world = await two_teams()
    await world.tell([MembershipEvent(workspace="w", channel="p", user="bo", version="2", present=False)])
    spec, _ = await read(world, "what did Wen promise?", asker="bo")
    assert spec.users == ("wen1", "wen2")


async def test_what_was_said_later_decides_nothing_of_the_past() -> None:
    world = await two_teams()
    spec, _ = await read(world, "what did Wen promise?", asker="ana", as_of=int(at(2).timestamp() * 1e6))
    assert spec.users == ("wen1",)  # the other Wen has not been heard at all by then
    spec, _ = await read(world, "what did Wen promise?", asker="ana", as_of=int(at(0).timestamp() * 1e6))
    assert spec.users == ("wen1", "wen2")


async def test_an_identifier_is_found_however_it_is_spelled_and_only_where_the_asker_sees_it() -> None:
    world = World()
    messages = [
        said("1", "DOC-042 is drafted"),
        said("2", "DOC-0042 is secret", channel="p"),
        said("3", "DOC-7 is gone"),
    ]
    bo = UserEvent(workspace="w", id="bo", name="Bo")
    await world.tell([bo, public(), *private("p", "bo"), *messages, deleted(messages[2], 9)])
    for text, asker, known in (
        ("who wrote doc 42?", None, ("DOC-042",)),
        ("who wrote DOC-42?", None, ("DOC-42", "DOC-042")),
        ("who wrote doc 0042?", None, ("DOC-042",)),
        ("who wrote doc 0042?", "bo", ("DOC-0042",)),
        ("who wrote doc 7?", None, ()),
        ("who wrote page 42?", None, ()),
    ):
        spec, told = await read(world, text, asker=asker)
        assert (spec.identifiers, told) == (known, ()), text
    spec, (told,) = await read(world, "who wrote doc 42?", asker="bo")
    assert set(spec.identifiers) == set(told.meant) == {"DOC-042", "DOC-0042"}
    assert told.kind == "artifact"


async def test_a_word_that_the_chat_uses_is_no_name_with_a_typo() -> None:
    world = World()
    await world.tell([*WENS, public(), said("1", "hello")])
    asked = "what did Konstantine say?"
    assert (await read(world, asked))[0].users == ("kon",)
    await world.tell([said(str(i), f"Konstantine is our new server, note {i}") for i in range(2, 6)])
    spec, _ = await read(world, asked)
    assert (spec.users, spec.lexical) == ((), asked)


async def test_plain_names_ask_nothing_of_the_stores() -> None:
    world = await two_teams()
    desk = await world.desk()
    spec = parse("what did Wen Ito say of the launch?", None, desk.directory, desk.rules, 0)
    nothing: Any = None
    query = Query(text=spec.text, workspace="w")
    idle = type(desk)(nothing, nothing, nothing, desk.directory, desk.rules, desk.forest, desk.numbers)
    assert await settled(spec, query, visible_to(query, desk.directory), nothing, idle) == (spec, ())
