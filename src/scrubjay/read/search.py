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

from scrubjay.index.partition import Partition, micros
from scrubjay.model import RecallPolicy
from scrubjay.ports import PartitionState, Snapshot
from scrubjay.read.plan import Plan

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


def candidates(
    snapshot: Snapshot, view: View, plan: Plan, policy: RecallPolicy, k: int
) -> list[Candidate]:
    """The `k` best of all partitions by score, best first. Filters apply before the choice."""
    words = _words(view, plan)
    found: list[Candidate] = []
    for (state, partition), coverage in zip(view, words, strict=True):
        allowed = _allowed(snapshot, state, partition, plan)
        if allowed is None:
            continue
        found += _best(state, partition, coverage, allowed, plan, policy, k)
    found.sort(key=lambda c: (-c.score, -c.seq))
    return found[:k]


def _words(view: View, plan: Plan) -> list[NDArray[np.float32]]:
    """How much of the question each memory says, float32 (size,) by partition."""
    scores = [np.zeros(partition.size, np.float32) for _, partition in view]
    documents = sum(partition.documents for _, partition in view)
    if not documents or not len(plan.terms):
        return scores
    average = max(1.0, sum(p.total_length for _, p in view) / documents)
    runs = [(score, partition.lengths, *run)
            for score, (_, partition) in zip(scores, view, strict=True)
            for run in partition.postings(plan.terms)]  # fmt: skip
    frequency = np.zeros(len(plan.terms), np.int64)
    for _, _, i, seqs, _ in runs:
        frequency[i] += len(seqs)
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    idf *= plan.weights
    full = float(idf.sum())
    slope, offset = np.float32(K1 * B / average), np.float32(K1 * (1 - B))
    for score, lengths, i, seqs, counts in runs:
        tf = counts.astype(np.float32)
        factor = np.float32(idf[i] * (K1 + 1) / full)
        score[seqs] += factor * tf / (tf + (offset + slope * lengths[seqs]))
    return scores


def _allowed(
    snapshot: Snapshot, state: PartitionState, partition: Partition, plan: Plan
) -> NDArray[np.bool_] | None:
    """Which memories may be returned, bool (size,); None when there is none."""
    if plan.narrowed:
        allowed = np.zeros(partition.size, np.bool_)
        allowed[np.array(snapshot.select(state, plan.criteria), np.int64)] = True
    else:
        allowed = partition.live(micros(plan.criteria.now))
    if plan.conditions:
        metadata = partition.metadata(snapshot, state)
        none: dict[str, object] = {}
        fits = np.zeros(partition.size, np.bool_)
        for seq in np.flatnonzero(allowed).tolist():
            found = metadata.get(seq, none)
            fits[seq] = all(condition.holds(found) for condition in plan.conditions)
        allowed = fits
    return allowed if allowed.any() else None


def _best(
    state: PartitionState,
    partition: Partition,
    words: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    plan: Plan,
    policy: RecallPolicy,
    k: int,
) -> list[Candidate]:
    np.minimum(words, 1.0, out=words)
    own, meaning = words, None
    if plan.vector is not None:
        meaning = _meaning(partition, plan)
        share = np.float32(policy.vector_weight if len(plan.terms) else 1.0)
        # A memory that has no vector yet is judged by its words alone, not held back.
        own = np.where(partition.embedded, (1 - share) * words + share * meaning, words)
    visible = allowed if plan.narrowed else partition.live(micros(plan.criteria.now))
    relevance = _with_neighbours(partition, np.where(visible, own, np.float32(0)), policy)
    score = relevance * _recency(partition, plan, policy)
    score[~allowed] = 0
    chosen = _top(score, k)
    return [
        Candidate(
            state, seq, float(relevance[seq]), float(score[seq]), float(words[seq]),
            float(meaning[seq]) if meaning is not None else 0.0,
        )
        for seq in chosen.tolist()
    ]  # fmt: skip


def _meaning(partition: Partition, plan: Plan) -> NDArray[np.float32]:
    """How near each memory is to the question, from the model's floor on, float32 (size,)."""
    assert plan.vector is not None
    floor = np.float32(plan.baseline)
    near = (partition.cosines(plan.vector) - floor) / (1 - floor)
    return np.clip(near, 0, 1, out=near)


def _with_neighbours(
    partition: Partition, own: NDArray[np.float32], policy: RecallPolicy
) -> NDArray[np.float32]:
    before = np.float32(policy.before_weight) * own[partition.previous]
    after = np.float32(policy.after_weight) * own[partition.following]
    relevance: NDArray[np.float32] = 1 - (1 - own) * (1 - before) * (1 - after)
    return relevance


def _recency(partition: Partition, plan: Plan, policy: RecallPolicy) -> NDArray[np.float32]:
    """A factor from 1 - weight to 1 that halves its excess every half-life."""
    weight = np.float32(policy.recency)
    if not weight:
        return np.ones(partition.size, np.float32)
    age = micros(plan.criteria.now) - partition.occurred
    half_lives = np.maximum(age, 0).astype(np.float32) / np.float32(
        policy.half_life_days * 86_400_000_000
    )
    factor: NDArray[np.float32] = (1 - weight) + weight * np.exp2(-half_lives)
    return factor


def _top(score: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The sequences of the `k` highest scores above 0, best first, newest first among equals."""
    if k < len(score):
        chosen = np.argpartition(score, len(score) - k)[len(score) - k :]
        # Of equals at the border the newest are taken, whatever order the partition left.
        border = score[chosen].min()
        above = np.flatnonzero(score > border)
        equal = np.flatnonzero(score == border)
        chosen = np.concatenate([above, equal[len(equal) - (k - len(above)) :]])
    else:
        chosen = np.arange(len(score))
    chosen = chosen[score[chosen] > 0]
    return chosen[np.lexsort((-chosen, -score[chosen]))]
