"""Where the stores of a test lie, so that one test runs on each kind of store.

`place("store")` is what `Memory` is opened with: a directory, or the URL of a database that is
made when it is first asked for. The rest is what a test does to a store from outside: read each
byte of it, change a row behind its back, remove it.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql

from postgres_server import Server
from scrubjay.guard.crypt import PlainCodec

Where = Path | str
_GRACE_S = 5.0


class Places(Protocol):
    """The stores of one test."""

    kind: str

    def __call__(self, name: str = "store") -> Where:
        """Where the store of that name is: a path or a URL. It may not exist yet."""

    def empty(self, name: str = "store") -> Where:
        """The same, where certainly no store was ever made."""

    def fresh(self) -> contextlib.AbstractContextManager[Where]:
        """A place for an empty store, gone afterwards: for each example of a property."""

    def every_byte(self, name: str = "store") -> bytes:
        """All that the store keeps: its files, or on a server each of its rows.

        What a server's files hold beside the rows until they are vacuumed is its own affair.
        """

    def change(self, statement: str, values: Sequence[object] = (), name: str = "store") -> int:
        """Run a statement (with `?`) on the store's tables, past the store. How many rows."""

    def remove(self, name: str = "store") -> None:
        """Remove the store, so that the name stands for a new one."""

    def close(self) -> None:
        """Remove what is left, and complain about what still uses it."""


def times(place: Places, usual: int, on_server: int) -> int:
    """How often a test repeats itself: on a server each time takes several times as long."""
    return usual if place.kind == "sqlite" else on_server


class SqlitePlaces:
    """Directories below the test's own."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, name: str = "store") -> Path:
        return self._directory / name

    def empty(self, name: str = "store") -> Path:
        assert not self(name).exists(), "that place is in use"
        return self(name)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as directory:
            yield Path(directory) / "store"

    def every_byte(self, name: str = "store") -> bytes:
        return b"".join(
            b"\n" + str(file.name).encode() + b"\n" + file.read_bytes()
            for file in sorted(self(name).rglob("*"))
            if file.is_file()
        )

    def change(self, statement: str, values: Sequence[object] = (), name: str = "store") -> int:
        connection = sqlite3.connect(self(name) / "scrubjay.db")
        try:
            with connection:
                return connection.execute(statement, values).rowcount
        finally:
            connection.close()

    def remove(self, name: str = "store") -> None:
        shutil.rmtree(self(name))

    def close(self) -> None:
        """The directory goes with the test's own; open files are found by `nothing_leaks`."""


class Databases:
    """Databases of a server with an empty store in each, used again by the next test.

    To make a store takes half a second there: it has hundreds of tables and indexes. So one that a
    test has left is emptied and given another secret, unless the test has changed its tables or
    made it large.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: list[str] = []
        self._shape = ""

    def take(self) -> str:
        """The name of a database whose store is empty."""
        if self._idle:
            return self._idle.pop()
        from scrubjay.backends.postgres import PostgresStore

        name = self.server.create_database()
        PostgresStore(self.server.url(name), PlainCodec()).close()
        with self.server.superuser(name) as connection:
            self._shape = self._shape or _shape_of(connection)
        return name

    def give_back(self, name: str) -> None:
        """The test is over; nobody is connected any more."""
        with self.server.superuser(name) as connection:
            is_usual = _shape_of(connection) == self._shape != ""
            if is_usual:
                connection.execute(_EMPTY)
        if is_usual:
            self._idle.append(name)
        else:
            self.server.drop_database(name)


def _shape_of(connection: psycopg.Connection) -> str:
    """What tables, indexes, triggers, functions and version a database has; "" if it is large."""
    try:
        row = connection.execute(_SHAPE).fetchone()
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable):
        return ""  # the test made no store of it
    return row[0] if row else ""


_SHAPE = """
SELECT concat(md5(string_agg(line, ' ' ORDER BY line)),
    (SELECT version FROM scrubjay.schema_version))
FROM (
    SELECT concat_ws(' ', relname, relkind, relrowsecurity, relforcerowsecurity, relhastriggers)
    FROM pg_class
    WHERE relnamespace = 'scrubjay'::regnamespace
    UNION ALL SELECT concat_ws(' ', proname, md5(prosrc)) FROM pg_proc
    WHERE pronamespace = 'scrubjay'::regnamespace
) AS every (line)
HAVING pg_database_size(current_database()) < 48 * 1048576
"""
_EMPTY = """
DO $$
DECLARE
    name regclass;
BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'scrubjay'::regnamespace
            AND relkind = 'r' AND relname NOT IN ('meta', 'schema_version') LOOP
        EXECUTE format('DELETE FROM %s', name);
    END LOOP;
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'scrubjay'::regnamespace
            AND relkind = 'S' LOOP
        PERFORM setval(name, 1, false);
    END LOOP;
    DELETE FROM scrubjay.meta WHERE key NOT IN ('secret', 'pids');
    UPDATE scrubjay.meta SET value = sha256(gen_random_uuid()::text::bytea);
END $$
"""


class PostgresPlaces:
    """Databases of one server."""

    kind = "postgres"

    def __init__(self, databases: Databases) -> None:
        self.server = databases.server
        self._databases = databases
        self._names: dict[str, str] = {}
        self._own: set[str] = set()
        """Those that no other test gets afterwards."""

    def __call__(self, name: str = "store") -> str:
        return self.server.url(self.database(name))

    def database(self, name: str = "store") -> str:
        """The database that stands behind a name."""
        if name not in self._names:
            self._names[name] = self._databases.take()
        return self._names[name]

    def empty(self, name: str = "store") -> str:
        assert name not in self._names, "that place is in use"
        self._names[name] = self.server.create_database()
        self._own.add(self._names[name])
        return self(name)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        database = self._databases.take()
        yield self.server.url(database)
        self._databases.give_back(database)

    def every_byte(self, name: str = "store") -> bytes:
        found = []
        with self.server.superuser(self.database(name)) as connection:
            tables = connection.execute(
                "SELECT relnamespace::regnamespace::text, relname FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace::regnamespace::text !~ '^(pg_|information_schema)' ORDER BY 1, 2"
            ).fetchall()
            for schema, table in tables:
                found.append(f"\n{schema}.{table}\n".encode())
                statement = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(
                    sql.Identifier(schema, table)
                )
                with connection.cursor().copy(statement) as rows:
                    found += [bytes(part) for part in rows]
        return b"".join(found)

    def change(self, statement: str, values: Sequence[object] = (), name: str = "store") -> int:
        with self.server.superuser(self.database(name)) as connection:
            connection.execute("SET search_path = scrubjay")
            return connection.execute(statement.replace("?", "%s").encode(), values).rowcount

    def remove(self, name: str = "store") -> None:
        self.server.drop_database(self._names.pop(name))

    def close(self) -> None:
        left = []
        for name, database in self._names.items():
            deadline = time.monotonic() + _GRACE_S
            while (open_ := self.server.connections(database)) and time.monotonic() < deadline:
                time.sleep(0.02)
            left += [name] * len(open_)
            if open_ or database in self._own:
                self.server.drop_database(database)
            else:
                self._databases.give_back(database)
        self._names.clear()
        assert not left, f"connections were left open to: {', '.join(left)}"
