"""The protocols a backend fills. Their docstrings are its specification.

`scrubjay.testing` turns every sentence here into a test. Three rules hold for all of them:

* **No scope, no answer.** A call that touches memories takes a `Scope`, or a `PartitionKey`
  made from one. A backend binds tenant, subject and owner in each statement; it never reads
  rows and sorts out the strangers afterwards.
* **All or nothing.** Each writing call is one transaction. When it returns, what it wrote
  survives the loss of power; when it raises, nothing of it is there.
* **Errors are ours.** A lower library's error leaves as one of `scrubjay.errors`.

Which memories a scope sees:

| a memory written as          | its agent | user's other agents | tenant's others | other tenants |
| ---------------------------- | --------- | ------------------- | --------------- | ------------- |
| `private` (needs `agent_id`) | yes       | no                  | no              | no            |
| `shared` (the default)       | yes       | yes                 | no              | no            |
| `common`                     | yes       | yes                 | yes             | no            |

A `session_id` or `namespace` in the scope of a read leaves only memories that were said in
that session, or written to that namespace. They narrow the table; they never widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from scrubjay.model import Erasure, Job, MemoryRecord, PartitionKey, Scope, Turn
from scrubjay.storage import (
    Criteria,
    Entry,
    JobCounts,
    Journalled,
    Marks,
    ModelRow,
    NewMemory,
    NewSegment,
    Origin,
    PartitionState,
    Request,
    RewriteSegment,
    SegmentInfo,
    TailWords,
    Target,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Clock = Callable[[], datetime]
"""Returns the present as an aware time. Tests and simulations bring their own."""


class Snapshot(Protocol):
    """One consistent view of the store. Nothing written after it began is in it.

    Every method but `partitions` takes a partition that `partitions` returned.
    """

    def partitions(self, keys: Sequence[PartitionKey]) -> list[PartitionState]:
        """The partitions that exist, in the order of `keys`."""

    def segments(self, partition: PartitionState) -> list[SegmentInfo]:
        """Every segment, ordered by kind, model and `min_seq`."""

    def segment_blob(self, partition: PartitionState, sid: int) -> bytes:
        """The blob of a segment that `segments` listed."""

    def tail_words(self, partition: PartitionState, after: int = 0) -> list[TailWords]:
        """Unsealed words with a sequence above `after`, ascending."""

    def tail_vectors(
        self, partition: PartitionState, model: int, after: int = 0
    ) -> list[tuple[int, int, bytes]]:
        """Unsealed vectors as (row id, seq, float16 bytes), with a row id above `after`, ascending.

        Row ids grow with each vector written, whatever its sequence.
        """

    def vectors(
        self, partition: PartitionState, model: int, seqs: Sequence[int]
    ) -> dict[int, bytes]:
        """The float16 bytes of those of `seqs` that have a vector of `model`."""

    def hidden(self, partition: PartitionState) -> list[int]:
        """The sequences of memories that are not active."""

    def expiries(self, partition: PartitionState) -> list[tuple[int, int]]:
        """(seq, microseconds since 1970) of each active memory that will expire or has."""

    def models(self) -> list[int]:
        """The numbers of the models that vectors were written for."""

    def select(self, partition: PartitionState, criteria: Criteria) -> list[int]:
        """The sequences that meet the criteria, ascending."""

    def metadata(
        self, partition: PartitionState, after: int = 0
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(seq, metadata) of each memory with a sequence above `after` that has any."""

    def records(self, partition: PartitionState, seqs: Sequence[int]) -> list[MemoryRecord]:
        """The whole records of `seqs`, with sources, in that order; an unknown one is left out."""

    def links(self, partition: PartitionState) -> dict[int, int]:
        """For each memory that follows another in its conversation, the sequence of that one."""

    def locate(self, keys: Sequence[PartitionKey], memory_id: str) -> MemoryRecord | None:
        """The record of an id if it lies in one of these partitions, else None."""

    def chain(self, partition: PartitionState, record: MemoryRecord) -> list[MemoryRecord]:
        """All versions that supersede one another, `record` among them, oldest first."""

    def turns(self, partition: PartitionState) -> Iterator[Turn]:
        """The journal of a partition in the order it was written."""


