"""Brings a store's schema to the present version, one step a transaction.

`migrations/NNNN_name.sql` leads from version NNNN - 1 to NNNN. A step and its version number
commit together, so an interrupted migration goes on where it stopped. A new store gets
`schema.sql`, which a test compares with the sum of the steps.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from functools import cache
from importlib import resources
from pathlib import Path

from scrubjay.errors import SchemaTooNew, StoreDamaged

APPLICATION_ID = 0x4A415931  # "JAY1", in the file's header
_STEP = re.compile(r"(\d{4})_\w+\.sql$")


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
    return max(steps(), default=1)


def statements(script: str) -> list[str]:
    """The single statements of a script, comments kept.

    >>> statements("CREATE TABLE a (b); CREATE TABLE c (d);")
    ['CREATE TABLE a (b);', 'CREATE TABLE c (d);']
    """
    found, current = [], ""
    for part in re.split(r"(?<=;)\s*", script):
        current += part
        if current.strip() and sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    return found


def refuse_strangers(path: Path) -> None:
    """Look at an existing file before any setting of ours changes it.

    Raises `SchemaTooNew` or `StoreDamaged`; the file stays as it was, byte for byte.
    """
    if not path.exists() or not path.stat().st_size:
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        _version(connection)
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection) -> int:
    """Create or bring up to date; returns the version. Raises `SchemaTooNew`, `StoreDamaged`."""
    version = _version(connection)
    if version == newest():
        return version
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection)
            done = version == newest()
            if version == 0:
                _create(connection)
            elif not done:
                for statement in statements(steps()[version + 1]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if done:
            return version


def _version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if version > newest():
        raise SchemaTooNew(
            f"this store has schema {version} and this Scrubjay knows up to {newest()}; "
            "nothing was changed. Upgrade with `pip install -U scrubjay`"
        )
    foreign = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and foreign:
        raise StoreDamaged(
            "the file is an SQLite database but not a Scrubjay store; choose another directory"
        )
    return version


def _create(connection: sqlite3.Connection) -> None:
    script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    for statement in statements(script):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('secret', ?)", (secrets.token_bytes(32),)
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {newest()}")
