"""A `sql.session.Session` on a PostgreSQL connection, and the wall around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg

from scrubjay.backends.sql import queries
from scrubjay.backends.sql.session import Row
from scrubjay.model import PartitionKey

PidOf = Callable[[PartitionKey], bytes]


def in_postgres(sql: str) -> str:
    """A list is bound as one array.

    >>> in_postgres("SELECT 1 FROM words WHERE pid = ? AND seq IN (?*)")
    'SELECT 1 FROM words WHERE pid = %s AND seq = ANY(%s)'
    """
    return sql.replace("IN (?*)", "= ANY(%s)").replace("?", "%s")


STATEMENTS = {
    name: in_postgres(sql)
    for name, sql in queries.load("scrubjay.backends.sql", "scrubjay.backends.postgres").items()
}


def wall_of(pids: Iterable[bytes]) -> str:
    r"""Numbers of partitions as `scrubjay.pids` has them: an array of bytea as text.

    >>> wall_of([b"\x01\x02"])
    '{"\\\\x0102"}'
    """
    return "{" + ",".join(f'"\\\\x{pid.hex()}"' for pid in pids) + "}"


Begin = Callable[[str], "psycopg.Cursor[Any]"]


class PostgresSession:
    """Runs statements on a connection that is in a transaction."""

    __slots__ = ("_cursor", "_inside", "_pid_of")

    def __init__(self, connection: psycopg.Connection[Any] | None, pid_of: PidOf) -> None:
        self._cursor = None if connection is None else connection.cursor(binary=True)
        self._pid_of = pid_of
        self._inside: dict[bytes, None] = {}

    def cursor(self) -> psycopg.Cursor[Any]:
        """Where statements run."""
        assert self._cursor is not None, "the transaction has begun"
        return self._cursor

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection itself."""
        return self.cursor().connection

    def all(self, name: str, *values: object) -> list[Row]:
        """See `Session.all`."""
        return self.cursor().execute(STATEMENTS[name], values).fetchall()

    def one(self, name: str, *values: object) -> Row | None:
        """See `Session.one`."""
        return self.cursor().execute(STATEMENTS[name], values).fetchone()

    def change(self, name: str, *values: object) -> int:
        """See `Session.change`."""
        return self.cursor().execute(STATEMENTS[name], values).rowcount

    def change_each(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """See `Session.change_each`."""
        self.cursor().executemany(STATEMENTS[name], rows)

    def select(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """See `Session.select`."""
        return self.cursor().execute(in_postgres(sql).encode(), values).fetchall()

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """See `Session.execute`."""
        return self.cursor().execute(in_postgres(sql).encode(), values).rowcount

    def new_pid(self, key: PartitionKey) -> bytes:
        """See `Session.new_pid`."""
        return self._pid_of(key)

    def partitions(self, keys: Sequence[PartitionKey]) -> list[Row | None]:
        """See `Session.partitions`: the wall is widened by these, and their rows read, at once."""
        pids = [self._pid_of(key) for key in keys]
        if not pids:
            return []
        self._inside |= dict.fromkeys(pids)
        # Without values PostgreSQL takes several statements in one round trip.
        cursor = self._several(
            f"SET LOCAL scrubjay.pids = '{wall_of(self._inside)}';"
            f" SELECT * FROM look('{wall_of(pids)}')"
        )
        while cursor.nextset():
            pass
        found: dict[bytes, Row] = {row[0]: row for row in cursor}
        return [found.get(pid) for pid in pids]

    def _several(self, statements: str) -> psycopg.Cursor[Any]:
        return self.connection.execute(statements.encode())


class SnapshotSession(PostgresSession):
    """The session of a snapshot, which begins with its first question, in the same round trip."""

    __slots__ = ("_begin", "_snapshot")

    def __init__(self, begin: Begin, snapshot: str, pid_of: PidOf) -> None:
        super().__init__(None, pid_of)
        self._begin = begin
        self._snapshot = snapshot

    def cursor(self) -> psycopg.Cursor[Any]:
        """Where statements run, once the snapshot has begun."""
        if self._cursor is None:
            begun = self._begin(self._snapshot)
            self._cursor = begun.connection.cursor(binary=True)
        return self._cursor

    def _several(self, statements: str) -> psycopg.Cursor[Any]:
        if self._cursor is not None:
            return super()._several(statements)
        begun = self._begin(f"{self._snapshot}; {statements}")
        self._cursor = begun.connection.cursor(binary=True)
        return begun
