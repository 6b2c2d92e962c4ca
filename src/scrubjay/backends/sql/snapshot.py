"""One consistent view of a store, as `ports.Snapshot` asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scrubjay.backends.sql.rows import Rows, id_bytes, micros, source_of
from scrubjay.backends.sql.session import Session
from scrubjay.model import MemoryRecord, PartitionKey, Source, State, Turn
from scrubjay.storage import Criteria, PartitionState, SegmentInfo, TailWords


class SqlSnapshot:
    """Reads inside one read transaction."""

    def __init__(self, session: Session, rows: Rows) -> None:
        self._session = session
        self._rows = rows

    def partitions(self, keys: Sequence[PartitionKey]) -> list[PartitionState]:
        """See `Snapshot.partitions`."""
        rows = self._session.partitions(keys)
        return [
            PartitionState(key, *row)
            for key, row in zip(keys, rows, strict=True)
            if row is not None
        ]

    def segments(self, partition: PartitionState) -> list[SegmentInfo]:
        """See `Snapshot.segments`."""
        return [SegmentInfo(*row) for row in self._session.all("list_segments", partition.pid)]

    def segment_blob(self, partition: PartitionState, sid: int) -> bytes:
        """See `Snapshot.segment_blob`."""
        row = self._session.one("segment_blob", partition.pid, sid)
        assert row is not None, "`segments` listed it"
        return self._rows.open_bytes(row[0], partition.key, "segment")

    def tail_words(self, partition: PartitionState, after: int = 0) -> list[TailWords]:
        """See `Snapshot.tail_words`."""
        rows = self._session.all("tail_words", partition.pid, after)
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
        return [
            (vid, seq, self._rows.open_bytes(blob, partition.key, "vector"))
            for vid, seq, blob in self._session.all("tail_vectors", partition.pid, model, after)
        ]

    def vectors(
        self, partition: PartitionState, model: int, seqs: Sequence[int]
    ) -> dict[int, bytes]:
        """See `Snapshot.vectors`."""
        found = self._session.all("vectors_of", partition.pid, model, list(seqs))
        return {seq: self._rows.open_bytes(blob, partition.key, "vector") for seq, blob in found}

    def hidden(self, partition: PartitionState) -> list[int]:
        """See `Snapshot.hidden`."""
        return [row[0] for row in self._session.all("hidden", partition.pid)]

    def expiries(self, partition: PartitionState) -> list[tuple[int, int]]:
        """See `Snapshot.expiries`."""
        return [(seq, at) for seq, at in self._session.all("expiries", partition.pid)]

    def models(self) -> list[int]:
        """See `Snapshot.models`."""
        return [row[0] for row in self._session.all("models")]

    def select(self, partition: PartitionState, criteria: Criteria) -> list[int]:
        """See `Snapshot.select`."""
        clauses, values = _conditions(partition.pid, criteria)
        rows = self._session.select(
            f"SELECT m.seq FROM memories m WHERE {' AND '.join(clauses)} ORDER BY m.seq", values
        )
        return [row[0] for row in rows]

    def metadata(
        self, partition: PartitionState, after: int = 0
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """See `Snapshot.metadata`."""
        for seq, blob in self._session.all("metadata", partition.pid, after):
            yield seq, self._rows.open_metadata(blob, partition.key)

    def records(self, partition: PartitionState, seqs: Sequence[int]) -> list[MemoryRecord]:
        """See `Snapshot.records`."""
        rows = self._session.all("records", partition.pid, list(seqs)) if seqs else []
        repeated = [row[1] for row in rows if row[-1]]
        further: dict[int, list[Source]] = {}
        if repeated:
            for row in self._session.all("sources_of", partition.pid, repeated):
                further.setdefault(row[0], []).append(source_of(row))
        found = {
            row[1]: self._rows.record(row, partition.key, further.get(row[1], ())) for row in rows
        }
        return [found[seq] for seq in seqs if seq in found]

    def links(self, partition: PartitionState) -> dict[int, int]:
        """See `Snapshot.links`."""
        return dict(self._session.all("links", partition.pid))

    def locate(self, keys: Sequence[PartitionKey], memory_id: str) -> MemoryRecord | None:
        """See `Snapshot.locate`."""
        for partition in self.partitions(keys):
            row = self._session.one("locate", partition.pid, id_bytes(memory_id))
            if row is not None:
                return self.records(partition, [row[0]])[0]
        return None

    def chain(self, partition: PartitionState, record: MemoryRecord) -> list[MemoryRecord]:
        """See `Snapshot.chain`."""
        pid, id_ = partition.pid, id_bytes(record.id)
        rows = self._session.all("chain", pid, id_, pid, pid, id_, pid, pid)
        return self.records(partition, [row[0] for row in rows])

    def turns(self, partition: PartitionState) -> Iterator[Turn]:
        """See `Snapshot.turns`."""
        after = 0
        while rows := self._session.all("turns", partition.pid, after):
            for row in rows:
                yield self._rows.turn(row, partition.key)
            after = rows[-1][0]


def _conditions(pid: object, criteria: Criteria) -> tuple[list[str], list[Any]]:
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
            " UNION ALL SELECT seq FROM sources WHERE pid = ? AND session_id = ?)",
            *(pid, criteria.session_id, pid, criteria.session_id),
        )
    if criteria.since is not None or criteria.until is not None:
        low = micros(criteria.since) if criteria.since else -(1 << 62)
        high = micros(criteria.until) if criteria.until else 1 << 62
        add(
            "(m.occurred_at >= ? AND m.occurred_at < ? OR m.seq IN (SELECT s.seq FROM sources s"
            " WHERE s.pid = ? AND s.occurred_at >= ? AND s.occurred_at < ?))",
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
