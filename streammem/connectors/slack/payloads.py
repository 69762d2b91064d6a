"""All that Slack sends to canonical events: events, Socket Mode envelopes and pages of its Web API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from streammem.connectors.connector import NOTHING, Given
from streammem.connectors.fields import as_list, as_row, row_of, text_of
from streammem.connectors.payload_files import PayloadFiles
from streammem.connectors.report import Report
from streammem.connectors.slack.changes import facts_in_message, facts_of
from streammem.connectors.slack.directory import given_name, stated_type
from streammem.connectors.slack.items import Item, channel_named, is_object_page, is_page_of_messages, items_of
from streammem.connectors.slack.learned import SPOKEN_TYPES, Learned
from streammem.connectors.slack.message import Place, events_of, exact_ts
from streammem.connectors.slack.pages import Account
from streammem.errors import RejectedError
from streammem.records import ChannelRef, Event

EVENTS = "slack-events"
HISTORY = "slack-history"

_LISTS = ("messages", "members", "channels", "usergroups")
_SPOKEN = frozenset({"app_mention", "im", "mpim", "group"})
"""Other types of messages: what is said to an app, and what a search found in closed conversations."""
_CHANNEL_IN_NAME = re.compile(r"(?:^|[/!])([CDG](?=[A-Z]*\d)[A-Z0-9]{3,})(?=[./#!]|$)")
"""A channel's id as the name of a file or folder, as people store pages that do not say whose they are."""


class SlackPayloads:
    """Reads Slack's payloads (connectors.connector).

    `account` gathers what pages leave out, for a whole import.
    """

    def __init__(self, given: Given = NOTHING, source_format: str = EVENTS, account: Account | None = None) -> None:
        self._given = given
        self._format = source_format
        self._account = account
        self._learned = Learned()
        self._workspaces: dict[tuple[str, str], str] = {}

    def learn(self, payload: Any) -> None:
        self._workspaces.clear()
        in_list = isinstance(payload, dict) and any(isinstance(row, dict) for row in as_list(payload.get("members")))
        for item in items_of(payload):
            if item.why is None:
                self._learned.note(item, in_list=in_list)

    def read(self, payload: Any, report: Report, origin: str) -> Iterator[Event]:
        many = _is_page(payload)
        for index, item in enumerate(items_of(payload)):
            place = f"{origin}/{index}" if many else origin
            yield from report.counted(partial(self._events, item, place), place)
            if self._account is not None and item.kind == "message" and not item.when:
                self._account.see_message(item.row, self._channel(item, origin))
        if self._account is not None and many:
            self._account.see_page(payload, self._channel(Item("page", as_row(payload)), origin))
        if isinstance(payload, dict) and payload.get("type") == "app_rate_limited":
            report.gap("rate-limited", origin)

    def _events(self, item: Item, origin: str) -> Iterator[Event]:
        if item.why is not None:
            raise item.why
        channel = self._channel(item, origin)
        workspace = self._given.workspace or self._workspace(channel, item.team)
        if item.kind != "message":
            yield from facts_of(item, workspace, channel, self._learned)
        elif not channel:
            raise RejectedError("no-channel", "a message names no channel, and none was given")
        else:
            row = {**item.row, "type": "message"} if text_of(item.row, "type") in _SPOKEN else item.row
            place = self._place(item, workspace, channel)
            yield from events_of(row, place, origin)
            yield from facts_in_message(row, workspace, place.channel)

    def _workspace(self, channel: str, team: str) -> str:
        """The workspace of a channel, worked out once after each learning."""
        if (known := self._workspaces.get((channel, team))) is None:
            known = self._workspaces[channel, team] = self._learned.workspace(channel, team) or self._home
        return known

    @property
    def _home(self) -> str:
        """Read one by one, the pages of a channel must not end in two workspaces because of who spoke in them."""
        return self._learned.home(by_speakers=self._account is not None) or "slack"

    def _channel(self, item: Item, origin: str) -> str:
        """The id in use of the channel that a record belongs to."""
        if item.kind in ("user", "bot", "group"):
            return ""
        if item.kind == "channel":
            named = text_of(item.row, "id")
        else:
            named = item.channel or text_of(row_of(item.row, "item"), "channel") or channel_named(item.row)
            named = named or text_of(item.row, "old_channel_id") or self._given.channel or _channel_in(origin)
        return self._learned.current(named)

    def _place(self, item: Item, workspace: str, channel: str) -> Place:
        learned = self._learned
        return Place(
            workspace=workspace,
            channel=self._hinted(item, channel),
            names=learned.names,
            kinds=learned.kinds,
            has_directory=learned.has_users,
            domain=self._given.domain,
            source_format=self._format,
        )

    def _hinted(self, item: Item, channel: str) -> ChannelRef:
        """The channel, with what is said of it in passing where no list states it."""
        if channel in self._learned.listed:
            return ChannelRef(id=channel)
        told = row_of(item.row, "channel")  # search results hold the channel itself
        spoken = SPOKEN_TYPES.get(text_of(item.row, "channel_type")) or (stated_type(told) if told else None)
        kind = spoken or self._learned.types.get(item.channel) or self._learned.types.get(channel)
        if not told:
            return ChannelRef(id=channel, type=kind)
        return ChannelRef(id=channel, name=given_name(text_of(told, "name"), kind) or None, type=kind)


def _channel_in(origin: str) -> str:
    found = _CHANNEL_IN_NAME.findall(origin)
    return found[-1] if found else ""


def _is_page(payload: Any) -> bool:
    if isinstance(payload, dict) and "type" not in payload and "event" not in payload:
        return is_page_of_messages(payload) or any(isinstance(value, list) for value in payload.values())
    return isinstance(payload, list)


# ----------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class _SlackFiles(PayloadFiles):
    """Files of Slack's payloads; when all are read, the report says what their pages left out."""

    source_format: str = HISTORY

    def read(self, path: Path, report: Report, given: Given = NOTHING) -> Iterator[Event]:
        account = Account()
        payloads = SlackPayloads(given, self.source_format, account)
        yield from PayloadFiles.read(replace(self, make=lambda _: payloads), path, report, given)
        account.settle(report)


def _looks_like_event(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return False
    if payload.get("type") == "event_callback" or "envelope_id" in payload:
        return True
    if isinstance(payload.get("event"), dict):
        return "team_id" in payload or "api_app_id" in payload
    if payload.get("type") == "url_verification":
        return "challenge" in payload
    return bool(text_of(payload, "type") and exact_ts(payload.get("event_ts")))


def _looks_like_page(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return False
    if payload.get("type") == "message" or "type" not in payload:
        rows = as_list(payload.get("messages")) or as_list(row_of(payload, "messages").get("matches")) or [payload]
        if any(isinstance(row, dict) and _looks_like_message(row) for row in rows[:5]):
            return True
    return isinstance(payload.get("ok"), bool) and (_is_page(payload) or is_object_page(payload))


def _looks_like_message(row: Any) -> bool:
    words = {"text", "blocks", "attachments", "subtype"}.intersection(row)
    return bool(words) and isinstance(row.get("ts"), str) and "." in row["ts"] and bool(exact_ts(row["ts"]))


events = _SlackFiles(
    "Slack events: .jsonl of Events API or Socket Mode payloads",
    partial(SlackPayloads, source_format=EVENTS),
    _looks_like_event,
    source_format=EVENTS,
)
history = _SlackFiles(
    "pages of Slack's Web API (conversations.history and others): .json or .jsonl",
    partial(SlackPayloads, source_format=HISTORY),
    _looks_like_page,
    _LISTS,
)
