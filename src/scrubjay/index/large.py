"""Partitions too large for RAM: their sealed vectors are searched in a `ports.VectorIndex`.

The Store is the truth, the VectorIndex a copy that may lag. Vectors go there once the Store has
them, before the job that made them is completed, and are taken out again where a forgetting came
between. A partition is searched there once all that its segments hold is there, and in RAM until
then; an answer shorter than it should be is no answer. An `index` job brings what is lacking.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from scrubjay.errors import ScrubjayError, StoreError
from scrubjay.model import Job, PartitionKey
from scrubjay.ports import Store, VectorIndex
from scrubjay.storage import Criteria, PartitionState

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 1_000
_AT_ONCE = 20_000
"""Vectors one `index` job brings. Then it lets others go first, and a new one follows."""
_ASK_AGAIN_S = 60.0
_EVERYTHING = Criteria(now=datetime(1970, 1, 1, tzinfo=UTC), states=None)


class LargePartitions:
    """Which partitions `vectors` is searched for, and all that keeps it a copy. Thread-safe.

    A partition is large once `least` memories were ever written to it.
    """

    def __init__(self, store: Store, vectors: VectorIndex, least: int) -> None:
        self._store = store
        self._vectors = vectors
        self._least = least
        self._held: set[tuple[Hashable, int]] = set()
        self._met: dict[PartitionKey, int] = {}
        self._asked: dict[PartitionKey, float] = {}
        self._lacking: set[PartitionKey] = set()

    # -- searching --------------------------------------------------------------------------

    def wants(self, state: PartitionState) -> bool:
        """Whether a partition is large."""
        return state.next_seq > self._least

    def holds(self, state: PartitionState, model: int, seqs: NDArray[np.uint32]) -> bool:
        """Whether the VectorIndex has these. Once it has, it is not asked again.

        When it cannot be asked, it is taken at its word: RAM may not be able to stand in.
        """
        if (state.pid, model) in self._held:
            return True
        try:
            held = self._vectors.seqs(state.key, model)
        except ScrubjayError:
            return True
        if not np.isin(seqs, held).all():
            self._lacking.add(state.key)
            return False
        self._held.add((state.pid, model))
        return True

    def nearest(
        self,
        state: PartitionState,
        model: int,
        query: NDArray[np.float32],
        k: int,
        among: NDArray[np.int64] | None,
        least: int,
    ) -> NDArray[np.int64]:
        """The `k` nearest `among` these (None: all). Raises `StoreError` for fewer than `least`."""
        found = self._vectors.search(state.key, model, query, k, among)
        if len(found) < least:
            self._lacking.add(state.key)
            self._held.discard((state.pid, model))
            raise StoreError(
                "the vector index lacks vectors that the store has, and a job brings them over; "
                "try again later, or run `scrubjay doctor --repair`"
            )
        return np.array([seq for seq, _ in found], np.int64)

    def request(self) -> None:
        """Ask for the jobs that readers and writers found to be needed.

        Apart from finding it, since a reader has a snapshot open and must not wait for a writer.
        """
        while self._lacking:
            with contextlib.suppress(KeyError, StoreError):  # what reads must not fail for it
                key = self._lacking.pop()
                now = time.monotonic()
                if now - self._asked.get(key, float("-inf")) >= _ASK_AGAIN_S:
                    self._asked[key] = now
                    self._store.enqueue(key, "index", {}, priority=2)

    # -- keeping it a copy ------------------------------------------------------------------

    def put(self, key: PartitionKey, model: int, seqs: Sequence[int]) -> None:
        """Copy vectors that the Store now has, if their partition is large.

        The first of a partition in this process, and each time it has doubled, asks for a job
        that looks at all of it.
        """
        with self._store.snapshot() as snapshot:
            states = snapshot.partitions([key])
            if not states or not self.wants(states[0]):
                return
            vectors = snapshot.vectors(states[0], model, seqs)
        self._copy(key, model, vectors)
        if states[0].next_seq >= 2 * self._met.get(key, 0):
            self._met[key] = states[0].next_seq
            self._lacking.add(key)
            self.request()

    def _copy(self, key: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        self._vectors.put(key, model, vectors)
        gone = vectors.keys() - self._store.texts(key, list(vectors)).keys()
        if gone:  # forgotten after they were read, and perhaps before they were put
            self._vectors.remove(key, gone)

    def run(self, jobs: Sequence[Job]) -> None:
        """Run claimed `index` jobs, each of which may run twice."""
        for job in jobs:
            if self.mend(job.partition, _AT_ONCE):
                self._vectors.build(job.partition)
            else:
                self._store.enqueue(job.partition, "index", {}, priority=2)
            self._store.complete([job])

    def mend(self, key: PartitionKey, most: int | None = None) -> bool:
        """Take out what is forgotten and bring what is lacking. False once `most` were brought."""
        strays = self.strays(key)
        if strays:
            self._vectors.remove(key, strays)
        brought = 0
        for model, vectors in self._missing(key):
            if most is not None and brought >= most:
                return False
            self._copy(key, model, vectors)
            brought += len(vectors)
        return True

    def strays(self, key: PartitionKey) -> set[int]:
        """What the VectorIndex has of a partition though the Store has it no more."""
        held: set[int] = set()
        for row in self._store.models():
            held |= set(self._vectors.seqs(key, row.number).tolist())
        # Looked at afterwards, so that what is copied meanwhile is not taken for forgotten.
        return held - self._there(key) if held else held

    def lacking(self, key: PartitionKey) -> int:
        """How many vectors the VectorIndex should have of a partition and has not."""
        return sum(len(vectors) for _, vectors in self._missing(key))

    def _missing(self, key: PartitionKey) -> Iterator[tuple[int, dict[int, bytes]]]:
        """By model and batch, the vectors of a large partition that only the Store has."""
        with self._store.snapshot() as snapshot:
            states = snapshot.partitions([key])
            models = snapshot.models() if states and self.wants(states[0]) else []
        for model in models:
            held = set(self._vectors.seqs(key, model).tolist())
            seqs = sorted(self._there(key) - held)
            for start in range(0, len(seqs), _BATCH):
                with self._store.snapshot() as snapshot:
                    states = snapshot.partitions([key])
                    batch = seqs[start : start + _BATCH]
                    vectors = snapshot.vectors(states[0], model, batch) if states else {}
                if vectors:
                    yield model, vectors

    def _there(self, key: PartitionKey) -> set[int]:
        with self._store.snapshot() as snapshot:
            states = snapshot.partitions([key])
            return set(snapshot.select(states[0], _EVERYTHING)) if states else set()

    def forget(self, keys: Sequence[PartitionKey], *, whole: bool) -> None:
        """Take out what the Store has just forgotten of these partitions, large or not."""
        for key in keys:
            if whole:
                self._vectors.drop(key)
            elif strays := self.strays(key):
                self._vectors.remove(key, strays)

    def every(self) -> list[PartitionKey]:
        """Every large partition."""
        known, found = self._store.partition_keys(), []
        for start in range(0, len(known), _BATCH):
            with self._store.snapshot() as snapshot:
                states = snapshot.partitions(known[start : start + _BATCH])
            found += [state.key for state in states if self.wants(state)]
        return found

    def tidy(self) -> None:
        """Forget whatever belongs to a partition or a model that the Store does not know."""
        models = [row.number for row in self._store.models()]
        self._vectors.keep(self._store.partition_keys(), models)

    def rebuild(self) -> None:
        """Throw the copies away and make them anew from the Store."""
        self.tidy()
        for key in self.every():
            self._vectors.drop(key)
            self.mend(key)
            self._vectors.build(key)

    def catch_up(self) -> None:
        """After the Store's content was replaced: what is no more goes, jobs bring the rest."""
        self._held.clear()
        self._asked.clear()
        self.tidy()
        self._lacking.update(self.every())
        self.request()
