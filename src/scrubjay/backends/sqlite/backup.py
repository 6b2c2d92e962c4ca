"""Copies of the file while it is in use, and putting one back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scrubjay.backends.sql.checks import check
from scrubjay.backends.sql.erase import forget_again, forgotten
from scrubjay.backends.sql.journal import read_secret
from scrubjay.backends.sql.rows import Rows
from scrubjay.backends.sqlite.connection import Database
from scrubjay.backends.sqlite.migrate import migrate, refuse_strangers
from scrubjay.backends.sqlite.session import SqliteSession
from scrubjay.errors import StoreDamaged
from scrubjay.model import PartitionKey
from scrubjay.storage import RewriteSegment, partition_mark

_PAGES = 2048


def problems_of(session: SqliteSession) -> list[str]:
    """Damage of the file, and of what must hold between its tables."""
    found = session.select("PRAGMA integrity_check(20)")
    return [f"the file: {row[0]}" for row in found if row[0] != "ok"] + check(session)


def backup(
    connection: sqlite3.Connection, target: str, progress: Callable[[int, int], None] | None
) -> None:
    """Write a copy to `target`: to a file beside it first, so that a half copy has no name."""
    partial = Path(target + ".part")
    partial.unlink(missing_ok=True)
    copy = sqlite3.connect(partial)
    try:
        connection.backup(
            copy,
            pages=_PAGES,
            progress=(lambda _, left, total: progress(total - left, total)) if progress else None,
        )
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
    partial.replace(target)


def restore(database: Database, rows: Rows, source: str, rewrite: RewriteSegment) -> int:
    """See `Store.restore`.

    Everything is done to a copy beside the store: its schema brought up to date, what was
    forgotten since forgotten again, its numbers moved past those that readers have in RAM. The
    finished copy then takes the store's place in one transaction.
    """
    copy = Path(f"{database.path}.restoring")
    copy.unlink(missing_ok=True)
    try:
        left_out = _prepare(copy, database, rows, source, rewrite)
        finished = sqlite3.connect(copy)
        target = database.connect()
        try:
            finished.backup(target, pages=-1)
        finally:
            target.close()
            finished.close()
    finally:
        copy.unlink(missing_ok=True)
    return left_out


def _prepare(
    copy: Path, database: Database, rows: Rows, source: str, rewrite: RewriteSegment
) -> int:
    if not Path(source).is_file() or not Path(source).stat().st_size:
        raise StoreDamaged(f"{source} is no file or is empty; nothing was changed")
    refuse_strangers(Path(source))
    original = sqlite3.connect(f"{Path(source).absolute().as_uri()}?mode=ro", uri=True)
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        original.backup(connection, pages=-1)
        problems = problems_of(SqliteSession(connection))
        if problems:
            raise StoreDamaged(f"{source} is damaged ({problems[0]}); nothing was changed")
        migrate(connection)
        connection.execute("PRAGMA secure_delete = ON")
        with database.read() as present:
            known, numbers = forgotten(present), _numbers(present.connection)
        connection.execute("BEGIN")
        _move_past(connection, numbers)
        left_out = forget_again(SqliteSession(connection), rows, known, rewrite)
        connection.execute("COMMIT")
    finally:
        connection.close()
        original.close()
    return left_out


_MARGIN = 1_000
"""More than can be written between reading the numbers and taking the store's place."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The highest numbers given out: no later row may look like one a reader has in RAM."""

    rows: dict[str, int]
    seqs: dict[PartitionKey, int]
    generation: int
    epoch: int


def _numbers(connection: sqlite3.Connection) -> _Numbers:
    generation, epoch = connection.execute(
        "SELECT coalesce(max(generation), 0), coalesce(max(epoch), 0) FROM partitions"
    ).fetchone()
    seqs = {
        PartitionKey(*names): seq
        for seq, *names in connection.execute(
            "SELECT next_seq, tenant, subject, owner FROM partitions"
        )
    }
    rows = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return _Numbers(rows, seqs, generation, epoch)


def _move_past(connection: sqlite3.Connection, numbers: _Numbers) -> None:
    for name, seq in numbers.rows.items():
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq < ?", (name, seq))
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2"
            " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
            (name, seq + _MARGIN),
        )
    connection.execute(
        "UPDATE partitions SET generation = generation + ?, epoch = epoch + ?",
        (numbers.generation + _MARGIN, numbers.epoch + _MARGIN),
    )
    for key, seq in numbers.seqs.items():
        names = (key.tenant, key.subject, key.owner)
        found = connection.execute(
            "UPDATE partitions SET next_seq = max(next_seq, ?)"
            " WHERE tenant = ? AND subject = ? AND owner = ?",
            (seq + _MARGIN, *names),
        ).rowcount
        if not found:  # made after the backup: should it come again, it begins above
            mark = partition_mark(read_secret(SqliteSession(connection)), key)
            connection.execute(
                "INSERT OR IGNORE INTO forgotten_partitions"
                " (mark, next_seq, generation, forgotten_at) VALUES (?, ?, 0, 0)",
                (mark, seq + _MARGIN),
            )
