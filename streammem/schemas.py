"""JSON Schema of everything that crosses a process, made from the records.

python -m streammem.schemas            writes schemas/*.v1.json
python -m streammem.schemas --check    exits with 1 and names the files that differ from the code
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from streammem.records import (
    Answer,
    AttributeEvent,
    ChannelEvent,
    ErasureEvent,
    GroupEvent,
    MembershipEvent,
    MessageEvent,
    Query,
    ReactionEvent,
    TieEvent,
    UserEvent,
)

FOLDER = Path(__file__).resolve().parent.parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

RECORDS: Mapping[str, type[msgspec.Struct]] = MappingProxyType(
    {
        "message": MessageEvent,
        "reaction": ReactionEvent,
        "user": UserEvent,
        "channel": ChannelEvent,
        "membership": MembershipEvent,
        "group": GroupEvent,
        "attribute": AttributeEvent,
        "tie": TieEvent,
        "erasure": ErasureEvent,
        "query": Query,
        "answer": Answer,
    }
)


def schema_of(name: str) -> dict[str, Any]:
    """The schema of a record. Unknown properties are allowed: readers ignore what a later minor version adds."""
    (reference,), parts = msgspec.json.schema_components([RECORDS[name]], ref_template="#/$defs/{name}")
    own = parts.pop(reference["$ref"].rpartition("/")[2])
    head = {
        "$schema": DIALECT,
        "$id": f"https://streammem.invalid/schemas/{name}.v1.json",
        "title": f"streammem {name}, version 1",
        "description": own["description"],
    }
    return {**head, **{key: own[key] for key in sorted(own) if key not in head}, "$defs": dict(sorted(parts.items()))}


def files() -> dict[str, str]:
    """File name to content, the same at every run."""
    return {f"{name}.v1.json": json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n" for name in RECORDS}


def differing(folder: Path) -> list[str]:
    """The files of the folder that are not what the records say, absent and superfluous ones among them."""
    wanted = files()
    found = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.json")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with --check only compare them."""
    if "--check" in arguments:
        stale = differing(FOLDER)
        sys.stdout.write(f"differ from the code: {', '.join(stale)}\n" if stale else "schemas are up to date\n")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
