"""What a question asks for: its terms with their weights, its vector, and the narrowing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrubjay.index.words import query_terms
from scrubjay.read.filters import Condition
from scrubjay.storage import Criteria

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IDENTIFIER_WEIGHT = 2.0
"""A whole identifier counts as much as two words of its rarity: it was typed on purpose."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A question, ready to be searched.

    `terms` (uint64) and `weights` (float32) have one entry for each distinct term; `vector` is
    the question's embedding (float32, (d,)) or None; `baseline` the model's cosine of unrelated
    texts; what has a lower relevance than `threshold` is no answer.
    """

    terms: NDArray[np.uint64]
    weights: NDArray[np.float32]
    vector: NDArray[np.float32] | None
    baseline: float
    criteria: Criteria
    conditions: tuple[Condition, ...]
    narrowed: bool
    threshold: float = 0.0


def make_plan(
    query: str,
    vector: NDArray[np.float32] | None,
    baseline: float,
    criteria: Criteria,
    conditions: tuple[Condition, ...],
    threshold: float = 0.0,
) -> Plan:
    """The plan of a question. `narrowed` tells whether the criteria ask for more than active."""
    import numpy as np

    found = query_terms(query)
    weights = [IDENTIFIER_WEIGHT if is_identifier else 1.0 for is_identifier in found.values()]
    return Plan(
        terms=np.array(list(found), np.uint64),
        weights=np.array(weights, np.float32),
        vector=vector,
        baseline=baseline,
        criteria=criteria,
        conditions=conditions,
        narrowed=criteria != Criteria(now=criteria.now),
        threshold=threshold,
    )
