"""What people and programs see. Chat text is untrusted: nothing in it may act on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# C0 but tab and newline, DEL, C1, and the marks that turn the direction of text (CVE-2021-42574).
_ACTING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_ACTING}]")
_RAW_IN_JSON = re.compile(f"[{_ACTING}\u2028\u2029]")


def plain(text: str) -> str:
    """The text without anything that a terminal obeys; lines and tabs stay."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n"))


def line(text: str) -> str:
    """The same on one line."""
    return " ".join(plain(text).split())


def utc(microseconds: int) -> str:
    """ISO 8601 with Z, as short as it is exact."""
    from streammem.core.events import moment

    return moment(microseconds).isoformat().replace("+00:00", "Z")


def minute(microseconds: int) -> str:
    """A time for people."""
    from streammem.core.events import moment

    return f"{moment(microseconds):%Y-%m-%d %H:%M} UTC"


def as_json(value: Any) -> str:
    """Indented JSON that keeps every character of the value but prints none that a terminal obeys."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _RAW_IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def put_json(value: Any) -> None:
    """Print a result for programs: alone on stdout."""
    sys.stdout.write(as_json(value) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell something beside the result: one line on stderr, at once."""
    sys.stderr.write(line(text) + "\n")
    sys.stderr.flush()


def console(width: int | None = None, *, err: bool = False) -> Console:
    """Where results for people go (`err`: what is told beside them), as wide as the terminal or `width`.

    Give it Text, never strings with chat in them: those would be read as markup.
    """
    from rich.console import Console

    return Console(width=width, stderr=err, markup=False, emoji=False, highlight=False)


def put_counts(title: str, counts: Mapping[str, Any], *, err: bool = False) -> None:
    """Print names and numbers under a title, aligned."""
    from rich.text import Text

    out = console(err=err)
    out.print(Text(title, style="bold"), soft_wrap=True)
    width = max((len(name) for name in counts), default=0)
    for name, value in counts.items():
        shown = f"{value:,}" if isinstance(value, int) else line(str(value))
        out.print(Text(f"  {line(name).replace('_', ' '):<{width}}  {shown}"), soft_wrap=True)
