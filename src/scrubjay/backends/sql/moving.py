"""What a store hands over, besides its rows, when it is moved to another."""

from __future__ import annotations

from scrubjay.backends.sql.journal import find_partition, open_partition, read_secret
from scrubjay.backends.sql.rows import Rows
from scrubjay.backends.sql.session import Session
from scrubjay.errors import InvalidInput
from scrubjay.model import PartitionKey
from scrubjay.storage import Marks, Origin


def origin(session: Session) -> Origin:
    """See `Store.origin`."""
    forgotten = tuple((m, n, g, at) for m, n, g, at in session.all("all_forgotten"))
    return Origin(read_secret(session), forgotten)


def adopt(session: Session, origin: Origin) -> None:
    """See `Store.adopt`."""
    if read_secret(session) != origin.secret:
        if session.all("partitions") or session.all("all_forgotten"):
            raise InvalidInput(
                "the target is a store with memories of its own, and nothing was changed; name an "
                "empty one"
            )
        session.change("set_secret", origin.secret)
    for forgotten in origin.forgotten:
        session.change("insert_forgotten", *forgotten)


def marks(session: Session, rows: Rows, key: PartitionKey) -> Marks:
    """See `Store.marks`."""
    partition = find_partition(session, key)
    if partition is None:
        return Marks()
    stones = session.all("tombstones", partition.pid)
    requests = session.all("requests", partition.pid)
    return Marks(
        tuple((origin, digest, at) for origin, digest, at in stones),
        tuple(
            (name, digest, rows.open_json(outcome, key, "outcome"))
            for name, digest, outcome in requests
        ),
    )


def add_marks(session: Session, rows: Rows, key: PartitionKey, marks: Marks) -> None:
    """See `Store.add_marks`."""
    pid = open_partition(session, key).pid
    session.change_each("insert_tombstone", [(pid, *stone) for stone in marks.tombstones])
    session.change_each(
        "insert_request",
        [
            (pid, name, digest, rows.seal_json(outcome, key, "outcome"))
            for name, digest, outcome in marks.requests
        ],
    )
