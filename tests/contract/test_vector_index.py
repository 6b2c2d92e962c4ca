"""The vector index's conformance suite, on the exact one that others are judged by."""

from __future__ import annotations

import pytest

from scrubjay.testing.conformance.vector_index import VectorIndexSuite
from scrubjay.testing.fakes import InMemoryVectorIndex


class TestInMemoryVectorIndex(VectorIndexSuite):
    @pytest.fixture
    def index(self) -> InMemoryVectorIndex:
        return InMemoryVectorIndex()
