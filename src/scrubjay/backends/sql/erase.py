"""Forgetting: every row, word, vector and segment entry, in one transaction.

What an engine must do besides, so that no file keeps the old bytes, is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b

from scrubjay.backends.sql.journal import (
    Partition,
    locate,
    lock_partition,
    read_secret,
)
from scrubjay.backends.sql.rows import Rows, id_bytes, id_text, micros
from scrubjay.backends.sql.session import Session
from scrubjay.errors import NotFound, masked
from scrubjay.model import Erasure, PartitionKey
from scrubjay.storage import RewriteSegment, Target, partition_mark

ERASED = "\N{FULL BLOCK}"
"""Stands in a turn for each character that was forgotten."""

_BY_PARTITION = (
    "sources", "edges", "words", "vectors", "segments", "jobs", "requests", "tombstones",
    "memories", "turns",
)  # fmt: skip


@dataclass(slots=True)
class _Erasing:
    """One erasure under way in one partition."""

    session: Session
    rows: Rows
    secret: bytes
    partition: Partition
    now: int
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def pid(self) -> object:
        return self.partition.pid

    @property
    def key(self) -> PartitionKey:
        return self.partition.key

    def gone(self, table: str, count: int) -> None:
        """Count what went."""
        if count:
            self.counts[table] = self.counts.get(table, 0) + count

    def bury(self, origin: bytes, digest: bytes = b"") -> None:
        """Leave a tombstone, so that nothing older brings the origin back."""
        self.session.change("insert_tombstone", self.pid, origin, digest, self.now)


def erase(
    session: Session,
    rows: Rows,
    keys: Sequence[PartitionKey],
    target: Target,
    rewrite: RewriteSegment,
    now: datetime,
) -> Erasure:
    """See `Store.erase`."""
    secret = read_secret(session)
    if target.memory_id is not None:
        keys = [locate(session, keys, target.memory_id).key]
    counts: dict[str, int] = {}
    memory_ids: list[str] = []
    found = target.turn_id is None
    for key in sorted(
        keys, key=lambda k: (k.subject, k.owner)
    ):  # one order: nobody waits in a ring
        partition = lock_partition(session, key)
        if partition is None:
            continue
        work = _Erasing(session, rows, secret, partition, micros(now), counts)
        if target.whole:
            memory_ids += _erase_partition(work)
            continue
        turns = _turns(work, target)
        found = found or bool(turns)
        seqs = _orphaned(work, turns)
        if target.memory_id is not None:
            seqs = _chains(work, {id_bytes(target.memory_id)})
        memory_ids += _erase_memories(work, seqs, rewrite)
        _erase_turns(work, turns)
    if not found:
        raise NotFound(f"no turn {masked(target.turn_id)} in this scope")
    return Erasure(target=_named(target), counts=counts, memory_ids=tuple(memory_ids))


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


def _erase_partition(work: _Erasing) -> list[str]:
    session, partition = work.session, work.partition
    ids = [id_text(row[0]) for row in session.all("ids", work.pid)]
    ((sourced,),) = session.select("SELECT count(turn) FROM memories WHERE pid = ?", (work.pid,))
    work.gone("sources", sourced)
    for table in (*_BY_PARTITION, "partitions"):
        work.gone(table, session.execute(f"DELETE FROM {table} WHERE pid = ?", (work.pid,)))
    mark = partition_mark(work.secret, work.key)
    session.change(
        "insert_forgotten", mark, partition.next_seq, partition.generation + 1, work.now
    )  # fmt: skip
    return ids


def _turns(work: _Erasing, target: Target) -> list[bytes]:
    """The turns that a target names."""
    if target.session_id is not None:
        found = work.session.all("turns_of_session", work.pid, target.session_id)
    elif target.before is not None:
        found = work.session.all("turns_before", work.pid, micros(target.before))
    elif target.turn_id is not None:
        id_ = id_bytes(target.turn_id)
        found = [(id_,)] if work.session.one("find_turn", work.pid, id_) else []
    else:
        return []
    return [row[0] for row in found]


def _orphaned(work: _Erasing, turns: Sequence[bytes]) -> set[int]:
    """Take turns away as sources; the memories, with all their versions, that have none left.

    A memory that was also said elsewhere stays, and now counts from where it was first said
    of what is left.
    """
    session, pid = work.session, work.pid
    touched: set[int] = set()
    for turn in turns:
        touched |= {row[0] for row in session.all("repeats_of_turn", pid, turn)}
        work.gone("sources", session.change("delete_sources_of_turn", pid, turn))
    first_said = {row[0] for turn in turns for row in session.all("memories_of_turn", pid, turn)}
    orphans: set[bytes] = set()
    for seq in first_said:
        if not _move_to_next_source(work, seq):
            session.change("clear_source", pid, seq)
    for seq in touched | first_said:
        session.change("count_sources", pid, seq, pid, seq)
        orphans |= {row[0] for row in session.all("without_source", pid, seq)}
    return _chains(work, orphans)


def _move_to_next_source(work: _Erasing, seq: int) -> bool:
    """Let a memory count from the first of its further sources; False where it has none."""
    row = work.session.one("first_source", work.pid, seq)
    if row is None:
        return False
    turn, start, *_ = row
    work.session.change("move_to_source", *row, turn, work.pid, seq)
    work.gone("sources", work.session.change("delete_source", work.pid, seq, turn, start))
    return True


def _chains(work: _Erasing, ids: set[bytes]) -> set[int]:
    """Memories with all their versions: an older one must not outlive a newer."""
    seqs: set[int] = set()
    waiting = list(ids)
    while waiting:
        row = work.session.one("versions_of", work.pid, waiting.pop())
        if row is None or row[0] in seqs:
            continue
        seqs.add(row[0])
        waiting += [id_ for id_ in row[1:] if id_ is not None]
    return seqs


def _erase_memories(work: _Erasing, seqs: set[int], rewrite: RewriteSegment) -> list[str]:
    if not seqs:
        return []
    session, pid = work.session, work.pid
    ids = []
    for seq in sorted(seqs):
        row = session.one("id_of", pid, seq)
        assert row is not None, "the memory was found before"
        ids.append(id_text(row[0]))
        work.bury(row[0], blake2b(row[1], key=work.secret, digest_size=16).digest())
        _overwrite_spans(work, seq)
    listed = sorted(seqs)
    for table in ("sources", "edges", "words", "vectors", "memories"):
        sql = f"DELETE FROM {table} WHERE pid = ? AND seq IN (?*)"
        work.gone(table, session.execute(sql, (pid, listed)))
    work.gone(
        "edges",
        session.execute("DELETE FROM edges WHERE pid = ? AND to_seq IN (?*)", (pid, listed)),
    )
    work.gone("sources", len(listed))  # the first of each stands in its own row
    _rewrite_segments(work, frozenset(seqs), rewrite)
    _prune_jobs(work, seqs)
    _prune_requests(work, set(ids))
    session.change("change_partition", pid)
    session.change("recount_tails", pid)
    return ids


def _overwrite_spans(work: _Erasing, seq: int) -> None:
    """Blot a memory's characters out of its turns; a turn with nothing left goes."""
    session, pid = work.session, work.pid
    for turn, start, stop in session.all("spans_of", pid, seq, pid, seq):
        row = session.one("find_turn", pid, turn)
        if row is None:
            continue
        text = work.rows.open_text(row[0], work.key, "content")
        text = text[:start] + ERASED * (min(stop, len(text)) - start) + text[stop:]
        users = session.all("memories_of_turn", pid, turn)
        users += session.all("repeats_of_turn", pid, turn)
        if {row[0] for row in users} <= {seq} and not text.replace(ERASED, "").strip():
            work.gone("turns", session.change("delete_turn", pid, turn))
            work.bury(turn)
        else:
            blob = work.rows.seal_text(text, work.key, "content")
            session.change("overwrite_turn", blob, pid, turn)


