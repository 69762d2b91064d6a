"""What is forgotten for good: the marks of erasure, and which events they refuse (design §4).

A mark is a name: the uid of a message, or a user of a workspace. It holds nothing of what was said.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from streammem.core.events import native_id, uid, workspace_of
from streammem.records import (
    AttributeEvent,
    ErasureEvent,
    Event,
    GroupEvent,
    MembershipEvent,
    MessageEvent,
    ReactionEvent,
    TieEvent,
    UserEvent,
)


def user_mark(workspace: str, user: str) -> str:
    """The mark of a user. No uid reads like it: a uid begins with a workspace, which is never empty."""
    return f"/{uid(workspace, 'user', user)}"


def marked_user(mark: str) -> tuple[str, str] | None:
    """Workspace and id of the user that a mark is of; None for the mark of a message."""
    return (workspace_of(mark[1:]), native_id(mark)) if mark.startswith("/") else None


def mark_of(erasure: ErasureEvent) -> str:
    """The mark that an erasure sets."""
    if erasure.entity == "user":
        return user_mark(erasure.workspace, erasure.id)
    return uid(erasure.workspace, erasure.channel, erasure.id)


def marks_on(event: Event) -> tuple[str, ...]:
    """The marks each of which refuses the event."""
    workspace = event.workspace
    if isinstance(event, MessageEvent):
        said_by = event.sender.id or event.sender.name
        return (uid(workspace, event.channel.id, event.id), *((user_mark(workspace, said_by),) if said_by else ()))
    if isinstance(event, ReactionEvent):
        about = uid(workspace, event.channel, event.message)
        return (about, user_mark(workspace, event.user)) if event.user else (about,)
    return tuple(user_mark(workspace, user) for user in _users_of(event))


def _users_of(event: Event) -> tuple[str, ...]:
    if isinstance(event, UserEvent):
        return (event.id,)
    if isinstance(event, MembershipEvent):
        return (event.user,)
    if isinstance(event, AttributeEvent) and event.entity == "user":
        return (event.id,)
    if isinstance(event, TieEvent) and event.entity == "user":
        return (event.id, event.same_as)
    return ()


def without(event: Event, forbidden: Iterable[str]) -> Event | None:
    """The event as far as the marks let it be taken in: not at all, or without naming whom they forget."""
    marks = frozenset(forbidden)
    if marks.intersection(marks_on(event)):
        return None
    if isinstance(event, GroupEvent):
        members = _left(event.members, event.workspace, marks)
        return event if members == event.members else msgspec.structs.replace(event, members=members)
    if isinstance(event, UserEvent):
        manager = next(iter(_left((event.manager,), event.workspace, marks)), None) if event.manager else None
        same = _left(event.same_as, event.workspace, marks)
        if (manager, same) != (event.manager, event.same_as):
            return msgspec.structs.replace(event, manager=manager, same_as=same)
    return event


def _left(users: tuple[str, ...], workspace: str, marks: frozenset[str]) -> tuple[str, ...]:
    return tuple(user for user in users if user_mark(workspace, user) not in marks)


def asked_about(event: Event) -> tuple[str, ...]:
    """The marks to look up before an event is taken in."""
    named: tuple[str, ...] = ()
    if isinstance(event, GroupEvent):
        named = event.members
    elif isinstance(event, UserEvent):
        named = (*event.same_as, *((event.manager,) if event.manager else ()))
    return (*marks_on(event), *(user_mark(event.workspace, user) for user in named))
