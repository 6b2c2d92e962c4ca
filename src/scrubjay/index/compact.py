"""Sealing and merging: a job, so that no write and no read waits for it.

The tail becomes a segment; eight neighbours of one size become one of the next (a tiered log-
structured merge; O'Neil et al., "The log-structured merge-tree", Acta Informatica 33, 1996).
A partition of n memories so has about 8 log8(n / 512) segments, and each memory is rewritten
log8(n / 512) times. Above `LARGEST` a segment is left alone: erasing one memory rewrites one.
"""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay.index import segments as sealed
from scrubjay.model import PartitionKey
from scrubjay.ports import Snapshot, Store
from scrubjay.storage import NewSegment, PartitionState, SegmentInfo, SegmentKind, TailWords

SMALLEST = 512
FAN_OUT = 8
LARGEST = 65_536
_BATCH = 8_192


def seal(store: Store, key: PartitionKey, *, everything: bool = False) -> int:
    """Seal the tails of a partition and merge its segments; how many segments were written.

    A tail shorter than `SMALLEST` stays a tail unless `everything` is asked for.
    """
    written = 0
    while True:
        with store.snapshot() as snapshot:
            states = snapshot.partitions([key])
            if not states:
                return written
            new = _next_segment(snapshot, states[0], 1 if everything else SMALLEST)
        if new is None:
            return written
        # A writer may have come between: then what it changed is looked at again.
        if store.seal(key, new):
            written += 1


def _next_segment(snapshot: Snapshot, state: PartitionState, least: int) -> NewSegment | None:
    infos = snapshot.segments(state)
    words = snapshot.tail_words(state)
    if len(words) >= least:
        return _sealed_words(words[:_BATCH])
    for model in snapshot.models():
        rows = snapshot.tail_vectors(state, model)
        if len(rows) >= least:
            return _sealed_vectors(model, rows[:_BATCH])
    for group in _groups(infos):
        run = _mergeable(group)
        if run:
            return _merged(snapshot, state, run)
    return None


def _sealed_words(rows: Sequence[TailWords]) -> NewSegment:
    segment = sealed.words_from_tail(rows)
    seqs = segment.seqs.tolist()
    return NewSegment(
        "words", 0, len(seqs), seqs[0], seqs[-1], segment.to_bytes(), rows=tuple(seqs)
    )


def _sealed_vectors(model: int, rows: Sequence[tuple[int, int, bytes]]) -> NewSegment:
    segment = sealed.vectors_from_tail(rows)
    return NewSegment(
        "vectors", model, len(rows), int(segment.seqs.min()), int(segment.seqs.max()),
        segment.to_bytes(), rows=tuple(row[0] for row in rows),
    )  # fmt: skip


def _groups(infos: Sequence[SegmentInfo]) -> list[list[SegmentInfo]]:
    groups: dict[tuple[SegmentKind, int], list[SegmentInfo]] = {}
    for info in infos:
        groups.setdefault((info.kind, info.model), []).append(info)
    return list(groups.values())


def _tier(count: int) -> int:
    tier = 0
    while count >= SMALLEST * FAN_OUT ** (tier + 1):
        tier += 1
    return tier


def _mergeable(infos: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """The oldest eight segments of the lowest tier that has as many, if their sum may be."""
    tiers: dict[int, list[SegmentInfo]] = {}
    for info in infos:
        tiers.setdefault(_tier(info.count), []).append(info)
    for _, members in sorted(tiers.items()):
        run = members[:FAN_OUT]
        if len(run) == FAN_OUT and sum(info.count for info in run) <= LARGEST:
            return run
    return []


def _merged(snapshot: Snapshot, state: PartitionState, run: Sequence[SegmentInfo]) -> NewSegment:
    blobs = [snapshot.segment_blob(state, info.sid) for info in run]
    if run[0].kind == "words":
        blob = sealed.merge_words([sealed.read_words(b) for b in blobs]).to_bytes()
    else:
        blob = sealed.merge_vectors([sealed.read_vectors(b) for b in blobs]).to_bytes()
    return NewSegment(
        run[0].kind, run[0].model, sum(info.count for info in run),
        min(info.min_seq for info in run), max(info.max_seq for info in run), blob,
        replaces=tuple(info.sid for info in run),
    )  # fmt: skip
