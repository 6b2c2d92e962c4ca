"""What the tests of `PgVectorIndex` share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from psycopg_pool import ConnectionPool

from scrubjay import errors
from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.model import PartitionKey

MODEL = 1
ROLE = "scrubjay_app"
SMALL = 100
"""Vectors that make a partition large, here."""


def pid_of(key: PartitionKey) -> bytes:
    return blake2b(repr(key).encode(), digest_size=16).digest()


def unit(count: int, dimension: int = 64, seed: int = 0) -> NDArray[np.float32]:
    """Vectors of length 1 around a few topics. Shape (count, dimension)."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(7).normal(size=(20, dimension))
    made = topics[rng.integers(0, 20, count)] + 0.7 * rng.normal(size=(count, dimension))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def packed(matrix: NDArray[np.float32], first: int = 1) -> dict[int, bytes]:
    return {first + at: row.astype(np.float16).tobytes() for at, row in enumerate(matrix)}


def rows(pool: ConnectionPool, statement: str, *keys: PartitionKey) -> list[tuple[Any, ...]]:
    """What a statement sees as the role of the work, with the wall open to `keys`."""
    wall = "{" + ",".join(f'"\\\\x{pid_of(key).hex()}"' for key in keys) + "}"
    with pool.connection() as connection, connection.transaction():
        connection.execute("SET LOCAL ROLE scrubjay_app")
        if keys:
            connection.execute("SELECT set_config('scrubjay.pids', %s, true)", [wall])
        return connection.execute(statement.encode()).fetchall()


def plans_of(index: PgVectorIndex, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str] | None]:
    """The settings of each approximate search from now on, None for one that was refused."""
    seen: list[dict[str, str] | None] = []
    real = plan.approximate

    def listen(*args: Any, **options: Any) -> dict[str, str] | None:
        seen.append(real(*args, **options))
        return seen[-1]

    monkeypatch.setattr(plan, "approximate", listen)
    return seen


def indexes(pool: ConnectionPool) -> list[str]:
    with pool.connection() as connection:
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'scrubjay' "
            "AND indexname ~ '^vector_[0-9]+_[0-9a-f]{32}$' ORDER BY 1"
        )
        return [definition for (definition,) in found.fetchall()]


def at_once(*works: Callable[[], object]) -> None:
    failed: list[Exception] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except (errors.ScrubjayError, AssertionError) as exc:
            failed.append(exc)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
