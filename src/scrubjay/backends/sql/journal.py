"""Writing turns and memories, inside a transaction that the caller holds.

Everything a turn leads to at once (episode, words, source, jobs, the idempotency record)
is written here together, so that a crash leaves all of it or none.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from scrubjay.backends.sql.rows import Rows, first_source, id_bytes, id_text, micros
from scrubjay.backends.sql.session import Session
from scrubjay.errors import IdempotencyConflict, InvalidInput, NotFound, masked
from scrubjay.model import MemoryRecord, PartitionKey, Source, State, Turn
from scrubjay.storage import Entry, Journalled, NewMemory, Request, partition_mark

SEAL_AT = 512
"""A tail of this many rows is sealed into a segment."""
EMBED_BATCH = 64
"""Memories in one embed job: few enough that live writes need not wait long behind a bulk."""


@dataclass(slots=True)
class Partition:
    """A partition's row while a transaction writes to it."""

    pid: object
    key: PartitionKey
    next_seq: int
    generation: int
    tail_words: int
    tail_vectors: int
    written: list[int] = field(default_factory=list)


def find_partition(session: Session, key: PartitionKey) -> Partition | None:
    """The partition's row to read from, or None where nothing was ever written to it."""
    return _partition(session, key, "find_partition")


def lock_partition(session: Session, key: PartitionKey) -> Partition | None:
    """The partition's row to write to: no other writer has it until the transaction ends."""
    return _partition(session, key, "lock_partition")


def _partition(session: Session, key: PartitionKey, name: str) -> Partition | None:
    row = session.one(name, key.tenant, key.subject, key.owner)
    if row is None:
        return None
    pid, next_seq, generation, _, tail_words, tail_vectors = row
    return Partition(pid, key, next_seq, generation, tail_words, tail_vectors)


def open_partition(session: Session, key: PartitionKey) -> Partition:
    """The partition's row, locked, and made if need be.

    One that was forgotten whole begins above its old numbers: a late job that still speaks of
    an old sequence so never meets a new memory.
    """
    found = lock_partition(session, key)
    if found is None:
        row = session.one("find_forgotten", partition_mark(read_secret(session), key))
        next_seq, generation = row[:2] if row else (1, 0)
        session.change(
            "insert_partition", session.new_pid(key), key.tenant, key.subject, key.owner,
            next_seq, generation + 1, generation + 1,
        )  # fmt: skip
        found = lock_partition(session, key)
        assert found is not None, "the partition was made above"
    return found


def read_secret(session: Session) -> bytes:
    """The store's random bytes."""
    row = session.one("secret")
    assert row is not None, "a store is made with its secret"
    return bytes(row[0])


def close_partition(
    session: Session, rows: Rows, partition: Partition, *, embed: bool, priority: int
) -> None:
    """Move the partition forward and ask for the work that its new memories need."""
    written = partition.written
    session.change("append_to_partition", partition.next_seq, len(written), partition.pid)
    for start in range(0, len(written) if embed else 0, EMBED_BATCH):
        seqs = written[start : start + EMBED_BATCH]
        payload = rows.seal_json({"seqs": seqs}, partition.key, "payload")
        insert_job(session, partition.pid, "embed", priority, len(seqs), payload)
    if partition.tail_words + len(written) >= SEAL_AT:
        add_seal_job(session, rows, partition)


def add_seal_job(session: Session, rows: Rows, partition: Partition) -> None:
    """Ask for the partition's tails to be sealed, once."""
    if session.one("has_seal_job", partition.pid) is None:
        payload = rows.seal_json({}, partition.key, "payload")
        insert_job(session, partition.pid, "seal", 5, 1, payload)


def insert_job(
    session: Session, pid: object, kind: str, priority: int, size: int, payload: bytes
) -> None:
    """Add background work."""
    session.change("insert_job", pid, kind, priority, size, present_micros(), payload)


def present_micros() -> int:
    """Jobs live by the real clock, not by the memory's."""
    return time.time_ns() // 1000


def journal(
    session: Session,
    rows: Rows,
    key: PartitionKey,
    entries: Sequence[Entry],
    request: Request | None,
    *,
    embed: bool,
    priority: int,
) -> Journalled:
    """See `Store.journal`."""
    partition = open_partition(session, key)
    if request is not None:
        row = session.one("find_request", partition.pid, request.key)
        if row is not None:
            return replayed(rows, key, request, *row)
    ids: list[tuple[str, ...]] = []
    repeated: set[str] = set()
    last: dict[str | None, int] = {None: 0}
    if any(e.record.state is not State.ACTIVE for entry in entries for e in entry.episodes):
        session.change("change_partition", partition.pid)
    for entry in entries:
        session.change("insert_turn", *rows.turn_row(entry.turn, partition.pid, key))
        conversation = entry.turn.scope.session_id
        if conversation not in last:
            row = session.one("last_of_session", partition.pid, conversation)
            last[conversation] = (row and row[0]) or 0
        entry_ids = []
        for new in entry.episodes:
            seq, memory_id = _repeated(session, partition, new)
            if memory_id is None:
                seq = insert_memory(session, rows, partition, new, last[conversation])
                memory_id = new.record.id
            else:
                repeated.add(memory_id)
                _add_sources(session, partition, seq, new.record.sources)
            entry_ids.append(memory_id)
            last[conversation] = seq
        ids.append(tuple(entry_ids))
    close_partition(session, rows, partition, embed=embed, priority=priority)
    outcome = Journalled(tuple(ids), tuple(e.turn.id for e in entries), frozenset(repeated))
    if request is not None:
        blob = rows.seal_json([outcome.ids, outcome.turn_ids], key, "outcome")
        session.change("insert_request", partition.pid, request.key, request.digest, blob)
    return outcome


