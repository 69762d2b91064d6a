"""Reactions to a Teams message: those that stand, and from its history those that were taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from streammem.connectors.fields import Row, row_of, rows_of, text_of
from streammem.connectors.teams.identity import user_in
from streammem.connectors.teams.times import fact_version, time_of
from streammem.core.registers import number
from streammem.records import ReactionEvent

_Given = tuple[str, str]
"""Name of the reaction and id of its giver."""


def reactions_of(row: Row, message: tuple[str, str, str], said: datetime, changed: datetime) -> Iterator[ReactionEvent]:
    """A fact for each giver of each reaction, and one without a giver for those whose giver is not told.

    What the history names and the message no longer bears was taken back: by its own time, or by that of this version
    (`changed`). `message` is workspace, channel and id.
    """
    fact = partial(ReactionEvent, workspace=message[0], channel=message[1], message=message[2])
    past = _past(row)
    standing: dict[_Given, str] = {}
    unnamed: Counter[str] = Counter()
    for reaction in rows_of(row, "reactions"):
        if not (name := _name(reaction)):
            continue
        given = (name, user_in(reaction, "user"))
        unnamed[name] += not given[1]
        known = past.get(given, {}).get("reactionadded")
        version = fact_version(time_of(reaction.get("createdDateTime")) or known or said)
        standing[given] = max(version, standing.get(given, ""), key=number)
    for (name, user), version in standing.items():
        yield fact(name=name, user=user, count=1 if user else unnamed[name], version=version)
    for (name, user), actions in past.items():
        if user and (name, user) not in standing:
            version = fact_version(actions.get("reactionremoved") or max(changed, *actions.values()))
            yield fact(name=name, user=user, version=version, present=False)


def _past(row: Row) -> dict[_Given, dict[str, datetime]]:
    """The last time at which each reaction was given and taken back, as far as the history reaches."""
    past: dict[_Given, dict[str, datetime]] = {}
    for item in rows_of(row, "messageHistory"):
        reaction, action = row_of(item, "reaction"), text_of(item, "actions").casefold()
        name, when = _name(reaction), time_of(item.get("modifiedDateTime"))
        if name and when and action in ("reactionadded", "reactionremoved"):
            times = past.setdefault((name, user_in(reaction, "user")), {})
            times[action] = max(when, times.get(action, when))
    return past


def _name(reaction: Row) -> str:
    """`like` or the emoji itself; a custom one is told by the name it was given."""
    name = text_of(reaction, "reactionType")
    return text_of(reaction, "displayName") or name if name.casefold() == "custom" else name
