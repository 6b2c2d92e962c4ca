"""The store on PostgreSQL: one database, any number of processes and machines.

The same steps as every SQL store; the same index in RAM, from the same segments. What is its
own: one round trip for a simple write, row level security behind the scope in every statement,
and a server that may go away and come back. See `ports.Store`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg

from scrubjay.backends.postgres import backup, journal
from scrubjay.backends.postgres.connection import (
    Database,
    OutcomeUnknown,
    Reading,
    Viewing,
    described,
)
from scrubjay.backends.postgres.faults import error_for, is_lost, translated, unavailable
from scrubjay.backends.postgres.migrate import migrate
from scrubjay.backends.postgres.session import wall_of
from scrubjay.backends.sql.journal import read_secret
from scrubjay.backends.sql.rows import id_bytes, id_text
from scrubjay.backends.sql.session import Session
from scrubjay.backends.sql.store import Keys, SqlStore
from scrubjay.errors import StoreUnavailable
from scrubjay.model import Erasure, PartitionKey
from scrubjay.ports import Codec
from scrubjay.storage import (
    Entry,
    Journalled,
    Request,
    RewriteSegment,
    Target,
    partition_mark,
)

if TYPE_CHECKING:
    from scrubjay.backends.postgres.vectors import PgVectorIndex

T = TypeVar("T")
_KNOWN_SEQUENCES = 10_000
_GUESSES = 3
ERASED_NOTE = (
    "PostgreSQL keeps the old bytes, unreachable by any query, in its files until they are "
    "written over or VACUUM FULL has made the table anew, and in its write-ahead log until that is "
    "recycled"
)


class PostgresStore(SqlStore):
    """A `ports.Store` in the schema `scrubjay` of a database, made if it is not there.

    Raises `StoreUnavailable`, `StoreError` (the server is too old, or lacks pgvector),
    `SchemaTooNew`, `StoreDamaged`, `InvalidInput` for a URL that cannot be read.
    """

    def __init__(
        self,
        url: str,
        codec: Codec,
        *,
        synchronous: str = "FULL",
        write_timeout_s: float = 10.0,
        statement_timeout_s: float = 60.0,
        pool_size: int = 10,
        create: bool = True,
    ) -> None:
        super().__init__(codec)
        self.where = described(url)
        self._timeout_s = write_timeout_s
        self._role, self._secret, self._pid_key = self._prepare(url, write_timeout_s, create)
        self._numbers: dict[PartitionKey, bytes] = {}
        self._next = _Sequences()
        self._connect = partial(
            Database,
            url,
            self._role,
            self.pid_of,
            synchronous=synchronous,
            timeout_s=write_timeout_s,
            statement_timeout_s=statement_timeout_s,
            pool_size=pool_size,
        )
        self._db = self._connect()
        self._beside: Database | None = None

    def _prepare(self, url: str, timeout_s: float, create: bool) -> tuple[str, bytes, bytes]:
        try:
            with (
                translated(self.where),
                psycopg.connect(
                    url, autocommit=True, connect_timeout=max(2, int(timeout_s))
                ) as connection,
            ):
                return migrate(connection, self.where, create=create)
        except psycopg.Error as exc:  # while closing
            raise unavailable(self.where, str(exc)) from exc

    def pid_of(self, key: PartitionKey) -> bytes:
        """The number of a partition: a hash of its names, keyed by what the database keeps."""
        pid = self._numbers.get(key)
        if pid is None:
            if len(self._numbers) >= _KNOWN_SEQUENCES:
                self._numbers.clear()
            pid = self._numbers[key] = partition_mark(self._pid_key, key)[:16]
        return pid

    def _walled(self, keys: Keys) -> list[bytes] | None:
        return None if keys is None else [self.pid_of(key) for key in keys]

    def _write(self, keys: Keys, work: Callable[[Session], T], *, durable: bool = True) -> T:
        return self._db.write(self._walled(keys), work, durable=durable)

    def _read(self, keys: Keys) -> Reading:
        return self._db.read(self._walled(keys))

    def _view(self) -> Viewing:
        return self._db.view()

    def journal(
        self,
        partition: PartitionKey,
        entries: Sequence[Entry],
        *,
        request: Request | None = None,
        embed: bool = True,
        priority: int = 0,
    ) -> Journalled:
        """See `Store.journal`. A call whose answer got lost is repeated, and written once."""
        if journal.is_simple(entries):
            outcome = self._journal_at_once(partition, entries, request, embed, priority)
            if outcome is not None:
                return outcome
        for _ in range(2):
            try:
                return super().journal(
                    partition, entries, request=request, embed=embed, priority=priority
                )
            except OutcomeUnknown:
                known = self._already(partition, entries)
                if known is not None:
                    return known
        raise unavailable(self.where, "it went away twice during one call")

    def _journal_at_once(
        self,
        key: PartitionKey,
        entries: Sequence[Entry],
        request: Request | None,
        embed: bool,
        priority: int,
    ) -> Journalled | None:
        """One round trip; None where the shared steps are needed."""
        pid = self.pid_of(key)
        prepared = journal.prepare(self._rows, key, entries)
        first = self._next.get(key)
        lost, guesses = False, 0
        deadline = time.monotonic() + self._timeout_s
        while guesses < _GUESSES:
            values = journal.arguments(
                self._rows, prepared, wall_of([pid]), pid, first, request,
                embed=embed, priority=priority,
            )  # fmt: skip
            try:
                answer = self._call(values, deadline)
            except StoreUnavailable as exc:
                if not lost:
                    raise
                raise self._unknown() from exc
            except psycopg.errors.UniqueViolation:
                return self._already(key, entries) if lost else None
            except psycopg.Error as exc:
                if not is_lost(exc):
                    raise error_for(exc, self.where) from exc
                if time.monotonic() > deadline:
                    raise self._unknown() from exc
                lost = True
                continue
            if answer == first:
                self._next.put(key, first + len(prepared.hashes))
                return prepared.outcome
            if answer == journal.NOT_SIMPLE:
                return self._already(key, entries) if lost else None
            if lost and (known := self._already(key, entries)) is not None:
                return known
            first, guesses = answer, guesses + 1
        return None

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.where} went away before it answered and did not come back in time; whether "
            "this call was written is not known. Look, or repeat it with the same idempotency key"
        )

    def _call(self, values: Sequence[object], deadline: float) -> int:
        connection = self._db.take(deadline)
        try:
            row = self._db.session(connection).one("journal", *values)
            assert row is not None, "a function answers"
            return int(row[0])
        finally:
            self._db.give_back(connection)

    def _already(self, key: PartitionKey, entries: Sequence[Entry]) -> Journalled | None:
        """What a call whose answer got lost has written; None where it was not."""
        turn_ids = tuple(entry.turn.id for entry in entries)
        pid = self.pid_of(key)
        with self._read([key]) as session:
            if turn_ids and session.one("find_turn", pid, id_bytes(turn_ids[0])) is None:
                return None
            ids, repeated = [], set()
            for turn_id in turn_ids:
                own, again = (
                    [row[0] for row in session.all(name, pid, id_bytes(turn_id))]
                    for name in ("memories_of_turn", "repeats_of_turn")
                )
                names = {seq: id_text(session.all("id_of", pid, seq)[0][0]) for seq in own + again}
                ids.append(tuple(names.values()))
                repeated |= {names[seq] for seq in again}
        return Journalled(tuple(ids), turn_ids, frozenset(repeated))

    def erase(
        self,
        keys: Sequence[PartitionKey],
        target: Target,
        rewrite: RewriteSegment,
        now: datetime,
    ) -> Erasure:
        """See `Store.erase`. The notes say what PostgreSQL still has on its disk."""
        erasure = super().erase(keys, target, rewrite, now)
        self._next.clear()
        return Erasure(erasure.target, erasure.counts, erasure.memory_ids, {}, (ERASED_NOTE,))

    def backup(self, target: str, progress: Callable[[int, int], None] | None = None) -> None:
        """See `Store.backup`."""
        with self._read(None) as session:
            backup.backup(session.connection, target, progress)

    def restore(self, source: str, rewrite: RewriteSegment) -> int:
        """See `Store.restore`."""
        left_out = self._db.write(
            None, lambda s: backup.restore(s, self._rows, source, rewrite, self.pid_of)
        )
        self._next.clear()
        with self._read(None) as session:
            self._use_secret(read_secret(session))
        return left_out

    def size(self) -> int:
        """See `Store.size`."""
        with self._read(None) as session:
            ((count,),) = session.select(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
                " WHERE relnamespace = 'scrubjay'::regnamespace AND relkind = 'r'"
            )
        return int(count)

    def vector_index(self) -> PgVectorIndex:
        """The index of large partitions in this database; `close` closes it, too.

        It has connections of its own: who searches holds one of the store's at the same time, and
        from one pool they could all wait for each other.
        """
        from scrubjay.backends.postgres.vectors import PgVectorIndex

        if self._beside is None:
            self._beside = self._connect()
        return PgVectorIndex(self._beside, self.pid_of, self._role, where=self.where)

    def close(self) -> None:
        """See `Store.close`."""
        self._db.close()
        if self._beside is not None:
            self._beside.close()


class _Sequences:
    """Where the next memory of a partition will probably stand, of those lately written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[PartitionKey, int] = OrderedDict()

    def get(self, key: PartitionKey) -> int:
        with self._lock:
            return self._known.get(key, 1)

    def put(self, key: PartitionKey, seq: int) -> None:
        with self._lock:
            self._known[key] = max(seq, self._known.get(key, 0))
            self._known.move_to_end(key)
            if len(self._known) > _KNOWN_SEQUENCES:
                self._known.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
