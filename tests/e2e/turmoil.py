"""The events of a busy workspace in the worst order: edits, deletions, renames, replies, repetitions, all shuffled."""

from __future__ import annotations

import random
from datetime import timedelta

import msgspec

from streammem.records import ChannelEvent, Event, MembershipEvent, MessageEvent, UserEvent
from tests.stories import START, deleted, edited, said

CHANNELS = [f"c{n}" for n in range(9)]
PRIVATE = "c8"
STILL = "c9"
USERS = [f"u{n}" for n in range(20)]
TEXTS = (
    "draft of DOC-{n} is up for review",
    "DOC-{n} approved, PR #{n} can go",
    "PR #{n} merged, see DOC-{n}",
    "the rollout is blocked on APP-{n}",
    "lunch at noon? the soup is good today",
    "who takes the pager this week",
    "the berth map of the north pier is wrong again",
    "released v1.{n}.0, watching the dashboards",
)


def turmoil(messages: int, seed: int) -> list[Event]:
    """So many messages with all that happens to them, in an order that depends on the seed alone."""
    chance = random.Random(seed)
    events: list[Event] = [*_directory(chance)]
    told: list[MessageEvent] = []
    for number in range(messages):
        told.append(_said(number, told, chance))
    for message in told:
        events.append(message)
        minute = (message.ts - START) / timedelta(minutes=1)  # type: ignore[operator]
        if chance.random() < 0.15:
            events.append(edited(message, f"{message.text}, corrected {chance.randrange(9)}", minute + 1))
        if chance.random() < 0.05:
            events.append(edited(message, f"{message.text}, for the last time", minute + 2))
        if chance.random() < 0.06:
            events.append(deleted(message, minute + 3))
    events += chance.choices(events, k=len(events) // 10)
    chance.shuffle(events)
    return events


def gust(messages: int, seed: int) -> list[Event]:
    """So many messages in a channel where nothing else happens: what is lost of them is never made good by others."""
    chance = random.Random(seed)
    texts = [chance.choice(TEXTS).format(n=n) for n in range(messages)]
    return [said(f"g{n}", text, user="u1", channel=STILL, minute=n) for n, text in enumerate(texts)]


def _said(number: int, told: list[MessageEvent], chance: random.Random) -> MessageEvent:
    channel = chance.choice(CHANNELS)
    recent = [m for m in told[-60:] if m.channel.id == channel]
    target = chance.choice(recent).id if recent and chance.random() < 0.3 else None
    text = chance.choice(TEXTS).format(n=chance.randrange(40))
    message = said(
        str(number),
        text,
        user=chance.choice(USERS),
        channel=channel,
        minute=number * 0.7 + chance.random() * 5,
        reply_to=target,
        thread_id=target,
        mentions=(chance.choice(USERS),) if chance.random() < 0.2 else (),
    )
    nameless = msgspec.structs.replace(message.sender, name=None)  # the directory names people, now and then anew
    return msgspec.structs.replace(message, sender=nameless)


def _directory(chance: random.Random) -> list[Event]:
    facts: list[Event] = []
    for channel in (*CHANNELS, STILL):
        kind = "private" if channel == PRIVATE else "public"
        facts.append(ChannelEvent(workspace="w", id=channel, version="1", name=f"room {channel}", type=kind))
    facts += [MembershipEvent(workspace="w", channel=PRIVATE, user=user, version="1") for user in USERS[:5]]
    for user in USERS:
        facts.append(UserEvent(workspace="w", id=user, version="1", name=f"Person {user}"))
        if chance.random() < 0.3:
            facts.append(UserEvent(workspace="w", id=user, version="2", name=f"Married {user}"))
    return facts
