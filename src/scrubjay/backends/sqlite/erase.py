"""Forgetting: every row, word, vector and segment entry, in one transaction.

`secure_delete` overwrites freed pages in the file; the WAL, which may still hold the old
pages, is emptied by the caller after the commit.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from scrubjay.backends.sqlite.journal import (
    NO_PARTITION,
    find_partition,
    locate,
    partition_mark,
)
from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import Rows, id_bytes, id_text, micros
from scrubjay.errors import NotFound, masked
from scrubjay.model import Erasure, PartitionKey
from scrubjay.storage import RewriteSegment, Target

ERASED = "\N{FULL BLOCK}"
"""Stands in a turn for each character that was forgotten."""

_BY_PARTITION = (
    "sources", "edges", "words", "vectors", "segments", "jobs", "requests", "tombstones",
    "memories", "turns",
)  # fmt: skip


@dataclass(slots=True)
class _Erasing:
    """One erasure under way in one partition."""

    connection: sqlite3.Connection
    rows: Rows
    pid: int
    key: PartitionKey
    now: int
    counts: dict[str, int] = field(default_factory=dict)

    def run(self, table: str, sql: str, values: Iterable[object]) -> None:
        """Run a DELETE and count what went."""
        gone = self.connection.execute(sql, tuple(values)).rowcount
        if gone:
            self.counts[table] = self.counts.get(table, 0) + gone

    def bury(self, origin: bytes, digest: bytes = b"", *, pid: int | None = None) -> None:
        """Leave a tombstone, so that nothing older brings the origin back."""
        self.connection.execute(
            query("insert_tombstone"),
            (self.pid if pid is None else pid, origin, digest, self.now),
        )


def erase(
    connection: sqlite3.Connection,
    rows: Rows,
    secret: bytes,
    keys: Sequence[PartitionKey],
    target: Target,
    rewrite: RewriteSegment,
    now: datetime,
) -> Erasure:
    """See `Store.erase`."""
    if target.memory_id is not None:
        keys = [locate(connection, keys, target.memory_id)[0].key]
    counts: dict[str, int] = {}
    memory_ids: list[str] = []
    found = target.turn_id is None
    for key in keys:
        partition = find_partition(connection, key)
        if partition is None:
            continue
        work = _Erasing(connection, rows, partition.pid, key, micros(now), counts)
        if target.whole:
            memory_ids += _erase_partition(work, partition.next_seq)
            continue
        seqs, tids = _selected(work, target)
        found = found or bool(tids)
        memory_ids += _erase_memories(work, secret, seqs, rewrite)
        _erase_turns(work, tids)
    if not found:
        raise NotFound(f"no turn {masked(target.turn_id)} in this scope")
    return Erasure(target=_named(target), counts=counts, memory_ids=tuple(memory_ids))


def forgotten_at(connection: sqlite3.Connection, key: PartitionKey) -> int | None:
    """When a partition was last forgotten whole, in microseconds; None if never."""
    row = connection.execute(
        query("find_tombstone"), (NO_PARTITION, partition_mark(connection, key))
    ).fetchone()
    return None if row is None else int(row[1])


def _named(target: Target) -> str:
    if target.whole:
        return "everything in the scope"
    if target.memory_id is not None:
        return f"memory {target.memory_id}"
    if target.turn_id is not None:
        return f"turn {target.turn_id}"
    if target.session_id is not None:
        return "session"
    return f"before {target.before.isoformat() if target.before else ''}"


def _erase_partition(work: _Erasing, next_seq: int) -> list[str]:
    ids = [
        id_text(row[0])
        for row in work.connection.execute("SELECT id FROM memories WHERE pid = ?", (work.pid,))
    ]
    for table in _BY_PARTITION:
        work.run(table, f"DELETE FROM {table} WHERE pid = ?", (work.pid,))
    work.run("partitions", "DELETE FROM partitions WHERE pid = ?", (work.pid,))
    mark = partition_mark(work.connection, work.key)
    work.bury(mark, next_seq.to_bytes(8, "big"), pid=NO_PARTITION)
    return ids


def _selected(work: _Erasing, target: Target) -> tuple[set[int], set[int]]:
    """The sequences and the turns that a target names."""
    if target.memory_id is not None:
        return _chains(work, {id_bytes(target.memory_id)}), set()
    where: str
    value: Any
    if target.session_id is not None:
        where, value = "session_id = ?", target.session_id
    elif target.turn_id is not None:
        where, value = "id = ?", id_bytes(target.turn_id)
    else:
        assert target.before is not None
        where, value = "occurred_at < ?", micros(target.before)
    rows = work.connection.execute(
        f"SELECT tid FROM turns WHERE pid = ? AND {where}", (work.pid, value)
    )
    tids = {row[0] for row in rows}
    return _orphaned(work, tids), tids


def _orphaned(work: _Erasing, tids: set[int]) -> set[int]:
    """Take turns away as sources; the memories, with all their versions, that have none left.

    A memory that was also said elsewhere stays, and now counts from where it was first said
    of what is left.
    """
    execute = work.connection.execute
    touched: set[int] = set()
    for tid in tids:
        touched |= {r[0] for r in execute("SELECT seq FROM sources WHERE tid = ?", (tid,))}
        work.run("sources", "DELETE FROM sources WHERE tid = ?", (tid,))
    orphans: set[bytes] = set()
    for seq in touched:
        if execute(query("first_source"), (work.pid, seq)).fetchone() is None:
            row = execute("SELECT id FROM memories WHERE pid = ? AND seq = ?", (work.pid, seq))
            orphans.add(row.fetchone()[0])
        else:
            execute(query("move_to_first_source"), (work.pid, seq))
    return _chains(work, orphans)


def _chains(work: _Erasing, ids: set[bytes]) -> set[int]:
    """Memories with all their versions: an older one must not outlive a newer."""
    seqs: set[int] = set()
    waiting = list(ids)
    while waiting:
        row = work.connection.execute(
            "SELECT seq, supersedes, superseded_by FROM memories WHERE pid = ? AND id = ?",
            (work.pid, waiting.pop()),
        ).fetchone()
        if row is None or row[0] in seqs:
            continue
        seqs.add(row[0])
        waiting += [id_ for id_ in row[1:] if id_ is not None]
    return seqs


def _erase_memories(
    work: _Erasing, secret: bytes, seqs: set[int], rewrite: RewriteSegment
) -> list[str]:
    if not seqs:
        return []
    execute = work.connection.execute
    ids = []
    for seq in sorted(seqs):
        row = execute(
            "SELECT id, content_hash FROM memories WHERE pid = ? AND seq = ?", (work.pid, seq)
        ).fetchone()
        ids.append(id_text(row[0]))
        work.bury(row[0], hmac.digest(secret, row[1], "sha256")[:16])
        _overwrite_spans(work, seq)
        for table in ("sources", "edges", "words", "vectors", "memories"):
            work.run(table, f"DELETE FROM {table} WHERE pid = ? AND seq = ?", (work.pid, seq))
        work.run("edges", "DELETE FROM edges WHERE pid = ? AND to_seq = ?", (work.pid, seq))
    _rewrite_segments(work, frozenset(seqs), rewrite)
    _prune_jobs(work, seqs)
    _prune_requests(work, set(ids))
    execute(query("change_partition"), (work.pid,))
    execute(query("recount_tails"), (work.pid,))
    return ids


def _overwrite_spans(work: _Erasing, seq: int) -> None:
    """Blot a memory's characters out of its turns; a turn with nothing left goes."""
    execute = work.connection.execute
    spans = execute(
        "SELECT tid, start, stop FROM sources WHERE pid = ? AND seq = ?", (work.pid, seq)
    ).fetchall()
    for tid, start, stop in spans:
        row = execute("SELECT id, content FROM turns WHERE tid = ?", (tid,)).fetchone()
        text = work.rows.open_text(row[1], work.key, "content")
        text = text[:start] + ERASED * (min(stop, len(text)) - start) + text[stop:]
        others = execute(
            "SELECT 1 FROM sources WHERE tid = ? AND (seq <> ? OR pid <> ?)", (tid, seq, work.pid)
        ).fetchone()
        if others is None and not text.replace(ERASED, "").strip():
            work.run("sources", "DELETE FROM sources WHERE tid = ?", (tid,))
            work.run("turns", "DELETE FROM turns WHERE tid = ?", (tid,))
            work.bury(row[0])
        else:
            blob = work.rows.seal_text(text, work.key, "content")
            execute("UPDATE turns SET content = ? WHERE tid = ?", (blob, tid))


