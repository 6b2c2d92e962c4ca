"""Writing turns and memories, inside a transaction that the caller holds.

Everything a turn leads to at once (episode, words, source, jobs, the idempotency record)
is written here together, so that a crash leaves all of it or none.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import Rows, id_bytes, id_text, micros
from scrubjay.errors import IdempotencyConflict, InvalidInput, NotFound, masked
from scrubjay.model import MemoryRecord, PartitionKey, State, Turn
from scrubjay.storage import Entry, Journalled, NewMemory, Request

SEAL_AT = 512
"""A tail of this many rows is sealed into a segment."""
NO_PARTITION = 0
"""Under which the tombstones of whole partitions stand."""
EMBED_BATCH = 64
"""Memories in one embed job: few enough that live writes need not wait long behind a bulk."""


@dataclass(slots=True)
class Partition:
    """A partition's row while a transaction writes to it."""

    pid: int
    key: PartitionKey
    next_seq: int
    tail_words: int
    first_seq: int = field(init=False)
    written: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first_seq = self.next_seq


def find_partition(connection: sqlite3.Connection, key: PartitionKey) -> Partition | None:
    """The partition's row, or None where nothing was ever written to it."""
    row = connection.execute(
        query("find_partition"), (key.tenant, key.subject, key.owner)
    ).fetchone()
    return None if row is None else Partition(row[0], key, row[1], row[4])


def open_partition(connection: sqlite3.Connection, key: PartitionKey) -> Partition:
    """The partition's row, made if need be."""
    found = find_partition(connection, key)
    if found is None:
        first = first_free_seq(connection, key)
        cursor = connection.execute(
            query("insert_partition"), (key.tenant, key.subject, key.owner, first)
        )
        found = Partition(int(cursor.lastrowid or 0), key, first, 0)
    return found


def partition_mark(connection: sqlite3.Connection, key: PartitionKey) -> bytes:
    """What stays of a partition that was forgotten whole: nothing that names its user."""
    secret = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0]
    name = "\x00".join((key.tenant, key.subject, key.owner))
    return hmac.digest(secret, name.encode("utf-8"), "sha256")


def first_free_seq(connection: sqlite3.Connection, key: PartitionKey) -> int:
    """Where a partition's sequences begin: after those it had before it was forgotten whole.

    A late job that still speaks of an old sequence so never meets a new memory.
    """
    row = connection.execute(
        query("find_tombstone"), (NO_PARTITION, partition_mark(connection, key))
    ).fetchone()
    return 1 if row is None else int.from_bytes(row[0], "big")


def close_partition(
    connection: sqlite3.Connection, rows: Rows, partition: Partition, *, embed: bool, priority: int
) -> None:
    """Move the partition forward and ask for the work that its new memories need."""
    written = partition.written
    connection.execute(
        query("append_to_partition"), (partition.next_seq, len(written), partition.pid)
    )
    for start in range(0, len(written) if embed else 0, EMBED_BATCH):
        seqs = written[start : start + EMBED_BATCH]
        payload = rows.seal_json({"seqs": seqs}, partition.key, "payload")
        insert_job(connection, partition.pid, "embed", priority, len(seqs), payload)
    if partition.tail_words + len(written) >= SEAL_AT:
        add_seal_job(connection, rows, partition.pid, partition.key)


def add_seal_job(connection: sqlite3.Connection, rows: Rows, pid: int, key: PartitionKey) -> None:
    """Ask for the partition's tails to be sealed, once."""
    if connection.execute(query("has_seal_job"), (pid,)).fetchone() is None:
        payload = rows.seal_json({}, key, "payload")
        insert_job(connection, pid, "seal", 5, 1, payload)


def insert_job(
    connection: sqlite3.Connection, pid: int, kind: str, priority: int, size: int, payload: bytes
) -> None:
    """Add background work. Jobs live by the real clock, not by the memory's."""
    added_at = time.time_ns() // 1000
    connection.execute(query("insert_job"), (pid, kind, priority, size, added_at, payload))


