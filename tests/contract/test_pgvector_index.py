"""`PgVectorIndex` on a real PostgreSQL with pgvector.

The suite on each method, the wall that stands when the scope is taken out of a statement, and
filters that leave an approximate search with too little.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool

from places import Databases
from scrubjay import errors
from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_tables as tables
from scrubjay.backends.postgres import vectors_wire as wire
from scrubjay.backends.postgres.vectors import PgVectorIndex
from scrubjay.backends.postgres.vectors_plan import IndexFacts
from scrubjay.model import PartitionKey
from scrubjay.testing.conformance.build import ADA, BOB, vector
from scrubjay.testing.conformance.vector_index import VectorIndexSuite
from scrubjay.testing.fakes import InMemoryVectorIndex

MODEL = 1
ROLE = "scrubjay_app"
SMALL = 100
"""Vectors that make a partition large, here."""


def pid_of(key: PartitionKey) -> bytes:
    return blake2b(repr(key).encode(), digest_size=16).digest()


@pytest.fixture
def database(shared_databases: Databases) -> Iterator[str]:
    """The name of a database without a store, which would take longer to make than a test takes."""
    name = shared_databases.server.create_database()
    yield name
    shared_databases.server.drop_database(name)


@pytest.fixture
def url(database: str, shared_databases: Databases) -> str:
    return shared_databases.server.url(database)


@pytest.fixture
def pool(url: str) -> Iterator[ConnectionPool]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS scrubjay")
        connection.execute(
            "DO $$ BEGIN CREATE ROLE scrubjay_app NOLOGIN; "
            "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
        connection.execute("GRANT scrubjay_app TO CURRENT_USER")
        connection.execute("GRANT USAGE ON SCHEMA scrubjay TO scrubjay_app")
    with ConnectionPool(
        url, min_size=1, max_size=6, kwargs={"autocommit": True}, open=True
    ) as opened:
        yield opened


@pytest.fixture
def make(pool: ConnectionPool) -> Callable[..., PgVectorIndex]:
    return lambda **options: PgVectorIndex(pool, pid_of, ROLE, **options)


class Indexed(PgVectorIndex):
    """Builds after each put, so that the suite meets the index and not the exact scan."""

    def put(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        super().put(partition, model, vectors)
        if len(vectors) >= SMALL:
            self.build(partition)


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


# -- the suite ---------------------------------------------------------------------------------


class TestExact(VectorIndexSuite):
    @pytest.fixture
    def index(self, make: Callable[..., PgVectorIndex]) -> PgVectorIndex:
        return make(method="exact")


class TestHnsw(VectorIndexSuite):
    exact = False

    @pytest.fixture
    def index(self, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> PgVectorIndex:
        monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 0)
        return Indexed(pool, pid_of, ROLE, method="hnsw", exact_below=SMALL)


class TestIvfflat(VectorIndexSuite):
    exact = False

    @pytest.fixture
    def index(self, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> PgVectorIndex:
        settings = {"ivfflat.probes": "8", "ivfflat.iterative_scan": "relaxed_order"}
        monkeypatch.setattr(plan, "lists_for", lambda _: 10)
        monkeypatch.setattr(plan, "approximate", lambda *_, **__: settings)
        return Indexed(pool, pid_of, ROLE, method="ivfflat", exact_below=SMALL)


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hnsw", "ivfflat", "exact"])
def test_as_the_float_answer(
    method: plan.Method, make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines within 2e-3 of those in float32, in falling order, and nearly all of the best."""
    monkeypatch.setattr(plan, "_ROWS_A_CANDIDATE", 1)
    monkeypatch.setattr(plan, "_PROBES_FACTOR", 1)
    index = make(method=method, exact_below=1_000)
    matrix, queries = unit(4_000, 384), unit(20, 384, seed=1)
    index.put(ADA, MODEL, packed(matrix))
    assert index.build() == (method != "exact")
    seen = plans_of(index, monkeypatch)
    truth = queries @ matrix.T
    right = 0
    for query, cosines in zip(queries, truth, strict=True):
        found = index.search(ADA, MODEL, query * 50, 20)
        assert [c for _, c in found] == sorted((c for _, c in found), reverse=True)
        assert all(abs(cosine - cosines[seq - 1]) < 2e-3 for seq, cosine in found)
        best = set((np.argsort(-cosines)[:20] + 1).tolist())
        right += len(best & {seq for seq, _ in found})
    assert right >= (0.95 if method == "hnsw" else 0.7 if method == "ivfflat" else 0.99) * 400
    assert len(seen) == (0 if method == "exact" else 20)
    assert None not in seen


def test_a_thousand(make: Callable[..., PgVectorIndex]) -> None:
    """As many as there are, up to a thousand, and a filter of a hundred thousand."""
    index, fake = make(), InMemoryVectorIndex()
    for each in (index, fake):
        each.put(ADA, MODEL, packed(unit(3_000, 16)))
    query = unit(1, 16, seed=2)[0]
    for allowed in (None, range(1, 100_001), range(2_000, 102_000, 2)):
        found = index.search(ADA, MODEL, query, 1_000, allowed)
        expected = fake.search(ADA, MODEL, query, 1_000, allowed)
        assert len(found) == len(expected)
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=2e-3)


