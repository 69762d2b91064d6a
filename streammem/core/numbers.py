"""The numbers that decisions take.

Defaults are EGCForest's ("Table 8" below); where the paper is silent or a measurement says otherwise, the line
says why. `settings.py` fills these from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
Weight = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The shape of the forests. `k` is bound to the memory: another k means rebuild."""

    k: Annotated[int, Ge(2), Le(256)] = 16  # Table 8
    lifecycle_markers: Positive = 2  # different markers that make an identifier a tree; the paper says "sufficient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The four stages."""

    limit: Annotated[int, Ge(1), Le(200)] = 20  # final messages, Table 8
    budget: Annotated[int, Ge(100)] = 3000  # tokens of the whole answer, Table 8
    header_share: Share = 0.35  # Table 8
    seeds: Positive = 100  # depth of each ranking that is fused; silent in the paper
    rrf: Count = 60  # RRF constant for messages, Table 8
    dense_weight: Weight = 1.0  # λ_d
    rrf_tree: Count = 0  # η_tree, Table 8: weight / rank
    weight_leaf2tree: Weight = 2.0  # Table 8
    weight_root: Weight = 0.8  # Table 8
    weight_collapsed: Weight = 0.8  # Table 8
    trees_per_view: Positive = 8  # silent in the paper
    anchors: Count = 14  # S1 quota, Table 8
    expansion: Count = 6  # S2 and S3 quota together, Table 8
    completion: Count = 2  # places of the expansion quota kept for S3, design §9
    paths: Count = 8  # S2, Table 8
    leaves_per_path: Count = 4  # S2, Table 8
    fan_out: Count = 2  # bridges, Table 8
    bridge_messages: Count = 2  # a query, Table 8
    window: Count = 3  # neighbours on each side; silent in the paper
    join_floor: float = 0.35  # least cosine of a placement join's candidate; silent in the paper
    floor: float = 0.0  # least cosine of the best evidence, below it the answer abstains


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarizing:
    """Node summaries."""

    quotes: Positive = 3  # messages quoted in an extractive summary
    quote_length: Annotated[int, Ge(20)] = 160  # characters
    diversity: Share = 0.5  # λ of MMR: 1 is centroid only
