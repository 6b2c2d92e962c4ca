"""`PgVectorIndex`: the wall stands when the scope is taken out; what the database may lack."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from pgvector_tools import (
    MODEL,
    SMALL,
    packed,
    pid_of,
    plans_of,
    rows,
    unit,
)
from psycopg_pool import ConnectionPool

from places import Databases
from scrubjay import errors
from scrubjay.backends.postgres import PostgresStore
from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_tables as tables
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.guard.crypt import PlainCodec
from scrubjay.model import PartitionKey
from scrubjay.testing.conformance.build import ADA, BOB, vector


def test_the_wall(two_users: PgVectorIndex, pool: ConnectionPool) -> None:
    """Without a scope nothing, with one its own; not even the owner, nor by a leaf's name."""
    everything = f"SELECT DISTINCT pid FROM scrubjay.vector_index_{MODEL}"
    assert rows(pool, everything) == []
    assert rows(pool, everything, ADA) == [(pid_of(ADA),)]
    assert rows(pool, everything, BOB, ADA) == [(pid_of(BOB),)], "one at a time"
    with pool.connection() as connection:
        assert connection.execute(everything.encode()).fetchall() == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(pool, f"SELECT * FROM scrubjay.vector_index_{MODEL}_0", ADA)
    for statement in (
        f"UPDATE scrubjay.vector_index_{MODEL} SET seq = seq + 5000",
        f"DELETE FROM scrubjay.vector_index_{MODEL}",
    ):
        assert len(rows(pool, statement + " RETURNING pid", BOB)) == 300
    assert len(two_users.search(ADA, MODEL, unit(1, 16)[0], 999)) == 300
    stolen = f"INSERT INTO scrubjay.vector_index_{MODEL} SELECT '\\x{pid_of(BOB).hex()}', seq, "
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(pool, stolen + f"embedding FROM scrubjay.vector_index_{MODEL}", ADA)


@pytest.mark.parametrize("approximate", [True, False])
def test_without_the_scope_in_the_statement(
    approximate: bool, two_users: PgVectorIndex, pool: ConnectionPool,
    make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A statement that forgets its partition still answers from it alone."""
    for name in ("EXACT", "NEAREST", "REMOVE", "DROP"):
        text = getattr(tables, name)
        assert "pid = %(pid)s" in text
        monkeypatch.setattr(tables, name, text.replace("pid = %(pid)s", "true"))
    if approximate:
        monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 0)
    seen = plans_of(two_users, monkeypatch)
    index = make()
    for allowed in (None, range(1, 2_000)):
        found = index.search(ADA, MODEL, unit(1, 16)[0], 500, allowed)
        assert sorted(seq for seq, _ in found) == list(range(1, 301))
    assert index.search(ADA, MODEL, unit(1, 16)[0], 5, range(1_001, 1_301)) == []
    assert any(seen) == approximate
    index.remove(ADA, [1, 1_001])
    index.drop(PartitionKey("default", "user:eve"))
    assert len(index.search(ADA, MODEL, unit(1, 16)[0], 500)) == 299
    assert len(index.search(BOB, MODEL, unit(1, 16)[0], 500)) == 300


def test_nothing_of_it_in_the_statistics(two_users: PgVectorIndex, pool: ConnectionPool) -> None:
    """ANALYZE keeps samples of what it sees, which would outlive their being forgotten."""
    with pool.connection() as connection:
        connection.execute(f"ANALYZE scrubjay.vector_index_{MODEL}".encode())
    for key in (ADA, BOB):
        two_users.drop(key)
    with pool.connection() as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stats WHERE schemaname = 'scrubjay' AND attname = 'embedding'"
        ).fetchone()
    assert found == (0,)


# -- what stands in the way --------------------------------------------------------------------


def test_the_database_is_gone(make: Callable[..., PgVectorIndex]) -> None:
    index = make()
    index.put(ADA, MODEL, {1: vector(1)})
    index._pool.close()
    with pytest.raises(errors.StoreError, match="vector index"):
        index.search(ADA, MODEL, unit(1, 16)[0], 1)


def test_no_pgvector(
    make: Callable[..., PgVectorIndex], own_database: str, shared_databases: Databases
) -> None:
    with shared_databases.server.superuser(own_database) as connection:
        connection.execute("DROP EXTENSION vector")
    index = make()
    assert index.search(ADA, MODEL, unit(1, 16)[0], 1) == []
    index.remove(ADA, [1])
    assert index.build() == 0
    with pytest.raises(errors.StoreError, match="extension"):
        index.put(ADA, MODEL, {1: vector(1)})


def test_pgvector_in_a_schema_of_its_own(
    make: Callable[..., PgVectorIndex], own_database: str, shared_databases: Databases
) -> None:
    with shared_databases.server.superuser(own_database) as connection:
        connection.execute('CREATE SCHEMA "Ext; x"')
        connection.execute('GRANT USAGE ON SCHEMA "Ext; x" TO PUBLIC')
        connection.execute('ALTER EXTENSION vector SET SCHEMA "Ext; x"')
    index = make(exact_below=SMALL)
    index.put(ADA, MODEL, packed(unit(SMALL, 16)))
    assert index.build() == 1
    assert index.search(ADA, MODEL, unit(1, 16)[0], 1)[0][0] == 1


def test_beside_a_store(shared_databases: Databases) -> None:
    """In the schema of a store, as its role, by its numbers; and the store opens again."""
    database = shared_databases.take()
    url = shared_databases.server.url(database)
    store = PostgresStore(url, PlainCodec())
    with ConnectionPool(url, min_size=1, kwargs={"autocommit": True}, open=True) as pool:
        with pool.connection() as connection:
            found = connection.execute(
                "SELECT 'scrubjay_' || oid FROM pg_database WHERE datname = current_database()"
            ).fetchone()
        assert found is not None
        index = PgVectorIndex(pool, store.pid_of, found[0], exact_below=SMALL)
        index.put(ADA, MODEL, packed(unit(SMALL, 16)))
        assert index.build() == 1
        assert index.search(ADA, MODEL, unit(1, 16)[0], 1)[0][0] == 1
        assert index.search(BOB, MODEL, unit(1, 16)[0], 1) == []
    store.close()
    PostgresStore(url, PlainCodec()).close()
    shared_databases.server.drop_database(database)
