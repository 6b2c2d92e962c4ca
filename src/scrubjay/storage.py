"""The values that travel between a store and those who use it.

`ports.Store` speaks of them; they are apart so that the protocols can be read in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from scrubjay.model import Kind, MemoryRecord, PartitionKey, State, Tier, Turn

SegmentKind = Literal["words", "vectors"]


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory on its way into the store.

    `postings` is its words as `scrubjay.index.words.pack` wrote them and `length` their count.
    `content_hash` is what makes two statements the same one; the store keeps at most one
    active episode of a hash in a partition. `follows` names the memory before it in its
    conversation, where an import knows it.
    """

    record: MemoryRecord
    content_hash: bytes
    postings: bytes
    length: int
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A turn and the verbatim episodes cut from it, to be journalled together."""

    turn: Turn
    episodes: tuple[NewMemory, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """An idempotency key with a keyed digest of the body it came with."""

    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Journalled:
    """What `Store.journal` did. `ids[i]` are the memories of entry i; `repeated` were there."""

    ids: tuple[tuple[str, ...], ...]
    turn_ids: tuple[str, ...]
    repeated: frozenset[str] = frozenset()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """What a partition keeps besides its memories.

    `tombstones` are (origin, digest, microseconds since 1970) of what was forgotten; `requests`
    are (key, digest, outcome) of the idempotency keys, the outcome as `Store.journal` kept it.
    """

    tombstones: tuple[tuple[bytes, bytes, int], ...] = ()
    requests: tuple[tuple[str, bytes, Any], ...] = ()


def partition_mark(secret: bytes, key: PartitionKey) -> bytes:
    """What stays of a partition that was forgotten whole: a keyed hash that names nobody.

    >>> len(partition_mark(b"secret", PartitionKey("default", "user:ada")))
    32
    """
    name = "\x00".join((key.tenant, key.subject, key.owner))
    # blake2b is Python's own: OpenSSL's hashes take a lock that a forked child may inherit as held.
    return blake2b(name.encode("utf-8"), key=secret, digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Origin:
    """What makes a store the one it is: its secret, and which partitions it has forgotten whole.

    `forgotten` are (mark, next sequence, generation, microseconds since 1970); a mark is a keyed
    hash that names nobody.
    """

    secret: bytes
    forgotten: tuple[tuple[bytes, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which memories a read may return, beyond the scope.

    None means no restriction. `since` and `until` bound the time of any source of the memory,
    half-open. `states` defaults to active ones; expired memories are never active, whatever
    their row says, once `now` is past `expires_at`. `known_at` keeps what had been recorded
    by then.
    """

    now: datetime
    session_id: str | None = None
    namespace: str | None = None
    kinds: tuple[Kind, ...] | None = None
    tiers: tuple[Tier, ...] | None = None
    states: tuple[State, ...] | None = (State.ACTIVE,)
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as a snapshot sees it. `pid` is the store's own name for it, opaque to others.

    `next_seq` is one more than the highest sequence ever given. `generation` grows with every
    committed change of the partition; `epoch` with each one that is more than an append to a
    tail: sealing, erasing, superseding. Equal generations mean that nothing has changed.
    """

    key: PartitionKey
    pid: Hashable
    next_seq: int
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """An embedding model as the store knows it.

    `number` stands for it in rows. `baseline` is the cosine it gives unrelated texts, by which
    relevance is calibrated; it is kept so that a score does not change with the process.
    """

    number: int
    name: str
    dimension: int
    baseline: float


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A sealed segment without its blob. `model` is 0 for words."""

    sid: int
    kind: SegmentKind
    model: int
    count: int
    min_seq: int
    max_seq: int


@dataclass(frozen=True, slots=True)
class TailWords:
    """The words of a memory that is in no segment yet, with what else ranks it.

    `previous` is the sequence of the memory before it in its conversation, 0 where none;
    `occurred_at` is in microseconds; `trust` and `confidence` are in hundredths.
    """

    seq: int
    length: int
    previous: int
    occurred_at: int
    trust: int
    confidence: int
    postings: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """What to forget, inside one scope. Exactly one of the fields below `whole` is set."""

    whole: bool = False
    memory_id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a segment: its blob, how many memories, and their first and last."""

    blob: bytes
    count: int
    min_seq: int
    max_seq: int


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to seal: it takes the place of `replaces` and of the tail rows it holds.

    `rows` are the tail rows it took in: sequences for words, row ids for vectors.
    """

    kind: SegmentKind
    model: int
    count: int
    min_seq: int
    max_seq: int
    blob: bytes
    rows: tuple[int, ...] = ()
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs by state: `ready` to be claimed now, `leased` to a worker, `waiting` for their time,
    `dead` after too many failures, where they stay visible.
    """

    ready: int = 0
    leased: int = 0
    waiting: int = 0
    dead: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


RewriteSegment = Callable[[SegmentKind, bytes, frozenset[int]], Rest | None]
"""(kind, blob, forgotten seqs) -> the rest, with the same blob if it held none of them, or None
when nothing is left."""