def _erase_turns(work: _Erasing, turns: Sequence[bytes]) -> None:
    for turn in turns:
        gone = work.session.change("delete_turn", work.pid, turn)
        if gone:
            work.gone("turns", gone)
            work.bury(turn)
    if turns:
        work.session.change("change_partition", work.pid)


def _rewrite_segments(work: _Erasing, seqs: frozenset[int], rewrite: RewriteSegment) -> None:
    low, high = min(seqs), max(seqs)
    for sid, kind, model, min_seq, max_seq, sealed in work.session.all(
        "segments_between", work.pid, low, high
    ):
        if not any(min_seq <= seq <= max_seq for seq in seqs):
            continue
        blob = work.rows.open_bytes(sealed, work.key, "segment")
        rest = rewrite(kind, blob, seqs)
        if rest is not None and rest.blob is blob:
            continue
        work.gone("segment entries", 1)
        work.session.change("delete_segment", work.pid, sid)
        if rest is not None:
            # A new number, so that no reader takes the cached form of the old one for it.
            work.session.change(
                "insert_segment", work.pid, kind, model, rest.count, rest.min_seq, rest.max_seq,
                work.rows.seal_bytes(rest.blob, work.key, "segment"),
            )  # fmt: skip


def _prune_jobs(work: _Erasing, seqs: set[int]) -> None:
    for jid, blob in work.session.all("embed_jobs", work.pid):
        payload = work.rows.open_json(blob, work.key, "payload")
        kept = [seq for seq in payload["seqs"] if seq not in seqs]
        if len(kept) == len(payload["seqs"]):
            continue
        if kept:
            payload["seqs"] = kept
            sealed = work.rows.seal_json(payload, work.key, "payload")
            work.session.change("change_job", sealed, work.pid, jid)
        else:
            work.gone("jobs", work.session.change("delete_job", work.pid, jid))