class Store(Protocol):
    """Rows, journal, jobs and segment blobs. The truth, from which all else can be rebuilt."""

    def journal(
        self,
        partition: PartitionKey,
        entries: Sequence[Entry],
        *,
        request: Request | None = None,
        embed: bool = True,
        priority: int = 0,
    ) -> Journalled:
        """Write turns, episodes, words, sources and jobs in one transaction.

        An episode whose `content_hash` an active episode of the partition already has is not
        written: its turn becomes a further source of that one. Sequences are given in order
        under the partition's lock. Each new episode remembers the one before it in its session.
        With a known `request.key` nothing is written and the first outcome is returned;
        `IdempotencyConflict` if the digest differs. `embed` asks for one job that gives the new
        memories their vectors; a lower `priority` goes first.
        """

    def supersede(
        self,
        keys: Sequence[PartitionKey],
        memory_id: str,
        entry: Entry,
        reason: str,
        *,
        embed: bool,
    ) -> MemoryRecord:
        """Write `entry`'s one memory as the next version of the chain `memory_id` belongs to.

        The current head of the chain, which need not be `memory_id`, becomes `superseded` and
        is retired at the new record's `recorded_at`. Racing calls make one line of versions.
        Raises `NotFound` unless the id lies in one of `keys`.
        """

    def import_rows(
        self,
        partition: PartitionKey,
        turns: Sequence[Turn],
        memories: Sequence[NewMemory],
        *,
        embed: bool,
        exact: bool = False,
    ) -> tuple[int, int]:
        """Write an export's rows as they are: ids, times, states, versions.

        An active memory that says what another active one says is skipped, unless `exact` asks
        for a true copy.
        Returns (written, skipped). A turn or memory whose id is in the partition, or has a
        tombstone, is skipped. An id that another partition holds raises `InvalidInput`.
        """

    def erase(
        self,
        keys: Sequence[PartitionKey],
        target: Target,
        rewrite: RewriteSegment,
        now: datetime,
    ) -> Erasure:
        """Remove everything `target` names from these partitions, in one transaction.

        Goes with it: sources, vectors, words, segment entries (through `rewrite`), jobs,
        idempotency records, edges, and every version of a memory. A memory's span in its turn
        is overwritten; a turn with no memory left is removed. A tombstone stays for each
        memory, unless the target is `whole`. After the commit no file of the store holds the
        content. Raises `NotFound` for an unknown memory or turn.
        """

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """A consistent view, which begins with its first question at the latest.

        It never waits for a writer, and is closed by its thread.
        """

    def add_model(self, name: str, dimension: int, baseline: float) -> ModelRow:
        """Remember a model; one that is known keeps its number and baseline.

        Raises `ModelMismatch` when the name was used with another dimension.
        """

    def models(self) -> list[ModelRow]:
        """Every model that vectors were written for, oldest first."""

    def texts(self, partition: PartitionKey, seqs: Sequence[int]) -> dict[int, str]:
        """The content of those of `seqs` that still exist, for embedding."""

    def count_missing(self, model: int) -> int:
        """How many memories have no vector of `model`."""

    def put_vectors(
        self,
        partition: PartitionKey,
        model: int,
        vectors: Mapping[int, bytes],
    ) -> int:
        """Write float16 vectors by sequence; a sequence that is gone is left out.

        Writing one again replaces it. Returns how many were written.
        """

    def seal(self, partition: PartitionKey, segment: NewSegment) -> bool:
        """Put a segment in the place of the tail rows and segments it was made from.

        False, with nothing changed, when any of these is no longer there.
        """

    def drop_model(self, model: int) -> int:
        """Remove a model's vectors and segments everywhere. Returns how many vectors went."""

    def rebuild_words(
        self, partition: PartitionKey, words: Callable[[str], tuple[bytes, int]]
    ) -> int:
        """Throw the words and their segments away and write them anew from the content."""

    def missing_vectors(
        self, partition: PartitionKey, model: int, after: int, limit: int
    ) -> list[int]:
        """Up to `limit` sequences above `after` that have no vector of `model`, ascending."""

    def sealed_vectors(self, partition: PartitionKey, model: int) -> list[int]:
        """The sequences whose vectors are marked as held by a segment."""

    def unseal_vectors(self, partition: PartitionKey) -> None:
        """Throw a partition's vector segments away; its vectors are a tail again."""

    def enqueue(
        self, partition: PartitionKey, kind: str, payload: Mapping[str, Any], priority: int = 0
    ) -> None:
        """Add a job. A `seal` job is added once: a second is the same as the first."""

    def claim(self, limit: int, lease_s: float, now: datetime) -> list[Job]:
        """Take ready jobs of one kind, by priority and age, under a lease.

        As many as hold `limit` items of work together, an `embed` job having one for each
        memory, and at least one job where any is ready.
        A job whose lease has run out is ready again. No two claims hold jobs of one partition
        at once, so that what a user said first is also worked on first.
        """

    def complete(self, jobs: Iterable[Job]) -> None:
        """The jobs are done and leave the table; one that another worker has by now stays."""

    def fail(
        self, job: Job, error: str, retry_at: datetime | None, payload: Mapping[str, Any]
    ) -> None:
        """Give the job back with `payload`, to be tried at `retry_at`; with None it is dead.

        A job whose lease ran out, and that another worker has by now, is left to that one.
        """

    def job_counts(self, now: datetime, added_by: datetime | None = None) -> JobCounts:
        """Jobs by state, those that are not dead also by kind; only the ones added by a time."""

    def dead_jobs(self, keys: Sequence[PartitionKey]) -> list[Job]:
        """Jobs that failed too often, of these partitions."""

    def revive(self) -> int:
        """Make every dead job ready again, and every waiting one due now."""

    def partition_keys(self) -> list[PartitionKey]:
        """Every partition. For maintenance alone; no verb of a user reaches it."""

    def subject_partitions(self, scope: Scope) -> list[PartitionKey]:
        """All partitions of the scope's subject: shared, and private to any of its agents."""

    def are_elsewhere(self, scope: Scope, ids: Sequence[str]) -> bool:
        """Whether a turn or memory with one of these ids lies outside the scope's subject."""

    def counts(self, keys: Sequence[PartitionKey]) -> dict[str, int]:
        """Rows by table and by state within these partitions."""

    def check(self) -> list[str]:
        """Look for damage: the file, foreign rows, sequences, segments. [] when sound."""

    def backup(self, target: str, progress: Callable[[int, int], None] | None = None) -> None:
        """Write a consistent copy to the file `target` while in use."""

    def restore(self, source: str, rewrite: RewriteSegment) -> int:
        """Put a backup's content in the place of this store's, in one step for every reader.

        What this store has forgotten since the backup was made stays forgotten; returns how
        many memories were left out for it. Raises `StoreDamaged`, with nothing changed, when
        `source` is no sound backup.
        """

    def secret(self) -> bytes:
        """32 random bytes of this store, for keyed digests."""

    def origin(self) -> Origin:
        """What makes this store the one it is."""

    def adopt(self, origin: Origin) -> None:
        """Go on as the store that `origin` is of, from which everything is about to be copied.

        Raises `InvalidInput`, with nothing changed, when this store has partitions of its own
        and another secret.
        """

    def marks(self, partition: PartitionKey) -> Marks:
        """The tombstones and idempotency keys of a partition."""

    def add_marks(self, partition: PartitionKey, marks: Marks) -> None:
        """Add to a partition's tombstones and idempotency keys; those that are there stay."""

    def size(self) -> int:
        """Bytes on disk."""

    def close(self) -> None:
        """Release everything. A second call does nothing."""


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors.

    `model_id` names weights and quantisation: two embedders with the same id give the same
    vectors. `embed` returns float32 of shape (len(texts), dimension), rows of length 1, in
    order. It never cuts a text in silence: what is too long is split and its parts averaged.
    It raises `ModelUnavailable` when a later try may succeed and `ModelRejected` when the
    input itself is refused; it never returns fewer rows than texts. It may be called from
    several threads and after a fork.
    """

    @property
    def model_id(self) -> str:
        """Stable name of the weights."""

    @property
    def dimension(self) -> int:
        """Length of each vector."""

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """Vectors of the texts."""

    def close(self) -> None:
        """Release the model."""


class VectorIndex(Protocol):
    """Nearest vectors of partitions too large for RAM. A copy: the Store is the truth.

    `put` replaces; `search` returns (seq, cosine) best first, exactly `k` of them or as many
    as exist among `allowed` (None: all), which is applied before the k best are chosen. It may
    be called from several threads and after a fork; who closes the Store closes it.
    """

    def put(self, partition: PartitionKey, model: int, vectors: Mapping[int, bytes]) -> None:
        """Add or replace float16 vectors by sequence."""

    def remove(self, partition: PartitionKey, seqs: Iterable[int]) -> None:
        """Take sequences out; unknown ones are no error."""

    def search(
        self,
        partition: PartitionKey,
        model: int,
        query: NDArray[np.float32],
        k: int,
        allowed: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> list[tuple[int, float]]:
        """The nearest, best first."""

    def seqs(self, partition: PartitionKey, model: int) -> NDArray[np.int64]:
        """The sequences it has, ascending."""

    def drop(self, partition: PartitionKey) -> None:
        """Forget a partition, its vectors of every model; an unknown one is no error."""

    def keep(self, partitions: Sequence[PartitionKey], models: Sequence[int]) -> None:
        """Forget every other partition, and of these every other model."""

    def build(self, partition: PartitionKey) -> int:
        """Make searches of a partition quick again after many puts; how much was to be done.

        It may take minutes, in which searches and puts go on.
        """


class Codec(Protocol):
    """Through which every large value passes on its way to and from the disk.

    `seal` and `open` are inverses for the same partition and purpose; the blob's first byte
    names the form, so that plain and encrypted values can stand side by side.
    """

    def seal(self, data: bytes, partition: PartitionKey, purpose: str) -> bytes:
        """The stored form."""

    def open(self, blob: bytes, partition: PartitionKey, purpose: str) -> bytes:
        """The value again. Raises `StoreDamaged` when it cannot be read."""


class Background(Protocol):
    """Runs the jobs. In process it is a thread; elsewhere a worker process."""

    def wake(self) -> None:
        """There is new work."""

    def flush(
        self,
        timeout_s: float | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> bool:
        """Wait until no job is ready. False when time ran out, or jobs wait for a retry or died.

        `progress` hears (jobs done, jobs known of, "jobs") now and then.
        """

    def close(self) -> None:
        """Stop after the job at hand."""
