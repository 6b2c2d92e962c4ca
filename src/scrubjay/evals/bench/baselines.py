"""What the figures are held against: the bare engines doing the least that the job needs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def timed_ms(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


class BareInsert:
    """One row a transaction into one table, with the sync that an acknowledgement needs."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")

    def insert(self, body: bytes) -> None:
        """Insert and commit."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Release the file."""
        self._connection.close()


class BareWords:
    """One FTS5 query with bm25() over the same texts, for the best 50."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        self._connection.executemany("INSERT INTO words VALUES (?)", [(t,) for t in texts])
        self._connection.execute("INSERT INTO words(words) VALUES ('optimize')")

    def search(self, question: str) -> list[tuple[int]]:
        """The row ids of the best 50."""
        match = " OR ".join(question.split())
        return self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words) LIMIT 50", (match,)
        ).fetchall()

    def close(self) -> None:
        """Release it."""
        self._connection.close()


class BareVectors:
    """The best exact int8 scan: NumKong's kernel over one contiguous matrix, and the best 50."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._codes = self._quantised(rows)

    @staticmethod
    def _quantised(rows: NDArray[np.float32]) -> NDArray[np.int8]:
        import numpy as np

        peaks = np.abs(rows).max(axis=1, keepdims=True)
        codes: NDArray[np.int8] = np.rint(rows / peaks * 127).astype(np.int8)
        return codes

    def search(self, query: NDArray[np.float32]) -> NDArray[np.int64]:
        """The places of the best 50."""
        import numkong
        import numpy as np

        codes = self._quantised(query[None, :])
        scores = np.asarray(numkong.cdist(codes, self._codes, "dot", out_dtype="float32"))[0]
        best = np.argpartition(scores, max(0, len(scores) - 50))[-50:]
        return best[np.argsort(-scores[best])]
