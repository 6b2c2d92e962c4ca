"""The embedder's conformance suite, on the embedders that need no download.

`HashEmbedder` always; the model that is installed with Scrubjay where it has been prepared or can
be (marked slow).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from scrubjay.errors import ModelRejected, ModelUnavailable
from scrubjay.ports import Embedder
from scrubjay.settings import load
from scrubjay.testing.conformance.embedder import EmbedderSuite
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import FaultyEmbedder
from scrubjay.wiring import open_model


class TestHashEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        return HashEmbedder()


class TestFaultlessFaultyEmbedder(EmbedderSuite):
    """Without a fault it is what it wraps."""

    @pytest.fixture
    def embedder(self) -> FaultyEmbedder:
        return FaultyEmbedder(HashEmbedder())


@pytest.fixture(scope="module")
def default_model() -> Iterator[Embedder]:
    model = open_model(load())
    yield model
    model.close()


@pytest.mark.slow
class TestDefaultModel(EmbedderSuite):
    @pytest.fixture
    def embedder(self, default_model: Embedder) -> Embedder:
        return default_model


def test_a_script_is_followed() -> None:
    embedder = FaultyEmbedder(
        HashEmbedder(8), script=["outage", "rejected", "crash", "partial", "wrong", None]
    )
    for error in (ModelUnavailable, ModelRejected, RuntimeError):
        with pytest.raises(error):
            embedder.embed(["a", "b"], "query")
    assert embedder.embed(["a", "b"], "query").shape == (1, 8)
    assert embedder.embed(["a", "b"], "query").shape == (2, 7)
    assert embedder.embed(["a", "b"], "query").shape == (2, 8)
    assert (embedder.calls, embedder.failures) == (6, 5)


def test_chance_is_seeded() -> None:
    def run(seed: int) -> list[bool]:
        embedder = FaultyEmbedder(HashEmbedder(8), seed=seed, rate=0.5)
        outcomes = []
        for _ in range(40):
            try:
                embedder.embed(["a"], "query")
                outcomes.append(True)
            except ModelUnavailable:
                outcomes.append(False)
        return outcomes

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 5 < sum(run(1)) < 35


def test_refused_texts_refuse_their_batch() -> None:
    embedder = FaultyEmbedder(HashEmbedder(8), rejects=lambda text: "bad" in text)
    with pytest.raises(ModelRejected):
        embedder.embed(["good", "bad"], "passage")
    assert np.isfinite(embedder.embed(["good"], "passage")).all()
