"""`PgVectorIndex`: indexes come and go beside running work, and many work at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector_tools import (
    MODEL,
    ROLE,
    SMALL,
    at_once,
    indexes,
    packed,
    pid_of,
    unit,
)
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool

from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_tables as tables
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.model import PartitionKey
from scrubjay.testing.conformance.build import ADA, BOB, vector


def test_each_large_partition_has_an_index_of_its_own(
    make: Callable[..., PgVectorIndex], pool: ConnectionPool
) -> None:
    """The others have none: neither do they pay for it, nor are they in anyone's graph."""
    index = make(exact_below=SMALL)
    index.put(ADA, MODEL, packed(unit(SMALL, 16)))
    index.put(BOB, MODEL, packed(unit(SMALL - 1, 16)))
    assert index.build(BOB) == 0
    assert index.build() == 1
    assert index.build() == 0
    (definition,) = indexes(pool)
    assert "hnsw" in definition
    assert pid_of(ADA).hex() in definition
    assert make(method="ivfflat", exact_below=SMALL).build() == 1
    (definition,) = indexes(pool)
    assert "ivfflat" in definition
    assert make(method="exact").build(ADA) == 1
    assert indexes(pool) == []


def test_the_index_is_used(
    two_users: PgVectorIndex, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the wall too, and on a connection that has prepared other statements."""
    monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 0)
    used = (
        "SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelname = "
        f"'vector_{MODEL}_{pid_of(ADA).hex()}'"
    )
    for _ in range(20):
        two_users.search(ADA, MODEL, unit(1, 16)[0], 5)
        two_users.search(ADA, MODEL, unit(1, 16)[0], 5, range(1, 290))
    with pool.connection() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
    scans = 0
    for _ in range(100):
        with pool.connection() as connection:
            found = connection.execute(used.encode()).fetchone()
        scans = found[0] if found else 0
        if scans >= 40:
            break
        threading.Event().wait(0.05)
    assert scans >= 40


def test_drop(two_users: PgVectorIndex, pool: ConnectionPool) -> None:
    """Rows of every model and the index are gone; the others' are not."""
    two_users.put(ADA, MODEL + 1, {1: vector(1, 8)})
    two_users.drop(ADA)
    two_users.drop(ADA)
    two_users.drop(PartitionKey("default", "user:nobody"))
    assert two_users.search(ADA, MODEL, unit(1, 16)[0], 9) == []
    assert two_users.search(ADA, MODEL + 1, unit(1, 8)[0], 9) == []
    assert len(two_users.search(BOB, MODEL, unit(1, 16)[0], 999)) == 300
    (definition,) = indexes(pool)
    assert pid_of(BOB).hex() in definition


def test_a_build_that_was_killed(two_users: PgVectorIndex, pool: ConnectionPool) -> None:
    """What it left is not used, and is built again."""
    name = f"vector_{MODEL}_{pid_of(ADA).hex()}"
    with pool.connection() as connection:
        before = connection.execute(f"SELECT 'scrubjay.{name}'::regclass::oid").fetchone()
        connection.execute(f"DROP INDEX scrubjay.{name}".encode())
        leaf = tables.leaf_of(connection, two_users.prepare(MODEL, 16), pid_of(ADA))
        connection.execute("SET statement_timeout = '1ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(
                f"CREATE INDEX CONCURRENTLY {name} ON scrubjay.{leaf} USING hnsw "
                f"(embedding public.halfvec_cosine_ops) WHERE pid = '\\x{pid_of(ADA).hex()}'".encode()
            )
        connection.execute("RESET statement_timeout")
    assert len(two_users.search(ADA, MODEL, unit(1, 16)[0], 999)) == 300
    assert two_users.build() == 1
    with pool.connection() as connection:
        facts = tables.facts_of(connection, name)
        after = connection.execute(f"SELECT 'scrubjay.{name}'::regclass::oid").fetchone()
    assert facts is not None
    assert facts.valid
    assert before != after


def test_a_session_is_given_back_as_it_was(two_users: PgVectorIndex, url: str) -> None:
    """Whatever role and time limits the pool's connections have."""
    asked = (
        "SELECT current_setting('role'), current_setting('statement_timeout'), "
        "current_setting('maintenance_work_mem'), current_setting('enable_sort')"
    )

    def configure(connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.prepare_threshold = 1
        connection.execute("SET ROLE scrubjay_app")
        connection.execute("SET statement_timeout = '12s'")

    with ConnectionPool(
        url, min_size=1, max_size=1, kwargs={"autocommit": True}, configure=configure
    ) as pool:
        with pool.connection() as connection:
            before = connection.execute(asked).fetchone()
        index = PgVectorIndex(pool, pid_of, ROLE, method="ivfflat", exact_below=SMALL)
        index.put(ADA, MODEL + 1, packed(unit(SMALL, 16)))
        assert index.build() == 3
        for allowed in (None, range(1, 9)):
            assert len(index.search(ADA, MODEL, unit(1, 16)[0], 5, allowed)) == 5
        index.remove(ADA, [1])
        index.drop(ADA)
        with pool.connection() as connection:
            after = connection.execute(asked).fetchone()
    assert before is not None
    assert after == before


def test_racing_puts(make: Callable[..., PgVectorIndex]) -> None:
    """Also the first of all, which create the table; in any order; beside removals and builds."""
    indexes = [make(exact_below=SMALL) for _ in range(4)]
    matrix = unit(400, 16)

    def work(number: int) -> None:
        index = indexes[number]
        rng = np.random.default_rng(number)
        for _ in range(8):
            some = rng.permutation(400)[:150]
            index.put(
                ADA, MODEL, {int(at) + 1: matrix[at].astype(np.float16).tobytes() for at in some}
            )
            index.put(BOB, MODEL, {number * 10 + 1: vector(number)})
            index.remove(ADA, [int(at) + 1 for at in some[:10]])
            index.build(ADA)
            assert len(index.search(ADA, MODEL, matrix[0], 5)) == 5

    at_once(*(lambda number=number: work(number) for number in range(4)))
    indexes[0].put(ADA, MODEL, packed(matrix))
    found = indexes[1].search(ADA, MODEL, matrix[9], 999)
    assert found[0][0] == 10
    assert len(found) == 400
    assert len(indexes[2].search(BOB, MODEL, unit(1, 16)[0], 99)) == 4


def test_racing_drops(make: Callable[..., PgVectorIndex]) -> None:
    """A partition that is put and dropped at once is whole or gone."""
    index = make(exact_below=SMALL)
    vectors = packed(unit(200, 16))
    index.put(ADA, MODEL, vectors)
    index.build(ADA)

    def put() -> None:
        for _ in range(10):
            index.put(ADA, MODEL, vectors)

    def drop() -> None:
        for _ in range(10):
            index.drop(ADA)
            assert len(index.search(ADA, MODEL, unit(1, 16)[0], 999)) in (0, 200)

    at_once(put, drop, drop)
