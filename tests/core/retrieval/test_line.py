"""A message as an answer model reads it."""

from __future__ import annotations

from streammem.core.retrieval import assemble
from streammem.records import Version


def test_a_speaker_is_rendered_with_the_title() -> None:
    said = Version(
        uid="w/c/1",
        number="1",
        deleted=False,
        hash="h",
        workspace="w",
        channel="c",
        id="1",
        ts=0,
        since=0,
        user="U1",
        text="DOC-1 is approved",
        markers=("approved",),
    )
    assert assemble.line(said, "#c", "Mira Young", "Mobile QA Lead") == (
        "#c 1970-01-01 00:00 Mira Young (Mobile QA Lead) [approved]: DOC-1 is approved"
    )
    assert assemble.line(said, "#c", "Mira Young") == "#c 1970-01-01 00:00 Mira Young [approved]: DOC-1 is approved"
