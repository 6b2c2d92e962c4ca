"""Scores every visible memory by words and meaning, and fuses the two into relevance.

Words: BM25 (Robertson and Zaragoza, "The probabilistic relevance framework", 2009) with the
statistics of the visible partitions together, divided by what a memory of average length that
says every word once would get, so that 1 means "says all of it". Meaning: the cosine above the
model's floor, on the scale from there to 1. Both lie in 0 to 1 on every store.

A memory is also found by its neighbours: the answer stands after the question. Instead of
indexing each turn twice, alone and with the one before it, the neighbours' own relevance counts
for a part, as independent evidence (noisy-or; Pearl, "Probabilistic reasoning in intelligent
systems", 1988). `docs/decisions/0003-neighbours.md` has the measurement.

Where a VectorIndex holds a partition's vectors, it only chooses. The nearest, the best by words and
those around them are then compared by their vectors of the Store, so that the relevance of each of
these, and of its neighbours, is what it would be in RAM. Anything else counts as far away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scrubjay.errors import ScrubjayError
from scrubjay.index.large import LargePartitions
from scrubjay.index.partition import Partition, Run, micros
from scrubjay.model import RecallPolicy, State
from scrubjay.ports import Snapshot
from scrubjay.read.plan import Plan
from scrubjay.storage import PartitionState

if TYPE_CHECKING:
    from numpy.typing import NDArray

K1 = 1.2
B = 0.75
_NEAREST = 200
_NEAREST_A_HIT = 8
_MOST_BESIDE = 1_000
"""How many nearest are asked of a VectorIndex: so many for each hit, but at least `_NEAREST`, and
no more than `_MOST_BESIDE` beside the hits."""

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


@dataclass(slots=True)
class _Searched:
    """A partition with what is known of its memories, by sequence.

    `words` is how much of the question each says, `meaning` how near it is or None for words alone,
    `allowed` who may be returned (None: every visible one).
    """

    state: PartitionState
    partition: Partition
    words: NDArray[np.float32]
    allowed: NDArray[np.bool_] | None
    meaning: NDArray[np.float32] | None = None


def candidates(
    snapshot: Snapshot,
    view: View,
    plan: Plan,
    policy: RecallPolicy,
    k: int,
    large: LargePartitions | None = None,
) -> tuple[list[Candidate], str | None]:
    """The `k` best of all partitions, best first. All that narrows applies before the choice.

    With a note when the VectorIndex of the `large` ones failed, and words alone had to do.
    """
    searched = [
        _Searched(state, partition, words, _allowed(snapshot, state, partition, plan))
        for (state, partition), words in zip(view, _words(view, plan), strict=True)
    ]
    note = None
    if plan.vector is not None:
        try:
            for each in searched:
                each.meaning = _meaning(snapshot, each, plan, k, large)
        except ScrubjayError as exc:
            note = f"searched by words alone: {exc}"
            for each in searched:  # in one way everywhere, or scores could not be compared
                each.meaning = None
    found = [candidate for each in searched for candidate in _best(each, plan, policy, k)]
    found.sort(key=lambda c: (-c.score, -c.occurred_at, -c.seq))
    return found[:k], note


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


def _best(each: _Searched, plan: Plan, policy: RecallPolicy, k: int) -> list[Candidate]:
    partition, words, meaning, allowed = each.partition, each.words, each.meaning, each.allowed
    np.minimum(words, 1.0, out=words)
    own = words
    if meaning is not None:
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
            state=each.state,
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


def _meaning(
    snapshot: Snapshot, each: _Searched, plan: Plan, k: int, large: LargePartitions | None
) -> NDArray[np.float32]:
    """How near each memory is to the question, from the model's floor on, float32 (size,)."""
    assert plan.vector is not None
    brought = {}
    if each.partition.outside is not None:
        assert large is not None, "whatever lies outside was found by it"
        seqs = _promising_outside(each, plan, plan.vector, k, large)
        brought = snapshot.vectors(each.state, each.partition.model, seqs)
    floor = np.float32(plan.baseline)
    near = (each.partition.cosines(plan.vector, brought) - floor) / (1 - floor)
    return np.clip(near, 0, 1, out=near)


def _promising_outside(
    each: _Searched,
    plan: Plan,
    query: NDArray[np.float32],
    k: int,
    large: LargePartitions,
) -> list[int]:
    """Of those whose vectors are outside, whoever may be among the best or speak for one."""
    partition = each.partition
    counts = np.zeros(partition.size, np.bool_)  # whose meaning does, as itself or as neighbour
    counts[partition.outside] = True
    visible = _visible(partition, plan)
    if visible is not None:
        counts &= visible
    may = counts if each.allowed is None else counts & each.allowed
    most = max(_NEAREST, min(_NEAREST_A_HIT * k, k + _MOST_BESIDE))
    among = None if visible is None and each.allowed is None else np.flatnonzero(may)
    least = min(most, int(may.sum()))
    best = large.nearest(each.state, partition.model, query, most, among, least)
    best = best[best < partition.size]  # what was said after this snapshot is not in it
    said = np.flatnonzero((each.words > 0) & may)
    if len(said) > most:
        said = said[np.argpartition(each.words[said], len(said) - most)[-most:]]
    around = np.union1d(best, said)
    for _ in range(2):  # their neighbours, who are found by them, and whoever speaks for those
        sides = (partition.previous[around], partition.following[around])
        around = np.unique(np.concatenate([around, *sides]))
    found: list[int] = around[counts[around]].tolist()
    return found


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
