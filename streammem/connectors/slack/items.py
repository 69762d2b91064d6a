"""Whatever Slack sends, cut into its records: wrapped events, Socket Mode envelopes, pages of the Web API, rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streammem.connectors.fields import Row, as_list, row_of, rows_of, text_of
from streammem.connectors.report import IgnoredError
from streammem.connectors.slack.message import exact_ts
from streammem.errors import RejectedError

_DEPTH = 3
"""An envelope holds a wrapper holds an event."""
_CONTROL = frozenset({"hello", "disconnect", "goodbye", "ping", "pong", "reconnect_url"})
_INTERACTIONS = frozenset(
    {
        *("interactive", "block_actions", "block_suggestion", "message_action", "shortcut", "view_submission"),
        *("view_closed", "interactive_message", "dialog_submission", "workflow_step_edit"),
    }
)
_LISTS = {
    "channels": "channel",
    "groups": "channel",
    "ims": "channel",
    "mpims": "channel",
    "usergroups": "group",
    "bots": "bot",
    "users": "user",
}
_OBJECTS = {"user": "user", "channel": "channel", "group": "channel", "usergroup": "group", "bot": "bot"}


@dataclass(frozen=True, slots=True)
class Item:
    """One record. `kind` is message, user, channel, group, bot, member, or the type of another event.

    `channel`, `team` and `when` are what stands around the row: the channel of its page, the workspace and the time
    that its wrapper names. A record that cannot be read says `why`.
    """

    kind: str
    row: Row = field(default_factory=dict)
    channel: str = ""
    team: str = ""
    when: str = ""
    why: IgnoredError | RejectedError | None = None


def items_of(payload: Any, depth: int = 0) -> Iterator[Item]:
    """The records of a payload, refused ones too: nothing is passed over and nothing raised."""
    if isinstance(payload, list):
        for value in payload:
            yield from items_of(value, depth + 1) if isinstance(value, dict) else (_refused(value),)
    elif not isinstance(payload, dict):
        yield _refused(payload)
    elif depth <= _DEPTH and ("envelope_id" in payload or payload.get("type") == "events_api"):
        yield from _of_envelope(payload, depth)
    elif why := _reason_to_ignore(payload):
        yield Item("ignored", why=IgnoredError(why))
    elif isinstance(payload.get("event"), dict) or payload.get("type") == "event_callback":
        yield _of_wrapper(payload)
    elif kind := text_of(payload, "type"):
        yield _of_event(payload, kind, "", "")
    else:
        yield from _of_page(payload)


def _refused(value: Any) -> Item:
    return Item("refused", why=RejectedError("not-an-object", f"a record is {type(value).__name__}"))


def _reason_to_ignore(payload: Row) -> str:
    kind = text_of(payload, "type")
    if kind in _CONTROL:
        return "socket-control"
    if kind == "slash_commands" or ("command" in payload and "response_url" in payload):
        return "slash-command"
    if kind in _INTERACTIONS:
        return "interaction"
    return {"url_verification": "url-verification", "app_rate_limited": "rate-limited"}.get(kind, "")


def _of_envelope(envelope: Row, depth: int) -> Iterator[Item]:
    """What Socket Mode delivers; the reasons to ignore an envelope stand in its type."""
    if why := _reason_to_ignore(envelope):
        yield Item("ignored", why=IgnoredError(why))
    elif "payload" in envelope:
        yield from items_of(envelope["payload"], depth + 1)
    else:
        yield Item("refused", why=RejectedError("no-event", "an envelope without a payload"))


# ---------------------------------------------------------------------------------------------------- events


def _of_wrapper(wrapper: Row) -> Item:
    event = row_of(wrapper, "event")
    if not event:
        return Item("refused", why=RejectedError("no-event", "a wrapper without an event"))
    when = str(wrapper.get("event_time") or "")
    return _of_event(event, text_of(event, "type"), team_of(wrapper), when)


def team_of(wrapper: Row) -> str:
    """The workspace that receives an event, not the one that caused it: in a shared channel people of many speak.

    An app that a whole organisation installed reads all its workspaces, whose channels may be in several of them.
    """
    installed = next(rows_of(wrapper, "authorizations"), {})
    if installed.get("is_enterprise_install") is True and (whole := text_of(installed, "enterprise_id")):
        return whole
    return text_of(installed, "team_id") or text_of(wrapper, "context_team_id", "team_id", "enterprise_id")


def _of_event(event: Row, kind: str, team: str, when: str) -> Item:
    kind, row = "message" if kind == "app_mention" else kind, event
    when = exact_ts(event.get("event_ts")) or when
    if kind in ("user_change", "team_join", "user_profile_changed"):
        kind, row = "user", row_of(event, "user")
    elif kind in ("bot_added", "bot_changed"):
        kind, row = "bot", row_of(event, "bot")
    elif kind in ("subteam_created", "subteam_updated"):
        kind, row = "group", row_of(event, "subteam")
    elif kind == "channel_created":  # told of public channels only
        kind, row = "channel", {"is_channel": True, **row_of(event, "channel")}
    elif kind in ("channel_joined", "group_joined", "mpim_joined"):
        kind, row = "channel", row_of(event, "channel")
    return Item(kind, row, channel_named(event), team, when)


def channel_named(row: Row) -> str:
    """The channel that stands in a row: an id, or an object with one."""
    return text_of(row, "channel", "channel_id") or text_of(row_of(row, "channel"), "id")


# ----------------------------------------------------------------------------------------------------- pages


def _of_page(page: Row) -> Iterator[Item]:
    if is_page_of_messages(page):
        yield from _messages(page)
    elif any(isinstance(page.get(key), list) for key in ("members", *_LISTS)):
        yield from _of_lists(page)
    elif isinstance(page.get("message"), dict):  # what was answered to somebody who posted
        yield Item("message", {"ts": page.get("ts"), **row_of(page, "message")}, channel_named(page))
    elif exact_ts(page.get("ts")) and not page.get("ok"):
        yield Item("message", page, channel_named(page))
    elif is_object_page(page):
        found = next(key for key in _OBJECTS if row_of(page, key))
        yield Item(_OBJECTS[found], row_of(page, found))
    else:
        yield _of_bare_row(page)


def is_page_of_messages(page: Row) -> bool:
    """Whether a page is of conversations.history, conversations.replies or a search."""
    messages = page.get("messages")
    return isinstance(messages, list) or isinstance(row_of(page, "messages").get("matches"), list)


def is_object_page(page: Row) -> bool:
    """Whether a page is of users.info, conversations.info or the like: about one thing."""
    return any(row_of(page, key) for key in _OBJECTS)


def messages_in(page: Row) -> list[Any]:
    """The rows of a page of messages: what a channel or thread holds, or what a search found."""
    return as_list(page.get("messages")) or as_list(row_of(page, "messages").get("matches"))


def _messages(page: Row) -> Iterator[Item]:
    channel = channel_named(page)
    for row in messages_in(page):
        if isinstance(row, dict):
            yield Item("message", row, channel_named(row) or channel)
            # dumps of slackdump nest a thread in its root
            yield from (Item("message", reply, channel) for reply in rows_of(row, "slackdump_thread_replies"))
        else:
            yield _refused(row)


def _of_lists(page: Row) -> Iterator[Item]:
    for member in as_list(page.get("members")):
        if isinstance(member, str):
            yield Item("member", {"user": member}, channel_named(page))
        else:
            yield Item("user", member) if isinstance(member, dict) else _refused(member)
    for key, kind in _LISTS.items():
        for row in as_list(page.get(key)):
            if isinstance(row, str):  # who is in a group, without the group
                yield Item("ignored", why=IgnoredError("ids-only"))
            else:
                yield Item(kind, row) if isinstance(row, dict) else _refused(row)


def _of_bare_row(row: Row) -> Item:
    """A row of a list by itself, as data pipelines hand them over; else a page that says why it is none."""
    if row.get("ok") is True:
        return Item("ignored", why=IgnoredError("other-page"))
    if "ok" in row:
        return Item("refused", why=RejectedError("error-page", text_of(row, "error") or "ok is not true"))
    if text_of(row, "member_id") and text_of(row, "channel_id"):
        return Item("member", {"user": row["member_id"]}, channel_named(row))
    if text_of(row, "id") and (kind := _kind_of_row(row)):
        return Item(kind, row)
    return Item("refused", why=RejectedError("unknown-payload", f"fields: {', '.join(sorted(row)[:8])}"))


def _kind_of_row(row: Row) -> str:
    if "profile" in row:
        return "user"
    if not {"is_channel", "is_group", "is_im", "is_mpim", "is_private"}.isdisjoint(row):
        return "channel"
    return "group" if "handle" in row or row.get("is_usergroup") is True else ""