def journal(
    connection: sqlite3.Connection,
    rows: Rows,
    key: PartitionKey,
    entries: Sequence[Entry],
    request: Request | None,
    *,
    embed: bool,
    priority: int,
) -> Journalled:
    """See `Store.journal`."""
    partition = open_partition(connection, key)
    if request is not None:
        known = _replayed(connection, rows, partition, request)
        if known is not None:
            return known
    ids: list[tuple[str, ...]] = []
    repeated: set[str] = set()
    last: dict[str | None, int] = {None: 0}
    if any(e.record.state is not State.ACTIVE for entry in entries for e in entry.episodes):
        connection.execute(query("change_partition"), (partition.pid,))
    for entry in entries:
        tid = _insert_turn(connection, rows, partition, entry.turn)
        entry_ids = []
        session = entry.turn.scope.session_id
        if session not in last:
            last[session] = last_of_session(connection, partition, session)
        for new in entry.episodes:
            seq, memory_id = _repeated(connection, partition, new)
            is_repeated = memory_id is not None
            if memory_id is None:
                seq, memory_id = (
                    insert_memory(connection, rows, partition, new, last[session]),
                    new.record.id,
                )
            else:
                repeated.add(memory_id)
                # The repeated episode has a new source: readers must see its new times.
                connection.execute(query("change_partition"), (partition.pid,))
            _insert_sources(connection, partition.pid, seq, tid, new.record, repeated=is_repeated)
            entry_ids.append(memory_id)
            last[session] = seq
        ids.append(tuple(entry_ids))
    close_partition(connection, rows, partition, embed=embed, priority=priority)
    outcome = Journalled(tuple(ids), tuple(e.turn.id for e in entries), frozenset(repeated))
    if request is not None:
        blob = rows.seal_json([outcome.ids, outcome.turn_ids], key, "outcome")
        connection.execute(
            query("insert_request"), (partition.pid, request.key, request.digest, blob)
        )
    return outcome


def _replayed(
    connection: sqlite3.Connection, rows: Rows, partition: Partition, request: Request
) -> Journalled | None:
    row = connection.execute(query("find_request"), (partition.pid, request.key)).fetchone()
    if row is None:
        return None
    digest, blob = row
    if not hmac.compare_digest(digest, request.digest):
        raise IdempotencyConflict(
            f"the idempotency key {masked(request.key)} was used before with another body; "
            "nothing was written. Use a new key for a new body"
        )
    ids, turn_ids = rows.open_json(blob, partition.key, "outcome")
    return Journalled(tuple(tuple(i) for i in ids), tuple(turn_ids), replayed=True)


def last_of_session(
    connection: sqlite3.Connection, partition: Partition, session: str | None
) -> int:
    """The newest memory of a session, which the next one follows; 0 for none."""
    row = connection.execute(query("last_of_session"), (partition.pid, session)).fetchone()
    return row[0] or 0


def _insert_turn(
    connection: sqlite3.Connection, rows: Rows, partition: Partition, turn: Turn
) -> int:
    cursor = connection.execute(
        query("insert_turn"), rows.turn_row(turn, partition.pid, partition.key)
    )
    return int(cursor.lastrowid or 0)


def _repeated(
    connection: sqlite3.Connection, partition: Partition, new: NewMemory
) -> tuple[int, str | None]:
    row = connection.execute(query("find_repeated"), (partition.pid, new.content_hash)).fetchone()
    if row is None:
        return 0, None
    seq, id_, expires_at = row
    if expires_at is not None and expires_at <= micros(new.record.recorded_at):
        connection.execute(query("retire_expired"), (partition.pid, seq))
        connection.execute(query("change_partition"), (partition.pid,))
        return 0, None
    return seq, id_text(id_)


def insert_memory(
    connection: sqlite3.Connection, rows: Rows, partition: Partition, new: NewMemory, previous: int
) -> int:
    """Write one memory and its words at the partition's next sequence, which is returned."""
    seq = partition.next_seq
    record, key, pid = new.record, partition.key, partition.pid
    connection.execute(
        query("insert_memory"),
        rows.memory_row(record, seq, new.content_hash, previous, pid, key),
    )
    connection.execute(
        query("insert_words"),
        (pid, seq, new.length, previous, micros(record.occurred_at), round(record.trust * 100),
         round(record.confidence * 100), rows.seal_bytes(new.postings, key, "words")),
    )  # fmt: skip
    partition.next_seq += 1
    partition.written.append(seq)
    return seq


def _insert_sources(
    connection: sqlite3.Connection,
    pid: int,
    seq: int,
    tid: int,
    record: MemoryRecord,
    *,
    repeated: bool = False,
) -> None:
    for source in record.sources:
        connection.execute(
            query("insert_source"),
            (pid, seq, tid, id_bytes(source.turn_id), source.start, source.end,
             micros(source.occurred_at), source.session_id, source.rule, repeated),
        )  # fmt: skip


def supersede(
    connection: sqlite3.Connection,
    rows: Rows,
    keys: Sequence[PartitionKey],
    memory_id: str,
    entry: Entry,
    reason: str,
    *,
    embed: bool,
) -> MemoryRecord:
    """See `Store.supersede`."""
    partition, head_id, head_seq, version = _head(connection, keys, memory_id)
    (new,) = entry.episodes
    record = replace(new.record, version=version + 1, supersedes=id_text(head_id))
    retired = micros(record.recorded_at)
    connection.execute(
        query("supersede"),
        (id_bytes(record.id), reason, retired, micros(record.occurred_at), partition.pid, head_seq),
    )
    seq, other = _repeated(connection, partition, new)
    # Another chain already says this: two chains stay two, so this version's hash is its own.
    digest = hashlib.blake2b(new.content_hash + id_bytes(record.id), digest_size=16).digest()
    new = replace(new, record=record, content_hash=digest if other else new.content_hash)
    tid = _insert_turn(connection, rows, partition, entry.turn)
    seq = insert_memory(connection, rows, partition, new, 0)
    _insert_sources(connection, partition.pid, seq, tid, record)
    connection.execute(query("insert_edge"), (partition.pid, seq, "supersedes", head_seq))
    connection.execute(query("change_partition"), (partition.pid,))
    close_partition(connection, rows, partition, embed=embed, priority=0)
    return replace(record, seq=seq)