def _prune_requests(work: _Erasing, ids: set[str]) -> None:
    for name, _, blob in work.session.all("requests", work.pid):
        outcome = work.rows.open_text(blob, work.key, "outcome")
        if ids & {i for entry in json.loads(outcome)[0] for i in entry}:
            work.gone("requests", work.session.change("delete_request", work.pid, name))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a store knows to be forgotten, to be held against an older copy of it."""

    partitions: dict[bytes, tuple[int, int, int]]
    origins: dict[PartitionKey, list[tuple[bytes, bytes, int]]]


def forgotten(session: Session) -> Forgotten:
    """The tombstones of a store."""
    partitions = {mark: tuple(rest) for mark, *rest in session.all("all_forgotten")}
    origins: dict[PartitionKey, list[tuple[bytes, bytes, int]]] = {}
    for tenant, subject, owner, *stone in session.all("all_tombstones"):
        origins.setdefault(PartitionKey(tenant, subject, owner), []).append(tuple(stone))
    return Forgotten(partitions, origins)


def forget_again(session: Session, rows: Rows, known: Forgotten, rewrite: RewriteSegment) -> int:
    """Erase from a restored copy what had been forgotten; returns how many memories went."""
    count = 0
    secret = read_secret(session)
    for names in session.all("partitions"):
        key = PartitionKey(*names)
        partition = lock_partition(session, key)
        assert partition is not None, "the partition was listed above"
        work = _Erasing(session, rows, secret, partition, 0)
        whole = known.partitions.get(partition_mark(secret, key))
        oldest = (session.one("oldest_turn", work.pid) or (None,))[0]
        if whole is not None and oldest is not None and oldest <= whole[2]:
            partition.next_seq = max(partition.next_seq, whole[0])
            partition.generation = max(partition.generation, whole[1])
            work.now = whole[2]
            count += len(_erase_partition(work))
            continue
        stones = known.origins.get(key, [])
        turns = [o for o, _, _ in stones if session.one("find_turn", work.pid, o)]
        seqs = _orphaned(work, turns)
        seqs |= {row[0] for o, _, _ in stones if (row := session.one("locate", work.pid, o))}
        count += len(_erase_memories(work, seqs, rewrite))
        _erase_turns(work, turns)
        session.change_each("insert_tombstone", [(work.pid, *stone) for stone in stones])
    for mark, stone in known.partitions.items():
        session.change("insert_forgotten", mark, *stone)
    return count