def _erase_turns(work: _Erasing, tids: set[int]) -> None:
    for tid in tids:
        row = work.connection.execute("SELECT id FROM turns WHERE tid = ?", (tid,)).fetchone()
        if row is not None:
            work.bury(row[0])
            work.run("turns", "DELETE FROM turns WHERE tid = ?", (tid,))
    if tids:
        work.connection.execute(query("change_partition"), (work.pid,))


def _rewrite_segments(work: _Erasing, seqs: frozenset[int], rewrite: RewriteSegment) -> None:
    low, high = min(seqs), max(seqs)
    segments = work.connection.execute(
        "SELECT sid, kind, model, min_seq, max_seq, blob FROM segments"
        " WHERE pid = ? AND max_seq >= ? AND min_seq <= ?",
        (work.pid, low, high),
    ).fetchall()
    for sid, kind, model, min_seq, max_seq, sealed in segments:
        if not any(min_seq <= seq <= max_seq for seq in seqs):
            continue
        blob = work.rows.open_bytes(sealed, work.key, "segment")
        rest = rewrite(kind, blob, seqs)
        if rest is not None and rest.blob is blob:
            continue
        work.counts["segment entries"] = work.counts.get("segment entries", 0) + 1
        work.connection.execute(query("delete_segment"), (work.pid, sid))
        if rest is not None:
            # A new number, so that no reader takes the cached form of the old one for it.
            work.connection.execute(
                query("insert_segment"),
                (work.pid, kind, model, rest.count, rest.min_seq, rest.max_seq,
                 work.rows.seal_bytes(rest.blob, work.key, "segment")),
            )  # fmt: skip


