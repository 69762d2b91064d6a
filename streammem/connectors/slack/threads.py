"""What pages and day files say exists, against what they hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from streammem.connectors.fields import Row, count_of
from streammem.connectors.report import Report
from streammem.connectors.slack.message import exact_ts


@dataclass
class Threads:
    """Replies that the roots of one channel announce, against those that came. Holds ids only."""

    announced: dict[str, int] = field(default_factory=dict)
    came: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def see(self, row: Row) -> None:
        if "thread_ts" not in row:
            return
        ts, root = exact_ts(row.get("ts")), exact_ts(row.get("thread_ts"))
        if root and root == ts:
            self.announced[root] = max(count_of(row, "reply_count"), self.announced.get(root, 0))
        elif root:
            self.came[root].add(ts)

    def settle(self, origin: str, report: Report) -> None:
        for root, announced in self.announced.items():
            if (missing := announced - len(self.came.get(root, ()))) > 0:
                report.gap("missing-replies", f"{origin}#{root}", missing)
        for root in sorted(self.came.keys() - self.announced.keys()):
            report.gap("missing-root", f"{origin}#{root}")
