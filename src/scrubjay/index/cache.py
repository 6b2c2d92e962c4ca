"""The hot partitions, kept in RAM within a bound; the least recently used leave first."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from scrubjay.index.large import LargePartitions
from scrubjay.index.partition import Partition
from scrubjay.model import PartitionKey
from scrubjay.ports import Snapshot, Store
from scrubjay.storage import PartitionState


class _Slot:
    """A partition and the lock of whoever reads it."""

    __slots__ = ("lock", "nbytes", "partition")

    def __init__(self) -> None:
        self.partition: Partition | None = None
        self.lock = threading.Lock()
        self.nbytes = 0


_Name = tuple[PartitionKey, int]


class IndexCache:
    """Partitions by key and model, up to `limit_bytes`; a larger one stays while it is used."""

    def __init__(
        self, store: Store, limit_bytes: int, large: LargePartitions | None = None
    ) -> None:
        self._store = store
        self._limit = limit_bytes
        self._large = large
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._slots: OrderedDict[_Name, _Slot] = OrderedDict()
        self._total = 0

    @contextlib.contextmanager
    def view(
        self, keys: Sequence[PartitionKey], model: int
    ) -> Iterator[tuple[Snapshot, list[tuple[PartitionState, Partition]]]]:
        """A snapshot with the partitions of `keys` that exist, brought up to it.

        The snapshot begins after the locks are held, so that a partition in RAM is never newer
        than the rows beside it. Locks are taken in one order, so that no two readers wait for
        one another.
        """
        if os.getpid() != self._process:  # locks do not survive a fork
            self._start()
        names = [(key, model) for key in keys]
        slots = {name: self._slot(name) for name in names}
        with ExitStack() as locks:
            for name in sorted(names, key=lambda n: (n[0].subject, n[0].owner)):
                locks.enter_context(slots[name].lock)
            with self._store.snapshot() as snapshot:
                found = []
                for state in snapshot.partitions(keys):
                    slot = slots[state.key, model]
                    partition = slot.partition
                    if partition is None or partition.pid != state.pid:
                        partition = slot.partition = Partition(state.pid, model)
                    partition.refresh(snapshot, state, self._large)
                    found.append((state, partition))
                yield snapshot, found
        self._settle(slots)
        if self._large is not None:
            self._large.request()

    def _slot(self, name: _Name) -> _Slot:
        with self._lock:
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = _Slot()
            self._slots.move_to_end(name)
            return slot

    def _settle(self, used: dict[_Name, _Slot]) -> None:
        """Count what was used, and let the least recently used go while there is too much."""
        with self._lock:
            for name, slot in used.items():
                if self._slots.get(name) is not slot:  # cleared, or put there anew, meanwhile
                    continue
                if slot.partition is None:  # nothing was ever written there
                    del self._slots[name]
                    continue
                self._total += slot.partition.nbytes - slot.nbytes
                slot.nbytes = slot.partition.nbytes
            for name in list(self._slots) if self._total > self._limit else ():
                if name not in used and self._total > self._limit:
                    self._total -= self._slots.pop(name).nbytes

    def clear(self) -> None:
        """Forget every partition in RAM."""
        with self._lock:
            self._slots.clear()
            self._total = 0

    @property
    def nbytes(self) -> int:
        """Bytes of RAM the cached partitions take."""
        return self._total
