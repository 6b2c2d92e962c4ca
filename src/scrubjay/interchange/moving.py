"""Moving a whole store into another of any kind: journal, memories, vectors, what was forgotten.

Partition by partition, in batches, while the source is read. A partition whose rows are the same
on both sides is passed over, so that a move that was stopped is taken up by the next call. Each
one is then compared: its rows, line by line as an export has them, and its vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from scrubjay.errors import InvalidInput, StoreDamaged
from scrubjay.index.segments import without
from scrubjay.interchange.archive import lines
from scrubjay.life.upkeep import Progress
from scrubjay.model import PartitionKey
from scrubjay.ports import Snapshot, Store
from scrubjay.storage import Criteria, Origin, PartitionState, Target, partition_mark
from scrubjay.text import metadata as metadata_json
from scrubjay.write.episode import new_memory

_BATCH = 500
_WHENEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Of every state, so that it does not matter what has expired by now."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move found and did.

    `sha256` is over the lines of every partition, in the order of their names; both stores gave
    the same one.
    """

    partitions: int
    turns: int
    memories: int
    vectors: int
    already_there: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "partitions": self.partitions,
            "turns": self.turns,
            "memories": self.memories,
            "vectors": self.vectors,
            "already_there": self.already_there,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class _Content:
    """What a partition holds: counts, a checksum of its lines, one of its vectors by model."""

    turns: int = 0
    memories: int = 0
    vectors: int = 0
    lines: str = ""
    by_model: tuple[tuple[str, str], ...] = ()


def move(source: Store, target: Store, now: datetime, progress: Progress | None = None) -> Moved:
    """Copy everything of `source` into `target`, and compare.

    `target` is empty, or holds part of an earlier move from the same source. Raises
    `InvalidInput` when it is another store's, and `StoreDamaged` when a partition differs
    afterwards, as when someone wrote to either store meanwhile.
    """
    target.adopt(source.origin())
    models = {row.number: row for row in source.models()}
    numbers = {
        n: target.add_model(row.name, row.dimension, row.baseline).number
        for n, row in models.items()
    }
    keys = sorted(source.partition_keys(), key=lambda k: (k.tenant, k.subject, k.owner))
    _forget_as_well(target, source.origin(), set(target.partition_keys()) - set(keys), now)
    digest = hashlib.sha256()
    total = _Content()
    already = 0
    for done, key in enumerate(keys):
        wanted = _content(source, key)
        if _content(target, key) == wanted:
            already += 1
        else:
            _copy(source, target, key, numbers, now)
            _compare(wanted, _content(target, key), key)
        target.add_marks(key, source.marks(key))
        digest.update(wanted.lines.encode())
        total = _Content(
            total.turns + wanted.turns,
            total.memories + wanted.memories,
            total.vectors + wanted.vectors,
        )
        if progress:
            progress(done + 1, len(keys), "users")
    return Moved(len(keys), total.turns, total.memories, total.vectors, already, digest.hexdigest())


def _forget_as_well(target: Store, origin: Origin, keys: set[PartitionKey], now: datetime) -> None:
    """What the source has forgotten whole since an earlier move is forgotten in the target too."""
    forgotten = {mark for mark, *_ in origin.forgotten}
    for key in keys:
        if partition_mark(origin.secret, key) not in forgotten:
            raise InvalidInput(
                "the target has memories of a user that the source does not know; name an empty one"
            )
        target.erase([key], Target(whole=True), without, now)
    target.adopt(origin)


def _compare(wanted: _Content, found: _Content, key: PartitionKey) -> None:
    if found != wanted:
        raise StoreDamaged(
            f"after copying, a user of tenant {key.tenant!r} has {found.turns} turns, "
            f"{found.memories} memories and {found.vectors} vectors in the target, and "
            f"{wanted.turns}, {wanted.memories} and {wanted.vectors} in the source, or they "
            "differ; let nobody write to either store meanwhile, and begin again with an empty "
            "target"
        )


