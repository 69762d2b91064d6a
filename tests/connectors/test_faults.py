"""Every fault of tests/data/faults gives its right result through the connector that an import would use."""

from __future__ import annotations

from pathlib import Path

import pytest

from streammem.connectors import ALIASES, CONNECTORS
from tests.connectors.faults import FAULTS, check, named

NUMBERS = sorted(path.name[:2] for path in FAULTS.glob("*.json"))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_fault_gives_its_right_result(number: str, tmp_path: Path) -> None:
    name = named(number)["format"]
    check(number, tmp_path, CONNECTORS[ALIASES.get(name, name)].read)
