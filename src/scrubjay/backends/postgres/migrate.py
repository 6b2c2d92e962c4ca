"""Creates a store's schema, or brings it to the present version, one step a transaction.

`migrations/NNNN_name.sql` leads from version NNNN - 1 to NNNN; a step and its version number
commit together, under one advisory lock, so that processes that start at once wait for one of
them and an interrupted migration goes on where it stopped. A new store gets `schema.sql`.

Everything lives in the schema `scrubjay` and is worked on under a role of the database's own,
which may read and write its rows and owns nothing.
"""

from __future__ import annotations

import re
import secrets
from functools import cache
from importlib import resources
from typing import Any

import psycopg

from scrubjay.errors import InvalidInput, SchemaTooNew, StoreDamaged, StoreError

LEAST_SERVER = 150_000
LEAST_PGVECTOR = (0, 7)
_STEP = re.compile(r"(\d{4})_\w+\.sql$")
_LOCK = "SELECT pg_advisory_lock(hashtext('scrubjay migration'))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtext('scrubjay migration'))"
_ROLE = "SELECT 'scrubjay_' || oid FROM pg_database WHERE datname = current_database()"

Connection = psycopg.Connection[Any]


@cache
def steps() -> dict[int, str]:
    """The migrations by the version they lead to."""
    folder = resources.files(__package__).joinpath("migrations")
    found = {}
    for file in folder.iterdir():
        match = _STEP.match(file.name)
        if match:
            found[int(match[1])] = file.read_text("utf-8")
    return dict(sorted(found.items()))


def newest() -> int:
    """The version this Scrubjay writes."""
    return max(steps())


def migrate(connection: Connection, where: str, *, create: bool) -> tuple[str, bytes, bytes]:
    """Create or bring up to date; returns the role to work under, the secret, the key of pids.

    `connection` is in autocommit mode. Raises `StoreError` for a server that is too old or lacks
    pgvector, `SchemaTooNew`, `StoreDamaged`.
    """
    _check_server(connection, where)
    role = str(_value(connection, _ROLE))
    version = _version(connection, where)
    if version == 0 and not create:
        raise InvalidInput(f"there is no store in {where}; name the one to be copied")
    if version != newest() or not _has_role(connection, role):
        connection.execute(_LOCK)
        try:
            _bring_up(connection, where, role)
        finally:
            if not connection.broken:
                connection.execute(_UNLOCK)
    connection.execute(f'SET ROLE "{role}"'.encode())
    secret, pid_key = (
        bytes(_value(connection, f"SELECT value FROM scrubjay.meta WHERE key = '{key}'"))
        for key in ("secret", "pids")
    )
    return role, secret, pid_key


def _bring_up(connection: Connection, where: str, role: str) -> None:
    while (version := _version(connection, where)) != newest():
        with connection.transaction():
            connection.execute("SET LOCAL search_path = scrubjay, public")
            if version == 0:
                _create(connection, where)
                _make_role(connection, where, role)
            else:
                connection.execute(steps()[version + 1].encode())
                _set_version(connection, version + 1)
    with connection.transaction():
        _make_role(connection, where, role)


def _value(connection: Connection, sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    return None if row is None else row[0]


def _check_server(connection: Connection, where: str) -> None:
    version = connection.info.server_version
    if version < LEAST_SERVER:
        raise StoreError(
            f"{where} runs PostgreSQL {version // 10_000}, and Scrubjay needs "
            f"{LEAST_SERVER // 10_000} or newer"
        )


def _version(connection: Connection, where: str) -> int:
    """The schema's version; 0 where there is none."""
    if _value(connection, "SELECT to_regnamespace('scrubjay')") is None:
        return 0
    if _value(connection, "SELECT to_regclass('scrubjay.schema_version')") is None:
        raise StoreDamaged(
            f"{where} has a schema `scrubjay` that is not Scrubjay's; choose another database"
        )
    version = int(_value(connection, "SELECT version FROM scrubjay.schema_version"))
    if version > newest():
        raise SchemaTooNew(
            f"this store has schema {version} and this Scrubjay knows up to {newest()}; "
            "nothing was changed. Upgrade with `pip install -U scrubjay`"
        )
    return version


def _has_role(connection: Connection, role: str) -> bool:
    """Whether the role is there, may work here, and the present user may take it on."""
    sql = (
        "SELECT pg_has_role(current_user, oid, 'MEMBER') AND has_table_privilege(oid,"
        f" 'scrubjay.meta', 'SELECT') FROM pg_roles WHERE rolname = '{role}'"
    )
    return bool(_value(connection, sql))


def _create(connection: Connection, where: str) -> None:
    _require_pgvector(connection, where)
    connection.execute("CREATE SCHEMA scrubjay")
    script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    connection.execute(script.encode())
    for key in ("secret", "pids"):
        connection.execute(
            "INSERT INTO meta (key, value) VALUES (%s, %s)", (key, secrets.token_bytes(32))
        )
    _set_version(connection, newest())


def _set_version(connection: Connection, version: int) -> None:
    connection.execute(f"UPDATE scrubjay.schema_version SET version = {version}".encode())


def _require_pgvector(connection: Connection, where: str) -> None:
    advice = (
        "install pgvector 0.7 or newer on the server, and let an administrator run `CREATE "
        "EXTENSION vector` in this database"
    )
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    except psycopg.Error as exc:
        raise StoreError(
            f"{where} lacks the extension pgvector ({str(exc).splitlines()[0]}); {advice}"
        ) from exc
    found = str(_value(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'"))
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < LEAST_PGVECTOR:
        raise StoreError(f"{where} has pgvector {found}, which is too old; {advice}")


def _make_role(connection: Connection, where: str, role: str) -> None:
    """The role that works on the rows: it owns nothing, and the wall holds for it."""
    try:
        connection.execute(
            f"""
            DO $$
            DECLARE
                walled regclass;
            BEGIN
                IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{role}') THEN
                    CREATE ROLE "{role}" NOLOGIN NOBYPASSRLS;
                END IF;
                -- Not the hash partitions themselves: the wall stands before their parents.
                FOR walled IN SELECT oid FROM pg_class WHERE relnamespace = 'scrubjay'::regnamespace
                        AND relkind IN ('r', 'p') AND NOT relispartition LOOP
                    EXECUTE format(
                        'GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I', walled, '{role}');
                END LOOP;
            END $$;
            GRANT "{role}" TO CURRENT_USER;
            GRANT USAGE ON SCHEMA scrubjay TO "{role}";
            GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA scrubjay TO "{role}";
            GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA scrubjay TO "{role}";
            """.encode()
        )
    except psycopg.errors.InsufficientPrivilege as exc:
        raise StoreError(
            f"{where} does not let this user prepare the store ({str(exc).splitlines()[0]}); let "
            f"the schema's owner open it once, with the right CREATEROLE, and then run "
            f'`GRANT "{role}" TO` this user'
        ) from exc
