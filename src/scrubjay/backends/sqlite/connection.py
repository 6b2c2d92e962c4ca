"""Connections to one SQLite file: a writer behind a queue, readers from a pool.

Writers of this process form a queue; whoever holds the lock runs all that wait in one
transaction, so that many threads share one sync of the disk (group commit; DeWitt et al.,
"Implementation techniques for main memory database systems", SIGMOD 1984). A call that fails
is rolled back to its own savepoint and the others go on. Writers of other processes wait for
the file's lock up to the timeout. Readers never wait: WAL gives each its own snapshot.

A forked child must not touch its parent's connections, so each process opens its own. SQLite
has locks of its own that a child would inherit as held, so a fork waits until no thread is
inside it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from scrubjay import errors
from scrubjay.backends.sqlite.session import SqliteSession

T = TypeVar("T")
_GROUP_LIMIT = 128
_ABANDONED: list[object] = []  # a parent's connections, kept from being closed in a fork
_FORK_WAIT_S = 5.0
_TRUNCATE_WAIT_MS = 1_000


def _error_for(exc: sqlite3.Error, path: Path) -> errors.StoreError:
    code = getattr(exc, "sqlite_errorcode", None)
    primary = (code or 0) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return errors.StoreBusy(
            f"another process holds the write lock of {path} for longer than the timeout; "
            "try again, or raise SCRUBJAY_WRITE_TIMEOUT_S"
        )
    if primary == sqlite3.SQLITE_FULL:
        return errors.StoreFull(
            f"no space left for {path}; nothing of this call was written. Free some space "
            "and try again"
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return errors.StoreReadOnly(
            f"{path} cannot be opened for writing; check the directory's owner and mode"
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path)
    if primary == sqlite3.SQLITE_IOERR:
        return errors.StoreError(f"reading or writing {path} failed ({exc}); check the disk")
    return errors.StoreError(f"{path} refused what was asked, and nothing was written: {exc}")


def _damaged(path: Path) -> errors.StoreDamaged:
    return errors.StoreDamaged(
        f"{path} is damaged or not a Scrubjay store; keep it, restore a backup with "
        "`scrubjay restore`, or read what can be read with `sqlite3 FILE .recover`"
    )


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as Scrubjay's."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _error_for(exc, path) from exc
    except UnicodeDecodeError as exc:  # SQLite quotes the damage, which is no text
        raise _damaged(path) from exc


class _Call(Generic[T]):
    """One write waiting for its turn, then holding its outcome."""

    __slots__ = ("done", "durable", "error", "result", "work")

    def __init__(self, work: Callable[[SqliteSession], T], *, durable: bool = True) -> None:
        self.work = work
        self.durable = durable
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None


class Database:
    """The connections of this process to one file."""

    def __init__(self, path: Path, *, synchronous: str = "FULL", timeout_s: float = 10.0) -> None:
        self.path = path
        self._synchronous = synchronous
        self._timeout_s = timeout_s
        self._closed = False
        self._start()
        _DATABASES.add(self)

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[_Call[Any]] = deque()
        self._readers: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        self._syncing_as = self._synchronous
        self._owes_truncation = False
        self._gate = threading.Condition()
        self._reading = 0
        self._held_for_fork = False

    def _check(self) -> None:
        if self._closed:
            raise errors.StoreClosed("this memory was closed; open it again to go on")
        if os.getpid() != self._process:
            _ABANDONED.extend([self._writer, list(self._readers), self._lock])
            self._start()

    def connect(self) -> sqlite3.Connection:
        """A new connection with every setting that the promises rest on."""
        connection = sqlite3.connect(
            self.path,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._use_wal(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -32768")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch a new file to WAL. Two that do it at once fail without waiting: try again."""
        deadline = time.monotonic() + self._timeout_s
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as exc:
                is_busy = (exc.sqlite_errorcode & 0xFF) in (
                    sqlite3.SQLITE_BUSY,
                    sqlite3.SQLITE_LOCKED,
                )
                if not is_busy or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)

    def write(self, work: Callable[[SqliteSession], T], *, durable: bool = True) -> T:
        """Run `work` in a write transaction and return its result once it is on disk.

        What is not `durable` is not synced by itself: after a loss of power it may be gone, with
        everything that was written after it and not acknowledged. Background work is such: it
        is done again. Raises what `work` raises, with nothing written; `StoreBusy` after the
        timeout.
        """
        self._check()
        call = _Call(work, durable=durable)
        self._queue.append(call)
        with self._lock:
            while not call.done:
                with self._as_errors_of(call):
                    self._run([self._queue.popleft() for _ in range(self._take())])
        if call.error is not None:
            with translated(self.path):
                raise call.error
        return call.result  # type: ignore[return-value]

    def _take(self) -> int:
        return min(len(self._queue), _GROUP_LIMIT)

    @contextlib.contextmanager
    def _as_errors_of(self, call: _Call[Any]) -> Iterator[None]:
        """A signal between the steps must leave no caller waiting for an outcome."""
        try:
            yield
        except BaseException:
            while not call.done:
                with contextlib.suppress(ValueError):
                    self._queue.remove(call)
            raise

    def _run(self, calls: list[_Call[Any]]) -> None:
        try:
            if self._writer is None:
                self._writer = self.connect()
            connection = self._writer
            self._sync_as(self._synchronous if any(c.durable for c in calls) else "NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                for call in calls:
                    self._run_one(connection, call, alone=len(calls) == 1)
                if connection.in_transaction:
                    connection.execute("COMMIT")
                if self._owes_truncation:
                    self._truncate(connection, wait_ms=0)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except BaseException as exc:
            for call in calls:
                call.error, call.done = exc, True
            if not isinstance(exc, Exception):
                raise
        else:
            for call in calls:
                call.done = True

    def _sync_as(self, wanted: str) -> None:
        if self._writer is not None and wanted != self._syncing_as:
            self._writer.execute(f"PRAGMA synchronous = {wanted}")
            self._syncing_as = wanted

    def _run_one(self, connection: sqlite3.Connection, call: _Call[Any], *, alone: bool) -> None:
        if alone:
            call.result = call.work(SqliteSession(connection))
            return
        connection.execute("SAVEPOINT one")
        try:
            call.result = call.work(SqliteSession(connection))
        except Exception as exc:
            if not connection.in_transaction:  # SQLite itself rolled all back, as on a full disk
                raise
            connection.execute("ROLLBACK TO one")
            call.error = exc
        connection.execute("RELEASE one")

    def read(self) -> Reading:
        """A connection inside a read transaction: one snapshot for all its queries."""
        self._check()
        return Reading(self)

    def begin_reading(self) -> tuple[sqlite3.Connection, threading.Condition]:
        """A reader with its snapshot begun, and the gate that counts it."""
        gate = self._gate
        with gate:
            self._reading += 1
        connection = None
        try:
            connection = self._readers.pop() if self._readers else self.connect()
            connection.execute("BEGIN")
            connection.execute("PRAGMA schema_version").fetchone()  # the snapshot begins
        except BaseException:
            if connection is not None:
                connection.close()
            self._leave(gate)
            raise
        return connection, gate

    def end_reading(self, connection: sqlite3.Connection, gate: threading.Condition) -> None:
        """Give a reader back. In a forked child it is the parent's, and not to be touched."""
        if gate is not self._gate:
            _ABANDONED.append(connection)
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        finally:
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)
            self._leave(gate)

    def _leave(self, gate: threading.Condition) -> None:
        with gate:
            self._reading -= 1
            gate.notify_all()

    def before_fork(self) -> None:
        """Let nobody into SQLite, and wait for who is there, though not for ever."""
        if self._closed or os.getpid() != self._process:
            return
        self._held_for_fork = self._lock.acquire(timeout=_FORK_WAIT_S)
        if self._held_for_fork:
            self._gate.acquire()
            self._gate.wait_for(lambda: not self._reading, _FORK_WAIT_S)

    def after_fork(self) -> None:
        """In the parent: go on."""
        if self._held_for_fork:
            self._held_for_fork = False
            self._lock.release()
            self._gate.release()

    def truncate_wal(self) -> bool:
        """Copy the WAL into the file and cut it to nothing.

        False while a reader is in the way; it is then tried again after each later write, and at
        the latest when the last process closes the file.
        """
        self._check()
        with self._lock, translated(self.path):
            if self._writer is None:
                self._writer = self.connect()
            self._owes_truncation = True
            self._truncate(self._writer, wait_ms=_TRUNCATE_WAIT_MS)
        return not self._owes_truncation

    def _truncate(self, connection: sqlite3.Connection, *, wait_ms: int) -> None:
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {int(self._timeout_s * 1000)}")
        self._owes_truncation = bool(busy)

    def close(self) -> None:
        """Close every connection of this process. A second call does nothing."""
        if self._closed or os.getpid() != self._process:
            self._closed = True
            return
        with self._lock:
            self._closed = True
            while self._readers:
                self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None


class Reading:
    """The context of one snapshot. A class, since every search enters one and has to be quick."""

    __slots__ = ("_connection", "_database", "_gate")

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> SqliteSession:
        try:
            self._connection, self._gate = self._database.begin_reading()
        except sqlite3.Error as exc:
            raise _error_for(exc, self._database.path) from exc
        return SqliteSession(self._connection)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.end_reading(self._connection, self._gate)
        if isinstance(error, sqlite3.Error):
            raise _error_for(error, self._database.path) from error


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()


def _before_fork() -> None:
    for database in list(_DATABASES):
        database.before_fork()


def _after_fork() -> None:
    for database in list(_DATABASES):
        database.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
