"""Every number and name that can be set: read once, frozen. The only place that reads the environment.

Variables are STREAMMEM_<GROUP>__<FIELD>, e.g. STREAMMEM_FOREST__K=8. Defaults are those of EGCForest Table 8
("Table 8" below); where the paper is silent or we measured better, the comment says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from streammem.errors import SettingsError


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ForestSettings(_Group):
    """The shape of the forests. `k` is bound to the memory: another k means rebuild."""

    k: int = Field(16, ge=2, le=256, description="Branching factor (Table 8).")
    lifecycle_markers: int = Field(2, ge=1, description="Different lifecycle markers that make an identifier a tree.")


class EmbeddingSettings(_Group):
    """The embedding model and its batches."""

    model: str = Field("minilm-l6-int8", description="Default: all-MiniLM-L6-v2 as int8 ONNX; or any fastembed model.")
    path: Path | None = Field(None, description="A folder with the model's files, instead of the cache.")
    cache: Path | None = Field(None, description="Where fetched models are kept; default: the user's cache folder.")
    max_tokens: int = Field(256, ge=16, le=8192, description="Texts are cut here (design §8).")
    batch_tokens: int = Field(4096, ge=64, description="Padded tokens in one batch, which also bounds memory.")
    pool: int = Field(2048, ge=1, description="Messages sorted by length together before they are cut in batches.")
    threads: int | None = Field(None, description="Threads of the model; default: one for each core.")


class RetrievalSettings(_Group):
    """The four stages."""

    limit: int = Field(20, ge=1, le=200, description="Final messages (Table 8).")
    budget: int = Field(3000, ge=100, description="Tokens of the whole answer (Table 8).")
    header_share: float = Field(0.35, ge=0, le=1, description="Most of the budget that headers may take (Table 8).")
    seeds: int = Field(100, ge=1, description="Depth of each ranking that is fused. Silent in the paper.")
    rrf: int = Field(60, ge=0, description="RRF constant for messages (Table 8).")
    dense_weight: float = Field(1.0, ge=0, description="λ_d: weight of the dense ranking in seeding.")
    rrf_tree: int = Field(0, ge=0, description="RRF constant for trees, η_tree (Table 8): weight / rank.")
    weight_leaf2tree: float = Field(2.0, ge=0, description="Table 8.")
    weight_root: float = Field(0.8, ge=0, description="Table 8.")
    weight_collapsed: float = Field(0.8, ge=0, description="Table 8.")
    trees_per_view: int = Field(8, ge=1, description="Trees selected in each view. Silent in the paper.")
    anchors: int = Field(14, ge=0, description="S1 quota (Table 8).")
    expansion: int = Field(6, ge=0, description="S2 and S3 quota together (Table 8).")
    completion: int = Field(2, ge=0, description="Places of the expansion quota kept for S3 (design §9).")
    paths: int = Field(8, ge=0, description="S2 paths (Table 8).")
    leaves_per_path: int = Field(4, ge=0, description="S2 leaf cap a path (Table 8).")
    fan_out: int = Field(2, ge=0, description="Bridge fan-out b (Table 8).")
    bridge_messages: int = Field(2, ge=0, description="Bridge messages a query (Table 8).")
    window: int = Field(3, ge=0, description="Neighbours looked at on each side. Silent in the paper.")
    join_floor: float = Field(0.35, description="Least cosine of a placement join's candidate. Silent in the paper.")
    floor: float = Field(0.0, description="Least cosine of the best evidence; below it the answer abstains.")


class SummarySettings(_Group):
    """Node summaries."""

    sentences: int = Field(3, ge=1, le=10, description="Messages quoted in an extractive summary.")
    characters: int = Field(160, ge=20, description="Longest quote in an extractive summary.")
    diversity: float = Field(0.5, ge=0, le=1, description="λ of MMR: 1 is centroid only.")


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(env_prefix="STREAMMEM_", env_nested_delimiter="__", frozen=True, extra="ignore")

    forest: ForestSettings = ForestSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    summary: SummarySettings = SummarySettings()
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    batch: int = Field(500, ge=1, description="Events appended to the log at a time.")


def load() -> Settings:
    """Read the settings from the environment. Raises SettingsError naming the variable and what it must be."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "STREAMMEM_" + "__".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name} is wrong: {first['msg']}") from None
