"""What can be set from outside: read once, frozen. The only place that reads the environment.

Variables are STREAMMEM_<GROUP>__<FIELD>, e.g. STREAMMEM_FOREST__K=8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from streammem.core.numbers import Forest, Retrieval, Summarizing
from streammem.errors import SettingsError


class EmbeddingSettings(BaseModel):
    """The embedding model and its batches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field("minilm-l6-int8", description="all-MiniLM-L6-v2 as int8 ONNX; or any model fastembed knows.")
    path: Path | None = Field(None, description="A folder with the model's files, instead of the cache.")
    cache: Path | None = Field(None, description="Where fetched models are kept; default: the user's cache folder.")
    max_tokens: int = Field(256, ge=16, le=8192, description="Texts are cut here (design §8).")
    batch_tokens: int = Field(2048, ge=64, description="Padded tokens in one batch: speed against memory.")
    threads: int | None = Field(None, ge=1, description="Threads of the model; default: one for each core.")


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(env_prefix="STREAMMEM_", env_nested_delimiter="__", frozen=True, extra="ignore")

    forest: Forest = Forest()
    retrieval: Retrieval = Retrieval()
    summary: Summarizing = Summarizing()
    embedding: EmbeddingSettings = EmbeddingSettings()
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    batch: int = Field(500, ge=1, description="Events appended to the log at a time.")
    wait: float = Field(5.0, ge=0, description="Seconds to wait for another process that holds the memory.")
    pool: int = Field(1024, ge=1, description="Messages embedded at a time, sorted by length before they are batched.")


def load() -> Settings:
    """Read the settings from the environment. Raises SettingsError naming the variable and what it must be."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "STREAMMEM_" + "__".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name} is wrong: {first['msg']}") from None
