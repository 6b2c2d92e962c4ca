"""The embedded store: one directory with one SQLite file in it.

WAL with `synchronous=FULL`: an acknowledged write has been synced. `secure_delete=ON`: what is
deleted is overwritten. Several processes may share the directory. See `ports.Store`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from scrubjay import errors
from scrubjay.backends.sqlite import backup, erase, jobs, journal, segments
from scrubjay.backends.sqlite.checks import check
from scrubjay.backends.sqlite.connection import Database, translated
from scrubjay.backends.sqlite.migrate import migrate, refuse_strangers
from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import Rows, id_bytes
from scrubjay.backends.sqlite.snapshot import SnapshotReading
from scrubjay.model import Erasure, Job, MemoryRecord, PartitionKey, Scope, Turn
from scrubjay.ports import Codec
from scrubjay.storage import (
    Entry,
    JobCounts,
    Journalled,
    ModelRow,
    NewMemory,
    NewSegment,
    Request,
    RewriteSegment,
    Target,
)

FILE_NAME = "scrubjay.db"


class SqliteStore:
    """A `ports.Store` on the file `scrubjay.db` of a directory, made if it is not there."""

    def __init__(
        self,
        directory: Path,
        codec: Codec,
        *,
        synchronous: str = "FULL",
        write_timeout_s: float = 10.0,
    ) -> None:
        self.path = directory / FILE_NAME
        _make_directory(directory)
        with translated(self.path):
            refuse_strangers(self.path)
        self._rows = Rows(codec)
        self._db = Database(self.path, synchronous=synchronous, timeout_s=write_timeout_s)
        with translated(self.path):
            connection = self._db.connect()
            try:
                migrate(connection)
            finally:
                connection.close()
        self._secret = self._read_secret()

    def _read_secret(self) -> bytes:
        with self._db.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()
        return bytes(row[0])

    def journal(
        self,
        partition: PartitionKey,
        entries: Sequence[Entry],
        *,
        request: Request | None = None,
        embed: bool = True,
        priority: int = 0,
    ) -> Journalled:
        """See `Store.journal`."""
        return self._db.write(
            lambda c: journal.journal(
                c, self._rows, partition, entries, request, embed=embed, priority=priority
            )
        )

    def supersede(
        self,
        keys: Sequence[PartitionKey],
        memory_id: str,
        entry: Entry,
        reason: str,
        *,
        embed: bool,
    ) -> MemoryRecord:
        """See `Store.supersede`."""
        return self._db.write(
            lambda c: journal.supersede(c, self._rows, keys, memory_id, entry, reason, embed=embed)
        )

    def import_rows(
        self,
        partition: PartitionKey,
        turns: Sequence[Turn],
        memories: Sequence[NewMemory],
        *,
        embed: bool,
    ) -> tuple[int, int]:
        """See `Store.import_rows`."""
        return self._db.write(
            lambda c: journal.import_rows(
                c,
                self._rows,
                partition,
                turns,
                memories,
                embed=embed,
                forgotten_at=erase.forgotten_at(c, partition),
            )
        )

    def erase(
        self,
        keys: Sequence[PartitionKey],
        target: Target,
        rewrite: RewriteSegment,
        now: datetime,
    ) -> Erasure:
        """See `Store.erase`."""
        erasure = self._db.write(
            lambda c: erase.erase(c, self._rows, self._secret, keys, target, rewrite, now)
        )
        if not self._db.truncate_wal():
            note = (
                "a reader was busy for long: the write-ahead log keeps old pages until a write "
                "after it has ended, or until the store is closed"
            )
            erasure = Erasure(erasure.target, erasure.counts, erasure.memory_ids, {}, (note,))
        return erasure

    def snapshot(self) -> SnapshotReading:
        """See `Store.snapshot`."""
        return SnapshotReading(self._db.read(), self._rows)

    def add_model(self, name: str, dimension: int, baseline: float) -> ModelRow:
        """See `Store.add_model`."""
        return self._db.write(lambda c: segments.add_model(c, name, dimension, baseline))

    def models(self) -> list[ModelRow]:
        """See `Store.models`."""
        with self._db.read() as connection:
            return [ModelRow(*row) for row in connection.execute(query("models"))]

    def texts(self, partition: PartitionKey, seqs: Sequence[int]) -> dict[int, str]:
        """See `Store.texts`."""
        with self._db.read() as connection:
            return segments.texts(connection, self._rows, partition, seqs)

    def put_vectors(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> int:
        """See `Store.put_vectors`."""
        return self._db.write(
            lambda c: segments.put_vectors(c, self._rows, partition, model, vectors), durable=False
        )

    def seal(self, partition: PartitionKey, segment: NewSegment) -> bool:
        """See `Store.seal`."""
        return self._db.write(
            lambda c: segments.seal(c, self._rows, partition, segment), durable=False
        )

    def drop_model(self, model: int) -> int:
        """See `Store.drop_model`."""
        return self._db.write(lambda c: segments.drop_model(c, model))

    def rebuild_words(
        self, partition: PartitionKey, words: Callable[[str], tuple[bytes, int]]
    ) -> int:
        """See `Store.rebuild_words`."""
        return self._db.write(lambda c: segments.rebuild_words(c, self._rows, partition, words))

    def missing_vectors(
        self, partition: PartitionKey, model: int, after: int, limit: int
    ) -> list[int]:
        """See `Store.missing_vectors`."""
        with self._db.read() as connection:
            return segments.missing_vectors(connection, partition, model, after, limit)

    def sealed_vectors(self, partition: PartitionKey, model: int) -> list[int]:
        """See `Store.sealed_vectors`."""
        with self._db.read() as connection:
            pids = self._pids(connection, [partition])
            rows = connection.execute(query("sealed_vectors"), (*pids, model)) if pids else ()
            return [row[0] for row in rows]

    def unseal_vectors(self, partition: PartitionKey) -> None:
        """See `Store.unseal_vectors`."""
        self._db.write(lambda c: segments.unseal_vectors(c, self._rows, partition))

    def count_missing(self, model: int) -> int:
        """See `Store.count_missing`."""
        with self._db.read() as connection:
            return int(connection.execute(query("count_missing"), (model,)).fetchone()[0])

    def enqueue(
        self, partition: PartitionKey, kind: str, payload: Mapping[str, Any], priority: int = 0
    ) -> None:
        """See `Store.enqueue`."""

        def work(connection: sqlite3.Connection) -> None:
            found = journal.open_partition(connection, partition)
            if kind == "seal":
                journal.add_seal_job(connection, self._rows, found.pid, partition)
                return
            blob = self._rows.seal_json(payload, partition, "payload")
            size = len(payload.get("seqs", "1"))
            journal.insert_job(connection, found.pid, kind, priority, size, blob)

        self._db.write(work)

    def claim(self, limit: int, lease_s: float, now: datetime) -> list[Job]:
        """See `Store.claim`."""
        with self._db.read() as connection:
            if not jobs.has_ready(connection, now):
                return []
        return self._db.write(
            lambda c: jobs.claim(c, self._rows, limit, lease_s, now), durable=False
        )

    def complete(self, done: Iterable[Job]) -> None:
        """See `Store.complete`."""
        finished = list(done)
        self._db.write(lambda c: jobs.complete(c, finished), durable=False)

    def fail(
        self, job: Job, error: str, retry_at: datetime | None, payload: Mapping[str, Any]
    ) -> None:
        """See `Store.fail`."""
        self._db.write(
            lambda c: jobs.fail(c, self._rows, job, error, retry_at, payload), durable=False
        )

    def job_counts(self, now: datetime, added_by: datetime | None = None) -> JobCounts:
        """See `Store.job_counts`."""
        with self._db.read() as connection:
            return jobs.counts(connection, now, added_by)

    def dead_jobs(self, keys: Sequence[PartitionKey]) -> list[Job]:
        """See `Store.dead_jobs`."""
        with self._db.read() as connection:
            return jobs.dead(connection, self._rows, self._pids(connection, keys))

    def revive(self) -> int:
        """See `Store.revive`."""
        return self._db.write(lambda c: c.execute(query("revive")).rowcount)

    def partition_keys(self) -> list[PartitionKey]:
        """See `Store.partition_keys`."""
        with self._db.read() as connection:
            rows = connection.execute("SELECT tenant, subject, owner FROM partitions ORDER BY pid")
            return [PartitionKey(*row) for row in rows]

    def subject_partitions(self, scope: Scope) -> list[PartitionKey]:
        """See `Store.subject_partitions`."""
        with self._db.read() as connection:
            rows = connection.execute(
                "SELECT tenant, subject, owner FROM partitions WHERE tenant = ? AND subject = ?"
                " ORDER BY owner",
                (scope.tenant, scope.subject),
            )
            return [PartitionKey(*row) for row in rows]

    def are_elsewhere(self, scope: Scope, ids: Sequence[str]) -> bool:
        """See `Store.are_elsewhere`."""
        with self._db.read() as connection:
            return any(
                connection.execute(
                    query(name), (id_bytes(i), scope.tenant, scope.subject)
                ).fetchone()
                for i in ids
                for name in ("memory_elsewhere", "turn_elsewhere")
            )

    def _pids(self, connection: sqlite3.Connection, keys: Sequence[PartitionKey]) -> list[int]:
        found = (journal.find_partition(connection, key) for key in keys)
        return [partition.pid for partition in found if partition is not None]

    def counts(self, keys: Sequence[PartitionKey]) -> dict[str, int]:
        """See `Store.counts`."""
        counts: dict[str, int] = dict.fromkeys(
            ("turns", "memories", "sources", "vectors", "words", "segments", "jobs", "tombstones"),
            0,
        )
        with self._db.read() as connection:
            for pid in self._pids(connection, keys):
                for table in tuple(counts):
                    if "." not in table:
                        counts[table] += connection.execute(
                            f"SELECT count(*) FROM {table} WHERE pid = ?", (pid,)
                        ).fetchone()[0]
                for state, count in connection.execute(
                    "SELECT state, count(*) FROM memories WHERE pid = ? GROUP BY state", (pid,)
                ):
                    name = f"memories.{state}"
                    counts[name] = counts.get(name, 0) + count
        return counts

    def check(self) -> list[str]:
        """See `Store.check`."""
        with self._db.read() as connection:
            return check(connection)

    def backup(self, target: str, progress: Callable[[int, int], None] | None = None) -> None:
        """See `Store.backup`."""
        with translated(Path(target)), self._db.read() as connection:
            backup.backup(connection, target, progress)

    def restore(self, source: str, rewrite: RewriteSegment) -> int:
        """See `Store.restore`."""
        with _as_no_backup(Path(source)):
            left_out = backup.restore(self._db, self._rows, source, rewrite)
        self._secret = self._read_secret()
        return left_out

    def secret(self) -> bytes:
        """See `Store.secret`."""
        return self._secret

    def size(self) -> int:
        """See `Store.size`."""
        files = self.path.parent.glob(FILE_NAME + "*")
        return sum(os.stat(file).st_size for file in files)

    def close(self) -> None:
        """See `Store.close`."""
        self._db.close()


@contextlib.contextmanager
def _as_no_backup(source: Path) -> Iterator[None]:
    """SQLite's word about a file that is no backup, as an error about that file."""
    try:
        with translated(source):
            yield
    except errors.StoreDamaged as exc:
        raise errors.StoreDamaged(
            f"{source} is no sound backup, and nothing was changed: name a file that `scrubjay "
            "backup` wrote"
        ) from exc


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (PermissionError, OSError) as exc:
        raise errors.StoreReadOnly(
            f"the directory {directory} cannot be made ({exc.strerror}); choose another path "
            "with --path or SCRUBJAY_PATH"
        ) from exc
