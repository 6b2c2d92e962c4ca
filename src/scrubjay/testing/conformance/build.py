"""Short ways to make the values the suites write, with nothing left to chance but the ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import numpy as np

from scrubjay.index import segments as sealed
from scrubjay.index.words import pack
from scrubjay.model import (
    Kind,
    MemoryRecord,
    PartitionKey,
    Role,
    Scope,
    Source,
    Turn,
    Visibility,
    new_id,
)
from scrubjay.ports import Snapshot, Store
from scrubjay.storage import Criteria, Entry, NewMemory, NewSegment, PartitionState

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ADA = PartitionKey("default", "user:ada")
BOB = PartitionKey("default", "user:bob")
DIMENSION = 16


def at(days: float = 0, seconds: float = 0) -> datetime:
    """A time after the beginning of 2026."""
    return T0 + timedelta(days=days, seconds=seconds)


def scope_of(key: PartitionKey, **narrow: str | None) -> Scope:
    """A scope whose writes lie in a partition."""
    user = key.subject.removeprefix("user:") if key.subject.startswith("user:") else None
    device = key.subject.removeprefix("device:") if key.subject.startswith("device:") else None
    agent = narrow.pop("agent_id", None) or key.owner or None
    return Scope(user_id=user, device_id=device, agent_id=agent, tenant=key.tenant, **narrow)


def _visibility(key: PartitionKey) -> Visibility:
    if key.subject == "common:":
        return Visibility.COMMON
    return Visibility.PRIVATE if key.owner else Visibility.SHARED


def new_memory(record: MemoryRecord) -> NewMemory:
    """A record with its words, and a hash of its content and kind."""
    said = f"{record.kind.value}\x00{record.content}".encode("utf-8", "replace")
    postings, length = pack(record.content)
    return NewMemory(record, blake2b(said, digest_size=16).digest(), postings, length)


def entry(
    *parts: str,
    key: PartitionKey = ADA,
    session: str | None = None,
    namespace: str | None = None,
    when: datetime = T0,
    recorded: datetime | None = None,
    metadata: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Entry:
    """A turn that says `parts` one after another, each an episode. `fields` go to the records."""
    recorded = recorded or when
    scope = scope_of(key, session_id=session, namespace=namespace)
    turn = Turn(
        id=new_id(recorded),
        scope=scope,
        role=fields.get("role", Role.USER),
        content=" ".join(parts),
        occurred_at=when,
        recorded_at=recorded,
        metadata=metadata or {},
    )
    episodes, start = [], 0
    for part in parts:
        source = Source(turn.id, start, start + len(part), when, session)
        values = {
            "kind": Kind.EPISODE,
            "metadata": metadata or {},
            "visibility": _visibility(key),
            **fields,
        }
        record = MemoryRecord(
            id=new_id(recorded),
            scope=scope,
            content=part,
            occurred_at=when,
            recorded_at=recorded,
            sources=(source,),
            **values,
        )
        episodes.append(new_memory(record))
        start += len(part) + 1
    return Entry(turn, tuple(episodes))


def write(store: Store, *texts: str, key: PartitionKey = ADA, **options: Any) -> list[str]:
    """Journal a turn of one episode for each text; the ids of their memories."""
    embed = options.pop("embed", False)
    entries = [entry(text, key=key, **options) for text in texts]
    return [i for ids in store.journal(key, entries, embed=embed).ids for i in ids]


def everything(now: datetime = T0, **criteria: Any) -> Criteria:
    """Criteria that keep every state, unless told otherwise."""
    return replace(Criteria(now=now, states=None), **criteria)


def state_of(snapshot: Snapshot, key: PartitionKey = ADA) -> PartitionState:
    """The state of a partition that exists."""
    (state,) = snapshot.partitions([key])
    return state


def seen(store: Store, key: PartitionKey = ADA, criteria: Criteria | None = None) -> list[str]:
    """The contents a fresh snapshot sees in a partition, by sequence. [] where there is none."""
    with store.snapshot() as snapshot:
        states = snapshot.partitions([key])
        if not states:
            return []
        seqs = snapshot.select(states[0], criteria or everything())
        return [record.content for record in snapshot.records(states[0], seqs)]


def record_of(store: Store, memory_id: str, key: PartitionKey = ADA) -> MemoryRecord:
    """The record of an id, which must be there."""
    with store.snapshot() as snapshot:
        record = snapshot.locate([key], memory_id)
    assert record is not None, "the memory is not there"
    return record


def seqs_of(store: Store, ids: Sequence[str], key: PartitionKey = ADA) -> list[int]:
    """The sequences of ids."""
    return [record_of(store, i, key).seq for i in ids]


def vector(seed: int, dimension: int = DIMENSION) -> bytes:
    """A unit vector of chance, as float16 bytes; the same for the same seed."""
    values = np.random.default_rng(seed).normal(size=dimension)
    return (values / np.linalg.norm(values)).astype(np.float16).tobytes()


def words_segment(snapshot: Snapshot, key: PartitionKey = ADA) -> NewSegment:
    """The segment that seals all tail words a snapshot sees."""
    rows = snapshot.tail_words(state_of(snapshot, key))
    seqs = [row.seq for row in rows]
    blob = sealed.words_from_tail(rows).to_bytes()
    return NewSegment("words", 0, len(seqs), min(seqs), max(seqs), blob, rows=tuple(seqs))


def vectors_segment(snapshot: Snapshot, model: int, key: PartitionKey = ADA) -> NewSegment:
    """The segment that seals all tail vectors of a model a snapshot sees."""
    rows = snapshot.tail_vectors(state_of(snapshot, key), model)
    seqs = [row[1] for row in rows]
    blob = sealed.vectors_from_tail(rows).to_bytes()
    numbers = tuple(row[0] for row in rows)
    return NewSegment("vectors", model, len(seqs), min(seqs), max(seqs), blob, rows=numbers)


def seal_words(store: Store, key: PartitionKey = ADA) -> NewSegment:
    """Seal the whole word tail of a partition."""
    with store.snapshot() as snapshot:
        segment = words_segment(snapshot, key)
    assert store.seal(key, segment)
    return segment


def seal_vectors(store: Store, model: int, key: PartitionKey = ADA) -> NewSegment:
    """Seal the whole vector tail of a model."""
    with store.snapshot() as snapshot:
        segment = vectors_segment(snapshot, model, key)
    assert store.seal(key, segment)
    return segment
