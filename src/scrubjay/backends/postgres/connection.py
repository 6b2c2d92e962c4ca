"""Connections to one PostgreSQL database: a pool, transactions behind the wall, another try.

Every transaction first says which partitions it may touch (`SET LOCAL scrubjay.pids`); the row
level security of each table holds it to that, whatever its statements say. A server that goes
away is waited for up to the timeout: what was not yet committed is done again on a new
connection. A commit whose answer got lost is not: `OutcomeUnknown` says so.

A forked child must not touch its parent's connections, so each process has its own pool.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from scrubjay import errors
from scrubjay.backends.postgres.faults import error_for, is_lost, is_worth_repeating, unavailable
from scrubjay.backends.postgres.session import (
    PidOf,
    PostgresSession,
    SnapshotSession,
    wall_of,
)

T = TypeVar("T")
Connection = psycopg.Connection[Any]
_ABANDONED: list[object] = []  # a parent's pool, kept from being closed in a fork
_REPEATS = 10
_RECONNECT_S = 1.0
_IDLE_S = 600
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A machine that is gone without a word is noticed after a minute."""
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# The pool's own messages tell what the errors here tell as well.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class OutcomeUnknown(errors.StoreUnavailable):
    """The server went away between a commit and its answer."""


def described(url: str) -> str:
    """A URL as errors show it: without user and password.

    >>> described("postgresql://ada:secret@db.example/memories")
    'the PostgreSQL database memories at db.example'
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as exc:
        # What libpq says of it would show the password.
        raise errors.InvalidInput(
            "the URL of the store cannot be read; it is like "
            "postgresql://user:password@host:5432/database, with @ : / % in the password written "
            "as %40 %3A %2F %25"
        ) from exc
    host = parts.get("host") or parts.get("hostaddr") or "the local socket"
    return f"the PostgreSQL database {parts.get('dbname') or '(default)'} at {host}"


class Database:
    """The connections of this process to one database."""

    def __init__(
        self,
        url: str,
        role: str,
        pid_of: PidOf,
        *,
        synchronous: str,
        timeout_s: float,
        statement_timeout_s: float,
        pool_size: int,
    ) -> None:
        self.where = described(url)
        self._url = make_conninfo(url, connect_timeout=max(2, int(timeout_s)), **_KEEPALIVE)
        self.pid_of = pid_of
        self._timeout_s = timeout_s
        self._pool_size = pool_size
        self._closed = False
        self._preamble = (
            f'SET ROLE "{role}"; SET search_path = scrubjay, public;'
            # Each statement names one partition: one plan does for all, and planning costs more
            # than running it.
            " SET plan_cache_mode = force_generic_plan;"
            f" SET synchronous_commit = {'on' if synchronous == 'FULL' else 'off'};"
            f" SET lock_timeout = {max(1, int(timeout_s * 1000))};"
            f" SET statement_timeout = {int(statement_timeout_s * 1000)};"
            f" SET idle_in_transaction_session_timeout = '{_IDLE_S}s'"
        )
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool = psycopg_pool.ConnectionPool(
            self._url,
            min_size=1,
            max_size=self._pool_size,
            kwargs={"autocommit": True, "application_name": "scrubjay"},
            configure=self._configure,
            reset=None,
            reconnect_timeout=_RECONNECT_S,
            num_workers=1,
            open=True,
        )

    def _configure(self, connection: Connection) -> None:
        # One type for all whole numbers, so that a statement is prepared once.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.prepared_max = 400
        connection.prepare_threshold = 2
        connection.execute(self._preamble.encode())

    def check_open(self) -> None:
        """Raise `StoreClosed` after `close`; in a forked child, begin anew."""
        if self._closed:
            raise errors.StoreClosed("this memory was closed; open it again to go on")
        if os.getpid() != self._process:
            _ABANDONED.append(self._pool)
            self._start()

    def _wall(self, pids: Sequence[bytes] | None) -> str:
        if pids is None:
            return "SET LOCAL scrubjay.maintenance = 'on'; SET LOCAL statement_timeout = 0"
        return f"SET LOCAL scrubjay.pids = '{wall_of(pids)}'"

    def take(self, deadline: float) -> Connection:
        """A connection outside a transaction, which is not known to be alive."""
        self.check_open()
        return self._take(deadline)

    def begin(self, statements: str, deadline: float | None = None) -> psycopg.Cursor[Any]:
        """The outcome of `statements`, which begin a transaction, on a connection that is alive."""
        self.check_open()
        deadline = time.monotonic() + self._timeout_s if deadline is None else deadline
        while True:
            connection = self._take(deadline)
            try:
                return connection.execute(statements.encode())
            except psycopg.Error as exc:
                lost = is_lost(exc, connection)
                self.give_back(connection)
                if not lost:
                    raise error_for(exc, self.where) from exc

    def _take(self, deadline: float) -> Connection:
        """A connection of the pool, waiting for one until the deadline."""
        while True:
            left = deadline - time.monotonic()
            try:
                return self._pool.getconn(timeout=max(0.05, min(left, _RECONNECT_S)))
            except psycopg_pool.PoolTimeout as exc:
                if left > 0:
                    continue
                if self._pool.get_stats().get("pool_size", 0) >= self._pool_size:
                    raise errors.StoreBusy(
                        f"all {self._pool_size} connections to {self.where} are in use; raise "
                        "SCRUBJAY_POOL_SIZE, or use fewer threads"
                    ) from exc
                raise unavailable(self.where, "no connection in time") from exc
            except psycopg_pool.PoolClosed as exc:
                raise errors.StoreClosed("this memory was closed; open it again to go on") from exc

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool, which drops it if it is broken or busy."""
        if os.getpid() != self._process:  # the parent's: not to be touched
            _ABANDONED.append(connection)
            return
        self._pool.putconn(connection)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection that has just answered, outside a transaction: for who begins their own."""
        connection = self.begin("SELECT 1").connection
        try:
            yield connection
        finally:
            _roll_back(connection)
            self.give_back(connection)

    def read(self, pids: Sequence[bytes] | None) -> Reading:
        """One consistent view of these partitions."""
        return Reading(self, f"{_SNAPSHOT}; {self._wall(pids)}")

    def view(self) -> Viewing:
        """One consistent view, fixed by its first question, whose partitions are named later."""
        return Viewing(self)

    def session(self, connection: Connection) -> PostgresSession:
        """A session on a connection in a transaction."""
        return PostgresSession(connection, self.pid_of)

    def write(
        self,
        pids: Sequence[bytes] | None,
        work: Callable[[PostgresSession], T],
        *,
        durable: bool = True,
    ) -> T:
        """Run `work` in a transaction and return its result once it is committed.

        `work` runs again when the server went away before the commit, or when two transactions
        met and this one had to give way; so it must have no effect but in the database.
        """
        begin = f"BEGIN; {self._wall(pids)}"
        if not durable:
            begin += "; SET LOCAL synchronous_commit = off"
        deadline = time.monotonic() + self._timeout_s
        repeats = 0
        while True:
            connection = self.begin(begin, deadline).connection
            try:
                result = work(self.session(connection))
                self._commit(connection)
            except psycopg.Error as exc:
                if is_worth_repeating(exc) and repeats < _REPEATS:
                    repeats += 1
                    _roll_back(connection)
                    time.sleep(random.uniform(0, 0.002 * 2**repeats))
                    continue
                if is_lost(exc, connection):
                    continue  # `begin` waits for the server, up to the deadline
                raise error_for(exc, self.where) from exc
            else:
                return result
            finally:
                _roll_back(connection)
                self.give_back(connection)

    def _commit(self, connection: Connection) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError as exc:
            if is_lost(exc, connection):
                raise OutcomeUnknown(
                    f"{self.where} went away before it answered; whether this call was written is "
                    "not known. Look, or repeat it with the same idempotency key"
                ) from exc
            raise

    def close(self) -> None:
        """Close every connection of this process. A second call does nothing."""
        if not self._closed and os.getpid() == self._process:
            self._pool.close()
        self._closed = True


def _end_reading(connection: Connection) -> None:
    """End a transaction that wrote nothing. A COMMIT, since psycopg gives up every prepared
    statement of a connection that rolls back.
    """
    if connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            connection.close()  # it broke while ending, which ends it as well
    _roll_back(connection)


def _roll_back(connection: Connection) -> None:
    """End a transaction that is still open; a broken connection needs none."""
    status = connection.info.transaction_status
    if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
        try:
            connection.execute("ROLLBACK")
        except psycopg.OperationalError:
            connection.close()  # it broke while ending, which ends it as well


class Reading:
    """The context of one view. A class, since every search enters one and has to be quick."""

    __slots__ = ("_begin", "_connection", "_database")

    def __init__(self, database: Database, begin: str) -> None:
        self._database = database
        self._begin = begin

    def __enter__(self) -> PostgresSession:
        self._connection = self._database.begin(self._begin).connection
        return self._database.session(self._connection)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end_reading(self._connection)
        self._database.give_back(self._connection)
        if isinstance(error, psycopg.Error):
            raise error_for(error, self._database.where) from error


class Viewing:
    """The context of a snapshot that begins with its first question."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None

    def __enter__(self) -> SnapshotSession:
        self._database.check_open()
        return SnapshotSession(self._begin, _SNAPSHOT, self._database.pid_of)

    def _begin(self, statements: str) -> psycopg.Cursor[Any]:
        cursor = self._database.begin(statements)
        self._connection = cursor.connection
        return cursor

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            _end_reading(self._connection)
            self._database.give_back(self._connection)
        if isinstance(error, psycopg.Error):
            raise error_for(error, self._database.where) from error
