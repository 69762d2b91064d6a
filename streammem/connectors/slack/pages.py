"""What pages of the Web API say exists and did not hand over: replies, further pages, history behind a limit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from streammem.connectors.fields import Row, count_of, row_of, text_of
from streammem.connectors.report import Report
from streammem.connectors.slack.items import channel_named, is_page_of_messages, messages_in
from streammem.connectors.slack.message import exact_ts
from streammem.connectors.slack.threads import Threads


class Account:
    """The pages of one import, gathered while they are read, settled when all are. Holds ids only."""

    def __init__(self) -> None:
        self._threads: defaultdict[str, Threads] = defaultdict(Threads)
        self._goes_on: dict[str, bool] = {}
        self._limited: dict[str, None] = {}

    def see_message(self, row: Row, channel: str) -> None:
        self._threads[channel].see(row)

    def see_page(self, page: Any, channel: str) -> None:
        if not isinstance(page, dict) or "type" in page:
            return
        if page.get("is_limited") is True:
            self._limited[channel] = None
        if (goes_on := _goes_on(page)) is not None:
            listing = _listing(page, channel)
            self._goes_on[listing] = goes_on and self._goes_on.get(listing, True)

    def settle(self, report: Report) -> None:
        for channel, threads in sorted(self._threads.items()):
            threads.settle(channel, report)
        for listing in sorted(listing for listing, goes_on in self._goes_on.items() if goes_on):
            report.gap("more-pages", listing)
        for channel in sorted(self._limited):
            report.gap("limited-history", channel)


def _goes_on(page: Row) -> bool | None:
    """Whether a page announces another one; None when it is no page of several."""
    paging = row_of(row_of(page, "messages"), "paging") or row_of(page, "paging")
    if not ({"has_more", "response_metadata"}.intersection(page) or paging):
        return None
    further = bool(text_of(row_of(page, "response_metadata"), "next_cursor"))
    return page.get("has_more") is True or further or count_of(paging, "page") < count_of(paging, "pages")


def _listing(page: Row, channel: str) -> str:
    """What the page is one of: the history of a channel, the replies of a thread, the people, what a search found."""
    if is_page_of_messages(page):
        return "#".join(filter(None, (channel or text_of(page, "query"), _thread(page))))
    listed = sorted(key for key, value in page.items() if isinstance(value, list))
    return "/".join(filter(None, (channel_named(page), *listed[:1])))


def _thread(page: Row) -> str:
    """The thread that a page is of: all its rows are in it, and not as its root only."""
    rows = [row if isinstance(row, dict) else {} for row in messages_in(page)]
    roots = {exact_ts(row.get("thread_ts")) for row in rows}
    return roots.pop() if len(roots) == 1 and any(exact_ts(row.get("ts")) not in roots for row in rows) else ""
