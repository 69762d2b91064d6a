"""Vector indexes over qdrant-client: its local mode, always there, and a real server if one is named."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from qdrant_client import AsyncQdrantClient

from streammem.backends.qdrant_server import QdrantIndex

SERVER = os.environ.get("STREAMMEM_TEST_QDRANT", "")

needs_server = pytest.mark.skipif(
    not SERVER, reason="NOT RUN, like the contract suite on it: STREAMMEM_TEST_QDRANT names no Qdrant server"
)

quiet = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
"""Local mode says that it ignores payload indexes. The tests that look at them answer for the server themselves."""


def local(client: AsyncQdrantClient, model: str = "tiny", dimensions: int = 8, **options: Any) -> QdrantIndex:
    """An index, not opened yet, over a client in local mode."""
    return QdrantIndex("http://local", model, dimensions, prefix="t", client=client, **options)


@asynccontextmanager
async def on_server(dimensions: int) -> AsyncIterator[QdrantIndex]:
    """An open index in collections of its own on the named server; they are dropped in the end."""
    prefix = f"test-{uuid4().hex[:12]}"
    index = QdrantIndex(SERVER, "tiny", dimensions, prefix=prefix, api_key=os.environ.get("STREAMMEM_TEST_QDRANT_KEY"))
    await index.open()
    try:
        yield index
    finally:
        for collection in (index._messages, index._nodes):
            await index._drop(collection)
        await index.close()
