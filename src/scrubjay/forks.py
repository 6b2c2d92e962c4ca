"""Locks that a fork waits for.

A child process has its parent's memory but only the thread that forked. A lock that another
thread held stays held for ever, and so does an import that another thread was in the middle
of. What must not be caught halfway is done under a `ForkLock`.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

_WAIT_S = 10.0


class ForkLock:
    """A reentrant lock that is free in every forked child.

    >>> lock = ForkLock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held_for_fork = False
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """Wait until nobody holds it, though not for ever: a fork must not hang."""
        self._held_for_fork = self._lock.acquire(timeout=_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._held_for_fork:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin with a lock that nobody holds."""
        self._lock = threading.RLock()


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _before() -> None:
    for lock in list(_LOCKS):
        lock.before_fork()


def _in_parent() -> None:
    for lock in list(_LOCKS):
        lock.after_fork_in_parent()


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