def replayed(
    rows: Rows, key: PartitionKey, request: Request, digest: bytes, outcome: bytes
) -> Journalled:
    """The outcome that an idempotency key had before. Raises `IdempotencyConflict`."""
    if not hmac.compare_digest(digest, request.digest):
        raise IdempotencyConflict(
            f"the idempotency key {masked(request.key)} was used before with another body; "
            "nothing was written. Use a new key for a new body"
        )
    ids, turn_ids = rows.open_json(outcome, key, "outcome")
    return Journalled(tuple(tuple(i) for i in ids), tuple(turn_ids), replayed=True)


def _repeated(session: Session, partition: Partition, new: NewMemory) -> tuple[int, str | None]:
    """The active episode that already says the same; an expired one no longer stands for it."""
    row = session.one("find_repeated", partition.pid, new.content_hash)
    if row is None:
        return 0, None
    seq, id_, expires_at = row
    if expires_at is not None and expires_at <= micros(new.record.recorded_at):
        session.change("retire_expired", partition.pid, seq)
        session.change("change_partition", partition.pid)
        return 0, None
    return seq, id_text(id_)


def insert_memory(
    session: Session, rows: Rows, partition: Partition, new: NewMemory, previous: int
) -> int:
    """Write one memory, its sources and its words at the partition's next sequence."""
    seq = partition.next_seq
    record, key, pid = new.record, partition.key, partition.pid
    first = first_source(record)
    session.change(
        "insert_memory",
        *rows.memory_row(record, seq, new.content_hash, previous, pid, key, first),
    )
    session.change(
        "insert_words", pid, seq, new.length, previous, micros(record.occurred_at),
        round(record.trust * 100), round(record.confidence * 100),
        rows.seal_bytes(new.postings, key, "words"),
    )  # fmt: skip
    partition.next_seq += 1
    partition.written.append(seq)
    further = [source for source in record.sources if source is not first]
    if further:
        _add_sources(session, partition, seq, further)
    return seq


def _add_sources(
    session: Session, partition: Partition, seq: int, sources: Sequence[Source]
) -> None:
    """A memory was said elsewhere as well: readers must see its new times."""
    pid = partition.pid
    for s in sources:
        session.change(
            "insert_source", pid, seq, id_bytes(s.turn_id), s.start, s.end,
            micros(s.occurred_at), s.session_id, s.rule,
        )  # fmt: skip
    session.change("count_sources", pid, seq, pid, seq)
    session.change("change_partition", pid)


def supersede(
    session: Session,
    rows: Rows,
    keys: Sequence[PartitionKey],
    memory_id: str,
    entry: Entry,
    reason: str,
    *,
    embed: bool,
) -> MemoryRecord:
    """See `Store.supersede`."""
    partition = locate(session, keys, memory_id)
    head_id, head_seq, version = _head(session, partition, id_bytes(memory_id))
    (new,) = entry.episodes
    record = replace(new.record, version=version + 1, supersedes=id_text(head_id))
    session.change(
        "supersede", id_bytes(record.id), reason, micros(record.recorded_at),
        micros(record.occurred_at), partition.pid, head_seq,
    )  # fmt: skip
    _, other = _repeated(session, partition, new)
    new = replace(new, record=record)
    if other:  # another chain already says this: two chains stay two
        new = replace(new, content_hash=_own_hash(new))
    session.change("insert_turn", *rows.turn_row(entry.turn, partition.pid, partition.key))
    seq = insert_memory(session, rows, partition, new, 0)
    session.change("insert_edge", partition.pid, seq, "supersedes", head_seq)
    session.change("change_partition", partition.pid)
    close_partition(session, rows, partition, embed=embed, priority=0)
    return replace(record, seq=seq)


def _own_hash(new: NewMemory) -> bytes:
    """A hash that no other memory has, for one that says what another says."""
    said = new.content_hash + id_bytes(new.record.id)
    return hashlib.blake2b(said, digest_size=16).digest()


