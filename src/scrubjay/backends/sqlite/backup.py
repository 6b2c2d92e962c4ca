"""Copies of the file while it is in use, and putting one back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from scrubjay.backends.sqlite.checks import check
from scrubjay.backends.sqlite.connection import Database
from scrubjay.backends.sqlite.erase import forget_again, forgotten
from scrubjay.backends.sqlite.migrate import APPLICATION_ID, migrate
from scrubjay.backends.sqlite.rows import Rows
from scrubjay.errors import StoreDamaged
from scrubjay.ports import RewriteSegment

_PAGES = 2048


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
    """See `Store.restore`."""
    copy = sqlite3.connect(f"file:{Path(source).absolute()}?mode=ro", uri=True)
    try:
        if copy.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreDamaged(f"{source} is no backup of a Scrubjay store; nothing was changed")
        problems = check(copy)
        if problems:
            raise StoreDamaged(f"{source} is damaged ({problems[0]}); nothing was changed")
        with database.read() as present:
            known = forgotten(present)
            numbers = _numbers(present)
        target = database.connect()
        try:
            copy.backup(target, pages=-1)
            migrate(target)
        finally:
            target.close()
    finally:
        copy.close()

    def settle(connection: sqlite3.Connection) -> int:
        _move_past(connection, numbers)
        secret = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0]
        return forget_again(connection, rows, secret, known, rewrite)

    return database.write(settle)


def _numbers(connection: sqlite3.Connection) -> tuple[dict[str, int], int, int]:
    """The highest numbers given out: no later row may look like one a reader has in RAM."""
    generation, epoch = connection.execute(
        "SELECT coalesce(max(generation), 0), coalesce(max(epoch), 0) FROM partitions"
    ).fetchone()
    given = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return given, generation, epoch


def _move_past(connection: sqlite3.Connection, numbers: tuple[dict[str, int], int, int]) -> None:
    given, generation, epoch = numbers
    for name, seq in given.items():
        connection.execute(
            "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (seq, name)
        )
    connection.execute(
        "UPDATE partitions SET generation = generation + ?, epoch = epoch + ?",
        (generation + 1, epoch + 1),
    )
