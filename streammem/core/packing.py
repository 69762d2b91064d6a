"""Which nodes are asked for in one call: small ones of one company, so that the instructions are paid once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

from streammem.core import prompts
from streammem.core.numbers import Wording
from streammem.core.prompts import Part


def alone(part: Part, numbers: Wording) -> bool:
    """Whether a part is asked for alone: it takes more tokens than the instructions do, so that little is saved."""
    return numbers.pack == 1 or prompts.tokens_of(part) > prompts.overhead(part.view, part.level, numbers.length)


def fits(part: Part, others: Many[Part], numbers: Wording) -> bool:
    """Whether a part goes into one call with others."""
    tokens = sum(map(prompts.tokens_of, (part, *others)))
    return not others or (len(others) < numbers.pack and tokens <= numbers.pack_tokens)


def groups(parts: Iterable[Part], numbers: Wording) -> Iterator[list[Part]]:
    """The calls that parts of one company are asked for with, if none has to wait for another."""
    together: list[Part] = []
    for part in parts:
        if alone(part, numbers):
            yield [part]
        elif fits(part, together, numbers):
            together.append(part)
        else:
            yield together
            together = [part]
    if together:
        yield together
