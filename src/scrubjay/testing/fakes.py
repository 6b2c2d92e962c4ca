"""Stand-ins that need no model and no server, and are exact about what they promise.

`HashEmbedder` is a `ports.Embedder` whose vectors are hashed bags of words: the same for the same
text on every machine, near for texts that share words. `InMemoryVectorIndex` is a
`ports.VectorIndex` that compares the question with everything, against which others are judged.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np

from scrubjay.model import PartitionKey
from scrubjay.text.words import words

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HashEmbedder:
    """Deterministic vectors from words; texts that share words are near one another.

    >>> embedder = HashEmbedder(dimension=64)
    >>> a, b, c = embedder.embed(["the red car", "a red car", "tomato soup"], "passage")
    >>> float(a @ b) > float(a @ c)
    True
    """

    def __init__(self, dimension: int = 256, model_id: str | None = None) -> None:
        self._dimension = dimension
        self._model_id = model_id or f"hash-{dimension}"
        self.closed = False

    @property
    def model_id(self) -> str:
        """See `Embedder.model_id`."""
        return self._model_id

    @property
    def dimension(self) -> int:
        """See `Embedder.dimension`."""
        return self._dimension

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """See `Embedder.embed`. Both roles give the same vectors."""
        del role
        found = np.zeros((len(texts), self._dimension), np.float32)
        for row, text in zip(found, texts, strict=True):
            for word in words(text):
                place, sign = self._place(word)
                row[place] += sign
            norm = float(np.linalg.norm(row))
            if norm < 1e-6:  # no words, or words that cancel each other out
                row[:] = 0
                row[0] = 1.0
            else:
                row /= norm
        return found

    def _place(self, word: str) -> tuple[int, float]:
        key = self._model_id.encode("utf-8", "replace")[:64]
        data = word.encode("utf-8", "replace")
        number = int.from_bytes(blake2b(data, digest_size=8, key=key).digest(), "big")
        return (number >> 1) % self._dimension, 1.0 if number & 1 else -1.0

    def close(self) -> None:
        """See `Embedder.close`."""
        self.closed = True


class InMemoryVectorIndex:
    """An exact `ports.VectorIndex` in RAM. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[PartitionKey, dict[int, dict[int, NDArray[np.float32]]]] = {}

    def put(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        """See `VectorIndex.put`."""
        rows = {
            seq: np.frombuffer(data, np.float16).astype(np.float32) for seq, data in vectors.items()
        }
        with self._lock:
            self._rows.setdefault(partition, {}).setdefault(model, {}).update(rows)

    def remove(self, partition: PartitionKey, seqs: Iterable[int]) -> None:
        """See `VectorIndex.remove`."""
        gone = list(seqs)
        with self._lock:
            for rows in self._rows.get(partition, {}).values():
                for seq in gone:
                    rows.pop(seq, None)

    def search(
        self,
        partition: PartitionKey,
        model: int,
        query: NDArray[np.float32],
        k: int,
        allowed: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> list[tuple[int, float]]:
        """See `VectorIndex.search`. Equals are ordered by sequence."""
        with self._lock:
            rows = dict(self._rows.get(partition, {}).get(model, {}))
        if allowed is not None:
            wanted = {int(seq) for seq in allowed}
            rows = {seq: row for seq, row in rows.items() if seq in wanted}
        length = float(np.linalg.norm(query)) or 1.0
        found = [
            (seq, float(row @ query) / ((float(np.linalg.norm(row)) or 1.0) * length))
            for seq, row in rows.items()
        ]
        found.sort(key=lambda pair: (-pair[1], pair[0]))
        return found[:k]

    def seqs(self, partition: PartitionKey, model: int) -> NDArray[np.int64]:
        """See `VectorIndex.seqs`."""
        with self._lock:
            return np.array(sorted(self._rows.get(partition, {}).get(model, {})), np.int64)

    def drop(self, partition: PartitionKey) -> None:
        """See `VectorIndex.drop`."""
        with self._lock:
            self._rows.pop(partition, None)

    def keep(self, partitions: Sequence[PartitionKey], models: Sequence[int]) -> None:
        """See `VectorIndex.keep`."""
        with self._lock:
            self._rows = {
                key: {model: rows for model, rows in by_model.items() if model in models}
                for key, by_model in self._rows.items()
                if key in partitions
            }

    def build(self, partition: PartitionKey) -> int:
        """See `VectorIndex.build`: nothing ever is."""
        return 0
