"""What only the SQLite store has: its queue of writers, pragmas, migrations and locks.

The suites that every store passes are in `test_stores.py`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from scrubjay import errors
from scrubjay.backends.sqlite import SqliteStore
from scrubjay.backends.sqlite.connection import Database, _Call
from scrubjay.backends.sqlite.migrate import migrate, newest, statements, steps
from scrubjay.guard.crypt import PlainCodec
from scrubjay.testing.conformance.build import write


def test_a_full_queue_forgets_no_call(tmp_path: Path) -> None:
    """More writers than fit in one group: each still gets its own outcome."""
    database = Database(tmp_path / "scrubjay.db")
    ran: list[int] = []
    database._queue.extend(_Call(lambda _, n=n: ran.append(n)) for n in range(300))
    assert database.write(lambda _: "mine") == "mine"
    assert ran == list(range(300))
    database.close()


def test_pragmas_of_every_connection(tmp_path: Path) -> None:
    """WAL, synced commits, overwritten pages, foreign keys."""
    database = Database(tmp_path / "scrubjay.db")
    connection = database.connect()
    found = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
    }
    connection.close()
    database.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}


def test_migrations_give_the_schema(tmp_path: Path) -> None:
    """The sum of the steps is what a new store gets."""
    stepwise = sqlite3.connect(tmp_path / "steps.db", isolation_level=None)
    for _, script in sorted(steps().items()):
        for statement in statements(script):
            stepwise.execute(statement)
    new = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    assert migrate(new) == newest()
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    assert stepwise.execute(schema).fetchall() == new.execute(schema).fetchall()
    stepwise.close()
    new.close()


def test_a_writer_waits_its_turn_and_then_says_so(tmp_path: Path) -> None:
    """StoreBusy after the timeout; readers never wait; afterwards all is well."""
    store = SqliteStore(tmp_path, PlainCodec(), write_timeout_s=0.2)
    write(store, "before")
    other = sqlite3.connect(tmp_path / "scrubjay.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.StoreBusy, match="try again"):
        write(store, "meanwhile")
    with store.snapshot() as snapshot:
        assert snapshot.partitions(store.partition_keys())
    again = SqliteStore(tmp_path, PlainCodec(), write_timeout_s=0.2)  # opening needs no lock
    again.close()
    other.execute("ROLLBACK")
    other.close()
    write(store, "after")
    assert store.check() == []
    store.close()
