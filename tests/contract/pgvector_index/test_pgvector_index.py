"""`PgVectorIndex`: the suite on each method, its answers, and filters that leave too little."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector_tools import (
    MODEL,
    ROLE,
    SMALL,
    packed,
    pid_of,
    plans_of,
    unit,
)
from psycopg_pool import ConnectionPool

from scrubjay import errors
from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_tables as tables
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.model import PartitionKey
from scrubjay.testing.conformance.build import ADA, vector
from scrubjay.testing.conformance.vector_index import VectorIndexSuite
from scrubjay.testing.fakes import InMemoryVectorIndex


class Indexed(PgVectorIndex):
    """Builds after each put, so that the suite meets the index and not the exact scan."""

    def put(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        super().put(partition, model, vectors)
        if len(vectors) >= SMALL:
            self.build(partition)


# -- the suite ---------------------------------------------------------------------------------


class TestExact(VectorIndexSuite):
    @pytest.fixture
    def index(self, make: Callable[..., PgVectorIndex]) -> PgVectorIndex:
        return make(method="exact")


class TestHnsw(VectorIndexSuite):
    exact = False

    @pytest.fixture
    def index(self, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> PgVectorIndex:
        monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 0)
        return Indexed(pool, pid_of, ROLE, method="hnsw", exact_below=SMALL)


class TestIvfflat(VectorIndexSuite):
    exact = False

    @pytest.fixture
    def index(self, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> PgVectorIndex:
        settings = {"ivfflat.probes": "8", "ivfflat.iterative_scan": "relaxed_order"}
        monkeypatch.setattr(plan, "lists_for", lambda _: 10)
        monkeypatch.setattr(plan, "approximate", lambda *_, **__: settings)
        return Indexed(pool, pid_of, ROLE, method="ivfflat", exact_below=SMALL)


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hnsw", "ivfflat", "exact"])
def test_as_the_float_answer(
    method: plan.Method, make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines within 2e-3 of those in float32, in falling order, and nearly all of the best."""
    monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 1)
    monkeypatch.setattr(plan, "_PROBES_FACTOR", 1)
    index = make(method=method, exact_below=1_000)
    matrix, queries = unit(4_000, 384), unit(20, 384, seed=1)
    index.put(ADA, MODEL, packed(matrix))
    assert index.build() == (method != "exact")
    seen = plans_of(index, monkeypatch)
    truth = queries @ matrix.T
    right = 0
    for query, cosines in zip(queries, truth, strict=True):
        found = index.search(ADA, MODEL, query * 50, 20)
        assert [c for _, c in found] == sorted((c for _, c in found), reverse=True)
        assert all(abs(cosine - cosines[seq - 1]) < 2e-3 for seq, cosine in found)
        best = set((np.argsort(-cosines)[:20] + 1).tolist())
        right += len(best & {seq for seq, _ in found})
    assert right >= (0.95 if method == "hnsw" else 0.7 if method == "ivfflat" else 0.99) * 400
    assert len(seen) == (0 if method == "exact" else 20)
    assert None not in seen


def test_a_thousand(make: Callable[..., PgVectorIndex]) -> None:
    """As many as there are, up to a thousand, and a filter of a hundred thousand."""
    index, fake = make(), InMemoryVectorIndex()
    for each in (index, fake):
        each.put(ADA, MODEL, packed(unit(3_000, 16)))
    query = unit(1, 16, seed=2)[0]
    for allowed in (None, range(1, 100_001), range(2_000, 102_000, 2)):
        found = index.search(ADA, MODEL, query, 1_000, allowed)
        expected = fake.search(ADA, MODEL, query, 1_000, allowed)
        assert len(found) == len(expected)
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=2e-3)


def test_as_the_fake_with_awkward_values(make: Callable[..., PgVectorIndex]) -> None:
    """A vector of length 0 has the cosine 0, and so has every vector for such a query."""
    index, fake = make(), InMemoryVectorIndex()
    axis = np.eye(4, dtype=np.float32)
    vectors = packed(np.stack([axis[0], 0 * axis[0], -axis[0], axis[1] * 1e3]))
    for each in (index, fake):
        each.put(ADA, MODEL, vectors)
    for query in (axis[0], axis[1] * 1e-6, 0 * axis[0]):
        found, expected = (each.search(ADA, MODEL, query, 9) for each in (index, fake))
        assert [seq for seq, _ in found] == [seq for seq, _ in expected]
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=1e-6)
    assert index.search(ADA, MODEL, axis[0], 0) == []


