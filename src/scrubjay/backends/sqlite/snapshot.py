"""One consistent view of the file, as `ports.Snapshot` asks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from scrubjay.backends.sqlite.connection import Reading
from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import (
    RECORD_COLUMNS,
    Rows,
    id_bytes,
    micros,
    sources_of,
)
from scrubjay.model import MemoryRecord, PartitionKey, State, Turn
from scrubjay.storage import Criteria, PartitionState, SegmentInfo, TailWords

_CHUNK = 500  # bound variables in one statement


class SqliteSnapshot:
    """Reads inside one read transaction."""

    def __init__(self, connection: sqlite3.Connection, rows: Rows) -> None:
        self._connection = connection
        self._rows = rows

    def partitions(self, keys: Sequence[PartitionKey]) -> list[PartitionState]:
        """See `Snapshot.partitions`."""
        found = []
        for key in keys:
            row = self._connection.execute(
                query("find_partition"), (key.tenant, key.subject, key.owner)
            ).fetchone()
            if row is not None:
                found.append(PartitionState(key, *row[:4]))
        return found

    def segments(self, partition: PartitionState) -> list[SegmentInfo]:
        """See `Snapshot.segments`."""
        rows = self._connection.execute(query("list_segments"), (partition.pid,))
        return [SegmentInfo(*row) for row in rows]

    def segment_blob(self, partition: PartitionState, sid: int) -> bytes:
        """See `Snapshot.segment_blob`."""
        row = self._connection.execute(query("segment_blob"), (partition.pid, sid)).fetchone()
        return self._rows.open_bytes(row[0], partition.key, "segment")

    def tail_words(self, partition: PartitionState, after: int = 0) -> list[TailWords]:
        """See `Snapshot.tail_words`."""
        rows = self._connection.execute(query("tail_words"), (partition.pid, after))
        return [
            TailWords(
                seq,
                length,
                previous,
                occurred,
                trust,
                confidence,
                self._rows.open_bytes(blob, partition.key, "words"),
            )
            for seq, length, previous, occurred, trust, confidence, blob in rows
        ]

    def tail_vectors(
        self, partition: PartitionState, model: int, after: int = 0
    ) -> list[tuple[int, int, bytes]]:
        """See `Snapshot.tail_vectors`."""
        rows = self._connection.execute(query("tail_vectors"), (partition.pid, model, after))
        return [
            (vid, seq, self._rows.open_bytes(blob, partition.key, "vector"))
            for vid, seq, blob in rows
        ]

    def vectors(
        self, partition: PartitionState, model: int, seqs: Sequence[int]
    ) -> dict[int, bytes]:
        """See `Snapshot.vectors`."""
        found: dict[int, bytes] = {}
        for part in _chunks(seqs):
            marks = ",".join("?" * len(part))
            for seq, blob in self._connection.execute(
                f"SELECT seq, blob FROM vectors WHERE pid = ? AND model = ? AND seq IN ({marks})",
                (partition.pid, model, *part),
            ):
                found[seq] = self._rows.open_bytes(blob, partition.key, "vector")
        return found

    def hidden(self, partition: PartitionState) -> list[int]:
        """See `Snapshot.hidden`."""
        return [row[0] for row in self._connection.execute(query("hidden"), (partition.pid,))]

    def expiries(self, partition: PartitionState) -> list[tuple[int, int]]:
        """See `Snapshot.expiries`."""
        return self._connection.execute(query("expiries"), (partition.pid,)).fetchall()

    def models(self) -> list[int]:
        """See `Snapshot.models`."""
        rows = self._connection.execute("SELECT model FROM models ORDER BY model")
        return [row[0] for row in rows]

    def select(self, partition: PartitionState, criteria: Criteria) -> list[int]:
        """See `Snapshot.select`."""
        clauses, values = _conditions(partition.pid, criteria)
        rows = self._connection.execute(
            f"SELECT m.seq FROM memories m WHERE {' AND '.join(clauses)} ORDER BY m.seq", values
        )
        return [row[0] for row in rows]

    def metadata(
        self, partition: PartitionState, after: int = 0
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """See `Snapshot.metadata`."""
        for seq, blob in self._connection.execute(query("metadata"), (partition.pid, after)):
            yield seq, self._rows.open_metadata(blob, partition.key)

    def records(self, partition: PartitionState, seqs: Sequence[int]) -> list[MemoryRecord]:
        """See `Snapshot.records`."""
        found: dict[int, MemoryRecord] = {}
        for part in _chunks(seqs):
            marks = ",".join("?" * len(part))
            rows = self._connection.execute(
                f"SELECT {RECORD_COLUMNS} FROM memories WHERE pid = ? AND seq IN ({marks})",
                (partition.pid, *part),
            ).fetchall()
            sources = sources_of(self._connection, partition.pid, part) if rows else {}
            for row in rows:
                found[row[1]] = self._rows.record(row, partition.key, sources.get(row[1], ()))
        return [found[seq] for seq in seqs if seq in found]

    def links(self, partition: PartitionState) -> dict[int, int]:
        """See `Snapshot.links`."""
        return dict(self._connection.execute(query("links"), (partition.pid,)).fetchall())

    def locate(self, keys: Sequence[PartitionKey], memory_id: str) -> MemoryRecord | None:
        """See `Snapshot.locate`."""
        row = self._connection.execute(query("locate"), (id_bytes(memory_id),)).fetchone()
        if row is None:
            return None
        for partition in self.partitions(keys):
            if partition.pid == row[0]:
                return self.records(partition, [row[1]])[0]
        return None

    def chain(self, partition: PartitionState, record: MemoryRecord) -> list[MemoryRecord]:
        """See `Snapshot.chain`."""
        rows = self._connection.execute(
            "WITH RECURSIVE back(id, prior) AS ("
            "  SELECT id, supersedes FROM memories WHERE pid = ?1 AND id = ?2"
            "  UNION SELECT m.id, m.supersedes FROM memories m JOIN back ON m.id = back.prior"
            "   WHERE m.pid = ?1),"
            " forth(id, next) AS ("
            "  SELECT id, superseded_by FROM memories WHERE pid = ?1 AND id = ?2"
            "  UNION SELECT m.id, m.superseded_by FROM memories m JOIN forth ON m.id = forth.next"
            "   WHERE m.pid = ?1)"
            " SELECT seq FROM memories WHERE pid = ?1"
            " AND id IN (SELECT id FROM back UNION SELECT id FROM forth) ORDER BY version, seq",
            (partition.pid, id_bytes(record.id)),
        ).fetchall()
        return self.records(partition, [row[0] for row in rows])

    def turns(self, partition: PartitionState) -> Iterator[Turn]:
        """See `Snapshot.turns`."""
        after = 0
        while True:
            rows = self._connection.execute(query("turns"), (partition.pid, after)).fetchall()
            if not rows:
                return
            for row in rows:
                yield self._rows.turn(row, partition.key)
            after = rows[-1][0]


class SnapshotReading:
    """The context of a snapshot."""

    __slots__ = ("_reading", "_rows")

    def __init__(self, reading: Reading, rows: Rows) -> None:
        self._reading = reading
        self._rows = rows

    def __enter__(self) -> SqliteSnapshot:
        return SqliteSnapshot(self._reading.__enter__(), self._rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reading.__exit__(kind, error, trace)


def _chunks(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(seqs), _CHUNK):
        yield seqs[start : start + _CHUNK]


def _conditions(pid: int, criteria: Criteria) -> tuple[list[str], list[Any]]:
    """WHERE clauses, each value bound, for a query over `memories m`."""
    clauses: list[str] = ["m.pid = ?"]
    values: list[Any] = [pid]

    def add(clause: str, *bound: Any) -> None:
        clauses.append(clause)
        values.extend(bound)

    if criteria.states is not None:
        add(f"m.state IN ({','.join('?' * len(criteria.states))})", *map(str, criteria.states))
        if State.ACTIVE in criteria.states and criteria.as_of is None:
            add("(m.expires_at IS NULL OR m.expires_at > ?)", micros(criteria.now))
    if criteria.kinds is not None:
        add(f"m.kind IN ({','.join('?' * len(criteria.kinds))})", *map(str, criteria.kinds))
    if criteria.tiers is not None:
        add(f"m.tier IN ({','.join('?' * len(criteria.tiers))})", *map(str, criteria.tiers))
    if criteria.namespace is not None:
        add("m.namespace = ?", criteria.namespace)
    if criteria.session_id is not None:
        add(
            "m.seq IN (SELECT seq FROM memories WHERE pid = ? AND session_id = ?"
            " UNION ALL SELECT seq FROM sources WHERE pid = ? AND repeated = 1 AND session_id = ?)",
            *(pid, criteria.session_id, pid, criteria.session_id),
        )
    if criteria.since is not None or criteria.until is not None:
        low = micros(criteria.since) if criteria.since else -(1 << 62)
        high = micros(criteria.until) if criteria.until else 1 << 62
        add(
            "(m.occurred_at >= ? AND m.occurred_at < ? OR m.seq IN (SELECT s.seq FROM sources s"
            " WHERE s.pid = ? AND s.repeated = 1 AND s.occurred_at >= ? AND s.occurred_at < ?))",
            *(low, high, pid, low, high),
        )
    if criteria.known_at is not None:
        add("m.recorded_at <= ?", micros(criteria.known_at))
        add("(m.retired_at IS NULL OR m.retired_at > ?)", micros(criteria.known_at))
    if criteria.as_of is not None:
        moment = micros(criteria.as_of)
        add("coalesce(m.valid_from, m.occurred_at) <= ?", moment)
        add("(m.valid_to IS NULL OR m.valid_to > ?)", moment)
        add("(m.expires_at IS NULL OR m.expires_at > ?)", moment)
    return clauses, values
