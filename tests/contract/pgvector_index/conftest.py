"""A PostgreSQL for the tests of `PgVectorIndex`, and indexes on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from places import Databases
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.testing.conformance.build import ADA, BOB

sys.path.insert(0, str(Path(__file__).parent))
from pgvector_tools import MODEL, ROLE, SMALL, packed, pid_of, unit


@pytest.fixture(scope="session")
def shared_database(shared_databases: Databases) -> Iterator[str]:
    """The name of a database without a store, which would take longer to make than a test takes."""
    name = shared_databases.server.create_database()
    yield name
    shared_databases.server.drop_database(name)


@pytest.fixture
def own_database(shared_databases: Databases) -> Iterator[str]:
    """Another one, for a test that changes the database itself."""
    name = shared_databases.server.create_database()
    yield name
    shared_databases.server.drop_database(name)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    own = "own_database" in request.fixturenames
    found: str = request.getfixturevalue("own_database" if own else "shared_database")
    return found


@pytest.fixture
def url(database: str, shared_databases: Databases) -> str:
    """A database with an empty schema, and the role that works in it."""
    url = shared_databases.server.url(database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS scrubjay CASCADE")
        connection.execute("CREATE SCHEMA scrubjay")
        connection.execute(
            "DO $$ BEGIN CREATE ROLE scrubjay_app NOLOGIN; "
            "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
        connection.execute("GRANT scrubjay_app TO CURRENT_USER")
        connection.execute("GRANT USAGE ON SCHEMA scrubjay TO scrubjay_app")
    return url


@pytest.fixture
def pool(url: str) -> Iterator[ConnectionPool]:
    with ConnectionPool(
        url, min_size=1, max_size=6, num_workers=1, kwargs={"autocommit": True}, open=True
    ) as opened:
        yield opened


@pytest.fixture
def make(pool: ConnectionPool) -> Callable[..., PgVectorIndex]:
    return lambda **options: PgVectorIndex(pool, pid_of, ROLE, **options)


@pytest.fixture
def two_users(make: Callable[..., PgVectorIndex]) -> PgVectorIndex:
    index = make(exact_below=SMALL)
    index.put(ADA, MODEL, packed(unit(300, 16)))
    index.put(BOB, MODEL, packed(unit(300, 16, seed=5), first=1_001))
    assert index.build() == 2
    return index
