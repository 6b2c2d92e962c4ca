"""The measurements of a PostgreSQL store, beside bare statements to the same server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrubjay import Memory
from scrubjay.errors import InvalidInput
from scrubjay.evals.bench import Figure, data
from scrubjay.evals.bench.baselines import timed_ms
from scrubjay.evals.bench.measures import ADDS, Load, ask, built, make_load, row_of
from scrubjay.evals.score import percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCHEMA = "scrubjay_bench"
_COLD = 20


class BareServer:
    """What a program without Scrubjay would do: one table, an index for each kind of query."""

    def __init__(self, url: str) -> None:
        import psycopg
        from pgvector.psycopg import register_vector

        self._connection: psycopg.Connection[Any] = psycopg.connect(url)
        register_vector(self._connection)
        execute = self._connection.execute
        execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE".encode())
        execute(f"CREATE SCHEMA {_SCHEMA}".encode())
        execute(f"SET search_path = {_SCHEMA}, public".encode())
        execute("CREATE TABLE rows (id bigserial PRIMARY KEY, body bytea NOT NULL)")
        execute(
            "CREATE TABLE texts (id bigint PRIMARY KEY, owner bigint NOT NULL,"
            f" words tsvector NOT NULL, embedding vector({data.DIMENSION}) NOT NULL)"
        )
        self._connection.commit()

    def insert(self, body: bytes) -> None:
        """INSERT and COMMIT."""
        self._connection.execute("INSERT INTO rows (body) VALUES (%s)", (body,))
        self._connection.commit()

    def load(self, texts: Sequence[str], rows: NDArray[np.float32], users: int) -> None:
        """The same texts and vectors, with the indexes that such a table has."""
        connection = self._connection
        connection.execute("CREATE TEMP TABLE coming (id bigint, owner bigint, text text,"
                           f" embedding vector({data.DIMENSION}))")  # fmt: skip
        with connection.cursor().copy("COPY coming FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "text", "vector"])
            for place, (text, row) in enumerate(zip(texts, rows, strict=True)):
                copy.write_row((place, place % users, text, row))
        connection.execute(
            "INSERT INTO texts SELECT id, owner, to_tsvector('simple', text), embedding FROM coming"
        )
        connection.execute("CREATE INDEX ON texts USING gin (words)")
        connection.execute("CREATE INDEX ON texts (owner)")
        if users == 1:  # with many users the index by owner leaves so few that a scan is quicker
            connection.execute("SET maintenance_work_mem = '512MB'")
            connection.execute("CREATE INDEX ON texts USING hnsw (embedding vector_cosine_ops)")
        connection.commit()
        connection.autocommit = True
        connection.execute("ANALYZE texts")

    def search_words(self, question: str, owner: int) -> list[tuple[int, float]]:
        """The best 50 by ts_rank."""
        wanted = " | ".join(question.split())
        return self._connection.execute(
            "SELECT id, ts_rank(words, q) AS rank FROM texts, to_tsquery('simple', %s) q"
            " WHERE owner = %s AND words @@ q ORDER BY rank DESC LIMIT 50",
            (wanted, owner),
        ).fetchall()

    def search_vectors(self, query: NDArray[np.float32], owner: int) -> list[tuple[int]]:
        """The best 50 by cosine; by the HNSW index where there is one."""
        return self._connection.execute(
            "SELECT id FROM texts WHERE owner = %s ORDER BY embedding <=> %s LIMIT 50",
            (owner, query),
        ).fetchall()

    def close(self) -> None:
        """Remove all of it."""
        self._connection.autocommit = True
        self._connection.execute(f"DROP SCHEMA {_SCHEMA} CASCADE".encode())
        self._connection.close()


def sized(folder: Path, url: str, name: str, count: int, users: int) -> list[Figure]:
    """Everything that is measured of a server, at one size. `folder` is not used."""
    del folder
    load = make_load(name, count, users, f"bench-{name}")
    with Memory(url, embedder=load.embedder) as memory:
        if memory.stats()["partitions"]:
            raise InvalidInput("the store to be measured has memories in it; name an empty one")
    bare = BareServer(url)
    try:
        figures = built(url, load)
        bare.load(load.texts, load.rows, users)
        figures += _searching(url, load, bare)
        figures += _cold(url, load, bare)
        figures += _adding(url, load, bare)
    finally:
        bare.close()
        with Memory(url, embedder=load.embedder) as memory:
            for user in range(users):
                memory.forget(user_id=load.user(user))
    return figures


def _searching(url: str, load: Load, bare: BareServer) -> list[Figure]:
    """Warm searches against one bare tsvector query plus one bare pgvector query, by turns."""
    ours_ms, bare_ms, vectors_ms = [], [], []
    with Memory(url, embedder=load.embedder) as memory:
        for n, question in enumerate(load.questions[:40]):
            ask(memory, question, load.user(n % min(load.users, 20)))
        for n, (question, vector) in enumerate(zip(load.questions, load.asked, strict=True)):
            user = n % min(load.users, 20)
            ours_ms.append(ask(memory, question, load.user(user)))
            words_ms = timed_ms(partial(bare.search_words, question, user))
            vectors_ms.append(timed_ms(partial(bare.search_vectors, vector, user)))
            bare_ms.append(words_ms + vectors_ms[-1])
    return [
        Figure("search, warm, p50", load.name, statistics.median(ours_ms), "ms",
               statistics.median(bare_ms), bar=1.0),
        Figure("search, warm, p95", load.name, percentile(ours_ms, 95), "ms",
               percentile(bare_ms, 95)),
        Figure("  of it the bare pgvector query", load.name, statistics.median(vectors_ms), "ms"),
    ]  # fmt: skip


def _cold(url: str, load: Load, bare: BareServer) -> list[Figure]:
    """The first search of a user in a new process' cache, against the same bare queries."""
    cold_ms, bare_ms, opened_ms = [], [], []
    for n in range(_COLD):
        question, vector = load.questions[n], load.asked[n]
        user = n % load.users
        began = time.perf_counter()
        with Memory(url, embedder=load.embedder) as memory:
            cold_ms.append(ask(memory, question, load.user(user)))
            opened_ms.append((time.perf_counter() - began) * 1e3)
        words_ms = timed_ms(partial(bare.search_words, question, user))
        bare_ms.append(words_ms + timed_ms(partial(bare.search_vectors, vector, user)))
    return [
        Figure("search, cold partition", load.name, statistics.median(cold_ms), "ms",
               statistics.median(bare_ms)),
        Figure("open to the first answer", load.name, statistics.median(opened_ms), "ms"),
    ]  # fmt: skip


def _adding(url: str, load: Load, bare: BareServer) -> list[Figure]:
    """One acknowledged `add` against one bare INSERT + COMMIT of as many bytes, by turns."""
    bare._connection.autocommit = False
    ours_ms, bare_ms = [], []
    with Memory(url, embedder=load.embedder) as memory:
        for n, text in enumerate(data.texts(ADDS, seed=99)):
            bare_ms.append(timed_ms(partial(bare.insert, row_of(text))))
            ours_ms.append(timed_ms(partial(memory.add, text, user_id=load.user(0))))
            if n % 50 == 49:
                memory.flush()
    return [
        Figure("add acknowledged, p50", load.name, statistics.median(ours_ms), "ms",
               statistics.median(bare_ms), bar=2.0),
        Figure("add acknowledged, p95", load.name, percentile(ours_ms, 95), "ms",
               percentile(bare_ms, 95)),
    ]  # fmt: skip
