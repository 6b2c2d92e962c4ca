"""Building, replacing and dropping the indexes of large partitions, beside running work.

Everything is CONCURRENTLY: readers and writers go on. That cannot run inside a transaction, so the
connection must commit each statement, and settings are the session's, put back afterwards. One
build at a time in a database: two would wait for each other's snapshots, and take its memory twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection, sql

from scrubjay.backends.postgres import vectors_plan as plan
from scrubjay.backends.postgres.vectors_tables import (
    SCHEMA,
    SIZE,
    SIZES,
    Table,
    facts_of,
    leaf_of,
)

_BUILD_LOCK = (0x5C7B, 0x0B)
_OPERATORS = "halfvec_cosine_ops"


@contextmanager
def settings(connection: Connection[Any], wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session (of its role, "none" being the login's own), put back afterwards."""
    before = {}
    for name in wanted:
        found = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        before[name] = found[0] if found else ""
    try:
        for name, value in wanted.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        yield
    finally:
        with suppress(psycopg.OperationalError):  # a broken connection has no settings
            for name, value in before.items():
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])


OWNER = {"role": "none", "statement_timeout": "0", "lock_timeout": "0"}


@contextmanager
def alone(connection: Connection[Any]) -> Iterator[bool]:
    """Whether no other process builds; none will until this ends."""
    found = connection.execute(
        "SELECT pg_try_advisory_lock(%s::int, %s::int)", _BUILD_LOCK
    ).fetchone()
    got = bool(found and found[0])
    try:
        yield got
    finally:
        if got:
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT pg_advisory_unlock(%s::int, %s::int)", _BUILD_LOCK)


def sizes(
    connection: Connection[Any], table: Table, pid: bytes | None, wall: str, least: int
) -> dict[bytes, int]:
    """Vectors by partition: of one, or of all that have at least `least`."""
    with connection.transaction():
        connection.execute(
            "SELECT set_config('scrubjay.pids', %s, true), "
            "set_config('scrubjay.maintenance', %s, true)",
            [wall, "on" if pid is None else "off"],
        )
        statement = table.statement(SIZES if pid is None else SIZE)
        return dict(connection.execute(statement, {"pid": pid, "least": least}).fetchall())


def bring_in_line(
    connection: Connection[Any],
    table: Table,
    pid: bytes,
    rows: int,
    *,
    method: plan.Method,
    exact_below: int,
    memory_mb: int,
) -> bool:
    """Give a partition with so many vectors the index it should have. Whether that was a change."""
    index = table.index_name(pid)
    todo = plan.step(facts_of(connection, index), rows, method, exact_below)
    if todo in ("drop", "replace"):
        drop(connection, index)
    if todo in ("create", "replace"):
        need = plan.build_memory_kb(method, rows, table.dimension)
        if method == "hnsw":  # too little makes it slow; IVFFlat would refuse to work
            need = min(need, memory_mb * 1024)
        with settings(connection, {"maintenance_work_mem": f"{need}kB"}):
            try:
                _create(connection, table, pid, plan.lists_for(rows) if method == "ivfflat" else 0)
            except psycopg.Error:
                with suppress(psycopg.Error):
                    drop(connection, index)  # it is there, and not valid
                raise
    return todo != "keep"


def drop(connection: Connection[Any], index: str) -> None:
    """Drop an index, if it is there, beside running work."""
    connection.execute(
        sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(SCHEMA, index))
    )


def _create(connection: Connection[Any], table: Table, pid: bytes, lists: int) -> None:
    """Build the index of one partition's rows: IVFFlat with so many lists, or HNSW when 0."""
    index = table.index_name(pid)
    options = (
        f"lists = {lists}" if lists else f"m = {plan.M}, ef_construction = {plan.EF_CONSTRUCTION}"
    )
    schema = table.extension.schema
    statement = sql.SQL(
        "CREATE INDEX CONCURRENTLY {} ON {} USING {} (embedding {}) WITH ({}) WHERE pid = {}::bytea"
    ).format(
        sql.Identifier(index),
        sql.Identifier(SCHEMA, leaf_of(connection, table, pid)),
        sql.Identifier("ivfflat" if lists else "hnsw"),
        sql.Identifier(schema, _OPERATORS),
        sql.SQL(options),
        sql.Literal(f"\\x{pid.hex()}"),
    )
    try:
        connection.execute(statement)
    except psycopg.errors.DiskFull:
        # Workers share their memory through /dev/shm, which is 64 MB in many a container.
        drop(connection, index)
        with settings(connection, {"max_parallel_maintenance_workers": "0"}):
            connection.execute(statement)