def _head(
    connection: sqlite3.Connection, keys: Sequence[PartitionKey], memory_id: str
) -> tuple[Partition, bytes, int, int]:
    """The partition and the current head of the chain that an id belongs to."""
    partition, head = locate(connection, keys, memory_id)
    while True:
        row = connection.execute(query("next_version"), (partition.pid, head)).fetchone()
        if row is None or row[0] is None:
            break
        head = row[0]
    seq, version = connection.execute(
        "SELECT seq, version FROM memories WHERE id = ?", (head,)
    ).fetchone()
    return partition, head, seq, version


def locate(
    connection: sqlite3.Connection, keys: Sequence[PartitionKey], memory_id: str
) -> tuple[Partition, bytes]:
    """The partition, one of `keys`, that holds a memory. Raises `NotFound`."""
    id_ = id_bytes(memory_id)
    row = connection.execute(query("locate"), (id_,)).fetchone()
    for key in keys:
        partition = find_partition(connection, key)
        if row is not None and partition is not None and partition.pid == row[0]:
            return partition, id_
    raise NotFound(
        f"no memory {masked(memory_id)} in this scope; `list` shows the ids that there are"
    )


def import_rows(
    connection: sqlite3.Connection,
    rows: Rows,
    key: PartitionKey,
    turns: Sequence[Turn],
    memories: Sequence[NewMemory],
    *,
    embed: bool,
    forgotten_at: int | None,
) -> tuple[int, int]:
    """See `Store.import_rows`. What was recorded by `forgotten_at` stays forgotten."""
    partition = open_partition(connection, key)
    written = skipped = 0
    for turn in turns:
        if _is_older(turn.recorded_at, forgotten_at) or _is_known(
            connection, partition, "turns", turn.id
        ):
            skipped += 1
            continue
        _insert_turn(connection, rows, partition, turn)
        written += 1
    for new in memories:
        record = new.record
        if _is_older(record.recorded_at, forgotten_at) or _is_known(
            connection, partition, "memories", record.id
        ):
            skipped += 1
            continue
        if record.state is State.ACTIVE and _repeated(connection, partition, new)[1]:
            skipped += 1
            continue
        seq = insert_memory(connection, rows, partition, new, _seq_of(connection, partition, new))
        _import_sources(connection, partition, seq, record)
        written += 1
    connection.execute(query("link_versions"), (partition.pid,))
    connection.execute(query("change_partition"), (partition.pid,))
    close_partition(connection, rows, partition, embed=embed, priority=1)
    return written, skipped


def _seq_of(connection: sqlite3.Connection, partition: Partition, new: NewMemory) -> int:
    """The sequence of the memory that an imported one follows; 0 where that is not here."""
    if new.follows is None:
        return 0
    row = connection.execute(query("seq_of"), (partition.pid, id_bytes(new.follows))).fetchone()
    return 0 if row is None else int(row[0])


def _import_sources(
    connection: sqlite3.Connection, partition: Partition, seq: int, record: MemoryRecord
) -> None:
    for place, source in enumerate(record.sources):
        row = connection.execute(
            "SELECT tid FROM turns WHERE pid = ? AND id = ?",
            (partition.pid, id_bytes(source.turn_id)),
        ).fetchone()
        if row is not None:
            connection.execute(
                query("insert_source"),
                (partition.pid, seq, row[0], id_bytes(source.turn_id), source.start, source.end,
                 micros(source.occurred_at), source.session_id, source.rule, place > 0),
            )  # fmt: skip


def _is_older(recorded_at: datetime, forgotten_at: int | None) -> bool:
    return forgotten_at is not None and micros(recorded_at) <= forgotten_at


def _is_known(
    connection: sqlite3.Connection, partition: Partition, table: str, id_text_: str
) -> bool:
    """Whether a row with this id is here already or was forgotten here."""
    id_ = id_bytes(id_text_)
    row = connection.execute(f"SELECT pid FROM {table} WHERE id = ?", (id_,)).fetchone()
    if row is not None and row[0] != partition.pid:
        raise InvalidInput(
            f"the id {id_text_} belongs to another scope of this store; import with another "
            "user (`--user`), which gives new ids"
        )
    if row is not None:
        return True
    return connection.execute(query("has_tombstone"), (partition.pid, id_)).fetchone() is not None