@pytest.mark.parametrize("indexed", [True, False])
def test_any_filter(
    indexed: bool, make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly k or as many as there are, none twice, all of them allowed, as the fake says."""
    index, fake = make(exact_below=SMALL), InMemoryVectorIndex()
    for each in (index, fake):
        each.put(ADA, MODEL, packed(unit(250, 16)))
    if indexed:
        monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 0)
        assert index.build() == 1
    queries = unit(50, 16, seed=3)

    @given(
        st.integers(0, 49), st.integers(1, 300), st.none() | st.lists(st.integers(-5, 400))
    )  # fmt: skip
    def check(which: int, k: int, allowed: list[int] | None) -> None:
        found = index.search(ADA, MODEL, queries[which], k, allowed)
        expected = fake.search(ADA, MODEL, queries[which], k, allowed)
        assert len(found) == len({seq for seq, _ in found}) == len(expected)
        assert allowed is None or {seq for seq, _ in found} <= set(allowed)
        if not indexed:
            assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=2e-3)

    check()


def test_what_cannot_be_put(make: Callable[..., PgVectorIndex]) -> None:
    index = make()
    index.put(ADA, MODEL, {})
    index.put(ADA, MODEL, {1: vector(1)})
    with pytest.raises(errors.InvalidInput, match="same dimension"):
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2, 8)})
    with pytest.raises(errors.InvalidInput, match="float16"):
        index.put(ADA, MODEL, {1: b"odd"})
    with pytest.raises(errors.InvalidInput, match="no number"):
        index.put(ADA, MODEL, {1: np.full(16, np.nan, np.float16).tobytes()})
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        index.put(ADA, MODEL, {2: vector(2, 8)})
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        index.search(ADA, MODEL, unit(1, 8)[0], 1)
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        make().prepare(MODEL, 8)
    assert index.search(ADA, 99, unit(1, 16)[0], 1) == []


def test_the_widest_vectors(make: Callable[..., PgVectorIndex]) -> None:
    """4,000 dimensions fit in a row."""
    index = make(exact_below=10)
    matrix = unit(30, 4_000)
    index.put(ADA, MODEL, packed(matrix))
    assert index.build(ADA) == 1
    assert index.search(ADA, MODEL, matrix[3], 1)[0][0] == 4


# -- too little comes back ---------------------------------------------------------------------

MANY = 20_000


@pytest.mark.parametrize("iterative", [True, False], ids=["0.8", "0.7"])
def test_a_filter_that_leaves_one(
    iterative: bool, make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 20,000 is found, whatever the plan; also without iterative scans."""
    index = make(exact_below=1_000)
    matrix = unit(MANY, 16)
    index.put(ADA, MODEL, packed(matrix))
    monkeypatch.setattr(plan, "M", 8)
    monkeypatch.setattr(plan, "EF_CONSTRUCTION", 32)
    assert index.build(ADA) == 1
    monkeypatch.setattr(tables, "_ITERATIVE", (0, 8) if iterative else (99,))
    forced = {"hnsw.ef_search": "40"}
    if iterative:
        forced |= {"hnsw.iterative_scan": "strict_order", "hnsw.max_scan_tuples": "100"}
    far = [int(at) + 1 for at in np.argsort(matrix @ matrix[0])[:3]]
    for is_forced in (False, True):
        if is_forced:
            monkeypatch.setattr(plan, "surely_exact", lambda *_: False)
            monkeypatch.setattr(plan, "approximate", lambda *_, **__: forced)
        assert [s for s, _ in index.search(ADA, MODEL, matrix[0], 10, far[:1])] == far[:1]
        assert [s for s, _ in index.search(ADA, MODEL, matrix[0], 10, far)] == far[::-1]
        assert index.search(ADA, MODEL, matrix[0], 10, [MANY + 1]) == []
        assert len(index.search(ADA, MODEL, matrix[0], 1_000)) == 1_000


def test_most_are_removed(make: Callable[..., PgVectorIndex]) -> None:
    """What a graph still holds of removed vectors does not stand in the way of the others."""
    index = make(exact_below=1_000)
    matrix = unit(2_000, 16)
    index.put(ADA, MODEL, packed(matrix))
    index.build(ADA)
    index.remove(ADA, range(1, 1_991))
    found = index.search(ADA, MODEL, matrix[0], 20)
    assert sorted(seq for seq, _ in found) == list(range(1_991, 2_001))
    assert index.build() == 1, "too small for an index now"
    assert index.build() == 0