def test_as_the_fake_with_awkward_values(make: Callable[..., PgVectorIndex]) -> None:
    """A vector of length 0 has the cosine 0, and so has every vector for such a query."""
    index, fake = make(), InMemoryVectorIndex()
    axis = np.eye(4, dtype=np.float32)
    vectors = packed(np.stack([axis[0], 0 * axis[0], -axis[0], axis[1] * 1e3]))
    for each in (index, fake):
        each.put(ADA, MODEL, vectors)
    for query in (axis[0], axis[1] * 1e-6, 0 * axis[0]):
        found, expected = (each.search(ADA, MODEL, query, 9) for each in (index, fake))
        assert [seq for seq, _ in found] == [seq for seq, _ in expected]
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=1e-6)
    assert index.search(ADA, MODEL, axis[0], 0) == []


def test_what_cannot_be_put(make: Callable[..., PgVectorIndex]) -> None:
    index = make()
    index.put(ADA, MODEL, {})
    index.put(ADA, MODEL, {1: vector(1)})
    with pytest.raises(errors.InvalidInput, match="same dimension"):
        index.put(ADA, MODEL, {1: vector(1), 2: vector(2, 8)})
    with pytest.raises(errors.InvalidInput, match="float16"):
        index.put(ADA, MODEL, {1: b"odd"})
    with pytest.raises(errors.InvalidInput, match="no number"):
        index.put(ADA, MODEL, {1: np.full(16, np.nan, np.float16).tobytes()})
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        index.put(ADA, MODEL, {2: vector(2, 8)})
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        index.search(ADA, MODEL, unit(1, 8)[0], 1)
    with pytest.raises(errors.ModelMismatch, match="16 dimensions"):
        make().prepare(MODEL, 8)
    assert index.search(ADA, 99, unit(1, 16)[0], 1) == []


def test_the_widest_vectors(make: Callable[..., PgVectorIndex]) -> None:
    """4,000 dimensions fit in a row."""
    index = make(exact_below=10)
    matrix = unit(30, 4_000)
    index.put(ADA, MODEL, packed(matrix))
    assert index.build(ADA) == 1
    assert index.search(ADA, MODEL, matrix[3], 1)[0][0] == 4


# -- too little comes back ---------------------------------------------------------------------

MANY = 20_000


