"""Scores every visible memory by words and meaning, and fuses the two into relevance.

Words: BM25 (Robertson and Zaragoza, "The probabilistic relevance framework", 2009) with the
statistics of the visible partitions together, divided by what a memory of average length that
says every word once would get, so that 1 means "says all of it". Meaning: the cosine above the
model's floor, on the scale from there to 1. Both lie in 0 to 1 on every store.

A memory is also found by its neighbours: the answer stands after the question. Instead of
indexing each turn twice, alone and with the one before it, the neighbours' own relevance counts
for a part, as independent evidence (noisy-or; Pearl, "Probabilistic reasoning in intelligent
systems", 1988). `docs/decisions/0003-neighbours.md` has the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scrubjay.index.partition import Partition, Run, micros
from scrubjay.model import RecallPolicy, State
from scrubjay.ports import Snapshot
from scrubjay.read.plan import Plan
from scrubjay.storage import PartitionState

if TYPE_CHECKING:
    from numpy.typing import NDArray

K1 = 1.2
B = 0.75

View = Sequence[tuple[PartitionState, Partition]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that may answer, with the parts of its relevance."""

    state: PartitionState
    seq: int
    relevance: float
    score: float
    words: float
    meaning: float
    recency: float
    occurred_at: int


def candidates(
    snapshot: Snapshot, view: View, plan: Plan, policy: RecallPolicy, k: int
) -> list[Candidate]:
    """The `k` best of all partitions, best first. All that narrows applies before the choice."""
    words = _words(view, plan)
    found: list[Candidate] = []
    for (state, partition), coverage in zip(view, words, strict=True):
        allowed = _allowed(snapshot, state, partition, plan)
        found += _best(state, partition, coverage, allowed, plan, policy, k)
    found.sort(key=lambda c: (-c.score, -c.occurred_at, -c.seq))
    return found[:k]


def _words(view: View, plan: Plan) -> list[NDArray[np.float32]]:
    """How much of the question each memory says, float32 (size,) by partition."""
    runs = [list(partition.postings(plan.terms)) for _, partition in view]
    documents = sum(partition.documents for _, partition in view)
    if not documents or not any(runs):
        return [np.zeros(partition.size, np.float32) for _, partition in view]
    average = max(1.0, sum(p.total_length for _, p in view) / documents)
    frequency = np.zeros(len(plan.terms), np.int64)
    for i, seqs, _ in (run for partition_runs in runs for run in partition_runs):
        frequency[i] += len(seqs)
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    idf *= plan.weights
    worth = idf * np.float32((K1 + 1) / idf.sum())
    return [
        _coverage(partition, partition_runs, worth, average)
        for (_, partition), partition_runs in zip(view, runs, strict=True)
    ]


def _coverage(
    partition: Partition, runs: Sequence[Run], worth: NDArray[np.float32], average: float
) -> NDArray[np.float32]:
    """BM25 of one partition over all its runs of postings at once."""
    if not runs:
        return np.zeros(partition.size, np.float32)
    seqs = np.concatenate([seqs for _, seqs, _ in runs])
    tf = np.concatenate([counts for _, _, counts in runs]).astype(np.float32)
    part = np.repeat(worth[[i for i, _, _ in runs]], [len(seqs) for _, seqs, _ in runs])
    part *= tf
    saturation = partition.lengths.take(seqs)
    saturation *= np.float32(K1 * B / average)
    saturation += np.float32(K1 * (1 - B))
    saturation += tf
    part /= saturation
    return np.bincount(seqs, part, partition.size).astype(np.float32)


def _visible(partition: Partition, plan: Plan) -> NDArray[np.bool_] | None:
    """Whose own relevance counts, as itself and as a neighbour; None for everyone's."""
    if plan.criteria.states != (State.ACTIVE,):
        return None
    return partition.live(micros(plan.criteria.now))


def _allowed(
    snapshot: Snapshot, state: PartitionState, partition: Partition, plan: Plan
) -> NDArray[np.bool_] | None:
    """Which memories may be returned, bool (size,); None for every visible one."""
    allowed = None
    if plan.narrowed:
        allowed = np.zeros(partition.size, np.bool_)
        allowed[np.array(snapshot.select(state, plan.criteria), np.int64)] = True
    if plan.conditions:
        if allowed is None:
            allowed = _visible(partition, plan)
        seqs = np.arange(1, partition.size) if allowed is None else np.flatnonzero(allowed)
        metadata = partition.metadata(snapshot, state)
        none: dict[str, object] = {}
        fits = np.zeros(partition.size, np.bool_)
        for seq in seqs.tolist():
            found = metadata.get(seq, none)
            fits[seq] = all(condition.holds(found) for condition in plan.conditions)
        allowed = fits
    return allowed


