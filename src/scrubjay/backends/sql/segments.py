"""Vectors, tails and sealed segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scrubjay.backends.sql.journal import (
    SEAL_AT,
    Partition,
    add_seal_job,
    find_partition,
    lock_partition,
)
from scrubjay.backends.sql.rows import Rows
from scrubjay.backends.sql.session import Session
from scrubjay.errors import ModelMismatch
from scrubjay.model import PartitionKey
from scrubjay.storage import ModelRow, NewSegment


def add_model(session: Session, name: str, dimension: int, baseline: float) -> ModelRow:
    """See `Store.add_model`."""
    row = session.one("find_model", name)
    if row is None:
        session.change("insert_model", name, dimension, baseline)
        row = session.one("find_model", name)
    assert row is not None, "the model was written above"
    found = ModelRow(*row)
    if found.dimension != dimension:
        raise ModelMismatch(
            f"this store holds vectors of {name!r} with {found.dimension} dimensions, and the "
            f"model of that name now gives {dimension}; give the new model another name, then "
            "`scrubjay reindex`"
        )
    return found


def put_vectors(
    session: Session, rows: Rows, key: PartitionKey, model: int, vectors: Mapping[int, bytes]
) -> int:
    """See `Store.put_vectors`."""
    partition = lock_partition(session, key)
    if partition is None:
        return 0
    pid, seqs = partition.pid, list(vectors)
    replaced = session.change("delete_vectors", pid, model, seqs)
    present = {row[0] for row in session.all("present", pid, seqs)}
    written = [
        (pid, model, seq, rows.seal_bytes(vector, key, "vector"))
        for seq, vector in vectors.items()
        if seq in present
    ]
    session.change_each("insert_vector", written)
    session.change("grow_vector_tail", len(written), pid)
    if replaced:  # a segment may still hold the old one: readers must look at all of it again
        session.change("change_partition", pid)
    if partition.tail_vectors + len(written) >= SEAL_AT:
        add_seal_job(session, rows, partition)
    return len(written)


def seal(session: Session, rows: Rows, key: PartitionKey, segment: NewSegment) -> bool:
    """See `Store.seal`."""
    partition = lock_partition(session, key)
    if partition is None or not _are_there(session, partition, segment):
        return False
    pid, is_words = partition.pid, segment.kind == "words"
    if segment.replaces:
        session.change("delete_segments", pid, list(segment.replaces))
    if segment.rows:
        session.change("seal_words" if is_words else "seal_vectors", pid, list(segment.rows))
    session.change(
        "insert_segment", pid, segment.kind, segment.model, segment.count, segment.min_seq,
        segment.max_seq, rows.seal_bytes(segment.blob, key, "segment"),
    )  # fmt: skip
    session.change("recount_tails", pid)
    session.change("change_partition", pid)
    return True


def _are_there(session: Session, partition: Partition, segment: NewSegment) -> bool:
    """Whether every row and segment that a new segment was made from still is."""

    def all_there(name: str, numbers: Sequence[int]) -> bool:
        row = session.one(name, partition.pid, list(numbers))
        return row is not None and row[0] == len(numbers)

    tail = "words_in_tail" if segment.kind == "words" else "vectors_in_tail"
    return all_there("count_segments", segment.replaces) and all_there(tail, segment.rows)


def drop_model(session: Session, model: int) -> int:
    """See `Store.drop_model`."""
    gone = session.change("drop_vectors", model)
    session.change("drop_vector_segments", model)
    session.change("delete_model", model)
    session.change("recount_all_tails")
    return gone


def rebuild_words(
    session: Session, rows: Rows, key: PartitionKey, words: Callable[[str], tuple[bytes, int]]
) -> int:
    """See `Store.rebuild_words`."""
    partition = lock_partition(session, key)
    if partition is None:
        return 0
    pid = partition.pid
    session.change("delete_words", pid)
    session.change("delete_word_segments", pid)
    count = after = 0
    while found := session.all("for_words", pid, after):
        tail = []
        for seq, content, occurred_at, previous, trust, confidence in found:
            postings, length = words(rows.open_text(content, key, "content"))
            tail.append(
                (pid, seq, length, previous, occurred_at, round(trust * 100),
                 round(confidence * 100), rows.seal_bytes(postings, key, "words"))
            )  # fmt: skip
        session.change_each("insert_words", tail)
        count, after = count + len(tail), found[-1][0]
    session.change("change_partition", pid)
    session.change("set_word_tail", count, pid)
    if count >= SEAL_AT:
        add_seal_job(session, rows, partition)
    return count


def unseal_vectors(session: Session, rows: Rows, key: PartitionKey) -> None:
    """See `Store.unseal_vectors`."""
    partition = lock_partition(session, key)
    if partition is None:
        return
    for name in ("delete_vector_segments", "unseal_vectors", "recount_tails", "change_partition"):
        session.change(name, partition.pid)
    add_seal_job(session, rows, partition)


def missing_vectors(
    session: Session, key: PartitionKey, model: int, after: int, limit: int
) -> list[int]:
    """See `Store.missing_vectors`."""
    partition = find_partition(session, key)
    if partition is None:
        return []
    return [row[0] for row in session.all("missing_vectors", partition.pid, after, model, limit)]


def texts(session: Session, rows: Rows, key: PartitionKey, seqs: Sequence[int]) -> dict[int, str]:
    """See `Store.texts`."""
    partition = find_partition(session, key)
    if partition is None:
        return {}
    found = session.all("contents", partition.pid, list(seqs))
    return {seq: rows.open_text(content, key, "content") for seq, content in found}
