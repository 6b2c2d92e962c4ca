"""A `sql.session.Session` on an SQLite connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from scrubjay.backends.sql import queries
from scrubjay.backends.sql.session import Row
from scrubjay.model import PartitionKey


def _in_sqlite(sql: str) -> str:
    """A list of integers is bound as one JSON text, of any length."""
    return sql.replace("IN (?*)", _FROM_JSON)


_FROM_JSON = "IN (SELECT value FROM json_each(?))"
_STATEMENTS = {name: _in_sqlite(sql) for name, sql in queries.load("scrubjay.backends.sql").items()}


def _bound(sql: str, values: Sequence[object]) -> tuple[str, Sequence[object]]:
    """The statement and its values, with any list as SQLite takes it: JSON has no blobs."""
    for place, value in enumerate(values):
        if isinstance(value, list):
            before, after = values[:place], values[place + 1 :]
            if value and isinstance(value[0], bytes):
                marks = f"IN ({','.join('?' * len(value))})"
                return sql.replace(_FROM_JSON, marks), (*before, *value, *after)
            return sql, (*before, json.dumps(value), *after)
    return sql, values


class SqliteSession:
    """Runs statements on a connection that is in a transaction."""

    __slots__ = ("connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def all(self, name: str, *values: object) -> list[Row]:
        """See `Session.all`."""
        return self.connection.execute(*_bound(_STATEMENTS[name], values)).fetchall()

    def one(self, name: str, *values: object) -> Row | None:
        """See `Session.one`."""
        row: Row | None = self.connection.execute(*_bound(_STATEMENTS[name], values)).fetchone()
        return row

    def change(self, name: str, *values: object) -> int:
        """See `Session.change`."""
        return self.connection.execute(*_bound(_STATEMENTS[name], values)).rowcount

    def change_each(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """See `Session.change_each`."""
        self.connection.executemany(_STATEMENTS[name], rows)

    def select(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """See `Session.select`."""
        return self.connection.execute(*_bound(_in_sqlite(sql), values)).fetchall()

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """See `Session.execute`."""
        return self.connection.execute(*_bound(_in_sqlite(sql), values)).rowcount

    def partitions(self, keys: Sequence[PartitionKey]) -> list[Row | None]:
        """See `Session.partitions`."""
        rows = [self.one("find_partition", key.tenant, key.subject, key.owner) for key in keys]
        return [row and row[:4] for row in rows]

    def new_pid(self, key: PartitionKey) -> None:
        """SQLite numbers partitions itself."""
        del key
