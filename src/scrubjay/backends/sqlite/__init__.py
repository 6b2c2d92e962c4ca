"""The embedded store: one directory with one SQLite file in it.

WAL with `synchronous=FULL`: an acknowledged write has been synced. `secure_delete=ON`: what is
deleted is overwritten. Several processes may share the directory. See `ports.Store`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from scrubjay import errors
from scrubjay.backends.sql import journal
from scrubjay.backends.sql.session import Session
from scrubjay.backends.sql.store import Keys, SqlStore
from scrubjay.backends.sqlite import backup
from scrubjay.backends.sqlite.connection import Database, Reading, translated
from scrubjay.backends.sqlite.migrate import migrate, refuse_strangers
from scrubjay.model import Erasure, PartitionKey
from scrubjay.ports import Codec
from scrubjay.storage import RewriteSegment, Target

T = TypeVar("T")
FILE_NAME = "scrubjay.db"


class SqliteStore(SqlStore):
    """A `ports.Store` on the file `scrubjay.db` of a directory, made if it is not there."""

    def __init__(
        self,
        directory: Path,
        codec: Codec,
        *,
        synchronous: str = "FULL",
        write_timeout_s: float = 10.0,
    ) -> None:
        self.path = directory / FILE_NAME
        _make_directory(directory)
        with translated(self.path):
            refuse_strangers(self.path)
        super().__init__(codec)
        self._db = Database(self.path, synchronous=synchronous, timeout_s=write_timeout_s)
        with translated(self.path):
            connection = self._db.connect()
            try:
                migrate(connection)
            finally:
                connection.close()
        self._secret = self._read_secret()

    def _read_secret(self) -> bytes:
        with self._db.read() as session:
            return journal.read_secret(session)

    def _write(self, keys: Keys, work: Callable[[Session], T], *, durable: bool = True) -> T:
        del keys  # a file has one writer at a time, whatever it writes
        return self._db.write(work, durable=durable)

    def _read(self, keys: Keys) -> Reading:
        del keys
        return self._db.read()

    def _view(self) -> Reading:
        return self._db.read()

    def erase(
        self,
        keys: Sequence[PartitionKey],
        target: Target,
        rewrite: RewriteSegment,
        now: datetime,
    ) -> Erasure:
        """See `Store.erase`."""
        erasure = super().erase(keys, target, rewrite, now)
        if not self._db.truncate_wal():
            note = (
                "a reader was busy for long: the write-ahead log keeps old pages until a write "
                "after it has ended, or until the store is closed"
            )
            erasure = Erasure(erasure.target, erasure.counts, erasure.memory_ids, {}, (note,))
        return erasure

    def check(self) -> list[str]:
        """See `Store.check`."""
        with self._db.read() as session:
            return backup.problems_of(session)

    def backup(self, target: str, progress: Callable[[int, int], None] | None = None) -> None:
        """See `Store.backup`."""
        with translated(Path(target)), self._db.read() as session:
            backup.backup(session.connection, target, progress)

    def restore(self, source: str, rewrite: RewriteSegment) -> int:
        """See `Store.restore`."""
        with _as_no_backup(Path(source)):
            left_out = backup.restore(self._db, self._rows, source, rewrite)
        self._secret = self._read_secret()
        return left_out

    def size(self) -> int:
        """See `Store.size`."""
        files = self.path.parent.glob(FILE_NAME + "*")
        return sum(os.stat(file).st_size for file in files)

    def close(self) -> None:
        """See `Store.close`."""
        self._db.close()


@contextlib.contextmanager
def _as_no_backup(source: Path) -> Iterator[None]:
    """SQLite's word about a file that is no backup, as an error about that file."""
    try:
        with translated(source):
            yield
    except errors.StoreDamaged as exc:
        raise errors.StoreDamaged(
            f"{source} is no sound backup, and nothing was changed: name a file that `scrubjay "
            "backup` wrote"
        ) from exc


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (PermissionError, OSError) as exc:
        raise errors.StoreReadOnly(
            f"the directory {directory} cannot be made ({exc.strerror}); choose another path "
            "with --path or SCRUBJAY_PATH"
        ) from exc
