"""Types a streammem command in a process of its own, with an embedder that needs no model."""

from __future__ import annotations

import sys

from streammem import cli
from streammem.wiring import stream
from tests.embedding import HashingEmbedder


def main() -> None:
    stream.fastembed = lambda _: HashingEmbedder()
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
