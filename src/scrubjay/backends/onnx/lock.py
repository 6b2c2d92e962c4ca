"""Contract: one process at a time, for work that ends in an atomic rename.

An advisory lock on a file: `flock` where there is `fcntl`, `msvcrt.locking` on Windows. The
system drops it when the process dies, so that a killed holder blocks nobody.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scrubjay.errors import ModelUnavailable

_POLL_S = 0.1
_HELD = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


@contextmanager
def exclusive_lock(path: Path, timeout_s: float) -> Iterator[bool]:
    """Hold the lock file `path` for the block. Other threads and processes wait.

    Gives True if the lock is held and False if the file system cannot lock, where the caller must
    leave the files of others alone. Raises `ModelUnavailable` after `timeout_s`, and `OSError` if
    the file cannot be made.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        held = _wait(handle, path, timeout_s)
        try:
            yield held
        finally:
            if held:
                _unlock(handle)
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _try_lock(handle)
        except OSError as error:
            if error.errno not in _HELD:
                return False
        else:
            return True
        if time.monotonic() > deadline:
            raise ModelUnavailable(
                f"another process has been preparing the model for {timeout_s:.0f} s "
                f"(it holds {path}). Try again when it is done, or end it."
            )
        time.sleep(_POLL_S)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
