"""Made-up texts, questions and vectors, the same at every run.

Texts have 30 words drawn from a vocabulary by Zipf's law, as human language roughly has; a
question takes 6 rarer words. Vectors are 384 numbers around a few hundred centres, as
embeddings of a person's topics are, with the same spread within and between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIMENSION = 384
WORDS_A_TEXT = 30
WORDS_A_QUESTION = 6
_VOCABULARY = 20_000
_CENTRES = 300
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "an", "or")]


def _word(number: int) -> str:
    word = ""
    number += len(_SYLLABLES)
    while number:
        number, place = divmod(number, len(_SYLLABLES))
        word += _SYLLABLES[place]
    return word


def texts(count: int, seed: int = 1) -> list[str]:
    """`count` texts of 30 words.

    >>> texts(1) == texts(1), len(texts(1)[0].split())
    (True, 30)
    """
    import numpy as np

    draws = np.random.default_rng(seed).zipf(1.2, (count, WORDS_A_TEXT)) % _VOCABULARY
    words = [_word(i) for i in range(_VOCABULARY)]
    return [" ".join(words[i] for i in row) for row in draws.tolist()]


def questions(count: int, seed: int = 2) -> list[str]:
    """`count` questions of 6 words."""
    import numpy as np

    draws = np.random.default_rng(seed).zipf(1.2, (count, WORDS_A_QUESTION * 3)) % _VOCABULARY
    return [" ".join(_word(i) for i in sorted(row)[-WORDS_A_QUESTION:]) for row in draws.tolist()]


def vectors(count: int, seed: int = 3) -> NDArray[np.float32]:
    """`count` unit vectors, float32 of shape (count, 384)."""
    import numpy as np

    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((_CENTRES, DIMENSION), np.float32)
    found = centres[random.integers(0, _CENTRES, count)]
    found = found + random.standard_normal((count, DIMENSION), np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


class ReadyVectors:
    """An embedder that looks vectors up, so that what is measured is not the model."""

    model_id = "bench"
    dimension = DIMENSION

    def __init__(self, known: Sequence[str], rows: NDArray[np.float32]) -> None:
        self._rows = rows
        self._places = {text: i for i, text in enumerate(known)}

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """The known text's vector; any other text gets one of those, chosen by its letters."""
        del role
        count = len(self._rows)
        return self._rows[[self._places.get(t, sum(t.encode()) % count) for t in texts]]

    def close(self) -> None:
        """Nothing to release."""
