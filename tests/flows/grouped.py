"""A memory whose identifiers are grouped and whose commonplaces are counted, as the stream does it beside the flows."""

from __future__ import annotations

import msgspec

from streammem.core import artifacts
from streammem.core.artifacts import Reading
from streammem.core.identifiers import DEFAULT_RULES
from streammem.core.numbers import Grouping
from streammem.flows.artifacts import said_in_public
from streammem.flows.sight import Desk
from tests.flows.worlds import World

GROUPING = Grouping(commonplace=2)
"""Small stories repeat little."""


class GroupedWorld(World):
    """Every question meets what its public channels give at that time, or gave when they were last looked at."""

    _kept: Reading | None = None

    async def keep_groups(self) -> None:
        """From now on questions meet the groups as they are now, whatever is told: a grouping lags behind."""
        self._kept = await self.groups()

    async def groups(self, workspace: str = "w") -> Reading:
        """What the messages in public channels give."""
        public = await said_in_public(workspace, self.store)
        vectors = self.embedder.encode([v.text for v in public])
        by_uid = {v.uid: vector for v, vector in zip(public, vectors, strict=True)}
        return Reading(artifacts.grouped(workspace, public, by_uid, DEFAULT_RULES, GROUPING))

    async def desk(self, workspace: str = "w") -> Desk:
        reading = self._kept or await self.groups(workspace)
        return msgspec.structs.replace(await super().desk(workspace), artifacts=reading)
