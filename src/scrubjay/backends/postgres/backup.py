"""Copies of the whole store in one file, and putting one back, while it is in use.

The file is a ZIP archive with the rows of each table in PostgreSQL's binary COPY format and a
manifest of what they should be. For stores of many gigabytes `pg_dump -n scrubjay` is the better
tool; docs/postgres.md says how both go together.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from scrubjay.backends.postgres.migrate import newest
from scrubjay.backends.postgres.session import PidOf, PostgresSession
from scrubjay.backends.sql.erase import forget_again, forgotten
from scrubjay.backends.sql.journal import read_secret
from scrubjay.backends.sql.rows import Rows
from scrubjay.errors import StoreDamaged, StoreError
from scrubjay.model import PartitionKey
from scrubjay.storage import RewriteSegment, partition_mark

FORMAT = "scrubjay-postgres-backup"
_TABLES = (
    "partitions", "turns", "memories", "sources", "edges", "words", "models", "vectors",
    "segments", "jobs", "requests", "tombstones", "forgotten_partitions",
)  # fmt: skip
_NUMBERED = {"turns": "tid", "vectors": "vid", "segments": "sid", "jobs": "jid", "models": "model"}
_CHUNK = 1 << 20
_MARGIN = 1_000
"""More than can be written between reading the numbers and taking the store's place."""

Connection = psycopg.Connection[Any]


def backup(
    connection: Connection, target: str, progress: Callable[[int, int], None] | None
) -> None:
    """Write a copy to `target`: to a file beside it first, so that a half copy has no name."""
    partial = Path(target + ".part")
    columns = _columns(connection)
    counts: dict[str, int] = {}
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for place, table in enumerate(_TABLES):
                listed = ", ".join(columns[table])
                sql = f"COPY (SELECT {listed} FROM {table}) TO STDOUT (FORMAT BINARY)"
                with connection.cursor() as cursor:
                    with (
                        archive.open(f"{table}.copy", "w", force_zip64=True) as file,
                        cursor.copy(sql.encode()) as copy,
                    ):
                        for chunk in copy:
                            file.write(chunk)
                    counts[table] = cursor.rowcount
                if progress:
                    progress(place + 1, len(_TABLES))
            manifest = {"format": FORMAT, "schema": newest(), "columns": columns, "rows": counts}
            archive.writestr("secret", _secret_of(connection))
            archive.writestr("manifest.json", json.dumps(manifest))
        partial.replace(target)
    except OSError as exc:
        raise StoreError(f"{target} cannot be written ({exc.strerror}); name another file") from exc
    finally:
        partial.unlink(missing_ok=True)


def _secret_of(connection: Connection) -> bytes:
    row = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()
    assert row is not None, "a store is made with its secret"
    return bytes(row[0])


def _columns(connection: Connection) -> dict[str, list[str]]:
    rows = connection.execute(
        "SELECT table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = 'scrubjay' ORDER BY table_name, ordinal_position"
    )
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return {table: found[table] for table in _TABLES}


def restore(
    session: PostgresSession,
    rows: Rows,
    source: str,
    rewrite: RewriteSegment,
    pid_of: PidOf,
) -> int:
    """See `Store.restore`: one transaction, which every reader sees whole or not at all.

    Writers wait meanwhile. What was forgotten since is forgotten again, and every number moves
    past those that readers have in RAM. Partitions are numbered as this database numbers them.
    """
    session.execute("LOCK TABLE partitions IN EXCLUSIVE MODE")
    known, numbers = forgotten(session), _numbers(session)
    with _opened(source) as archive:
        manifest = _manifest(archive, source)
        for table in reversed(_TABLES):
            session.execute(f"DELETE FROM {table}")
        for table in _TABLES:
            _bring_back(session, archive, manifest, table, source, pid_of)
        session.change("set_secret", archive.read("secret"))
    _move_past(session, numbers)
    return forget_again(session, rows, known, rewrite)


def _opened(source: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError) as exc:
        raise _no_backup(source) from exc


def _no_backup(source: str, why: str = "it is cut, or no archive") -> StoreDamaged:
    return StoreDamaged(
        f"{source} is no sound backup of a PostgreSQL store ({why}), and nothing was changed: name "
        "a file that `scrubjay backup` wrote from one"
    )


