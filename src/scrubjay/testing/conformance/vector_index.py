"""The suite of `ports.VectorIndex`. Bring `index`, empty; set `exact` to False for a graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.model import PartitionKey
from scrubjay.ports import VectorIndex
from scrubjay.testing.conformance.build import ADA, BOB, DIMENSION, vector

MODEL = 1


def _query(seed: int) -> NDArray[np.float32]:
    return np.frombuffer(vector(seed), np.float16).astype(np.float32)


class VectorIndexSuite:
    """The nearest vectors of a partition, best first, among those allowed."""

    exact = True
    """Whether it finds every true neighbour; else it must find at least 95 in 100."""

    @pytest.fixture
    def index(self) -> Iterator[VectorIndex]:
        """An empty index."""
        raise NotImplementedError("override the fixture `index`")

    def test_nearest_first(self, index: VectorIndex) -> None:
        """The cosines fall, and the vector itself comes first with 1."""
        index.put(ADA, MODEL, {seq: vector(seq) for seq in range(1, 101)})
        found = index.search(ADA, MODEL, _query(7), 10)
        assert found[0][0] == 7
        assert found[0][1] == pytest.approx(1.0, abs=2e-2)
        cosines = [cosine for _, cosine in found]
        assert cosines == sorted(cosines, reverse=True)
        assert len(found) == len({seq for seq, _ in found}) == 10

    def test_against_all_pairs(self, index: VectorIndex) -> None:
        """The k best are the k best."""
        rows = {seq: vector(seq) for seq in range(1, 501)}
        index.put(ADA, MODEL, rows)
        matrix = np.stack([_query(seq) for seq in rows])
        right = 0
        for seed in range(1_000, 1_020):
            order = np.argsort(-(matrix @ _query(seed)), kind="stable")[:10] + 1
            found = {seq for seq, _ in index.search(ADA, MODEL, _query(seed), 10)}
            right += len(found & set(order.tolist()))
        assert right >= (200 if self.exact else 190)

    def test_as_many_as_exist(self, index: VectorIndex) -> None:
        """Exactly k, or as many as there are."""
        assert index.search(ADA, MODEL, _query(1), 5) == []
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2)})
        assert len(index.search(ADA, MODEL, _query(1), 1)) == 1
        assert len(index.search(ADA, MODEL, _query(1), 5)) == 2

    def test_allowed_comes_before_the_choice(self, index: VectorIndex) -> None:
        """The best of those allowed, not the allowed of the best."""
        index.put(ADA, MODEL, {seq: vector(seq) for seq in range(1, 1_001)})
        allowed = [seq for seq in range(1, 1_001) if seq % 250 == 0]
        found = index.search(ADA, MODEL, _query(7), 10, allowed)
        assert sorted(seq for seq, _ in found) == allowed
        assert index.search(ADA, MODEL, _query(7), 10, np.array(allowed, np.int64)) == found
        assert index.search(ADA, MODEL, _query(7), 10, []) == []
        assert index.search(ADA, MODEL, _query(7), 10, [5_000]) == []

    def test_put_replaces(self, index: VectorIndex) -> None:
        """One vector for a sequence."""
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2)})
        index.put(ADA, MODEL, {1: vector(3)})
        found = index.search(ADA, MODEL, _query(3), 5)
        assert found[0][0] == 1
        assert len(found) == 2

    def test_remove(self, index: VectorIndex) -> None:
        """Sequences leave; unknown ones are no error."""
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2)})
        index.remove(ADA, [1, 99])
        index.remove(BOB, [2])
        index.remove(PartitionKey("default", "user:nobody"), [1])
        assert [seq for seq, _ in index.search(ADA, MODEL, _query(1), 5)] == [2]

    def test_what_it_has(self, index: VectorIndex) -> None:
        """Ascending, of one partition and model."""
        assert index.seqs(ADA, MODEL).tolist() == []
        index.put(ADA, MODEL, {seq: vector(seq) for seq in (7, 3, 5)})
        index.put(ADA, MODEL + 1, {9: vector(9)})
        index.put(BOB, MODEL, {1: vector(1)})
        assert index.seqs(ADA, MODEL).tolist() == [3, 5, 7]

    def test_drop(self, index: VectorIndex) -> None:
        """A partition goes with all its models; an unknown one is no error."""
        for model in (MODEL, MODEL + 1):
            index.put(ADA, model, {1: vector(1)})
        index.put(BOB, MODEL, {2: vector(2)})
        index.drop(ADA)
        index.drop(ADA)
        assert index.search(ADA, MODEL, _query(1), 5) == []
        assert index.seqs(ADA, MODEL + 1).tolist() == []
        assert index.seqs(BOB, MODEL).tolist() == [2]

    def test_keep(self, index: VectorIndex) -> None:
        """What belongs to another partition or another model goes, and can be put again."""
        for model in (MODEL, MODEL + 1):
            for key in (ADA, BOB):
                index.put(key, model, {1: vector(1)})
        index.keep([ADA, PartitionKey("default", "user:nobody")], [MODEL, 77])
        assert index.seqs(ADA, MODEL).tolist() == [1]
        assert not [*index.seqs(BOB, MODEL), *index.seqs(ADA, MODEL + 1)]
        index.put(BOB, MODEL + 1, {4: vector(4)})
        assert index.seqs(BOB, MODEL + 1).tolist() == [4]
        index.keep([], [MODEL])
        assert not [*index.seqs(ADA, MODEL), *index.seqs(BOB, MODEL + 1)]

    def test_build_changes_no_answer(self, index: VectorIndex) -> None:
        """Whatever it does, the same are found; a second call has nothing to do."""
        index.put(ADA, MODEL, {seq: vector(seq) for seq in range(1, 301)})
        found = index.search(ADA, MODEL, _query(7), 3)
        index.build(ADA)
        assert index.build(ADA) == 0
        assert index.search(ADA, MODEL, _query(7), 3)[0] == found[0]
        assert index.build(PartitionKey("default", "user:nobody")) == 0

    def test_partitions_and_models_are_apart(self, index: VectorIndex) -> None:
        """The same sequence elsewhere is another memory."""
        private = PartitionKey("default", "user:ada", "planner")
        elsewhere = PartitionKey("other", "user:ada")
        for seed, key in enumerate((ADA, BOB, private, elsewhere), 1):
            index.put(key, MODEL, {seed: vector(seed, DIMENSION)})
        index.put(ADA, MODEL + 1, {9: vector(9)})
        assert [seq for seq, _ in index.search(ADA, MODEL, _query(2), 5)] == [1]
        assert [seq for seq, _ in index.search(BOB, MODEL, _query(1), 5)] == [2]
        assert [seq for seq, _ in index.search(private, MODEL, _query(1), 5)] == [3]
        assert [seq for seq, _ in index.search(ADA, MODEL + 1, _query(1), 5)] == [9]

    def test_a_copy_of_its_own(self, index: VectorIndex) -> None:
        """A query is not changed, and need not be of length 1."""
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2)})
        query = _query(1) * 3
        kept = query.copy()
        found = index.search(ADA, MODEL, query, 1)
        assert (query == kept).all()
        assert found[0][0] == 1
        assert found[0][1] <= 1.02