@pytest.mark.parametrize("iterative", [True, False], ids=["0.8", "0.7"])
def test_a_filter_that_leaves_one(
    iterative: bool, make: Callable[..., PgVectorIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 20,000 is found, whatever the plan; also without iterative scans."""
    index = make(exact_below=1_000)
    matrix = unit(MANY, 16)
    index.put(ADA, MODEL, packed(matrix))
    monkeypatch.setattr(plan, "M", 8)
    monkeypatch.setattr(plan, "EF_CONSTRUCTION", 32)
    assert index.build(ADA) == 1
    monkeypatch.setattr(tables, "_ITERATIVE", (0, 8) if iterative else (99,))
    forced = {"hnsw.ef_search": "40"}
    if iterative:
        forced |= {"hnsw.iterative_scan": "strict_order", "hnsw.max_scan_tuples": "100"}
    far = [int(at) + 1 for at in np.argsort(matrix @ matrix[0])[:3]]
    for is_forced in (False, True):
        if is_forced:
            monkeypatch.setattr(plan, "surely_exact", lambda *_: False)
            monkeypatch.setattr(plan, "approximate", lambda *_, **__: forced)
        assert [s for s, _ in index.search(ADA, MODEL, matrix[0], 10, far[:1])] == far[:1]
        assert [s for s, _ in index.search(ADA, MODEL, matrix[0], 10, far)] == far[::-1]
        assert index.search(ADA, MODEL, matrix[0], 10, [MANY + 1]) == []
        assert len(index.search(ADA, MODEL, matrix[0], 1_000)) == 1_000


def test_most_are_removed(make: Callable[..., PgVectorIndex]) -> None:
    """What a graph still holds of removed vectors does not stand in the way of the others."""
    index = make(exact_below=1_000)
    matrix = unit(2_000, 16)
    index.put(ADA, MODEL, packed(matrix))
    index.build(ADA)
    index.remove(ADA, range(1, 1_991))
    found = index.search(ADA, MODEL, matrix[0], 20)
    assert sorted(seq for seq, _ in found) == list(range(1_991, 2_001))
    assert index.build() == 1, "too small for an index now"
    assert index.build() == 0


# -- the wall ----------------------------------------------------------------------------------


@pytest.fixture
def two_users(make: Callable[..., PgVectorIndex]) -> PgVectorIndex:
    index = make(exact_below=SMALL)
    index.put(ADA, MODEL, packed(unit(300, 16)))
    index.put(BOB, MODEL, packed(unit(300, 16, seed=5), first=1_001))
    assert index.build() == 2
    return index


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


# -- indexes come and go -----------------------------------------------------------------------


def indexes(pool: ConnectionPool) -> list[str]:
    with pool.connection() as connection:
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'scrubjay' "
            "AND indexname ~ '^vector_[0-9]+_[0-9a-f]{32}$' ORDER BY 1"
        )
        return [definition for (definition,) in found.fetchall()]


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


# -- many at once ------------------------------------------------------------------------------


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


# -- what stands in the way --------------------------------------------------------------------


def test_the_database_is_gone(make: Callable[..., PgVectorIndex]) -> None:
    index = make()
    index.put(ADA, MODEL, {1: vector(1)})
    index._pool.close()
    with pytest.raises(errors.StoreError, match="vector index"):
        index.search(ADA, MODEL, unit(1, 16)[0], 1)


def test_no_pgvector(
    make: Callable[..., PgVectorIndex], database: str, shared_databases: Databases
) -> None:
    with shared_databases.server.superuser(database) as connection:
        connection.execute("DROP EXTENSION vector")
    index = make()
    assert index.search(ADA, MODEL, unit(1, 16)[0], 1) == []
    index.remove(ADA, [1])
    assert index.build() == 0
    with pytest.raises(errors.StoreError, match="extension"):
        index.put(ADA, MODEL, {1: vector(1)})


def test_pgvector_in_a_schema_of_its_own(
    make: Callable[..., PgVectorIndex], database: str, shared_databases: Databases
) -> None:
    with shared_databases.server.superuser(database) as connection:
        connection.execute('CREATE SCHEMA "Ext; x"')
        connection.execute('GRANT USAGE ON SCHEMA "Ext; x" TO PUBLIC')
        connection.execute('ALTER EXTENSION vector SET SCHEMA "Ext; x"')
    index = make(exact_below=SMALL)
    index.put(ADA, MODEL, packed(unit(SMALL, 16)))
    assert index.build() == 1
    assert index.search(ADA, MODEL, unit(1, 16)[0], 1)[0][0] == 1


# -- the rules ---------------------------------------------------------------------------------


def test_lists_and_probes() -> None:
    assert [plan.lists_for(n) for n in (0, 1_000, 100_000, 1_000_000, 4_000_000)] == [
        1, 1, 100, 1_000, 2_000
    ]  # fmt: skip
    assert [plan.probes_for(n) for n in (1, 4, 100, 1_000)] == [1, 4, 30, 95]


@pytest.mark.parametrize(
    ("rows_", "k", "allowed", "quicker"),
    [
        (1_000_000, 50, None, True),
        (20_000, 50, None, True),
        (10_000, 50, None, False),
        (100_000, 1_000, None, False),
        (1_000_000, 1_000, None, True),
        (100_000, 50, 50_000, True),
        (100_000, 50, 20_000, False),
        (1_000_000, 50, 200_000, True),
        (1_000_000, 50, 100, False),
    ],
)
def test_when_hnsw_is_quicker(rows_: int, k: int, allowed: int | None, quicker: bool) -> None:
    facts = IndexFacts("hnsw", rows_, 0, valid=True)
    found = plan.approximate(facts, k, allowed, iterative=True)
    assert (found is not None) == quicker
    if plan.surely_exact(k, allowed, "hnsw"):
        assert found is None


def test_without_iterative_scans() -> None:
    """No setting that pgvector 0.7 does not know, and only what one scan can bring."""
    facts = IndexFacts("hnsw", 1_000_000, 0, valid=True)
    assert plan.approximate(facts, 50, None, iterative=False) == {"hnsw.ef_search": "200"}
    assert plan.approximate(facts, 1_000, None, iterative=False) is None
    lists = IndexFacts("ivfflat", 1_000_000, 1_000, valid=True)
    assert plan.approximate(lists, 50, None, iterative=False) == {"ivfflat.probes": "95"}


@pytest.mark.parametrize(
    ("facts", "count", "method", "step"),
    [
        (None, 99, "hnsw", "keep"),
        (None, 100, "hnsw", "create"),
        (None, 100, "exact", "keep"),
        (IndexFacts("hnsw", 100, 0, True), 60, "hnsw", "keep"),
        (IndexFacts("hnsw", 100, 0, True), 49, "hnsw", "drop"),
        (IndexFacts("hnsw", 100, 0, True), 100, "exact", "drop"),
        (IndexFacts("hnsw", 100, 0, False), 100, "hnsw", "replace"),
        (IndexFacts("hnsw", 100, 0, False), 60, "hnsw", "drop"),
        (IndexFacts("hnsw", 100, 0, True), 100, "ivfflat", "replace"),
        (IndexFacts("ivfflat", 50_000, 50, True), 90_000, "ivfflat", "keep"),
        (IndexFacts("ivfflat", 50_000, 50, True), 150_000, "ivfflat", "replace"),
    ],
)
def test_what_to_do_about_an_index(
    facts: IndexFacts | None, count: int, method: plan.Method, step: str
) -> None:
    assert plan.step(facts, count, method, 100) == step


def test_bits() -> None:
    """As `get_bit` counts them; none where a few sequences lie far apart."""
    assert wire.bitmap(np.array([5, 6, 13], np.int64)) == bytes([0b00000011, 0b00000001])
    assert wire.bitmap(np.array([1, 1 << 40], np.int64)) is None