def _manifest(archive: zipfile.ZipFile, source: str) -> dict[str, Any]:
    try:
        damaged = archive.testzip()
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
    except (KeyError, ValueError, zipfile.BadZipFile, OSError, EOFError) as exc:
        raise _no_backup(source) from exc
    if damaged is not None:
        raise _no_backup(source, f"{damaged} is damaged")
    if manifest.get("format") != FORMAT:
        raise _no_backup(source, "its manifest is another's")
    if manifest.get("schema") != newest():
        raise _no_backup(source, f"it has schema {manifest.get('schema')}, and not {newest()}")
    return manifest


def _bring_back(
    session: PostgresSession,
    archive: zipfile.ZipFile,
    manifest: dict[str, Any],
    table: str,
    source: str,
    pid_of: PidOf,
) -> None:
    """Rows come in by way of a temporary table: COPY does not go through the wall."""
    listed = ", ".join(f'"{c}"' for c in manifest["columns"][table])
    session.execute(f"CREATE TEMP TABLE restoring (LIKE scrubjay.{table}) ON COMMIT DROP")
    sql = f"COPY pg_temp.restoring ({listed}) FROM STDIN (FORMAT BINARY)"
    with session.connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        for chunk in _chunks(archive, table):
            copy.write(chunk)
    if table == "partitions":
        _number_anew(session, pid_of)
    elif "pid" in manifest["columns"][table]:
        session.execute(
            "UPDATE pg_temp.restoring r SET pid = n.new FROM pg_temp.numbers n"
            " WHERE n.old = r.pid AND n.old <> n.new"
        )
    count = session.execute(
        f"INSERT INTO {table} ({listed}) OVERRIDING SYSTEM VALUE"
        f" SELECT {listed} FROM pg_temp.restoring"
    )
    if count != manifest["rows"][table]:
        raise _no_backup(source, f"{table} has {count} rows")
    session.execute("DROP TABLE pg_temp.restoring")


def _number_anew(session: PostgresSession, pid_of: PidOf) -> None:
    """The numbers that partitions have in this database, which may be another's than before."""
    session.execute(
        "CREATE TEMP TABLE numbers (old bytea PRIMARY KEY, new bytea NOT NULL) ON COMMIT DROP"
    )
    rows = session.select("SELECT pid, tenant, subject, owner FROM pg_temp.restoring")
    for old, *names in rows:
        session.execute(
            "INSERT INTO pg_temp.numbers VALUES (?, ?)", (old, pid_of(PartitionKey(*names)))
        )
    session.execute(
        "UPDATE pg_temp.restoring r SET pid = n.new FROM pg_temp.numbers n WHERE n.old = r.pid"
    )


def _chunks(archive: zipfile.ZipFile, table: str) -> Iterator[bytes]:
    with archive.open(f"{table}.copy") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The highest numbers given out: no later row may look like one a reader has in RAM."""

    seqs: dict[PartitionKey, int]
    generation: int


def _numbers(session: PostgresSession) -> _Numbers:
    ((generation,),) = session.select(
        "SELECT greatest((SELECT max(greatest(generation, epoch)) FROM partitions),"
        " (SELECT max(generation) FROM forgotten_partitions), 0)"
    )
    rows = session.select("SELECT next_seq, tenant, subject, owner FROM partitions")
    return _Numbers({PartitionKey(*names): seq for seq, *names in rows}, generation)


def _move_past(session: PostgresSession, numbers: _Numbers) -> None:
    high = numbers.generation + _MARGIN
    session.execute(
        "UPDATE partitions SET generation = generation + ?, epoch = epoch + ?", (high, high)
    )
    session.execute("UPDATE forgotten_partitions SET generation = generation + ?", (high,))
    secret = read_secret(session)
    for key, seq in numbers.seqs.items():
        names = (key.tenant, key.subject, key.owner)
        found = session.execute(
            "UPDATE partitions SET next_seq = greatest(next_seq, ?)"
            " WHERE tenant = ? AND subject = ? AND owner = ?",
            (seq + _MARGIN, *names),
        )
        if not found:  # made after the backup: should it come again, it begins above
            mark = partition_mark(secret, key)
            session.change("insert_forgotten", mark, seq + _MARGIN, high, 0)
    for table, column in _NUMBERED.items():
        session.select(
            f"SELECT setval(name, greatest(nextval(name),"
            f" (SELECT coalesce(max({column}), 0) FROM {table})) + {_MARGIN})"
            f" FROM (SELECT pg_get_serial_sequence('{table}', '{column}')::regclass AS name) s"
        )
