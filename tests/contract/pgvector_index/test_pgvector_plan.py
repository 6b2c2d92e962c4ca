"""`PgVectorIndex`: when a search is approximate, and which index a partition has."""

from __future__ import annotations

import numpy as np
import pytest

from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_wire as wire
from scrubjay.backends.postgres.vectors_plan import IndexFacts


def test_lists_and_probes() -> None:
    assert [plan.lists_for(n) for n in (0, 1_000, 100_000, 1_000_000, 4_000_000)] == [
        1, 1, 100, 1_000, 2_000
    ]  # fmt: skip
    assert [plan.probes_for(n) for n in (1, 4, 100, 1_000)] == [1, 4, 30, 95]


@pytest.mark.parametrize(
    ("rows_", "k", "allowed", "quicker"),
    [
        (1_000_000, 50, None, True),
        (20_000, 50, None, True),
        (10_000, 50, None, False),
        (100_000, 1_000, None, False),
        (1_000_000, 1_000, None, True),
        (100_000, 50, 50_000, True),
        (100_000, 50, 20_000, False),
        (1_000_000, 50, 200_000, True),
        (1_000_000, 50, 100, False),
    ],
)
def test_when_hnsw_is_quicker(rows_: int, k: int, allowed: int | None, quicker: bool) -> None:
    facts = IndexFacts("hnsw", rows_, 0, valid=True)
    found = plan.approximate(facts, k, allowed, iterative=True)
    assert (found is not None) == quicker
    if plan.surely_exact(k, allowed, "hnsw"):
        assert found is None


def test_without_iterative_scans() -> None:
    """No setting that pgvector 0.7 does not know, and only what one scan can bring."""
    facts = IndexFacts("hnsw", 1_000_000, 0, valid=True)
    assert plan.approximate(facts, 50, None, iterative=False) == {"hnsw.ef_search": "200"}
    assert plan.approximate(facts, 1_000, None, iterative=False) is None
    lists = IndexFacts("ivfflat", 1_000_000, 1_000, valid=True)
    assert plan.approximate(lists, 50, None, iterative=False) == {"ivfflat.probes": "95"}


@pytest.mark.parametrize(
    ("facts", "count", "method", "step"),
    [
        (None, 99, "hnsw", "keep"),
        (None, 100, "hnsw", "create"),
        (None, 100, "exact", "keep"),
        (IndexFacts("hnsw", 100, 0, True), 60, "hnsw", "keep"),
        (IndexFacts("hnsw", 100, 0, True), 49, "hnsw", "drop"),
        (IndexFacts("hnsw", 100, 0, True), 100, "exact", "drop"),
        (IndexFacts("hnsw", 100, 0, False), 100, "hnsw", "replace"),
        (IndexFacts("hnsw", 100, 0, False), 60, "hnsw", "drop"),
        (IndexFacts("hnsw", 100, 0, True), 100, "ivfflat", "replace"),
        (IndexFacts("ivfflat", 50_000, 50, True), 90_000, "ivfflat", "keep"),
        (IndexFacts("ivfflat", 50_000, 50, True), 150_000, "ivfflat", "replace"),
    ],
)
def test_what_to_do_about_an_index(
    facts: IndexFacts | None, count: int, method: plan.Method, step: str
) -> None:
    assert plan.step(facts, count, method, 100) == step


def test_bits() -> None:
    """As `get_bit` counts them; none where a few sequences lie far apart."""
    assert wire.bitmap(np.array([5, 6, 13], np.int64)) == bytes([0b00000011, 0b00000001])
    assert wire.bitmap(np.array([1, 1 << 40], np.int64)) is None