def _head(session: Session, partition: Partition, id_: bytes) -> tuple[bytes, int, int]:
    """The current head of the chain that an id belongs to: its id, sequence and version."""
    while True:
        row = session.one("locate", partition.pid, id_)
        assert row is not None, "each link of a chain is in its partition"
        seq, version, following = row
        if following is None:
            return id_, seq, version
        id_ = following


def locate(session: Session, keys: Sequence[PartitionKey], memory_id: str) -> Partition:
    """The partition, one of `keys`, that holds a memory, locked. Raises `NotFound`."""
    id_ = id_bytes(memory_id)
    for key in keys:
        partition = find_partition(session, key)
        if partition is not None and session.one("locate", partition.pid, id_):
            locked = lock_partition(session, key)
            # It may have been forgotten while this waited for the lock.
            if locked is not None and session.one("locate", locked.pid, id_):
                return locked
    raise NotFound(
        f"no memory {masked(memory_id)} in this scope; `list` shows the ids that there are"
    )


def import_rows(
    session: Session,
    rows: Rows,
    key: PartitionKey,
    turns: Sequence[Turn],
    memories: Sequence[NewMemory],
    *,
    embed: bool,
    exact: bool,
) -> tuple[int, int]:
    """See `Store.import_rows`. What was recorded before the whole was forgotten stays so."""
    session.one("lock_imports")
    partition = open_partition(session, key)
    forgotten = session.one("find_forgotten", partition_mark(read_secret(session), key))
    forgotten_at = forgotten[2] if forgotten else None
    there = _known(session, partition, "turns", [turn.id for turn in turns])
    new_turns = [
        turn
        for turn in turns
        if not _is_older(turn.recorded_at, forgotten_at) and id_bytes(turn.id) not in there
    ]
    session.change_each("insert_turn", [rows.turn_row(t, partition.pid, key) for t in new_turns])
    there = _known(session, partition, "memories", [new.record.id for new in memories])
    said = {id_bytes(source.turn_id) for new in memories for source in new.record.sources}
    known_turns = {row[0] for row in session.all("turns_here", partition.pid, list(said))}
    gone_turns = {row[0] for row in session.all("forgotten_here", partition.pid, list(said))}
    written = len(new_turns)
    cut = _cut_chains(session, partition, memories)
    for new in memories:
        record = new.record
        sources = tuple(s for s in record.sources if id_bytes(s.turn_id) in known_turns)
        is_forgotten = all(id_bytes(s.turn_id) in gone_turns for s in record.sources)
        if (
            _is_older(record.recorded_at, forgotten_at)
            or id_bytes(record.id) in there
            or record.id in cut
            or (record.sources and is_forgotten)  # each turn it was said in
        ):
            continue
        if record.state is State.ACTIVE:
            # A version of a chain stays, whoever else says the same: others lead to it.
            if exact or record.supersedes is not None:
                if session.one("find_repeated", partition.pid, new.content_hash):
                    new = replace(new, content_hash=_own_hash(new))
            elif _repeated(session, partition, new)[1]:
                continue
        new = replace(new, record=replace(record, sources=sources))
        insert_memory(session, rows, partition, new, _seq_of(session, partition, new))
        written += 1
    session.change("link_versions", partition.pid)
    session.change("change_partition", partition.pid)
    close_partition(session, rows, partition, embed=embed, priority=1)
    return written, len(turns) + len(memories) - written


def _cut_chains(session: Session, partition: Partition, memories: Sequence[NewMemory]) -> set[str]:
    """Older versions of what was forgotten here: they must not come back without it."""
    following = {new.record.superseded_by: new.record.id for new in memories}
    wanted = [id_bytes(id_) for id_ in following if id_ is not None]
    gone = [id_text(row[0]) for row in session.all("forgotten_here", partition.pid, wanted)]
    cut: set[str] = set()
    while gone:
        earlier = following.get(gone.pop())
        if earlier is not None:
            cut.add(earlier)
            gone.append(earlier)
    return cut


def _seq_of(session: Session, partition: Partition, new: NewMemory) -> int:
    """The sequence of the memory that an imported one follows; 0 where that is not here."""
    row = new.follows and session.one("locate", partition.pid, id_bytes(new.follows))
    return int(row[0]) if row else 0


def _is_older(recorded_at: datetime, forgotten_at: int | None) -> bool:
    return forgotten_at is not None and micros(recorded_at) <= forgotten_at


def _known(
    session: Session, partition: Partition, table: str, ids: Sequence[str]
) -> frozenset[bytes]:
    """Which ids are here already, or were forgotten here. Raises for one that is another's."""
    wanted = [id_bytes(id_) for id_ in ids]
    foreign = session.all(f"{table}_elsewhere", partition.pid, wanted)
    if foreign:
        raise InvalidInput(
            f"the id {id_text(foreign[0][0])} belongs to another scope of this store; import with "
            "another user (`--user`), which gives new ids"
        )
    here = session.all(f"{table}_here", partition.pid, wanted)
    gone = session.all("forgotten_here", partition.pid, wanted)
    return frozenset(row[0] for row in here + gone)
