"""The tables of the vector index: one for each model, and what the catalogue says of them.

`scrubjay.vector_index_<model>` is hash-partitioned by `pid` and lies behind the same wall as the
store's tables. A large partition has an index of its own on the leaf it lies in, of its rows
alone: `vector_<model>_<pid>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from psycopg import Connection, Cursor, sql

from scrubjay import errors
from scrubjay.backends.postgres.vectors_plan import IndexFacts

SCHEMA = "scrubjay"
LEAVES = 16
"""Hash partitions of each table."""

_OLDEST = (0, 7)
_ITERATIVE = (0, 8)

EXACT = """
    SELECT seq, coalesce(nullif(embedding {distance} %(query)s::{halfvec}, 'NaN'), 1) AS distance
    FROM {table} WHERE pid = %(pid)s {filter}
    ORDER BY distance, seq LIMIT %(k)s"""
"""Ordered by an expression that is no operator, so that no index can answer it. A vector of
length zero has no cosine; it counts as 0."""

NEAREST = """
    SELECT seq, embedding {distance} %(query)s::{halfvec}
    FROM {table} WHERE pid = %(pid)s {filter}
    ORDER BY embedding {distance} %(query)s::{halfvec} LIMIT %(k)s"""

AMONG = "AND seq = ANY ((SELECT %(seqs)s::bigint[])::bigint[])"
"""A subselect, so that the planner does not look at each of them: it took 127 ms for 100,000."""

MARKED = """AND CASE WHEN seq BETWEEN %(low)s AND %(high)s
    THEN get_bit(%(bits)s::bytea, seq - %(low)s) = 1 ELSE false END"""

PUT = """
    INSERT INTO {table} (pid, seq, embedding)
    SELECT %(pid)s, u.seq, u.embedding
    FROM unnest(%(seqs)s::bigint[], %(vectors)s::{halfvec}[]) AS u(seq, embedding)
    ON CONFLICT (pid, seq) DO UPDATE SET embedding = excluded.embedding"""

SEQS = "SELECT seq FROM {table} WHERE pid = %(pid)s ORDER BY seq"
KEEP = "DELETE FROM {table} WHERE pid <> ALL (%(pids)s::bytea[])"
CLEAR = "TRUNCATE {table}"
REMOVE = "DELETE FROM {table} WHERE pid = %(pid)s " + AMONG
DROP = "DELETE FROM {table} WHERE pid = %(pid)s"
SIZE = "SELECT pid, count(*) FROM {table} WHERE pid = %(pid)s GROUP BY pid"
SIZES = "SELECT pid, count(*) FROM {table} GROUP BY pid HAVING count(*) >= %(least)s"

_WALL = """(
    pid = (SELECT (nullif(current_setting('scrubjay.pids', true), '')::bytea[])[1])
    OR (SELECT current_setting('scrubjay.maintenance', true)) = 'on')"""
"""The first of `scrubjay.pids` alone, since a search here is of one partition. Compared with one
value that is worked out once, the wall costs an exact scan 7 percent; with the list, 15; with a
list that is cast outside its subselect, and so once a row, 90."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The installed pgvector. `schema` is where its types are, `oid` that of halfvec."""

    schema: str
    version: tuple[int, ...]
    oid: int

    @property
    def iterative(self) -> bool:
        """Whether an index scan goes on when a filter leaves too few."""
        return self.version >= _ITERATIVE


@dataclass(frozen=True)
class Table:
    """The vectors of one model, and the statements on them."""

    model: int
    dimension: int
    extension: Extension

    @property
    def name(self) -> str:
        """Its name, without the schema."""
        return f"vector_index_{self.model}"

    def index_name(self, pid: bytes) -> str:
        """The name of a partition's own index, without the schema."""
        return f"vector_{self.model}_{pid.hex()}"

    def statement(self, template: str, rows: str = "") -> bytes:
        """A statement of this module on this table; `rows` is a further condition."""
        schema = _quoted(self.extension.schema)
        return template.format(
            table=f"{SCHEMA}.{self.name}",
            halfvec=f"{schema}.halfvec",
            distance=f"OPERATOR({schema}.<=>)",
            filter=rows,
        ).encode()

    @cached_property
    def exact(self) -> bytes:
        """The nearest of all rows of a partition."""
        return self.statement(EXACT)

    @cached_property
    def exact_among(self) -> bytes:
        """The nearest of some."""
        return self.statement(EXACT, AMONG)

    @cached_property
    def nearest(self) -> bytes:
        """The nearest as an index knows them."""
        return self.statement(NEAREST)

    @cached_property
    def nearest_marked(self) -> bytes:
        """The same of those whose bit is set."""
        return self.statement(NEAREST, MARKED)

    @cached_property
    def put(self) -> bytes:
        """Insert or replace."""
        return self.statement(PUT)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def extension_of(connection: Connection[Any]) -> Extension | None:
    """The pgvector of this database, None where there is none. Raises `StoreError` if too old."""
    found = connection.execute(
        "SELECT n.nspname, e.extversion, t.oid FROM pg_extension e "
        "JOIN pg_namespace n ON n.oid = e.extnamespace "
        "LEFT JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = 'halfvec' "
        "WHERE e.extname = 'vector'"
    ).fetchone()
    if found is None:
        return None
    schema, said, oid = found
    version = tuple(int(part) for part in re.findall(r"\d+", said))
    if version < _OLDEST or oid is None:
        raise errors.StoreError(
            f"the database has pgvector {said}; 0.7 or newer is needed: install it on the server "
            "and run ALTER EXTENSION vector UPDATE"
        )
    return Extension(schema, version, oid)