def _best(
    state: PartitionState,
    partition: Partition,
    words: NDArray[np.float32],
    allowed: NDArray[np.bool_] | None,
    plan: Plan,
    policy: RecallPolicy,
    k: int,
) -> list[Candidate]:
    np.minimum(words, 1.0, out=words)
    own, meaning = words, None
    if plan.vector is not None:
        meaning = _meaning(partition, plan)
        own = _fused(partition, words, meaning, plan, policy)
    visible = _visible(partition, plan)
    if visible is not None:
        own = np.where(visible, own, np.float32(0))
    relevance = _with_neighbours(partition, own, policy)
    relevance[0] = 0
    if visible is not None:
        relevance *= visible
    if allowed is not None:
        relevance *= allowed
    if plan.threshold:
        relevance[relevance < plan.threshold] = 0
    seqs = _promising(relevance, policy, k)
    recency = _recency(partition, seqs, plan, policy)
    score = relevance[seqs] * recency
    score *= 1 - _doubt(partition, seqs, policy)
    order = np.lexsort((-seqs, -partition.occurred[seqs], -score))[:k]
    return [
        Candidate(
            state=state,
            seq=int(seqs[i]),
            relevance=min(1.0, float(relevance[seqs[i]])),
            score=min(1.0, float(score[i])),
            words=float(words[seqs[i]]),
            meaning=0.0 if meaning is None else float(meaning[seqs[i]]),
            recency=float(recency[i]),
            occurred_at=int(partition.occurred[seqs[i]]),
        )
        for i in order.tolist()
    ]


def _doubt(
    partition: Partition, seqs: NDArray[np.int64], policy: RecallPolicy
) -> NDArray[np.float32]:
    """How much of the score confidence and trust take away: at most their weights."""
    lost = np.float32(policy.confidence / 100) * (100 - partition.confidence[seqs])
    lost += np.float32(policy.trust / 100) * (100 - partition.trust[seqs])
    return lost.astype(np.float32)


def _fused(
    partition: Partition,
    words: NDArray[np.float32],
    meaning: NDArray[np.float32],
    plan: Plan,
    policy: RecallPolicy,
) -> NDArray[np.float32]:
    """Words and meaning by their shares; what has no vector yet is judged by words alone."""
    share = np.float32(policy.vector_weight if len(plan.terms) else 1.0)
    own = meaning * share
    own += words * (1 - share)
    return own if partition.all_embedded else np.where(partition.embedded, own, words)


def _promising(relevance: NDArray[np.float32], policy: RecallPolicy, k: int) -> NDArray[np.int64]:
    """The sequences among which the `k` best scores must be.

    The score lowers relevance by at most the shares of recency, confidence and trust, so
    whatever lies further below the k-th relevance than that cannot come before it.
    """
    border = np.float32(0)
    if k < len(relevance):
        border = np.partition(relevance, len(relevance) - k)[len(relevance) - k]
        border *= np.float32((1 - policy.recency) * (1 - policy.confidence - policy.trust))
    return np.flatnonzero(relevance >= max(border, np.finfo(np.float32).tiny))


def _meaning(partition: Partition, plan: Plan) -> NDArray[np.float32]:
    """How near each memory is to the question, from the model's floor on, float32 (size,)."""
    assert plan.vector is not None
    floor = np.float32(plan.baseline)
    near = (partition.cosines(plan.vector) - floor) / (1 - floor)
    return np.clip(near, 0, 1, out=near)


def _with_neighbours(
    partition: Partition, own: NDArray[np.float32], policy: RecallPolicy
) -> NDArray[np.float32]:
    """The relevance of each memory: its own, with what its neighbours say for it."""
    doubt = np.float32(1) - own
    for neighbour, weight in (
        (partition.previous, policy.before_weight),
        (partition.following, policy.after_weight),
    ):
        part = own.take(neighbour)
        part *= np.float32(-weight)
        part += np.float32(1)
        doubt *= part
    relevance: NDArray[np.float32] = np.float32(1) - doubt
    return relevance


def _recency(
    partition: Partition, seqs: NDArray[np.int64], plan: Plan, policy: RecallPolicy
) -> NDArray[np.float32]:
    """A factor from 1 - weight to 1 whose excess halves every half-life."""
    weight = np.float32(policy.recency)
    age = micros(plan.criteria.now) - partition.occurred[seqs]
    half_lives = np.maximum(age, 0).astype(np.float32) / np.float32(
        policy.half_life_days * 86_400_000_000
    )
    factor: NDArray[np.float32] = (1 - weight) + weight * np.exp2(-half_lives)
    return factor
