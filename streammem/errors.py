"""The error tree. The class decides what a worker does with it (design §11).

    StreammemError
    ├── TransientError       retry in place with backoff, no commit
    │   ├── ModelBusyError       a language model's server is away, busy or at its limit; may say when to come again
    │   └── PausedError          no call of a language model may be made now: a person or the budget says so
    ├── RejectedError        the record cannot be used: dead-letter it with `reason`, then commit
    ├── QueryError           the question cannot be answered as asked: returned in the answer
    └── SettingsError        wrong or missing set-up: exit at start, naming the field or file
        ├── MemoryHeldError      another process holds the memory directory
        ├── MemoryFormatError    the directory was written by another version, k, rule table or model
        ├── SourceError          an export that cannot be read at all
        ├── ModelError           the embedding model is absent or damaged
        └── MissingExtraError    an optional part is not installed: names the extra

Every message is one line that names the thing and the mend.
"""

from __future__ import annotations


class StreammemError(Exception):
    """Base of every error that streammem raises on purpose."""


class TransientError(StreammemError):
    """A server is away or busy; the same call may succeed later."""


class ModelBusyError(TransientError):
    """A language model's server cannot answer now.

    `after`: seconds to wait, if it said so (Retry-After). `charged`: it may have worked for the call all the same, as
    when the connection was cut or the time ran out.
    """

    def __init__(self, message: str, after: float | None = None, *, charged: bool = False) -> None:
        super().__init__(message)
        self.after = after
        self.charged = charged


class PausedError(TransientError):
    """No call of a language model may be made for `wait` seconds: a person paused them or the day's budget is spent."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class RejectedError(StreammemError):
    """A record that cannot be used. `reason` is a short stable code for counts, the message tells a person."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class QueryError(StreammemError):
    """A question that cannot be answered as asked (an unknown asker, channel or time)."""


class SettingsError(StreammemError):
    """Wrong or missing set-up."""


class MemoryHeldError(SettingsError):
    """Another process holds the memory directory."""


class MemoryFormatError(SettingsError):
    """The memory was written by another version, k, rule table or embedding model."""


class SourceError(SettingsError):
    """An export that cannot be read at all."""


class ModelError(SettingsError):
    """The embedding model is absent, damaged or cannot be fetched."""


class MissingExtraError(SettingsError):
    """An optional part is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: run pip install 'streammem[{extra}]'")
