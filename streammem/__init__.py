"""streammem: an organisation's group chat as a memory that agents can query, with verbatim evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streammem.client import StreamMemory, connect
    from streammem.memory import Memory, open_memory
    from streammem.records import Answer, ChannelRef, Evidence, MessageEvent, Sender

__all__ = [
    "Answer",
    "ChannelRef",
    "Evidence",
    "Memory",
    "MessageEvent",
    "Sender",
    "StreamMemory",
    "connect",
    "open_memory",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that `import streammem` loads no client library."""
    if name in ("Memory", "open_memory"):
        from streammem import memory  # noqa: PLC0415

        return getattr(memory, name)
    if name in ("StreamMemory", "connect"):
        from streammem import client  # noqa: PLC0415

        return getattr(client, name)
    if name in __all__:
        from streammem import records  # noqa: PLC0415

        return getattr(records, name)
    raise AttributeError(f"module 'streammem' has no attribute {name!r}")