def _prune_jobs(work: _Erasing, seqs: set[int]) -> None:
    jobs = work.connection.execute(
        "SELECT jid, payload FROM jobs WHERE pid = ? AND kind = 'embed'", (work.pid,)
    ).fetchall()
    for jid, blob in jobs:
        payload = work.rows.open_json(blob, work.key, "payload")
        kept = [seq for seq in payload["seqs"] if seq not in seqs]
        if len(kept) == len(payload["seqs"]):
            continue
        if kept:
            payload["seqs"] = kept
            sealed = work.rows.seal_json(payload, work.key, "payload")
            work.connection.execute("UPDATE jobs SET payload = ? WHERE jid = ?", (sealed, jid))
        else:
            work.run("jobs", "DELETE FROM jobs WHERE jid = ?", (jid,))


def _prune_requests(work: _Erasing, ids: set[str]) -> None:
    requests = work.connection.execute(
        "SELECT key, outcome FROM requests WHERE pid = ?", (work.pid,)
    ).fetchall()
    for request_key, blob in requests:
        outcome = work.rows.open_text(blob, work.key, "outcome")
        if ids & {i for entry in json.loads(outcome)[0] for i in entry}:
            work.run(
                "requests",
                "DELETE FROM requests WHERE pid = ? AND key = ?",
                (work.pid, request_key),
            )


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a store knows to be forgotten, to be held against an older copy of it."""

    partitions: dict[bytes, tuple[bytes, int]]
    origins: dict[PartitionKey, list[tuple[bytes, bytes, int]]]


def forgotten(connection: sqlite3.Connection) -> Forgotten:
    """The tombstones of a store."""
    whole = connection.execute(
        "SELECT origin, digest, forgotten_at FROM tombstones WHERE pid = ?", (NO_PARTITION,)
    ).fetchall()
    partitions = {origin: (digest, at) for origin, digest, at in whole}
    origins: dict[PartitionKey, list[tuple[bytes, bytes, int]]] = {}
    for tenant, subject, owner, *stone in connection.execute(
        "SELECT p.tenant, p.subject, p.owner, t.origin, t.digest, t.forgotten_at"
        " FROM tombstones t JOIN partitions p USING (pid)"
    ):
        origins.setdefault(PartitionKey(tenant, subject, owner), []).append(tuple(stone))
    return Forgotten(partitions, origins)


def forget_again(
    connection: sqlite3.Connection,
    rows: Rows,
    secret: bytes,
    known: Forgotten,
    rewrite: RewriteSegment,
) -> int:
    """Erase from a restored copy what had been forgotten; returns how many memories went."""
    count = 0
    for pid, next_seq, *names in connection.execute(
        "SELECT pid, next_seq, tenant, subject, owner FROM partitions"
    ).fetchall():
        work = _Erasing(connection, rows, pid, PartitionKey(*names), 0)
        whole = known.partitions.get(partition_mark(connection, work.key))
        oldest = connection.execute(
            "SELECT min(recorded_at) FROM turns WHERE pid = ?", (pid,)
        ).fetchone()[0]
        if whole is not None and oldest is not None and oldest <= whole[1]:
            last = max(next_seq, int.from_bytes(whole[0], "big"))
            count += len(_erase_partition(work, last))
            continue
        stones = known.origins.get(work.key, [])
        tids = _present(work, "turns", stones)
        seqs = _orphaned(work, tids) | _present(work, "memories", stones)
        count += len(_erase_memories(work, secret, seqs, rewrite))
        _erase_turns(work, tids)
        connection.executemany(query("insert_tombstone"), [(pid, *stone) for stone in stones])
    for mark, stone in known.partitions.items():
        connection.execute(query("insert_tombstone"), (NO_PARTITION, mark, *stone))
    return count


def _present(work: _Erasing, table: str, stones: Sequence[tuple[bytes, bytes, int]]) -> set[int]:
    column = "seq" if table == "memories" else "tid"
    found = (
        work.connection.execute(
            f"SELECT {column} FROM {table} WHERE pid = ? AND id = ?", (work.pid, origin)
        ).fetchone()
        for origin, _, _ in stones
    )
    return {row[0] for row in found if row is not None}
