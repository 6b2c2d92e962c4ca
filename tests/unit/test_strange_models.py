"""Models that answer with what is no vector, and models that come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from places import Places
from scrubjay import Memory
from scrubjay.testing.fakes import HashEmbedder


class Strange(HashEmbedder):
    """Answers about poison in a way of its own."""

    def __init__(self, how: str) -> None:
        super().__init__(64, f"strange-{how}")
        self.how = how

    def embed(self, texts: Any, role: Any) -> Any:
        vectors = super().embed(texts, role)
        if not any("poison" in text for text in texts):
            return vectors.astype(np.float64) * 1e6 if self.how == "long" else vectors
        answers = {"nan": vectors * np.nan, "infinite": vectors * np.inf, "none": None,
                   "words": [["a"] * 64] * len(texts), "long": vectors * 1e6}  # fmt: skip
        return answers[self.how]


@pytest.mark.parametrize("how", ["nan", "infinite", "none", "words", "long"])
def test_what_is_no_vector_hides_nothing(place: Places, how: str) -> None:
    with Memory(place(), embedder=Strange(how)) as memory:
        memory.add("the zebra sleeps", user_id="u", session_id="s", wait=True)
        memory.add("poison zebra", user_id="u", session_id="s", wait=True)
        found = memory.search("zebra", user_id="u")
        assert {h.content for h in found} == {"the zebra sleeps", "poison zebra"}
        assert all(0 < h.relevance <= 1 for h in found)
        assert memory.search("poison zebra", user_id="u")[0].content == "poison zebra"


def test_a_dropped_model_is_introduced_again(place: Places) -> None:
    """Its number is never another's, so that no vector is taken for one of another model."""
    with (
        Memory(place(), embedder=HashEmbedder(64, "A")) as a,
        Memory(place(), embedder=HashEmbedder(64, "B")) as b,
    ):
        a.add("zebra one", user_id="u", wait=True)
        b.search("x", user_id="u")
        a.reindex()
        with Memory(place(), embedder=HashEmbedder(64, "C")) as c:
            c.search("x", user_id="u")
            assert b.add("zebra three", user_id="u", wait=True).pending == ()
            assert c.search("zebra three", user_id="u").pending == 2
            assert b.search("zebra three", user_id="u").pending == 1


def test_a_forgotten_text_does_not_stay_in_the_cache(place: Places) -> None:
    with Memory(place(), embedder=HashEmbedder(64)) as memory:
        memory.add("SECRET zebra", user_id="u", wait=True)
        memory.search("SECRET", user_id="u")
        memory.forget(user_id="u")
        assert not [text for _, text in memory._parts.embedding._cache if "SECRET" in text]


def test_filters_and_metadata_meet_in_one_spelling(place: Places) -> None:
    with Memory(place(), embedder="none") as memory:
        memory.add("zebra", user_id="u", metadata={"city": "Cafe\u0301", "cle\u0301": "नमस्ते"})
        assert memory.list(user_id="u", filters={"city": "Cafe\u0301"}).total == 1
        assert memory.list(user_id="u", filters={"city": "Café"}).total == 1
        assert memory.list(user_id="u", filters={"cle\u0301": "नमस्ते"}).total == 1


def test_an_expired_memory_is_updated_into_the_present(place: Places) -> None:
    with Memory(place(), embedder="none") as memory:
        receipt = memory.add("zebra A", user_id="u", expires_at="2020-01-01")
        assert any("past" in note for note in receipt.notes)
        memory.update(receipt.ids[0], "zebra B", user_id="u")
        assert memory.search("zebra", user_id="u")[0].content == "zebra B"
