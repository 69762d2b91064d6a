"""Untrusted JSON objects, read field by field: a value of another type than expected counts as absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


def text_of(row: Row, *keys: str) -> str:
    """The first of the fields that holds words. Slack writes "nobody" as null, as "" and as "None"."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value and value != "None":
            return value
    return ""


def words_of(row: Row, key: str) -> str:
    """The field as it was written, empty when it is no text."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def as_row(value: Any) -> Row:
    """The object, an empty one when it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The list, an empty one when it is none."""
    return value if isinstance(value, list) else []


def row_of(row: Row, key: str) -> Row:
    """The object in a field, an empty one when there is none."""
    return as_row(row.get(key))


def rows_of(row: Row, key: str) -> Iterator[Row]:
    """The objects in a list field."""
    return (item for item in as_list(row.get(key)) if isinstance(item, dict))


def texts_of(row: Row, key: str) -> tuple[str, ...]:
    """The texts in a list field, each once, in their order."""
    return tuple(dict.fromkeys(item for item in as_list(row.get(key)) if isinstance(item, str) and item))


def count_of(row: Row, key: str) -> int:
    """A count, written as a number or as text; 0 when there is none."""
    value = row.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
