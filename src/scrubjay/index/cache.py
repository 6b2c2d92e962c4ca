"""The hot partitions, kept in RAM within a bound; the least recently used leave first."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from scrubjay.index.partition import Partition
from scrubjay.model import PartitionKey
from scrubjay.ports import PartitionState, Snapshot, Store


class _Slot:
    """A partition and the lock of whoever reads it."""

    __slots__ = ("lock", "nbytes", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.lock = threading.Lock()
        self.nbytes = 0


class IndexCache:
    """Partitions by number, up to `limit_bytes`; one that is larger stays while it is used."""

    def __init__(self, store: Store, limit_bytes: int) -> None:
        self._store = store
        self._limit = limit_bytes
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[int, int], _Slot] = OrderedDict()

    @contextlib.contextmanager
    def view(
        self, keys: Sequence[PartitionKey], model: int
    ) -> Iterator[tuple[Snapshot, list[tuple[PartitionState, Partition]]]]:
        """A snapshot with the partitions of `keys` that exist, brought up to it.

        The snapshot begins after the locks are held, so that a partition in RAM is never newer
        than the rows beside it.
        """
        if os.getpid() != self._process:  # locks do not survive a fork
            self._start()
        with self._store.snapshot() as looking:
            pids = sorted({state.pid for state in looking.partitions(keys)})
        with ExitStack() as locks:
            slots = {pid: self._slot(pid, model) for pid in pids}
            for pid in pids:
                locks.enter_context(slots[pid].lock)
            with self._store.snapshot() as snapshot:
                found = []
                for state in snapshot.partitions(keys):
                    if state.pid in slots:
                        partition = slots[state.pid].partition
                        partition.refresh(snapshot, state)
                        slots[state.pid].nbytes = partition.nbytes
                        found.append((state, partition))
                yield snapshot, found
        self._evict(keep={(pid, model) for pid in pids})

    def _slot(self, pid: int, model: int) -> _Slot:
        with self._lock:
            slot = self._slots.get((pid, model))
            if slot is None:
                slot = self._slots[(pid, model)] = _Slot(Partition(pid, model))
            self._slots.move_to_end((pid, model))
            return slot

    def _evict(self, keep: set[tuple[int, int]]) -> None:
        with self._lock:
            total = sum(slot.nbytes for slot in self._slots.values())
            for key in list(self._slots):
                if total <= self._limit:
                    return
                if key not in keep:
                    total -= self._slots.pop(key).nbytes

    def clear(self) -> None:
        """Forget every partition in RAM."""
        with self._lock:
            self._slots.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of RAM the cached partitions take."""
        with self._lock:
            return sum(slot.nbytes for slot in self._slots.values())
