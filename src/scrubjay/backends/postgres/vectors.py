"""`PgVectorIndex`: the nearest vectors of partitions too large for RAM, on pgvector.

Every search is exact, unless the partition has an index of its own, which `build` makes from a
size on, and the search is one for which it is quicker (`vectors_plan`). An approximate search that
brings back fewer than were asked for is done again exactly, so that a filter never hides an answer.

The scope is in each statement and, behind it, in the wall that the store's tables have: a
transaction sees the rows of the partition in `scrubjay.pids`, and works as a role that owns
nothing. Vectors lie here as they are, since no index can work on sealed ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, Cursor

from scrubjay import errors
from scrubjay.backends.postgres import vectors_build as building
from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres import vectors_tables as tables
from scrubjay.backends.postgres import vectors_wire as wire
from scrubjay.backends.postgres.faults import translated
from scrubjay.backends.postgres.session import PidOf, wall_of
from scrubjay.backends.postgres.vectors_tables import Extension, Table
from scrubjay.model import PartitionKey

_BATCH = 5_000
_WRITERS = 0x5C7A
_PREPARING = (0x5C7B, 0x0A)
_SCOPE = "SELECT set_config('role', %s, true), set_config('scrubjay.pids', %s, true)"


class Connections(Protocol):
    """Where connections come from: a `psycopg_pool.ConnectionPool`, for one."""

    def connection(self) -> AbstractContextManager[Connection[Any]]:
        """A connection that commits each statement outside a transaction (autocommit)."""


class PgVectorIndex:
    """A `ports.VectorIndex` on PostgreSQL 15 or newer with pgvector 0.7 or newer. Thread-safe.

    `pool` logs in as a role that may create tables in the schema `scrubjay` and owns them; the
    work is done as `role`, which must exist, own nothing, and may use that schema. `pid_of` gives
    a partition's number, 16 bytes. `method` is that of the indexes of large partitions,
    `exact_below` how many vectors make one large, `build_memory_mb` the most a build may take on
    the server. `where` is what errors call the database.
    """

    def __init__(
        self,
        pool: Connections,
        pid_of: PidOf,
        role: str,
        *,
        method: plan.Method = "hnsw",
        exact_below: int = plan.EXACT_BELOW,
        build_memory_mb: int = 1_024,
        where: str = "the database of the vector index",
    ) -> None:
        self._pool = pool
        self._pid_of = pid_of
        self._method = method
        self._exact_below = exact_below
        self._build_memory_mb = build_memory_mb
        self._role = role
        self._where = where
        self._lock = threading.Lock()
        self._tables: dict[int, Table] = {}
        self._extension: Extension | None = None

    # -- the port ---------------------------------------------------------------------------

    def put(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        """Add or replace float16 vectors by sequence, all or none of them.

        Raises `InvalidInput` for vectors of unequal length or with values that are not finite,
        `ModelMismatch` where the model has another dimension, `StoreError`.
        """
        if not vectors:
            return
        seqs = sorted(vectors)  # writers that meet lock rows in one order
        matrix = wire.matrix_of(vectors, seqs)
        table = self.prepare(model, matrix.shape[1])
        pid = self._pid_of(partition)
        with self._inside(pid, writing=True) as cursor:
            for start in range(0, len(seqs), _BATCH):
                part = slice(start, start + _BATCH)
                cursor.execute(
                    table.put,
                    {
                        "pid": pid,
                        "seqs": wire.int8s(seqs[part]),
                        "vectors": wire.halfvecs(matrix[part], table.extension.oid),
                    },
                )

    def remove(self, partition: PartitionKey, seqs: Iterable[int]) -> None:
        """Take sequences out, whatever their model; unknown ones are no error."""
        gone = wire.int8s(sorted(set(seqs)))
        pid = self._pid_of(partition)
        with self._inside(pid, writing=True) as cursor:
            for table in self._all_tables(cursor.connection):
                cursor.execute(table.statement(tables.REMOVE), {"pid": pid, "seqs": gone})

    def search(
        self,
        partition: PartitionKey,
        model: int,
        query: NDArray[np.float32],
        k: int,
        allowed: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> list[tuple[int, float]]:
        """The `k` nearest as (sequence, cosine), best first, or as many as there are.

        `query` has shape (dimension,) and any length but 0, for which every cosine is 0. `allowed`
        is applied before the choice. Cosines are those of the float16 vectors, within 1e-3.
        Raises `ModelMismatch` where the model has another dimension, `StoreError`.
        """
        seqs = None if allowed is None else np.unique(np.asarray(allowed, np.int64))
        if k < 1 or (seqs is not None and not len(seqs)):
            return []
        length = float(np.linalg.norm(query))
        values = wire.halfvec(query / length if length else query)
        pid = self._pid_of(partition)
        with self._inside(pid) as cursor:
            table = self._table(cursor.connection, model)
            if table is None:
                return []
            _check(table, len(query))
            given = {"pid": pid, "query": values, "k": k}
            found = self._approximate(cursor, table, given, seqs) if length else None
            if found is None or len(found) < min(k, k if seqs is None else len(seqs)):
                found = _exact(cursor, table, given, seqs)
        return sorted(
            ((seq, min(max(1.0 - distance, -1.0), 1.0)) for seq, distance in found),
            key=lambda pair: (-pair[1], pair[0]),
        )

    def seqs(self, partition: PartitionKey, model: int) -> NDArray[np.int64]:
        """The sequences of a partition that have a vector of the model here, ascending."""
        pid = self._pid_of(partition)
        with self._inside(pid) as cursor:
            table = self._table(cursor.connection, model)
            rows = cursor.execute(table.statement(tables.SEQS), {"pid": pid}) if table else ()
            return np.array([seq for (seq,) in rows], np.int64)

    def keep(self, partitions: Sequence[PartitionKey], models: Sequence[int]) -> None:
        """Forget every other partition and every other model, with their indexes."""
        pids = [self._pid_of(partition) for partition in partitions]
        with self._owning() as connection:
            for table in self._all_tables(connection):
                kept = pids if table.model in models else []
                if kept:
                    with connection.transaction():
                        connection.execute("SET LOCAL scrubjay.maintenance = 'on'")
                        connection.execute(table.statement(tables.KEEP), {"pids": kept})
                else:
                    connection.execute(table.statement(tables.CLEAR))
                for pid in tables.indexed_pids(connection, table) - set(kept):
                    building.drop(connection, table.index_name(pid))

    def drop(self, partition: PartitionKey) -> None:
        """Forget a partition: its vectors of every model, and its indexes.

        The files of its indexes are gone at once. The rows are out of every reader's sight, and
        leave the table's file as PostgreSQL's VACUUM comes by, which is the operator's to time.
        """
        pid = self._pid_of(partition)
        with self._inside(pid, writing=True) as cursor:
            known = self._all_tables(cursor.connection)
            for table in known:
                cursor.execute(table.statement(tables.DROP), {"pid": pid})
            names = [table.index_name(pid) for table in known]
            indexes = [name for name in names if tables.facts_of(cursor, name)]
        if indexes:
            with self._owning() as connection:
                for name in indexes:
                    building.drop(connection, name)

    # -- beyond the port --------------------------------------------------------------------

    def prepare(self, model: int, dimension: int) -> Table:
        """Make sure that a model has its table. `put` does so by itself.

        Raises `ModelMismatch` where the model has another dimension, `StoreError` where
        pgvector is missing or too old, or the login may not create tables.
        """
        table = self._tables.get(model)
        if table is None:
            with self._preparing() as connection:
                if tables.extension_of(connection) is None:
                    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            with self._preparing() as connection:
                extension = self._extension_of(connection)
                table = self._table(connection, model)
                if table is None:
                    table = Table(model, dimension, extension)
                    tables.create(connection, table, self._role)
            self._tables.setdefault(model, table)
        _check(table, dimension)
        return table

    def build(self, partition: PartitionKey | None = None) -> int:
        """Bring the indexes of a partition, or of all, in line with their sizes.

        Maintenance, for a job: searches and puts go on meanwhile. It builds an index for a
        partition that has come to `exact_below` vectors, again where it was left half built or
        has outgrown its lists, and drops that of one which shrank to less than half. Returns
        how many indexes changed; 0 also when another process is at it. 100,000 vectors of 384
        dimensions take HNSW about a minute and a half on two cores.
        """
        pid = None if partition is None else self._pid_of(partition)
        with self._owning() as connection, building.alone(connection) as mine:
            if not mine:
                return 0
            changed = 0
            for table in self._all_tables(connection):
                wall = "" if pid is None else wall_of([pid])
                rows = building.sizes(connection, table, pid, wall, self._exact_below // 2)
                pids = (
                    {pid} if pid is not None else {*rows, *tables.indexed_pids(connection, table)}
                )
                for each in sorted(pids):
                    changed += building.bring_in_line(
                        connection,
                        table,
                        each,
                        rows.get(each, 0),
                        method=self._method,
                        exact_below=self._exact_below,
                        memory_mb=self._build_memory_mb,
                    )
            return changed

    # -- steps ------------------------------------------------------------------------------

    @contextmanager
    def _inside(self, pid: bytes, *, writing: bool = False) -> Iterator[Cursor[Any]]:
        """A transaction that sees one partition. Those who write to it take turns."""
        with (
            translated(self._where),
            self._pool.connection() as connection,
            connection.transaction(),
        ):
            cursor = wire.speaks_raw(connection.cursor())
            cursor.execute(_SCOPE, [self._role, wall_of([pid])])
            if writing:
                number = int.from_bytes(pid[:4], "big", signed=True)
                cursor.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", [_WRITERS, number])
            yield cursor

    @contextmanager
    def _owning(self) -> Iterator[Connection[Any]]:
        """A connection outside a transaction that works as the owner of the tables."""
        with (
            translated(self._where),
            self._pool.connection() as connection,
            building.settings(connection, building.OWNER),
        ):
            yield connection

    @contextmanager
    def _preparing(self) -> Iterator[Connection[Any]]:
        """A transaction of the owner; those who create take turns."""
        with (
            translated(self._where),
            self._pool.connection() as connection,
            connection.transaction(),
        ):
            connection.execute(_SCOPE, ["none", ""])
            connection.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", _PREPARING)
            yield connection

    def _extension_of(self, connection: Connection[Any]) -> Extension:
        if self._extension is None:
            found = tables.extension_of(connection)
            if found is None:
                raise errors.StoreError(
                    "the database has no pgvector; let an administrator run "
                    "CREATE EXTENSION vector in it"
                )
            self._extension = found
        return self._extension

    def _table(self, connection: Connection[Any], model: int) -> Table | None:
        if model not in self._tables:
            self._all_tables(connection)
        return self._tables.get(model)

    def _all_tables(self, connection: Connection[Any]) -> list[Table]:
        """Every table there is now; other processes may have made some."""
        if self._extension is None and tables.extension_of(connection) is None:
            return []
        found = tables.tables_of(connection, self._extension_of(connection))
        with self._lock:
            for table in found:
                self._tables.setdefault(table.model, table)
            return [self._tables[table.model] for table in found]

    def _approximate(
        self,
        cursor: Cursor[Any],
        table: Table,
        given: Mapping[str, Any],
        seqs: NDArray[np.int64] | None,
    ) -> list[tuple[int, float]] | None:
        """What the partition's own index finds; None where there is none, or exact is quicker."""
        k, allowed = given["k"], None if seqs is None else len(seqs)
        if plan.surely_exact(k, allowed, self._method):
            return None
        facts = tables.facts_of(cursor, table.index_name(given["pid"]))
        if facts is None or not facts.valid:
            return None
        wanted = plan.approximate(facts, k, allowed, iterative=table.extension.iterative)
        bits = None if seqs is None else wire.bitmap(seqs)
        if wanted is None or (seqs is not None and bits is None):
            return None
        # Without a sort, the index is all that can bring the rows in order.
        _set(cursor, {**wanted, "enable_sort": "off"})
        statement = table.nearest
        if seqs is not None:
            statement = table.nearest_marked
            given = {**given, "low": int(seqs[0]), "high": int(seqs[-1]), "bits": bits}
        # Never prepared: only a plan for this very partition can use its index.
        return cursor.execute(statement, given, prepare=False).fetchall()


def _set(cursor: Cursor[Any], settings: Mapping[str, str]) -> None:
    """Settings of this transaction."""
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    cursor.execute(f"SELECT {calls}".encode(), [each for pair in settings.items() for each in pair])


def _exact(
    cursor: Cursor[Any],
    table: Table,
    given: Mapping[str, Any],
    seqs: NDArray[np.int64] | None,
) -> list[tuple[int, float]]:
    """The nearest by a scan of the partition's rows, or of those of `seqs`."""
    if seqs is None:
        return cursor.execute(table.exact, given).fetchall()
    return cursor.execute(table.exact_among, {**given, "seqs": wire.int8s(seqs)}).fetchall()


def _check(table: Table, dimension: int) -> None:
    if table.dimension != dimension:
        raise errors.ModelMismatch(
            f"model {table.model} has vectors of {table.dimension} dimensions in the index, "
            f"this one has {dimension}; give another model's vectors another number"
        )
