"""A `ports.Store` over sessions: what both engines do in the same steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from scrubjay.backends.sql import checks, erase, jobs, journal, moving, segments
from scrubjay.backends.sql.rows import Rows, id_bytes
from scrubjay.backends.sql.session import Session
from scrubjay.backends.sql.snapshot import SqlSnapshot
from scrubjay.model import Erasure, Job, MemoryRecord, PartitionKey, Scope, Turn
from scrubjay.ports import Codec
from scrubjay.storage import (
    Entry,
    JobCounts,
    Journalled,
    Marks,
    ModelRow,
    NewMemory,
    NewSegment,
    Origin,
    Request,
    RewriteSegment,
    Target,
)

T = TypeVar("T")
Keys = Sequence[PartitionKey] | None
"""The partitions a transaction may touch; None for maintenance over the whole store."""


class SqlStore(ABC):
    """The methods of `ports.Store` that need nothing but sessions."""

    def __init__(self, codec: Codec) -> None:
        self._rows = Rows(codec)
        self._secret = b""

    @abstractmethod
    def _write(self, keys: Keys, work: Callable[[Session], T], *, durable: bool = True) -> T:
        """Run `work` in one write transaction, and return once that is on disk.

        What is not `durable` may be lost with the power, together with what came after it.
        """

    @abstractmethod
    def _read(self, keys: Keys) -> AbstractContextManager[Session]:
        """A consistent view of these partitions."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Session]:
        """A consistent view whose partitions are named later."""

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
        return self._write(
            [partition],
            lambda s: journal.journal(
                s, self._rows, partition, entries, request, embed=embed, priority=priority
            ),
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
        return self._write(
            keys,
            lambda s: journal.supersede(s, self._rows, keys, memory_id, entry, reason, embed=embed),
        )

    def import_rows(
        self,
        partition: PartitionKey,
        turns: Sequence[Turn],
        memories: Sequence[NewMemory],
        *,
        embed: bool,
        exact: bool = False,
    ) -> tuple[int, int]:
        """See `Store.import_rows`."""
        return self._write(
            [partition],
            lambda s: journal.import_rows(
                s, self._rows, partition, turns, memories, embed=embed, exact=exact
            ),
        )

    def erase(
        self,
        keys: Sequence[PartitionKey],
        target: Target,
        rewrite: RewriteSegment,
        now: datetime,
    ) -> Erasure:
        """See `Store.erase`."""
        return self._write(keys, lambda s: erase.erase(s, self._rows, keys, target, rewrite, now))

    def snapshot(self) -> AbstractContextManager[SqlSnapshot]:
        """See `Store.snapshot`."""
        return _SnapshotReading(self._view(), self._rows)

    def add_model(self, name: str, dimension: int, baseline: float) -> ModelRow:
        """See `Store.add_model`."""
        return self._write(None, lambda s: segments.add_model(s, name, dimension, baseline))

    def models(self) -> list[ModelRow]:
        """See `Store.models`."""
        with self._read(None) as session:
            return [ModelRow(*row) for row in session.all("models")]

    def texts(self, partition: PartitionKey, seqs: Sequence[int]) -> dict[int, str]:
        """See `Store.texts`."""
        with self._read([partition]) as session:
            return segments.texts(session, self._rows, partition, seqs)

    def put_vectors(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> int:
        """See `Store.put_vectors`."""
        return self._write(
            [partition],
            lambda s: segments.put_vectors(s, self._rows, partition, model, vectors),
            durable=False,
        )

    def seal(self, partition: PartitionKey, segment: NewSegment) -> bool:
        """See `Store.seal`."""
        return self._write(
            [partition],
            lambda s: segments.seal(s, self._rows, partition, segment),
            durable=False,
        )

    def drop_model(self, model: int) -> int:
        """See `Store.drop_model`."""
        return self._write(None, lambda s: segments.drop_model(s, model))

    def rebuild_words(
        self, partition: PartitionKey, words: Callable[[str], tuple[bytes, int]]
    ) -> int:
        """See `Store.rebuild_words`."""
        return self._write(
            [partition], lambda s: segments.rebuild_words(s, self._rows, partition, words)
        )

    def missing_vectors(
        self, partition: PartitionKey, model: int, after: int, limit: int
    ) -> list[int]:
        """See `Store.missing_vectors`."""
        with self._read([partition]) as session:
            return segments.missing_vectors(session, partition, model, after, limit)

    def sealed_vectors(self, partition: PartitionKey, model: int) -> list[int]:
        """See `Store.sealed_vectors`."""
        with self._read([partition]) as session:
            return [
                row[0]
                for pid in self._pids(session, [partition])
                for row in session.all("sealed_vectors", pid, model)
            ]

    def unseal_vectors(self, partition: PartitionKey) -> None:
        """See `Store.unseal_vectors`."""
        self._write([partition], lambda s: segments.unseal_vectors(s, self._rows, partition))

    def count_missing(self, model: int) -> int:
        """See `Store.count_missing`."""
        with self._read(None) as session:
            row = session.one("count_missing", model)
            return int(row[0]) if row else 0

    def enqueue(
        self, partition: PartitionKey, kind: str, payload: Mapping[str, Any], priority: int = 0
    ) -> None:
        """See `Store.enqueue`."""

        def work(session: Session) -> None:
            found = journal.open_partition(session, partition)
            if kind == "seal":
                journal.add_seal_job(session, self._rows, found)
                return
            blob = self._rows.seal_json(payload, partition, "payload")
            size = len(payload.get("seqs", "1"))
            journal.insert_job(session, found.pid, kind, priority, size, blob)

        self._write([partition], work)

    def claim(self, limit: int, lease_s: float, now: datetime) -> list[Job]:
        """See `Store.claim`."""
        with self._read(None) as session:
            if jobs.first_kind(session, now) is None:
                return []
        return self._write(
            None, lambda s: jobs.claim(s, self._rows, limit, lease_s, now), durable=False
        )

    def complete(self, done: Iterable[Job]) -> None:
        """See `Store.complete`."""
        finished = list(done)
        self._write(None, lambda s: jobs.complete(s, finished), durable=False)

    def fail(
        self, job: Job, error: str, retry_at: datetime | None, payload: Mapping[str, Any]
    ) -> None:
        """See `Store.fail`."""
        self._write(
            None,
            lambda s: jobs.fail(s, self._rows, job, error, retry_at, payload),
            durable=False,
        )

    def job_counts(self, now: datetime, added_by: datetime | None = None) -> JobCounts:
        """See `Store.job_counts`."""
        with self._read(None) as session:
            return jobs.counts(session, now, added_by)

    def dead_jobs(self, keys: Sequence[PartitionKey]) -> list[Job]:
        """See `Store.dead_jobs`."""
        with self._read(keys) as session:
            return jobs.dead(session, self._rows, self._pids(session, keys))

    def revive(self) -> int:
        """See `Store.revive`."""
        return self._write(None, lambda s: s.change("revive"))

    def partition_keys(self) -> list[PartitionKey]:
        """See `Store.partition_keys`."""
        with self._read(None) as session:
            return [PartitionKey(*row) for row in session.all("partitions")]

    def subject_partitions(self, scope: Scope) -> list[PartitionKey]:
        """See `Store.subject_partitions`."""
        with self._read(None) as session:
            rows = session.all("subject_partitions", scope.tenant, scope.subject)
            return [PartitionKey(*row) for row in rows]

    def are_elsewhere(self, scope: Scope, ids: Sequence[str]) -> bool:
        """See `Store.are_elsewhere`."""
        own = (scope.tenant, scope.subject)
        with self._read(None) as session:
            return any(
                tuple(owner) != own
                for i in ids
                for name in ("owner_of_memory", "owner_of_turn")
                for owner in session.all(name, id_bytes(i))
            )

    def _pids(self, session: Session, keys: Sequence[PartitionKey]) -> list[object]:
        found = (journal.find_partition(session, key) for key in keys)
        return [partition.pid for partition in found if partition is not None]

    def counts(self, keys: Sequence[PartitionKey]) -> dict[str, int]:
        """See `Store.counts`."""
        tables = (
            "turns", "memories", "sources", "vectors", "words", "segments", "jobs", "tombstones",
        )  # fmt: skip
        counts: dict[str, int] = dict.fromkeys(tables, 0)
        with self._read(keys) as session:
            for pid in self._pids(session, keys):
                for table in tables:
                    ((count,),) = session.select(
                        f"SELECT count(*) FROM {table} WHERE pid = ?", (pid,)
                    )
                    counts[table] += count
                for state, count, sourced in session.select(
                    "SELECT state, count(*), count(turn) FROM memories WHERE pid = ?"
                    " GROUP BY state",
                    (pid,),
                ):
                    counts["sources"] += sourced
                    name = f"memories.{state}"
                    counts[name] = counts.get(name, 0) + count
        return counts

    def check(self) -> list[str]:
        """See `Store.check`."""
        with self._read(None) as session:
            return checks.check(session)

    def origin(self) -> Origin:
        """See `Store.origin`."""
        with self._read(None) as session:
            return moving.origin(session)

    def adopt(self, origin: Origin) -> None:
        """See `Store.adopt`."""
        self._write(None, lambda s: moving.adopt(s, origin))
        self._use_secret(origin.secret)

    def _use_secret(self, secret: bytes) -> None:
        """From now on everything is keyed by this secret."""
        self._secret = secret

    def marks(self, partition: PartitionKey) -> Marks:
        """See `Store.marks`."""
        with self._read([partition]) as session:
            return moving.marks(session, self._rows, partition)

    def add_marks(self, partition: PartitionKey, marks: Marks) -> None:
        """See `Store.add_marks`."""
        self._write([partition], lambda s: moving.add_marks(s, self._rows, partition, marks))

    def secret(self) -> bytes:
        """See `Store.secret`."""
        return self._secret


class _SnapshotReading:
    """The context of a snapshot. A class, since every search enters one and has to be quick."""

    __slots__ = ("_rows", "_view")

    def __init__(self, view: AbstractContextManager[Session], rows: Rows) -> None:
        self._view = view
        self._rows = rows

    def __enter__(self) -> SqlSnapshot:
        return SqlSnapshot(self._view.__enter__(), self._rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._view.__exit__(kind, error, trace)
