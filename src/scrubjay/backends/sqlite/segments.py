"""Vectors, tails and sealed segments."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from scrubjay.backends.sqlite.journal import SEAL_AT, add_seal_job, find_partition
from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import Rows
from scrubjay.errors import ModelMismatch
from scrubjay.model import PartitionKey
from scrubjay.storage import ModelRow, NewSegment


def add_model(
    connection: sqlite3.Connection, name: str, dimension: int, baseline: float
) -> ModelRow:
    """See `Store.add_model`."""
    row = connection.execute(query("find_model"), (name,)).fetchone()
    if row is None:
        connection.execute(query("insert_model"), (name, dimension, baseline))
        row = connection.execute(query("find_model"), (name,)).fetchone()
    found = ModelRow(*row)
    if found.dimension != dimension:
        raise ModelMismatch(
            f"this store holds vectors of {name!r} with {found.dimension} dimensions, and the "
            f"model of that name now gives {dimension}; give the new model another name, then "
            "`scrubjay reindex`"
        )
    return found


def put_vectors(
    connection: sqlite3.Connection,
    rows: Rows,
    key: PartitionKey,
    model: int,
    vectors: Mapping[int, bytes],
) -> int:
    """See `Store.put_vectors`."""
    partition = find_partition(connection, key)
    if partition is None:
        return 0
    written = replaced = 0
    for seq, vector in vectors.items():
        replaced += connection.execute(query("delete_vector"), (partition.pid, model, seq)).rowcount
        blob = rows.seal_bytes(vector, key, "vector")
        written += connection.execute(
            query("insert_vector"), (partition.pid, model, seq, blob)
        ).rowcount
    connection.execute(query("grow_vector_tail"), (written, partition.pid))
    if replaced:  # a segment may still hold the old one: readers must look at all of it again
        connection.execute(query("change_partition"), (partition.pid,))
    tail = connection.execute(
        "SELECT tail_vectors FROM partitions WHERE pid = ?", (partition.pid,)
    ).fetchone()[0]
    if tail >= SEAL_AT:
        add_seal_job(connection, rows, partition.pid, key)
    return written


class _Gone(Exception):
    """A row that a new segment was made from is no longer there."""


def seal(
    connection: sqlite3.Connection, rows: Rows, key: PartitionKey, segment: NewSegment
) -> bool:
    """See `Store.seal`."""
    partition = find_partition(connection, key)
    if partition is None:
        return False
    connection.execute("SAVEPOINT seal")
    try:
        _seal(connection, rows, partition.pid, key, segment)
    except _Gone:
        connection.execute("ROLLBACK TO seal")
        return False
    finally:
        connection.execute("RELEASE seal")
    return True


def _seal(
    connection: sqlite3.Connection, rows: Rows, pid: int, key: PartitionKey, segment: NewSegment
) -> None:
    for sid in segment.replaces:
        if not connection.execute(query("delete_segment"), (pid, sid)).rowcount:
            raise _Gone
    name = "seal_words" if segment.kind == "words" else "seal_vector"
    for row in segment.rows:
        if not connection.execute(query(name), (pid, row)).rowcount:
            raise _Gone
    blob = rows.seal_bytes(segment.blob, key, "segment")
    connection.execute(
        query("insert_segment"),
        (pid, segment.kind, segment.model, segment.count, segment.min_seq, segment.max_seq, blob),
    )
    sealed = len(segment.rows)
    connection.execute(
        query("shrink_tails"),
        (sealed if segment.kind == "words" else 0, sealed if segment.kind == "vectors" else 0, pid),
    )


def drop_model(connection: sqlite3.Connection, model: int) -> int:
    """See `Store.drop_model`."""
    gone = connection.execute("DELETE FROM vectors WHERE model = ?", (model,)).rowcount
    connection.execute("DELETE FROM segments WHERE kind = 'vectors' AND model = ?", (model,))
    connection.execute("DELETE FROM models WHERE model = ?", (model,))
    connection.execute(
        "UPDATE partitions SET generation = generation + 1, epoch = epoch + 1, tail_vectors ="
        " (SELECT count(*) FROM vectors v WHERE v.pid = partitions.pid AND v.sealed = 0)"
    )
    return gone


def rebuild_words(
    connection: sqlite3.Connection,
    rows: Rows,
    key: PartitionKey,
    words: Callable[[str], tuple[bytes, int]],
) -> int:
    """See `Store.rebuild_words`."""
    partition = find_partition(connection, key)
    if partition is None:
        return 0
    pid = partition.pid
    connection.execute("DELETE FROM words WHERE pid = ?", (pid,))
    connection.execute("DELETE FROM segments WHERE pid = ? AND kind = 'words'", (pid,))
    count = 0
    cursor = connection.execute(
        "SELECT seq, content, occurred_at, previous, trust, confidence FROM memories"
        " WHERE pid = ? ORDER BY seq",
        (pid,),
    )
    for seq, content, occurred_at, previous, trust, confidence in cursor:
        postings, length = words(rows.open_text(content, key, "content"))
        connection.execute(
            query("insert_words"),
            (
                pid,
                seq,
                length,
                previous,
                occurred_at,
                round(trust * 100),
                round(confidence * 100),
                rows.seal_bytes(postings, key, "words"),
            ),
        )
        count += 1
    connection.execute(query("change_partition"), (pid,))
    connection.execute("UPDATE partitions SET tail_words = ? WHERE pid = ?", (count, pid))
    if count >= SEAL_AT:
        add_seal_job(connection, rows, pid, key)
    return count


def unseal_vectors(connection: sqlite3.Connection, rows: Rows, key: PartitionKey) -> None:
    """See `Store.unseal_vectors`."""
    partition = find_partition(connection, key)
    if partition is None:
        return
    connection.execute(query("delete_vector_segments"), (partition.pid,))
    connection.execute(query("unseal_vectors"), (partition.pid,))
    connection.execute(query("recount_tails"), (partition.pid,))
    connection.execute(query("change_partition"), (partition.pid,))
    add_seal_job(connection, rows, partition.pid, key)


def missing_vectors(
    connection: sqlite3.Connection, key: PartitionKey, model: int, after: int, limit: int
) -> list[int]:
    """See `Store.missing_vectors`."""
    partition = find_partition(connection, key)
    if partition is None:
        return []
    rows = connection.execute(query("missing_vectors"), (partition.pid, model, after, limit))
    return [row[0] for row in rows]


def texts(
    connection: sqlite3.Connection, rows: Rows, key: PartitionKey, seqs: Sequence[int]
) -> dict[int, str]:
    """See `Store.texts`."""
    partition = find_partition(connection, key)
    if partition is None:
        return {}
    found = {}
    for start in range(0, len(seqs), 500):
        part = seqs[start : start + 500]
        marks = ",".join("?" * len(part))
        for seq, content in connection.execute(
            f"SELECT seq, content FROM memories WHERE pid = ? AND seq IN ({marks})",
            (partition.pid, *part),
        ):
            found[seq] = rows.open_text(content, key, "content")
    return found