def _content(store: Store, key: PartitionKey) -> _Content:
    digest = hashlib.sha256()
    counts = {"turn": 0, "memory": 0}
    names = {row.number: row.name for row in store.models()}
    with store.snapshot() as snapshot:
        for line in lines(snapshot, [key]):
            digest.update(metadata_json.dumps(line).encode() + b"\n")
            counts[line["type"]] += 1
        states = snapshot.partitions([key])
        if not states:
            return _Content()
        vectors, by_model = 0, []
        for number, name in names.items():
            count, sha256 = _vectors_digest(snapshot, states[0], number)
            vectors += count
            if count:
                by_model.append((name, sha256))
    return _Content(
        counts["turn"], counts["memory"], vectors, digest.hexdigest(), tuple(sorted(by_model))
    )


def _seqs(snapshot: Snapshot, state: PartitionState) -> list[int]:
    return snapshot.select(state, Criteria(now=_WHENEVER, states=None))


def _vectors_digest(snapshot: Snapshot, state: PartitionState, model: int) -> tuple[int, str]:
    """How many vectors, and a checksum of them by their memory's place."""
    digest, count = hashlib.sha256(), 0
    seqs = _seqs(snapshot, state)
    for start in range(0, len(seqs), _BATCH):
        part = seqs[start : start + _BATCH]
        found = snapshot.vectors(state, model, part)
        for place, seq in enumerate(part, start):
            if seq in found:
                digest.update(place.to_bytes(8, "big") + found[seq])
                count += 1
    return count, digest.hexdigest()


def _copy(
    source: Store, target: Store, key: PartitionKey, numbers: dict[int, int], now: datetime
) -> None:
    with source.snapshot() as snapshot:
        (state,) = snapshot.partitions([key])
        turns = []
        for turn in snapshot.turns(state):
            turns.append(turn)
            if len(turns) == _BATCH:
                target.import_rows(key, turns, [], embed=False)
                turns = []
        target.import_rows(key, turns, [], embed=False)
        seqs = _seqs(snapshot, state)
        _copy_memories(snapshot, target, state, seqs)
        _copy_vectors(snapshot, target, state, seqs, numbers)
    if numbers or source.job_counts(now).kinds.get("embed"):
        _ask_for_the_rest(target, key, max(numbers.values(), default=0))


def _copy_memories(
    snapshot: Snapshot, target: Store, state: PartitionState, seqs: Sequence[int]
) -> None:
    secret, links = target.secret(), snapshot.links(state)
    ids: dict[int, str] = {}
    for start in range(0, len(seqs), _BATCH):
        batch = []
        for record in snapshot.records(state, seqs[start : start + _BATCH]):
            ids[record.seq] = record.id
            new = new_memory(record, secret)
            batch.append(replace(new, follows=ids.get(links.get(record.seq, 0))))
        target.import_rows(state.key, [], batch, embed=False, exact=True)


def _copy_vectors(
    snapshot: Snapshot,
    target: Store,
    state: PartitionState,
    seqs: Sequence[int],
    numbers: dict[int, int],
) -> None:
    """Vectors go by their memory's place: the n-th memory of one side is that of the other."""
    key = state.key
    with target.snapshot() as there:
        states = there.partitions([key])
        places = _seqs(there, states[0]) if states else []
    if len(places) != len(seqs):
        return  # the comparison that follows says so
    for model, number in numbers.items():
        for start in range(0, len(seqs), _BATCH):
            part = seqs[start : start + _BATCH]
            found = snapshot.vectors(state, model, part)
            moved = {places[start + i]: found[seq] for i, seq in enumerate(part) if seq in found}
            if moved:
                target.put_vectors(key, number, moved)


def _ask_for_the_rest(target: Store, key: PartitionKey, newest: int) -> None:
    """What had no vector of the newest model yet is embedded in its new place."""
    after = 0
    while seqs := target.missing_vectors(key, newest, after, _BATCH):
        target.enqueue(key, "embed", {"seqs": seqs}, 1)
        after = seqs[-1]
    target.enqueue(key, "seal", {})