def tables_of(connection: Connection[Any], extension: Extension) -> list[Table]:
    """Every table of the index in this database."""
    found = connection.execute(
        "SELECT substring(c.relname FROM '[0-9]+$')::bigint, a.atttypmod FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'embedding' "
        "WHERE n.nspname = %s AND c.relkind = 'p' AND c.relname ~ '^vector_index_[0-9]+$' "
        "ORDER BY 1",
        [SCHEMA],
    )
    return [Table(model, dimension, extension) for model, dimension in found.fetchall()]


def create(connection: Connection[Any], table: Table, role: str) -> None:
    """Create the table of a model. Runs as the owner, in a transaction."""
    name = sql.Identifier(SCHEMA, table.name)
    halfvec = sql.Identifier(table.extension.schema, "halfvec")
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} (pid bytea NOT NULL, seq bigint NOT NULL, "
            "embedding {}({}) NOT NULL, PRIMARY KEY (pid, seq)) PARTITION BY HASH (pid)"
        ).format(name, halfvec, sql.Literal(table.dimension))
    )
    leaves = [sql.Identifier(SCHEMA, f"{table.name}_{n}") for n in range(LEAVES)]
    for number, leaf in enumerate(leaves):
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})"
            ).format(leaf, name, sql.Literal(LEAVES), sql.Literal(number))
        )
    for each in (name, *leaves):
        # Kept in the row, where a scan finds it: out of line would be one more look-up each. And
        # no samples of it in the statistics, where they would outlive their being forgotten.
        connection.execute(
            sql.SQL(
                "ALTER TABLE {} ALTER COLUMN embedding SET STORAGE PLAIN, "
                "ALTER COLUMN embedding SET STATISTICS 0, "
                "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
            ).format(each)
        )
        connection.execute(
            sql.SQL("CREATE POLICY wall ON {} USING {}").format(each, sql.SQL(_WALL))
        )
    connection.execute(
        sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(
            name, sql.Identifier(role)
        )
    )


def facts_of(connection: Connection[Any] | Cursor[Any], index: str) -> IndexFacts | None:
    """What the catalogue says of an index (its name without the schema), None if it is not."""
    found = connection.execute(
        "SELECT a.amname, c.reltuples, coalesce((SELECT option_value FROM "
        "pg_options_to_table(c.reloptions) WHERE option_name = 'lists'), '0'), i.indisvalid "
        "FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_am a ON a.oid = c.relam "
        "WHERE c.oid = to_regclass(%s)",
        [f"{SCHEMA}.{index}"],
    ).fetchone()  # fmt: skip
    if found is None:
        return None
    method, rows, lists, valid = found
    return IndexFacts(method, max(int(rows), 0), int(lists), valid)


def indexed_pids(connection: Connection[Any], table: Table) -> set[bytes]:
    """The partitions that have an index of their own, valid or not."""
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind = 'i' AND c.relname ~ %s",
        [SCHEMA, f"^vector_{table.model}_[0-9a-f]{{32}}$"],
    )
    return {bytes.fromhex(name.rpartition("_")[2]) for (name,) in found.fetchall()}


def leaf_of(connection: Connection[Any], table: Table, pid: bytes) -> str:
    """The name of the leaf in which a partition lies, without the schema."""
    found = connection.execute(
        "SELECT n FROM generate_series(0, %(leaves)s::int - 1) n WHERE "
        "satisfies_hash_partition(%(table)s::regclass, %(leaves)s::int, n, %(pid)s::bytea)",
        {"leaves": LEAVES, "table": f"{SCHEMA}.{table.name}", "pid": pid},
    ).fetchone()
    assert found is not None, "every value belongs to one hash partition"
    return f"{table.name}_{found[0]}"
