"""Untrusted JSON objects, read field by field: a value of another type than expected counts as absent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]

_NUMBER = re.compile(r"\d{1,16}(?:\.\d{1,16})?(?:[eE]\+?\d{1,2})?", re.ASCII)


def text_of(row: Row, *keys: str) -> str:
    """The first of the fields that holds words: blanks are none. Slack writes "nobody" as null, as "" and as "None"."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value and value != "None" and not value.isspace():
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
    """A count, written as a number or as text; 0 when there is none.

    >>> [count_of({"n": value}, "n") for value in (1700000000000, "1700000000000", "1.7e12", "1700000000000.0", "1.5")]
    [1700000000000, 1700000000000, 1700000000000, 1700000000000, 0]
    """
    value = row.get(key)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        exact = Decimal(value)
        return int(exact) if exact < 2**53 and exact == int(exact) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
