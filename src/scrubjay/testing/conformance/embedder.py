"""The suite of `ports.Embedder`. Bring `embedder`."""

from __future__ import annotations

import threading
from typing import Literal

import numpy as np
import pytest

from scrubjay.ports import Embedder

Role = Literal["query", "passage"]
_ROLES: tuple[Role, ...] = ("query", "passage")
_TEXTS = (
    "The train to Vienna leaves at half past six.",
    "她对花生过敏。",
    "e\u0301 👩‍👩‍👧 ﬁ １２３",
    "   padded   ",
    "def f(x):\n\treturn x",
    "?",
)


class EmbedderSuite:
    """Turns text into vectors: as many as texts, of length 1, in order, the same each time."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        """An embedder that is ready."""
        raise NotImplementedError("override the fixture `embedder`")

    def test_it_is_one(self, embedder: Embedder) -> None:
        """It has the methods, a name and a dimension."""
        assert isinstance(embedder, Embedder)
        assert embedder.model_id
        assert embedder.dimension > 0

    @pytest.mark.parametrize("role", _ROLES)
    def test_shape_type_and_length(self, embedder: Embedder, role: Role) -> None:
        """float32 of shape (n, dimension), rows of length 1."""
        found = embedder.embed(_TEXTS, role)
        assert found.dtype == np.float32
        assert found.shape == (len(_TEXTS), embedder.dimension)
        assert np.isfinite(found).all()
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)

    def test_in_order(self, embedder: Embedder) -> None:
        """Row i is of text i, whatever stands beside it."""
        together = embedder.embed(_TEXTS, "passage")
        for row, text in zip(together, _TEXTS, strict=True):
            assert float(row @ embedder.embed([text], "passage")[0]) > 0.98
        backwards = embedder.embed(_TEXTS[::-1], "passage")[::-1]
        assert (np.einsum("nd,nd->n", together, backwards) > 0.98).all()

    def test_none_and_blank(self, embedder: Embedder) -> None:
        """No text gives no row; an empty text still gives one."""
        assert embedder.embed([], "passage").shape == (0, embedder.dimension)
        found = embedder.embed(["", " "], "passage")
        assert found.shape == (2, embedder.dimension)
        assert np.isfinite(found).all()

    def test_the_same_each_time(self, embedder: Embedder) -> None:
        """The same id, the same vectors."""
        a, b = (embedder.embed(_TEXTS[:2], "query") for _ in range(2))
        assert np.allclose(a, b, atol=1e-5)

    def test_meaning(self, embedder: Embedder) -> None:
        """What is about the same thing is nearer than what is not."""
        question = embedder.embed(["When does the train to Vienna leave?"], "query")[0]
        near, far = embedder.embed([_TEXTS[0], "A pinch of salt in the tomato soup."], "passage")
        assert float(question @ near) > float(question @ far)

    def test_the_end_of_a_long_text_counts(self, embedder: Embedder) -> None:
        """It never cuts a text in silence: a change at the far end changes the vector."""
        long = "The committee met on Tuesday and talked about the budget of the library. " * 400
        ends = [long + "The zebra is called Otto.", long + "Das Fahrrad steht im Keller."]
        a, b = embedder.embed(ends, "passage")
        assert not np.allclose(a, b, atol=1e-6)

    def test_from_several_threads(self, embedder: Embedder) -> None:
        """At once, with the same results."""
        expected = embedder.embed(_TEXTS, "passage")
        outcomes: list[bool] = []

        def work() -> None:
            for _ in range(3):
                found = embedder.embed(_TEXTS, "passage")
                outcomes.append(bool((np.einsum("nd,nd->n", found, expected) > 0.98).all()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [True] * 12
